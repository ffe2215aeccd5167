//! Random message-passing programs of the classes that a protocol can protect by repeating executions.
//!
//! A program is one list of exchanges, drawn from its seed, and equal for all ranks; each rank does its own part of it, in
//! the order of the list:
//!
//! ```text
//!   named     a ──value──▶ b, who receives from a by name
//!   gathered  r ──go──▶ several, each of whom answers; r waits for all answers, in whatever order they come
//!   polled    the same, but r looks for answers while it computes, and waits for the rest at a fence
//! ```
//!
//! What a rank sends is a hash of all that it has consumed before, so that a message that is lost, doubled or taken for
//! another changes the results. All gathers and polls use one tag each: an answer that comes before its time is taken for
//! one that is waited for. The results depend on the list only, and [`reference`] computes them by going through it.

mod config;

use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{Digest, Membership, Outbox, Payload, ProcessId, Progress, Span};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::mix::{digest, mix};
use crate::program::{Performer, Program, Step};
pub use config::{Class, Config};

/// Tags of the messages.
const VALUE: u8 = 0;
const GO: u8 = 1;
const GATHERED: u8 = 2;
const POLLED: u8 = 3;

/// One rank.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    performer: Performer<Part>,
    total: u64,
}

/// A rank's part of the program: what it does, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Part {
    /// Not part of a snapshot: it follows from the parameters.
    #[serde(skip)]
    deeds: alloc::sync::Arc<[Deed]>,
    done: u32,
    /// Of everything consumed, in the program's order.
    hash: u64,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Compute(Span),
    /// Sends what it knows.
    Send(ProcessId, u8),
    Receive(ProcessId, u8),
    Gather(u32),
    Poll,
    Fence(u32),
}

/// An exchange between ranks.
struct Exchange {
    class: Class,
    /// Who sends, or who asks.
    root: ProcessId,
    /// Who receives, or who answers.
    others: Vec<ProcessId>,
}

impl Program for Part {
    fn step(&mut self) -> Step {
        let Some(&deed) = self.deeds.get(self.done as usize) else {
            return Step::Finish;
        };
        self.done += 1;
        match deed {
            Deed::Compute(span) => Step::Compute(span),
            Deed::Send(to, tag) => Step::Send { to, tag, value: mix(self.hash ^ u64::from(to.0)) },
            Deed::Receive(from, tag) => Step::Receive { from, tag },
            Deed::Gather(count) => Step::Gather { tag: GATHERED, count },
            Deed::Poll => Step::Poll { tag: POLLED },
            Deed::Fence(count) => Step::Fence { tag: POLLED, count },
        }
    }

    /// Who has an answer need not pass the time.
    fn polled(&mut self, found: bool) {
        self.done += u32::from(found);
    }

    fn received(&mut self, values: &[(ProcessId, u64)]) {
        self.hash = values.iter().fold(self.hash, |hash, &(from, value)| learn(hash, from, value));
    }
}

fn learn(hash: u64, from: ProcessId, value: u64) -> u64 {
    mix(hash ^ mix(value ^ u64::from(from.0)))
}

impl Rank {
    pub(crate) fn new(config: &Config, me: ProcessId, membership: &Membership) -> Rank {
        let ranks = ranks(membership);
        let deeds: Vec<Deed> = draw(config, &ranks)
            .iter()
            .flat_map(|exchange| part_of(exchange, me, config.step_cost))
            .collect();
        let total = deeds.len() as u64;
        let part = Part { deeds: deeds.into(), done: 0, hash: u64::from(me.0) };
        Rank { performer: Performer::new(part), total }
    }

    pub(crate) fn deliver(&mut self, from: ProcessId, payload: &Payload, out: &mut Outbox) {
        self.performer.deliver(from, payload, out);
    }

    pub(crate) fn next_job(&self) -> Option<Span> {
        self.performer.next_job()
    }

    pub(crate) fn computed(&mut self, out: &mut Outbox) {
        self.performer.computed(out);
    }

    pub(crate) fn snapshot(&self) -> alloc::sync::Arc<[faultline_core::Chunk]> {
        self.performer.snapshot()
    }

    pub(crate) fn restore(&mut self, chunks: Option<&[faultline_core::Chunk]>) {
        let deeds = self.performer.program().deeds.clone();
        self.performer.restore(chunks);
        self.performer.program_mut().deeds = deeds;
    }

    pub(crate) fn result(&self) -> Option<Digest> {
        self.performer.has_finished().then(|| result(self.performer.program().hash, self.performer.arrived()))
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress { done: self.performer.program().done.into(), total: self.total }
    }
}

/// The results, by rank.
pub fn reference(config: &Config, membership: &Membership) -> Vec<(ProcessId, Digest)> {
    let ranks = ranks(membership);
    let place = |it: ProcessId| ranks.binary_search(&it).expect("is a rank");
    let mut hashes: Vec<u64> = ranks.iter().map(|it| u64::from(it.0)).collect();
    let mut arrived = vec![0_u64; ranks.len()];
    for Exchange { class, root, others } in draw(config, &ranks) {
        let said = mix_for(&hashes, place(root), &others);
        for (&other, value) in others.iter().zip(said) {
            hashes[place(other)] = learn(hashes[place(other)], root, value);
            arrived[place(other)] += 1;
        }
        if class != Class::Named {
            let answers: Vec<u64> =
                others.iter().map(|&it| mix(hashes[place(it)] ^ u64::from(root.0))).collect();
            for (&other, answer) in others.iter().zip(answers) {
                hashes[place(root)] = learn(hashes[place(root)], other, answer);
                arrived[place(root)] += 1;
            }
        }
    }
    let results = hashes.into_iter().zip(arrived).map(|(hash, arrived)| result(hash, arrived));
    ranks.iter().copied().zip(results).collect()
}

fn mix_for(hashes: &[u64], root: usize, others: &[ProcessId]) -> Vec<u64> {
    others.iter().map(|it| mix(hashes[root] ^ u64::from(it.0))).collect()
}

fn result(hash: u64, arrived: u64) -> Digest {
    let numbers = [hash, arrived].map(u64::to_le_bytes);
    digest(numbers.iter().map(|it| &it[..]))
}

/// All ranks, ascending.
fn ranks(membership: &Membership) -> Vec<ProcessId> {
    let mut ranks: Vec<ProcessId> =
        membership.clusters.iter().flat_map(|it| it.processes.iter().copied()).collect();
    ranks.sort_unstable();
    ranks
}

/// The list of exchanges.
fn draw(config: &Config, ranks: &[ProcessId]) -> Vec<Exchange> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(config.pattern);
    let mut shuffled = ranks.to_vec();
    (0..config.exchanges)
        .map(|_| {
            let class = config.classes[rng.random_range(0..config.classes.len())];
            shuffled.shuffle(&mut rng);
            let most = if class == Class::Named { 1 } else { (ranks.len() - 1).min(4) };
            let count = rng.random_range(1..=most);
            let mut others = shuffled[1..=count].to_vec();
            others.sort_unstable();
            Exchange { class, root: shuffled[0], others }
        })
        .collect()
}

/// What `me` does in an exchange.
fn part_of(exchange: &Exchange, me: ProcessId, cost: Span) -> Vec<Deed> {
    let Exchange { class, root, others } = exchange;
    let count = others.len() as u32;
    if *root == me {
        let mut deeds = vec![Deed::Compute(cost)];
        let tag = if *class == Class::Named { VALUE } else { GO };
        deeds.extend(others.iter().map(|&it| Deed::Send(it, tag)));
        match class {
            Class::Named => {}
            Class::Gathered => deeds.push(Deed::Gather(count)),
            Class::Polled => {
                let look = [Deed::Poll, Deed::Compute(cost)];
                deeds.extend(look.into_iter().chain(look));
                deeds.push(Deed::Fence(count));
            }
        }
        deeds
    } else if others.contains(&me) {
        match class {
            Class::Named => vec![Deed::Receive(*root, VALUE)],
            Class::Gathered => vec![Deed::Receive(*root, GO), Deed::Send(*root, GATHERED)],
            Class::Polled => vec![Deed::Receive(*root, GO), Deed::Send(*root, POLLED)],
        }
    } else {
        Vec::new()
    }
}
