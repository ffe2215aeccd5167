//! A checkpoint of partitions becomes valid only when every partition has saved its part (CCK long paper): it is
//! declared valid, or restored, only after all parts are durable.
//!
//! The newest valid checkpoint is kept: a process removes its copy of a part of a valid checkpoint only after all parts
//! of a newer checkpoint have become durable. Once a later recovery has restored an older checkpoint, the newer one is
//! no longer needed.
//!
//! A process reports its actions before others can observe them, so the reports on which validity depends are in the
//! trace; if all processes read the same clock, these reports also precede the declaration.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use faultline_core::{Attempt, FactKind, ImageName, Position, ProcessId, Time};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{CheckpointName, Context, History, Message, Part, Planned, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    UsedBeforeDurable { process: ProcessId, position: Position, owner: ProcessId },
    ValidPartRemoved { holder: ProcessId, part: ImageName },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::UsedBeforeDurable { process: by, position, owner } => format!(
                "{} treated checkpoint {position} as valid before the part of {} was durable",
                names.process(by),
                names.process(owner)
            ),
            Breach::ValidPartRemoved { holder, part } => format!(
                "{} removed the part of {} in the valid checkpoint {} before a newer checkpoint was complete",
                names.process(holder),
                names.process(part.owner),
                part.position()
            ),
        }
    }
}

pub(super) const RULE: Rule = Rule::new(
    Property::ValidCheckpoints,
    "checkpoints were declared valid only once they were complete",
    check,
)
.needs(&[FactKind::Planned]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(planned) = &history.planned else { return };
    let context = history.context;
    let valid = valid(history);
    check_removals(history, planned, &valid, finding);
    for (position, (time, at)) in valid {
        for &partition in context.clusters.iter().flatten() {
            finding.instances += 1;
            let copies = part_of(history, partition, position).map_or(&[][..], |it| &it.copies);
            if copies.iter().any(|it| !context.common_clock || it.time <= time) {
                continue;
            }
            if let Some(flawed) =
                (0..history.processes.len() as u32).map(ProcessId).find(|it| history.trace.has_gap_of(*it))
            {
                finding.lacks_facts_of(flawed, history.context);
                continue;
            }
            finding.violated(
                [history.source(at)],
                Breach::UsedBeforeDurable { process: history.process_of(at), position, owner: partition },
            );
        }
    }
}

/// Judges every removal of a part of a valid checkpoint.
fn check_removals(
    history: &History<'_>,
    planned: &Planned,
    valid: &BTreeMap<Position, (Time, Point)>,
    finding: &mut Findings,
) {
    let completed = completed(history);
    let removed = planned.removed.iter().filter(|it| valid.contains_key(&it.part.position()));
    for removed in removed {
        let (position, time) = (removed.part.position(), history.time(removed.at));
        let mut newer = completed.range((Bound::Excluded(position), Bound::Unbounded));
        finding.instances += 1;
        if newer.any(|(_, since)| *since <= time) || is_abandoned(planned, position) {
            continue;
        }
        let mut processes = (0..history.processes.len() as u32).map(ProcessId);
        if let Some(process) = processes.find(|it| history.trace.has_gap_of(*it)) {
            finding.lacks_facts_of(process, history.context);
            continue;
        }
        let holder = history.process_of(removed.at);
        finding
            .violated([history.source(removed.at)], Breach::ValidPartRemoved { holder, part: removed.part });
    }
}

/// Returns each checkpoint whose parts all became durable, with the time at which the last part became
/// durable. If processes read different clocks, the time is zero.
fn completed(history: &History<'_>) -> BTreeMap<Position, Time> {
    let context = history.context;
    let all = history.groups.iter().flat_map(|it| it.checkpoints.keys()).map(|it| it.position);
    let all: BTreeSet<Position> = all.collect();
    let durable_since = |partition: ProcessId, position: Position| {
        let first = part_of(history, partition, position)?.copies.iter().map(|it| it.time).min()?;
        Some(if context.common_clock { first } else { Time::ZERO })
    };
    let since = |position: &Position| {
        let partitions = context.clusters.iter().flatten();
        let since = partitions.map(|it| durable_since(*it, *position));
        since.collect::<Option<Vec<Time>>>()?.into_iter().max()
    };
    all.into_iter().filter_map(|it| Some((it, since(&it)?))).collect()
}

/// Returns whether a later recovery restarted from an older checkpoint, because no remaining process knew that this one
/// was valid.
fn is_abandoned(planned: &Planned, position: Position) -> bool {
    planned.joined.iter().any(|((epoch, _), it)| *epoch > position.incarnation && it.slot < position)
}

/// Returns every checkpoint that a process declared valid or restored, with the first time and fact that show this.
pub(super) fn valid(history: &History<'_>) -> BTreeMap<Position, (Time, Point)> {
    let mut valid: BTreeMap<Position, (Time, Point)> = BTreeMap::new();
    let mut note = |position: Position, time: Time, at: Point| {
        let first = valid.entry(position).or_insert((time, at));
        *first = (*first).min((time, at));
    };
    for group in &history.groups {
        for (name, checkpoint) in &group.checkpoints {
            checkpoint.commits.iter().for_each(|it| note(name.position, it.time, it.at));
        }
    }
    for witnessed in history.witnessed.iter().filter(|it| it.is_restored) {
        if let Some(name) = witnessed.part {
            note(name.position(), history.time(witnessed.at), witnessed.at);
        }
    }
    valid
}

/// A message, and the states of its sender and its receiver in a valid checkpoint.
pub(super) struct CrossingMessage<'h> {
    pub(super) position: Position,
    pub(super) message: &'h Message,
    pub(super) sender: Point,
    pub(super) receiver: Point,
}

/// Calls `judge` for each valid checkpoint and each message whose sender and receiver both have a part in it. [`check`]
/// judges missing parts.
pub(super) fn for_each_message<'h>(history: &'h History<'_>, mut judge: impl FnMut(CrossingMessage<'h>)) {
    for position in valid(history).into_keys() {
        let cuts: Vec<Option<Point>> =
            (0..history.processes.len() as u32).map(|it| cut_of(history, ProcessId(it), position)).collect();
        let cut = |process: ProcessId| cuts.get(process.index()).copied().flatten();
        for message in history.messages.iter() {
            if let (Some(sender), Some(receiver)) = (cut(message.id.from), cut(message.id.to)) {
                judge(CrossingMessage { position, message, sender, receiver });
            }
        }
    }
}

/// Returns a partition's part of a checkpoint.
fn part_of<'h>(history: &'h History<'_>, partition: ProcessId, position: Position) -> Option<&'h Part> {
    let (group, place) = history.member(partition)?;
    let name = CheckpointName { position, attempt: Attempt(1) };
    history.groups[group].checkpoints.get(&name)?.parts.get(place)
}

/// Returns the state in a partition's part of a checkpoint.
pub(super) fn cut_of(history: &History<'_>, partition: ProcessId, position: Position) -> Option<Point> {
    part_of(history, partition, position)?.cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_alone;
    use crate::testing::finds;
    use crate::testing::planned::Partitions;
    use faultline_core::Fact;

    #[test]
    fn every_partition_has_saved_its_part() {
        let mut run = Partitions::new(2);
        run.executed(0, 1, &[], &[]);
        let position = run.checkpoint(0, 1);
        run.commit(0, position);
        let finding = check_alone(&RULE, &run.0);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0));
    }

    #[test]
    fn a_checkpoint_without_a_part_is_not_valid() {
        let mut run = Partitions::new(2);
        run.executed(0, 1, &[], &[]);
        let position = run.save(0, 0, 1);
        run.commit(0, position);
        let finding = check_alone(&RULE, &run.0);
        finds!(finding, Breach::UsedBeforeDurable { owner: ProcessId(1), .. });
    }

    /// A process removes its part of a valid checkpoint when `parts` of the two parts of the next checkpoint are
    /// durable.
    fn removed(parts: u32) -> Partitions {
        let mut run = Partitions::new(2);
        run.0.context.common_clock = true;
        let old = run.checkpoint(0, 1);
        run.commit(0, old);
        run.0.wait(faultline_core::Span::from_millis(1));
        for part in 0..parts {
            run.save(part, 0, 2);
        }
        run.0.wait(faultline_core::Span::from_millis(1));
        run.0.state(0, Fact::Removed(run.0.image(0, 0, 1)));
        run
    }

    #[test]
    fn a_valid_part_is_kept_until_a_newer_checkpoint_is_complete() {
        let finding = check_alone(&RULE, &removed(2).0);
        assert_eq!((finding.instances, finding.violation_count()), (3, 0));
        let mut run = removed(1);
        finds!(check_alone(&RULE, &run.0), Breach::ValidPartRemoved { holder: ProcessId(0), .. });
        // The other part was not durable at the time of the removal.
        run.0.wait(faultline_core::Span::from_millis(1));
        run.save(1, 0, 2);
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 1);
    }

    #[test]
    fn a_checkpoint_that_never_became_valid_may_be_removed() {
        let mut run = Partitions::new(2);
        run.save(0, 0, 1);
        run.0.state(0, Fact::Removed(run.0.image(0, 0, 1)));
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 0);
    }

    #[test]
    fn a_checkpoint_that_a_later_recovery_did_not_restore_may_be_removed() {
        let mut run = removed(0);
        run.joined(0, 5, Position::default());
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 0);
    }

    #[test]
    fn a_part_that_comes_later_does_not_help() {
        let mut run = Partitions::new(2);
        run.executed(0, 1, &[], &[]);
        run.0.context.common_clock = true;
        let position = run.save(0, 0, 1);
        run.commit(0, position);
        run.0.wait(faultline_core::Span::from_millis(1));
        run.save(1, 0, 1);
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 1);
    }
}
