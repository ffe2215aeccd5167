//! Who keeps copies of whose checkpoints: pure functions of the membership's fixed part.

use alloc::vec::Vec;
use faultline_core::{Membership, Presence, ProcessId, Role};
use serde::{Deserialize, Serialize};

/// Where copies of checkpoints are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicateTo {
    /// The next processes of the owner's cluster: a whole cluster's loss is unrecoverable.
    SameCluster,
    /// Processes of the next clusters that are there from the beginning to the end.
    OtherCluster,
    /// A storage server outside every cluster.
    SharedStorage,
}

/// How many copies of each part there are beside the owner's own, and where. A storage server counts as one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How many.
    pub replicas: u16,
    /// Where.
    pub to: ReplicateTo,
}

impl Placement {
    /// The holders of `owner`'s parts, in the order in which they are asked.
    pub fn holders(self, membership: &Membership, owner: ProcessId) -> Vec<ProcessId> {
        let cluster = membership.cluster_of(owner);
        let members = membership.processes_of(cluster);
        let index = members.binary_search(&owner).expect("a process stands in its own cluster");
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
            ReplicateTo::SharedStorage => servers(membership),
        }
    }

    /// The processes whose parts `holder` keeps copies of.
    pub(crate) fn owners(self, membership: &Membership, holder: ProcessId) -> Vec<ProcessId> {
        let holds = |&rank: &ProcessId| self.holders(membership, rank).contains(&holder);
        membership.with_role(Role::RANK).filter(holds).collect()
    }
}

/// Storage servers stand among the processes after all ranks.
fn servers(membership: &Membership) -> Vec<ProcessId> {
    let tail = membership.members.iter().rev().take_while(|member| member.role != Role::RANK).count();
    let all = membership.members.len();
    let is_server = |&it: &ProcessId| membership.member(it).role == Role::STORAGE_SERVER;
    (all - tail..all).map(|index| ProcessId(index as u32)).filter(is_server).collect()
}
