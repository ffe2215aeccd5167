//! Every part of a restored checkpoint is durable before a process of the group resumes: at its owner and at as many
//! holders as the federation requests, under protocols that promise it. Under other protocols, a part without any
//! durable copy is only reported as a remark. A protocol must promise this if it treats a restored checkpoint like a
//! committed one, and removes the checkpoints that the restored one makes obsolete.
//!
//! Under the same promise, a process that starts from its initial state acts only after it has committed a checkpoint.
//!
//! A copy that was lost before the recovery started must be created again. A loss while the group recovers may be
//! detected too late for that. The start of the recovery, as claimed by the members, separates the two cases, but only
//! if all processes read the same clock; otherwise a copy counts if it ever existed.

use std::collections::BTreeMap;

use faultline_core::{Claim, Fact, FactKind, FactNo, Life, Position, ProcessId, Promise, Time};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{
    CheckpointName, Context, GroupId, History, Part, Point, RestoredBy, Rollback, Source, StoredCopy,
};

/// The durable copies that a restored part had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DurableCopies {
    None,
    NoneAtOwner,
    Only { found: usize, replicas: usize },
}

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    ResumedBeforeDurable { group: GroupId, position: Position, owner: ProcessId, copies: DurableCopies },
    ActedBeforeFirstCheckpoint { process: ProcessId, life: Life },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::ResumedBeforeDurable { group: by, position, owner, copies } => {
                let copies = match copies {
                    DurableCopies::None => "not durable anywhere".to_owned(),
                    DurableCopies::NoneAtOwner => "not durable at its owner".to_owned(),
                    DurableCopies::Only { found, replicas } => {
                        format!("durable at only {found} of {replicas} holders")
                    }
                };
                format!(
                    "{} resumed from checkpoint {position} although the part of {} was {copies}",
                    names.group(by),
                    names.process(owner)
                )
            }
            Breach::ActedBeforeFirstCheckpoint { process: by, life } => {
                format!("{life} of {} acted before it had committed a checkpoint", names.process(by))
            }
        }
    }
}

pub(super) const RULE: Rule = Rule::new(
    Property::DurableBeforeResume,
    "restored checkpoints were durable before processes resumed",
    check,
)
.needs(&[FactKind::Durable]);

fn check(history: &History<'_>, finding: &mut Findings) {
    if history.tasks.is_some() {
        return; // a process restores an image that it finds in storage, so the image is durable
    }
    let beginnings = beginnings(history);
    for (number, group) in history.groups.numbered() {
        for rollback in group.rollbacks.values() {
            let Some(name) = rollback.target().flatten() else { continue };
            let Some(checkpoint) = group.checkpoints.get(&name) else { continue };
            let Some(recovery) = Recovery::of(history, rollback, &beginnings) else { continue };
            for (&owner, part) in group.members.iter().zip(&checkpoint.parts) {
                recovery.check(number, owner, name, part, finding);
            }
        }
    }
    if history.context.promises.include(Promise::DurableRestore) {
        check_beginnings(history, finding);
    } else {
        // The group may still hold the restored state in memory. This is a risk if another failure occurs, but not a
        // broken promise.
        finding.not_promised(history.context);
    }
}

/// Checks that a process that is in its initial state commits a checkpoint before it acts.
fn check_beginnings(history: &History<'_>, finding: &mut Findings) {
    for segment in history.segments.iter().filter(|it| it.parent.is_none() && !it.is_rootless) {
        let (process, life) = (segment.host, segment.life);
        let Some(stream) = history.trace.streams.get(&(process, life)) else { continue };
        let range = segment.begin as usize..(segment.end as usize).min(stream.len());
        let facts = stream.get(range).unwrap_or_default().iter().zip(segment.begin..);
        let mut acting = facts.filter(|((_, fact), _)| is_committed(fact) || is_action(fact));
        let Some(((_, fact), number)) = acting.next() else { continue };
        finding.instances += 1;
        if !is_committed(fact) && !history.trace.has_gap_of(process) {
            let source = Source { process, life, number: FactNo(number.into()) };
            finding.violated([source], Breach::ActedBeforeFirstCheckpoint { process, life });
        }
    }
}

fn is_committed(fact: &Fact) -> bool {
    matches!(fact, Fact::Claim(claim) if matches!(**claim, Claim::Committed { .. }))
}

fn is_action(fact: &Fact) -> bool {
    matches!(fact, Fact::Sent { .. } | Fact::Delivered(_) | Fact::Computed { .. })
}

/// By process: the points and times at which it claims to have started to recover.
type Beginnings = BTreeMap<ProcessId, Vec<(Point, Time)>>;

/// Returns the times at which each process claims to have started to recover, in ascending order.
fn beginnings(history: &History<'_>) -> Beginnings {
    let mut beginnings = Beginnings::new();
    for claimed in history.claims.iter().filter(|it| matches!(it.claim, Claim::RecoveryStarted { .. })) {
        beginnings.entry(history.process_of(claimed.at)).or_default().push((claimed.at, claimed.time));
    }
    beginnings
}

/// One recovery, from its start to its end.
struct Recovery<'a> {
    history: &'a History<'a>,
    /// The first restore.
    first: &'a RestoredBy,
    /// The earliest time at which a member started to recover. A copy that was lost earlier does not count.
    began: Time,
}

impl<'a> Recovery<'a> {
    fn of(history: &'a History<'a>, rollback: &'a Rollback, beginnings: &Beginnings) -> Option<Recovery<'a>> {
        let first = rollback.restores().min_by_key(|it| it.time)?;
        let began = |restored: &RestoredBy| {
            let own = beginnings.get(&history.process_of(restored.at))?;
            // Compares points rather than times, because the next recovery may begin at the time of the restore.
            own[..own.partition_point(|(at, _)| *at < restored.at)].last().map(|(_, began)| *began)
        };
        let began = rollback.restores().map(|it| began(it).unwrap_or(Time::ZERO)).min()?;
        Some(Recovery { history, first, began })
    }

    fn check(
        &self,
        group: GroupId,
        owner: ProcessId,
        name: CheckpointName,
        part: &Part,
        finding: &mut Findings,
    ) {
        let (history, context) = (self.history, self.history.context);
        let copies: Vec<ProcessId> =
            part.copies.iter().filter(|it| self.is_available(it)).map(|it| it.holder).collect();
        finding.instances += 1;
        let replicas = context.copies.map_or(0, |it| it.replicas as usize);
        let found = context.copies_at(owner, copies.iter().copied()).unwrap_or(0);
        let missing = if !context.promises.include(Promise::DurableRestore) {
            copies.is_empty().then_some(DurableCopies::None)
        } else if !copies.contains(&owner) {
            Some(DurableCopies::NoneAtOwner)
        } else {
            (found < replicas).then_some(DurableCopies::Only { found, replicas })
        };
        let Some(missing) = missing else { return };
        if (0..history.processes.len() as u32).any(|it| history.trace.has_gap_of(ProcessId(it))) {
            return finding.lacks_facts("facts are missing that may show a durable copy");
        }
        finding.violated(
            [history.source(self.first.at)],
            Breach::ResumedBeforeDurable { group, position: name.position, owner, copies: missing },
        );
    }

    /// Returns whether a copy was durable before the group resumed, and had not been lost before the group started to
    /// recover.
    fn is_available(&self, copy: &StoredCopy) -> bool {
        if !self.history.context.common_clock {
            return true;
        }
        let mut losses = self.history.supervision.storage_losses(copy.holder).iter();
        let is_lost = losses.any(|&(life, at, _)| life >= copy.life && at < self.began);
        copy.time <= self.first.time && !is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::Span;
    use faultline_trace::manifest::{Copies, ReplicaHolders};

    /// Returns a run in which p0 takes a checkpoint with a replica at p1, fails, and starts to recover. If
    /// `lost` is set, p1 loses the replica before the recovery starts.
    fn run(promises: &[Promise], lost: bool) -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.common_clock = true;
        run.context.promises = run.context.promises.with(promises);
        run.context.copies = Some(Copies { replicas: 1, kept_by: ReplicaHolders::OtherCluster });
        run.durable(1, run.image(0, 0, 1));
        run.commit_all(0, &[0]);
        run.wait(Span(10));
        run.kill(0, false);
        if lost {
            run.kill(1, true);
        }
        run.wait(Span(10));
        run.claim(0, Claim::RecoveryStarted { lives: 2, round: 0 });
        run.wait(Span(10));
        run
    }

    fn wrong(run: &Run) -> Option<Breach> {
        check_alone(&RULE, run).wrong::<Breach>().into_iter().next()
    }

    #[test]
    fn a_copy_lost_before_the_recovery_must_be_made_again() {
        let mut kept = run(&[Promise::DurableRestore], false);
        kept.restore(0, 1, Some((0, 1)));
        assert_eq!(wrong(&kept), None);
        assert_eq!(check_alone(&RULE, &kept).instances, 2, "the first checkpoint, and the restored one");
        let mut lost = run(&[Promise::DurableRestore], true);
        lost.restore(0, 1, Some((0, 1)));
        let copies = DurableCopies::Only { found: 0, replicas: 1 };
        assert!(
            matches!(wrong(&lost), Some(Breach::ResumedBeforeDurable { copies: it, .. }) if it == copies)
        );
        let mut again = run(&[Promise::DurableRestore], true);
        again.durable(1, again.image(0, 0, 1));
        again.restore(0, 1, Some((0, 1)));
        assert_eq!(wrong(&again), None);
    }

    #[test]
    fn a_process_acts_only_after_its_first_checkpoint() {
        let found = |acts_early: bool, promises: &[Promise]| {
            let mut run = Run::new(&[&[0], &[1]]);
            run.context.promises = run.context.promises.with(promises);
            run.commit_all(1, &[1]);
            if !acts_early {
                run.commit_all(0, &[0]);
            }
            let id = run.send(0, 1);
            run.deliver(id);
            run.commit_all(0, &[0]);
            wrong(&run)
        };
        let promises = [Promise::DurableRestore];
        let early = found(true, &promises);
        let Some(Breach::ActedBeforeFirstCheckpoint { process, .. }) = early else { panic!("{early:?}") };
        assert_eq!(process, ProcessId(0));
        assert_eq!((found(false, &promises), found(true, &[])), (None, None));
    }

    /// A process that returns to its initial state takes its first checkpoint again.
    #[test]
    fn a_restored_initial_state_needs_a_checkpoint_as_well() {
        let found = |commits: bool| {
            let mut run = Run::new(&[&[0], &[1]]);
            run.context.promises = run.context.promises.with(&[Promise::DurableRestore]);
            run.kill(0, false);
            run.restore(0, 1, None);
            if commits {
                run.commit_all(0, &[0]);
            }
            run.send(0, 1);
            wrong(&run).is_some()
        };
        assert_eq!((found(false), found(true)), (true, false));
    }

    #[test]
    fn a_copy_that_comes_after_the_restore_is_too_late() {
        let mut run = run(&[Promise::DurableRestore], true);
        run.restore(0, 1, Some((0, 1)));
        run.wait(Span(1));
        run.durable(1, run.image(0, 0, 1));
        assert!(wrong(&run).is_some());
        run.context.common_clock = false;
        assert_eq!(wrong(&run), None, "without a common clock the order is unknown");
    }

    #[test]
    fn a_loss_while_the_group_recovers_is_no_violation() {
        let mut run = run(&[Promise::DurableRestore], false);
        run.kill(1, true);
        run.wait(Span(1));
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(wrong(&run), None);
    }

    #[test]
    fn a_recovery_that_begins_at_the_time_of_a_restore_is_the_next_one() {
        let mut run = run(&[Promise::DurableRestore], false);
        run.kill(1, true);
        run.wait(Span(1));
        run.restore(0, 1, Some((0, 1)));
        run.claim(0, Claim::RecoveryStarted { lives: 3, round: 0 });
        assert_eq!(wrong(&run), None);
    }

    #[test]
    fn without_the_promise_one_copy_is_enough() {
        let mut run = run(&[], true);
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(wrong(&run), None);
    }

    #[test]
    fn a_part_that_was_never_durable_is_a_remark_under_every_protocol() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let stream =
            run.trace.streams.get_mut(&(faultline_core::ProcessId(0), faultline_core::Life(1))).unwrap();
        // Keeps the numbers of the other facts.
        stream
            .iter_mut()
            .filter(|(_, it)| matches!(it, faultline_core::Fact::Durable(_)))
            .for_each(|it| it.1 = faultline_core::Fact::Begun);
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        let finding = check_alone(&RULE, &run);
        let remark = &finding.remarks[0];
        assert!(remark.starts_with("not promised: ") && remark.contains("not durable anywhere"), "{remark}");
        assert_eq!(finding.violation_count(), 0, "nothing was promised");
    }
}
