//! Recovery pair by pair, without a recovery process, phases or rounds (SPBC; S3 to S5 of `docs/baselines.md`).
//!
//! Ropars, Martsinkevich, Guermouche, Schiper, Cappello: *SPBC: Leveraging the Characteristics of MPI HPC Applications for
//! Scalable Checkpointing* (2013). Its program is channel-deterministic: what goes over each channel does not depend on what
//! goes over others. So each channel can be taken up again by itself: whenever the cluster at either end has failed, both
//! ends tell each other how the channel stands, and until they have, messages are only logged.

use faultline_core::{Incarnation, MessageId, ProcessId, To};

use super::config::{Defect, Recovery};
use super::message::{Control, Covered};
use super::{Desk, Rank, State};

/// In which incarnations the clusters at both ends of a channel are: the own one and the peer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    own: Incarnation,
    theirs: Incarnation,
}

impl Rank {
    pub(super) fn recovers_in_pairs(&self) -> bool {
        self.config.recovery != Recovery::Phases
    }

    /// Closes the channels at an end of which a cluster has failed, and tells the peers that live how they stand (S3).
    pub(super) fn meet_peers(&mut self, host: &mut Desk) {
        if !self.recovers_in_pairs() || matches!(self.state, State::Restoring(_)) {
            return;
        }
        let own = self.position.incarnation;
        let is_outside = |peer: &ProcessId| self.view.cluster_of(*peer) != self.cluster;
        for peer in self.view.ranks().filter(is_outside) {
            let pair = Pair { own, theirs: self.view.incarnation(self.view.cluster_of(peer)) };
            let present = self.channels.get(&peer).map_or_else(Covered::default, |it| it.covered());
            let line = self.lines.entry(peer).or_default();
            if line.pair != pair {
                (line.pair, line.is_told) = (pair, false);
                line.undecided.get_or_insert(present.sent);
            }
            // Whoever is dead is told in its next life.
            if line.undecided.is_some() && !line.is_told && self.view.is_up(peer) {
                line.is_told = true;
                let committed = self.committed.get(&peer).copied().unwrap_or_default();
                let Pair { own, theirs } = pair;
                host.control(To::One(peer), Control::Meet { from: own, to: theirs, present, committed });
            }
        }
    }

    /// A peer says how the channels between us stand: what it lacks goes to it, what it has does not go again (S4).
    pub(super) fn met(
        &mut self,
        peer: ProcessId,
        from: Incarnation,
        to: Incarnation,
        (present, committed): (Covered, Covered),
        host: &mut Desk,
    ) {
        let theirs = self.view.incarnation(self.view.cluster_of(peer));
        if (from < theirs || to < self.position.incarnation) && !self.has(Defect::OlderMeetingAccepted) {
            return;
        }
        // It may be replayed before this process has looked at what has changed: an answer to no question would be lost.
        self.meet_peers(host);
        self.settle(peer, committed);
        let channel = &self.channels[&peer];
        let (sent, settled) = (channel.sent, channel.settled);
        let line = self.lines.entry(peer).or_default();
        let Some(undecided) = line.undecided.take() else { return };
        line.next = present.received.max(settled.received);
        line.fresh = undecided;
        let next = line.next;
        for number in undecided..next.min(sent) {
            host.suppress(MessageId { from: self.me, to: peer, incarnation: Incarnation(0), number });
        }
        self.pump(peer, host);
    }
}
