//! One side of a rank's slab: who is there, what it sends and when, and what has come from it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use faultline_core::{Chunk, ProcessId};

use super::row::Row;

/// How often a row crosses a side in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Every(pub(super) u32);

impl Every {
    pub(super) const STEP: Every = Every(1);

    /// Whether a row is sent after `step`. Never after step 0, whose rows everybody knows.
    pub(super) fn due(self, step: u32) -> bool {
        step > 0 && step.checked_rem(self.0) == Some(0)
    }

    /// How many rows were sent before the one that is sent after `step`.
    fn number(self, step: u32) -> u32 {
        step / self.0 - 1
    }
}

/// The rank on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) id: ProcessId,
    /// From it.
    pub(super) inbound: Every,
    /// To it.
    pub(super) outbound: Every,
}

/// One side of a slab.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    neighbour: Option<Neighbour>,
    /// The boundary of the last step.
    current: Row,
    /// Rows for later steps, by the step that they were sent after. Channels need not be FIFO, and a neighbour may be
    /// far ahead.
    early: BTreeMap<u32, Row>,
}

impl Edge {
    pub(super) fn new(neighbour: Option<Neighbour>, initial: Row) -> Edge {
        Edge { neighbour, current: initial, early: BTreeMap::new() }
    }

    /// Who is there; nobody behind a wall.
    pub(super) fn neighbour(&self) -> Option<Neighbour> {
        self.neighbour
    }

    /// Whom a row is sent to after `step`, if anybody.
    pub(super) fn outbound(&self, step: u32) -> Option<ProcessId> {
        self.neighbour.filter(|it| it.outbound.due(step)).map(|it| it.id)
    }

    /// Keeps a row that a step from `done` on is going to need, unless it is there.
    pub(super) fn accept(&mut self, row: Row, done: u32) {
        let step = row.step();
        if step >= done && self.inbound_due(step) {
            self.early.entry(step).or_insert(row);
        }
    }

    /// The boundary for the step after `done` steps, when it has come.
    pub(super) fn boundary(&self, done: u32) -> Option<&Row> {
        if self.inbound_due(done) { self.early.get(&done) } else { Some(&self.current) }
    }

    /// The step after `done` steps has used the boundary; the message that brought it, by sender and number.
    pub(super) fn used(&mut self, done: u32) -> Option<(ProcessId, u32)> {
        if !self.inbound_due(done) {
            return None;
        }
        self.current = self.early.remove(&done).expect("a step runs only when its rows have come");
        self.neighbour.map(|it| (it.id, it.inbound.number(done)))
    }

    /// Adds the rows to a snapshot; their number is the answer.
    pub(super) fn save(&self, chunks: &mut Vec<Chunk>) -> u32 {
        chunks.push(self.current.to_chunk());
        chunks.extend(self.early.values().map(Row::to_chunk));
        1 + self.early.len() as u32
    }

    /// Takes the rows back from a snapshot.
    pub(super) fn load(&mut self, chunks: &[Chunk]) {
        let (current, early) = chunks.split_first().expect("an edge has a current row");
        self.current = Row::from_chunk(current);
        self.early = early.iter().map(Row::from_chunk).map(|row| (row.step(), row)).collect();
    }

    fn inbound_due(&self, step: u32) -> bool {
        self.neighbour.is_some_and(|it| it.inbound.due(step))
    }
}
