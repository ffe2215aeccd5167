//! The ranks to which a rank may send.

use alloc::sync::Arc;
use faultline_core::{Cluster, ClusterId, Membership, ProcessId};
use rand::{Rng, RngExt};

/// The ranks of the federation, from the point of view of one of them.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    clusters: Arc<[Cluster]>,
    /// Cluster of this rank.
    cluster: ClusterId,
    /// Position of this rank in its cluster.
    place: u32,
}

impl Peers {
    /// Creates the view of `me`, which must be in a cluster.
    pub(crate) fn new(me: ProcessId, membership: &Membership) -> Peers {
        let cluster = membership.cluster_of(me);
        let place =
            membership.processes_of(cluster).binary_search(&me).expect("a cluster contains its ranks");
        Peers { clusters: membership.clusters.clone(), cluster, place: place as u32 }
    }

    /// Returns the cluster of this rank.
    pub(crate) fn own(&self) -> ClusterId {
        self.cluster
    }

    /// Returns the position of this rank in its cluster.
    pub(crate) fn place(&self) -> usize {
        self.place as usize
    }

    /// Returns the number of clusters in the federation.
    pub(crate) fn clusters(&self) -> u16 {
        self.clusters.len() as u16
    }

    /// Returns the number of ranks in `cluster`.
    pub(crate) fn size(&self, cluster: ClusterId) -> usize {
        self.clusters[cluster.index()].processes.len()
    }

    /// Returns the ranks of `cluster`, ascending.
    pub(crate) fn ranks(&self, cluster: ClusterId) -> &[ProcessId] {
        &self.clusters[cluster.index()].processes
    }

    /// Returns a random rank of `cluster`, other than this one.
    ///
    /// # Panics
    ///
    /// Panics if there is no other rank.
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

    /// Returns a random rank, other than this one, among `count` successive ranks of `cluster`. In another cluster,
    /// they begin at this rank's position; in its own cluster, after it.
    ///
    /// # Panics
    ///
    /// Panics if there is no such rank.
    #[inline]
    pub(crate) fn following(&self, cluster: ClusterId, count: u32, rng: &mut impl Rng) -> ProcessId {
        let processes = &self.clusters[cluster.index()].processes;
        let (all, own) = (processes.len() as u32, u32::from(cluster == self.cluster));
        let place = self.place + own + rng.random_range(0..count.min(all - own));
        processes[(place % all) as usize]
    }
}
