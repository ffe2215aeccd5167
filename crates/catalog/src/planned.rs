//! Federations whose processes run a planned program: its tasks are assigned to processes in advance.

use std::sync::Arc;

use faultline_api::Federation;
use faultline_api::flow::unread;
use faultline_api::resource::{Cluster, Protocol as Asked, TaskOrder};
use faultline_dataflow::partition::PartitionProtocol;
use faultline_dataflow::plan::in_blocks;
use faultline_dataflow::programs::Flow;
use faultline_dataflow::{Partition, PartitionConfig, Plan};
use faultline_protocols::cck::Cck;
use faultline_protocols::none::NoProtocol;

use crate::tasks::{of_each_rank, program};
use crate::{Defect, Setup, SetupError, Visitor, protocol};

pub(crate) fn with_valid_plan<V: Visitor>(
    federation: &Federation,
    seed: Option<u64>,
    defect: Option<Defect>,
    visitor: V,
) -> Result<V::Output, SetupError> {
    let spec = &federation.spec;
    let seed = seed.unwrap_or_else(|| spec.seed());
    Ok(match &spec.protocol {
        Asked::Cck(options) => {
            let config = protocol::cck(spec, options, defect)?;
            visitor.visit(setup::<Cck>(federation, seed, config)?)
        }
        Asked::None(_) => match defect {
            Some(defect) => return Err(SetupError::ForeignDefect(defect)),
            None => visitor.visit(setup::<NoProtocol>(federation, seed, ())?),
        },
        _ => return Err(SetupError::Stolen),
    })
}

fn setup<P>(
    federation: &Federation,
    seed: u64,
    config: P::Config,
) -> Result<Setup<Partition<P, Flow>>, SetupError>
where
    P: PartitionProtocol<Config: Send + Sync> + 'static,
{
    let spec = &federation.spec;
    let program = program(spec)?;
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
        plan: Arc::new(plan),
        program: Arc::new(program),
        window: schedule.window(),
        speeds: of_each_rank(spec, Cluster::speed),
        cores: of_each_rank(spec, Cluster::cores),
    };
    Ok(Setup::new(federation, seed, &extra, process))
}
