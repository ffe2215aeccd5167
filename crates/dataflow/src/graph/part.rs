//! The tasks and values that result from one theft.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{Chunk, TaskId, Version};
use serde::{Deserialize, Serialize};

use super::{Effects, StolenResult};
use crate::program::{Access, Call, Mode, TaskOutcome};

/// A stolen task, the tasks that descend from it, and the result that is owed for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    /// The task that was stolen; for the program itself, its first task.
    pub(super) root: TaskId,
    pub(super) tasks: BTreeMap<TaskId, Vertex>,
    pub(super) data: BTreeMap<Version, Datum>,
    /// The values that the victim expects, by the index of the root's access.
    owed: Vec<(u32, Version)>,
    /// The number of tasks of this part that are lent.
    lent: u32,
    pub(super) effects: Effects,
}

/// A task that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Vertex {
    /// The call without its inputs, which are in [`Part::data`].
    pub(super) call: Call,
    /// The number of values that the task waits for.
    missing: u32,
    /// Whether the task is executing. Not saved: after a restore, an interrupted task runs again from the start.
    #[serde(skip)]
    pub(super) is_executing: bool,
}

impl Vertex {
    pub(super) fn task(&self) -> TaskId {
        self.call.id
    }
}

/// A value, which may not exist yet, and the tasks that use it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Datum {
    #[serde(with = "super::save::presence")]
    pub(super) chunk: Option<Chunk>,
    /// Number of tasks that may still write the value. The value is complete when there are none.
    writers: u32,
    /// Number of tasks that have yet to read the value, plus one if it is owed. The value is dropped once it has
    /// neither readers nor writers.
    readers: u32,
    waiting: Vec<TaskId>,
}

impl Part {
    pub(super) fn begin(result: Version) -> Part {
        let mut part = Part {
            root: TaskId::MAIN,
            tasks: BTreeMap::new(),
            data: BTreeMap::new(),
            owed: vec![(0, result)],
            lent: 0,
            effects: Effects::default(),
        };
        part.data.entry(result).or_default().readers += 1;
        part
    }

    pub(super) fn stolen(mut call: Call) -> Part {
        let mut data: BTreeMap<Version, Datum> = BTreeMap::new();
        let mut owed = Vec::new();
        let mut inputs = core::mem::take(&mut call.inputs).into_iter();
        for (index, Access { mode, version }) in (0..).zip(call.accesses.iter()) {
            let datum = data.entry(*version).or_default();
            datum.readers += 1;
            if *mode == Mode::Read {
                datum.chunk = inputs.next();
            } else {
                datum.writers += 1;
                owed.push((index, *version));
            }
        }
        let root = call.id;
        let vertex = Vertex { call, missing: 0, is_executing: false };
        let tasks = BTreeMap::from([(root, vertex)]);
        Part { root, tasks, data, owed, lent: 0, effects: Effects::default() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.tasks.is_empty() && self.lent == 0
    }

    pub(super) fn payment(&self) -> StolenResult {
        let value = |(index, version)| Some((index, self.data.get(&version)?.chunk.clone()?));
        let written = self.owed.iter().copied().filter_map(value).collect();
        StolenResult { task: self.root, written, effects: self.effects }
    }

    pub(super) fn execute(&mut self, task: TaskId) -> Call {
        let vertex = self.tasks.get_mut(&task).expect("a ready task has not ended");
        vertex.is_executing = true;
        with_inputs(&self.data, vertex)
    }

    pub(super) fn with_inputs(&self, vertex: &Vertex) -> Call {
        with_inputs(&self.data, vertex)
    }

    pub(super) fn end(&mut self, task: TaskId) -> Option<Call> {
        self.tasks.remove(&task).map(|vertex| vertex.call)
    }

    pub(super) fn ran(&mut self, task: TaskId) {
        self.effects.ran = self.effects.ran.wrapping_add(task.0);
    }

    pub(super) fn lend(&mut self, task: TaskId) -> Vertex {
        self.lent += 1;
        self.tasks.remove(&task).expect("a ready task has not ended")
    }

    pub(super) fn give_back(&mut self, vertex: Vertex) {
        self.lent -= 1;
        self.tasks.insert(vertex.task(), vertex);
    }

    pub(super) fn returned(&mut self) {
        self.lent -= 1;
    }

    /// Applies the outcome of a task with these accesses. Returns the tasks that became ready.
    pub(super) fn outcome(&mut self, accesses: &[Access], outcome: TaskOutcome) -> Vec<TaskId> {
        let mut ready = Vec::new();
        let created: Vec<Version> = outcome.created.iter().map(|(version, _)| *version).collect();
        for (version, chunk) in outcome.created {
            self.data.entry(version).or_default().chunk = Some(chunk);
        }
        for version in outcome.spawned.iter().flat_map(Call::writes) {
            self.data.entry(version).or_default().writers += 1;
        }
        for call in outcome.spawned {
            self.effects.spawned = self.effects.spawned.wrapping_add(call.id.0);
            let mut missing = 0;
            for version in call.reads() {
                let datum = self.data.entry(version).or_default();
                datum.readers += 1;
                // If the ended task itself writes the value, `writers` still counts that task; it is decremented below.
                if datum.writers > 0 {
                    datum.waiting.push(call.id);
                    missing += 1;
                }
            }
            if missing == 0 {
                ready.push(call.id);
            }
            let id = call.id;
            let before = self.tasks.insert(id, Vertex { call, missing, is_executing: false });
            assert!(before.is_none(), "two tasks have the name {id}");
        }
        for (index, chunk) in outcome.written {
            let Access { mode, version } = accesses[index as usize];
            let datum = self.data.entry(version).or_default();
            datum.chunk = Some(match (mode, datum.chunk.take()) {
                (Mode::Gather(op), Some(before)) => op.combine(&before, &chunk),
                _ => chunk,
            });
        }
        created.iter().for_each(|it| self.drop_unused(*it));
        for Access { mode, version } in accesses {
            let datum = self.data.get_mut(version).expect("a part holds the data that its tasks use");
            if *mode == Mode::Read {
                datum.readers -= 1;
            } else {
                datum.writers -= 1;
                if datum.writers == 0 {
                    for task in core::mem::take(&mut datum.waiting) {
                        let vertex = self.tasks.get_mut(&task).expect("a task that waits has not ended");
                        vertex.missing -= 1;
                        if vertex.missing == 0 {
                            ready.push(task);
                        }
                    }
                }
            }
            self.drop_unused(*version);
        }
        ready
    }

    fn drop_unused(&mut self, version: Version) {
        if self.data.get(&version).is_some_and(|it| it.readers == 0 && it.writers == 0) {
            self.data.remove(&version);
        }
    }
}

/// Returns the task's call with its inputs.
fn with_inputs(data: &BTreeMap<Version, Datum>, vertex: &Vertex) -> Call {
    let value = |version| data[&version].chunk.clone().unwrap_or_else(|| Chunk::Bytes([].into()));
    Call { inputs: vertex.call.reads().map(value).collect(), ..vertex.call.clone() }
}
