//! The contract between a protocol that relies on repetition and its programs (stricter than HydEE, Definition 3): the
//! messages that a process sends, and the messages consumed before each of them, must not depend on the order in which
//! messages arrive.
//!
//! Runs the program with several orders of delivery, without a protocol and without failures, and compares the runs
//! process by process and send by send. A difference violates the contract. The absence of differences proves nothing,
//! because other orders may differ.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use faultline_core::{Application, Job, Membership, Outbox, Payload, ProcessId, Role};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

/// A difference between two orders of delivery in the messages that a process sent or consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The process.
    pub process: ProcessId,
    /// The index of the first message that differs, counted from 0.
    pub send: usize,
    /// The kind of difference.
    pub what: Differs,
    /// The number of the order that differs from the first one, which has number 0.
    pub order: u32,
}

/// The difference between two orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differs {
    /// The receiver or the content of the message differs.
    Message,
    /// The process had consumed different messages before it sent this one.
    Consumed,
    /// The number of messages differs: the message exists in only one of the orders.
    Count,
}

/// Runs a program in one order of delivery and then in `orders` others. Returns the first difference found.
///
/// Runs all computations of the program again for each order.
pub fn difference<A: Application>(
    config: &Arc<A::Config>,
    membership: &Membership,
    seed: impl Fn(ProcessId) -> u64,
    orders: u32,
) -> Option<Difference> {
    let first = run::<A>(config, membership, &seed, 0);
    (1..=orders).find_map(|order| {
        let other = run::<A>(config, membership, &seed, order);
        first.iter().zip(&other).find_map(|((&process, one), (_, other))| {
            let (send, what) = compare(one, other)?;
            Some(Difference { process, send, what, order })
        })
    })
}

fn compare(one: &[Send], other: &[Send]) -> Option<(usize, Differs)> {
    let differs = one.iter().zip(other).enumerate().find_map(|(send, (one, other))| {
        if (one.to, one.content) != (other.to, other.content) {
            return Some((send, Differs::Message));
        }
        (one.consumed != other.consumed).then_some((send, Differs::Consumed))
    });
    differs.or_else(|| (one.len() != other.len()).then_some((one.len().min(other.len()), Differs::Count)))
}

/// A message that a process sent, with a hash of the messages that it depends on.
struct Send {
    to: ProcessId,
    content: blake3::Hash,
    /// The hash of the set of messages consumed before this one was sent, regardless of their order.
    consumed: u64,
}

/// Returns what each rank sends if messages are delivered in a random order, drawn with the seed `order`. The
/// messages of each channel are delivered in the order in which they were sent.
fn run<A: Application>(
    config: &Arc<A::Config>,
    membership: &Membership,
    seed: &impl Fn(ProcessId) -> u64,
    order: u32,
) -> BTreeMap<ProcessId, Vec<Send>> {
    let mut dice = ChaCha8Rng::seed_from_u64(order.into());
    let mut federation: Running<A> = Running::default();
    for me in membership.with_role(Role::RANK) {
        federation.ranks.insert(me, Rank::new(A::new(config, me, membership, seed(me))));
    }
    for me in membership.with_role(Role::RANK) {
        federation.ask(me);
    }
    loop {
        let (jobs, channels) = (federation.jobs.len(), federation.channels.len());
        if jobs + channels == 0 {
            break;
        }
        match dice.random_range(0..jobs + channels) {
            index if index < jobs => federation.compute(index),
            index => federation.deliver(index - jobs),
        }
    }
    federation.ranks.into_iter().map(|(process, rank)| (process, rank.sent)).collect()
}

struct Rank<A: Application> {
    application: A,
    job: Option<A::Job>,
    sent: Vec<Send>,
    consumed: u64,
}

impl<A: Application> Rank<A> {
    fn new(application: A) -> Rank<A> {
        Rank { application, job: None, sent: Vec::new(), consumed: 0 }
    }
}

/// A federation in which messages and computations take a random time.
struct Running<A: Application> {
    ranks: BTreeMap<ProcessId, Rank<A>>,
    /// Ranks that are computing.
    jobs: BTreeSet<ProcessId>,
    /// Channels with messages in transit.
    channels: BTreeMap<(ProcessId, ProcessId), VecDeque<Payload>>,
}

impl<A: Application> Default for Running<A> {
    fn default() -> Running<A> {
        Running { ranks: BTreeMap::new(), jobs: BTreeSet::new(), channels: BTreeMap::new() }
    }
}

impl<A: Application> Running<A> {
    fn compute(&mut self, index: usize) {
        let me = *self.jobs.iter().nth(index).expect("the index is in range");
        let rank = self.ranks.get_mut(&me).expect("the process is a rank");
        let job = rank.job.take().expect("the rank computes");
        self.jobs.remove(&me);
        let mut out = Outbox::default();
        rank.application.computed(job.run(), &mut out);
        self.take(me, out);
    }

    fn deliver(&mut self, index: usize) {
        let &(from, to) = self.channels.keys().nth(index).expect("the index is in range");
        let channel = self.channels.get_mut(&(from, to)).expect("the channel exists");
        let payload = channel.pop_front().expect("empty channels are removed");
        if channel.is_empty() {
            self.channels.remove(&(from, to));
        }
        let mut out = Outbox::default();
        let rank = self.ranks.get_mut(&to).expect("ranks send to ranks");
        rank.application.deliver(from, payload, &mut out);
        self.take(to, out);
    }

    /// Applies the actions of a rank.
    fn take(&mut self, me: ProcessId, out: Outbox) {
        let rank = self.ranks.get_mut(&me).expect("the process is a rank");
        let mut consumed = out.consumed.into_iter().peekable();
        for (before, (to, payload)) in out.sends.into_iter().enumerate() {
            while let Some((_, from, number)) = consumed.next_if(|(sends, ..)| *sends <= before) {
                rank.consumed = rank.consumed.wrapping_add(mark(from, number));
            }
            let content = content(&payload);
            rank.sent.push(Send { to, content, consumed: rank.consumed });
            self.channels.entry((me, to)).or_default().push_back(payload);
        }
        for (_, from, number) in consumed {
            rank.consumed = rank.consumed.wrapping_add(mark(from, number));
        }
        self.ask(me);
    }

    fn ask(&mut self, me: ProcessId) {
        let rank = self.ranks.get_mut(&me).expect("the process is a rank");
        if rank.job.is_none() {
            rank.job = rank.application.next_job();
            if rank.job.is_some() {
                self.jobs.insert(me);
            }
        }
    }
}

fn content(payload: &Payload) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(payload.len() as u64).to_le_bytes());
    hasher.update(payload.bytes());
    hasher.finalize()
}

/// Hashes one message. The sum of such hashes represents a set of messages.
fn mark(from: ProcessId, number: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&from.0.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    let hash = blake3::hash(&bytes);
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
}
