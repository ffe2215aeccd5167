//! A partition's progress in its plan, and the values that the remaining tasks need.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Chunk, ProcessId};
use serde::{Deserialize, Serialize};

use crate::plan::{Plan, TaskNo, Value};

/// The executed tasks of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// The first incomplete step: all tasks of earlier steps have been executed.
    pub before: u32,
    /// Executed tasks of step `before` and later steps.
    pub beyond: BTreeSet<TaskNo>,
}

impl Executed {
    /// Returns whether this task of the partition has been executed.
    pub fn contains(&self, task: TaskNo) -> bool {
        task.step < self.before || self.beyond.contains(&task)
    }

    /// Returns the lowest step such that no task of that step or of a later one has been executed.
    pub fn end(&self) -> u32 {
        self.beyond.last().map_or(self.before, |it| it.step + 1)
    }
}

/// A partition's progress in its plan, the values that the remaining tasks need, and the result if this partition wrote
/// it: the content of the partition's part of a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Share {
    partition: ProcessId,
    executed: Executed,
    /// Values, written here or received, that a task of this partition has yet to read; also the program's result, if a
    /// task of this partition wrote it.
    values: BTreeMap<Value, Option<Chunk>>,
    /// Values that were sent or received, and were written in the last `recent_steps` complete steps or later. Not
    /// saved.
    recent: BTreeMap<Value, Option<Chunk>>,
    /// Number of complete steps for which values are kept after they are sent or received; 0 keeps none.
    recent_steps: u32,
    /// Hashes of the messages that the executed tasks sent, and of the messages received.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Tasks that may run, by [rank](Plan::rank).
    ready: BTreeSet<(u32, TaskNo)>,
    executing: BTreeSet<TaskNo>,
}

/// The first chunk of a saved share. The values that have a chunk follow, one chunk each.
#[derive(Serialize, Deserialize)]
struct Index {
    partition: ProcessId,
    executed: Executed,
    /// Each value, and whether it has a chunk, since a task need not write everything that it may write.
    values: Vec<(Value, bool)>,
    sent: u64,
    received: u64,
}

impl Share {
    /// Returns the share before any task has been executed.
    pub(super) fn new(partition: ProcessId, plan: &Plan, window: u32) -> Share {
        let mut share = Share {
            partition,
            executed: Executed::default(),
            values: BTreeMap::new(),
            recent: BTreeMap::new(),
            recent_steps: 0,
            sent: 0,
            received: 0,
            ready: BTreeSet::new(),
            executing: BTreeSet::new(),
        };
        share.pass_complete_steps(plan);
        share.open(plan, window);
        share
    }

    pub(super) fn executed(&self) -> &Executed {
        &self.executed
    }

    pub(super) fn is_complete(&self, plan: &Plan) -> bool {
        self.executed.before == plan.steps()
    }

    pub(super) fn value(&self, value: Value) -> Option<&Option<Chunk>> {
        self.values.get(&value)
    }

    /// Returns whether this value is missing although a task still has to read it.
    pub(super) fn lacks(&self, plan: &Plan, value: Value) -> bool {
        !self.values.contains_key(&value) && self.is_read(plan, value)
    }

    /// Returns the values that this partition still needs but lacks, although `from` has executed the tasks
    /// in `executed`, and has therefore sent these values.
    pub(super) fn lacking(&self, plan: &Plan, from: ProcessId, executed: &Executed) -> Vec<Value> {
        let last = plan.steps().min(executed.end() + plan.reach());
        let mut lacking: Vec<Value> = (self.executed.before..last)
            .flat_map(|step| plan.tasks_of(step, self.partition))
            .filter(|task| !self.executed.contains(*task))
            .flat_map(|task| plan.sources(task))
            .filter(|it| plan.partition_of(it.task) == from && executed.contains(it.task))
            .filter(|it| !self.values.contains_key(it))
            .collect();
        lacking.sort_unstable();
        lacking.dedup();
        lacking
    }

    /// Starts the task with the lowest [rank](Plan::rank) among those that may run, and returns it.
    pub(super) fn next(&mut self) -> Option<TaskNo> {
        let (_, task) = self.ready.pop_first()?;
        self.executing.insert(task);
        Some(task)
    }

    /// Handles a value that arrived. Returns `false` if it is a duplicate, or if no task waits for it.
    pub(super) fn receive(&mut self, plan: &Plan, window: u32, value: Value, content: Option<Chunk>) -> bool {
        if !self.lacks(plan, value) {
            return false;
        }
        self.keep(value, &content);
        self.values.insert(value, content);
        self.wake(plan, window, value);
        true
    }

    /// Applies the values that a task wrote. `wrote` lists them in the order of the task's outputs. Returns `false` if
    /// the task is not executing.
    pub(super) fn execute(
        &mut self,
        plan: &Plan,
        window: u32,
        task: TaskNo,
        wrote: &[Option<Chunk>],
    ) -> bool {
        if !self.executing.remove(&task) {
            return false;
        }
        self.executed.beyond.insert(task);
        for source in plan.sources(task) {
            if !self.is_read(plan, source) {
                self.values.remove(&source);
            }
        }
        for (value, content) in plan.outputs(task).zip(wrote) {
            if plan.messages(value).next().is_some() {
                self.keep(value, content);
            }
            if self.is_read(plan, value) {
                self.values.insert(value, content.clone());
                self.wake(plan, window, value);
            } else if value == plan.result() {
                self.values.insert(value, content.clone());
            }
        }
        let before = self.executed.before;
        self.pass_complete_steps(plan);
        if self.executed.before > before {
            self.open(plan, window);
            let first = self.executed.before.saturating_sub(self.recent_steps);
            while self.recent.first_key_value().is_some_and(|(value, _)| value.task.step < first) {
                self.recent.pop_first();
            }
        }
        true
    }

    /// Returns the share as chunks. Executing tasks are saved as not started.
    pub(super) fn save(&self) -> Arc<[Chunk]> {
        let index = Index {
            partition: self.partition,
            executed: self.executed.clone(),
            values: self.values.iter().map(|(value, content)| (*value, content.is_some())).collect(),
            sent: self.sent,
            received: self.received,
        };
        let index = postcard::to_allocvec(&index).expect("a share can be encoded");
        let values = self.values.values().flatten().cloned();
        core::iter::once(Chunk::Bytes(index.into())).chain(values).collect()
    }

    /// Loads a share that was saved as these chunks.
    ///
    /// # Panics
    ///
    /// Panics if the chunks were not made by [`Share::save`]. The storage detects corruption before the chunks are
    /// loaded.
    pub(super) fn load(chunks: &[Chunk], plan: &Plan, window: u32) -> Share {
        let Some((Chunk::Bytes(index), values)) = chunks.split_first() else {
            panic!("a saved share begins with its index")
        };
        let index: Index = postcard::from_bytes(index).expect("a saved share can be decoded");
        let mut chunks = values.iter();
        let mut content =
            |is_there: bool| is_there.then(|| chunks.next().expect("every saved value has a chunk").clone());
        let mut share = Share {
            partition: index.partition,
            executed: index.executed,
            values: index.values.into_iter().map(|(value, is_there)| (value, content(is_there))).collect(),
            recent: BTreeMap::new(),
            recent_steps: 0,
            sent: index.sent,
            received: index.received,
            ready: BTreeSet::new(),
            executing: BTreeSet::new(),
        };
        share.open(plan, window);
        share
    }

    /// Keeps values that are sent or received after this call until `steps` further steps are complete.
    pub(super) fn keep_recent(&mut self, steps: u32) {
        self.recent_steps = steps;
    }

    /// Returns all values that are in memory: those that tasks of this partition have yet to read, and recent ones.
    pub(super) fn in_memory(&self) -> impl Iterator<Item = (&Value, &Option<Chunk>)> {
        self.values.iter().chain(&self.recent)
    }

    /// Returns the values that the share has kept for its tasks, and discards the rest of the share.
    pub(super) fn into_values(self) -> BTreeMap<Value, Option<Chunk>> {
        self.values
    }

    fn keep(&mut self, value: Value, content: &Option<Chunk>) {
        if self.recent_steps > 0 {
            self.recent.insert(value, content.clone());
        }
    }

    /// Returns whether any task of this partition that has not been executed reads the value.
    fn is_read(&self, plan: &Plan, value: Value) -> bool {
        let is_here = |task: &TaskNo| plan.partition_of(*task) == self.partition;
        plan.readers(value).filter(is_here).any(|task| !self.executed.contains(task))
    }

    /// Marks the tasks that a new value makes ready.
    fn wake(&mut self, plan: &Plan, window: u32, value: Value) {
        let partition = self.partition;
        for task in plan.readers(value).filter(|it| plan.partition_of(*it) == partition) {
            self.consider(plan, window, task);
        }
    }

    fn consider(&mut self, plan: &Plan, window: u32, task: TaskNo) {
        let is_open = task.step < self.executed.before + window;
        let is_new = !self.executed.contains(task) && !self.executing.contains(&task);
        if is_open && is_new && plan.sources(task).all(|it| self.values.contains_key(&it)) {
            self.ready.insert((plan.rank(task), task));
        }
    }

    /// Marks each task within the window as ready if it may run.
    fn open(&mut self, plan: &Plan, window: u32) {
        for step in self.executed.before..plan.steps().min(self.executed.before + window) {
            for task in plan.tasks_of(step, self.partition) {
                self.consider(plan, window, task);
            }
        }
    }

    fn pass_complete_steps(&mut self, plan: &Plan) {
        let Executed { before, beyond } = &mut self.executed;
        while *before < plan.steps()
            && plan.tasks_of(*before, self.partition).all(|task| beyond.contains(&task))
        {
            while beyond.first().is_some_and(|it| it.step == *before) {
                beyond.pop_first();
            }
            *before += 1;
        }
    }
}
