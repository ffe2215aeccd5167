//! The operations of clients, as a function of the seed: arrival i is due i intervals after the epoch of the run, and asks
//! for an operation that depends only on the seed, on i, and on what the client saw before.

use std::collections::BTreeMap;

use faultline_core::operation::{Answer, Call, Completion, Key, Step};
use faultline_core::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::models::{Model, model};

/// The largest amount that a transfer moves, and the largest number that is added to a counter.
const MOST: u64 = 5;
/// The largest number of steps of a transaction.
const STEPS: u64 = 4;

/// Which operations the clients of a history carry out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// The seed of the run.
    pub seed: u64,
    /// The name of the model.
    pub model: String,
    /// The time from one arrival to the next.
    pub every: Span,
    /// The weight of each kind of operation.
    pub mix: BTreeMap<String, u32>,
    /// The number of keys that are in use at a time.
    pub keys: u32,
    /// The number of arrivals for each key, after which other keys are used.
    pub ops_per_key: u32,
    /// The number of accounts.
    pub accounts: u32,
}

/// What a client remembers of the answers to its operations.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// For a register, the last value that the client saw. For a log, the offset after the last entry that it polled.
    seen: BTreeMap<Key, Option<i64>>,
    /// Whether the client holds the lock.
    holds: bool,
}

impl Memory {
    /// Remembers how an operation ended.
    pub fn conclude(&mut self, call: &Call, completion: &Completion) {
        match (call, completion.answer()) {
            (Call::Read(key), Some(Answer::Number(value))) => drop(self.seen.insert(*key, Some(*value))),
            (Call::Read(key), Some(Answer::Null)) => drop(self.seen.insert(*key, None)),
            (Call::Write(key, value), Some(Answer::Null))
            | (Call::Cas(key, _, value), Some(Answer::Flag(true))) => {
                self.seen.insert(*key, Some(*value));
            }
            (Call::Poll(key, _), Some(Answer::Entries(entries))) => {
                if let Some((offset, _)) = entries.last() {
                    self.seen.insert(*key, Some(offset.saturating_add(1)));
                }
            }
            (Call::Acquire, Some(_)) => self.holds = true,
            // After an unknown `release`, the client may no longer hold the lock.
            (Call::Release, _) => self.holds = false,
            _ => {}
        }
    }
}

/// A sequence of random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

/// Returns the random numbers of an arrival.
fn random(seed: u64, arrival: u64) -> Random {
    let mut mixed = Random(seed);
    Random(mixed.next() ^ arrival.wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

impl Workload {
    /// Returns the operations that clients carry out under a model, which [`Model::kinds`] of histories of other programs
    /// may exceed.
    pub fn kinds_of(model: &Model) -> &'static [&'static str] {
        match model.name {
            "register" => &["read", "write", "cas"],
            _ => model.kinds,
        }
    }

    /// Returns whether clients use keys under a model.
    pub fn has_keys(model: &Model) -> bool {
        matches!(model.name, "register" | "list" | "log")
    }

    /// Returns the model, if it exists.
    pub fn model(&self) -> Option<&'static Model> {
        model(&self.model)
    }

    /// Returns the kinds of operations that clients carry out, in the order of the model.
    pub fn kinds(&self) -> Vec<&'static str> {
        let all = self.model().map_or(&[][..], Workload::kinds_of);
        all.iter().copied().filter(|it| self.weight(it) > 0).collect()
    }

    /// Returns the share of a kind of operation among all arrivals. A lock is released by each client that holds it.
    fn weight(&self, kind: &str) -> u64 {
        if self.model == "lock" { 1 } else { self.mix.get(kind).copied().unwrap_or_default().into() }
    }

    /// Returns the mean time between two arrivals of a kind.
    pub fn every(&self, kind: &str) -> Span {
        let whole: u64 = self.kinds().into_iter().map(|it| self.weight(it)).sum();
        let every = u128::from(self.every.0) * u128::from(whole) / u128::from(self.weight(kind).max(1));
        Span(u64::try_from(every).unwrap_or(u64::MAX))
    }

    /// Returns the time at which an arrival is due.
    pub fn due(&self, arrival: u64) -> Time {
        Time(arrival.saturating_mul(self.every.0))
    }

    /// Returns the first arrival that is due at a time or later.
    pub fn first_from(&self, time: Time) -> u64 {
        time.0.div_ceil(self.every.0.max(1))
    }

    /// Returns the kind of operation that an arrival asks for. For a lock, this depends on the client; returns `acquire`.
    pub fn kind(&self, arrival: u64) -> &'static str {
        self.draw_kind(&mut random(self.seed, arrival))
    }

    fn draw_kind(&self, random: &mut Random) -> &'static str {
        let kinds = self.kinds();
        let mut place = random.below(kinds.iter().map(|it| self.weight(it)).sum::<u64>().max(1));
        let is_lock = self.model == "lock";
        let drawn = kinds.iter().find(|it| match place.checked_sub(self.weight(it)) {
            None => true,
            Some(rest) => {
                place = rest;
                false
            }
        });
        if is_lock { "acquire" } else { drawn.copied().unwrap_or_default() }
    }

    /// Returns the first key that an arrival may use.
    fn first_key(&self, arrival: u64) -> u32 {
        let per_epoch = u64::from(self.keys) * u64::from(self.ops_per_key);
        u32::try_from(arrival / per_epoch.max(1)).unwrap_or(u32::MAX).saturating_mul(self.keys)
    }

    /// Returns what a client is asked to do at an arrival. Every value that it writes is the number of the arrival, which
    /// names the writer.
    pub fn call(&self, arrival: u64, memory: &Memory) -> Call {
        let mut random = random(self.seed, arrival);
        let kind = self.draw_kind(&mut random);
        let first = self.first_key(arrival);
        let mut key = || Key(first + random.below(self.keys.max(1).into()) as u32);
        let value = arrival as i64;
        match (self.model.as_str(), kind) {
            ("register", "write") => Call::Write(key(), value),
            ("register", "cas") => {
                let key = key();
                Call::Cas(key, memory.seen.get(&key).copied().flatten(), value)
            }
            ("register", _) => Call::Read(key()),
            ("list", _) => Call::Txn(self.steps(first, value, &mut random)),
            ("log", "send") => Call::Send(key(), value),
            ("log", _) => {
                let key = key();
                Call::Poll(key, memory.seen.get(&key).copied().flatten().unwrap_or(0))
            }
            ("counter", "add") => Call::Add(1 + random.below(MOST) as i64),
            (_, "add") => Call::Add(value),
            (_, "enqueue") => Call::Enqueue(value),
            (_, "dequeue") => Call::Dequeue,
            (_, "next") => Call::Next,
            (_, "acquire") if memory.holds => Call::Release,
            (_, "acquire") => Call::Acquire,
            (_, "transfer") => {
                let accounts = self.accounts.max(2);
                let from = random.below(accounts.into()) as u32;
                let to = (from + 1 + random.below(u64::from(accounts) - 1) as u32) % accounts;
                Call::Transfer(from, to, 1 + random.below(MOST) as i64)
            }
            _ => Call::ReadAll,
        }
    }

    /// Returns the steps of a transaction, which appends at most once to each list.
    fn steps(&self, first: u32, value: i64, random: &mut Random) -> Box<[Step]> {
        let mut appended = Vec::new();
        let steps = (0..=random.below(STEPS)).map(|_| {
            let key = Key(first + random.below(self.keys.max(1).into()) as u32);
            if random.below(2) == 0 || appended.contains(&key) {
                return Step::Read(key);
            }
            appended.push(key);
            Step::Append(key, value)
        });
        steps.collect()
    }

    /// Returns the keys that arrivals in this range use.
    pub fn keys(&self, arrivals: std::ops::Range<u64>) -> std::ops::Range<u32> {
        if !self.model().is_some_and(Workload::has_keys) || arrivals.is_empty() {
            return 0..0;
        }
        self.first_key(arrivals.start)..self.first_key(arrivals.end - 1).saturating_add(self.keys)
    }

    /// Returns what a client is asked to do first in the final phase. `keys` are those that it reads.
    pub fn finals(&self, keys: impl Iterator<Item = Key>) -> Vec<Call> {
        match self.model.as_str() {
            "register" => keys.map(Call::Read).collect(),
            "list" => keys.map(|it| Call::Txn([Step::Read(it)].into())).collect(),
            "log" => keys.map(|it| Call::Poll(it, 0)).collect(),
            "set" | "counter" | "bank" => vec![Call::ReadAll],
            "queue" => vec![Call::Dequeue],
            _ => Vec::new(),
        }
    }

    /// Returns what a client is asked to do after an operation of the final phase that was answered; `None` if that read
    /// everything.
    pub fn continues(call: &Call, answer: &Answer) -> Option<Call> {
        match (call, answer) {
            (Call::Poll(key, _), Answer::Entries(entries)) => {
                entries.last().map(|last| Call::Poll(*key, last.0.saturating_add(1)))
            }
            (Call::Dequeue, Answer::Number(_)) => Some(Call::Dequeue),
            _ => None,
        }
    }
}
