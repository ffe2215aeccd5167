//! Federations whose processes run a planned program: its tasks are assigned to processes in advance.

use std::sync::Arc;

use faultline_api::Federation;
use faultline_api::flow::unread;
use faultline_api::resource::{ClusterSpec, Family, ProtocolSpec, TaskOrder};
use faultline_dataflow::partition::PartitionProtocol;
use faultline_dataflow::plan::in_blocks;
use faultline_dataflow::programs::Flow;
use faultline_dataflow::{Partition, PartitionConfig, PartitionMap, Plan};
use faultline_protocols::cck::Cck;
use faultline_protocols::none::NoProtocol;

use crate::tasks::{of_each_rank, program};
use crate::{Defect, Setup, SetupError, Visitor, check, membership, protocol};

/// The pieces of a planned program, and the values that they send to each other.
#[derive(Clone, Debug)]
pub struct PieceTraffic {
    /// The number of pieces.
    pub pieces: u32,
    /// One entry for each pair of a sending and a receiving piece, with the number of values sent.
    pub values: Vec<(u32, u32, u64)>,
}

/// Returns the traffic between the pieces of a federation's planned program.
///
/// # Errors
///
/// Fails if the federation is invalid, has no tasks, or does not assign its tasks to processes in advance.
pub fn traffic_of_pieces(federation: &Federation) -> Result<PieceTraffic, SetupError> {
    check(federation)?;
    if federation.spec.application.family() != Family::Tasks {
        return Err(SetupError::Messages);
    }
    if !federation.spec.is_planned() {
        return Err(SetupError::Stolen);
    }
    let program = program(&federation.spec)?.planned();
    let pieces = program.pieces();
    let each: Vec<u32> = (0..pieces).collect();
    let traffic = Plan::new(&program, pieces, &each).traffic();
    let values = traffic.into_iter().map(|((from, to), values)| (from.0, to.0, values)).collect();
    Ok(PieceTraffic { pieces, values })
}

pub(crate) fn with_valid_plan<V: Visitor>(
    federation: &Federation,
    seed: Option<u64>,
    defect: Option<Defect>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    let spec = &federation.spec;
    let seed = seed.unwrap_or_else(|| spec.seed());
    Ok(match &spec.protocol {
        ProtocolSpec::Cck(options) => {
            let config = protocol::cck(spec, options, defect)?;
            visitor.visit(setup::<Cck>(federation, seed, config)?)
        }
        ProtocolSpec::None(_) => {
            protocol::without_defects(defect)?;
            visitor.visit(setup::<NoProtocol>(federation, seed, ())?)
        }
        _ => return Err(SetupError::Stolen),
    })
}

fn setup<P>(
    federation: &Federation,
    seed: u64,
    config: P::Config,
) -> Result<Setup<Partition<P, Flow>>, SetupError>
where
    P: PartitionProtocol<Config: Send + Sync> + Send + 'static,
{
    let spec = &federation.spec;
    let program = program(spec)?.planned();
    let ranks = spec.clusters.iter().map(|it| it.nodes).sum();
    let schedule = spec.schedule();
    if let Some(problem) = unread(&schedule) {
        return Err(SetupError::Federation(vec![problem]));
    }
    let pieces = schedule.pieces.clone().unwrap_or_else(|| in_blocks(program.pieces(), ranks));
    let plan = Plan::new(&program, ranks, &pieces);
    let plan = match schedule.order.unwrap_or_default() {
        TaskOrder::OldestFirst => plan,
        TaskOrder::SendingFirst => plan.sending_first(),
    };
    let extra = P::extra_processes(&config);
    let process = PartitionConfig {
        protocol: Arc::new(config),
        initial_map: PartitionMap::initial(&membership(spec, &extra)),
        plan: Arc::new(plan),
        program: Arc::new(program),
        window: schedule.window(),
        speeds: of_each_rank(spec, ClusterSpec::speed),
        cores: of_each_rank(spec, ClusterSpec::cores),
    };
    Ok(Setup::new(federation, seed, &extra, process))
}
