//! One side of a rank's slab: the neighbour, the steps after which rows are sent in each direction, and the
//! rows received.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use faultline_core::{Chunk, ProcessId};

use super::row::Row;

/// Number of steps between consecutive rows that cross a side in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Every(pub(super) u32);

impl Every {
    pub(super) const STEP: Every = Every(1);

    /// Returns whether a row is sent after `step`; always `false` for step 0, whose rows all ranks know.
    pub(super) fn due(self, step: u32) -> bool {
        step > 0 && step.checked_rem(self.0) == Some(0)
    }

    /// Returns the number of rows sent before the row that is sent after `step`.
    fn number(self, step: u32) -> u32 {
        step / self.0 - 1
    }
}

/// The neighbour on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) id: ProcessId,
    /// Interval between rows from the neighbour.
    pub(super) inbound: Every,
    /// Interval between rows to the neighbour.
    pub(super) outbound: Every,
}

/// One side of a slab.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    neighbour: Option<Neighbour>,
    /// The boundary that the last step used.
    current: Row,
    /// Rows for later steps, indexed by the step after which they were sent. Channels need not be FIFO, and a
    /// neighbour may be far ahead.
    early: BTreeMap<u32, Row>,
}

impl Edge {
    pub(super) fn new(neighbour: Option<Neighbour>, initial: Row) -> Edge {
        Edge { neighbour, current: initial, early: BTreeMap::new() }
    }

    /// Returns the neighbour; `None` at a wall.
    pub(super) fn neighbour(&self) -> Option<Neighbour> {
        self.neighbour
    }

    /// Returns the rank to which a row is sent after `step`, if any.
    pub(super) fn outbound(&self, step: u32) -> Option<ProcessId> {
        self.neighbour.filter(|it| it.outbound.due(step)).map(|it| it.id)
    }

    /// Keeps a row if the step after `done` steps or a later step needs it, unless the row is already
    /// present.
    pub(super) fn accept(&mut self, row: Row, done: u32) {
        let step = row.step();
        if step >= done && self.inbound_due(step) {
            self.early.entry(step).or_insert(row);
        }
    }

    /// Returns the boundary for the step after `done` steps if it has arrived.
    pub(super) fn boundary(&self, done: u32) -> Option<&Row> {
        if self.inbound_due(done) { self.early.get(&done) } else { Some(&self.current) }
    }

    /// Records that the step after `done` steps has used the boundary. Returns the sender and the number of
    /// the message that contained it; `None` if no message was needed.
    pub(super) fn used(&mut self, done: u32) -> Option<(ProcessId, u32)> {
        if !self.inbound_due(done) {
            return None;
        }
        self.current = self.early.remove(&done).expect("a step runs only once its rows have arrived");
        self.neighbour.map(|it| (it.id, it.inbound.number(done)))
    }

    /// Adds the rows to a snapshot. Returns their number.
    pub(super) fn save(&self, chunks: &mut Vec<Chunk>) -> u32 {
        chunks.push(self.current.to_chunk());
        chunks.extend(self.early.values().map(Row::to_chunk));
        1 + self.early.len() as u32
    }

    /// Restores the rows from a snapshot.
    pub(super) fn load(&mut self, chunks: &[Chunk]) {
        let (current, early) = chunks.split_first().expect("an edge has a current row");
        self.current = Row::from_chunk(current);
        self.early = early.iter().map(Row::from_chunk).map(|row| (row.step(), row)).collect();
    }

    fn inbound_due(&self, step: u32) -> bool {
        self.neighbour.is_some_and(|it| it.inbound.due(step))
    }
}
