//! What a program of tasks did that are assigned to partitions in advance: what each task depends on, and where it was
//! executed, again or for the first time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faultline_core::{Incarnation, Position, ProcessId, TaskId};

use crate::history::Point;
use crate::messages::MessageNo;

/// What a program of tasks did that are assigned to partitions in advance.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// Every task that was executed.
    pub tasks: BTreeMap<TaskId, Task>,
    /// Every task that was executed again beside the state, in the order of processes and lives.
    pub reruns: Vec<Rerun>,
    /// Where each partition took part in each recovery: the first time, if it did more than once.
    pub joined: BTreeMap<(Incarnation, ProcessId), Joined>,
    /// Where everything that the first partition had sent before a recovery had reached the second, or was lost.
    pub drained: BTreeMap<(Incarnation, ProcessId, ProcessId), Point>,
    /// The task that sent each message.
    pub sent_by: BTreeMap<MessageNo, TaskId>,
    /// Every transmission, in the order of partitions and their states.
    pub transmitted: BTreeMap<MessageNo, Vec<Point>>,
    /// The messages that coordinate each checkpoint: sender, receiver, and where it was sent.
    pub coordinated: BTreeMap<Position, Vec<(ProcessId, ProcessId, Point)>>,
}

/// One task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its partition.
    pub partition: ProcessId,
    /// The tasks whose values it reads.
    pub sources: Arc<[TaskId]>,
    /// Where it became part of the state of its partition.
    pub ran: Vec<Point>,
}

/// One execution of a task beside the state.
#[derive(Clone, Copy, Debug)]
pub struct Rerun {
    /// The fact.
    pub at: Point,
    /// The task.
    pub task: TaskId,
    /// The partition whose demand first required it.
    pub by: ProcessId,
    /// The recovery.
    pub epoch: Incarnation,
    /// How long it took.
    pub cost_us: u32,
}

/// A partition takes part in a recovery.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    /// The state with which it does.
    pub at: Point,
    /// The checkpoint from which it executes again.
    pub slot: Position,
}

impl Planned {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The recoveries in which some partition took part, ascending.
    pub fn epochs(&self) -> BTreeSet<Incarnation> {
        self.joined.keys().map(|(epoch, _)| *epoch).collect()
    }
}
