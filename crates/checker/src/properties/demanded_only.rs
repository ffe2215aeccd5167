//! No process re-executes a task unnecessarily (CCK long paper): every task that a partition re-executed wrote a value
//! that the partition then sent, or that another re-executed task of the same recovery read.
//!
//! A value that was sent again before the recovery may still arrive after its receiver has demanded it. The recovery may
//! then end before the value's task is re-executed, but after the tasks that it reads from.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Incarnation, TaskId};

use super::strictly_required::is_over;
use crate::finding::{Breach, Findings};
use crate::judgement::Property;
use faultline_history::{History, MessageNo, Planned, Rerun};

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::DemandedOnly);
    let Some(planned) = &history.planned else { return finding };
    let mut messages: BTreeMap<TaskId, Vec<MessageNo>> = BTreeMap::new();
    let again: BTreeSet<TaskId> = planned.reruns.iter().map(|it| it.task).collect();
    for (message, task) in planned.sent_by.iter().filter(|(_, task)| again.contains(task)) {
        messages.entry(*task).or_default().push(*message);
    }
    // The tasks whose values the re-executed tasks of each recovery read.
    let mut read: BTreeSet<(Incarnation, TaskId)> = BTreeSet::new();
    for rerun in &planned.reruns {
        let sources = planned.tasks.get(&rerun.task).map_or(&[][..], |it| &it.sources);
        read.extend(sources.iter().map(|it| (rerun.epoch, *it)));
    }
    let last = planned.epochs().last().copied();
    let over: BTreeSet<Incarnation> =
        planned.epochs().into_iter().filter(|it| is_over(history, *it, last)).collect();
    for rerun in planned.reruns.iter().filter(|it| over.contains(&it.epoch)) {
        finding.instances += 1;
        let sends = |message: &MessageNo| {
            let sent = planned.transmitted.get(message).map_or(&[][..], Vec::as_slice);
            sent.iter().any(|it| *it > rerun.at)
        };
        let is_sent = messages.get(&rerun.task).is_some_and(|it| it.iter().any(sends));
        let is_used = is_sent || read.contains(&(rerun.epoch, rerun.task));
        if !is_used && !is_read_by_an_arriving_value(planned, rerun) {
            let process = history.process_of(rerun.at);
            finding.violated(
                [history.source(rerun.at)],
                Breach::NotDemanded { process, task: rerun.task, epoch: rerun.epoch },
            );
        }
    }
    finding
}

/// Returns whether another task of the same partition reads a value of the re-executed task, and the value of that task
/// may arrive without re-execution, because it had been sent at least twice before the recovery.
fn is_read_by_an_arriving_value(planned: &Planned, rerun: &Rerun) -> bool {
    let partition = planned.tasks.get(&rerun.task).map(|it| it.partition);
    let Some(joined) = partition.and_then(|it| planned.joined.get(&(rerun.epoch, it))) else { return false };
    let is_sent_again = |message: &MessageNo| {
        let sent = planned.transmitted.get(message).map_or(&[][..], Vec::as_slice);
        sent.iter().filter(|it| **it < joined.at).count() > 1
    };
    let mut sent_by = planned.sent_by.iter().filter(|(message, _)| is_sent_again(message));
    sent_by.any(|(_, reader)| {
        planned
            .tasks
            .get(reader)
            .is_some_and(|reader| Some(reader.partition) == partition && reader.sources.contains(&rerun.task))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_alone;
    use crate::testing::planned::Partitions;
    use faultline_core::Position;

    fn found(sends_again: bool) -> (u64, u64) {
        let mut run = Partitions::new(2);
        run.executed(0, 2, &[], &[]);
        let id = run.executed(0, 3, &[2], &[1])[0];
        for partition in 0..2 {
            run.joined(partition, 5, Position::default());
        }
        run.rerun(0, 2, 1, 5);
        run.rerun(0, 3, 1, 5);
        if sends_again {
            run.0.transmit(id, Position::default());
        }
        run.checkpoint(5, 1);
        let finding = check_alone(check, &run.0);
        (finding.instances, finding.violation_count())
    }

    /// Partition 0 re-executes only the task whose value the sending task reads. `times` is how often it had sent the
    /// value before the recovery.
    fn violations_if_sent(times: u32) -> u64 {
        let mut run = Partitions::new(2);
        run.executed(0, 2, &[], &[]);
        let id = run.executed(0, 3, &[2], &[1])[0];
        for _ in 1..times {
            run.0.transmit(id, Position::default());
        }
        for partition in 0..2 {
            run.joined(partition, 5, Position::default());
        }
        run.rerun(0, 2, 1, 5);
        run.checkpoint(5, 1);
        check_alone(check, &run.0).violation_count()
    }

    #[test]
    fn a_value_that_may_still_arrive_excuses_the_tasks_that_its_own_task_reads() {
        assert_eq!((violations_if_sent(1), violations_if_sent(2)), (1, 0));
    }

    #[test]
    fn values_of_re_executed_tasks_are_sent_or_read() {
        assert_eq!(found(true), (2, 0));
        assert_eq!(found(false), (2, 1), "the value of task 3 went nowhere");
    }
}
