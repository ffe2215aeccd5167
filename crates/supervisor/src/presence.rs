//! Presence of clusters. A cluster joins at its scheduled time, or once all its processes are ready if that is later.
//! It leaves once its protocol reports that no process can still need anything from it.

use std::collections::BTreeSet;
use std::sync::Arc;

use faultline_core::{Cluster, ClusterId, Fact, Life, Presence, ProcessId, StorageFate};

use crate::interface::Order;
use crate::supervisor::{LifeState, Supervisor};

/// Clusters whose presence is about to change.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Clusters that are due to join, but whose processes are not all ready.
    to_join: BTreeSet<ClusterId>,
    /// Clusters that their protocol has released. A failure of one of their processes revokes the release,
    /// because the process must recover first.
    to_leave: BTreeSet<ClusterId>,
    /// Clusters whose departure was due to be announced before they had joined.
    to_announce: BTreeSet<ClusterId>,
    /// In a planned program, the processes that have received or restored their own partition.
    at_home: BTreeSet<ProcessId>,
}

impl Waiting {
    /// Records that a process of `cluster` failed. The cluster therefore does not leave yet.
    pub(crate) fn stays(&mut self, cluster: ClusterId) {
        self.to_leave.remove(&cluster);
    }

    /// Records that `process` runs its own partition.
    pub(crate) fn runs_own_partition(&mut self, process: ProcessId) {
        self.at_home.insert(process);
    }
}

impl Supervisor {
    /// Returns whether a process belongs to a cluster that has not joined. Such a process is started, but receives no
    /// membership.
    pub(crate) fn is_awaited(&self, process: ProcessId) -> bool {
        self.membership.presence(self.cluster_of(process)) == Presence::Awaited
    }

    /// Returns whether partitions still have to move to clusters that have joined, or away from clusters that leave.
    /// The recovery that moves them may already have begun and undone states that were reported as finished.
    pub(crate) fn are_partitions_moving(&self) -> bool {
        let joins = |id: ClusterId| self.config.joins.iter().any(|(it, _)| *it == id);
        let clusters = (0..).map(ClusterId).zip(self.membership.clusters.iter());
        let is_moving = |(id, cluster): (ClusterId, &Cluster)| {
            let mut staying = cluster.processes.iter().filter(|it| !self.entries[it.index()].gone);
            match cluster.presence {
                Presence::Present => joins(id) && staying.any(|it| !self.presence.at_home.contains(it)),
                Presence::Leaving => staying.next().is_some(),
                Presence::Permanent | Presence::Awaited | Presence::Left => false,
            }
        };
        self.config.is_planned && clusters.into_iter().any(is_moving)
    }

    /// Records that `cluster` is due to join. It joins immediately if all its processes are ready.
    pub(crate) fn joins(&mut self, cluster: ClusterId, out: &mut Vec<Order>) {
        self.presence.to_join.insert(cluster);
        self.try_join(cluster, out);
    }

    /// Announces a cluster that is due to join, provided that all its processes are ready. All of them then
    /// begin at the same time.
    pub(crate) fn try_join(&mut self, cluster: ClusterId, out: &mut Vec<Order>) {
        if !self.presence.to_join.contains(&cluster) || !self.are_all_registered(cluster) {
            return;
        }
        self.presence.to_join.remove(&cluster);
        self.enter(cluster, Presence::Present);
        out.push(Order::Record(Fact::Joined(cluster)));
        for &process in self.processes_of(cluster).iter() {
            let idle_lives = self.entries[process.index()].life.0 - 1;
            Arc::make_mut(&mut self.membership.members)[process.index()].idle_lives = idle_lives;
            self.announce_member(process, true);
        }
        if self.presence.to_announce.remove(&cluster) {
            self.leaves(cluster, out);
        }
    }

    /// Announces that `cluster` is about to leave. Its processes run until the protocol releases them.
    pub(crate) fn leaves(&mut self, cluster: ClusterId, out: &mut Vec<Order>) {
        match self.membership.presence(cluster) {
            Presence::Awaited => drop(self.presence.to_announce.insert(cluster)),
            Presence::Present => {
                self.enter(cluster, Presence::Leaving);
                out.push(Order::Record(Fact::Leaving(cluster)));
            }
            Presence::Permanent | Presence::Leaving | Presence::Left => {}
        }
    }

    /// Records that the protocol has released `cluster`. A cluster whose departure was announced leaves now, unless one
    /// of its processes has failed and not yet restarted: the protocol releases the cluster again after the recovery.
    pub(crate) fn wants_to_leave(&mut self, cluster: ClusterId, out: &mut Vec<Order>) {
        match self.membership.presence(cluster) {
            Presence::Present => drop(self.presence.to_leave.insert(cluster)),
            Presence::Leaving if self.are_all_registered_or_gone(cluster) => {
                let processes = self.processes_of(cluster);
                for process in processes.iter().filter(|it| !self.entries[it.index()].gone) {
                    self.completion.without(*process);
                }
                self.leave(cluster, out);
            }
            _ => {}
        }
    }

    /// Lets a released cluster leave if all its processes have reported that they finished. These reports may still be
    /// in transit when the cluster is released.
    pub(crate) fn try_leave(&mut self, cluster: ClusterId, out: &mut Vec<Order>) {
        if !self.presence.to_leave.contains(&cluster) || !self.are_all_registered(cluster) {
            return;
        }
        let processes = self.processes_of(cluster);
        if !processes.iter().all(|&it| self.completion.is_finished(it)) {
            return;
        }
        self.presence.to_leave.remove(&cluster);
        self.leave(cluster, out);
    }

    /// Ends the processes of a cluster permanently.
    fn leave(&mut self, cluster: ClusterId, out: &mut Vec<Order>) {
        let processes = self.processes_of(cluster);
        self.enter(cluster, Presence::Left);
        out.push(Order::Record(Fact::Left(cluster)));
        let mut lives: Vec<(ProcessId, Life)> = Vec::new();
        for &process in processes.iter() {
            self.announce_member(process, false);
            self.failure_detector.forget(process);
            let entry = &mut self.entries[process.index()];
            let is_running = entry.state == LifeState::Registered;
            entry.state = LifeState::Left;
            if is_running {
                lives.push((process, entry.life));
            }
        }
        out.push(Order::Kill { lives, storage: StorageFate::Lost });
    }

    fn enter(&mut self, cluster: ClusterId, presence: Presence) {
        Arc::make_mut(&mut self.membership.clusters)[cluster.index()].presence = presence;
        self.unannounced = true;
    }

    fn are_all_registered(&self, cluster: ClusterId) -> bool {
        self.processes_of(cluster).iter().all(|it| self.entries[it.index()].state == LifeState::Registered)
    }

    /// Returns whether each process of the cluster is running or has failed permanently.
    fn are_all_registered_or_gone(&self, cluster: ClusterId) -> bool {
        self.processes_of(cluster).iter().all(|it| match self.entries[it.index()].state {
            LifeState::Registered => true,
            LifeState::Down => self.entries[it.index()].gone,
            LifeState::Launched | LifeState::Killed | LifeState::Left => false,
        })
    }
}
