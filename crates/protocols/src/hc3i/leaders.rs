//! Who says what to whom where the federation counts as one cluster: the coordinator and everybody, or with
//! [`Coordinating::ByLeaders`] the coordinator and one process of each cluster of the federation, its *leader*, so that each
//! step of a checkpoint takes one message each way to and from another cluster.
//!
//! What the coordinator says to all members goes to the leaders, which pass it on ([`Control::Spread`]); what members say
//! while a checkpoint is taken goes to their leader, which says it once for all of them ([`Control::ClusterSaved`],
//! [`Control::ClusterDrained`]). What a recovery gathers goes to the coordinator directly.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, ClusterId, Membership, MembershipVersion, Position, ProcessId, Role, Time, To, Vectors,
};

use super::config::{Config, Coordinating, Defect};
use super::message::Control;
use super::{Desk, Hc3i, merge_vectors};

/// What only the leader of a cluster of the federation has.
#[derive(Clone, Debug, Default)]
pub(super) struct Leading {
    gathered: Option<Gathered>,
    /// To be passed on when this process knows this membership.
    waiting: Vec<(ProcessId, MembershipVersion, Arc<Control>)>,
}

/// What the members of a cluster have said of a checkpoint that is being taken.
#[derive(Clone, Debug)]
struct Gathered {
    position: Position,
    attempt: Attempt,
    /// Members still to be heard in this round.
    awaited: BTreeSet<ProcessId>,
    /// All have saved: the next round is on.
    have_saved: bool,
    sent: BTreeMap<ProcessId, u64>,
    vectors: Vectors,
}

impl Leading {
    /// Of a process that leads its cluster; `None` for others, and where nobody does.
    pub(super) fn of(config: &Config, membership: &Membership, me: ProcessId) -> Option<Box<Leading>> {
        let is_rank = membership.member(me).role == Role::RANK;
        let leads = is_rank && leader(membership, membership.cluster_of(me)) == me;
        (config.coordination == Coordinating::ByLeaders && leads).then(Box::default)
    }
}

/// The leader of a cluster of the federation: its lowest process.
fn leader(membership: &Membership, cluster: ClusterId) -> ProcessId {
    membership.processes_of(cluster)[0]
}

impl Hc3i {
    /// Who answers the coordinator while a checkpoint is taken.
    pub(super) fn gathered_from(&self) -> Vec<ProcessId> {
        match self.config.coordination {
            Coordinating::Directly => self.members.to_vec(),
            Coordinating::ByLeaders => {
                // Those of the membership: in this scope the protocol has one cluster.
                self.membership.clusters.iter().map(|cluster| cluster.processes[0]).collect()
            }
        }
    }

    /// Tells whoever gathers what this process has to say of a checkpoint; that may be this process.
    pub(super) fn tell_leader(&mut self, message: Control, now: Time, host: &mut Desk) {
        match self.config.coordination {
            Coordinating::Directly => self.tell_coordinator(message, now, host),
            Coordinating::ByLeaders => {
                let own = leader(&self.membership, self.membership.cluster_of(self.me));
                self.tell(own, message, now, host);
            }
        }
    }

    /// Coordinator: tells all members in a cluster of the federation but itself.
    pub(super) fn tell_cluster(&self, cluster: ClusterId, message: Control, host: &mut Desk) {
        let is_own = self.membership.cluster_of(self.me) == cluster;
        if is_own || self.config.coordination == Coordinating::Directly {
            host.control(To::Cluster(cluster), message);
        } else {
            let (membership, message) = (self.membership.version, Arc::new(message));
            let to = To::One(leader(&self.membership, cluster));
            host.control(to, Control::Spread { membership, message });
        }
    }

    /// Leader: passes on what the coordinator says (L1). What it says to a life that it does not know yet would be lost.
    pub(super) fn pass_on(
        &mut self,
        from: ProcessId,
        membership: MembershipVersion,
        message: Arc<Control>,
        now: Time,
        host: &mut Desk,
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

    /// Leader: the membership changed.
    pub(super) fn pass_waiting_on(&mut self, now: Time, host: &mut Desk) {
        let waiting = self.leading.as_mut().map(|it| core::mem::take(&mut it.waiting));
        for (from, membership, message) in waiting.into_iter().flatten() {
            self.pass_on(from, membership, message, now, host);
        }
    }

    /// Leader: a member has saved. When all have, it is known what they have sent (L2).
    pub(super) fn member_saved(
        &mut self,
        from: ProcessId,
        position: Position,
        attempt: Attempt,
        sent: &[(ProcessId, u64)],
        now: Time,
        host: &mut Desk,
    ) {
        let counts_alone = self.has(Defect::LeaderCountsAlone);
        let members = self.led().clone();
        let Some(leading) = &mut self.leading else {
            return;
        };
        // A member that the request has reached earlier begins it. Of older ones there is nothing more to say.
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

    /// Leader: a member's part is durable. When all are, the cluster's are (L2).
    pub(super) fn member_drained(
        &mut self,
        from: ProcessId,
        position: Position,
        attempt: Attempt,
        vectors: &Vectors,
        now: Time,
        host: &mut Desk,
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

    /// The members that this leader leads, itself among them.
    fn led(&self) -> &Arc<[ProcessId]> {
        self.membership.processes_of(self.membership.cluster_of(self.me))
    }
}

impl Leading {
    fn gathered_of(&mut self, position: Position, attempt: Attempt) -> Option<&mut Gathered> {
        self.gathered.as_mut().filter(|it| it.position == position && it.attempt == attempt)
    }
}
