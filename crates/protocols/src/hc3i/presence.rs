//! Clusters that join and leave (section 7: "we want to manage dynamism").
//!
//! A cluster that joins has no history. Until it joins, its entries in all vectors are zero, collections do not wait
//! for it, and no cluster alerts it. It must learn about earlier rollbacks, so the others alert it as soon as it is
//! present.
//!
//! A cluster can leave when its part of the application has finished. It takes a last checkpoint, and continues to take
//! part in everything until no process can still need anything from it: collections have shown that no rollback reaches
//! back beyond the last checkpoint, and that none undoes the delivery of a message that it sent. Its coordinator then
//! releases it. The supervisor records that the cluster has left, announces this, and ends the cluster's processes. A
//! process that failed in the meantime recovers first, together with its cluster.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use faultline_core::{Claim, ClusterId, GroupId, Incarnation, Membership, Presence, ProcessId, Time};

use super::config::Rule;
use super::message::Control;
use super::{Hc3i, Phase, ProtocolHost};

/// The reports that the coordinator of a leaving cluster has received in this incarnation.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    /// Members whose applications have left the program.
    left: BTreeSet<ProcessId>,
    /// Whether a checkpoint was begun after all members' applications had left.
    saved_all: bool,
    /// Members from which no process can still need anything.
    unwanted: BTreeSet<ProcessId>,
    released: bool,
}

impl Leaving {
    /// Records that a checkpoint of `members` processes begins.
    pub(super) fn checkpoint_begins(&mut self, members: usize) {
        self.saved_all |= self.left.len() == members;
    }
}

impl Hc3i {
    pub(super) fn presence(&self, cluster: GroupId) -> Presence {
        self.membership.presence(ClusterId(cluster.0))
    }

    /// Iterates over the other clusters that are present.
    pub(super) fn others(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.clusters().filter(|&it| it != self.cluster && self.presence(it).is_present())
    }

    /// Alerts clusters that have joined, and removes what was kept for clusters that have left.
    pub(super) fn watch_presence(&mut self, old: &Membership, now: Time, host: &mut ProtocolHost) {
        if Arc::ptr_eq(&old.clusters, &self.membership.clusters) {
            return;
        }
        let mut purges = false;
        for cluster in self.clusters() {
            match (old.presence(ClusterId(cluster.0)), self.presence(cluster)) {
                (was, is) if was == is => {}
                (_, Presence::Left) => {
                    purges = true;
                    self.stop_alerting(cluster, now, host);
                }
                (Presence::Awaited, _) if cluster != self.cluster => self.inform_newcomer(cluster, now, host),
                _ => {}
            }
        }
        if purges {
            self.remove_log_of_departed();
            self.purge_left(host);
        }
    }

    /// Tells a joining cluster about earlier rollbacks of this cluster. During a recovery, the alerts at the end of the
    /// recovery do this. Has an effect only on the coordinator.
    fn inform_newcomer(&mut self, cluster: GroupId, now: Time, host: &mut ProtocolHost) {
        let has_past = self.history.known(self.cluster) > Incarnation(0);
        let is_recovering = matches!(self.phase, Phase::Recovering(_));
        if self.coordinates() && has_past && !is_recovering && self.obeys(Rule::TellsNewcomers) {
            self.start_alerting(cluster, now, host);
        }
    }

    fn some_have_left(&self) -> bool {
        self.membership.clusters.iter().any(|it| it.presence == Presence::Left)
    }

    /// Removes logged messages to clusters that have left, since their delivery cannot be undone.
    pub(super) fn remove_log_of_departed(&mut self) {
        if self.some_have_left() {
            let membership = self.membership.clone();
            Arc::make_mut(&mut self.log).retain(|entry| membership.is_present(entry.id.to));
        }
    }

    /// Removes the replicas that this process keeps for clusters that have left.
    pub(super) fn purge_left(&mut self, host: &mut ProtocolHost) {
        if self.some_have_left() {
            let membership = self.membership.clone();
            self.copies.purge(|owner| !membership.is_present(owner), host);
        }
    }

    /// Handles the departure of this member's application from the program.
    pub(super) fn application_left(&mut self, now: Time, host: &mut ProtocolHost) {
        self.left = true;
        let incarnation = self.position.incarnation;
        self.send_to_coordinator(Control::Left { incarnation }, now, host);
    }

    /// Records that a member's application has left the program. Runs on the coordinator.
    pub(super) fn member_left(
        &mut self,
        from: ProcessId,
        incarnation: Incarnation,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if self.is_current(incarnation) {
            self.coordination().leaving.left.insert(from);
            self.take_last_checkpoint(now, host);
        }
    }

    /// Returns whether a member's report is current. A report remains valid until the next rollback.
    fn is_current(&self, incarnation: Incarnation) -> bool {
        incarnation == self.position.incarnation && !matches!(self.phase, Phase::Recovering(_))
    }

    /// Takes one more checkpoint once all applications have left the program. Has an effect only on the coordinator.
    pub(super) fn take_last_checkpoint(&mut self, now: Time, host: &mut ProtocolHost) {
        let members = self.members.len();
        let last = |leaving: &Leaving| leaving.left.len() == members && !leaving.saved_all;
        if self.coordination.as_ref().is_some_and(|it| last(&it.leaving)) {
            self.begin_checkpoint(false, now, host);
        }
    }

    /// Reports to the coordinator if no process can still need anything from this member: no rollback reaches back
    /// beyond its departure, and none undoes the delivery of a message that it sent.
    pub(super) fn report_if_unneeded(&mut self, now: Time, host: &mut ProtocolHost) {
        let Some(left_at) = self.left_at else {
            return;
        };
        let is_permanent = self.kept.first().is_some_and(|kept| kept.position.sn >= left_at);
        if (is_permanent || !self.obeys(Rule::LeavesPermanently))
            && (self.log.is_empty() || !self.obeys(Rule::LeavesUnlogged))
        {
            let incarnation = self.position.incarnation;
            self.send_to_coordinator(Control::Unwanted { incarnation }, now, host);
        }
    }

    /// Records that no process can still need anything from a member. Runs on the coordinator.
    pub(super) fn member_unwanted(
        &mut self,
        from: ProcessId,
        incarnation: Incarnation,
        host: &mut ProtocolHost,
    ) {
        if self.is_current(incarnation) {
            self.coordination().leaving.unwanted.insert(from);
            self.maybe_release(host);
        }
    }

    /// Releases the coordinator's cluster once no process can need anything from it, and all clusters know which of its
    /// messages were undone.
    pub(super) fn maybe_release(&mut self, host: &mut ProtocolHost) {
        let members = self.members.len();
        let is_settled = self.settled && !self.alerts_are_outstanding();
        let cluster = self.membership.cluster_of(self.me);
        let leaving = &mut self.coordination().leaving;
        if is_settled && leaving.unwanted.len() == members && !leaving.released {
            leaving.released = true;
            host.claim(Claim::Released { cluster });
        }
    }
}
