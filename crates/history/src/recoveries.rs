//! The cost of recoveries of planned programs: the tasks that live processes re-executed, compared with those that they
//! would have re-executed if all had rolled back. Makes no judgements.
//!
//! Facts are processed in chronological order. If processes read different clocks, this order is approximate, but the
//! facts whose order matters are seconds apart.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Claim, Fact, ImageName, Incarnation, PartitionClaim, Position, ProcessId, Span, Time};

use crate::history::History;

/// The cost of one recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCost {
    /// The time at which the first partition joined.
    pub began: Time,
    /// The time at which the last task was re-executed, or the last partition joined.
    pub ended: Time,
    /// Partitions that kept their states.
    pub live: BTreeSet<ProcessId>,
    /// Partitions that were restored.
    pub restored: BTreeSet<ProcessId>,
    /// Partitions that re-executed tasks for others.
    pub busy: BTreeSet<ProcessId>,
    /// The number of re-executed tasks.
    pub again: u64,
    /// The total time of the re-executed tasks.
    pub cost: Span,
    /// The number of tasks that the live partitions had executed since the checkpoint, and would have re-executed if
    /// all had rolled back.
    pub since: u64,
}

/// The recoveries of a run, from its facts.
#[derive(Clone, Debug, Default)]
pub struct Recoveries {
    by_epoch: BTreeMap<Incarnation, RecoveryCost>,
    /// The partition of the task that each process currently executes.
    executing: BTreeMap<ProcessId, ProcessId>,
    /// The number of tasks that the state of each partition contains.
    executed: BTreeMap<ProcessId, u64>,
    saved: BTreeMap<ImageName, u64>,
    /// Partitions that were restored and have not joined a recovery since.
    restored: BTreeSet<ProcessId>,
}

impl Recoveries {
    /// Iterates over all recoveries, in order.
    pub fn all(&self) -> impl Iterator<Item = (Incarnation, &RecoveryCost)> {
        self.by_epoch.iter().map(|(epoch, it)| (*epoch, it))
    }

    /// Reads the facts of all processes in chronological order.
    pub fn of(history: &History<'_>) -> Recoveries {
        let streams =
            history.trace.streams.iter().filter(|((process, _), _)| *process != ProcessId::SUPERVISOR);
        let mut facts: Vec<(Time, ProcessId, &Fact)> = streams
            .flat_map(|(&(process, _), stream)| stream.iter().map(move |(at, fact)| (*at, process, fact)))
            .collect();
        facts.sort_by_key(|it| it.0);
        let mut recoveries = Recoveries::default();
        facts.into_iter().for_each(|(at, process, fact)| recoveries.note(process, at, fact));
        recoveries
    }

    /// Applies a fact of a process to the recoveries.
    fn note(&mut self, process: ProcessId, at: Time, fact: &Fact) {
        match fact {
            Fact::Planned(planned) => drop(self.executing.insert(process, planned.partition)),
            Fact::Ran { .. } => {
                if let Some(partition) = self.executing.get(&process) {
                    *self.executed.entry(*partition).or_default() += 1;
                }
            }
            Fact::Saved(saved) => {
                let executed = self.executed.get(&saved.0.owner).copied().unwrap_or(0);
                self.saved.entry(saved.0).or_insert(executed);
            }
            Fact::Restored(restored) => self.restore(process, restored.0),
            Fact::Absorbed(absorbed) => self.restore(absorbed.0, absorbed.1),
            Fact::Rerun { epoch, cost_us, .. } => {
                let Some(partition) = self.executing.get(&process) else { return };
                let recovery = self.by_epoch.entry(*epoch).or_default();
                recovery.busy.insert(*partition);
                recovery.again += 1;
                recovery.cost = recovery.cost + Span::from_micros((*cost_us).into());
                recovery.ended = recovery.ended.max(at);
            }
            Fact::Claim(claim) => {
                if let Claim::Partition(PartitionClaim::RecoveryJoined { partition, epoch, slot }) = **claim {
                    self.joined(partition, epoch, slot, at);
                }
            }
            _ => {}
        }
    }

    fn restore(&mut self, partition: ProcessId, from: Option<ImageName>) {
        let executed = from.and_then(|it| self.saved.get(&it).copied()).unwrap_or(0);
        self.executed.insert(partition, executed);
        self.restored.insert(partition);
    }

    fn joined(&mut self, partition: ProcessId, epoch: Incarnation, slot: Position, at: Time) {
        let new = || RecoveryCost { began: at, ..RecoveryCost::default() };
        let recovery = self.by_epoch.entry(epoch).or_insert_with(new);
        recovery.ended = recovery.ended.max(at);
        if self.restored.remove(&partition) {
            recovery.restored.insert(partition);
            return;
        }
        let name = ImageName {
            owner: partition,
            incarnation: slot.incarnation,
            sn: slot.sn,
            attempt: faultline_core::Attempt(1),
        };
        let contained = self.saved.get(&name).copied().unwrap_or(0);
        recovery.since += self.executed.get(&partition).copied().unwrap_or(0).saturating_sub(contained);
        recovery.live.insert(partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned::Partitions;

    #[test]
    fn live_partitions_are_charged_with_what_they_executed_since_the_checkpoint() {
        let mut run = Partitions::new(2);
        let slot = run.checkpoint(0, 1);
        run.executed(0, 2, &[], &[]);
        run.executed(0, 3, &[], &[1]);
        run.0.kill(1, false);
        run.restored(1, 5, slot);
        run.joined(1, 5, slot);
        run.joined(0, 5, slot);
        run.rerun(0, 3, 1, 5);
        let recoveries = Recoveries::of(&run.0.history());
        let all: Vec<_> = recoveries.all().collect();
        let [(epoch, recovery)] = all[..] else { panic!("there is one recovery: {all:?}") };
        assert_eq!((epoch, recovery.since, recovery.again), (Incarnation(5), 2, 1));
        assert_eq!((recovery.live.len(), recovery.restored.len(), recovery.busy.len()), (1, 1, 1));
        assert_eq!(recovery.cost, Span::from_millis(1));
    }
}
