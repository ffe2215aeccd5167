//! Placement of replicas: which processes hold the replicas of which parts, as a pure function of the fixed
//! part of the membership.

use alloc::vec::Vec;
use faultline_core::{Membership, Presence, ProcessId, Role};
use serde::{Deserialize, Serialize};

/// Where replicas of checkpoints are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicateTo {
    /// On the next processes of the owner's cluster. The loss of a whole cluster with its storage is then
    /// unrecoverable.
    SameCluster,
    /// On processes of the next clusters that are present from the start to the end of the run.
    OtherCluster,
    /// On a storage server outside all clusters.
    SharedStorage,
}

/// Number and location of each part's replicas, not counting the owner's own copy. The copy at a storage server counts
/// as one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Number of replicas per part.
    pub replicas: u16,
    /// Where the replicas are kept.
    pub to: ReplicateTo,
}

impl Placement {
    /// Returns the role of the additional processes that hold replicas; `None` if the ranks hold the replicas, or there
    /// are no replicas.
    pub(crate) fn server(self) -> Option<Role> {
        (self.replicas > 0 && self.to == ReplicateTo::SharedStorage).then_some(Role::STORAGE_SERVER)
    }

    /// Returns the holders of `owner`'s parts, in the order in which they are chosen.
    ///
    /// # Panics
    ///
    /// Panics if `owner` belongs to no cluster.
    pub fn holders(self, membership: &Membership, owner: ProcessId) -> Vec<ProcessId> {
        let cluster = membership.cluster_of(owner);
        let members = membership.processes_of(cluster);
        let index = members.binary_search(&owner).expect("a process is a member of its own cluster");
        let copies = usize::from(self.replicas);
        match self.to {
            ReplicateTo::SameCluster => {
                (1..members.len()).take(copies).map(|step| members[(index + step) % members.len()]).collect()
            }
            ReplicateTo::OtherCluster => {
                let clusters = membership.clusters.len();
                (1..clusters)
                    .map(|step| &membership.clusters[(cluster.index() + step) % clusters])
                    .filter(|other| other.presence == Presence::Permanent)
                    .take(copies)
                    .map(|other| other.processes[index % other.processes.len()])
                    .collect()
            }
            ReplicateTo::SharedStorage => servers(membership).into_iter().take(copies).collect(),
        }
    }

    /// Returns the owners whose parts are replicated to `holder`.
    pub(crate) fn owners(self, membership: &Membership, holder: ProcessId) -> Vec<ProcessId> {
        let holds = |&rank: &ProcessId| self.holders(membership, rank).contains(&holder);
        membership.with_role(Role::RANK).filter(holds).collect()
    }
}

/// Returns the storage servers, which come after all ranks.
fn servers(membership: &Membership) -> Vec<ProcessId> {
    let tail = membership.members.iter().rev().take_while(|member| member.role != Role::RANK).count();
    let all = membership.members.len();
    let is_server = |&it: &ProcessId| membership.member(it).role == Role::STORAGE_SERVER;
    (all - tail..all).map(|index| ProcessId(index as u32)).filter(is_server).collect()
}
