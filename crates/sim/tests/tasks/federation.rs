//! Random federations with random faults.

use std::collections::BTreeSet;
use std::sync::Arc;

use faultline_core::fault::{LinkProperties, Outcome};
use faultline_core::{
    Cluster, ClusterId, Digest, Fact, FactKind, Fault, FaultNo, Life, Member, Membership, MembershipVersion,
    NodeId, PlannedFault, Presence, ProcessId, Role, Scope, Span, StorageFate, Target, TheftStep, Time,
    Trigger,
};
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::fibonacci::Fibonacci;
use faultline_dataflow::programs::graph::RandomGraph;
use faultline_dataflow::programs::qap::{Instance, Qap};
use faultline_dataflow::programs::queens::Queens;
use faultline_dataflow::{Program, Stealing, TaskProcess, TaskProcessConfig, TaskProtocol, reference};
use faultline_protocols::placement::ReplicateTo;
use faultline_sim::{Config, Links};
use faultline_trace::Record;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A federation, its program, and the faults to inject.
#[derive(Clone, Debug)]
pub(crate) struct Federation {
    pub(crate) seed: u64,
    pub(crate) clusters: Vec<u32>,
    pub(crate) program: Flow,
    pub(crate) faults: Vec<(Trigger, Fault)>,
    /// Number of replicas of each image besides the owner's copy, and their location.
    pub(crate) copies: (u16, ReplicateTo),
    /// Clusters that join late, and the time at which each joins.
    pub(crate) joins: Vec<(ClusterId, Span)>,
    /// Speed of each process, as a percentage; if `None`, the seed determines the speeds.
    pub(crate) speeds: Option<Vec<u32>>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) ended: Time,
    /// Digests of the result that the ranks report.
    pub(crate) digests: Vec<Digest>,
    pub(crate) thefts: usize,
    pub(crate) absorbed: usize,
    pub(crate) restored: usize,
    pub(crate) facts: Vec<Record>,
}

impl Ended {
    /// Returns whether the run ended in a way that its protocol permits, and no process has a wrong result.
    pub(crate) fn is_right(&self, expected: Digest) -> bool {
        let ends = matches!(self.outcome, Outcome::Completed | Outcome::Unrecoverable { .. });
        ends && self.digests.iter().all(|it| *it == expected)
    }
}

/// The facts that trigger faults, including every step of a theft and of a recovery.
const KINDS: [FactKind; 12] = [
    FactKind::Ran,
    FactKind::Lent,
    FactKind::Shipped,
    FactKind::Taken,
    FactKind::Done,
    FactKind::Returned,
    FactKind::Merged,
    FactKind::Receipted,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::Restored,
    FactKind::Absorbed,
];

impl Federation {
    /// Creates a federation without faults, with two replicas of each image in other clusters.
    pub(crate) fn new(seed: u64, clusters: Vec<u32>, program: Flow) -> Federation {
        let copies = (2, ReplicateTo::OtherCluster);
        Federation { seed, clusters, program, faults: Vec::new(), copies, joins: Vec::new(), speeds: None }
    }

    /// Creates a random federation that may also have failing storage servers, a cluster that joins late, or
    /// a search with a bound.
    pub(crate) fn wide(seed: u64, most_faults: u32) -> Federation {
        let mut federation = Federation::random(seed, most_faults);
        let mut rng = ChaCha8Rng::seed_from_u64(!seed);
        let to = [ReplicateTo::OtherCluster, ReplicateTo::SameCluster, ReplicateTo::SharedStorage];
        federation.copies = (rng.random_range(1..=2), to[rng.random_range(0..3)]);
        if rng.random_range(0..4) == 0 {
            let entries: Vec<String> = (0..72).map(|_| rng.random_range(0..10).to_string()).collect();
            let instance = Instance::parse(&format!("6 {}", entries.join(" "))).expect("a random instance");
            federation.program = Flow::Qap(Qap::new(instance, 3, Span::from_millis(2)));
        }
        if federation.clusters.len() > 1 && rng.random_range(0..4) == 0 {
            let last = ClusterId(federation.clusters.len() as u16 - 1);
            federation.joins.push((last, Span::from_millis(rng.random_range(1..400))));
        }
        if federation.copies.1 == ReplicateTo::SharedStorage && rng.random_range(0..2) == 0 {
            let (trigger, fault) = federation.fault(&mut rng);
            let Fault::Kill { storage, returns, .. } = fault else { unreachable!("not drawn") };
            let server = rng.random_range(0..u32::from(federation.copies.0));
            let process = ProcessId(federation.ranks() + server);
            federation.faults.push((
                trigger,
                Fault::Kill { target: Target::Process(process), storage, returns, repair: None },
            ));
        }
        federation
    }

    /// Creates a random federation with at most `most_faults` faults.
    pub(crate) fn random(seed: u64, most_faults: u32) -> Federation {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let clusters: Vec<u32> = (0..rng.random_range(1..=3)).map(|_| rng.random_range(1..=3)).collect();
        let task_time = Span::from_millis(rng.random_range(1..=20));
        let program = match rng.random_range(0..3) {
            0 => Flow::Fibonacci(Fibonacci { n: 14, threshold: 5, task_time }),
            1 => Flow::Queens(Queens { n: 6, depth: 3, task_time }),
            _ => Flow::Graph(RandomGraph { seed, depth: 4, width: 4, task_time }),
        };
        let mut federation = Federation::new(seed, clusters, program);
        for _ in 0..rng.random_range(0..=most_faults) {
            let fault = federation.fault(&mut rng);
            federation.faults.push(fault);
        }
        federation
    }

    fn fault(&self, rng: &mut ChaCha8Rng) -> (Trigger, Fault) {
        let trigger = if rng.random_range(0..4) == 0 {
            Trigger::At(Time::ZERO + Span::from_millis(rng.random_range(1..1500)))
        } else {
            let fact = KINDS[rng.random_range(0..KINDS.len())];
            Trigger::When {
                fact,
                of: None,
                cluster: None,
                process: None,
                occurrence: rng.random_range(1..=20),
            }
        };
        let storage = if rng.random_range(0..3) == 0 { StorageFate::Lost } else { StorageFate::Kept };
        let returns = rng.random_range(0..2) == 0;
        let fault = if rng.random_range(0..4) == 0 {
            let cluster = ClusterId(rng.random_range(0..self.clusters.len()) as u16);
            Fault::Kill { target: Target::Cluster(cluster), storage, returns, repair: None }
        } else {
            let process = ProcessId(rng.random_range(0..self.ranks()));
            Fault::Kill { target: Target::Process(process), storage, returns, repair: None }
        };
        (trigger, fault)
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.clusters.iter().sum()
    }

    pub(crate) fn expected(&self) -> Digest {
        reference(&self.program).0
    }

    fn membership(&self, extra: Vec<Role>) -> Membership {
        let (mut members, mut clusters) = (Vec::new(), Vec::new());
        let member = |cluster, role, node| Member {
            cluster,
            role,
            node: NodeId(node),
            life: Life(0),
            up: false,
            started: false,
            gone: false,
            idle_lives: 0,
        };
        for (cluster, &size) in (0..).zip(&self.clusters) {
            let first = members.len() as u32;
            let joins = self.joins.iter().any(|(it, _)| *it == ClusterId(cluster));
            let presence = if joins { Presence::Awaited } else { Presence::Permanent };
            let processes = (first..first + size).map(ProcessId).collect();
            clusters.push(Cluster { presence, ..Cluster::new(processes) });
            members.extend((first..first + size).map(|it| member(ClusterId(cluster), Role::RANK, it)));
        }
        for role in extra {
            members.push(member(ClusterId::OUTSIDE, role, members.len() as u32));
        }
        Membership { version: MembershipVersion(0), members: members.into(), clusters: clusters.into() }
    }

    pub(crate) fn run<P: TaskProtocol + Send + 'static>(&self, protocol: P::Config) -> Ended {
        self.run_program::<P, Flow>(self.program.clone(), protocol)
    }

    /// Returns the configuration of a simulation of `program` on this federation.
    pub(crate) fn config<P: TaskProtocol, G: Program>(
        &self,
        program: G,
        protocol: P::Config,
    ) -> Config<TaskProcessConfig<P, G>> {
        let membership = self.membership(P::extra_processes(&protocol));
        let numbered = (0..).zip(self.faults.clone());
        let plan = numbered.map(|(no, (trigger, fault))| PlannedFault {
            no: FaultNo(no),
            trigger,
            fault,
            reported: None,
            cause: None,
        });
        let supervisor = faultline_supervisor::Config {
            detect_after: Span::from_millis(100),
            restart_after: Span::from_millis(20),
            spares: 0,
            volatile_storage: false,
            deadline: Span::from_secs(120),
            start_within: None,
            scope: Scope::Process,
            joins: self.joins.clone(),
            leaves: Vec::new(),
            plan: plan.collect(),
            is_planned: false,
            least_work_left_percent: 0,
            system: None,
        };
        let link = |latency: Span| LinkProperties {
            latency,
            jitter: Span(latency.0 / 4),
            ..LinkProperties::default()
        };
        let links =
            Links::uniform(self.clusters.len(), link(Span::from_micros(50)), link(Span::from_millis(2)));
        let drawn = || (0..self.ranks()).map(|it| 25 * (1 + (self.seed as u32 + it) % 4)).collect();
        let stealing = Stealing { patience: Span::from_millis(1), cluster_first: 50 };
        let place = TaskProcessConfig::<P, G> {
            protocol: Arc::new(protocol),
            program: Arc::new(program),
            stealing,
            speeds: self.speeds.clone().map_or_else(drawn, Arc::from),
            cores: (0..self.ranks()).map(|it| 1 + (self.seed as u32 + it) % 2).collect(),
        };
        let mut config = Config::new(Arc::new(place), membership, links, supervisor, self.seed);
        config.paranoid = self.seed.is_multiple_of(16);
        config
    }

    /// Runs `program`, which may differ from the federation's own program.
    pub(crate) fn run_program<P, G>(&self, program: G, protocol: P::Config) -> Ended
    where
        P: TaskProtocol + Send + 'static,
        G: Program,
    {
        let config = self.config::<P, G>(program, protocol);
        let mut facts: Vec<Record> = Vec::new();
        let run = faultline_sim::run::<TaskProcess<P, G>>(config, &mut facts);
        let mut digests = BTreeSet::new();
        let (mut thefts, mut absorbed, mut restored) = (0, 0, 0);
        for record in &facts {
            match &record.fact {
                Fact::Finished(finished) => drop(digests.insert(finished.1)),
                Fact::Absorbed(_) => absorbed += 1,
                Fact::Restored(_) => restored += 1,
                Fact::Theft { step: TheftStep::Merged, .. } => thefts += 1,
                _ => {}
            }
        }
        let digests = digests.into_iter().collect();
        let (outcome, ended) = (run.outcome, run.ended);
        Ended { outcome, ended, digests, thefts, absorbed, restored, facts }
    }
}
