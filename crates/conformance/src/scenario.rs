//! A federation of probes, the faults injected into it, and the outcome.

use std::sync::Arc;

use faultline_core::fault::LinkProperties;
use faultline_core::{
    Cluster, ClusterId, Fact, Fault, FaultNo, Life, Member, Membership, MembershipVersion, NodeId,
    PlannedFault, ProcessId, Role, Span, Trigger,
};
use faultline_supervisor::{Config, FaultAccount, FaultState, Outcome};
use faultline_trace::Trace;

use crate::observation::{Observation, observations};
use crate::probe::{Act, Script, Step};

/// A driver that runs scenarios.
pub trait Driver {
    /// Runs a federation of `Probe<FIFO>` to its end.
    fn run<const FIFO: bool>(&mut self, scenario: &Scenario) -> Evidence;
}

/// A federation of probes with its faults.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of processes per cluster. Processes are numbered cluster by cluster, each on its own node.
    pub clusters: Vec<u32>,
    /// Actions of the probes.
    pub script: Script,
    /// Properties of the links within a cluster.
    pub within: LinkProperties,
    /// Properties of the links between two clusters.
    pub between: LinkProperties,
    /// Configuration of the supervisor, including the faults.
    pub supervisor: Config,
    /// Seed of all random choices.
    pub seed: u64,
}

/// The outcome of a scenario.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// All facts of the run.
    pub trace: Trace,
    /// How the run ended.
    pub outcome: Outcome,
    /// State of each fault at the end.
    pub faults: Vec<FaultAccount>,
}

impl Scenario {
    /// Creates a federation in which every process, in each of its lives, finishes as soon as `finish_after` has
    /// elapsed and all its requests have been answered.
    pub(crate) fn new(clusters: &[u32], finish_after: Span) -> Scenario {
        let mut scenario = Scenario {
            clusters: clusters.to_vec(),
            script: Script::default(),
            within: LinkProperties { latency: Span::from_micros(50), ..LinkProperties::default() },
            between: LinkProperties {
                latency: Span::from_millis(3),
                jitter: Span::from_micros(500),
                ..LinkProperties::default()
            },
            supervisor: Config {
                detect_after: Span::from_millis(600),
                restart_after: Span::from_millis(50),
                spares: 0,
                volatile_storage: false,
                deadline: Span::from_secs(30),
                start_within: Some(Span::from_secs(30)),
                plan: Vec::new(),
                scope: faultline_core::Scope::Cluster,
                joins: Vec::new(),
                leaves: Vec::new(),
                is_planned: false,
                least_work_left_percent: 0,
                system: None,
            },
            seed: 1,
        };
        for process in scenario.processes() {
            scenario.at(process, None, finish_after, [Act::Settle, Act::Finish]);
        }
        scenario
    }

    /// Adds a step to the script.
    pub(crate) fn at(
        &mut self,
        process: ProcessId,
        life: Option<Life>,
        after: Span,
        acts: impl IntoIterator<Item = Act>,
    ) {
        self.script.steps.push(Step { process, life, after, acts: acts.into_iter().collect() });
    }

    /// Adds a fault to the plan.
    pub(crate) fn inject(&mut self, trigger: Trigger, fault: Fault) {
        let no = FaultNo(self.supervisor.plan.len() as u32);
        self.supervisor.plan.push(PlannedFault { no, trigger, fault, reported: None, cause: None });
    }

    /// Iterates over all processes.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.clusters.iter().sum()).map(ProcessId)
    }

    /// Returns the membership before any process is up.
    pub fn membership(&self) -> Membership {
        membership(&self.clusters)
    }

    /// Returns the properties of a link.
    pub fn link(&self, from: ClusterId, to: ClusterId) -> LinkProperties {
        if from == to { self.within } else { self.between }
    }
}

/// Returns the membership of clusters with these numbers of processes, before any process is up. Every process has
/// its own node.
pub fn membership(clusters: &[u32]) -> Membership {
    let mut members = Vec::new();
    let mut each = Vec::new();
    for (cluster, &size) in clusters.iter().enumerate() {
        let first = members.len() as u32;
        for index in first..first + size {
            members.push(Member {
                cluster: ClusterId(cluster as u16),
                role: Role::RANK,
                node: NodeId(index),
                life: Life(0),
                up: false,
                started: false,
                gone: false,
                idle_lives: 0,
            });
        }
        let processes = (first..first + size).map(ProcessId).collect();
        each.push(Cluster::new(processes));
    }
    Membership { version: MembershipVersion(0), members: Arc::from(members), clusters: Arc::from(each) }
}

impl Evidence {
    /// Returns the observations of one life of a process.
    pub(crate) fn seen(&self, process: ProcessId, life: Life) -> Vec<Observation> {
        observations(&self.trace, process, life)
    }

    /// Returns the lives of a process, ascending.
    pub(crate) fn lives(&self, process: ProcessId) -> Vec<Life> {
        self.trace.lives(process).map(|(life, _)| life).collect()
    }

    /// Iterates over the supervisor's facts.
    pub(crate) fn supervisor(&self) -> impl Iterator<Item = &Fact> {
        self.trace.supervisor().iter().map(|(_, fact)| fact)
    }

    /// Panics unless the run completed, every planned fault took effect, and no fact is missing.
    pub(crate) fn expect_complete(&self) {
        assert_eq!(self.outcome, Outcome::Completed);
        assert_eq!(self.trace.flaws, [], "facts are numbered without gaps");
        for (no, state) in &self.faults {
            assert_eq!(*state, FaultState::Effective, "{no}");
        }
    }
}
