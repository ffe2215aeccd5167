//! The history of a planned program, whose tasks are assigned to partitions in advance: what each task depends on, and
//! where it was executed and re-executed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faultline_core::{ImageName, Incarnation, Position, ProcessId, TaskId};

use crate::messages::MessageNo;
use crate::segments::Point;

/// The history of a planned program.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// Every task that was executed.
    pub tasks: BTreeMap<TaskId, Task>,
    /// Every re-execution of a task for another partition, in the order of processes and lives. Such a
    /// re-execution does not change the state.
    pub reruns: Vec<Rerun>,
    /// The point at which each partition first joined each recovery.
    pub joined: BTreeMap<(Incarnation, ProcessId), Joined>,
    /// For each recovery and pair of partitions, the point by which everything that the first partition had
    /// sent before the recovery had reached the second one, or had been lost.
    pub drained: BTreeMap<(Incarnation, ProcessId, ProcessId), Point>,
    /// The task that sent each message.
    pub sent_by: BTreeMap<MessageNo, TaskId>,
    /// The transmissions of each message, in the order of segments and facts.
    pub transmitted: BTreeMap<MessageNo, Vec<Point>>,
    /// The messages that coordinate each checkpoint: sender, receiver, and point of sending.
    pub coordinated: BTreeMap<Position, Vec<(ProcessId, ProcessId, Point)>>,
    /// Every removal of a part of a checkpoint from a process's storage, in the order of processes and lives.
    pub removed: Vec<Removed>,
    /// Every partition that a process stopped running because the partition had moved, in the order of
    /// partitions.
    pub ceded: Vec<Ceded>,
}

/// A partition that a process stopped running because the partition had moved to another process.
#[derive(Clone, Copy, Debug)]
pub struct Ceded {
    /// The fact that states that the process ceded the partition.
    pub at: Point,
    /// The partition.
    pub partition: ProcessId,
    /// The process that ran the partition until then.
    pub host: ProcessId,
    /// The recovery with which the partition moved.
    pub epoch: Incarnation,
}

/// A part of a checkpoint that a process removed from its storage.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// The fact that states the removal.
    pub at: Point,
    /// The removed part.
    pub part: ImageName,
}

/// A task that was executed.
#[derive(Clone, Debug)]
pub struct Task {
    /// The partition of the task.
    pub partition: ProcessId,
    /// The tasks whose values this task reads.
    pub sources: Arc<[TaskId]>,
    /// The points at which the task became part of its partition's state.
    pub ran: Vec<Point>,
}

/// One re-execution of a task that does not change its partition's state.
#[derive(Clone, Copy, Debug)]
pub struct Rerun {
    /// The fact that states the execution.
    pub at: Point,
    /// The re-executed task.
    pub task: TaskId,
    /// The partition whose demand first required the re-execution.
    pub by: ProcessId,
    /// The epoch of the recovery.
    pub epoch: Incarnation,
    /// How long the execution took, in microseconds.
    pub cost_us: u32,
}

/// A partition that joined a recovery.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    /// The state in which the partition joined.
    pub at: Point,
    /// The checkpoint from which the partition re-executes.
    pub slot: Position,
}

impl Planned {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.joined.is_empty()
    }

    /// Returns the epochs of the recoveries that some partition joined, in ascending order.
    pub fn epochs(&self) -> BTreeSet<Incarnation> {
        self.joined.keys().map(|(epoch, _)| *epoch).collect()
    }
}
