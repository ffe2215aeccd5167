//! Who takes part, by the names that people gave them. Holds no facts.

use faultline_core::{ClusterId, ImageName, MessageId, Position, ProcessId, Role, Scope};
use faultline_trace::Manifest;

/// The clusters of a run with their processes, and what to call them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cast {
    clusters: Vec<(String, Vec<ProcessId>)>,
    processes: Vec<(String, ClusterId)>,
    /// Each rank goes back by itself: it is a group of its own. Otherwise a cluster counts as a group.
    ranks: Option<usize>,
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
        let ranks = manifest.processes.iter().filter(|it| it.role == Role::RANK).count();
        let ranks = (manifest.promises.scope == Scope::Process).then_some(ranks);
        Cast { clusters, processes, ranks }
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

    /// Those that go back together: as far as is shown here, each cluster, or each rank. Protocols number them like clusters.
    pub fn groups(&self) -> impl Iterator<Item = ClusterId> + use<> {
        (0..self.ranks.unwrap_or(self.clusters.len())).map(|index| ClusterId(index as u16))
    }

    /// The processes of a group, ascending; none for one that is not of this run.
    pub fn members(&self, group: ClusterId) -> Vec<ProcessId> {
        match self.ranks {
            Some(ranks) if group.index() < ranks => vec![ProcessId(group.0.into())],
            Some(_) => Vec::new(),
            None => self.processes(group).to_vec(),
        }
    }

    /// The group of a process; [`ClusterId::OUTSIDE`] for one that stands in none.
    pub fn group_of(&self, process: ProcessId) -> ClusterId {
        match self.ranks {
            Some(ranks) if process.index() < ranks => ClusterId(process.0 as u16),
            Some(_) => ClusterId::OUTSIDE,
            None => self.cluster_of(process),
        }
    }

    /// The cluster in which a group stands.
    pub fn cluster_of_group(&self, group: ClusterId) -> ClusterId {
        match self.ranks {
            Some(_) => self.cluster_of(ProcessId(group.0.into())),
            None => group,
        }
    }

    /// What people call a group.
    pub fn group(&self, group: ClusterId) -> String {
        match self.ranks {
            Some(_) => self.process(ProcessId(group.0.into())),
            None => self.cluster(group),
        }
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

    /// Whether a message crosses from one group to another.
    pub fn leaves_group(&self, id: MessageId) -> bool {
        self.group_of(id.from) != self.group_of(id.to)
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
