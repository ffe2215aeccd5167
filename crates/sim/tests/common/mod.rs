//! Federations under HC3I for the tests and benchmarks of the simulator.

use std::sync::Arc;

use faultline_core::fault::LinkProperties;
use faultline_core::{
    Cluster, ClusterId, Fault, FaultNo, Life, Member, Membership, MembershipVersion, Node, NodeConfig,
    NodeId, PlannedFault, ProcessId, Role, Span, Trigger,
};
use faultline_protocols::hc3i::{self, Hc3i, ReplicateTo};
use faultline_sim::{Config, Links};
use faultline_workloads::Workload;

pub(crate) type Process = Node<Hc3i, Workload>;

/// Returns the initial membership for clusters of these sizes: no process is up. Each rank has its own node.
pub(crate) fn membership(clusters: &[usize]) -> Membership {
    let mut members = Vec::new();
    let mut each = Vec::new();
    for (cluster, &size) in clusters.iter().enumerate() {
        let first = members.len() as u32;
        let processes = (first..first + size as u32).map(ProcessId).collect();
        each.push(Cluster::new(processes));
        members.extend((first..first + size as u32).map(|index| Member {
            cluster: ClusterId(cluster as u16),
            role: Role::RANK,
            node: NodeId(index),
            life: Life(0),
            up: false,
            started: false,
            gone: false,
            idle_lives: 0,
        }));
    }
    Membership { version: MembershipVersion(0), members: members.into(), clusters: each.into() }
}

/// Returns links with a SAN within clusters and a WAN between them.
pub(crate) fn links(clusters: usize) -> Links {
    let within =
        LinkProperties { latency: Span::from_micros(10), bandwidth: 80_000_000, ..LinkProperties::default() };
    let between = LinkProperties {
        latency: Span::from_millis(5),
        jitter: Span::from_micros(200),
        bandwidth: 12_500_000,
        ..LinkProperties::default()
    };
    Links::uniform(clusters, within, between)
}

/// Returns parameters of HC3I with one replica of each part in another cluster.
pub(crate) fn hc3i(clusters: usize, checkpoint_every: Span) -> hc3i::Config {
    hc3i::Config {
        checkpoint_every: vec![Some(checkpoint_every); clusters].into(),
        collect_every: Some(checkpoint_every * 4),
        collect_by: hc3i::CollectBy::Initiator,
        replicas: 1,
        replicate_to: ReplicateTo::OtherCluster,
        piggyback: hc3i::Piggyback::Sn,
        forcing: hc3i::Forcing::News,
        retry_every: Span::from_millis(100),
        defects: hc3i::Defects::default(),
    }
}

/// Returns the configuration of a simulation of `application` on these clusters, with these faults.
pub(crate) fn config(
    clusters: &[usize],
    protocol: hc3i::Config,
    application: faultline_workloads::Config,
    faults: Vec<(Trigger, Fault)>,
    seed: u64,
) -> Config<NodeConfig<Hc3i, Workload>> {
    let plan = faults.into_iter().enumerate();
    let supervisor = faultline_supervisor::Config {
        detect_after: Span::from_millis(500),
        restart_after: Span::from_millis(200),
        spares: 0,
        volatile_storage: false,
        deadline: Span::from_secs(36_000 * 2),
        start_within: Some(Span::from_secs(36_000 * 2)),
        plan: plan
            .map(|(no, (trigger, fault))| PlannedFault {
                no: FaultNo(no as u32),
                trigger,
                fault,
                reported: None,
                cause: None,
            })
            .collect(),
        scope: faultline_core::Scope::Cluster,
        joins: Vec::new(),
        leaves: Vec::new(),
        is_planned: false,
        least_work_left_percent: 20,
        system: None,
    };
    let (protocol, application) = (Arc::new(protocol), Arc::new(application));
    let process = NodeConfig { protocol, application, verify: false };
    Config::new(Arc::new(process), membership(clusters), links(clusters.len()), supervisor, seed)
}
