//! Whom a rank may send to.

use alloc::sync::Arc;
use faultline_core::{Cluster, ClusterId, Membership, ProcessId};
use rand::{Rng, RngExt};

/// The ranks of the federation as one of them sees them.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    clusters: Arc<[Cluster]>,
    /// The own cluster.
    cluster: ClusterId,
    /// Position in the own cluster.
    place: u32,
}

impl Peers {
    /// The view of `me`, which must stand in a cluster.
    pub(crate) fn new(me: ProcessId, membership: &Membership) -> Peers {
        let cluster = membership.cluster_of(me);
        let place = membership
            .processes_of(cluster)
            .binary_search(&me)
            .expect("a rank stands among the processes of its cluster");
        Peers { clusters: membership.clusters.clone(), cluster, place: place as u32 }
    }

    /// The own cluster.
    pub(crate) fn own(&self) -> ClusterId {
        self.cluster
    }

    /// Position in the own cluster.
    pub(crate) fn place(&self) -> usize {
        self.place as usize
    }

    /// Clusters of the federation.
    pub(crate) fn clusters(&self) -> u16 {
        self.clusters.len() as u16
    }

    /// Ranks of `cluster`.
    pub(crate) fn size(&self, cluster: ClusterId) -> usize {
        self.clusters[cluster.index()].processes.len()
    }

    /// The ranks of `cluster`, ascending.
    pub(crate) fn ranks(&self, cluster: ClusterId) -> &[ProcessId] {
        &self.clusters[cluster.index()].processes
    }

    /// A random rank of `cluster`, never the own one. Panics when there is none.
    #[inline]
    pub(crate) fn random(&self, cluster: ClusterId, rng: &mut impl Rng) -> ProcessId {
        let processes = &self.clusters[cluster.index()].processes;
        let all = processes.len() as u32;
        let place = if cluster == self.cluster {
            let other = rng.random_range(0..all - 1);
            other + u32::from(other >= self.place)
        } else {
            rng.random_range(0..all)
        };
        processes[place as usize]
    }

    /// A random rank of the `count` of `cluster` that follow the own place, never the own one. Panics when there is none.
    #[inline]
    pub(crate) fn following(&self, cluster: ClusterId, count: u32, rng: &mut impl Rng) -> ProcessId {
        let processes = &self.clusters[cluster.index()].processes;
        let (all, own) = (processes.len() as u32, u32::from(cluster == self.cluster));
        let place = self.place + own + rng.random_range(0..count.min(all - own));
        processes[(place % all) as usize]
    }
}
