//! Which clusters are there: one joins at its time, when all its processes are ready, and leaves when its protocol says that
//! nobody can want anything of it any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use faultline_core::{ClusterId, Fact, Life, Presence, ProcessId, StorageFate};

use crate::interface::Order;
use crate::supervisor::{State, Supervisor};

/// Clusters whose presence is about to change.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Their time has come; not all of their processes are ready.
    to_join: BTreeSet<ClusterId>,
    /// Their protocol lets them go. Holds as long as none of their processes dies: one that did recovers first.
    to_leave: BTreeSet<ClusterId>,
}

impl Waiting {
    /// A process of `cluster` has died.
    pub(crate) fn stays(&mut self, cluster: ClusterId) {
        self.to_leave.remove(&cluster);
    }
}

impl Supervisor {
    /// Whether a process belongs to a cluster that has not joined: it is started, and told nothing.
    pub(crate) fn is_awaited(&self, process: ProcessId) -> bool {
        self.membership.presence(self.cluster_of(process)) == Presence::Awaited
    }

    /// The time has come for `cluster`.
    pub(crate) fn joins(&mut self, cluster: ClusterId, out: &mut Vec<Order>) {
        self.presence.to_join.insert(cluster);
        self.try_join(cluster, out);
    }

    /// Announces a cluster that is due, once all its processes can begin at the same time.
    pub(crate) fn try_join(&mut self, cluster: ClusterId, out: &mut Vec<Order>) {
        if !self.presence.to_join.contains(&cluster) || !self.are_all_registered(cluster) {
            return;
        }
        self.presence.to_join.remove(&cluster);
        self.enter(cluster, Presence::Present);
        out.push(Order::State(Fact::Joined(cluster)));
        for &process in self.processes_of(cluster).iter() {
            self.announce_member(process, true);
        }
    }

    /// The protocol lets `cluster` go.
    pub(crate) fn wants_to_leave(&mut self, cluster: ClusterId) {
        if self.membership.presence(cluster) == Presence::Present {
            self.presence.to_leave.insert(cluster);
        }
    }

    /// Ends a cluster that may go, once all its processes have said that they are finished, which may be on its way.
    pub(crate) fn try_leave(&mut self, cluster: ClusterId, out: &mut Vec<Order>) {
        if !self.presence.to_leave.contains(&cluster) || !self.are_all_registered(cluster) {
            return;
        }
        let processes = self.processes_of(cluster);
        if !processes.iter().all(|&it| self.completion.is_finished(it)) {
            return;
        }
        self.presence.to_leave.remove(&cluster);
        self.enter(cluster, Presence::Left);
        out.push(Order::State(Fact::Left(cluster)));
        let mut lives: Vec<(ProcessId, Life)> = Vec::new();
        for &process in processes.iter() {
            self.announce_member(process, false);
            self.silence.forget(process);
            let seat = &mut self.seats[process.index()];
            seat.state = State::Left;
            seat.paused_until = None;
            seat.halted = false;
            lives.push((process, seat.life));
        }
        out.push(Order::Kill { lives, storage: StorageFate::Lost });
    }

    fn enter(&mut self, cluster: ClusterId, presence: Presence) {
        Arc::make_mut(&mut self.membership.clusters)[cluster.index()].presence = presence;
        self.unannounced = true;
    }

    fn are_all_registered(&self, cluster: ClusterId) -> bool {
        self.processes_of(cluster).iter().all(|it| self.seats[it.index()].state == State::Registered)
    }
}
