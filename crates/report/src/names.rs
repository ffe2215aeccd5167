//! Display names of the processes and clusters of a run, derived from its manifest alone.

use faultline_core::{ClusterId, ImageName, MessageId, ProcessId, Role, Scope};
use faultline_history::GroupId;
pub use faultline_trace::names::checkpoint;
use faultline_trace::{Manifest, RunNames};

/// The clusters and processes of a run with their display names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisplayNames {
    names: RunNames,
    /// The processes of each cluster, ascending.
    clusters: Vec<Vec<ProcessId>>,
    /// The cluster of each process.
    cluster_of: Vec<ClusterId>,
    /// The number of ranks, if each rank is its own group. `None` otherwise; the reports then treat each cluster as a
    /// group.
    ranks: Option<usize>,
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
        let ranks = (manifest.promises.scope == Scope::Process).then_some(ranks);
        DisplayNames { names: manifest.names(), clusters, cluster_of, ranks }
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

    /// Returns every group: the clusters or the ranks.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.ranks.unwrap_or(self.clusters.len())).map(|index| GroupId(index as u16))
    }

    /// Returns the processes of a group in ascending order; none if the group does not belong to this run.
    pub fn members(&self, group: GroupId) -> Vec<ProcessId> {
        match self.ranks {
            Some(ranks) if usize::from(group.0) < ranks => vec![ProcessId(group.0.into())],
            Some(_) => Vec::new(),
            None => self.processes(ClusterId(group.0)).to_vec(),
        }
    }

    /// Returns the group of a process; [`GroupId::OUTSIDE`] if it has none.
    pub fn group_of(&self, process: ProcessId) -> GroupId {
        match self.ranks {
            Some(ranks) if process.index() < ranks => GroupId(process.0 as u16),
            Some(_) => GroupId::OUTSIDE,
            None => GroupId(self.cluster_of(process).0),
        }
    }

    /// Returns the cluster that contains a group.
    pub fn cluster_of_group(&self, group: GroupId) -> ClusterId {
        match self.ranks {
            Some(_) => self.cluster_of(ProcessId(group.0.into())),
            None => ClusterId(group.0),
        }
    }

    /// Returns the display name of a group.
    pub fn group(&self, group: GroupId) -> String {
        let scope = if self.ranks.is_some() { Scope::Process } else { Scope::Cluster };
        self.names.group_of(scope, group)
    }

    /// Returns the display name of a cluster.
    pub fn cluster(&self, cluster: ClusterId) -> String {
        self.names.cluster(cluster)
    }

    /// Returns the display name of a process.
    pub fn process(&self, process: ProcessId) -> String {
        self.names.process(process)
    }

    /// Returns the display name of a message.
    pub fn message(&self, id: MessageId) -> String {
        format!("{}->{} #{}", self.process(id.from), self.process(id.to), id.number)
    }

    /// Returns the display name of an image.
    pub fn image(&self, name: ImageName) -> String {
        format!("{}'s part of checkpoint {}", self.process(name.owner), checkpoint(name.position()))
    }

    /// Returns whether a message crosses from one group to another.
    pub fn leaves_group(&self, id: MessageId) -> bool {
        self.group_of(id.from) != self.group_of(id.to)
    }

    /// Returns whether a message crosses from one cluster to another.
    pub fn crosses(&self, id: MessageId) -> bool {
        self.cluster_of(id.from) != self.cluster_of(id.to)
    }
}
