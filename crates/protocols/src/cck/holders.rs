//! Chooses the holders of each partition's images based on the membership alone. Unlike in `theft`, the owner is a
//! partition, which may run on any process, and each partition prefers a different server.

use alloc::vec::Vec;

use faultline_core::{Membership, ProcessId, Role};

use super::config::Config;
use crate::placement::ReplicateTo;

/// Returns the processes that hold replicas of a partition's images, in addition to the process `at` that runs it.
pub(super) fn holders(
    config: &Config,
    membership: &Membership,
    partition: ProcessId,
    at: ProcessId,
) -> Vec<ProcessId> {
    let own = membership.cluster_of(at);
    let is_near = |it: &ProcessId| membership.cluster_of(*it) == own;
    let (near, far): (Vec<_>, Vec<_>) = others(membership, partition, at).partition(is_near);
    let mut servers: Vec<ProcessId> = membership.with_role(Role::STORAGE_SERVER).collect();
    let first = partition.index().checked_rem(servers.len()).unwrap_or(0);
    servers.rotate_left(first);
    // The partitions of a server that never returns use the next server. If none is left, ranks hold the replicas.
    servers.retain(|it| !membership.member(*it).gone);
    let by_preference = match config.replicate_to {
        ReplicateTo::SameCluster => [near, far, Vec::new()],
        ReplicateTo::OtherCluster => [far, near, Vec::new()],
        ReplicateTo::SharedStorage => [servers, far, near],
    };
    by_preference.into_iter().flatten().take(usize::from(config.replicas)).collect()
}

/// Returns the ranks that stay in the federation, except `at`: one from each cluster, beginning with the cluster after
/// the partition's own, then a second one from each, and so on. Within a cluster, the first rank is the one at the
/// partition's own index, so that the replicas of one cluster are spread over the processes of another.
fn others(membership: &Membership, partition: ProcessId, at: ProcessId) -> impl Iterator<Item = ProcessId> {
    let clusters = &membership.clusters;
    let own = membership.cluster_of(partition).index();
    let place = clusters.get(own).and_then(|it| it.processes.iter().position(|it| *it == partition));
    let largest = clusters.iter().map(|it| it.processes.len()).max().unwrap_or(0);
    let ordered =
        move || (1..=clusters.len()).map(move |step| &clusters[(own + step) % clusters.len()].processes);
    (0..largest)
        .flat_map(move |step| ordered().filter(move |all| step < all.len()).map(move |all| (step, all)))
        .map(move |(step, all)| all[(place.unwrap_or(0) + step) % all.len()])
        .filter(move |it| *it != at && membership.is_staying(*it))
}
