//! One scenario, run and judged.

use std::sync::Arc;

use faultline_checker::{Context, Judgement, judge};
use faultline_core::{Node, NodeConfig, Span};
use faultline_protocols::hc3i::{Hc3i, Scope};
use faultline_sim::{Config, Run};
use faultline_supervisor::process_seed;
use faultline_trace::Trace;
use faultline_trace::manifest::ProtocolKind;
use faultline_workloads::Workload;

use crate::scenario::Scenario;

/// A scenario with what came of it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The scenario.
    pub scenario: Scenario,
    /// How the run ended.
    pub run: Run,
    /// Its facts.
    pub trace: Trace,
    /// What the checker says.
    pub judgement: Judgement,
}

/// Runs a scenario on the simulator, and has the checker judge it.
pub fn run(scenario: Scenario) -> Trial {
    let process = NodeConfig::<Hc3i, Workload> {
        protocol: Arc::new(scenario.protocol.clone()),
        application: Arc::new(scenario.application.clone()),
    };
    let supervisor = faultline_supervisor::Config {
        detect_after: scenario.detect_after,
        restart_after: scenario.restart_after,
        volatile_storage: scenario.volatile_storage,
        deadline: scenario.deadline,
        plan: scenario.plan.clone(),
        least_work_left_percent: 0,
    };
    let config = Config {
        process: Arc::new(process),
        membership: scenario.membership(),
        links: scenario.links.clone(),
        storage: scenario.storage,
        supervisor,
        seed: scenario.seed,
        chance: scenario.chance,
        control: scenario.control,
        paranoid: false,
    };
    let mut trace = Trace::default();
    let run = faultline_sim::run::<Node<Hc3i, Workload>>(config, &mut trace);
    let judgement = judge(&trace, &context(&scenario, &run));
    Trial { scenario, run, trace, judgement }
}

fn context(scenario: &Scenario, run: &Run) -> Context {
    let kind = match scenario.protocol.scope {
        Scope::Cluster => ProtocolKind::Hc3i,
        Scope::Federation => ProtocolKind::Coordinated,
    };
    let membership = scenario.membership();
    let clusters = membership.clusters.iter().map(|cluster| cluster.processes.to_vec()).collect();
    let application = Arc::new(scenario.application.clone());
    let seed = |process| process_seed(scenario.seed, process);
    Context {
        planned_faults: scenario.plan.len(),
        outcome: Some(run.outcome.clone()),
        end: run.ended,
        expected: faultline_workloads::reference(&application, &membership, seed),
        volatile_storage: scenario.volatile_storage,
        common_clock: true,
        settled_after: Some(Span(scenario.deadline.0 / 2)),
        ..Context::new(kind, clusters)
    }
}
