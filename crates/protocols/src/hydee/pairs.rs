//! Recovery pair by pair, without a recovery process, phases or rounds (SPBC; S3 to S5 of `docs/baselines.md`).
//!
//! Ropars, Martsinkevich, Guermouche, Schiper, Cappello: *SPBC: Leveraging the Characteristics of MPI HPC
//! Applications for Scalable Checkpointing* (2013). The program is channel-deterministic: the messages of a channel
//! do not depend on those of other channels. Each channel can therefore resume on its own. Whenever the cluster at
//! either end has failed, both ends report the state of the channel to each other; until then, messages are only
//! logged.

use faultline_core::{Incarnation, MessageId, ProcessId, To};

use super::config::{Defect, Recovery};
use super::message::{Control, Covered};
use super::{ProtocolHost, Rank, RankState};

/// Incarnations of the clusters at both ends of a channel: this process's cluster and the peer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    own: Incarnation,
    theirs: Incarnation,
}

impl Rank {
    pub(super) fn recovers_in_pairs(&self) -> bool {
        self.config.recovery != Recovery::Phases
    }

    /// Closes the channels to and from failed clusters, and reports their state to the live peers (S3).
    pub(super) fn meet_peers(&mut self, host: &mut ProtocolHost) {
        if !self.recovers_in_pairs() || matches!(self.state, RankState::Restoring) {
            return;
        }
        let own = self.position.incarnation;
        let is_outside = |peer: &ProcessId| self.group.view.group_of(*peer) != self.group.number;
        for peer in self.group.view.ranks().filter(is_outside) {
            let pair = Pair { own, theirs: self.group.view.incarnation(self.group.view.group_of(peer)) };
            let present = self.channels.get(&peer).map_or_else(Covered::default, |it| it.covered());
            let wire = self.wires.entry(peer).or_default();
            if wire.pair != pair {
                (wire.pair, wire.is_told) = (pair, false);
                wire.undecided.get_or_insert(present.sent);
            }
            // A peer that is down is informed in its next life.
            if wire.undecided.is_some() && !wire.is_told && self.group.view.is_up(peer) {
                wire.is_told = true;
                let committed = self.committed.get(&peer).copied().unwrap_or_default();
                let Pair { own, theirs } = pair;
                host.control(To::One(peer), Control::Meet { from: own, to: theirs, present, committed });
            }
        }
    }

    /// Handles a peer's report on the shared channels: re-sends what it lacks, and suppresses what it has (S4).
    pub(super) fn met(
        &mut self,
        peer: ProcessId,
        from: Incarnation,
        to: Incarnation,
        (present, committed): (Covered, Covered),
        host: &mut ProtocolHost,
    ) {
        let theirs = self.group.view.incarnation(self.group.view.group_of(peer));
        if (from < theirs || to < self.position.incarnation) && !self.has(Defect::OlderMeetingAccepted) {
            return;
        }
        // The report may be replayed before this process has handled the failure. An answer to a question not asked
        // yet would be lost.
        self.meet_peers(host);
        self.settle(peer, committed);
        let channel = &self.channels[&peer];
        let (sent, settled) = (channel.sent, channel.settled);
        let wire = self.wires.entry(peer).or_default();
        let Some(undecided) = wire.undecided.take() else { return };
        wire.next = present.received.max(settled.received);
        wire.fresh = undecided;
        let next = wire.next;
        for number in undecided..next.min(sent) {
            host.suppress(MessageId { from: self.group.me, to: peer, incarnation: Incarnation(0), number });
        }
        self.pump(peer, host);
    }
}
