//! Random message-passing programs whose re-executions send the same messages, so that protocols that rely on this
//! property can protect them.
//!
//! A program is a list of exchanges drawn from its seed. The list is the same for all ranks, and each rank
//! performs its own part of it, in order:
//!
//! ```text
//!   named     a ──value──▶ b, which receives from a by name
//!   gathered  r ──go──▶ several ranks, each of which answers; r waits for all answers, in any order of arrival
//!   polled    the same, but r polls for answers while it computes, and waits for the rest at a fence
//! ```
//!
//! A rank sends a hash of everything that it has consumed so far. A lost, duplicated or misdelivered message therefore
//! changes the results. The results depend only on the list, from which [`reference()`] computes them.

mod config;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{Digest, Membership, ProcessId, Progress, Role, Span};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::messaging::{Message, Program, RankInfo, Step, digest_of, pack};
use crate::mix::mix;
pub use config::{Class, Config};

/// Maximum number of pieces that the root of a polled exchange computes. After that, it only waits.
const MAX_PIECES: u32 = 2;

/// A rank's part of the program: its actions, in order.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    me: u32,
    instructions: Vec<Instruction>,
}

/// State of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    done: u32,
    /// Hash of everything consumed, in the program's order.
    hash: u64,
}

#[derive(Clone, Debug)]
enum Instruction {
    Compute(Span),
    /// Sends the current hash.
    Send(u32),
    Receive(u32),
    Gather(Vec<u32>),
    Poll(Vec<u32>, Span),
}

/// One exchange between ranks.
struct Exchange {
    class: Class,
    /// The rank that sends or asks.
    root: u32,
    /// The ranks that receive or answer.
    others: Vec<u32>,
}

impl Program for Part {
    type Config = Config;
    type State = State;

    fn new(config: &Arc<Config>, RankInfo { me, ranks }: RankInfo) -> Part {
        let exchanges = draw(config, ranks);
        Part { me, instructions: exchanges.iter().flat_map(|it| part_of(it, me, config.step_cost)).collect() }
    }

    fn begin(&self) -> State {
        State { done: 0, hash: self.me.into() }
    }

    fn next(&self, state: &mut State) -> Step {
        let Some(instruction) = self.instructions.get(state.done as usize) else {
            return Step::Finish;
        };
        state.done += 1;
        match instruction {
            Instruction::Compute(span) => Step::Compute(*span),
            Instruction::Send(to) => Step::send(*to, &value_for(state.hash, *to)),
            Instruction::Receive(from) => Step::Receive { from: *from },
            Instruction::Gather(from) => Step::Gather { from: from.clone() },
            Instruction::Poll(from, piece) => {
                Step::Poll { from: from.clone(), piece: *piece, pieces: MAX_PIECES }
            }
        }
    }

    fn received(&self, state: &mut State, messages: Vec<Message>) {
        state.hash = messages
            .iter()
            .fold(state.hash, |hash, it| learn(hash, it.from, it.try_unpack().unwrap_or_default()));
    }

    fn result(&self, state: &State) -> Vec<u8> {
        pack(&state.hash)
    }

    fn progress(&self, state: &State) -> Progress {
        Progress { done: state.done.into(), total: self.instructions.len() as u64 }
    }

    fn flip(&self, state: &mut State, bit: u64) -> bool {
        state.hash ^= 1 << (bit % 64);
        true
    }
}

/// Returns the value that a rank with this hash sends to `to`.
fn value_for(hash: u64, to: u32) -> u64 {
    mix(hash ^ u64::from(to))
}

fn learn(hash: u64, from: u32, value: u64) -> u64 {
    mix(hash ^ mix(value ^ u64::from(from)))
}

/// Returns the result of each rank.
pub fn reference(config: &Config, membership: &Membership) -> Vec<(ProcessId, Digest)> {
    let ranks: Vec<ProcessId> = membership.with_role(Role::RANK).collect();
    let mut hashes: Vec<u64> = (0..ranks.len() as u64).collect();
    let mut arrived = vec![0_u64; ranks.len()];
    let mut tell = |hashes: &mut Vec<u64>, from: u32, to: u32, value: u64| {
        hashes[to as usize] = learn(hashes[to as usize], from, value);
        arrived[to as usize] += 1;
    };
    for Exchange { class, root, others } in draw(config, ranks.len() as u32) {
        let asked: Vec<u64> = others.iter().map(|&it| value_for(hashes[root as usize], it)).collect();
        others.iter().zip(asked).for_each(|(&other, value)| tell(&mut hashes, root, other, value));
        if class != Class::Named {
            let answers: Vec<u64> = others.iter().map(|&it| value_for(hashes[it as usize], root)).collect();
            others.iter().zip(answers).for_each(|(&other, value)| tell(&mut hashes, other, root, value));
        }
    }
    let results = hashes.iter().zip(arrived).map(|(hash, arrived)| digest_of(&pack(hash), arrived));
    ranks.iter().copied().zip(results).collect()
}

/// Draws the list of exchanges.
fn draw(config: &Config, ranks: u32) -> Vec<Exchange> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(config.pattern);
    let mut shuffled: Vec<u32> = (0..ranks).collect();
    (0..config.exchanges)
        .map(|_| {
            let class = config.classes[rng.random_range(0..config.classes.len())];
            shuffled.shuffle(&mut rng);
            let most = if class == Class::Named { 1 } else { (shuffled.len() - 1).min(4) };
            let count = rng.random_range(1..=most);
            let mut others = shuffled[1..=count].to_vec();
            others.sort_unstable();
            Exchange { class, root: shuffled[0], others }
        })
        .collect()
}

/// Returns the actions of `me` in an exchange.
fn part_of(exchange: &Exchange, me: u32, cost: Span) -> Vec<Instruction> {
    let Exchange { class, root, others } = exchange;
    if *root == me {
        let mut instructions = vec![Instruction::Compute(cost)];
        instructions.extend(others.iter().map(|&it| Instruction::Send(it)));
        match class {
            Class::Named => {}
            Class::Gathered => instructions.push(Instruction::Gather(others.clone())),
            Class::Polled => instructions.push(Instruction::Poll(others.clone(), cost)),
        }
        instructions
    } else if others.contains(&me) {
        match class {
            Class::Named => vec![Instruction::Receive(*root)],
            Class::Gathered | Class::Polled => vec![Instruction::Receive(*root), Instruction::Send(*root)],
        }
    } else {
        Vec::new()
    }
}
