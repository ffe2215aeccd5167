//! Who keeps copies of whose checkpoints: pure functions of the membership's fixed part.

use alloc::vec::Vec;
use faultline_core::{ClusterId, Membership, ProcessId, Role};

use super::config::{Config, ReplicateTo};

/// The holders of `owner`'s parts, in the order in which they are asked.
pub fn holders(config: &Config, membership: &Membership, owner: ProcessId) -> Vec<ProcessId> {
    let cluster = membership.cluster_of(owner);
    let members = membership.processes_of(cluster);
    let index = members.iter().position(|&it| it == owner).expect("a process stands in its own cluster");
    let copies = usize::from(config.replicas);
    match config.replicate_to {
        ReplicateTo::SameCluster => {
            (1..members.len()).take(copies).map(|step| members[(index + step) % members.len()]).collect()
        }
        ReplicateTo::OtherCluster => {
            let clusters = membership.clusters.len();
            (1..clusters)
                .take(copies)
                .map(|step| {
                    let other = ClusterId(((cluster.index() + step) % clusters) as u16);
                    let members = membership.processes_of(other);
                    members[index % members.len()]
                })
                .collect()
        }
        ReplicateTo::SharedStorage => servers(membership),
    }
}

/// The processes whose parts `holder` keeps copies of.
pub(super) fn owners(config: &Config, membership: &Membership, holder: ProcessId) -> Vec<ProcessId> {
    membership
        .with_role(Role::RANK)
        .filter(|&rank| holders(config, membership, rank).contains(&holder))
        .collect()
}

/// Storage servers come after all ranks.
fn servers(membership: &Membership) -> Vec<ProcessId> {
    let tail =
        membership.members.iter().rev().take_while(|member| member.role == Role::STORAGE_SERVER).count();
    let all = membership.members.len();
    (all - tail..all).map(|index| ProcessId(index as u32)).collect()
}
