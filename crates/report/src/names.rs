//! Display names of the processes and clusters of a run, derived from its manifest alone.

use faultline_core::{ClusterId, MessageId, ProcessId, Role, Scope};
use faultline_history::GroupId;
pub use faultline_trace::names::checkpoint;
use faultline_trace::{Manifest, RunNames};

/// What reports show as rolling back: a process if each process rolls back alone, otherwise a cluster. If the whole
/// federation rolls back together, reports show a rollback of each of its clusters, although the protocol has a single
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RollbackUnit {
    /// A process.
    Process(ProcessId),
    /// A cluster.
    Cluster(ClusterId),
}

/// The clusters and processes of a run with their display names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisplayNames {
    names: RunNames,
    /// The processes of each cluster, ascending.
    clusters: Vec<Vec<ProcessId>>,
    /// The cluster of each process.
    cluster_of: Vec<ClusterId>,
    /// The processes that roll back together, according to the protocol.
    scope: Scope,
    /// The number of ranks. They are numbered before all other processes.
    ranks: usize,
}

impl DisplayNames {
    /// Reads the names of a recorded run.
    pub fn new(manifest: &Manifest) -> Self {
        let mut clusters: Vec<Vec<ProcessId>> = vec![Vec::new(); manifest.clusters.len()];
        for (process, entry) in (0..).map(ProcessId).zip(&manifest.processes) {
            if let Some(members) = clusters.get_mut(entry.cluster.index()) {
                members.push(process);
            }
        }
        let cluster_of = manifest.processes.iter().map(|it| it.cluster).collect();
        let ranks = manifest.processes.iter().filter(|it| it.role == Role::RANK).count();
        DisplayNames { names: manifest.names(), clusters, cluster_of, scope: manifest.promises.scope, ranks }
    }

    /// Returns the underlying [`RunNames`].
    pub fn names(&self) -> &RunNames {
        &self.names
    }

    /// Returns every cluster.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterId> + use<> {
        (0..self.clusters.len()).map(|index| ClusterId(index as u16))
    }

    /// Returns the processes of a cluster in ascending order; none if the cluster does not belong to this
    /// run.
    pub fn processes(&self, cluster: ClusterId) -> &[ProcessId] {
        self.clusters.get(cluster.index()).map_or(&[], Vec::as_slice)
    }

    /// Returns every process, with or without a cluster.
    pub fn all(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.cluster_of.len()).map(|index| ProcessId(index as u32))
    }

    /// Returns the cluster of a process; [`ClusterId::OUTSIDE`] if it has none.
    pub fn cluster_of(&self, process: ProcessId) -> ClusterId {
        self.cluster_of.get(process.index()).copied().unwrap_or(ClusterId::OUTSIDE)
    }

    /// Returns everything that reports show as rolling back: the clusters or the ranks.
    pub fn units(&self) -> Vec<RollbackUnit> {
        match self.scope {
            Scope::Process => (0..self.ranks as u32).map(|it| RollbackUnit::Process(ProcessId(it))).collect(),
            Scope::Cluster | Scope::Federation => self.clusters().map(RollbackUnit::Cluster).collect(),
        }
    }

    /// Returns the processes of a unit in ascending order; none if the unit does not belong to this run.
    pub fn members(&self, unit: RollbackUnit) -> Vec<ProcessId> {
        match unit {
            RollbackUnit::Process(process) if process.index() < self.ranks => vec![process],
            RollbackUnit::Process(_) => Vec::new(),
            RollbackUnit::Cluster(cluster) => self.processes(cluster).to_vec(),
        }
    }

    /// Returns the unit of a process; `None` if it has none.
    pub fn unit_of(&self, process: ProcessId) -> Option<RollbackUnit> {
        match (self.scope, self.cluster_of(process)) {
            (Scope::Process, _) => (process.index() < self.ranks).then_some(RollbackUnit::Process(process)),
            (Scope::Cluster | Scope::Federation, ClusterId::OUTSIDE) => None,
            (Scope::Cluster | Scope::Federation, cluster) => Some(RollbackUnit::Cluster(cluster)),
        }
    }

    /// Returns the cluster that contains a unit.
    pub fn cluster_of_unit(&self, unit: RollbackUnit) -> ClusterId {
        match unit {
            RollbackUnit::Process(process) => self.cluster_of(process),
            RollbackUnit::Cluster(cluster) => cluster,
        }
    }

    /// Returns the units that form a group of the protocol.
    pub fn units_of(&self, group: GroupId) -> Vec<RollbackUnit> {
        match self.scope {
            Scope::Process => vec![RollbackUnit::Process(ProcessId(group.0.into()))],
            Scope::Cluster => vec![RollbackUnit::Cluster(ClusterId(group.0))],
            Scope::Federation => self.units(),
        }
    }

    /// Returns the clusters that have processes in a group of the protocol.
    pub fn clusters_of(&self, group: GroupId) -> Vec<ClusterId> {
        self.units_of(group).into_iter().map(|it| self.cluster_of_unit(it)).collect()
    }

    /// Returns the display name of a unit.
    pub fn unit(&self, unit: RollbackUnit) -> String {
        match unit {
            RollbackUnit::Process(process) => self.process(process),
            RollbackUnit::Cluster(cluster) => self.cluster(cluster),
        }
    }

    /// Returns the display name of a group of the protocol.
    pub fn group(&self, group: GroupId) -> String {
        self.names.group_of(self.scope, group)
    }

    /// Returns the display name of a cluster.
    pub fn cluster(&self, cluster: ClusterId) -> String {
        self.names.cluster(cluster)
    }

    /// Returns the display name of a process.
    pub fn process(&self, process: ProcessId) -> String {
        self.names.process(process)
    }

    /// Returns whether a message crosses from one unit to another.
    pub fn leaves_unit(&self, id: MessageId) -> bool {
        self.unit_of(id.from) != self.unit_of(id.to)
    }
}
