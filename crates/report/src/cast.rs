//! Who takes part, by the names that people gave them. Holds no facts.

use faultline_core::{ClusterId, ImageName, MessageId, Position, ProcessId};
use faultline_trace::Manifest;

/// The clusters of a run with their processes, and what to call them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cast {
    clusters: Vec<(String, Vec<ProcessId>)>,
    processes: Vec<(String, ClusterId)>,
}

impl Cast {
    /// The cast of a recorded run.
    pub fn new(manifest: &Manifest) -> Self {
        let mut clusters: Vec<_> = manifest.clusters.iter().map(|it| (it.name.clone(), Vec::new())).collect();
        for (index, process) in manifest.processes.iter().enumerate() {
            if let Some((_, members)) = clusters.get_mut(process.cluster.index()) {
                members.push(ProcessId(index as u32));
            }
        }
        let processes = manifest.processes.iter().map(|it| (it.name.clone(), it.cluster)).collect();
        Cast { clusters, processes }
    }

    /// Every cluster.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterId> + use<> {
        (0..self.clusters.len()).map(|index| ClusterId(index as u16))
    }

    /// The processes of a cluster, ascending; none for one that is not of this run.
    pub fn processes(&self, cluster: ClusterId) -> &[ProcessId] {
        self.clusters.get(cluster.index()).map_or(&[], |(_, processes)| processes)
    }

    /// Every process, with or without a cluster.
    pub fn all(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.processes.len()).map(|index| ProcessId(index as u32))
    }

    /// The cluster of a process; [`ClusterId::OUTSIDE`] for one that stands in none.
    pub fn cluster_of(&self, process: ProcessId) -> ClusterId {
        self.processes.get(process.index()).map_or(ClusterId::OUTSIDE, |&(_, cluster)| cluster)
    }

    /// What people call a cluster.
    pub fn cluster(&self, cluster: ClusterId) -> String {
        match self.clusters.get(cluster.index()) {
            Some((name, _)) => name.clone(),
            None if cluster == ClusterId::OUTSIDE => "outside".to_owned(),
            None => cluster.to_string(),
        }
    }

    /// What people call a process.
    pub fn process(&self, process: ProcessId) -> String {
        match self.processes.get(process.index()) {
            Some((name, _)) => name.clone(),
            None if process == ProcessId::SUPERVISOR => "supervisor".to_owned(),
            None => process.to_string(),
        }
    }

    /// What people call a message.
    pub fn message(&self, id: MessageId) -> String {
        format!("{}->{} #{}", self.process(id.from), self.process(id.to), id.number)
    }

    /// What people call an image.
    pub fn image(&self, name: ImageName) -> String {
        format!("{}'s part of checkpoint {}", self.process(name.owner), checkpoint(name.position()))
    }

    /// Whether a message crosses from one cluster to another.
    pub fn crosses(&self, id: MessageId) -> bool {
        self.cluster_of(id.from) != self.cluster_of(id.to)
    }
}

/// A checkpoint as people call it: its number, and the incarnation when that is not the first.
pub fn checkpoint(position: Position) -> String {
    match position.incarnation.0 {
        0 => position.sn.0.to_string(),
        incarnation => format!("{} (incarnation {incarnation})", position.sn.0),
    }
}
