//! When the application is over: decided from witnesses, without a race.
//!
//! A rank's witness holds two hashes of multisets: of what it has sent and of what it has delivered. When every rank is
//! finished and the sums over all ranks agree, no message is under way, so that no rank can ever act again. Witnesses
//! taken at different times cannot agree by accident: a message counted on one side only keeps the sums apart.

use faultline_core::{ProcessId, Witness};

/// Which ranks are finished, with what.
#[derive(Debug)]
pub(crate) struct Completion {
    /// The sums of each finished rank, indexed by process.
    finished: Vec<Option<(u64, u64)>>,
    ranks: usize,
    count: usize,
    sent: u64,
    delivered: u64,
}

impl Completion {
    pub(crate) fn new(processes: usize, ranks: usize) -> Completion {
        Completion { finished: vec![None; processes], ranks, count: 0, sent: 0, delivered: 0 }
    }

    /// `rank` is finished in this state.
    pub(crate) fn finished(&mut self, rank: ProcessId, witness: &Witness) {
        self.unfinished(rank);
        self.finished[rank.index()] = Some((witness.sent, witness.delivered));
        self.count += 1;
        self.sent = self.sent.wrapping_add(witness.sent);
        self.delivered = self.delivered.wrapping_add(witness.delivered);
    }

    /// `rank` has gone back, or has died.
    pub(crate) fn unfinished(&mut self, rank: ProcessId) {
        if let Some((sent, delivered)) = self.finished[rank.index()].take() {
            self.count -= 1;
            self.sent = self.sent.wrapping_sub(sent);
            self.delivered = self.delivered.wrapping_sub(delivered);
        }
    }

    /// Whether every rank is finished and no message is under way.
    pub(crate) fn is_complete(&self) -> bool {
        self.count == self.ranks && self.sent == self.delivered
    }
}
