//! Resuming each channel between groups separately, once both of its ends know its state.
//!
//! In a channel-deterministic program, the messages of a channel do not depend on those of other channels. Therefore,
//! the order in which channels resume does not matter, and a process only has to exchange information with its peer
//! (Ropars, Martsinkevich, Guermouche, Schiper, Cappello: *SPBC*, SC 2013). Whenever the group at either end of a
//! channel has failed, both ends report the state of the channel to each other. Until both have reported, messages are
//! only logged.

use alloc::collections::BTreeMap;

use faultline_core::{Host, Incarnation, ProcessId, To};
use serde::{Deserialize, Serialize};

use super::group::Group;
use super::logs::{Covered, Logging, Logs};

/// The state of the channels between two processes. Each of them sends it to the other if the group of either one has
/// failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelReport {
    /// Incarnation of the sender's group.
    pub from: Incarnation,
    /// Incarnation of the receiver's group.
    pub to: Incarnation,
    /// Current counts of the channels.
    pub present: Covered,
    /// Counts at the sender's last committed checkpoint.
    pub committed: Covered,
}

/// The state of the channels to and from each peer.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    pairs: BTreeMap<ProcessId, Pair>,
    rules: PairRules,
}

/// The channels between this process and a peer in another group.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// Incarnation of this process's group.
    own: Incarnation,
    /// Incarnation of the peer's group.
    theirs: Incarnation,
    /// Whether this end has reported the state of the channels under these incarnations.
    is_told: bool,
    /// First message that the peer may or may not have. This one and all later ones are only logged.
    undecided: Option<u32>,
}

/// The rules of the sub-machine. Tests can disable each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairRules {
    /// Messages wait until both ends have reported the state of their channel.
    pub(crate) waits: bool,
    /// A report from before a failure is dropped.
    pub(crate) drops_older: bool,
}

impl PairRules {
    /// All rules are obeyed.
    pub(crate) const ALL: PairRules = PairRules { waits: true, drops_older: true };
}

impl Pairs {
    pub(crate) fn new(rules: PairRules) -> Pairs {
        Pairs { pairs: BTreeMap::new(), rules }
    }

    /// Returns whether it is known which messages the peer has. Only then can the others be transmitted.
    pub(crate) fn is_decided(&self, peer: ProcessId) -> bool {
        !self.rules.waits || self.pairs.get(&peer).is_none_or(|pair| pair.undecided.is_none())
    }

    /// Handles the restoration of a checkpoint with these channels: their peers may have messages that this process has
    /// yet to repeat.
    pub(crate) fn restore<P: Logging>(&mut self, logs: &Logs<P>) {
        let undecided = |peer| Pair { undecided: Some(logs.present(peer).sent), ..Pair::default() };
        self.pairs = logs.peers().into_iter().map(|peer| (peer, undecided(peer))).collect();
    }

    /// Closes the channels to and from groups that have failed, and reports their state to the live peers. Call this
    /// after each change in the membership, and after a rollback.
    pub(crate) fn report<P>(&mut self, group: &Group<P>, logs: &Logs<P>, host: &mut dyn Host<P>)
    where
        P: Logging<Control: From<ChannelReport>>,
    {
        if group.is_recovering() {
            return; // The state of the channels is about to be replaced.
        }
        let own = group.incarnation;
        let is_outside = |peer: &ProcessId| group.view.group_of(*peer) != group.number;
        for peer in group.view.ranks().filter(is_outside) {
            let theirs = group.view.incarnation(group.view.group_of(peer));
            let present = logs.present(peer);
            let pair = self.pairs.entry(peer).or_default();
            if pair.own != own || pair.theirs != theirs {
                let undecided = pair.undecided.or(Some(present.sent));
                *pair = Pair { own, theirs, is_told: false, undecided };
            }
            // A peer that is down is informed in its next life.
            if pair.undecided.is_some() && !pair.is_told && group.view.is_up(peer) {
                pair.is_told = true;
                let committed = logs.committed(peer);
                host.control(
                    To::One(peer),
                    ChannelReport { from: own, to: theirs, present, committed }.into(),
                );
            }
        }
    }

    /// Returns whether a peer's report must wait, because the peer knows of a failure that this process has not
    /// learned of, or has not recovered from.
    pub(crate) fn is_early<P: Logging>(
        &self,
        group: &Group<P>,
        peer: ProcessId,
        report: &ChannelReport,
    ) -> bool {
        let theirs = group.view.incarnation(group.view.group_of(peer));
        report.from > theirs || report.to > group.incarnation
    }

    /// Handles a peer's report that is not early. Returns whether the channel resumes: messages that the peer lacks can
    /// be sent to it, in order, and those that it has are suppressed.
    pub(crate) fn reported<P>(
        &mut self,
        group: &Group<P>,
        logs: &mut Logs<P>,
        peer: ProcessId,
        report: ChannelReport,
        host: &mut dyn Host<P>,
    ) -> bool
    where
        P: Logging<Control: From<ChannelReport>>,
    {
        let ChannelReport { from, to, present, committed } = report;
        let theirs = group.view.incarnation(group.view.group_of(peer));
        if (from < theirs || to < group.incarnation) && self.rules.drops_older {
            return false;
        }
        // The peer's report may arrive before this process has reacted to the failure that caused it. A report on a
        // channel that has not been closed would be ignored.
        self.report(group, logs, host);
        logs.settle(peer, committed);
        let channel = &logs.channels[&peer];
        let (sent, settled) = (channel.sent, channel.settled);
        let Some(undecided) = self.pairs.entry(peer).or_default().undecided.take() else { return false };
        let next = present.received.max(settled.received);
        logs.resume(group, peer, next, undecided);
        logs.suppress(group.me, peer, undecided..next.min(sent), host);
        true
    }
}
