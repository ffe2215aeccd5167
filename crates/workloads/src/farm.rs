//! Master and workers: the first worker to answer receives the next piece of work.
//!
//! The first rank is the master. It first sends every worker two pieces, then one more for each answer, until no pieces
//! are left. A worker computes its pieces in the order of their arrival, and answers each. The order of the answers
//! determines which worker receives which piece. A re-execution therefore sends the same messages only if deliveries
//! are repeated in the same order: the program is not send-deterministic. The master's result is a sum over the
//! answers, which does not depend on their order, but changes if a piece is lost or computed twice.
//!
//! The timing of computations affects no message: a worker only queues messages that arrive while it
//! computes, and the master computes only before the first piece. Deliveries are therefore the only
//! nondeterministic events.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{Chunk, Digest, Membership, Outbox, Payload, ProcessId, Progress, Role, Span};
use serde::{Deserialize, Serialize};

use crate::invalid::{Invalid, has_peers, in_range};
use crate::mix::{digest, mix};

/// Parameters of the master-worker application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Number of pieces of work.
    pub pieces: u32,
    /// Modelled mean duration of a piece. Actual durations deviate by up to half of it.
    pub piece_cost: Span,
}

impl Default for Config {
    /// Returns the defaults: 1000 pieces of 20 ms.
    fn default() -> Self {
        Config { pieces: 1000, piece_cost: Span::from_millis(20) }
    }
}

impl Config {
    pub(crate) fn validate(&self, clusters: &[usize]) -> Result<(), Invalid> {
        in_range("pieces", self.pieces.into(), 1 << 24)?;
        has_peers(clusters)
    }
}

/// One rank of the farm.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    config: Config,
    ranks: Arc<[ProcessId]>,
    is_master: bool,
    state: State,
}

/// The part of a rank that a snapshot contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    /// Whether the initial computation, which takes no time, is over.
    has_begun: bool,
    /// Master: number of assigned pieces.
    given: u32,
    /// Master: number of answers received.
    done: u32,
    /// Master: sum of the answers.
    sum: u64,
    /// Worker: pieces that have not been computed yet.
    waiting: VecDeque<u32>,
    /// Number of messages received from each rank.
    received: Vec<u32>,
}

impl Rank {
    pub(crate) fn new(config: &Config, me: ProcessId, membership: &Membership) -> Rank {
        let ranks: Arc<[ProcessId]> = membership.with_role(Role::RANK).collect();
        let (is_master, state) = (ranks.first() == Some(&me), State::initial(ranks.len()));
        Rank { config: config.clone(), ranks, is_master, state }
    }

    /// Sends a worker the next piece, if one is left.
    fn give(&mut self, to: ProcessId, out: &mut Outbox) {
        if self.state.given < self.config.pieces {
            out.send(to, Payload::from_slice(&self.state.given.to_le_bytes()));
            self.state.given += 1;
        }
    }

    pub(crate) fn deliver(&mut self, from: ProcessId, payload: &Payload, out: &mut Outbox) {
        let place = self.ranks.binary_search(&from).expect("the sender is a rank");
        out.consume(from, self.state.received[place]);
        self.state.received[place] += 1;
        let content = payload.bytes();
        if self.is_master {
            let answer = content.try_into().map_or(0, u64::from_le_bytes);
            self.state.sum = self.state.sum.wrapping_add(answer);
            self.state.done += 1;
            self.give(from, out);
        } else {
            self.state.waiting.push_back(content.try_into().map_or(0, u32::from_le_bytes));
        }
    }

    /// Returns the duration of the next computation; `None` if no piece is waiting.
    pub(crate) fn next_job(&self) -> Option<Span> {
        if !self.state.has_begun {
            return Some(Span::ZERO);
        }
        let piece = *self.state.waiting.front()?;
        let percent = 50 + mix(piece.into()) % 101;
        Some(Span(self.config.piece_cost.0 / 100 * percent))
    }

    pub(crate) fn computed(&mut self, out: &mut Outbox) {
        if self.state.has_begun {
            let piece = self.state.waiting.pop_front().expect("a worker computes a received piece");
            out.send(self.ranks[0], Payload::from_slice(&answer(piece).to_le_bytes()));
            return;
        }
        self.state.has_begun = true;
        if self.is_master {
            let workers = self.ranks.clone();
            for &worker in workers[1..].iter().chain(&workers[1..]) {
                self.give(worker, out);
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<[Chunk]> {
        let state = postcard::to_allocvec(&self.state).expect("numbers can be encoded");
        [Chunk::Bytes(state.into())].into()
    }

    pub(crate) fn restore(&mut self, chunks: Option<&[Chunk]>) {
        self.state = match chunks {
            None => State::initial(self.ranks.len()),
            Some([Chunk::Bytes(bytes)]) => {
                postcard::from_bytes(bytes).expect("the bytes are a snapshot of this application")
            }
            Some(_) => panic!("a snapshot of this application has one chunk"),
        };
    }

    /// Returns the rank's digest; `None` while work is known to remain. The master's digest covers the sum and the
    /// number of the answers. A worker's digest covers no data, because its share of the pieces depends on timing.
    pub(crate) fn result(&self) -> Option<Digest> {
        match self.is_master {
            true => {
                (self.state.done >= self.config.pieces).then(|| of_master(self.state.sum, self.state.done))
            }
            false => (self.state.has_begun && self.state.waiting.is_empty()).then(|| digest([])),
        }
    }

    /// Flips a bit of the master's sum. A worker has no data.
    pub(crate) fn flip(&mut self, bit: u64) -> bool {
        if self.is_master {
            self.state.sum ^= 1 << (bit % 64);
        }
        self.is_master
    }

    pub(crate) fn progress(&self) -> Progress {
        let total = if self.is_master { self.config.pieces.into() } else { 0 };
        Progress { done: self.state.done.into(), total }
    }
}

impl State {
    fn initial(ranks: usize) -> State {
        let (has_begun, waiting, received) = (false, VecDeque::new(), vec![0; ranks]);
        State { has_begun, given: 0, done: 0, sum: 0, waiting, received }
    }
}

/// Returns a worker's answer to a piece.
fn answer(piece: u32) -> u64 {
    mix(u64::from(piece) + 1)
}

fn of_master(sum: u64, done: u32) -> Digest {
    digest([&sum.to_le_bytes()[..], &done.to_le_bytes()])
}

/// Returns the results of a run in which every piece is computed exactly once.
pub(crate) fn reference(config: &Config, ranks: impl Iterator<Item = ProcessId>) -> Vec<(ProcessId, Digest)> {
    let sum = (0..config.pieces).map(answer).fold(0, u64::wrapping_add);
    let master = of_master(sum, config.pieces);
    ranks.enumerate().map(|(place, it)| (it, if place == 0 { master } else { digest([]) })).collect()
}
