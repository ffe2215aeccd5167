//! Clusters that join and leave (section 7: "we want to manage dynamism").
//!
//! A cluster that joins has no past: until then its entries are zero, collections do not wait for it, and nobody alerts it.
//! What it has to know is which rollbacks there were: the others alert it as soon as it is there.
//!
//! A cluster leaves when its application has left the program. It takes a last checkpoint, and goes on taking part in
//! everything until nobody can want anything of it any more: collections have shown that no rollback goes behind the last
//! checkpoint, and that none undoes the delivery of a message that it sent. Then its coordinator lets it go. The supervisor
//! decides, says so to everybody, and ends its processes; a process that died meanwhile recovers first, with its cluster.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use faultline_core::{Claim, ClusterId, Incarnation, Membership, Presence, ProcessId, Scope, Time};

use super::config::Defect;
use super::message::Control;
use super::{Desk, Hc3i, Phase};

/// What the coordinator of a cluster that leaves has heard in this incarnation.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    /// Members whose applications have left the program.
    left: BTreeSet<ProcessId>,
    /// A checkpoint was begun since all of them have.
    saved_all: bool,
    /// Members of which nobody can want anything any more.
    unwanted: BTreeSet<ProcessId>,
    released: bool,
}

impl Leaving {
    /// A checkpoint of this many members begins.
    pub(super) fn checkpoint_begins(&mut self, members: usize) {
        self.saved_all |= self.left.len() == members;
    }
}

impl Hc3i {
    pub(super) fn presence(&self, cluster: ClusterId) -> Presence {
        match self.config.scope {
            Scope::Cluster => self.membership.presence(cluster),
            Scope::Process | Scope::Federation => Presence::Permanent,
        }
    }

    /// The other clusters that are there.
    pub(super) fn others(&self) -> impl Iterator<Item = ClusterId> + '_ {
        self.clusters().filter(|&it| it != self.cluster && self.presence(it).is_there())
    }

    /// Looks which clusters have joined or left.
    pub(super) fn watch_presence(&mut self, old: &Membership, now: Time, host: &mut Desk) {
        if self.config.scope != Scope::Cluster || Arc::ptr_eq(&old.clusters, &self.membership.clusters) {
            return;
        }
        let mut purges = false;
        for cluster in self.clusters() {
            match (old.clusters[cluster.index()].presence, self.presence(cluster)) {
                (was, is) if was == is => {}
                (_, Presence::Left) => {
                    purges = true;
                    self.alert_no_more(cluster, now, host);
                }
                (Presence::Awaited, _) if cluster != self.cluster => self.greet(cluster, now, host),
                _ => {}
            }
        }
        if purges {
            self.forget_log_for_left();
            self.purge_left(host);
        }
    }

    /// Coordinator: a cluster that joins has to know the rollbacks before. During a recovery its own turn will come.
    fn greet(&mut self, cluster: ClusterId, now: Time, host: &mut Desk) {
        let has_past = self.history.known(self.cluster) > Incarnation(0);
        let is_recovering = matches!(self.phase, Phase::Recovering(_));
        if self.coordinates() && has_past && !is_recovering && !self.has(Defect::NewcomersNotTold) {
            self.alert_also(cluster, now, host);
        }
    }

    fn some_have_left(&self) -> bool {
        self.membership.clusters.iter().any(|it| it.presence == Presence::Left)
    }

    /// Whatever a cluster that has left delivered, it has delivered for good.
    pub(super) fn forget_log_for_left(&mut self) {
        if self.some_have_left() {
            let membership = self.membership.clone();
            Arc::make_mut(&mut self.log).retain(|entry| membership.is_present(entry.id.to));
        }
    }

    /// Holder: copies of parts of clusters that have left are of no use.
    pub(super) fn purge_left(&mut self, host: &mut Desk) {
        if self.some_have_left() {
            let membership = self.membership.clone();
            self.copies.purge(|owner| !membership.is_present(owner), host);
        }
    }

    /// Member: the application has left the program.
    pub(super) fn application_left(&mut self, now: Time, host: &mut Desk) {
        self.left = true;
        let incarnation = self.position.incarnation;
        self.tell_coordinator(Control::Left { incarnation }, now, host);
    }

    /// Coordinator: a member's application has left the program.
    pub(super) fn member_left(
        &mut self,
        from: ProcessId,
        incarnation: Incarnation,
        now: Time,
        host: &mut Desk,
    ) {
        if self.hears(incarnation) {
            self.coordination().leaving.left.insert(from);
            self.take_last_checkpoint(now, host);
        }
    }

    /// Coordinator: what a member says of itself holds until the next rollback.
    fn hears(&self, incarnation: Incarnation) -> bool {
        incarnation == self.position.incarnation && !matches!(self.phase, Phase::Recovering(_))
    }

    /// Coordinator: when all applications have left the program, there is one more checkpoint.
    pub(super) fn take_last_checkpoint(&mut self, now: Time, host: &mut Desk) {
        let members = self.members.len();
        let last = |leaving: &Leaving| leaving.left.len() == members && !leaving.saved_all;
        if self.coordination.as_ref().is_some_and(|it| last(&it.leaving)) {
            self.begin_checkpoint(false, now, host);
        }
    }

    /// Member: says so when nobody can want anything of it any more: no rollback goes behind its leaving, and none undoes the
    /// delivery of a message that it sent.
    pub(super) fn say_if_unwanted(&mut self, now: Time, host: &mut Desk) {
        let Some(left_at) = self.left_at else {
            return;
        };
        let is_for_good = self.kept.first().is_some_and(|kept| kept.position.sn >= left_at);
        if (is_for_good || self.has(Defect::LeavesUndoable))
            && (self.log.len() == 0 || self.has(Defect::LeavesWithLog))
        {
            let incarnation = self.position.incarnation;
            self.tell_coordinator(Control::Unwanted { incarnation }, now, host);
        }
    }

    /// Coordinator: nobody can want anything of a member any more.
    pub(super) fn member_unwanted(&mut self, from: ProcessId, incarnation: Incarnation, host: &mut Desk) {
        if self.hears(incarnation) {
            self.coordination().leaving.unwanted.insert(from);
            self.maybe_release(host);
        }
    }

    /// Coordinator: lets its cluster go, once nobody can want anything of it, and all know which of its messages were undone.
    pub(super) fn maybe_release(&mut self, host: &mut Desk) {
        let members = self.members.len();
        let is_settled = self.settled && !self.alerts_are_outstanding();
        let cluster = self.cluster;
        let leaving = &mut self.coordination().leaving;
        if is_settled && leaving.unwanted.len() == members && !leaving.released {
            leaving.released = true;
            host.claim(Claim::Released { cluster });
        }
    }
}
