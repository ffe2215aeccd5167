//! Checkpoints and recoveries of a run, computed from its facts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_core::{Claim, Fact, PartitionClaim, Position, ProcessId, Time};
use faultline_session::SimulationObserver;
use faultline_trace::{Manifest, Record};
use serde::{Deserialize, Serialize};

/// Observes one run.
pub(super) struct Watch<'a> {
    interrupted: &'a AtomicBool,
    ranks: usize,
    begun: Option<Time>,
    last: Time,
    /// The number of tasks that each process has run so far.
    ran: Vec<u64>,
    /// The number of tasks that each process had run when it saved its part of a checkpoint.
    saved: BTreeMap<(Position, ProcessId), u64>,
    /// The size of each state that a process saved, in bytes.
    state_bytes: Vec<u64>,
    checkpoints: BTreeMap<Position, Checkpoint>,
    failed: BTreeSet<ProcessId>,
    ran_before: Vec<u64>,
    slot: Position,
    again: Vec<u64>,
}

/// One checkpoint.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    requested: Time,
    last: Time,
    messages: u64,
    stored: u64,
}

/// The observations of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Watched {
    /// Seconds from the start of the application to the end of the run.
    pub(super) seconds: f64,
    /// For each complete checkpoint before the last checkpoint of the run, newest first: its duration in milliseconds,
    /// and its number of messages.
    pub(super) checkpoints: Vec<(f64, u64)>,
    /// The size of each state that a process saved, in bytes.
    pub(super) state_bytes: Vec<u64>,
    /// The re-execution that the failure caused in other processes; `None` if nothing failed.
    pub(super) redone: Option<Redone>,
}

/// Re-execution by processes that had not failed, after one failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Redone {
    /// For each process that did not fail: the number of tasks that it re-executed, and the number that it would have
    /// re-executed after a global rollback.
    pub(super) live: Vec<(ProcessId, u64, u64)>,
}

impl Redone {
    /// Returns the number of tasks that the surviving processes re-executed.
    pub(super) fn again(&self) -> u64 {
        self.live.iter().map(|it| it.1).sum()
    }

    /// Returns the number of tasks that the surviving processes would have re-executed after a global
    /// rollback.
    pub(super) fn globally(&self) -> u64 {
        self.live.iter().map(|it| it.2).sum()
    }

    /// Returns the re-executed tasks as a percentage of those that would have been re-executed after a global rollback.
    pub(super) fn share(&self) -> f64 {
        100.0 * self.again() as f64 / self.globally().max(1) as f64
    }

    /// Returns the percentage of surviving processes that re-executed nothing.
    pub(super) fn idle(&self) -> f64 {
        100.0 * self.live.iter().filter(|it| it.1 == 0).count() as f64 / self.live.len().max(1) as f64
    }
}

impl<'a> Watch<'a> {
    pub(super) fn new(interrupted: &'a AtomicBool) -> Watch<'a> {
        Watch {
            interrupted,
            ranks: 0,
            begun: None,
            last: Time::ZERO,
            ran: Vec::new(),
            saved: BTreeMap::new(),
            state_bytes: Vec::new(),
            checkpoints: BTreeMap::new(),
            failed: BTreeSet::new(),
            ran_before: Vec::new(),
            slot: Position::default(),
            again: Vec::new(),
        }
    }

    /// Returns the observations of a run that has ended.
    pub(super) fn close(self) -> Watched {
        let (seconds, redone) = (self.seconds(), self.redone());
        Watched { seconds, checkpoints: self.checkpoints().collect(), redone, state_bytes: self.state_bytes }
    }

    /// Returns the seconds from the start of the application to the end of the run.
    fn seconds(&self) -> f64 {
        self.begun.map_or(0.0, |it| self.last.since(it).as_secs_f64())
    }

    /// Returns, for each complete checkpoint before the last checkpoint of the run, its duration in milliseconds and
    /// its number of messages. The newest comes first.
    fn checkpoints(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let is_complete = |it: &&Checkpoint| it.stored >= self.ranks as u64;
        let of = |it: &Checkpoint| (it.last.since(it.requested).as_secs_f64() * 1e3, it.messages);
        self.checkpoints.values().rev().skip(1).filter(is_complete).map(of)
    }

    /// Returns the re-execution that the failure caused in other processes; `None` if nothing failed.
    fn redone(&self) -> Option<Redone> {
        let live = (0..self.ranks).map(|it| ProcessId(it as u32)).filter(|it| !self.failed.contains(it));
        let of = |it: ProcessId| {
            let saved = self.saved.get(&(self.slot, it)).copied().unwrap_or(0);
            (it, self.again[it.index()], self.ran_before[it.index()] - saved)
        };
        (!self.failed.is_empty()).then(|| Redone { live: live.map(of).collect() })
    }

    fn note(&mut self, Record { process, at, fact, .. }: &Record) {
        let rank = process.index();
        match fact {
            Fact::Begun => self.begun = Some(*at),
            Fact::Ran { .. } => self.ran[rank] += 1,
            Fact::Rerun { .. } => self.again[rank] += 1,
            Fact::Saved(saved) if saved.0.owner == *process && rank < self.ranks => {
                let (name, _, bytes) = **saved;
                self.saved.insert((name.position(), *process), self.ran[rank]);
                self.state_bytes.push(bytes);
            }
            Fact::Durable(name) if name.owner == *process => {
                if let Some(it) = self.checkpoints.get_mut(&name.position()) {
                    it.stored += 1;
                }
            }
            Fact::CheckpointMessage { position, .. } => {
                let first = Checkpoint { requested: *at, last: *at, messages: 0, stored: 0 };
                let it = self.checkpoints.entry(*position).or_insert(first);
                it.last = *at;
                it.messages += 1;
            }
            Fact::Failed { process, .. } => {
                if self.failed.is_empty() {
                    self.ran_before = self.ran.clone();
                }
                self.failed.insert(*process);
            }
            Fact::Claim(claim) => {
                if let Claim::Partition(PartitionClaim::RecoveryJoined { slot, .. }) = **claim {
                    self.slot = slot;
                }
            }
            _ => {}
        }
        self.last = *at;
    }
}

impl SimulationObserver for Watch<'_> {
    fn begins(&mut self, manifest: &Manifest) {
        self.ranks = manifest.ranks().count();
        self.ran = vec![0; self.ranks];
        self.again = vec![0; self.ranks];
    }

    fn recorded(&mut self, record: &Record) {
        self.note(record);
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
