//! Decides from witnesses, and without races, when the application is complete.
//!
//! A rank's witness contains hashes of two multisets: of the messages it has sent and of those it has
//! delivered. Once every rank has finished and the sums over all ranks agree, no message is in transit, so no
//! rank can ever act again. Witnesses taken at different times cannot agree by accident, because a message
//! counted on only one side makes the sums differ.
//!
//! Reports from different processes may overtake each other. Once one member of a group reports that it resumed
//! under a new incarnation, reports by the other members from an older incarnation no longer count, even
//! before these members report the rollback themselves.

use std::collections::BTreeMap;

use faultline_core::{GroupId, Incarnation, ProcessId, Witness};

/// The ranks that have finished, and the sums of their hashes.
#[derive(Debug)]
pub(crate) struct Completion {
    /// Hashes of each finished rank (sent, delivered), indexed by process.
    finished: Vec<Option<(u64, u64)>>,
    /// Each process's group, and the incarnation under which the process last restored a state, indexed by process.
    restored: Vec<(GroupId, Incarnation)>,
    /// The newest incarnation of each group.
    newest: BTreeMap<GroupId, Incarnation>,
    ranks: usize,
    count: usize,
    sent: u64,
    delivered: u64,
}

impl Completion {
    /// Creates the state for processes that belong to these groups. `ranks` is the number of ranks among them.
    pub(crate) fn new(groups: impl Iterator<Item = GroupId>, ranks: usize) -> Completion {
        let restored: Vec<_> = groups.map(|group| (group, Incarnation(0))).collect();
        let finished = vec![None; restored.len()];
        Completion { finished, restored, newest: BTreeMap::new(), ranks, count: 0, sent: 0, delivered: 0 }
    }

    /// Records that `rank` has finished in the state that `witness` identifies.
    pub(crate) fn finished(&mut self, rank: ProcessId, witness: &Witness) {
        self.unfinished(rank);
        if self.is_outdated(rank) {
            return;
        }
        self.finished[rank.index()] = Some((witness.sent, witness.delivered));
        self.count += 1;
        self.sent = self.sent.wrapping_add(witness.sent);
        self.delivered = self.delivered.wrapping_add(witness.delivered);
    }

    /// Records that `rank` rolled back and resumed under this incarnation. The other members of its group will
    /// follow.
    pub(crate) fn restored(&mut self, rank: ProcessId, incarnation: Incarnation) {
        self.unfinished(rank);
        let (group, own) = &mut self.restored[rank.index()];
        *own = incarnation;
        let (group, newest) = (*group, self.newest.entry(*group).or_default());
        if incarnation > *newest {
            *newest = incarnation;
            for index in 0..self.restored.len() {
                if self.restored[index].0 == group {
                    self.unfinished(ProcessId(index as u32));
                }
            }
        }
    }

    /// Returns whether another member of the group has rolled back since `rank` last did.
    fn is_outdated(&self, rank: ProcessId) -> bool {
        let (group, incarnation) = self.restored[rank.index()];
        self.newest.get(&group).is_some_and(|&newest| newest > incarnation)
    }

    /// Records that `rank` is no longer finished, for instance because it failed.
    pub(crate) fn unfinished(&mut self, rank: ProcessId) {
        if let Some((sent, delivered)) = self.finished[rank.index()].take() {
            self.count -= 1;
            self.sent = self.sent.wrapping_sub(sent);
            self.delivered = self.delivered.wrapping_sub(delivered);
        }
    }

    /// Records that `rank` will have no further life. The other ranks can finish without it.
    pub(crate) fn without(&mut self, rank: ProcessId) {
        self.unfinished(rank);
        self.ranks -= 1;
    }

    /// Returns whether `rank` has finished.
    pub(crate) fn is_finished(&self, rank: ProcessId) -> bool {
        self.finished[rank.index()].is_some()
    }

    /// Returns whether every rank has finished and no message is in transit.
    pub(crate) fn is_complete(&self) -> bool {
        self.count == self.ranks && self.sent == self.delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMS: Witness =
        Witness { life: faultline_core::Life(1), upto: faultline_core::FactNo(0), sent: 0, delivered: 0 };

    /// Returns the state with two finished ranks of one group, and one finished rank of another.
    fn finished() -> Completion {
        let clusters = [GroupId(0), GroupId(0), GroupId(1)];
        let mut completion = Completion::new(clusters.into_iter(), 3);
        (0..3).for_each(|rank| completion.finished(ProcessId(rank), &SUMS));
        assert!(completion.is_complete());
        completion
    }

    #[test]
    fn a_rank_that_finished_before_its_group_rolled_back_is_not_finished() {
        let mut completion = finished();
        completion.restored(ProcessId(0), Incarnation(1));
        completion.finished(ProcessId(0), &SUMS);
        assert!(!completion.is_complete(), "the other rank also rolls back, but has not reported it yet");
        completion.finished(ProcessId(1), &SUMS);
        assert!(!completion.is_complete(), "this report precedes the rollback");
        completion.restored(ProcessId(1), Incarnation(1));
        completion.finished(ProcessId(1), &SUMS);
        assert!(completion.is_complete());
    }

    #[test]
    fn other_groups_are_unaffected() {
        let mut completion = finished();
        completion.restored(ProcessId(2), Incarnation(1));
        completion.finished(ProcessId(2), &SUMS);
        assert!(completion.is_complete());
    }
}
