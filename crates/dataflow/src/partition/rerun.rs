//! Re-executes tasks to recompute values that other partitions lost, while this partition itself continues. Values are
//! assigned once, so a second execution needs only separate storage for them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use faultline_core::{Chunk, Incarnation, ProcessId};

use super::share::{Executed, Share};
use crate::plan::{Plan, TaskNo, Value};

/// The re-execution of one partition, starting at a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Rerun {
    partition: ProcessId,
    /// The epoch of the recovery.
    epoch: Incarnation,
    /// The tasks whose effects the checkpoint contains.
    saved: Executed,
    /// Values that the checkpoint contains, that were still in memory when the recovery began, or that have been
    /// recomputed or received since.
    values: BTreeMap<Value, Option<Chunk>>,
    /// All tasks of this re-execution, each with the partition whose demand first required it.
    tasks: BTreeMap<TaskNo, ProcessId>,
    waiting: BTreeSet<TaskNo>,
    ready: BTreeSet<TaskNo>,
    executing: BTreeSet<TaskNo>,
    /// Demanded values, each with the partitions that demand it.
    owed: BTreeMap<Value, BTreeSet<ProcessId>>,
    /// Whether other processes may execute tasks of this re-execution.
    spreads: bool,
}

impl Rerun {
    /// Creates a re-execution that starts from a checkpoint and from values that are still in memory.
    pub(super) fn new<'a>(
        partition: ProcessId,
        epoch: Incarnation,
        saved: Share,
        memory: impl IntoIterator<Item = (&'a Value, &'a Option<Chunk>)>,
        spreads: bool,
    ) -> Rerun {
        let executed = saved.executed().clone();
        let mut values = saved.into_values();
        values.extend(memory.into_iter().map(|(value, content)| (*value, content.clone())));
        Rerun {
            partition,
            epoch,
            saved: executed,
            values,
            tasks: BTreeMap::new(),
            waiting: BTreeSet::new(),
            ready: BTreeSet::new(),
            executing: BTreeSet::new(),
            owed: BTreeMap::new(),
            spreads,
        }
    }

    /// Handles a demand for a value that was written here. Returns the value if it exists. Otherwise, re-executes those
    /// tasks since the checkpoint that contribute to the value, and returns the missing values that these tasks require
    /// from other partitions.
    pub(super) fn demand(
        &mut self,
        plan: &Plan,
        value: Value,
        by: ProcessId,
    ) -> Result<Option<Chunk>, Vec<Value>> {
        if let Some(content) = self.values.get(&value) {
            return Ok(content.clone());
        }
        self.owed.entry(value).or_default().insert(by);
        let (mut wanted, mut open) = (BTreeSet::new(), Vec::from([value.task]));
        while let Some(task) = open.pop() {
            // The receivers had the values of saved tasks before they saved their own parts.
            if self.saved.contains(task) || self.tasks.contains_key(&task) {
                continue;
            }
            self.tasks.insert(task, by);
            for source in plan.sources(task).filter(|it| !self.values.contains_key(it)) {
                if plan.partition_of(source.task) == self.partition {
                    open.push(source.task);
                } else {
                    wanted.insert(source);
                }
            }
            self.waiting.insert(task);
            self.consider(plan, task);
        }
        Err(wanted.into_iter().collect())
    }

    /// Handles a value from another partition. It is kept even if nothing has demanded it yet.
    pub(super) fn receive(&mut self, plan: &Plan, value: Value, content: Option<Chunk>) {
        if self.values.insert(value, content).is_none() {
            self.wake(plan, value);
        }
    }

    pub(super) fn next(&mut self) -> Option<TaskNo> {
        let task = self.ready.pop_first()?;
        self.executing.insert(task);
        Some(task)
    }

    /// Returns the epoch of the recovery, and the partition whose demand first required this task.
    pub(super) fn demander(&self, task: TaskNo) -> (Incarnation, ProcessId) {
        (self.epoch, self.tasks.get(&task).copied().unwrap_or(self.partition))
    }

    /// Returns whether any task that another process may execute is ready.
    pub(super) fn can_spread(&self) -> bool {
        self.spreads && !self.ready.is_empty()
    }

    pub(super) fn next_to_spread(&mut self) -> Option<TaskNo> {
        if self.spreads { self.next() } else { None }
    }

    /// Applies the values that a task wrote, and returns those that are demanded, each with the partitions that demand
    /// it. Returns `None` if the task is not executing.
    pub(super) fn execute(
        &mut self,
        plan: &Plan,
        task: TaskNo,
        wrote: &[Option<Chunk>],
    ) -> Option<Vec<(Value, BTreeSet<ProcessId>)>> {
        if !self.executing.remove(&task) {
            return None;
        }
        let mut owed = Vec::new();
        for (value, content) in plan.outputs(task).zip(wrote) {
            self.values.insert(value, content.clone());
            self.wake(plan, value);
            owed.extend(self.owed.remove(&value).map(|by| (value, by)));
        }
        Some(owed)
    }

    /// Returns all tasks of this re-execution, and whether all of them have ended.
    pub(super) fn tasks(&self) -> (BTreeSet<TaskNo>, bool) {
        let Rerun { tasks, waiting, ready, executing, .. } = self;
        (tasks.keys().copied().collect(), waiting.is_empty() && ready.is_empty() && executing.is_empty())
    }

    pub(super) fn value(&self, value: Value) -> Option<&Option<Chunk>> {
        self.values.get(&value)
    }

    fn wake(&mut self, plan: &Plan, value: Value) {
        let partition = self.partition;
        for task in plan.readers(value).filter(|it| plan.partition_of(*it) == partition) {
            self.consider(plan, task);
        }
    }

    fn consider(&mut self, plan: &Plan, task: TaskNo) {
        if self.waiting.contains(&task) && plan.sources(task).all(|it| self.values.contains_key(&it)) {
            self.waiting.remove(&task);
            self.ready.insert(task);
        }
    }
}
