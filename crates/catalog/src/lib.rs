//! Translates a federation into the configurations of its protocol and its application. No other crate does this.
//!
//! All protocols for processes that exchange messages share one type, [`AnyProtocol`], and so do all applications that
//! exchange messages, and all task-based programs. [`Visitor::visit`] is called with the type of a federation's processes.
//! This crate does not run anything.

pub mod any;
mod application;
pub mod custom;
pub mod defect;
mod hosted;
pub mod manifest;
mod planned;
mod program;
mod protocol;
mod rederive;
mod simulation;
mod tasks;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faultline_api::failure_trace::unread_traces;
use faultline_api::resource::custom::InvalidParameter;
use faultline_api::resource::{self, Family, FederationSpec, Simulator, Storage, StorageKind};
use faultline_api::{Federation, Names, Problem, plan_among, validate};
use faultline_core::fault::LinkProperties;
use faultline_core::{
    Application, Cluster, ClusterId, Digest, Life, Member, Membership, MembershipVersion, Node, NodeConfig,
    NodeId, Presence, Process, ProcessId, Promises, Protocol, Role, Span,
};
use faultline_dataflow::TaskProtocol;
use faultline_supervisor::process_seed;
use faultline_workloads::{Invalid, Workload};

pub use any::AnyProtocol;
pub use custom::{CustomApplication, CustomProtocol};
pub use defect::Defect;
pub use hosted::Hosted;
pub use planned::{PieceTraffic, traffic_of_pieces};
pub use program::{
    LoggedLine, end_all, guard_with, host_in, keep_log, never_reuse, prepare_programs, show_lines, store_in,
    take_log, with_exchanged_executions,
};
pub use rederive::{Rederived, rederive};
pub use tasks::{TasksSetup, TasksVisitor, check_memory, with_tasks};
pub use watched::{Watched, check_virtual_time, final_checks};

/// The default of `simulator.leastWorkLeft`: the percentage of the work that must remain for a fault to take effect, unless
/// faults are drawn from a distribution.
const LEAST_WORK_LEFT_PERCENT: u8 = 20;
/// Minimum time within which processes must start and links must have been measured, however short the deadline is.
const START_WITHIN: Span = Span::from_secs(60);

/// The reason why a federation cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The federation has these problems.
    #[error("the federation is not valid: {}: {}", .0[0].path, .0[0].message)]
    Federation(Vec<Problem>),
    /// A program that is the protocol or the application of the federation cannot be started.
    #[error("{}", .0.message)]
    Program(Problem),
    /// The application cannot run on these clusters.
    #[error("the application cannot run: {0}")]
    Application(#[from] Invalid),
    /// The operation requires processes that exchange messages, but the application is a task-based program.
    #[error("the application is a task-based program, not one whose processes exchange messages")]
    Tasks,
    /// The operation requires a task-based program, but the application's processes exchange messages.
    #[error("the application has no tasks: its processes exchange messages")]
    Messages,
    /// The operation requires tasks that processes steal, but the tasks are assigned in advance.
    #[error("the tasks of this federation are assigned in advance, and no process steals any")]
    Planned,
    /// The operation requires tasks that are assigned in advance, but under this protocol, processes steal them.
    #[error("under this protocol, processes steal tasks, and no task is assigned in advance")]
    Stolen,
    /// The operation requires virtual time, but a system runs only in real time.
    #[error("a system cannot run in virtual time: its programs read the real clock")]
    System,
    /// A known defect was requested in a build without debug assertions.
    #[error("known defects are available only in development builds")]
    WithoutDefects,
    /// The requested defect belongs to another protocol.
    #[error("`{0}` is not a defect of this federation's protocol")]
    ForeignDefect(Defect),
}

impl SetupError {
    /// Returns the error for a file that names a protocol or an application that this program does not contain.
    fn unknown(kind: &str, custom: &resource::Custom) -> SetupError {
        SetupError::Federation(vec![Problem {
            path: format!("spec.{kind}.custom.name"),
            message: format!("this program does not contain the {kind} `{}`", custom.name),
            help: format!("run the program that was built with this {kind} (docs/{kind}s.md)"),
        }])
    }

    /// Returns the error for parameters that do not suit the federation.
    fn unsuitable(kind: &str, invalid: InvalidParameter) -> SetupError {
        let InvalidParameter { parameter, message } = invalid;
        let parameter = parameter.map(|it| format!(".{it}")).unwrap_or_default();
        let path = format!("spec.{kind}.custom{parameter}");
        SetupError::Federation(vec![Problem { path, message, help: "change the parameter".to_owned() }])
    }
}

/// An operation on a federation, generic over the type of its processes.
pub trait Visitor {
    /// The result of the operation.
    type Output;

    /// Performs the operation. Called once, with the type of the federation's processes.
    fn visit<N: Hosted>(self, setup: Setup<N>) -> Self::Output;
}

/// The setup of a federation whose processes exchange messages.
pub type MessagesSetup<P = AnyProtocol, A = Workload> = Setup<Node<P, A>>;

/// Adapts a [`Visitor`] to [`TasksVisitor`].
struct Any<V>(V);

impl<V: Visitor> TasksVisitor for Any<V> {
    type Output = V::Output;

    fn visit<P>(self, setup: TasksSetup<P>) -> V::Output
    where
        P: TaskProtocol<Config: Send + Sync> + Send + 'static,
    {
        self.0.visit(setup)
    }
}

/// The configuration of a federation: everything that a driver needs, on any backend.
#[derive(Clone, Debug)]
pub struct Setup<N: Process> {
    /// The configuration of every process.
    pub process: Arc<N::Config>,
    /// Processes, clusters and nodes before any process is up: version 0, all lives 0. Processes that the protocol
    /// needs besides the ranks come last, outside all clusters, each on its own node.
    pub membership: Membership,
    /// Names of processes and clusters.
    pub names: Names,
    /// Properties of all links, by sending and receiving cluster, including [`ClusterId::OUTSIDE`].
    pub links: BTreeMap<(ClusterId, ClusterId), LinkProperties>,
    /// The storage of every node. The backend chooses whatever is not specified.
    pub storage: Storage,
    /// Options that affect only the simulator.
    pub simulator: Simulator,
    /// Detection, restart, deadline, and the fault plan.
    pub supervisor: faultline_supervisor::Config,
    /// The seed of all random choices of the run. The seed of each process derives from it ([`process_seed`]).
    pub seed: u64,
}

impl<P: Protocol, A: Application> MessagesSetup<P, A> {
    /// Returns the same setup with another application, which may be one that no file can describe.
    pub fn hosting<B: Application>(self, application: B::Config) -> MessagesSetup<P, B> {
        let (protocol, verify) = (self.process.protocol.clone(), self.process.verify);
        Setup {
            process: Arc::new(NodeConfig { protocol, application: Arc::new(application), verify }),
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
    P: Protocol<Config: Send + Sync> + Send + 'static,
{
    /// Sets up a federation under a protocol that the catalog does not contain. The resource cannot describe such a
    /// protocol, so it must specify `none`. Faults may name the processes that the protocol needs besides the ranks
    /// ([`Names::extra_of`]).
    ///
    /// # Errors
    ///
    /// Fails if the federation cannot be set up.
    pub fn of_own(federation: &Federation, seed: u64, config: P::Config) -> Result<Self, SetupError> {
        let sizes: Vec<usize> = federation.spec.clusters.iter().map(|it| it.nodes as usize).collect();
        let application = application::config(&federation.spec, seed)?;
        application.validate(&sizes)?;
        let extra = P::extra_processes(&config);
        let verify = federation.spec.storage().verify;
        let process = NodeConfig { protocol: Arc::new(config), application: Arc::new(application), verify };
        Ok(Setup::new(federation, seed, &extra, process))
    }
}

impl<N: Hosted> Setup<N> {
    /// Returns the promises of the protocol with its parameters.
    pub fn promises(&self) -> Promises {
        N::promises(&self.process)
    }

    /// Returns the result of each rank in a run without faults; `None` for an application whose result depends on
    /// timing.
    ///
    /// The call may take as long as the computations of the application, but modelled time takes no real
    /// time.
    pub fn reference(&self) -> Option<Vec<(ProcessId, Digest)>> {
        N::reference(&self.process, &self.membership, &|process| process_seed(self.seed, process))
    }

    /// Returns the configuration that every process has in virtual time. It omits content that serves only as
    /// padding.
    pub fn process_in_virtual_time(&self) -> Arc<N::Config> {
        N::for_virtual_time(&self.process).map_or_else(|| Arc::clone(&self.process), Arc::new)
    }

    /// Creates a setup. `extra` lists the processes that the protocol needs besides the ranks.
    fn new(federation: &Federation, seed: u64, extra: &[Role], process: N::Config) -> Setup<N> {
        let spec = &federation.spec;
        let names = Names::with_extra(spec, extra);
        let (storage, simulator) = (spec.storage(), spec.simulator());
        Setup {
            membership: membership(spec, extra),
            links: spec.links().expand(&spec.clusters),
            supervisor: faultline_supervisor::Config {
                detect_after: spec.detect_after(),
                restart_after: spec.failures().restart_after(),
                spares: spec.failures().spares(),
                volatile_storage: storage.kind == StorageKind::Memory,
                deadline: spec.deadline(),
                start_within: Some(spec.deadline().max(START_WITHIN)),
                scope: N::promises(&process).scope,
                is_planned: spec.is_planned(),
                joins: joins(spec),
                // Without tasks, `leaves_after` is a computing time, which the application itself counts.
                leaves: (0..)
                    .zip(&spec.clusters)
                    .filter(|_| spec.application.family() == Family::Tasks)
                    .filter_map(|(id, cluster)| Some((ClusterId(id), cluster.leaves_after?.0)))
                    .collect(),
                plan: plan_among(federation, &names, seed),
                least_work_left_percent: simulator
                    .least_work_left
                    .map_or_else(|| least_work_left(spec), |it| it.min(100) as u8),
                system: None,
            },
            process: Arc::new(process),
            names,
            storage,
            simulator,
            seed,
        }
    }
}

/// Returns the default of `simulator.leastWorkLeft`. A limit would suppress the last of the drawn faults, so that there
/// would be fewer than the distribution states.
fn least_work_left(spec: &FederationSpec) -> u8 {
    let are_drawn = spec.faults.iter().any(|it| it.repeated().is_some());
    if are_drawn { 0 } else { LEAST_WORK_LEFT_PERCENT }
}

/// Returns an error with the problems of a federation that does not pass [`validate()`].
fn check(federation: &Federation) -> Result<(), SetupError> {
    let mut problems = validate(federation);
    problems.extend(unread_traces(&federation.spec.faults));
    if problems.is_empty() { Ok(()) } else { Err(SetupError::Federation(problems)) }
}

/// Sets up `federation` and passes the setup to `visitor`. `seed` replaces the resource's own seed.
///
/// # Errors
///
/// Fails if the federation cannot be set up.
pub fn with_setup<V: Visitor>(
    federation: &Federation,
    seed: Option<u64>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    check(federation)?;
    with_valid(federation, seed, None, visitor)
}

/// Sets up a federation whose processes exchange messages. `seed` replaces the resource's own seed.
///
/// # Errors
///
/// Fails if the federation cannot be set up.
pub fn messages(federation: &Federation, seed: Option<u64>) -> Result<MessagesSetup, SetupError> {
    check(federation)?;
    valid_messages(federation, seed, None)
}

/// Sets up a federation that is known to pass [`validate()`], with `defect` enabled in its protocol. Skips the
/// validation, which would take too long for thousands of federations.
///
/// # Errors
///
/// Fails if the application cannot run on the clusters, if the defect belongs to another protocol, or if this build
/// cannot enable defects.
pub fn with_valid<V: Visitor>(
    federation: &Federation,
    seed: Option<u64>,
    defect: Option<Defect>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    match federation.spec.application.family() {
        Family::Messages => Ok(visitor.visit(valid_messages(federation, seed, defect)?)),
        Family::Tasks => with_valid_program(federation, seed, defect, visitor),
        Family::System => watched::with_valid_system(federation, seed, visitor),
    }
}

/// Works like [`with_valid`], but for a federation that runs a task-based program.
///
/// # Errors
///
/// Fails if the federation cannot be set up.
pub fn with_valid_program<V: Visitor>(
    federation: &Federation,
    seed: Option<u64>,
    defect: Option<Defect>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    if federation.spec.is_planned() {
        planned::with_valid_plan(federation, seed, defect, visitor)
    } else {
        tasks::with_valid_tasks(federation, seed, defect, Any(visitor))
    }
}

/// Works like [`messages`], but for a federation that is known to pass [`validate()`], with `defect` enabled in its protocol.
///
/// # Errors
///
/// Fails if the application cannot run on the clusters, if the defect belongs to another protocol, or if this build
/// cannot enable defects.
pub fn valid_messages(
    federation: &Federation,
    seed: Option<u64>,
    defect: Option<Defect>,
) -> Result<MessagesSetup, SetupError> {
    let seed = seed.unwrap_or_else(|| federation.spec.seed());
    MessagesSetup::of_own(federation, seed, protocol::config(&federation.spec, defect)?)
}

/// Returns the clusters that join during the run.
pub fn awaited_clusters(spec: &FederationSpec) -> BTreeSet<ClusterId> {
    joins(spec).into_iter().map(|(id, _)| id).collect()
}

/// Returns the clusters that join during the run, with the delays after which they join.
fn joins(spec: &FederationSpec) -> Vec<(ClusterId, Span)> {
    let numbered = (0..).map(ClusterId).zip(&spec.clusters);
    numbered.filter_map(|(id, cluster)| Some((id, cluster.joins_after?.0))).collect()
}

/// Returns the membership before the run: the processes of the clusters in the order of the resource, node by node,
/// then all other processes.
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
            idle_lives: 0,
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
