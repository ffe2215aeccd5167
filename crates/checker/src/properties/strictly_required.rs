//! A recovery re-executes exactly the tasks that are strictly required (CCK long paper, T_reexec): those whose values
//! were lost, and those that produce values these tasks need, back to the valid checkpoint. Re-execution does not
//! change the states of the partitions.
//!
//! The requirement is computed here by brute force from the recorded dependencies of all tasks, backwards
//! from each value that its sender had sent when joining the recovery, but that had not been received when
//! the channel between sender and receiver was drained. The computation stops at tasks that the checkpoint
//! contains, and at tasks not yet executed in their partition's current state, because the partition will
//! execute them anyway. A value that was sent again before the recovery may still arrive; no fact states
//! whether its task was required, so both outcomes are correct. The protocol claims that a partition has
//! joined, and that a channel is drained. A false claim changes which tasks are required, but not which are
//! re-executed.
//!
//! Re-executing too much violates the property under every protocol, and also in a recovery that a newer one
//! interrupted. Re-executing too little violates it only in a recovery that is over, and if the protocol promises
//! [`Promise::StrictlyRequired`]: other protocols may find values in memory.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::fault::Outcome;
use faultline_core::{FactKind, Incarnation, Position, ProcessId, Promise, TaskId};

use super::valid_checkpoints::cut_of;
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, History, Joined, MessageNo, Planned, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    NotRequired { process: ProcessId, task: TaskId, epoch: Incarnation },
    NotReexecuted { process: ProcessId, task: TaskId, epoch: Incarnation },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::NotRequired { process: by, task, epoch } => format!(
                "{} re-executed {} in recovery {}, although no lost value required it",
                names.process(by),
                names.task(task),
                epoch.0
            ),
            Breach::NotReexecuted { process: by, task, epoch } => format!(
                "{} did not re-execute {} in recovery {}, although a lost value required it",
                names.process(by),
                names.task(task),
                epoch.0
            ),
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::StrictlyRequired, "recoveries re-executed exactly the required tasks", check)
        .needs(&[FactKind::Planned]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(planned) = &history.planned else { return };
    let last = planned.epochs().last().copied();
    for epoch in planned.epochs() {
        check_epoch(history, planned, epoch, is_over(history, epoch, last), finding);
    }
}

/// Returns whether a recovery must have finished re-executing: a checkpoint was taken after it, or the program ended.
pub(super) fn is_over(history: &History<'_>, epoch: Incarnation, last: Option<Incarnation>) -> bool {
    let is_saved = |it: &faultline_history::Witnessed| {
        !it.is_restored && it.part.is_some_and(|name| name.incarnation == epoch)
    };
    last == Some(epoch) && history.context.outcome == Some(Outcome::Completed)
        || history.witnessed.iter().any(is_saved)
}

fn check_epoch(
    history: &History<'_>,
    planned: &Planned,
    epoch: Incarnation,
    is_over: bool,
    finding: &mut Findings,
) {
    let context = history.context;
    let needed = match Needed::of(history, planned, epoch) {
        Ok(needed) => needed,
        Err((owner, position)) => return finding.lacks_content(owner, position, context),
    };
    let required = needed.required(|_, _| false);
    finding.instances += needed.states.len() as u64;
    let mut executed: BTreeSet<TaskId> = BTreeSet::new();
    for rerun in planned.reruns.iter().filter(|it| it.epoch == epoch) {
        executed.insert(rerun.task);
        if !required.contains(&rerun.task) {
            let process = history.process_of(rerun.at);
            finding.violated(
                [history.source(rerun.at)],
                Breach::NotRequired { process, task: rerun.task, epoch },
            );
        }
    }
    if !is_over || !context.promises.include(Promise::StrictlyRequired) {
        return;
    }
    for task in needed.required_at_least().difference(&executed) {
        let partition = planned.tasks[task].partition;
        let at = history.source(planned.joined[&(epoch, partition)].at);
        finding.violated([at], Breach::NotReexecuted { process: partition, task: *task, epoch });
    }
}

/// Returns the tasks that a recovery has to re-execute only if the values that were sent again before the
/// recovery do not arrive. Returns none if this is not known.
pub(super) fn optional(history: &History<'_>, planned: &Planned, epoch: Incarnation) -> BTreeSet<TaskId> {
    Needed::of(history, planned, epoch).map_or_else(
        |_| BTreeSet::new(),
        |needed| &needed.required(|_, _| false) - &needed.required_at_least(),
    )
}

/// The state with which a partition joins a recovery.
struct State {
    joined: Point,
    /// The state of the valid checkpoint; `None` is the initial one.
    slot: Option<Point>,
}

impl State {
    fn of(history: &History<'_>, partition: ProcessId, joined: &Joined) -> Option<State> {
        let slot = match joined.slot.sn.0 {
            0 => None,
            _ => Some(cut_of(history, partition, joined.slot)?),
        };
        Some(State { joined: joined.at, slot })
    }

    /// Returns whether the state contains the task but the checkpoint does not.
    fn has_to_repeat(&self, history: &History<'_>, ran: &[Point]) -> bool {
        let is_in = |cut: Point| ran.iter().any(|it| history.contains(cut, *it));
        is_in(self.joined) && !self.slot.is_some_and(is_in)
    }
}

/// The requirements of one recovery.
struct Needed<'a> {
    history: &'a History<'a>,
    planned: &'a Planned,
    epoch: Incarnation,
    states: BTreeMap<ProcessId, State>,
}

impl<'a> Needed<'a> {
    /// Fails if a part of the valid checkpoint is not known.
    fn of(
        history: &'a History<'a>,
        planned: &'a Planned,
        epoch: Incarnation,
    ) -> Result<Needed<'a>, (ProcessId, Position)> {
        let mut states: BTreeMap<ProcessId, State> = BTreeMap::new();
        for &partition in history.context.clusters.iter().flatten() {
            // Some partitions had not joined when the next recovery began. They re-executed nothing.
            let Some(joined) = planned.joined.get(&(epoch, partition)) else { continue };
            let state = State::of(history, partition, joined);
            let gap = (partition, joined.slot);
            states.insert(partition, state.ok_or(gap)?);
        }
        Ok(Needed { history, planned, epoch, states })
    }

    /// Returns the tasks that must be re-executed even if every value that may arrive does arrive.
    fn required_at_least(&self) -> BTreeSet<TaskId> {
        let messages = self.messages();
        self.required(|task, by| self.may_arrive(&messages, task, by))
    }

    /// Returns the messages that each task sends.
    fn messages(&self) -> BTreeMap<TaskId, Vec<MessageNo>> {
        let mut messages: BTreeMap<TaskId, Vec<MessageNo>> = BTreeMap::new();
        for (message, task) in &self.planned.sent_by {
            messages.entry(*task).or_default().push(*message);
        }
        messages
    }

    /// Returns the tasks that must be re-executed. `arrives` returns whether the value of a task reaches a partition
    /// without re-execution.
    fn required(&self, arrives: impl Fn(TaskId, ProcessId) -> bool) -> BTreeSet<TaskId> {
        let Needed { history, planned, epoch, ref states } = *self;
        let mut open: Vec<TaskId> = Vec::new();
        for (number, message) in (0..).map(MessageNo).zip(history.messages.iter()) {
            let (from, to) = (message.id.from, message.id.to);
            let Some(&drained) = planned.drained.get(&(epoch, from, to)) else { continue };
            let Some(sender) = states.get(&from) else { continue };
            let is_sent = message.sent().iter().any(|it| history.contains(sender.joined, *it));
            let is_there = message.delivered().iter().any(|it| history.contains(drained, *it));
            if is_sent && !is_there {
                open.extend(planned.sent_by.get(&number));
            }
        }
        let mut required = BTreeSet::new();
        while let Some(task) = open.pop() {
            let Some(it) = planned.tasks.get(&task) else { continue };
            let Some(state) = states.get(&it.partition) else { continue };
            if state.has_to_repeat(history, &it.ran) && required.insert(task) {
                open.extend(it.sources.iter().copied().filter(|source| !arrives(*source, it.partition)));
            }
        }
        required
    }

    /// Returns whether a value was sent to a partition more than once before its sender joined the recovery.
    fn may_arrive(&self, messages: &BTreeMap<TaskId, Vec<MessageNo>>, task: TaskId, to: ProcessId) -> bool {
        let Some(from) = self.planned.tasks.get(&task).map(|it| it.partition).filter(|it| *it != to) else {
            return false;
        };
        let Some(sender) = self.states.get(&from) else { return false };
        let sent_again = |message: &&MessageNo| {
            let sent = self.planned.transmitted.get(message).map_or(&[][..], Vec::as_slice);
            sent.iter().filter(|it| **it < sender.joined).count() > 1
        };
        let own = messages.get(&task).map_or(&[][..], Vec::as_slice);
        own.iter().filter(|it| self.history.messages.get(**it).id.to == to).any(|it| sent_again(&it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_alone;
    use crate::testing::planned::{Partitions, task};
    use faultline_core::Position;

    /// The position of the initial state, which is not a checkpoint.
    const INITIAL: Position = Position::new(0, 0);

    /// Returns the violations of a run. Partition 0 executes two tasks after its checkpoint. The second task
    /// reads the value of the first, and sends its own value to partition 1, which fails. Partition 0 then
    /// re-executes the tasks in `again`.
    fn wrong(again: &[u64], is_over: bool) -> Vec<Breach> {
        wrong_under(&[Promise::StrictlyRequired], again, is_over)
    }

    fn wrong_under(promises: &[Promise], again: &[u64], is_over: bool) -> Vec<Breach> {
        let mut run = Partitions::promising(2, promises);
        run.executed(0, 1, &[], &[]);
        let slot = run.checkpoint(0, 1);
        run.commit(0, slot);
        run.executed(0, 2, &[1], &[]);
        let id = run.executed(0, 3, &[2], &[1])[0];
        run.executed(0, 4, &[], &[]);
        run.delivered(id);
        run.0.kill(1, false);
        run.restored(1, 5, slot);
        run.joined(1, 5, slot);
        run.joined(0, 5, slot);
        run.drained(0, 1, 5);
        run.drained(1, 0, 5);
        again.iter().for_each(|it| run.rerun(0, *it, 1, 5));
        if is_over {
            run.checkpoint(5, 2);
        } else {
            run.0.context.outcome = Some(Outcome::Deadline);
        }
        check_alone(&RULE, &run.0).wrong::<Breach>()
    }

    #[test]
    fn the_closure_back_to_the_checkpoint_is_required() {
        assert_eq!(wrong(&[2, 3], true), []);
    }

    #[test]
    fn re_executing_more_is_found() {
        for (again, one_too_many) in [([2, 3, 4], 4), ([1, 2, 3], 1)] {
            let wrong = wrong(&again, true);
            let [Breach::NotRequired { task: it, .. }] = wrong[..] else { panic!("{wrong:?}") };
            assert_eq!(it, task(one_too_many));
        }
    }

    #[test]
    fn re_executing_less_is_found_once_the_recovery_should_be_over() {
        assert_eq!(wrong(&[3], false), []);
        let wrong = wrong(&[3], true);
        assert!(matches!(wrong[..], [Breach::NotReexecuted { .. }]), "{wrong:?}");
    }

    #[test]
    fn values_in_memory_excuse_re_executing_less_but_not_more() {
        assert_eq!(wrong_under(&[], &[3], true), []);
        let wrong = wrong_under(&[], &[2, 3, 4], true);
        assert!(matches!(wrong[..], [Breach::NotRequired { .. }]), "{wrong:?}");
    }

    /// Checks a recovery in which partition 0 re-executes the task `again` for partition 1. Partition 2 fails
    /// before it joins this recovery.
    fn interrupted(again: u64) -> Findings {
        let mut run = Partitions::new(3);
        let slot = run.checkpoint(0, 1);
        run.commit(0, slot);
        let id = run.executed(0, 3, &[], &[1])[0];
        run.executed(0, 4, &[], &[]);
        run.delivered(id);
        run.0.kill(1, false);
        run.restored(1, 5, slot);
        run.joined(1, 5, slot);
        run.joined(0, 5, slot);
        run.drained(0, 1, 5);
        run.rerun(0, again, 1, 5);
        run.0.kill(2, false);
        run.0.context.outcome = Some(Outcome::Deadline);
        check_alone(&RULE, &run.0)
    }

    #[test]
    fn an_interrupted_recovery_is_judged_by_what_it_re_executed() {
        let finding = interrupted(3);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0));
        let wrong = interrupted(4).wrong::<Breach>();
        assert!(matches!(wrong[..], [Breach::NotRequired { .. }]), "{wrong:?}");
    }

    #[test]
    fn a_value_that_arrived_before_the_channel_was_drained_is_not_lost() {
        let mut run = Partitions::new(2);
        let id = run.executed(0, 3, &[], &[1])[0];
        run.joined(1, 5, INITIAL);
        run.joined(0, 5, INITIAL);
        run.delivered(id);
        run.drained(0, 1, 5);
        run.checkpoint(5, 1);
        let finding = check_alone(&RULE, &run.0);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0));
    }
}
