//! Federations whose processes run a task-based program.

use std::sync::Arc;

use faultline_api::flow::flow;
use faultline_api::resource::{self, FederationSpec, ProtocolSpec};
use faultline_api::{Federation, Problem};
use faultline_dataflow::programs::Flow;
use faultline_dataflow::{Program, Stealing, TaskProcess, TaskProcessConfig, TaskProtocol};
use faultline_protocols::none::NoProtocol;
use faultline_protocols::satin::Satin;
use faultline_protocols::theft;

use crate::protocol;
use crate::{Defect, Setup, SetupError, check};

/// An operation on a federation that runs a task-based program, generic over the federation's protocol.
pub trait TasksVisitor {
    /// The result of the operation.
    type Output;

    /// Performs the operation. Called once, with the protocol of the federation.
    fn visit<P>(self, setup: TasksSetup<P>) -> Self::Output
    where
        P: TaskProtocol<Config: Send + Sync> + Send + 'static;
}

/// The setup of a federation that runs a task-based program.
pub type TasksSetup<P, G = Flow> = Setup<TaskProcess<P, G>>;

impl<P: TaskProtocol, G: Program> TasksSetup<P, G> {
    /// Returns the same setup with another program, such as a user-defined one, which no file can name.
    pub fn running<H: Program>(self, program: H) -> TasksSetup<P, H> {
        let TaskProcessConfig { protocol, stealing, speeds, cores, .. } = (*self.process).clone();
        let program = Arc::new(program);
        Setup {
            process: Arc::new(TaskProcessConfig { protocol, program, stealing, speeds, cores }),
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

impl<P> TasksSetup<P>
where
    P: TaskProtocol<Config: Send + Sync> + Send + 'static,
{
    fn of_tasks(federation: &Federation, seed: u64, config: P::Config) -> Result<Self, SetupError> {
        let spec = &federation.spec;
        let program = program(spec)?;
        let extra = P::extra_processes(&config);
        let stealing = spec.stealing();
        let place = TaskProcessConfig {
            protocol: Arc::new(config),
            program: Arc::new(program),
            stealing: Stealing {
                patience: stealing.patience(),
                cluster_first: (stealing.cluster_first() * 100.0).round() as u8,
            },
            speeds: of_each_rank(spec, resource::ClusterSpec::speed),
            cores: of_each_rank(spec, resource::ClusterSpec::cores),
        };
        Ok(Setup::new(federation, seed, &extra, place))
    }
}

/// Returns the task-based program that a federation runs.
pub(crate) fn program(spec: &FederationSpec) -> Result<Flow, SetupError> {
    let program = flow(&spec.application).ok_or(SetupError::Messages)?;
    program.map_err(|problem| SetupError::Federation(vec![problem]))
}

/// Checks that the memory that a federation's task-based program needs at once is less than `limit` bytes. The first
/// task of an iterative program spawns all others in a single step, and a plan contains all of them, so the memory
/// cannot be checked while that happens.
///
/// # Errors
///
/// Fails if the program needs at least `limit` bytes.
pub fn check_memory(federation: &Federation, limit: u64) -> Result<(), SetupError> {
    let application = &federation.spec.application;
    // Other problems of the program are found when the federation is set up.
    let Some(Ok(program)) = flow(application) else { return Ok(()) };
    let bytes = program.least_bytes();
    if bytes < limit {
        return Ok(());
    }
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    Err(SetupError::Federation(vec![Problem {
        path: format!("spec.application.{}", application.name()),
        message: format!(
            "the program needs at least {} MiB at once, for its tasks and their data, but the memory limit leaves {} \
             MiB",
            mebibytes(bytes),
            limit >> 20
        ),
        help: "lower `iterations`, `rows`, `columns` or `size`, or raise `--memory`".to_owned(),
    }]))
}

/// Returns a property of each rank's cluster, by rank.
pub(crate) fn of_each_rank(spec: &FederationSpec, of: fn(&resource::ClusterSpec) -> u32) -> Arc<[u32]> {
    spec.clusters.iter().flat_map(|it| std::iter::repeat_n(of(it), it.nodes as usize)).collect()
}

/// Sets up a federation that runs a task-based program, and calls `visitor` with it. `seed` replaces the resource's own
/// seed.
///
/// # Errors
///
/// Fails if the federation is invalid, if its processes exchange messages, or if its tasks are assigned in advance.
pub fn with_tasks<V: TasksVisitor>(
    federation: &Federation,
    seed: Option<u64>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    check(federation)?;
    if federation.spec.is_planned() {
        return Err(SetupError::Planned);
    }
    with_valid_tasks(federation, seed, None, visitor)
}

pub(crate) fn with_valid_tasks<V: TasksVisitor>(
    federation: &Federation,
    seed: Option<u64>,
    defect: Option<Defect>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    let spec = &federation.spec;
    let seed = seed.unwrap_or_else(|| spec.seed());
    Ok(match &spec.protocol {
        ProtocolSpec::Tic(_) => {
            let config = protocol::theft(spec, theft::StableState::Graph, defect)?;
            visitor.visit(TasksSetup::<theft::TaskRecovery>::of_tasks(federation, seed, config)?)
        }
        ProtocolSpec::Sel(_) => {
            let config = protocol::theft(spec, theft::StableState::Events, defect)?;
            visitor.visit(TasksSetup::<theft::TaskRecovery>::of_tasks(federation, seed, config)?)
        }
        ProtocolSpec::Satin(_) => {
            let config = protocol::satin(defect)?;
            visitor.visit(TasksSetup::<Satin>::of_tasks(federation, seed, config)?)
        }
        ProtocolSpec::None(_) => {
            protocol::without_defects(defect)?;
            visitor.visit(TasksSetup::<NoProtocol>::of_tasks(federation, seed, ())?)
        }
        _ => return Err(SetupError::Tasks),
    })
}
