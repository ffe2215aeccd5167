//! Communication during a checkpoint if the federation counts as one cluster. Either the coordinator talks to all
//! processes, or with [`Coordinating::ByLeaders`] to one process of each cluster of the federation, its *leader*, so
//! that each step of a checkpoint takes one message each way per cluster.
//!
//! A message from the coordinator to all members goes to the leaders, which pass it on ([`Control::Spread`]). A
//! member's messages during a checkpoint go to its leader, which sends one message for all of them
//! ([`Control::ClusterSaved`], [`Control::ClusterDrained`]). The messages of a recovery go to the coordinator
//! directly.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, ClusterId, Membership, MembershipVersion, Position, ProcessId, Role, Time, To, Vectors,
};

use super::config::{Config, Coordinating, Defect};
use super::message::Control;
use super::{Hc3i, ProtocolHost, merge_vectors};

/// State that only the leader of a cluster of the federation has.
#[derive(Clone, Debug, Default)]
pub(super) struct Leading {
    gathered: Option<Gathered>,
    /// Messages to be passed on once this process knows the given membership.
    waiting: Vec<(ProcessId, MembershipVersion, Arc<Control>)>,
}

/// The answers of a cluster's members for the checkpoint in progress.
#[derive(Clone, Debug)]
struct Gathered {
    position: Position,
    attempt: Attempt,
    /// Members that have not answered in this round yet.
    awaited: BTreeSet<ProcessId>,
    /// Whether all members have saved, and the second round is in progress.
    have_saved: bool,
    sent: BTreeMap<ProcessId, u64>,
    vectors: Vectors,
}

impl Leading {
    /// Creates the state of a process that leads its cluster. `None` for other processes, and without leaders.
    pub(super) fn of(config: &Config, membership: &Membership, me: ProcessId) -> Option<Box<Leading>> {
        let is_rank = membership.member(me).role == Role::RANK;
        let leads = is_rank && leader(membership, membership.cluster_of(me)) == me;
        (config.coordination == Coordinating::ByLeaders && leads).then(Box::default)
    }
}

/// Returns the leader of a cluster of the federation: its lowest-numbered process.
fn leader(membership: &Membership, cluster: ClusterId) -> ProcessId {
    membership.processes_of(cluster)[0]
}

impl Hc3i {
    /// Returns the processes that answer the coordinator while a checkpoint is taken.
    pub(super) fn gathered_from(&self) -> Vec<ProcessId> {
        match self.config.coordination {
            Coordinating::Directly => self.members.to_vec(),
            Coordinating::ByLeaders => {
                // The clusters of the membership: in this scope, the protocol itself has only one cluster.
                self.membership.clusters.iter().map(|cluster| cluster.processes[0]).collect()
            }
        }
    }

    /// Sends a member's answer during a checkpoint to the process that collects the answers, which may be this one.
    pub(super) fn tell_leader(&mut self, message: Control, now: Time, host: &mut ProtocolHost) {
        match self.config.coordination {
            Coordinating::Directly => self.tell_coordinator(message, now, host),
            Coordinating::ByLeaders => {
                let own = leader(&self.membership, self.membership.cluster_of(self.me));
                self.tell(own, message, now, host);
            }
        }
    }

    /// Coordinator: sends a message to all members in a cluster of the federation, except itself.
    pub(super) fn tell_cluster(&self, cluster: ClusterId, message: Control, host: &mut ProtocolHost) {
        let is_own = self.membership.cluster_of(self.me) == cluster;
        if is_own || self.config.coordination == Coordinating::Directly {
            host.control(To::Cluster(cluster), message);
        } else {
            let (membership, message) = (self.membership.version, Arc::new(message));
            let to = To::One(leader(&self.membership, cluster));
            host.control(to, Control::Spread { membership, message });
        }
    }

    /// Leader: passes on a message of the coordinator (L1). A message to a life that the leader does not know yet
    /// would be lost.
    pub(super) fn pass_on(
        &mut self,
        from: ProcessId,
        membership: MembershipVersion,
        message: Arc<Control>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let is_ahead = membership > self.membership.version && !self.has(Defect::SpreadUnaware);
        let cluster = self.membership.cluster_of(self.me);
        let Some(leading) = &mut self.leading else {
            return;
        };
        if is_ahead {
            leading.waiting.push((from, membership, message));
        } else {
            host.control(To::Cluster(cluster), Control::clone(&message));
            self.told(from, Control::clone(&message), now, host);
        }
    }

    /// Leader: passes on waiting messages after a change of the membership.
    pub(super) fn pass_waiting_on(&mut self, now: Time, host: &mut ProtocolHost) {
        let waiting = self.leading.as_mut().map(|it| core::mem::take(&mut it.waiting));
        for (from, membership, message) in waiting.into_iter().flatten() {
            self.pass_on(from, membership, message, now, host);
        }
    }

    /// Leader: a member has saved. Once all have, the number of their messages is known (L2).
    pub(super) fn member_saved(
        &mut self,
        from: ProcessId,
        position: Position,
        attempt: Attempt,
        sent: &[(ProcessId, u64)],
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let counts_alone = self.has(Defect::LeaderCountsAlone);
        let members = self.led().clone();
        let Some(leading) = &mut self.leading else {
            return;
        };
        // The first member that the request reaches begins the entry. Entries of older checkpoints are obsolete.
        if leading.gathered.as_ref().is_none_or(|it| it.position < position) {
            leading.gathered = Some(Gathered {
                position,
                attempt,
                awaited: members.iter().copied().collect(),
                have_saved: false,
                sent: BTreeMap::new(),
                vectors: Vectors::default(),
            });
        }
        let Some(gathered) = leading.gathered_of(position, attempt).filter(|it| !it.have_saved) else {
            return;
        };
        if !gathered.awaited.remove(&from) {
            return;
        }
        for &(receiver, count) in sent {
            *gathered.sent.entry(receiver).or_default() += count;
        }
        if gathered.awaited.is_empty() || counts_alone {
            gathered.have_saved = true;
            gathered.awaited = members.iter().copied().collect();
            let sent = gathered.sent.iter().map(|(&receiver, &count)| (receiver, count)).collect();
            self.tell_coordinator(Control::ClusterSaved { position, attempt, sent }, now, host);
        }
    }

    /// Leader: a member's part is durable. Once all parts are, the cluster's part is (L2).
    pub(super) fn member_drained(
        &mut self,
        from: ProcessId,
        position: Position,
        attempt: Attempt,
        vectors: &Vectors,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let drains_alone = self.has(Defect::LeaderDrainsAlone);
        let Some(leading) = &mut self.leading else {
            return;
        };
        let Some(gathered) = leading.gathered_of(position, attempt).filter(|it| it.have_saved) else {
            return;
        };
        if !gathered.awaited.remove(&from) {
            return;
        }
        merge_vectors(&mut gathered.vectors, vectors);
        if gathered.awaited.is_empty() || drains_alone {
            let vectors = Arc::new(gathered.vectors.clone());
            leading.gathered = None;
            self.tell_coordinator(Control::ClusterDrained { position, attempt, vectors }, now, host);
        }
    }

    /// Returns the members of the leader's cluster, including itself.
    fn led(&self) -> &Arc<[ProcessId]> {
        self.membership.processes_of(self.membership.cluster_of(self.me))
    }
}

impl Leading {
    fn gathered_of(&mut self, position: Position, attempt: Attempt) -> Option<&mut Gathered> {
        self.gathered.as_mut().filter(|it| it.position == position && it.attempt == attempt)
    }
}
