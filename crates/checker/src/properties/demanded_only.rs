//! No process re-executes a task unnecessarily (CCK long paper): every task re-executed by a partition wrote a value
//! that the partition then sent, or that another re-executed task of the same recovery read.
//!
//! A value that was sent again before the recovery may arrive after its receiver has demanded it. The recovery may then
//! end after some of the tasks on which the value depends are re-executed, but before the value's own task is.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{FactKind, Incarnation, ProcessId, TaskId};

use super::strictly_required::{is_over, optional};
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, History, MessageNo};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    NotDemanded { process: ProcessId, task: TaskId, epoch: Incarnation },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::NotDemanded { process: by, task, epoch } = *self;
        format!(
            "{} re-executed {} in recovery {}, although no partition needed it",
            names.process(by),
            names.task(task),
            epoch.0
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::DemandedOnly, "every re-executed task was needed", check).needs(&[FactKind::Planned]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(planned) = &history.planned else { return };
    let mut messages: BTreeMap<TaskId, Vec<MessageNo>> = BTreeMap::new();
    let again: BTreeSet<TaskId> = planned.reruns.iter().map(|it| it.task).collect();
    for (message, task) in planned.sent_by.iter().filter(|(_, task)| again.contains(task)) {
        messages.entry(*task).or_default().push(*message);
    }
    // By recovery: the tasks whose values its re-executed tasks read.
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
        if !is_used && !optional(history, planned, rerun.epoch).contains(&rerun.task) {
            let process = history.process_of(rerun.at);
            finding.violated(
                [history.source(rerun.at)],
                Breach::NotDemanded { process, task: rerun.task, epoch: rerun.epoch },
            );
        }
    }
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
        let finding = check_alone(&RULE, &run.0);
        (finding.instances, finding.violation_count())
    }

    /// Returns the number of violations if partition 0 sends a value `times` times before a recovery, in
    /// which it re-executes only a task on which that value depends. Partition 2 has lost a value that
    /// partition 1 computed from that value.
    fn violations_if_sent(times: u32) -> u64 {
        let mut run = Partitions::new(3);
        run.executed(0, 1, &[], &[]);
        run.executed(0, 2, &[1], &[]);
        let id = run.executed(0, 3, &[2], &[1])[0];
        run.delivered(id);
        run.executed(1, 4, &[3], &[2]);
        for _ in 1..times {
            run.0.transmit(id, Position::default());
        }
        run.0.kill(2, false);
        for partition in 0..3 {
            run.joined(partition, 5, Position::default());
        }
        run.drained(1, 2, 5);
        run.rerun(0, 1, 1, 5);
        run.checkpoint(5, 1);
        check_alone(&RULE, &run.0).violation_count()
    }

    #[test]
    fn a_value_that_may_still_arrive_excuses_the_tasks_that_it_depends_on() {
        assert_eq!((violations_if_sent(1), violations_if_sent(2)), (1, 0));
    }

    #[test]
    fn values_of_re_executed_tasks_are_sent_or_read() {
        assert_eq!(found(true), (2, 0));
        assert_eq!(found(false), (2, 1), "the value of task 3 went nowhere");
    }
}
