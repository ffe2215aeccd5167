//! The processes of a cluster agree: every member that commits a checkpoint reports the same attempt, kind and vectors,
//! and every member that rolls back under one incarnation restores the same checkpoint. Along a member's history,
//! incarnations only increase, and so do SNs between rollbacks. SNs increase by one if the protocol promises dense
//! numbering.

use faultline_core::names::checkpoint;
use faultline_core::{Attempt, Claim, FactKind, Incarnation, Position, ProcessId, Promise, Sn};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{CheckpointName, Context, Group, GroupId, History, Point, SegmentNo};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    CommittedTwice { processes: [ProcessId; 2], position: Position, attempts: [Attempt; 2] },
    CommittedDifferently { processes: [ProcessId; 2], position: Position },
    PositionSkipped { process: ProcessId, from: Position, to: Position },
    RestoredDifferently { group: GroupId, incarnation: Incarnation, states: [Option<CheckpointName>; 2] },
    RestoredAnother { process: ProcessId, claimed: Position },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::CommittedTwice { processes: [by, also], position, attempts: [one, other] } => {
                let (checkpoint, attempts) = (checkpoint(position), format!("{one} and {other}"));
                match by == also {
                    true => format!("{} committed checkpoint {checkpoint} in {attempts}", names.process(by)),
                    false => format!(
                        "{} and {} committed checkpoint {checkpoint} in different attempts ({attempts})",
                        names.process(by),
                        names.process(also)
                    ),
                }
            }
            Breach::CommittedDifferently { processes: [one, other], position } => {
                let (one, other) = (names.process(one), names.process(other));
                format!("{one} and {other} committed different checkpoints as {position}")
            }
            Breach::PositionSkipped { process: by, from, to } => {
                format!(
                    "position {to} of {} does not follow its previous position, {from}",
                    names.process(by)
                )
            }
            Breach::RestoredDifferently { group: by, incarnation, states } => {
                let [one, another] = states.map(state);
                format!("in {incarnation}, {} restored both {one} and {another}", names.group(by))
            }
            Breach::RestoredAnother { process: by, claimed } => format!(
                "{} claims to have rolled back to checkpoint {claimed}, but restored another state",
                names.process(by)
            ),
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::MembersAgree, "the processes of each cluster agree on its checkpoints", check)
        .needs(&[FactKind::CheckpointCommitted]);

fn check(history: &History<'_>, finding: &mut Findings) {
    for (number, group) in history.groups.numbered() {
        check_commits(history, group, finding);
        check_rollbacks(history, number, group, finding);
        for &member in &group.members {
            check_positions(history, member, finding);
        }
    }
}

fn check_commits(history: &History<'_>, group: &Group<'_>, finding: &mut Findings) {
    let committed = group.checkpoints.iter().filter(|(_, checkpoint)| !checkpoint.commits.is_empty());
    let mut previous: Option<(CheckpointName, Point)> = None;
    for (name, checkpoint) in committed {
        finding.instances += 1;
        let first = checkpoint.commits[0];
        let position = name.position;
        if let Some((other, at)) = previous.filter(|(other, _)| other.position == position) {
            finding.violated(
                [history.source(at), history.source(first.at)],
                Breach::CommittedTwice {
                    processes: [history.process_of(at), first.process],
                    position,
                    attempts: [other.attempt, name.attempt],
                },
            );
        }
        for other in &checkpoint.commits[1..] {
            if other.forced != first.forced || other.vectors != first.vectors {
                finding.violated(
                    [history.source(first.at), history.source(other.at)],
                    Breach::CommittedDifferently { processes: [first.process, other.process], position },
                );
            }
        }
        previous = Some((*name, first.at));
    }
}

fn check_rollbacks(history: &History<'_>, number: GroupId, group: &Group<'_>, finding: &mut Findings) {
    for (incarnation, rollback) in &group.rollbacks {
        finding.instances += 1;
        let mut restores = rollback.restores();
        let Some(first) = restores.next() else { continue };
        for other in restores.filter(|other| other.checkpoint != first.checkpoint) {
            finding.violated(
                [history.source(first.at), history.source(other.at)],
                Breach::RestoredDifferently {
                    group: number,
                    incarnation: *incarnation,
                    states: [first.checkpoint, other.checkpoint],
                },
            );
        }
        for &(process, claimed, at) in &rollback.claimed {
            let own = history.member(process).and_then(|(_, place)| rollback.restored[place]);
            let restored = own.map(|it| it.checkpoint.map_or(Position::default(), |name| name.position));
            let is_same = match restored {
                // The initial state has SN 0, in any incarnation.
                Some(restored) => restored == claimed || restored.sn.0 == 0 && claimed.sn.0 == 0,
                None => false,
            };
            if !is_same {
                finding.violated([history.source(at)], Breach::RestoredAnother { process, claimed });
            }
        }
    }
}

/// An event that changes a member's position.
enum Step {
    Commit(Position),
    Restore(Position),
}

fn check_positions(history: &History<'_>, member: ProcessId, finding: &mut Findings) {
    let is_dense = history.context.promises.include(Promise::DenseNumbering);
    let follows =
        |last: Sn, next: Sn| if is_dense { Some(next.0) == last.0.checked_add(1) } else { next > last };
    let mut stands = Position::default();
    // An incarnation in which nothing happened may be reused: its number may have been lost with the storage of all
    // members.
    let mut is_untouched = true;
    let mut life = None;
    for (at, step) in steps(history, member) {
        let new_life = life.replace(history.segment(at.segment).life) != life;
        let is_next = match &step {
            // A partition that does not roll back takes its next checkpoint in the epoch of the last recovery.
            Step::Commit(position) if history.planned.is_some() => {
                *position > stands && position.sn > stands.sn
            }
            Step::Commit(position) => {
                position.incarnation == stands.incarnation && follows(stands.sn, position.sn)
                    // A life that reports commits without having rolled back began together with the
                    // application.
                    || new_life && follows(Sn(0), position.sn)
            }
            Step::Restore(position) => {
                position.incarnation > stands.incarnation
                    || position.incarnation == stands.incarnation && is_untouched
            }
        };
        let (Step::Commit(next) | Step::Restore(next)) = step;
        if !is_next {
            finding.violated(
                [history.source(at)],
                Breach::PositionSkipped { process: member, from: stands, to: next },
            );
        }
        stands = next;
        is_untouched = match step {
            Step::Commit(_) => false,
            Step::Restore(_) => !history.segment(SegmentNo(at.segment.0 + 1)).is_active,
        };
    }
}

fn steps(history: &History<'_>, member: ProcessId) -> Vec<(Point, Step)> {
    let own = history.processes[member.index()].segments.clone();
    let mut steps = Vec::new();
    let first = history.claims.partition_point(|it| it.at.segment.0 < own.start);
    for claimed in history.claims[first..].iter().take_while(|it| it.at.segment.0 < own.end) {
        if let Claim::Committed { position, .. } = claimed.claim {
            steps.push((claimed.at, Step::Commit(*position)));
        }
    }
    let first = history.witnessed.partition_point(|it| it.at.segment.0 < own.start);
    for witnessed in history.witnessed[first..].iter().take_while(|it| it.at.segment.0 < own.end) {
        // A state that the process takes over from another one does not change the process's own position.
        if witnessed.is_restored && history.segment(witnessed.at.segment).host == member {
            let incarnation = history.segment(SegmentNo(witnessed.at.segment.0 + 1)).incarnation;
            let sn = witnessed.part.map_or(Sn(0), |name| name.sn);
            steps.push((witnessed.at, Step::Restore(Position { incarnation, sn })));
        }
    }
    steps.sort_by_key(|&(at, _)| at);
    steps
}

/// Names a state that a member restored.
fn state(name: Option<CheckpointName>) -> String {
    match name {
        Some(name) => format!("checkpoint {} ({})", name.position, name.attempt),
        None => "the initial state".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, position};

    fn skipped(from: Position, to: Position) -> Breach {
        Breach::PositionSkipped { process: ProcessId(0), from, to }
    }

    fn run() -> Run {
        let mut run = Run::new(&[&[0, 1]]);
        run.commit_all(0, &[0, 1]);
        run.commit_all(0, &[0, 1]);
        run
    }

    #[test]
    fn agreement_is_allowed() {
        let mut run = run();
        run.restore(0, 1, Some((0, 1)));
        run.restore(1, 1, Some((0, 1)));
        run.commit_all(0, &[0, 1]);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (4, 0), "{:?}", finding.violations);
    }

    #[test]
    fn different_vectors_are_found() {
        let mut run = Run::new(&[&[0, 1]]);
        run.commit_with(0, &[0], &[position(0, 1)], &[]);
        run.commit_with(0, &[1], &[position(0, 2)], &[]);
        finds!(check_alone(&RULE, &run), Breach::CommittedDifferently { .. });
    }

    #[test]
    fn different_restores_are_found() {
        let mut run = run();
        run.restore(0, 1, Some((0, 1)));
        run.restore(1, 1, Some((0, 2)));
        finds!(check_alone(&RULE, &run), Breach::RestoredDifferently { .. });
    }

    #[test]
    fn a_skipped_checkpoint_is_found() {
        let mut run = run();
        run.set_position(0, position(0, 3));
        run.commit_all(0, &[0]);
        assert_eq!(check_alone(&RULE, &run).wrong::<Breach>()[0], skipped(position(0, 2), position(0, 4)));
    }

    #[test]
    fn numbers_may_jump_unless_they_are_promised_to_be_dense() {
        let mut run = run();
        run.withdraw(Promise::DenseNumbering);
        run.set_position(0, position(0, 3));
        run.commit_all(0, &[0]);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.set_position(0, position(0, 2));
        run.commit_all(0, &[0]);
        assert_eq!(check_alone(&RULE, &run).wrong::<Breach>()[0], skipped(position(0, 4), position(0, 3)));
    }

    #[test]
    fn an_incarnation_used_again_is_found() {
        let mut run = run();
        run.restore(0, 2, Some((0, 2)));
        run.restore(0, 1, Some((0, 2)));
        assert_eq!(check_alone(&RULE, &run).wrong::<Breach>()[0], skipped(position(2, 2), position(1, 2)));
    }

    #[test]
    fn an_incarnation_in_which_nothing_happened_may_be_used_again() {
        let mut run = run();
        run.restore(0, 1, Some((0, 2)));
        run.restore(0, 1, Some((0, 2)));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.send(0, 1);
        run.restore(0, 1, Some((0, 2)));
        assert_eq!(check_alone(&RULE, &run).wrong::<Breach>()[0], skipped(position(1, 2), position(1, 2)));
    }
}
