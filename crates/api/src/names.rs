//! Names and numbers of processes and clusters.
//!
//! Clusters are numbered in the order in which the resource lists them. Processes are numbered from 0 without gaps:
//! cluster by cluster and node by node, then the processes that a protocol needs in addition to the ranks. Process
//! `paris-2` is node 2 of cluster `paris`.

use std::collections::BTreeMap;
use std::ops::Range;

use faultline_core::{ClusterId, ProcessId, Role};

use crate::resource::FederationSpec;

/// Names of the processes and clusters of a federation. Stores nothing per rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    clusters: Vec<(String, Range<u32>)>,
    extra: Vec<String>,
    /// Indices in `clusters`, by name.
    clusters_by_name: BTreeMap<String, usize>,
    /// Indices in `extra`, by name.
    extra_by_name: BTreeMap<String, usize>,
}

impl Names {
    /// Returns the names of a federation's ranks, and of the other processes that its protocol needs.
    pub fn of(spec: &FederationSpec) -> Names {
        Names::with_extra(spec, &spec.extra_processes())
    }

    /// Works like [`Names::of`], but with processes of these roles outside the clusters, instead of those that the
    /// protocol needs.
    pub fn with_extra(spec: &FederationSpec, roles: &[Role]) -> Names {
        let mut first: u32 = 0;
        let clusters: Vec<(String, Range<u32>)> = spec
            .clusters
            .iter()
            .map(|cluster| {
                // Only an invalid federation has more nodes than numbers.
                let processes = first..first.saturating_add(cluster.nodes);
                first = processes.end;
                (cluster.name.clone(), processes)
            })
            .collect();
        let extra = Names::extra_of(roles);
        let clusters_by_name = by_name(clusters.iter().map(|(name, _)| name));
        let extra_by_name = by_name(&extra);
        Names { clusters, extra, clusters_by_name, extra_by_name }
    }

    /// Returns the names of processes that are not ranks. Unlike the names of ranks, they do not end in a hyphen and a
    /// number.
    pub fn extra_of(roles: &[Role]) -> Vec<String> {
        // Number of processes so far, by the base of their names.
        let mut same: BTreeMap<&str, u32> = BTreeMap::new();
        let name = |&role: &Role| {
            let base = match role {
                Role::STORAGE_SERVER => "storage-server",
                Role::RECOVERY_PROCESS => "recovery-process",
                Role::EVENT_LOGGER => "event-logger",
                _ => "helper",
            };
            let same = same.entry(base).or_default();
            *same += 1;
            if *same == 1 { base.into() } else { format!("{base}.{}", *same - 1) }
        };
        roles.iter().map(name).collect()
    }

    /// Returns the names of the processes that are not ranks.
    pub fn extra(&self) -> &[String] {
        &self.extra
    }

    /// Returns the number of clusters.
    pub fn clusters(&self) -> usize {
        self.clusters.len()
    }

    /// Returns the number of processes that run the application.
    pub fn ranks(&self) -> u32 {
        self.clusters.last().map_or(0, |(_, processes)| processes.end)
    }

    /// Returns the name of a cluster; `outside` for [`ClusterId::OUTSIDE`].
    ///
    /// # Panics
    ///
    /// Panics if there is no such cluster.
    pub fn cluster(&self, cluster: ClusterId) -> &str {
        if cluster == ClusterId::OUTSIDE { "outside" } else { &self.clusters[cluster.index()].0 }
    }

    /// Returns the name of a process; `supervisor` for [`ProcessId::SUPERVISOR`].
    ///
    /// # Panics
    ///
    /// Panics if there is no such process.
    pub fn process(&self, process: ProcessId) -> String {
        if process == ProcessId::SUPERVISOR {
            return "supervisor".into();
        }
        if process.0 >= self.ranks() {
            return self.extra[(process.0 - self.ranks()) as usize].clone();
        }
        let (name, processes) = &self.clusters[self.cluster_of(process).index()];
        format!("{name}-{}", process.0 - processes.start)
    }

    /// Returns the names of all processes, by number.
    pub fn processes(&self) -> Vec<String> {
        (0..self.ranks() + self.extra.len() as u32).map(|it| self.process(ProcessId(it))).collect()
    }

    /// Returns the cluster of a process; [`ClusterId::OUTSIDE`] for a process outside the clusters.
    pub fn cluster_of(&self, process: ProcessId) -> ClusterId {
        match self.clusters.partition_point(|(_, processes)| processes.end <= process.0) {
            index if index < self.clusters.len() => ClusterId(index as u16),
            _ => ClusterId::OUTSIDE,
        }
    }

    /// Returns the numbers of the processes of a cluster.
    ///
    /// # Panics
    ///
    /// Panics if there is no such cluster.
    pub fn processes_of(&self, cluster: ClusterId) -> Range<u32> {
        self.clusters[cluster.index()].1.clone()
    }

    /// Returns the cluster with this name.
    pub fn cluster_id(&self, name: &str) -> Option<ClusterId> {
        self.clusters_by_name.get(name).map(|index| ClusterId(*index as u16))
    }

    /// Returns the process with this name.
    pub fn process_id(&self, name: &str) -> Option<ProcessId> {
        if let Some(index) = self.extra_by_name.get(name) {
            return Some(ProcessId(self.ranks() + *index as u32));
        }
        let (cluster, node) = name.rsplit_once('-')?;
        let process = self.node(self.cluster_id(cluster)?, node.parse().ok()?)?;
        // `paris-01` names no process.
        (self.process(process) == name).then_some(process)
    }

    /// Returns the process on node `node` of a cluster; `None` if it has no such node.
    pub fn node(&self, cluster: ClusterId, node: u32) -> Option<ProcessId> {
        let processes = self.processes_of(cluster);
        (node < processes.end - processes.start).then(|| ProcessId(processes.start + node))
    }
}

/// Returns the index of the first occurrence of each name.
fn by_name<'a>(names: impl IntoIterator<Item = &'a String>) -> BTreeMap<String, usize> {
    let mut indices = BTreeMap::new();
    for (index, name) in names.into_iter().enumerate() {
        indices.entry(name.clone()).or_insert(index);
    }
    indices
}

/// Returns the part of the names of Kubernetes objects that stands for a cluster, or for a process outside all clusters.
/// Such names cannot contain dots. No cluster may have the name that this function returns for a process.
pub fn in_objects(group: &str) -> String {
    group.replace('.', "-")
}

/// Returns the name of a federation's object on Kubernetes for a group of processes, or for another purpose.
pub fn object(federation: &str, purpose: &str) -> String {
    format!("{federation}-{}", in_objects(purpose))
}

/// The purpose of the objects for all pods of a federation: their network policy, and the service that gives them names.
pub const PODS: &str = "pods";

impl Names {
    /// Returns the domain names of the pods of all processes in clusters, which are the same in every life.
    pub fn hosts_in_pods(&self, federation: &str, namespace: &str) -> Vec<String> {
        let service = object(federation, PODS);
        let host = |process| {
            let cluster = self.cluster_of(process);
            let node = process.0 - self.processes_of(cluster).start;
            format!("{}-{node}.{service}.{namespace}.svc", object(federation, self.cluster(cluster)))
        };
        (0..self.ranks()).map(ProcessId).map(host).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{ApplicationSpec, ClusterSpec, Heat, ProtocolSpec, Unprotected};

    fn names() -> Names {
        let cluster = |name: &str, nodes| ClusterSpec::new(name, nodes);
        let spec = FederationSpec::new(
            vec![cluster("paris", 3), cluster("b-1", 2)],
            ProtocolSpec::None(Unprotected::default()),
            ApplicationSpec::Heat(Heat::default()),
        );
        Names::with_extra(&spec, &[Role::STORAGE_SERVER, Role(9), Role::STORAGE_SERVER])
    }

    #[test]
    fn every_process_has_a_name_that_leads_back_to_it() {
        let names = names();
        let expected = [
            "paris-0",
            "paris-1",
            "paris-2",
            "b-1-0",
            "b-1-1",
            "storage-server",
            "helper",
            "storage-server.1",
        ];
        assert_eq!(names.processes(), expected);
        for (number, name) in expected.iter().enumerate() {
            assert_eq!(names.process_id(name), Some(ProcessId(number as u32)), "{name}");
        }
        for name in ["paris", "paris-3", "b-1", "nancy-0", "", "-0", "paris-", "paris-01", "paris-+1"] {
            assert_eq!(names.process_id(name), None, "{name}");
        }
    }

    #[test]
    fn clusters_are_numbered_in_order() {
        let names = names();
        assert_eq!(names.cluster_id("b-1"), Some(ClusterId(1)));
        assert_eq!(names.cluster(ClusterId(1)), "b-1");
        assert_eq!(names.processes_of(ClusterId(1)), 3..5);
        assert_eq!(names.cluster_of(ProcessId(2)), ClusterId(0));
        assert_eq!(names.cluster_of(ProcessId(3)), ClusterId(1));
        assert_eq!(names.cluster_of(ProcessId(5)), ClusterId::OUTSIDE);
    }
}
