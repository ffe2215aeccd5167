//! The one place that maps a federation to protocol and application values.
//!
//! Protocols are monomorphised: [`Visitor::visit`] is called with the type of a federation's processes. Applications are one
//! enum. Nothing here runs anything.

mod application;
pub mod defect;
mod hosted;
pub mod manifest;
mod protocol;
mod rederive;
mod simulation;

use std::collections::BTreeMap;
use std::sync::Arc;

use faultline_api::resource::{FederationSpec, Protocol as Asked, Simulator, Storage, StorageKind};
use faultline_api::{Federation, Names, Problem, plan_among, validate};
use faultline_core::fault::LinkProperties;
use faultline_core::{
    Application, Cluster, ClusterId, Digest, Life, Member, Membership, MembershipVersion, Node, NodeConfig,
    NodeId, Presence, Process, ProcessId, Promises, Protocol, Role, Scope,
};
use faultline_protocols::hc3i::Hc3i;
use faultline_protocols::hydee::{Hydee, Recovery};
use faultline_protocols::none::NoProtocol;
use faultline_supervisor::process_seed;
use faultline_workloads::{Invalid, Workload};

pub use defect::Defect;
pub use hosted::Hosted;
pub use rederive::{Rederived, rederive};

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
    /// A known defect was asked for, in a build without them.
    #[error("this build knows no defects; they are compiled in by the feature `defects`")]
    WithoutDefects,
    /// A known defect was asked for that is another protocol's.
    #[error("`{0}` is no defect of this federation's protocol")]
    AnothersDefect(Defect),
}

/// Something to be done with a federation, whatever its protocol.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does it. Called once, with the processes that the federation asks for.
    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output;
}

/// Something to be done with a federation whose processes exchange messages, whatever its protocol.
pub trait MessagesVisitor {
    /// What comes of it.
    type Output;

    /// Does it. Called once, with the protocol that the federation asks for.
    fn visit<P>(self, setup: MessagesSetup<P>) -> Self::Output
    where
        P: Protocol + Send + Sync + 'static,
        P::Config: Send + Sync;
}

/// The setup of a federation whose processes exchange messages.
pub type MessagesSetup<P, A = Workload> = Setup<Node<P, A>>;

/// Hands what is for messages to a visitor of all federations.
struct Any<V>(V);

impl<V: Visitor> MessagesVisitor for Any<V> {
    type Output = V::Output;

    fn visit<P>(self, setup: MessagesSetup<P>) -> V::Output
    where
        P: Protocol + Send + Sync + 'static,
        P::Config: Send + Sync,
    {
        self.0.visit(setup)
    }
}

/// A federation in values: everything that a driver needs, on any backend.
#[derive(Clone, Debug)]
pub struct Setup<N: Process> {
    /// The configuration of every process.
    pub process: Arc<N::Config>,
    /// Who is where, before anybody is up: version 0, lives 0. The processes that the protocol needs beside the ranks
    /// come last, outside every cluster, each on a node of its own.
    pub membership: Membership,
    /// What processes and clusters are called.
    pub names: Names,
    /// The properties of every link, by sending and receiving cluster, [`ClusterId::OUTSIDE`] among them.
    pub links: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
    /// The storage of every node. What is not stated is up to the backend.
    pub storage: Storage,
    /// What only the simulator does.
    pub simulator: Simulator,
    /// Detection, restart, deadline, and the plan of faults.
    pub supervisor: faultline_supervisor::Config,
    /// Decides every random choice of the run; each process has its own from it ([`process_seed`]).
    pub seed: u64,
}

impl<P: Protocol, A: Application> MessagesSetup<P, A> {
    /// The same federation with another application, which no file names.
    pub fn hosting<B: Application>(self, application: B::Config) -> MessagesSetup<P, B> {
        let protocol = self.process.protocol.clone();
        Setup {
            process: Arc::new(NodeConfig { protocol, application: Arc::new(application) }),
            membership: self.membership,
            names: self.names,
            links: self.links,
            storage: self.storage,
            simulator: self.simulator,
            supervisor: self.supervisor,
            seed: self.seed,
        }
    }
}

impl<P> MessagesSetup<P>
where
    P: Protocol<Config: Send + Sync> + 'static,
{
    /// A federation under a protocol that the catalog does not know. It stands outside the resource, which asks for `none`.
    /// Faults may name the processes that it needs beside the ranks ([`Names::extra_of`]).
    pub fn of_own(federation: &Federation, seed: u64, config: P::Config) -> Result<Self, SetupError> {
        Setup::of_messages(federation, seed, config)
    }

    fn of_messages(federation: &Federation, seed: u64, config: P::Config) -> Result<Self, SetupError> {
        let sizes: Vec<usize> = federation.spec.clusters.iter().map(|it| it.nodes as usize).collect();
        let application = application::config(&federation.spec);
        application.validate(&sizes)?;
        let extra = P::extra_processes(&config);
        let process = NodeConfig { protocol: Arc::new(config), application: Arc::new(application) };
        Ok(Setup::new(federation, seed, &extra, process))
    }
}

impl<N: Hosted> Setup<N> {
    /// What the protocol promises with its parameters.
    pub fn promises(&self) -> Promises {
        N::promises(&self.process)
    }

    /// What each rank computes when nothing fails. `None` for an application whose result is an accident of timing.
    ///
    /// May take as long as the application computes, modelled time aside.
    pub fn reference(&self) -> Option<Vec<(ProcessId, Digest)>> {
        N::reference(&self.process, &self.membership, &|process| process_seed(self.seed, process))
    }

    /// `extra` are the processes that the protocol needs beside the ranks.
    fn new(federation: &Federation, seed: u64, extra: &[Role], process: N::Config) -> Setup<N> {
        let spec = &federation.spec;
        let names = Names::with_extra(spec, extra);
        let (storage, simulator) = (spec.storage(), spec.simulator());
        Setup {
            membership: membership(spec, extra),
            links: spec.links().expand(&spec.clusters),
            supervisor: faultline_supervisor::Config {
                detect_after: spec.failures().detect_after(),
                restart_after: spec.failures().restart_after(),
                volatile_storage: storage.kind == StorageKind::Memory,
                deadline: spec.deadline(),
                start_within: Some(spec.deadline()),
                scope: N::promises(&process).scope,
                joins: (0..)
                    .zip(&spec.clusters)
                    .filter_map(|(id, cluster)| Some((ClusterId(id), cluster.joins_after?.0)))
                    .collect(),
                plan: plan_among(federation, &names, seed),
                least_work_left_percent: simulator
                    .least_work_left
                    .map_or(LEAST_WORK_LEFT_PERCENT, |it| it.min(100) as u8),
            },
            process: Arc::new(process),
            names,
            storage,
            simulator,
            seed,
        }
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
    with_valid(federation, seed, None, visitor)
}

/// As [`with_setup`], for a visitor of processes that exchange messages.
pub fn with_messages<V: MessagesVisitor>(
    federation: &Federation,
    seed: Option<u64>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    let problems = validate(federation);
    if !problems.is_empty() {
        return Err(SetupError::Federation(problems));
    }
    with_valid_messages(federation, seed, None, visitor)
}

/// Sets up a federation that [`validate`] finds nothing wrong with, its protocol wrong in the way of `defect`. Setting up
/// thousands takes too long with the rules of an API server each time.
pub fn with_valid<V: Visitor>(
    federation: &Federation,
    seed: Option<u64>,
    defect: Option<Defect>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    with_valid_messages(federation, seed, defect, Any(visitor))
}

fn with_valid_messages<V: MessagesVisitor>(
    federation: &Federation,
    seed: Option<u64>,
    defect: Option<Defect>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    let spec = &federation.spec;
    let seed = seed.unwrap_or_else(|| spec.seed());
    Ok(match &spec.protocol {
        Asked::Hc3i(_) => {
            let config = protocol::hc3i(spec, Scope::Cluster, defect)?;
            visitor.visit(MessagesSetup::<Hc3i>::of_messages(federation, seed, config)?)
        }
        Asked::Hydee(_) => {
            let config = protocol::hydee(spec, Scope::Cluster, Recovery::Phases, defect)?;
            visitor.visit(MessagesSetup::<Hydee>::of_messages(federation, seed, config)?)
        }
        Asked::FullLogging(_) => {
            let config = protocol::hydee(spec, Scope::Process, Recovery::Phases, defect)?;
            visitor.visit(MessagesSetup::<Hydee>::of_messages(federation, seed, config)?)
        }
        Asked::Spbc(_) => {
            let config = protocol::hydee(spec, Scope::Cluster, Recovery::Pairs, defect)?;
            visitor.visit(MessagesSetup::<Hydee>::of_messages(federation, seed, config)?)
        }
        Asked::PessimisticLogging(_) => {
            let config = protocol::hydee(spec, Scope::Process, Recovery::Determinants, defect)?;
            visitor.visit(MessagesSetup::<Hydee>::of_messages(federation, seed, config)?)
        }
        Asked::Independent(_) => {
            let config = protocol::hc3i(spec, Scope::Process, defect)?;
            visitor.visit(MessagesSetup::<Hc3i>::of_messages(federation, seed, config)?)
        }
        Asked::Coordinated(_) | Asked::ChandyLamport(_) | Asked::HierarchicalCoordinated(_) => {
            let config = protocol::hc3i(spec, Scope::Federation, defect)?;
            visitor.visit(MessagesSetup::<Hc3i>::of_messages(federation, seed, config)?)
        }
        Asked::None(_) => match defect {
            Some(defect) => return Err(SetupError::AnothersDefect(defect)),
            None => visitor.visit(MessagesSetup::<NoProtocol>::of_messages(federation, seed, ())?),
        },
    })
}

/// Clusters in the order of the resource, their processes node by node, then the others.
fn membership(spec: &FederationSpec, extra: &[Role]) -> Membership {
    let mut members = Vec::new();
    let mut join = |cluster, role| {
        let process = ProcessId(members.len() as u32);
        members.push(Member {
            cluster,
            role,
            node: NodeId(process.0),
            life: Life(0),
            up: false,
            started: false,
            gone: false,
        });
        process
    };
    let clusters: Vec<Cluster> = (0..)
        .zip(&spec.clusters)
        .map(|(id, cluster)| {
            let processes = (0..cluster.nodes).map(|_| join(ClusterId(id), Role::RANK)).collect();
            let presence = match cluster {
                cluster if cluster.is_permanent() => Presence::Permanent,
                cluster if cluster.joins_after.is_some() => Presence::Awaited,
                _ => Presence::Present,
            };
            Cluster { processes, presence }
        })
        .collect();
    extra.iter().for_each(|&role| {
        join(ClusterId::OUTSIDE, role);
    });
    Membership { version: MembershipVersion(0), members: members.into(), clusters: clusters.into() }
}
