//! The process that runs each partition of a planned program.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{Membership, ProcessId, Role};
use serde::{Deserialize, Serialize};

/// Maps each partition to the process that runs it, its *host*. By default, each rank hosts the partition of the same
/// name: the partition is at *home*. Processes receive a map with each recovery, instead of computing it from the
/// membership alone: a function of the membership would either move partitions between live processes when another one
/// fails, or give some processes more partitions than necessary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionMap {
    /// The partitions whose host is not the process of the same name, ascending, each with its host.
    moved: Arc<[(ProcessId, ProcessId)]>,
}

impl PartitionMap {
    /// Returns the host of a partition. A process without a partition is its own host.
    pub fn host_of(&self, partition: ProcessId) -> ProcessId {
        let found = self.moved.binary_search_by_key(&partition, |it| it.0);
        found.map_or(partition, |index| self.moved[index].1)
    }

    /// Returns the map with which a program starts, given the membership before any process starts: processes that are
    /// present host the partitions of clusters that join later.
    #[must_use]
    pub fn initial(membership: &Membership) -> PartitionMap {
        PartitionMap::default().update(membership)
    }

    /// Returns the map after some clusters have joined or are about to leave, or some processes have failed
    /// permanently. The partitions of a cluster that has joined move home. If a process can no longer host partitions,
    /// each of its partitions moves to the process that hosts the fewest at that point. Among several such processes,
    /// the next one after the partition's own process is chosen. If no process is left, partitions do not move.
    #[must_use]
    pub fn update(&self, membership: &Membership) -> PartitionMap {
        let ranks: Vec<ProcessId> = membership.with_role(Role::RANK).collect();
        let count = membership.members.len();
        let can_host = |it: ProcessId| membership.is_staying(it);
        // A process that has failed permanently or whose cluster leaves never hosts a partition again. A partition that
        // is away although its own process can host it therefore belongs to a cluster that has just joined.
        let host_of = |it: ProcessId| if can_host(it) { it } else { self.host_of(it) };
        let mut loads = vec![0u32; count];
        ranks.iter().for_each(|it| loads[host_of(*it).index()] += 1);
        let mut moved = Vec::new();
        for partition in ranks.iter().copied() {
            let mut host = host_of(partition);
            if !can_host(host) {
                let distance = |it: ProcessId| (it.index() + count - partition.index()) % count;
                let others = ranks.iter().copied().filter(|it| can_host(*it));
                host = others.min_by_key(|it| (loads[it.index()], distance(*it))).unwrap_or(host);
                loads[host.index()] += 1;
            }
            if host != partition {
                moved.push((partition, host));
            }
        }
        PartitionMap { moved: moved.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Cluster, ClusterId, Life, Member, MembershipVersion, NodeId, Presence};

    /// Returns a membership of clusters with two processes each and one process outside them, in which the processes in
    /// `gone` have failed permanently.
    fn membership(clusters: u32, gone: &[u32]) -> Membership {
        let member = |cluster, role, process| Member {
            cluster,
            role,
            node: NodeId(process),
            life: Life(1),
            up: true,
            started: true,
            gone: gone.contains(&process),
            idle_lives: 0,
        };
        let ranks = 2 * clusters;
        let rank = |it| member(ClusterId((it / 2) as u16), Role::RANK, it);
        let outside = member(ClusterId::OUTSIDE, Role::RECOVERY_PROCESS, ranks);
        Membership {
            version: MembershipVersion(1),
            members: (0..ranks).map(rank).chain([outside]).collect(),
            clusters: (0..clusters)
                .map(|it| Cluster::new([2 * it, 2 * it + 1].map(ProcessId).into()))
                .collect(),
        }
    }

    fn hosts(map: &PartitionMap, partitions: u32) -> Vec<u32> {
        (0..partitions).map(|it| map.host_of(ProcessId(it)).0).collect()
    }

    #[test]
    fn the_partitions_of_a_lost_cluster_are_spread_over_the_others() {
        let map = PartitionMap::default().update(&membership(3, &[0, 1]));
        assert_eq!(hosts(&map, 6), [2, 3, 2, 3, 4, 5]);
        let map = PartitionMap::default().update(&membership(3, &[2, 3]));
        assert_eq!(hosts(&map, 6), [0, 1, 4, 5, 4, 5]);
        assert_eq!(map.host_of(ProcessId(6)), ProcessId(6));
    }

    #[test]
    fn the_partitions_of_a_cluster_that_is_about_to_leave_move_to_the_others() {
        let leaving = with_presence(membership(3, &[]), 0, Presence::Leaving);
        assert_eq!(hosts(&PartitionMap::default().update(&leaving), 6), [2, 3, 2, 3, 4, 5]);
    }

    fn with_presence(mut membership: Membership, cluster: usize, presence: Presence) -> Membership {
        let mut clusters = membership.clusters.to_vec();
        clusters[cluster].presence = presence;
        membership.clusters = clusters.into();
        membership
    }

    #[test]
    fn the_partitions_of_a_cluster_that_joins_move_home() {
        let awaited = PartitionMap::initial(&with_presence(membership(3, &[]), 2, Presence::Awaited));
        assert_eq!(hosts(&awaited, 6), [0, 1, 2, 3, 0, 1]);
        let failed = awaited.update(&with_presence(membership(3, &[1]), 2, Presence::Awaited));
        assert_eq!(hosts(&failed, 6), [0, 2, 2, 3, 0, 3]);
        let joined = failed.update(&with_presence(membership(3, &[1]), 2, Presence::Present));
        assert_eq!(hosts(&joined, 6), [0, 2, 2, 3, 4, 5], "partition 1 stays where it is");
        let leaving = joined.update(&with_presence(membership(3, &[1]), 2, Presence::Leaving));
        assert_eq!(hosts(&leaving, 6), [0, 2, 2, 3, 0, 3]);
    }

    #[test]
    fn partitions_never_move_between_live_processes() {
        for mut choice in 0..720u32 {
            let mut left: Vec<u32> = (0..6).collect();
            let (mut gone, mut map) = (Vec::new(), PartitionMap::default());
            while left.len() > 1 {
                gone.push(left.remove(choice as usize % left.len()));
                choice /= 6;
                let next = map.update(&membership(3, &gone));
                let (before, after) = (hosts(&map, 6), hosts(&next, 6));
                for (old, new) in before.iter().zip(&after) {
                    assert!(left.contains(new) && (new == old || gone.contains(old)), "{before:?} {after:?}");
                }
                let load = |of: u32| after.iter().filter(|it| **it == of).count();
                let loads = || left.iter().map(|it| load(*it));
                assert!(loads().max() <= loads().min().map(|it| it + 1), "{after:?} without {gone:?}");
                map = next;
            }
        }
    }

    #[test]
    fn without_processes_partitions_stay_where_they_are() {
        let map = PartitionMap::default().update(&membership(1, &[0]));
        assert_eq!(map.update(&membership(1, &[0, 1])), map);
    }
}
