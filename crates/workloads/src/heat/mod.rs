//! Coupled heat solvers: one explicit solver per cluster, each of which computes a slab of a plate that spans
//! the federation.
//!
//! The model is code coupling: each cluster runs its own parallel solver, which exchanges halos at every step over a
//! fast network, and the solvers exchange boundary values over a slow one. Ranks are stacked in one column, and each
//! owns `rows` rows of the plate. Between clusters, data flows in one direction at every step, with occasional
//! feedback:
//!
//! ```text
//!        ── hot wall ──
//!   ┌  rank 0 of cluster 0
//!   │    ⇅ every step (halo)
//!   └  rank 1 of cluster 0
//!        ↓ every step (coupling)   ↑ every `feedback_every` steps (feedback)
//!   ┌  rank 0 of cluster 1
//!   │    ⇅ every step (halo)
//!   └  rank 1 of cluster 1
//!        ── cold wall ──
//! ```
//!
//! Every message contains one boundary row and the number of the step after which it was sent. A rank computes
//! step *s* + 1 once both boundaries after step *s* have arrived; between feedbacks, it reuses the last boundary. With
//! feedback, a cluster can therefore be at most `feedback_every` steps ahead of the next, and rows that arrive early
//! wait in the state.
//!
//! The application needs every message, counts arrivals, and includes a history of all grids in the result
//! (see `memory.rs`). A lost message stops it; an additional message or an inconsistent state changes the digest of its
//! result. The result depends neither on the seed nor on timing. [`reference()`] computes it sequentially.
//!
//! State consists of bytes behind `Arc`s. A snapshot therefore copies nothing, even during a step, and snapshots share
//! unchanged pieces. In virtual time, where nothing is written, a piece of the block occupies memory only once a step
//! has rewritten it ([`Config::virtual_state`]); the results are the same.

mod bytes;
mod config;
mod edge;
mod field;
mod memory;
mod reference;
mod row;
mod step;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter::repeat_n;
use faultline_core::{Chunk, Digest, Membership, Outbox, Payload, ProcessId, Progress};
use serde::{Deserialize, Serialize};

use bytes::Bytes;
pub use config::Config;
use edge::{Edge, Every, Neighbour};
use memory::Block;
pub use reference::reference;
use row::Row;
pub use step::{Step, Stepped};

/// One rank of the solvers.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    config: Config,
    /// Position in the column of all ranks.
    position: u64,
    /// Number of steps done.
    done: u32,
    /// Number of messages that have arrived, including invalid ones.
    received: u64,
    history: u64,
    above: Edge,
    grid: Bytes,
    below: Edge,
    block: Block,
}

/// The numbers at the start of a snapshot. The rows above, the grid, the rows below, and the block follow them.
#[derive(Serialize, Deserialize)]
struct Head {
    done: u32,
    received: u64,
    history: u64,
    rows_above: u32,
    rows_below: u32,
}

impl Rank {
    pub(crate) fn new(config: &Config, me: ProcessId, membership: &Membership) -> Rank {
        let (position, above, below) = neighbours(config, me, membership);
        Rank::initial(config.clone(), position, above, below)
    }

    fn initial(config: Config, position: u64, above: Option<Neighbour>, below: Option<Neighbour>) -> Rank {
        let rows = u64::from(config.rows);
        let columns = config.columns;
        let first = position * rows;
        let row = |row| (0..columns).map(move |column| field::initial(row, column));
        let wall = |temperature| repeat_n(temperature, columns as usize);
        let above_row = match above {
            Some(_) => field::to_bytes(row(first - 1)),
            None => field::to_bytes(wall(field::HOT_WALL)),
        };
        let below_row = match below {
            Some(_) => field::to_bytes(row(first + rows)),
            None => field::to_bytes(wall(field::COLD_WALL)),
        };
        let block = Block::initial(position, config.state_bytes);
        Rank {
            position,
            done: 0,
            received: 0,
            history: 0,
            above: Edge::new(above, Row::new(0, &above_row)),
            grid: field::to_bytes((first..first + rows).flat_map(row)).into(),
            below: Edge::new(below, Row::new(0, &below_row)),
            block: if config.virtual_state { block } else { block.in_memory() },
            config,
        }
    }

    pub(crate) fn deliver(&mut self, from: ProcessId, payload: Payload) {
        self.received += 1;
        let sides = [&mut self.above, &mut self.below];
        let side = sides.into_iter().find(|side| side.neighbour().is_some_and(|it| it.id == from));
        if let (Some(side), Some(row)) = (side, Row::from_payload(payload, self.config.columns as usize)) {
            side.accept(row, self.done);
        }
    }

    pub(crate) fn next_job(&self) -> Option<Step> {
        if self.done == self.config.steps {
            return None;
        }
        Some(Step {
            cost: self.config.step_cost,
            columns: self.config.columns as usize,
            above: self.above.boundary(self.done)?.clone(),
            grid: self.grid.clone(),
            below: self.below.boundary(self.done)?.clone(),
            history: self.history,
            piece: self.block.rewritten_by(self.done).map(|at| self.block.piece(at)),
        })
    }

    pub(crate) fn computed(&mut self, stepped: Stepped, out: &mut Outbox) {
        if let (Some(at), Some(piece)) = (self.block.rewritten_by(self.done), stepped.piece) {
            self.block.set(at, piece);
        }
        for (from, number) in [self.above.used(self.done), self.below.used(self.done)].into_iter().flatten() {
            out.consume(from, number);
        }
        self.grid = stepped.grid;
        self.history = stepped.history;
        self.done += 1;
        if self.done < self.config.steps {
            self.send_boundaries(out);
        }
    }

    fn send_boundaries(&self, out: &mut Outbox) {
        let row = 8 * self.config.columns as usize;
        let first = &self.grid[..row];
        let last = &self.grid[self.grid.len() - row..];
        for (side, cells) in [(&self.above, first), (&self.below, last)] {
            if let Some(peer) = side.outbound(self.done) {
                out.send(peer, Row::new(self.done, cells).to_payload());
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<[Chunk]> {
        let mut rows = Vec::new();
        let rows_above = self.above.save(&mut rows);
        rows.push(self.grid.to_chunk());
        let rows_below = self.below.save(&mut rows);
        let head =
            Head { done: self.done, received: self.received, history: self.history, rows_above, rows_below };
        let head = postcard::to_allocvec(&head).expect("five numbers can be encoded");
        [Bytes::from(head).to_chunk()].into_iter().chain(rows).chain(self.block.chunks()).collect()
    }

    pub(crate) fn restore(&mut self, chunks: Option<&[Chunk]>) {
        let Some(chunks) = chunks else {
            let (above, below) = (self.above.neighbour(), self.below.neighbour());
            *self = Rank::initial(self.config.clone(), self.position, above, below);
            return;
        };
        let (head, chunks) = chunks.split_first().expect("a snapshot begins with its head");
        let head: Head =
            postcard::from_bytes(&Bytes::from_chunk(head)).expect("the head of a snapshot is five numbers");
        let (above, chunks) = chunks.split_at(head.rows_above as usize);
        let (grid, chunks) = chunks.split_first().expect("a snapshot contains the grid");
        let (below, block) = chunks.split_at(head.rows_below as usize);
        self.done = head.done;
        self.received = head.received;
        self.history = head.history;
        self.above.load(above);
        self.grid = Bytes::from_chunk(grid);
        self.below.load(below);
        self.block.load(block);
    }

    pub(crate) fn result(&self) -> Option<Digest> {
        (self.done == self.config.steps)
            .then(|| memory::result(self.received, self.history, &self.grid, &self.block))
    }

    /// Flips a bit of a temperature.
    pub(crate) fn flip(&mut self, bit: u64) -> bool {
        let mut grid = self.grid.to_vec();
        let bit = bit % (grid.len() as u64 * 8);
        grid[(bit / 8) as usize] ^= 1 << (bit % 8);
        self.grid = grid.into();
        true
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress { done: self.done.into(), total: self.config.steps.into() }
    }
}

/// Returns the position of `me` in the column of all ranks, and its neighbours above and below.
fn neighbours(
    config: &Config,
    me: ProcessId,
    membership: &Membership,
) -> (u64, Option<Neighbour>, Option<Neighbour>) {
    let column: Vec<ProcessId> =
        membership.clusters.iter().flat_map(|cluster| cluster.processes.iter().copied()).collect();
    let position = column.iter().position(|&it| it == me).expect("a rank belongs to a cluster");
    let inside = |other| membership.cluster_of(other) == membership.cluster_of(me);
    let feedback = |other| if inside(other) { Every::STEP } else { Every(config.feedback_every) };
    let above = position.checked_sub(1).map(|at| Neighbour {
        id: column[at],
        inbound: Every::STEP,
        outbound: feedback(column[at]),
    });
    let below =
        column.get(position + 1).map(|&id| Neighbour { id, inbound: feedback(id), outbound: Every::STEP });
    (position as u64, above, below)
}
