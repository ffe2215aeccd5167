//! The communication of six kernels of the NAS parallel benchmarks (BT, CG, FT, LU, MG, SP), with real dependencies.
//!
//! Each kernel determines which rank sends to which other ranks, in which order, and how long the messages are in
//! proportion to each other. The kernels follow the decompositions of the benchmarks for which the HydEE paper chooses
//! clusters (table I). An iteration consists of rounds. In each round, a rank computes, then sends and receives as the
//! kernel would:
//!
//! | pattern | rounds of an iteration |
//! | --- | --- |
//! | BT, SP | exchanges with six neighbours on a torus, then sweeps back and forth along rows, columns and a diagonal |
//! | CG | exchanges within rows at distances that are powers of two, then one with the transposed position |
//! | FT | exchanges between all ranks |
//! | LU | four wavefronts over a mesh from the first corner, then four back |
//! | MG | exchanges of faces on a three-dimensional torus, on three grids, from fine to coarse and back |
//!
//! The kernels' numbers are not computed: a rank's value is a hash. Every message contains the sender's hash at that
//! time, padded to the requested length, and every receipt changes the receiver's hash. Every message therefore depends
//! on all of its causes, and a lost, duplicated or misdelivered message changes the result. Global sums of a few bytes
//! are omitted.

mod config;
mod reference;
mod shape;

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Progress, Span};
use serde::{Deserialize, Serialize};

use crate::messaging::{Message, NUMBER, Program, RankInfo, Step, pack};
use crate::mix::mix;
pub use config::{Config, LEAST_MESSAGE, Pattern, RANKS};
pub use reference::reference;
use shape::{Round, RoundOrder, Shape};

/// One rank of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Rank in the pattern.
    rank: u32,
    iterations: u32,
    /// Duration of the computation in each round.
    cost: Span,
    state_bytes: u64,
    /// Each process's rank in the pattern.
    rank_of: Arc<[u32]>,
    /// The process that runs each rank of the pattern.
    process_of: Arc<[u32]>,
    /// Rounds of every iteration.
    rounds: Arc<[Round]>,
}

/// State of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    iteration: u32,
    round: u32,
    at: At,
    hash: u64,
}

/// Next action of a rank in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum At {
    /// Waits for a wavefront, or computes if there is none.
    Begin,
    /// Computes, once the wavefront has arrived.
    Compute,
    /// Sends messages. Contains the number of sends already done in this round.
    Send(u32),
}

impl Program for Kernel {
    type Config = Config;
    type State = State;

    fn new(config: &Arc<Config>, RankInfo { me, ranks }: RankInfo) -> Kernel {
        let rank_of = order(config, ranks);
        let mut process_of = alloc::vec![0; ranks as usize];
        (0..ranks).zip(&rank_of).for_each(|(process, &rank)| process_of[rank as usize] = process);
        let shape = Shape { pattern: config.pattern, ranks, bytes: config.message_bytes };
        let rank = rank_of[me as usize];
        Kernel {
            rank,
            iterations: config.iterations,
            cost: Span(config.iteration_cost.0 / u64::from(shape.rounds())),
            state_bytes: config.state_bytes,
            rank_of: rank_of.into(),
            process_of: process_of.into(),
            rounds: (0..shape.rounds()).map(|it| shape.round(rank, it)).collect(),
        }
    }

    fn begin(&self) -> State {
        State { iteration: 0, round: 0, at: At::Begin, hash: initial(self.rank) }
    }

    fn next(&self, state: &mut State) -> Step {
        if state.iteration == self.iterations {
            return Step::Finish;
        }
        let round = &self.rounds[state.round as usize];
        let is_front = round.order != RoundOrder::SendsFirst;
        match state.at {
            At::Begin if is_front => {
                state.at = At::Compute;
                self.gather(round)
            }
            At::Begin | At::Compute => {
                state.at = At::Send(0);
                Step::Compute(self.cost)
            }
            At::Send(done) => match round.sends.get(done as usize) {
                Some(&(to, bytes)) => {
                    state.at = At::Send(done + 1);
                    self.send(state.hash, to, bytes)
                }
                None => {
                    self.end_round(state);
                    if is_front { self.next(state) } else { self.gather(round) }
                }
            },
        }
    }

    fn received(&self, state: &mut State, messages: Vec<Message>) {
        for it in messages {
            let value = it.bytes().first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
            state.hash = learn(state.hash, self.rank_of[it.from as usize], value);
        }
    }

    fn result(&self, state: &State) -> Vec<u8> {
        pack(&state.hash)
    }

    fn progress(&self, state: &State) -> Progress {
        Progress { done: state.iteration.into(), total: self.iterations.into() }
    }

    fn flip(&self, state: &mut State, bit: u64) -> bool {
        state.hash ^= 1 << (bit % 64);
        true
    }

    fn bulk(&self) -> u64 {
        self.state_bytes
    }
}

impl Kernel {
    fn send(&self, hash: u64, to: u32, bytes: u32) -> Step {
        let mut content = value_for(hash, to).to_le_bytes().to_vec();
        content.resize((bytes as usize).saturating_sub(NUMBER).max(content.len()), 0);
        Step::Send { to: self.process_of[to as usize], content }
    }

    fn gather(&self, round: &Round) -> Step {
        Step::Gather { from: round.sources.iter().map(|&it| self.process_of[it as usize]).collect() }
    }

    fn end_round(&self, state: &mut State) {
        state.at = At::Begin;
        state.round += 1;
        if state.round as usize == self.rounds.len() {
            state.round = 0;
            state.iteration += 1;
        }
    }
}

/// Returns each process's rank in the pattern.
fn order(config: &Config, ranks: u32) -> Vec<u32> {
    if config.order.is_empty() { (0..ranks).collect() } else { config.order.clone() }
}

/// Returns the initial hash of a rank.
fn initial(rank: u32) -> u64 {
    mix(rank.into())
}

/// Returns the value that a rank with this hash sends to `to`.
fn value_for(hash: u64, to: u32) -> u64 {
    mix(hash ^ u64::from(to))
}

fn learn(hash: u64, from: u32, value: u64) -> u64 {
    mix(hash ^ mix(value ^ u64::from(from)))
}
