//! The one place that maps a federation to protocol and application values.
//!
//! Protocols are monomorphised: whoever runs a federation does so in [`Visitor::visit`], which is called with the
//! protocol's type. Applications are one enum. Nothing here runs anything.

mod application;
pub mod manifest;
mod protocol;

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_api::resource::{FederationSpec, Protocol as Asked, Storage, StorageKind};
use faultline_api::{Federation, Names, Problem, plan, validate};
use faultline_core::fault::LinkProperties;
use faultline_core::{
    Cluster, ClusterId, Digest, Life, Member, Membership, MembershipVersion, NodeConfig, NodeId, ProcessId,
    Protocol, Role,
};
use faultline_protocols::hc3i::{Hc3i, Scope};
use faultline_protocols::none::NoProtocol;
use faultline_supervisor::process_seed;
use faultline_workloads::{Invalid, Workload};

/// A fault that finds less than this share of the work left took no effect, in percent.
const LEAST_WORK_LEFT_PERCENT: u8 = 20;

/// Why a federation cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The resource has not been validated, or did not pass.
    #[error("the federation is not valid: {}: {}", .0[0].path, .0[0].message)]
    Federation(Vec<Problem>),
    /// The application cannot run on these clusters.
    #[error("the application cannot run: {0}")]
    Application(#[from] Invalid),
}

/// Something to be done with a federation, whatever its protocol.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it. Called once, with the protocol that the federation asks for.
    fn visit<P>(self, setup: Setup<P>) -> Self::Output
    where
        P: Protocol + Send + Sync + 'static,
        P::Config: Send + Sync;
}

/// A federation in values: everything that a driver needs, on any backend.
#[derive(Clone, Debug)]
pub struct Setup<P: Protocol> {
    /// The configuration of every process.
    pub process: Arc<NodeConfig<P, Workload>>,
    /// Who is where, before anybody is up: version 0, lives 0. The processes that the protocol needs beside the ranks
    /// come last, outside every cluster, each on a node of its own.
    pub membership: Membership,
    /// What processes and clusters are called.
    pub names: Names,
    /// The properties of every link, by sending and receiving cluster, [`ClusterId::OUTSIDE`] among them.
    pub links: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
    /// The storage of every node. What is not stated is up to the backend.
    pub storage: Storage,
    /// Detection, restart, deadline, and the plan of faults.
    pub supervisor: faultline_supervisor::Config,
    /// Decides every random choice of the run; each process has its own from it ([`process_seed`]).
    pub seed: u64,
}

impl<P: Protocol> Setup<P> {
    /// What each rank computes when nothing fails. `None` for an application whose result is an accident of timing.
    ///
    /// May take as long as the application computes, modelled time aside.
    pub fn reference(&self) -> Option<Vec<(ProcessId, Digest)>> {
        let seed = |process| process_seed(self.seed, process);
        faultline_workloads::reference(&self.process.application, &self.membership, seed)
    }

    fn new(federation: &Federation, seed: u64, config: P::Config) -> Result<Setup<P>, SetupError> {
        let spec = &federation.spec;
        let extra = P::extra_processes(&config);
        let sizes: Vec<usize> = spec.clusters.iter().map(|it| it.nodes as usize).collect();
        let application = application::config(spec);
        application.validate(&sizes)?;
        let storage = spec.storage();
        Ok(Setup {
            process: Arc::new(NodeConfig { protocol: Arc::new(config), application: Arc::new(application) }),
            membership: membership(spec, &extra),
            names: Names::of(spec).with_extra(&extra),
            links: links(spec),
            supervisor: faultline_supervisor::Config {
                detect_after: spec.failures().detect_after(),
                restart_after: spec.failures().restart_after(),
                volatile_storage: storage.kind == StorageKind::Memory,
                deadline: spec.deadline(),
                plan: plan(federation, seed),
                least_work_left_percent: LEAST_WORK_LEFT_PERCENT,
            },
            storage,
            seed,
        })
    }
}

/// Sets up `federation` and hands it to `visitor`. `seed` stands in for the resource's own.
pub fn with_setup<V: Visitor>(
    federation: &Federation,
    seed: Option<u64>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    let problems = validate(federation);
    if !problems.is_empty() {
        return Err(SetupError::Federation(problems));
    }
    let spec = &federation.spec;
    let seed = seed.unwrap_or_else(|| spec.seed());
    Ok(match &spec.protocol {
        Asked::Hc3i(_) => {
            visitor.visit(Setup::<Hc3i>::new(federation, seed, protocol::hc3i(spec, Scope::Cluster))?)
        }
        Asked::Coordinated(_) => {
            visitor.visit(Setup::<Hc3i>::new(federation, seed, protocol::hc3i(spec, Scope::Federation))?)
        }
        Asked::None(_) => visitor.visit(Setup::<NoProtocol>::new(federation, seed, ())?),
    })
}

/// Clusters in the order of the resource, their processes node by node, then the others.
fn membership(spec: &FederationSpec, extra: &[Role]) -> Membership {
    let mut members = Vec::new();
    let mut join = |cluster, role| {
        let process = ProcessId(members.len() as u32);
        members.push(Member { cluster, role, node: NodeId(process.0), life: Life(0), up: false });
        process
    };
    let clusters: Vec<Cluster> = (0..)
        .zip(&spec.clusters)
        .map(|(id, cluster)| {
            let processes = (0..cluster.nodes).map(|_| join(ClusterId(id), Role::RANK)).collect();
            Cluster { processes, started: false }
        })
        .collect();
    extra.iter().for_each(|&role| {
        join(ClusterId::OUTSIDE, role);
    });
    Membership { version: MembershipVersion(0), members: members.into(), clusters: clusters.into() }
}

/// The properties of every link. Processes outside every cluster are reached, and reach each other, as other clusters
/// are.
fn links(spec: &FederationSpec) -> BTreeMap<(ClusterId, ClusterId), LinkProperties> {
    let links = spec.links();
    let clusters = || (0..).zip(&spec.clusters).map(|(id, cluster)| (ClusterId(id), cluster.name.as_str()));
    let mut properties = BTreeMap::from([((ClusterId::OUTSIDE, ClusterId::OUTSIDE), links.between())]);
    for (from, sender) in clusters() {
        properties.insert((from, ClusterId::OUTSIDE), links.between());
        properties.insert((ClusterId::OUTSIDE, from), links.between());
        for (to, receiver) in clusters() {
            properties.insert((from, to), links.properties(sender, receiver));
        }
    }
    properties
}
