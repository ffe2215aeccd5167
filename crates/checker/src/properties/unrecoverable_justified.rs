//! A cluster may be declared unrecoverable only if all copies of a part are lost: at its owner and at every holder. The
//! federation specifies the number of holders. A process that reported that a copy was durable, and has lost nothing
//! since, still has the copy, unless a rollback undid the checkpoint, a newer checkpoint replaced it, or another part
//! of the checkpoint is lost. A cluster can be restored if its newest committed checkpoint has all of its parts and
//! contains no orphan delivery. There is one exception: if the cluster has rolled back past a committed checkpoint that
//! is now lost, a collection may have relied on that checkpoint and removed older ones, which then need not be
//! restored.
//!
//! A protocol that survives a limited number of failures at a time ([`FaultModel::Volatile`]) may also declare a
//! cluster unrecoverable if more processes than that have failed. The checker does not judge whether the first of them
//! had recovered by then.

use std::collections::BTreeSet;

use faultline_core::{
    Attempt, Claim, FactKind, FaultModel, ImageName, Incarnation, Life, Position, ProcessId, Promise,
};

use super::lost_tasks::newest_left;
use super::orphan_deliveries::OrphanDeliveries;
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{
    Checkpoint, CheckpointName, Claimed, Context, Group, GroupId, History, Part, StoredCopy,
};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    WasDurable { owner: ProcessId, position: Position, holder: ProcessId },
    TooFewLosses { group: GroupId, owner: ProcessId, holders: u32 },
    NothingLost { group: GroupId, names_parts: bool },
    WasAvailable { group: GroupId, position: Position },
    LogNotLost { group: Option<GroupId>, holder: ProcessId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::WasDurable { owner, position, holder } => format!(
                "the part of {} in checkpoint {position} was reported missing, but was durable at {}",
                names.process(owner),
                names.process(holder)
            ),
            Breach::TooFewLosses { group: of, owner, holders } => format!(
                "{} was declared unrecoverable because the part of {} was missing, but fewer than {holders} of the \
                 processes that store it had lost anything",
                names.group(of),
                names.process(owner)
            ),
            Breach::NothingLost { group: of, names_parts } => {
                let of = names.group(of);
                let form = match names_parts {
                    true => String::new(),
                    false => format!("; if one was, name it in the claim ({FORM_OF_MISSING})"),
                };
                format!("{of} was declared unrecoverable, but no part was lost{form}")
            }
            Breach::WasAvailable { group: of, position } => format!(
                "{} was declared unrecoverable, but every part of checkpoint {position} was available",
                names.group(of)
            ),
            Breach::LogNotLost { group: of, holder } => format!(
                "{} was declared unrecoverable because its log was missing, but {} had not lost it",
                of.map_or_else(|| "a process".to_owned(), |it| names.group(it)),
                names.process(holder)
            ),
        }
    }
}

pub(super) const RULE: Rule = Rule::new(
    Property::UnrecoverableJustified,
    "no cluster that could be restored was declared unrecoverable",
    check,
)
.needs(&[FactKind::Unrecoverable]);

/// How a program names the missing parts in its claim.
pub(super) const FORM_OF_MISSING: &str =
    r#"`"missing": [{"name": [owner, incarnation, sn, attempt], "asked": [processes]}]`"#;

/// Returns the parts of the newest checkpoint that a group had committed of which all copies may have been lost before the
/// supervisor's fact `before`.
pub(super) fn lost_parts(history: &History<'_>, group: GroupId, before: usize) -> Vec<ImageName> {
    let Some((_, group)) = history.groups.numbered().find(|(number, _)| *number == group) else {
        return Vec::new();
    };
    let line = group.line_before(Incarnation(u32::MAX));
    let Some((newest, checkpoint)) = group.committed_after(&line, Position::default()).next() else {
        return Vec::new();
    };
    let Position { incarnation, sn } = newest.position;
    let is_lost = |owner: ProcessId, part: &Part| {
        let was_stored =
            !part.copies.is_empty() || history.supervision.may_have_lost(owner, Life::default(), before);
        was_stored && part.may_be_lost(&history.supervision, before)
    };
    let parts = group.members.iter().copied().zip(&checkpoint.parts);
    let lost = parts.filter(|(owner, part)| is_lost(*owner, part));
    lost.map(|(owner, _)| ImageName { owner, incarnation, sn, attempt: newest.attempt }).collect()
}

fn check(history: &History<'_>, finding: &mut Findings) {
    let mut orphans = None;
    for claimed in &history.claims {
        if let Claim::Unrecoverable { missing, .. } = claimed.claim {
            finding.instances += 1;
            let orphans = orphans.get_or_insert_with(|| OrphanDeliveries::of(history));
            UnrecoverableClaim::new(history, orphans, claimed).judge(missing, finding);
        }
    }
}

/// One claim that a cluster cannot be restored.
struct UnrecoverableClaim<'a> {
    history: &'a History<'a>,
    orphans: &'a OrphanDeliveries,
    claimed: &'a Claimed<'a>,
    /// The index of the fact with which the supervisor reports the end of the life that made the claim.
    before: usize,
}

impl<'a> UnrecoverableClaim<'a> {
    fn new(
        history: &'a History<'a>,
        orphans: &'a OrphanDeliveries,
        claimed: &'a Claimed<'a>,
    ) -> UnrecoverableClaim<'a> {
        let segment = history.segment(claimed.at.segment);
        let before = history.supervision.end_of_life(segment.process, segment.life);
        UnrecoverableClaim { history, orphans, claimed, before }
    }

    fn judge(&self, missing: &[(ImageName, Vec<ProcessId>)], finding: &mut Findings) {
        let (history, context) = (self.history, self.history.context);
        if self.is_beyond(context.promises.survives) {
            return;
        }
        let at = history.source(self.claimed.at);
        // A claim that names no part means those of the newest checkpoint that are lost.
        let names_parts = !missing.is_empty();
        let group = history.group_of(history.process_of(self.claimed.at));
        let lost =
            group.filter(|_| !names_parts).map_or_else(Vec::new, |it| lost_parts(history, it, self.before));
        let lost: Vec<_> = lost.into_iter().map(|name| (name, Vec::new())).collect();
        let missing = if names_parts { missing } else { &lost };
        let mut is_explained = false;
        // The storage of a process that never returns or has left is out of reach.
        let gone = history.supervision.gone(&context.clusters);
        for (name, _) in missing {
            if history.member(name.owner).is_none() {
                return self.judge_log(name.owner, finding);
            }
            let part = self.part(name);
            let copies = part.map_or(&[][..], |part| &part.copies);
            let lost = |copy: &&StoredCopy| {
                gone.contains(&copy.holder)
                    || history.has_left(copy.holder)
                    || history.supervision.may_have_lost(copy.holder, copy.life, self.before)
            };
            if let Some(copy) = copies.iter().find(|copy| !lost(copy))
                && !self.is_superfluous(name)
                && !self.is_broken(name)
            {
                finding.violated(
                    [at],
                    Breach::WasDurable { owner: name.owner, position: name.position(), holder: copy.holder },
                );
                is_explained = true;
            }
            if let Some((position, holder)) = self.remaining_state(name.owner, lost) {
                finding.violated([at], Breach::WasDurable { owner: name.owner, position, holder });
                is_explained = true;
            }
            // A part that was never durable matters only if its owner has lost the data that it wrote.
            is_explained |= !copies.is_empty()
                || gone.contains(&name.owner)
                || history.supervision.may_have_lost(name.owner, Default::default(), self.before);
        }
        let Some(group) = group else { return };
        if let Some((owner, held)) = self.too_few_losses(group, missing) {
            finding.violated([at], Breach::TooFewLosses { group, owner, holders: held });
            return;
        }
        if !is_explained {
            finding.violated([at], Breach::NothingLost { group, names_parts });
        } else if let Some(position) = self.restorable(group)
            && !self.may_be_collected(position, missing)
        {
            finding.violated([at], Breach::WasAvailable { group, position });
        }
    }

    /// Returns the newest checkpoint that a process of a work-stealing program could restore, and a holder of it.
    /// Judged only if the process itself makes the claim: others may have absorbed its state, which then was removed.
    fn remaining_state(
        &self,
        owner: ProcessId,
        is_lost: impl Fn(&&StoredCopy) -> bool,
    ) -> Option<(Position, ProcessId)> {
        let history = self.history;
        let source = history.source(self.claimed.at);
        if history.tasks.is_none() || history.planned.is_some() || source.process != owner {
            return None;
        }
        // The images of a log that follow its first one, a checkpoint, are of no use without it.
        let is_log = history.context.promises.include(Promise::EventsLogged);
        let (group, _) = history.member(owner)?;
        let is_restorable = |name: &CheckpointName| {
            name.position.incarnation < source.life.incarnation() && !(is_log && name.attempt > Attempt(1))
        };
        newest_left(&history.groups[group], is_restorable, |copy| !is_lost(&copy))
    }

    /// Returns whether more processes have failed than the protocol survives at a time.
    fn is_beyond(&self, survives: FaultModel) -> bool {
        let FaultModel::Volatile { failures } = survives else { return false };
        let ends = self.history.supervision.ends.iter().filter(|it| it.fact < self.before);
        ends.map(|it| it.process).collect::<BTreeSet<_>>().len() > failures as usize
    }

    /// Judges a log that only a process outside all groups holds: the log must have been lost, and must not have been
    /// completed since.
    fn judge_log(&self, holder: ProcessId, finding: &mut Findings) {
        let history = self.history;
        let complete = history
            .claims
            .iter()
            .rev()
            .find(|it| matches!(it.claim, Claim::Protected) && history.process_of(it.at) == holder);
        let since = complete.map(|it| history.segment(it.at.segment).life).unwrap_or_default();
        if !history.supervision.may_have_lost(holder, since, self.before) {
            let group = history.group_of(history.process_of(self.claimed.at));
            finding.violated([history.source(self.claimed.at)], Breach::LogNotLost { group, holder });
        }
    }

    /// Returns the owner of the first missing part and the number of its holders, itself included, if no loss explains
    /// why any of the missing parts is unavailable. Losses elsewhere may have undone messages that the group had
    /// delivered, so this is judged only if all committed checkpoints of the group are clean.
    fn too_few_losses(
        &self,
        group: GroupId,
        missing: &[(ImageName, Vec<ProcessId>)],
    ) -> Option<(ProcessId, u32)> {
        let (history, context) = (self.history, self.history.context);
        if history.tasks.is_some() || history.planned.is_some() {
            return None; // other processes replace holders that failed permanently
        }
        let mut committed = history.groups[group].checkpoints.values().filter(|it| !it.commits.is_empty());
        if committed.any(|it| !self.is_clean(it)) {
            return None;
        }
        let replicas = context.copies?.replicas;
        let has_lost = |&it: &ProcessId| history.supervision.may_have_lost(it, Life(0), self.before);
        let all = (0..history.processes.len() as u32).map(ProcessId);
        let losers: Vec<ProcessId> = all.filter(has_lost).collect();
        let is_explained = |&(name, _): &&(ImageName, Vec<ProcessId>)| {
            let copies = context.copies_at(name.owner, losers.iter().copied()).unwrap_or(0);
            losers.contains(&name.owner) && (copies >= replicas as usize || !self.requires_copies(name))
        };
        let (first, _) = missing.first()?;
        missing.iter().find(|it| is_explained(it)).is_none().then_some((first.owner, replicas + 1))
    }

    /// Returns whether every replica of a part must have been durable: its checkpoint was committed, or the protocol
    /// promises that a checkpoint is durable at every holder before a group resumes from it.
    fn requires_copies(&self, name: &ImageName) -> bool {
        let is_committed = self.checkpoint(name).is_some_and(|it| !it.commits.is_empty());
        is_committed || self.history.context.promises.include(Promise::DurableRestore)
    }

    /// Returns the newest committed checkpoint, if nothing prevents a rollback to it. A protocol that does
    /// not promise a maximal line may pass it over for a reason that no fact states.
    fn restorable(&self, group: GroupId) -> Option<Position> {
        let history = self.history;
        if !history.context.promises.include(Promise::MaximalLine) {
            return None;
        }
        let line = history.groups[group].line_before(Incarnation(u32::MAX));
        let (name, checkpoint) = history.groups[group].committed_after(&line, Position::default()).next()?;
        let is_there =
            |part: &Part| part.cut.is_some() && !part.may_be_lost(&history.supervision, self.before);
        if !checkpoint.parts.iter().all(is_there) {
            return None;
        }
        self.is_clean(checkpoint).then_some(name.position)
    }

    /// Returns whether processes were free to discard this part: a rollback undid its checkpoint, or a newer
    /// checkpoint that need not be passed over was committed or restored.
    fn is_superfluous(&self, name: &ImageName) -> bool {
        let Some((group, _)) = self.history.member(name.owner) else { return false };
        let group = &self.history.groups[group];
        if self.history.planned.is_some() {
            // A partition that does not roll back continues its line in the next recovery.
            let mut newer = group.checkpoints.iter().filter(|(it, _)| it.position > name.position());
            return newer.any(|(_, it)| !it.commits.is_empty());
        }
        let line = group.line_before(Incarnation(u32::MAX));
        let restored =
            line.iter().filter_map(|(incarnation, _)| group.rollbacks.get(incarnation)?.target()?);
        let newer = restored
            .filter(|restored| restored.position > name.position())
            .filter_map(|restored| group.checkpoints.get(&restored));
        let mut newer = newer.chain(group.committed_after(&line, name.position()).map(|(_, it)| it));
        !Group::is_on(&line, name.position()) || newer.any(|checkpoint| self.is_clean(checkpoint))
    }

    /// Returns whether all copies of some part of the checkpoint are lost. In that case, processes were free to discard
    /// its other parts.
    fn is_broken(&self, name: &ImageName) -> bool {
        let supervision = &self.history.supervision;
        self.checkpoint(name)
            .is_some_and(|it| it.parts.iter().any(|part| part.may_be_lost(supervision, self.before)))
    }

    /// Returns whether a checkpoint need not be passed over: none of its saved states can contain an orphan delivery.
    fn is_clean(&self, checkpoint: &Checkpoint<'_>) -> bool {
        checkpoint.parts.iter().filter_map(|part| part.cut).all(|cut| !self.orphans.is_in(cut))
    }

    /// Returns whether a collection may have relied on one of the missing checkpoints, which was committed and is lost
    /// now, and therefore removed what a restored `position` would need: the missing checkpoint is newer, or `position`
    /// follows a rollback past it.
    fn may_be_collected(&self, position: Position, missing: &[(ImageName, Vec<ProcessId>)]) -> bool {
        let relied_on = |name: &ImageName| {
            let was_committed = self.checkpoint(name).is_some_and(|it| !it.commits.is_empty());
            was_committed && (name.position() > position || self.is_undone(name) && self.is_broken(name))
        };
        let mut claims = self.history.claims.iter().map(|it| it.claim);
        missing.iter().any(|(name, _)| relied_on(name))
            && claims.any(|claim| matches!(claim, Claim::Collected { .. }))
    }

    /// Returns whether a rollback has undone the checkpoint.
    fn is_undone(&self, name: &ImageName) -> bool {
        let group = self.history.member(name.owner).map(|(group, _)| &self.history.groups[group]);
        group.is_some_and(|it| !Group::is_on(&it.line_before(Incarnation(u32::MAX)), name.position()))
    }

    fn part(&self, name: &ImageName) -> Option<&Part> {
        let (_, place) = self.history.member(name.owner)?;
        Some(&self.checkpoint(name)?.parts[place])
    }

    fn checkpoint(&self, name: &ImageName) -> Option<&Checkpoint<'_>> {
        let (group, _) = self.history.member(name.owner)?;
        self.history.groups[group].checkpoints.get(&CheckpointName::from(*name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::tasks::TaskRun;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::{Sn, Span};
    use faultline_trace::manifest::{Copies, ReplicaHolders};

    #[test]
    fn the_storage_of_a_process_that_never_returns_is_out_of_reach() {
        for is_gone in [true, false] {
            let mut run = TaskRun::new(2);
            let (name, _) = run.commit(0, 1, false);
            if is_gone {
                run.lose_permanently(0);
            } else {
                run.0.kill(0, false);
            }
            let missing = [(name, vec![p(1)])].into();
            run.0.claim(1, Claim::Unrecoverable { group: GroupId(0), missing });
            let violations = check_alone(&RULE, &run.0).violation_count();
            assert_eq!(violations, u64::from(!is_gone), "{is_gone}");
        }
    }

    /// The root of a work-stealing program names an image that its current life would write first.
    #[test]
    fn a_process_may_not_give_up_a_state_that_a_holder_has() {
        for (holder_fails, violations) in [(false, 1), (true, 0)] {
            let mut run = TaskRun::new(2);
            run.begin(0, 1);
            let (name, _) = run.commit(0, 1, false);
            run.0.durable(1, name);
            run.0.kill(0, true);
            if holder_fails {
                run.0.kill(1, true);
            }
            let missing = [(run.0.image(0, 1, 1), vec![p(0), p(1)])].into();
            run.0.claim(0, Claim::Unrecoverable { group: GroupId(0), missing });
            let finding = check_alone(&RULE, &run.0);
            assert_eq!(finding.violation_count(), violations, "{:?}", finding.violations);
        }
    }

    fn give_up(run: &mut Run) {
        let missing = [(run.image(0, 0, 1), vec![p(0), p(1)])].into();
        run.claim(0, Claim::Unrecoverable { group: GroupId(0), missing });
    }

    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.durable(1, run.image(0, 0, 1));
        run
    }

    #[test]
    fn it_is_justified_if_every_copy_is_lost() {
        let mut run = run();
        run.kill(0, true);
        run.kill(1, true);
        give_up(&mut run);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn a_claim_that_names_no_part_means_the_newest_checkpoint() {
        for loses_all in [true, false] {
            let mut run = run();
            run.kill(0, true);
            if loses_all {
                run.kill(1, true);
            }
            assert_eq!(lost_parts(&run.history(), GroupId(0), usize::MAX).is_empty(), !loses_all);
            run.claim(0, Claim::Unrecoverable { group: GroupId(0), missing: [].into() });
            let finding = check_alone(&RULE, &run);
            if loses_all {
                assert_eq!(finding.violation_count(), 0);
            } else {
                finds!(finding, Breach::NothingLost { names_parts: false, .. });
                assert!(finding.violations[0].0.sentence(&run.context).contains("asked"));
            }
        }
    }

    #[test]
    fn it_is_justified_by_more_failures_than_the_protocol_survives() {
        for (failures, is_justified) in [(1, true), (2, false)] {
            let mut run = run();
            run.context.promises = run.context.promises.surviving(FaultModel::Volatile { failures });
            run.kill(0, false);
            run.kill(1, false);
            give_up(&mut run);
            assert_eq!(check_alone(&RULE, &run).violation_count() == 0, is_justified, "{failures}");
        }
    }

    #[test]
    fn every_holder_must_have_lost_something() {
        for (replicas, violations) in [(1, 0), (2, 1)] {
            let mut run = Run::new(&[&[0], &[1], &[2]]);
            run.context.copies = Some(Copies { replicas, kept_by: ReplicaHolders::OtherCluster });
            run.commit_all(0, &[0]);
            run.durable(1, run.image(0, 0, 1));
            run.kill(0, true);
            run.kill(1, true);
            give_up(&mut run);
            let finding = check_alone(&RULE, &run);
            assert_eq!(finding.violation_count(), violations, "{:?}", finding.violations);
        }
    }

    #[test]
    fn the_copies_of_a_checkpoint_in_doubt_need_not_be_complete_unless_promised() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.copies = Some(Copies { replicas: 1, kept_by: ReplicaHolders::OtherCluster });
        run.durable(0, run.image(0, 0, 1));
        run.kill(0, true);
        give_up(&mut run);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.context.promises = run.context.promises.with(&[Promise::DurableRestore]);
        finds!(check_alone(&RULE, &run), Breach::TooFewLosses { holders: 2, .. });
    }

    #[test]
    fn it_is_not_justified_if_a_copy_is_left() {
        let mut run = run();
        run.kill(0, true);
        run.kill(1, false);
        give_up(&mut run);
        finds!(check_alone(&RULE, &run), Breach::WasDurable { holder: ProcessId(1), .. });
    }

    #[test]
    fn a_copy_of_a_checkpoint_that_lacks_another_part_need_not_be_kept() {
        let mut run = Run::new(&[&[0, 1], &[2]]);
        run.commit_all(0, &[0, 1]);
        run.kill(1, true);
        let missing: std::sync::Arc<[_]> =
            [(run.image(0, 0, 1), vec![p(0)]), (run.image(1, 0, 1), vec![p(1)])].into();
        run.claim(0, Claim::Unrecoverable { group: GroupId(0), missing });
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{:?}", finding.violations);
    }

    #[test]
    fn a_part_that_was_never_durable_needs_a_loss_too() {
        let mut run = Run::new(&[&[0], &[1]]);
        give_up(&mut run);
        finds!(check_alone(&RULE, &run), Breach::NothingLost { .. });
    }

    #[test]
    fn an_available_checkpoint_must_be_restored() {
        // Declared unrecoverable because a part of checkpoint 2, which was never written, is missing. Checkpoint 1 is
        // complete.
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.durable(1, run.image(0, 0, 1));
        run.kill(0, true);
        let missing = [(run.image(0, 0, 2), vec![p(0), p(1)])].into();
        run.claim(0, Claim::Unrecoverable { group: GroupId(0), missing });
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::WasAvailable { .. });
    }

    #[test]
    fn a_checkpoint_that_may_have_been_collected_need_not_be_restored() {
        // p0 had also committed checkpoint 2, and lost everything; checkpoint 1 was fetched from p1 and restored.
        let mut run = run();
        run.commit_all(0, &[0]);
        run.kill(0, true);
        run.durable(0, run.image(0, 0, 1));
        run.restore(0, 1, Some((0, 1)));
        let missing: std::sync::Arc<[_]> = [(run.image(0, 0, 2), vec![p(0), p(1)])].into();
        run.claim(0, Claim::Unrecoverable { group: GroupId(0), missing });
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::WasAvailable { .. });
        run.claim(1, Claim::Collected { round: 1, below: Sn(1), kept: 1, log: 0 });
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }

    #[test]
    fn a_checkpoint_that_follows_a_lost_one_need_not_be_restored() {
        // As above, but p0 commits another checkpoint after the rollback to checkpoint 1. It may be given up only if
        // the undone checkpoint 2 is lost, so that an even older one was restored, and if something was collected.
        for (is_collected, is_lost) in [(false, true), (true, false), (true, true)] {
            let mut run = run();
            run.commit_all(0, &[0]);
            run.kill(0, true);
            if !is_lost {
                run.durable(1, run.image(0, 0, 2));
            }
            run.durable(0, run.image(0, 0, 1));
            run.restore(0, 1, Some((0, 1)));
            run.commit_all(0, &[0]);
            if is_collected {
                run.claim(1, Claim::Collected { round: 1, below: Sn(1), kept: 1, log: 0 });
            }
            let missing: std::sync::Arc<[_]> = [(run.image(0, 0, 2), vec![p(0), p(1)])].into();
            run.claim(0, Claim::Unrecoverable { group: GroupId(0), missing });
            let finding = check_alone(&RULE, &run);
            if is_collected && is_lost {
                assert_eq!(finding.violation_count(), 0, "{:?}", finding.violations);
            } else {
                finds!(
                    finding,
                    Breach::WasAvailable { position: Position { incarnation: Incarnation(1), .. }, .. }
                );
            }
        }
    }

    #[test]
    fn a_copy_made_after_the_loss_counts() {
        let mut run = run();
        run.kill(0, true);
        run.kill(1, true);
        run.durable(1, run.image(0, 0, 1));
        give_up(&mut run);
        finds!(check_alone(&RULE, &run), Breach::WasDurable { holder: ProcessId(1), .. });
    }

    #[test]
    fn a_copy_made_while_its_holder_corrupts_reads_may_be_lost() {
        for (ends, violations) in [(50, 1), (10_000, 0)] {
            let mut run = Run::new(&[&[0], &[1]]);
            run.commit_all(0, &[0]);
            run.spoil(1, Span(ends));
            run.wait(Span(1000));
            run.kill(1, false);
            run.durable(1, run.image(0, 0, 1));
            run.kill(0, true);
            give_up(&mut run);
            assert_eq!(check_alone(&RULE, &run).violation_count(), violations * 2, "until {ends}");
        }
    }

    #[test]
    fn a_copy_of_an_undone_checkpoint_need_not_be_kept() {
        let mut run = run();
        run.kill(1, true);
        run.durable(1, run.image(0, 0, 2));
        run.restore(0, 1, Some((0, 1)));
        run.kill(0, true);
        let missing: std::sync::Arc<[_]> = [(run.image(0, 0, 2), vec![p(0), p(1)])].into();
        run.claim(0, Claim::Unrecoverable { group: GroupId(0), missing });
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{:?}", finding.violations);
    }

    #[test]
    fn a_copy_of_a_replaced_checkpoint_need_not_be_kept() {
        let mut run = run();
        run.commit_all(0, &[0]);
        run.kill(0, true);
        give_up(&mut run);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }
}
