//! Collecting answers from a group while a checkpoint is being taken.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use faultline_core::ProcessId;

use super::Checkpoint;

/// Number of messages for each receiver, in ascending order of receivers. Receivers without messages may be missing.
pub(crate) type Counts = Arc<[(ProcessId, u64)]>;

/// The answers of a group while a checkpoint is in progress, in two rounds. In the first, which only some protocols
/// need, every member reports how many messages it had sent to each receiver before it saved its state; the sums count
/// the messages that have arrived or are in transit. In the second, every member reports that its part is durable.
#[derive(Clone, Debug)]
pub(crate) struct Gathering {
    checkpoint: Checkpoint,
    members: Arc<[ProcessId]>,
    /// Members that have not answered in this round.
    awaited: BTreeSet<ProcessId>,
    sent: BTreeMap<ProcessId, u64>,
    round: Round,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Saving,
    Draining,
    Over,
}

impl Gathering {
    /// Begins to wait for the answers of `members`.
    pub(crate) fn new(checkpoint: Checkpoint, members: Arc<[ProcessId]>) -> Gathering {
        let awaited = members.iter().copied().collect();
        Gathering { checkpoint, members, awaited, sent: BTreeMap::new(), round: Round::Saving }
    }

    /// Begins to wait for the parts of `members`, without the first round.
    pub(crate) fn of_parts(checkpoint: Checkpoint, members: Arc<[ProcessId]>) -> Gathering {
        Gathering { round: Round::Draining, ..Gathering::new(checkpoint, members) }
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.checkpoint
    }

    /// Handles a member's report that it has saved its state, after sending the messages counted in `sent`. Returns the
    /// sums once all members have answered.
    pub(crate) fn saved(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u64)],
    ) -> Option<Counts> {
        if !self.answers(from, checkpoint, Round::Saving) {
            return None;
        }
        for &(receiver, count) in sent {
            *self.sent.entry(receiver).or_default() += count;
        }
        self.awaited.is_empty().then(|| self.counted())
    }

    /// Begins the second round. Returns the sums of the first.
    pub(crate) fn counted(&mut self) -> Counts {
        self.round = Round::Draining;
        self.awaited = self.members.iter().copied().collect();
        self.sent.iter().map(|(&receiver, &count)| (receiver, count)).collect()
    }

    /// Handles a member's report that its part is durable. Returns whether all parts are now durable.
    pub(crate) fn drained(&mut self, from: ProcessId, checkpoint: Checkpoint) -> bool {
        let is_last = self.answers(from, checkpoint, Round::Draining) && self.awaited.is_empty();
        if is_last {
            self.round = Round::Over;
        }
        is_last
    }

    /// Returns whether this checkpoint is in its first round.
    pub(crate) fn is_saving(&self, checkpoint: Checkpoint) -> bool {
        self.checkpoint == checkpoint && self.round == Round::Saving
    }

    /// Returns whether all parts are durable.
    pub(crate) fn is_over(&self) -> bool {
        self.round == Round::Over
    }

    /// Records a member's answer. Returns `false` if the answer belongs to another checkpoint or round, or is not the
    /// member's first.
    fn answers(&mut self, from: ProcessId, checkpoint: Checkpoint, round: Round) -> bool {
        self.checkpoint == checkpoint && self.round == round && self.awaited.remove(&from)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::name;
    use super::*;

    const MEMBERS: [ProcessId; 2] = [ProcessId(1), ProcessId(2)];

    #[test]
    fn the_sums_are_known_once_all_members_have_saved() {
        let (this, other) = (Checkpoint::from(name(1, 2)), Checkpoint::from(name(1, 3)));
        let mut gathering = Gathering::new(this, MEMBERS.into());
        assert_eq!(gathering.saved(MEMBERS[0], this, &[(MEMBERS[1], 3)]), None);
        assert_eq!(gathering.saved(MEMBERS[0], this, &[(MEMBERS[1], 3)]), None, "an answer counts once");
        assert_eq!(gathering.saved(MEMBERS[1], other, &[]), None, "an answer to another checkpoint does not");
        assert!(!gathering.drained(MEMBERS[0], this), "no part can be durable yet");
        let counts = gathering.saved(MEMBERS[1], this, &[(MEMBERS[1], 1), (MEMBERS[0], 2)]);
        assert_eq!(counts.as_deref(), Some(&[(MEMBERS[0], 2), (MEMBERS[1], 4)][..]));
    }

    #[test]
    fn a_checkpoint_is_complete_once_all_parts_are_durable() {
        let this = Checkpoint::from(name(1, 2));
        let mut gathering = Gathering::new(this, MEMBERS.into());
        MEMBERS.iter().for_each(|&it| drop(gathering.saved(it, this, &[])));
        assert!(!gathering.drained(MEMBERS[0], this) && !gathering.drained(MEMBERS[0], this));
        assert!(!gathering.is_over());
        assert!(gathering.drained(MEMBERS[1], this));
        assert!(gathering.is_over());
        assert!(!gathering.drained(MEMBERS[1], this), "the checkpoint completes once");
    }
}
