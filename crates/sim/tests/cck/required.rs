//! Compares the re-executed tasks with an independently computed backward closure over the edges of the plan.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{ImageName, Incarnation, Position, ProcessId};
use faultline_dataflow::partition::Executed;
use faultline_dataflow::plan::{TaskNo, Value};
use faultline_dataflow::programs::Flow;
use faultline_dataflow::{Partition, Plan};
use faultline_protocols::cck::Cck;

/// One partition in one recovery.
#[derive(Clone, Debug, Default)]
struct Part {
    /// The tasks that the partition had executed when it joined the recovery.
    executed: Executed,
    slot: Position,
    /// The values in the partition's memory when it joined the recovery. Empty unless [`Seen::from_memory`] is set.
    memory: BTreeSet<Value>,
    demanded: BTreeSet<Value>,
    again: BTreeSet<TaskNo>,
    is_at_end: bool,
}

/// Observations of the recoveries in a run.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Whether values in memory make it unnecessary to re-execute the tasks that computed them.
    from_memory: bool,
    /// Indexed by recovery and partition.
    parts: BTreeMap<(Incarnation, ProcessId), Part>,
    /// The tasks that an image's owner had executed when the image was saved.
    saved: BTreeMap<ImageName, Executed>,
}

/// Summary of a run's re-executions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) recoveries: usize,
    pub(crate) tasks: usize,
    /// Number of partitions that re-executed tasks, summed over the recoveries. `idle` counts the partitions that
    /// re-executed none.
    pub(crate) busy: usize,
    pub(crate) idle: usize,
}

impl Seen {
    pub(crate) fn new(from_memory: bool) -> Seen {
        Seen { from_memory, ..Seen::default() }
    }

    /// Inspects a process after an event.
    pub(crate) fn look(&mut self, process: &Partition<Cck, Flow>, partitions: u32) {
        let from_memory = self.from_memory;
        for partition in (0..partitions).map(ProcessId) {
            let Some(executed) = process.executed(partition) else { continue };
            let Some((epoch, slot, demanded)) = process.protocol().recovery(partition) else { continue };
            let part = self.parts.entry((epoch, partition)).or_insert_with(|| Part {
                executed: executed.clone(),
                slot,
                memory: process.values(partition).filter(|_| from_memory).collect(),
                ..Part::default()
            });
            if let Some((again, is_at_end)) = process.executed_again(partition) {
                part.demanded.extend(demanded);
                part.again.extend(again);
                part.is_at_end = is_at_end;
            }
        }
    }

    /// Handles the write of an image: a part of a checkpoint, or a replica of a part.
    pub(crate) fn saves(&mut self, name: ImageName, process: &Partition<Cck, Flow>) {
        if let Some(executed) = process.executed(name.owner).cloned() {
            self.saved.entry(name).or_insert(executed);
        }
    }

    /// Asserts that in every completed recovery, exactly the tasks in the closure were re-executed.
    pub(crate) fn judge(&self, plan: &Plan, what: &str) -> Account {
        let mut account = Account::default();
        let epochs: BTreeSet<Incarnation> = self.parts.keys().map(|(epoch, _)| *epoch).collect();
        for epoch in epochs.into_iter().filter(|it| it.0 > 0) {
            let of = |partition: ProcessId| self.parts.get(&(epoch, partition));
            let all: Vec<Option<&Part>> = (0..plan.partitions()).map(|it| of(ProcessId(it))).collect();
            let parts: Vec<&Part> = all.iter().copied().flatten().collect();
            // The next recovery began before all partitions had joined this one.
            if parts.len() < all.len() {
                continue;
            }
            // Checkpoints resume only after a recovery is complete.
            let is_complete = self.saved.keys().any(|it| it.incarnation == epoch);
            let required = self.required(plan, &parts);
            let again: BTreeSet<TaskNo> = parts.iter().flat_map(|it| it.again.iter().copied()).collect();
            assert!(again.is_subset(&required), "{what}, {epoch}: more tasks than required");
            if is_complete {
                assert_eq!(again, required, "{what}, {epoch}");
                assert!(
                    parts.iter().all(|it| it.is_at_end),
                    "{what}, {epoch}: a checkpoint was taken too early"
                );
            }
            account.recoveries += 1;
            account.tasks += again.len();
            account.busy += parts.iter().filter(|it| !it.again.is_empty()).count();
            account.idle += parts.iter().filter(|it| it.again.is_empty()).count();
        }
        account
    }

    /// Follows dependencies backwards from the demanded values, up to values in memory, tasks that the checkpoint
    /// contains, and tasks that have not been executed yet.
    fn required(&self, plan: &Plan, parts: &[&Part]) -> BTreeSet<TaskNo> {
        let saved = |partition: ProcessId, slot: Position| {
            let of = |name: &&ImageName| name.owner == partition && name.position() == slot;
            self.saved
                .iter()
                .find(|(name, _)| of(name))
                .map(|(_, executed)| executed.clone())
                .unwrap_or_default()
        };
        let slots: Vec<Executed> =
            parts.iter().zip(0..).map(|(part, it)| saved(ProcessId(it), part.slot)).collect();
        let is_again = |task: TaskNo| {
            let of = plan.partition_of(task).index();
            parts[of].executed.contains(task) && !slots[of].contains(task)
        };
        let has = |partition: ProcessId, value: &Value| parts[partition.index()].memory.contains(value);
        let mut required = BTreeSet::new();
        let mut values: Vec<Value> = parts.iter().flat_map(|it| it.demanded.iter().copied()).collect();
        while let Some(value) = values.pop() {
            let of = plan.partition_of(value.task);
            if !has(of, &value) && is_again(value.task) && required.insert(value.task) {
                values.extend(plan.sources(value.task).filter(|it| !has(of, it)));
            }
        }
        required
    }
}
