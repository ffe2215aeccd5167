//! The recovery line is maximal: no cluster rolls back further than necessary. [`super::rollback_caused`] judges
//! whether the cluster had to roll back at all.
//!
//! This property is judged from witnesses, never from the protocol's vectors. A committed checkpoint is *dirty* if one
//! of its parts contains the delivery of a message from another cluster whose send was undone. A rollback must restore
//! the newest checkpoint on its cluster's line that is not dirty. No clock orders failures of different clusters, so a
//! send that was undone at any time is an excuse, unless the processes that undid it claim to have done so because of
//! this very rollback.
//!
//! Only protocols that promise a maximal line have to restore the newest checkpoint. No protocol may restore what an
//! earlier rollback had undone, or what no process had saved.
//!
//! A checkpoint cannot be restored if all copies of one of its parts are lost. A rollback to an older one is then only
//! reported as a remark.

use std::collections::BTreeSet;

use faultline_core::{Cause, FactKind, ImageName, Incarnation, Position, ProcessId, Promise, Sn};

use super::orphan_deliveries::{OrphanDeliveries, is_undone};
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{
    Checkpoint, Context, Ending, Group, GroupId, History, Message, Point, Rollback, SegmentNo,
};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    RestoredUndone { group: GroupId, target: Position },
    NeverSaved { process: ProcessId, target: Position },
    RestoredOlder { group: GroupId, target: Position, newer: Position },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::RestoredUndone { group: by, target } => format!(
                "{} rolled back to checkpoint {target}, which an earlier rollback had undone",
                names.group(by)
            ),
            Breach::NeverSaved { process: by, target } => {
                format!("{} restored checkpoint {target}, which had never been saved", names.process(by))
            }
            Breach::RestoredOlder { group: by, target, newer } => {
                let by = names.group(by);
                format!(
                    "{by} rolled back to checkpoint {target}, although checkpoint {newer} could have been restored"
                )
            }
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::MaximalLine, "every rollback restored the newest consistent checkpoint", check)
        .needs(&[FactKind::CheckpointCommitted, FactKind::Restored]);

fn check(history: &History<'_>, finding: &mut Findings) {
    check_saved(history, finding);
    if history.planned.is_some() {
        return; // `valid_checkpoints` judges restores, for all partitions together
    }
    if history.groups.iter().all(|group| group.rollbacks.is_empty()) {
        return;
    }
    let orphans = OrphanDeliveries::of(history);
    for (number, group) in history.groups.numbered() {
        for (&incarnation, rollback) in &group.rollbacks {
            if rollback.target().is_some() {
                Judge { history, orphans: &orphans, number, group, incarnation, rollback }.judge(finding);
            }
        }
    }
}

/// Checks that every part that a process restored had been saved. The log of another system may not state who saved which
/// part; some process must then have saved a part of a checkpoint with the same number.
fn check_saved(history: &History<'_>, finding: &mut Findings) {
    let context = history.context;
    let is_imported = context.unmatched.is_some();
    let restored = history.witnessed.iter().filter(|it| it.is_restored);
    let mut restored = restored.filter_map(|it| Some((it.at, it.part?))).peekable();
    if restored.peek().is_none() || !context.recorded.contains(FactKind::CheckpointCommitted) {
        return;
    }
    let saved = || history.witnessed.iter().filter(|it| !it.is_restored).filter_map(|it| it.part);
    let parts: BTreeSet<ImageName> = saved().collect();
    let numbers: BTreeSet<Sn> = saved().map(|it| it.sn).collect();
    for (at, part) in restored {
        if parts.contains(&part) || is_imported && numbers.contains(&part.sn) {
            continue;
        }
        let process = history.process_of(at);
        let mut others = (0..history.processes.len() as u32).map(ProcessId);
        match others.find(|it| history.trace.has_gap_of(*it)) {
            Some(other) => finding.lacks_facts_of(other, context),
            None => {
                let breach = Breach::NeverSaved { process, target: part.position() };
                finding.violated([history.source(at)], breach);
            }
        }
    }
}

/// Returns whether a rollback passed over a committed checkpoint, although nothing prevented the group from restoring it.
pub(super) fn passes_over_a_clean_one(
    history: &History<'_>,
    number: GroupId,
    incarnation: Incarnation,
) -> bool {
    let group = &history.groups[number];
    let Some(rollback) = group.rollbacks.get(&incarnation) else { return false };
    let Some(target) = rollback.target() else { return false };
    let line = group.line_before(incarnation);
    let position = target.map(|it| it.position).unwrap_or_default();
    let mut newer = group.committed_after(&line, position).peekable();
    if newer.peek().is_none() {
        return false;
    }
    let orphans = &OrphanDeliveries::of(history);
    let judge = Judge { history, orphans, number, group, incarnation, rollback };
    newer.any(|(_, it)| matches!(judge.state_of(it), CheckpointState::Clean))
}

struct Judge<'a> {
    history: &'a History<'a>,
    orphans: &'a OrphanDeliveries,
    number: GroupId,
    group: &'a Group<'a>,
    incarnation: Incarnation,
    rollback: &'a Rollback,
}

impl Judge<'_> {
    fn judge(&self, finding: &mut Findings) {
        let (history, group) = (self.history, self.group);
        let line = group.line_before(self.incarnation);
        let target = self.rollback.target().flatten().map_or(Position::default(), |name| name.position);
        let evidence =
            history.source(self.rollback.restores().next().expect("the rollback restored a state").at);

        finding.instances += 1;
        if !Group::is_on(&line, target) && target.sn.0 > 0 {
            finding.violated([evidence], Breach::RestoredUndone { group: self.number, target });
            return;
        }
        if !history.context.promises.include(Promise::MaximalLine) {
            return;
        }
        for (name, checkpoint) in group.committed_after(&line, target) {
            match self.state_of(checkpoint) {
                CheckpointState::Clean => {
                    let commit = history.source(checkpoint.commits[0].at);
                    finding.violated(
                        [evidence, commit],
                        Breach::RestoredOlder { group: self.number, target, newer: name.position },
                    );
                    break;
                }
                CheckpointState::Lost => finding.remark(format!(
                    "{} lost every copy of a part of checkpoint {}, and rolled back to {target}",
                    history.context.group(self.number),
                    name.position
                )),
                CheckpointState::NotKnown => {
                    let group = history.context.group(self.number);
                    finding.lacks_facts(format!(
                        "the content of checkpoint {} of {group} is unknown",
                        name.position
                    ));
                }
                CheckpointState::Dirty => {}
            }
        }
    }

    fn state_of(&self, checkpoint: &Checkpoint<'_>) -> CheckpointState {
        let cuts: Option<Vec<Point>> = checkpoint.parts.iter().map(|part| part.cut).collect();
        let Some(cuts) = cuts else { return CheckpointState::NotKnown };
        let lives = self.rollback.restores().map(|it| self.history.segment(it.at.segment));
        let before = lives.map(|it| self.history.supervision.end_of_life(it.process, it.life)).min();
        let before = before.unwrap_or(usize::MAX);
        if cuts.iter().any(|&cut| self.orphans.is_in(cut) && self.is_excused(cut)) {
            CheckpointState::Dirty
        } else if checkpoint.parts.iter().any(|part| part.may_be_lost(&self.history.supervision, before)) {
            CheckpointState::Lost
        } else {
            CheckpointState::Clean
        }
    }

    /// Returns whether a message in `cut` was undone by something other than the consequences of this rollback.
    fn is_excused(&self, mut cut: Point) -> bool {
        let history = self.history;
        loop {
            let first = history.between.partition_point(|it| it.at.segment < cut.segment);
            let inside = history.between[first..].iter().take_while(|it| it.at < cut);
            let mut undone =
                inside.map(|it| history.messages.get(it.message)).filter(|it| is_undone(history, it));
            if undone.any(|message| !self.is_consequence(message)) {
                return true;
            }
            match history.segment(cut.segment).parent {
                Some(parent) => cut = parent,
                None => return false,
            }
        }
    }

    /// Returns whether the send of `message` was undone because of this rollback, as claimed by the processes that
    /// undid it.
    fn is_consequence(&self, message: &Message) -> bool {
        let history = self.history;
        let (Some(sent), Ending::Known(_)) = (message.sent().first(), history.ending(message.id.from)) else {
            return false;
        };
        let Some((group, place)) = history.member(message.id.from) else { return false };
        let undoing = history.groups[group].rollbacks.iter().find(|(_, rollback)| {
            rollback.restored[place].is_some_and(|it| {
                let state = Point { segment: SegmentNo(it.at.segment.0 + 1), fact: 0 };
                it.at > sent && !history.contains(state, sent)
            })
        });
        let Some((&incarnation, _)) = undoing else { return false };
        let mut cause = (group, incarnation);
        // Every cause is older than its effect; the limit guards against claims to the contrary.
        for _ in 0..history.groups.iter().map(|it| it.rollbacks.len()).sum() {
            if cause.0 == self.number {
                return cause.1 >= self.incarnation;
            }
            let claimed = history.groups.get(cause.0).and_then(|group| group.rollbacks.get(&cause.1)?.cause);
            match claimed {
                Some((Cause::Alert { from, position }, _)) => cause = (from, position.incarnation),
                _ => return false,
            }
        }
        false
    }
}

enum CheckpointState {
    Clean,
    Dirty,
    Lost,
    NotKnown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, position};
    use faultline_core::Claim;
    use std::sync::Arc;

    /// Two single-process clusters. Both p0 and p1 have checkpoints 1 and 2. p0 sends a message between its
    /// checkpoints; p1 delivers it between its own.
    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        run
    }

    fn alert(position: Position) -> Cause {
        Cause::Alert { from: GroupId(0), position }
    }

    #[test]
    fn rolling_back_to_the_last_checkpoint_is_allowed() {
        let mut run = run();
        run.kill(0, false);
        run.restore(0, 1, Some((0, 2)));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn passing_over_a_clean_checkpoint_is_found() {
        let mut run = run();
        run.kill(1, false);
        run.restore(1, 1, Some((0, 1)));
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::RestoredOlder { newer: Position { sn: faultline_core::Sn(2), .. }, .. });
    }

    #[test]
    fn a_line_that_need_not_be_maximal_may_pass_over_a_checkpoint_but_not_restore_an_undone_one() {
        let mut run = run();
        run.withdraw(Promise::MaximalLine);
        run.kill(1, false);
        run.restore(1, 1, Some((0, 1)));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{:?}", finding.violations);
        run.restore(1, 2, Some((0, 2)));
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::RestoredUndone { .. });
    }

    #[test]
    fn passing_over_a_dirty_checkpoint_is_allowed() {
        let mut run = run();
        run.kill(0, true);
        run.restore(0, 1, Some((0, 1)));
        run.restore_because(1, 1, Some((0, 1)), alert(position(1, 1)));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0), "{:?}", finding.violations);
        let expected = "c0 lost every copy of a part of checkpoint 0.2, and rolled back to 0.1";
        assert_eq!(finding.remarks, [expected]);
    }

    #[test]
    fn a_checkpoint_with_a_copy_left_is_not_lost() {
        let mut run = run();
        run.durable(1, run.image(0, 0, 2));
        run.kill(0, true);
        run.restore(0, 1, Some((0, 1)));
        run.restore_because(1, 1, Some((0, 1)), alert(position(1, 1)));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
    }

    #[test]
    fn dirt_that_the_rollback_itself_caused_does_not_excuse_it() {
        // p1 rolls back to checkpoint 1 unnecessarily. p0, which had answered p1, has to follow. p1's checkpoint 2
        // contains the delivery of the answer.
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        let asked = run.send(1, 0);
        run.deliver(asked);
        let answer = run.send(0, 1);
        run.deliver(answer);
        run.commit_all(1, &[1]);
        run.kill(1, false);
        run.restore(1, 1, Some((0, 1)));
        let because = Cause::Alert { from: GroupId(1), position: position(1, 1) };
        run.restore_because(0, 1, Some((0, 1)), because);
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.violation_count(), 1, "{:?}", finding.violations);
        finds!(finding, Breach::RestoredOlder { group: GroupId(1), .. });
    }

    #[test]
    fn a_checkpoint_off_the_line_is_found() {
        let mut run = run();
        run.restore(0, 1, Some((0, 1)));
        run.restore(0, 2, Some((0, 2)));
        let finding = check_alone(&RULE, &run);
        assert!(matches!(finding.wrong::<Breach>()[1], Breach::RestoredUndone { .. }), "{finding:?}");
    }

    #[test]
    fn a_rollback_that_an_unrecoverable_cluster_only_announced_is_an_excuse() {
        let mut run = run();
        run.restore_because(1, 1, Some((0, 1)), alert(position(1, 1)));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
        run.claim(0, Claim::Unrecoverable { group: GroupId(0), missing: Arc::default() });
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }

    #[test]
    fn a_sender_with_an_unknown_final_state_is_an_excuse() {
        let mut run = run();
        run.kill(1, false);
        run.restore(1, 1, Some((0, 1)));
        run.lose_evidence(0);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }
}
