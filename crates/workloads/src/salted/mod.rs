//! Traffic that no re-execution repeats, for the fuzzer.
//!
//! A deterministic application hides the defects of a protocol: a rank that rolled back sends the same
//! messages again, so a ghost equals the real message. In this application, every choice depends on the
//! rank's seed, on the incarnation under which it runs, and on everything delivered before:
//!
//! ```text
//!   step ──▶ 0..=fan_out messages, inside or between clusters ──▶ delivery ──▶ perhaps an answer ──▶ … at most
//!    │                                                              │                       `reply_depth` times
//!    └── hash of the state (content of all sends and deliveries) ◀──┘
//! ```
//!
//! A rank finishes after a fixed number of its own steps, so that no rank waits for messages that others might never
//! send. Later deliveries change its digest but are not answered. There is no reference result: these runs are judged
//! only by properties.

mod config;

use alloc::sync::Arc;
use faultline_core::{
    Chunk, ClusterId, Digest, Incarnation, Membership, Outbox, Payload, ProcessId, Progress, Span,
};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::mix::{digest, mix};
use crate::peers::Peers;
pub use config::Config;

/// One rank of the salted application.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    config: Config,
    peers: Peers,
    seed: u64,
    salt: Incarnation,
    state: State,
}

/// The part of a rank that a snapshot contains.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct State {
    /// Number of steps done.
    done: u32,
    sent: u64,
    received: u64,
    /// Hash of everything sent and delivered, in order.
    hash: u64,
}

/// Content of a message.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Message {
    value: u64,
    /// Number of answers that may still follow.
    depth: u8,
}

impl Rank {
    pub(crate) fn new(config: &Config, me: ProcessId, membership: &Membership, seed: u64) -> Rank {
        let peers = Peers::new(me, membership);
        Rank { config: config.clone(), peers, seed, salt: Incarnation(0), state: State::default() }
    }

    pub(crate) fn deliver(&mut self, from: ProcessId, payload: &Payload, out: &mut Outbox) {
        self.state.received += 1;
        let message = postcard::from_bytes(payload.bytes()).unwrap_or(Message { value: 0, depth: 0 });
        self.state.hash = mix(self.state.hash ^ mix(message.value ^ u64::from(from.0)));
        let finished = self.state.done == self.config.steps;
        if !finished && message.depth > 0 {
            let mut rng = self.choices();
            if rng.random_bool(self.config.reply) {
                self.send(from, message.depth - 1, &mut rng, out);
            }
        }
    }

    /// Returns the duration of the next step.
    pub(crate) fn next_job(&self) -> Option<Span> {
        (self.state.done < self.config.steps).then_some(self.config.step_cost)
    }

    pub(crate) fn computed(&mut self, out: &mut Outbox) {
        self.state.done += 1;
        self.state.hash = mix(self.state.hash);
        let mut rng = self.choices();
        for _ in 0..rng.random_range(0..=self.config.fan_out) {
            if let Some(to) = self.receiver(&mut rng) {
                self.send(to, self.config.reply_depth, &mut rng, out);
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<[Chunk]> {
        let state = postcard::to_allocvec(&self.state).expect("numbers can be encoded");
        [Chunk::Bytes(state.into())].into()
    }

    pub(crate) fn restore(&mut self, chunks: Option<&[Chunk]>, salt: Incarnation) {
        self.salt = salt;
        self.state = match chunks {
            None => State::default(),
            Some([Chunk::Bytes(bytes)]) => {
                postcard::from_bytes(bytes).expect("the bytes are a snapshot of this application")
            }
            Some(_) => panic!("a snapshot of this application has one chunk"),
        };
    }

    pub(crate) fn result(&self) -> Option<Digest> {
        let State { done, sent, received, hash } = self.state;
        (done == self.config.steps).then(|| {
            let numbers = [sent, received, hash].map(u64::to_le_bytes);
            digest(numbers.iter().map(|number| &number[..]))
        })
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress { done: self.state.done.into(), total: self.config.steps.into() }
    }

    pub(crate) fn flip(&mut self, bit: u64) -> bool {
        self.state.hash ^= 1 << (bit % 64);
        true
    }

    /// Returns a new source of random numbers for one action.
    fn choices(&self) -> Xoshiro256PlusPlus {
        let salted = mix(self.seed ^ mix(self.salt.0.into()));
        Xoshiro256PlusPlus::seed_from_u64(self.state.hash ^ salted)
    }

    /// Returns a random receiver in this cluster or in another; `None` if there is no other rank.
    fn receiver(&self, rng: &mut impl Rng) -> Option<ProcessId> {
        let own = self.peers.own();
        let has_peers = self.peers.size(own) > 1;
        let others = self.peers.clusters() - 1;
        let between = others > 0 && (!has_peers || rng.random_bool(self.config.between));
        if between {
            let cluster = rng.random_range(0..others);
            let cluster = ClusterId(cluster + u16::from(cluster >= own.0));
            Some(self.peers.random(cluster, rng))
        } else {
            has_peers.then(|| self.peers.random(own, rng))
        }
    }

    fn send(&mut self, to: ProcessId, depth: u8, rng: &mut impl Rng, out: &mut Outbox) {
        let value = rng.next_u64();
        self.state.sent += 1;
        self.state.hash = mix(self.state.hash ^ value);
        let mut buffer = [0; 16];
        let bytes = postcard::to_slice(&Message { value, depth }, &mut buffer)
            .expect("a message is at most 11 bytes long");
        out.send(to, Payload::from_slice(bytes));
    }
}
