//! Chooses the holders of each process's images, as a function of the membership alone. Unlike a
//! [`Placement`](crate::placement::Placement), the choice depends on which processes have failed permanently.

use alloc::vec::Vec;

use faultline_core::{Membership, Presence, ProcessId, Role};

use super::config::Config;
use crate::placement::ReplicateTo;

/// Returns the processes that hold replicas of `owner`'s images.
pub(super) fn holders(config: &Config, membership: &Membership, owner: ProcessId) -> Vec<ProcessId> {
    let copies = usize::from(config.replicas);
    let stays = |it: &ProcessId| !membership.member(*it).gone;
    candidates(config, membership, owner).into_iter().filter(stays).take(copies).collect()
}

/// Returns the processes that may hold replicas of `owner`'s images: for each process that failed permanently, one more
/// candidate may have taken over.
pub(super) fn all_holders(config: &Config, membership: &Membership, owner: ProcessId) -> Vec<ProcessId> {
    let gone = membership.members.iter().filter(|it| it.gone).count();
    let mut all = candidates(config, membership, owner);
    all.truncate(usize::from(config.replicas) + gone);
    all.retain(|it| !membership.member(*it).gone);
    all
}

/// Returns the candidates in the order of preference.
fn candidates(config: &Config, membership: &Membership, owner: ProcessId) -> Vec<ProcessId> {
    let ranks = ring(membership, owner);
    let cluster = membership.cluster_of(owner);
    let is_near = |it: &ProcessId| membership.cluster_of(*it) == cluster;
    let (near, far): (Vec<_>, Vec<_>) = ranks.into_iter().partition(is_near);
    match config.replicate_to {
        ReplicateTo::SameCluster => near.into_iter().chain(far).collect(),
        ReplicateTo::OtherCluster => far.into_iter().chain(near).collect(),
        ReplicateTo::SharedStorage => {
            membership.with_role(Role::STORAGE_SERVER).chain(far).chain(near).collect()
        }
    }
}

/// Returns the other ranks that are present from the start to the end of the run, starting with the cluster after the
/// owner's, and within each cluster at the owner's own index. The replicas of one cluster are thus spread over the
/// processes of another.
fn ring(membership: &Membership, owner: ProcessId) -> Vec<ProcessId> {
    let own = membership.cluster_of(owner).index();
    let clusters = membership.clusters.len();
    let place =
        membership.clusters.get(own).and_then(|it| it.processes.binary_search(&owner).ok()).unwrap_or(0);
    let ordered = (0..clusters).map(|step| &membership.clusters[(own + 1 + step) % clusters]);
    let there = ordered.filter(|it| it.presence == Presence::Permanent);
    there
        .flat_map(|cluster| {
            let all = &cluster.processes;
            (0..all.len()).map(move |step| all[(place + step) % all.len()])
        })
        .filter(|it| *it != owner)
        .collect()
}
