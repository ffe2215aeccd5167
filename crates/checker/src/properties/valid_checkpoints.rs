//! A checkpoint of partitions is valid only once every partition has saved its part (CCK long paper): it is declared
//! valid, or restored, only after all parts are durable.
//!
//! A process states its actions before others can observe them, so the reports on which validity depends are in the
//! trace; if all processes read one clock, they also precede it.

use std::collections::BTreeMap;

use faultline_core::{Attempt, Position, ProcessId, Time};

use crate::finding::{Breach, Findings, Gap};
use crate::judgement::Property;
use faultline_history::{CheckpointName, History, Message, Part, Point};

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::ValidCheckpoints);
    if history.planned.is_none() {
        return finding;
    }
    let context = history.context;
    for (position, (time, at)) in valid(history) {
        for &partition in context.clusters.iter().flatten() {
            finding.instances += 1;
            let copies = part_of(history, partition, position).map_or(&[][..], |it| &it.copies);
            if copies.iter().any(|it| !context.common_clock || it.time <= time) {
                continue;
            }
            if let Some(flawed) =
                (0..history.processes.len() as u32).map(ProcessId).find(|it| history.trace.has_gap_of(*it))
            {
                finding.unjudged(Gap::FactsMissing { process: flawed });
                continue;
            }
            finding.violated(
                [history.source(at)],
                Breach::UsedBeforeDurable { process: history.process_of(at), position, owner: partition },
            );
        }
    }
    finding
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

/// Calls `judge` for each valid checkpoint and each message whose sender and receiver both have a part in it. Missing
/// parts are judged by [`check`].
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

    #[test]
    fn every_partition_has_saved_its_part() {
        let mut run = Partitions::new(2);
        run.executed(0, 1, &[], &[]);
        let position = run.checkpoint(0, 1);
        run.commit(0, position);
        let finding = check_alone(check, &run.0);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0));
    }

    #[test]
    fn a_checkpoint_without_a_part_is_not_valid() {
        let mut run = Partitions::new(2);
        run.executed(0, 1, &[], &[]);
        let position = run.save(0, 0, 1);
        run.commit(0, position);
        let finding = check_alone(check, &run.0);
        finds!(finding, Breach::UsedBeforeDurable { owner: ProcessId(1), .. });
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
        assert_eq!(check_alone(check, &run.0).violation_count(), 1);
    }
}
