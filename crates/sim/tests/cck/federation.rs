//! Random federations that run planned programs, with random faults.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use faultline_core::fault::{LinkProperties, Outcome};
use faultline_core::{
    Cluster, ClusterId, Digest, Fact, FactKind, Fault, FaultNo, ImageName, Life, Member, Membership,
    MembershipVersion, NodeId, PlannedFault, Presence, ProcessId, Role, Scope, Span, StorageFate, Target,
    Time, Trigger,
};
use faultline_dataflow::partition::PartitionProtocol;
use faultline_dataflow::plan::in_blocks;
use faultline_dataflow::programs::Flow;
use faultline_dataflow::programs::cloth::Cloth;
use faultline_dataflow::programs::jacobi::Jacobi;
use faultline_dataflow::{Partition, PartitionConfig, PartitionMap, Plan};
use faultline_protocols::cck::{self, Cck};
use faultline_sim::{Config, Links, Simulation};
use faultline_trace::{Record, Sink};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::required::Seen;

/// A federation, its program, and the faults to inject.
#[derive(Clone, Debug)]
pub(crate) struct Federation {
    pub(crate) seed: u64,
    pub(crate) clusters: Vec<u32>,
    pub(crate) program: Flow,
    pub(crate) window: u32,
    pub(crate) faults: Vec<(Trigger, Fault)>,
    /// A cluster that is far from the coordinator, and the latency of the coordinator's messages to it.
    pub(crate) far: Option<(ClusterId, Span)>,
    /// Whether each partition first runs the tasks whose values are sent soonest.
    pub(crate) sends_first: bool,
    /// Speed of each process, as a percentage. If `None`, the speeds are drawn from the seed.
    pub(crate) speeds: Option<Vec<u32>>,
    /// A cluster that joins while the program runs, and the time at which it joins.
    pub(crate) joins: Option<(ClusterId, Span)>,
    /// A cluster that leaves while the program runs, and the time at which it begins to leave.
    pub(crate) leaves: Option<(ClusterId, Span)>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) facts: Vec<Record>,
    /// Number of packets of each kind.
    pub(crate) messages: BTreeMap<&'static str, u64>,
}

impl Ended {
    /// Returns the digests of the result that the ranks report.
    pub(crate) fn digests(&self) -> BTreeSet<Digest> {
        let finished = self.facts.iter().filter_map(|it| match &it.fact {
            Fact::Finished(finished) => Some(finished.1),
            _ => None,
        });
        finished.collect()
    }

    pub(crate) fn count(&self, kind: FactKind) -> usize {
        self.facts.iter().filter(|it| it.fact.kind() == kind).count()
    }
}

/// The facts that trigger faults, including every step of a checkpoint and of a recovery.
const KINDS: [FactKind; 11] = [
    FactKind::Ran,
    FactKind::Transmitted,
    FactKind::Delivered,
    FactKind::CheckpointRequested,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::CheckpointCommitted,
    FactKind::RecoveryStarted,
    FactKind::RolledBack,
    FactKind::Restored,
    FactKind::Absorbed,
];

impl Federation {
    /// Creates a federation without faults, with a window of two steps.
    pub(crate) fn new(seed: u64, clusters: Vec<u32>, program: Flow) -> Federation {
        Federation {
            seed,
            clusters,
            program,
            window: 2,
            faults: Vec::new(),
            far: None,
            sends_first: false,
            speeds: None,
            joins: None,
            leaves: None,
        }
    }

    /// Creates a random federation in which processes may also pause, and the coordinator may be far from a
    /// cluster.
    pub(crate) fn wide(seed: u64, most_faults: u32) -> Federation {
        let mut federation = Federation::random(seed, most_faults);
        let mut rng = ChaCha8Rng::seed_from_u64(!seed);
        if rng.random_range(0..3) == 0 {
            let cluster = ClusterId(rng.random_range(0..federation.clusters.len()) as u16);
            federation.far = Some((cluster, Span::from_millis(rng.random_range(1..40))));
        }
        federation.sends_first = rng.random_range(0..2) == 0;
        if rng.random_range(0..3) == 0 {
            federation.program = Flow::Cloth(Cloth {
                rows: federation.ranks().div_ceil(2),
                columns: 2 + rng.random_range(0..2),
                size: 2,
                iterations: rng.random_range(5..20),
                task_time: Span::from_millis(rng.random_range(1..=10)),
            });
        }
        for _ in 0..rng.random_range(0..3) {
            let (trigger, _) = federation.fault(&mut rng);
            let process = ProcessId(rng.random_range(0..=federation.ranks()));
            let pause = Fault::pause(process, Span::from_millis(rng.random_range(1..80)));
            federation.faults.push((trigger, pause));
        }
        federation
    }

    /// Creates random federations with several clusters, the last of which joins while the program runs. The
    /// first process never fails permanently, so at least one of the initial processes remains.
    pub(crate) fn joining(seeds: impl Iterator<Item = u64>) -> impl Iterator<Item = Federation> {
        let several = seeds.map(|seed| Federation::wide(seed, 3)).filter(|it| it.clusters.len() > 1);
        several.map(|mut federation| {
            for (_, fault) in &mut federation.faults {
                let Fault::Kill { target, returns, .. } = fault else { continue };
                *returns |= [Target::Process(ProcessId(0)), Target::Cluster(ClusterId(0))].contains(target);
            }
            let last = ClusterId(federation.clusters.len() as u16 - 1);
            let at = Span::from_millis(ChaCha8Rng::seed_from_u64(federation.seed).random_range(1..400));
            Federation { joins: Some((last, at)), ..federation }
        })
    }

    /// Creates a random federation with at most `most_faults` faults, which may also affect the coordinator.
    pub(crate) fn random(seed: u64, most_faults: u32) -> Federation {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let clusters: Vec<u32> = (0..rng.random_range(1..=3)).map(|_| rng.random_range(1..=3)).collect();
        let ranks: u32 = clusters.iter().sum();
        let columns = rng.random_range(1..=3);
        let program = Flow::Jacobi(Jacobi {
            rows: ranks.div_ceil(columns) + rng.random_range(0..=1),
            columns,
            size: 2,
            iterations: rng.random_range(5..=25),
            test_every: rng.random_range(0..=4),
            tolerance: 0.1,
            task_time: Span::from_millis(rng.random_range(1..=20)),
        });
        let window = rng.random_range(1..=4);
        let mut federation = Federation { window, ..Federation::new(seed, clusters, program) };
        for _ in 0..rng.random_range(0..=most_faults) {
            let fault = federation.fault(&mut rng);
            federation.faults.push(fault);
        }
        federation
    }

    fn fault(&self, rng: &mut ChaCha8Rng) -> (Trigger, Fault) {
        let trigger = if rng.random_range(0..4) == 0 {
            Trigger::At(Time::ZERO + Span::from_millis(rng.random_range(1..800)))
        } else {
            let fact = KINDS[rng.random_range(0..KINDS.len())];
            let often = matches!(fact, FactKind::Ran | FactKind::Transmitted | FactKind::Delivered);
            let most = if often { 150 } else { 20 };
            Trigger::When {
                fact,
                of: None,
                cluster: None,
                process: None,
                occurrence: rng.random_range(1..=most),
            }
        };
        let storage = if rng.random_range(0..3) == 0 { StorageFate::Lost } else { StorageFate::Kept };
        let returns = rng.random_range(0..3) > 0;
        let fault = match rng.random_range(0..6) {
            0 => {
                let cluster = ClusterId(rng.random_range(0..self.clusters.len()) as u16);
                Fault::Kill { target: Target::Cluster(cluster), storage, returns, repair: None }
            }
            1 => Fault::kill(ProcessId(self.ranks()), storage),
            _ => Fault::Kill {
                target: Target::Process(ProcessId(rng.random_range(0..self.ranks()))),
                storage,
                returns,
                repair: None,
            },
        };
        (trigger, fault)
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.clusters.iter().sum()
    }

    pub(crate) fn expected(&self) -> Digest {
        self.program.reference()
    }

    pub(crate) fn plan(&self) -> Plan {
        let plan = Plan::new(&self.program, self.ranks(), &in_blocks(self.program.pieces(), self.ranks()));
        if self.sends_first { plan.sending_first() } else { plan }
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
            let is = |moving: Option<(ClusterId, Span)>| moving.is_some_and(|it| it.0 == ClusterId(cluster));
            let presence = match (is(self.joins), is(self.leaves)) {
                (true, _) => Presence::Awaited,
                (false, true) => Presence::Present,
                (false, false) => Presence::Permanent,
            };
            let processes = (first..first + size).map(ProcessId).collect();
            clusters.push(Cluster { processes, presence });
            members.extend((first..first + size).map(|it| member(ClusterId(cluster), Role::RANK, it)));
        }
        for role in extra {
            members.push(member(ClusterId::OUTSIDE, role, members.len() as u32));
        }
        Membership { version: MembershipVersion(0), members: members.into(), clusters: clusters.into() }
    }

    pub(crate) fn run<P: PartitionProtocol + Send + 'static>(&self, protocol: P::Config) -> Ended {
        let mut facts: Vec<Record> = Vec::new();
        let run = faultline_sim::run::<Partition<P, Flow>>(self.config::<P>(protocol), &mut facts);
        let messages = run.stats.kinds().map(|(kind, [near, far])| (kind, near.packets + far.packets));
        Ended { outcome: run.outcome, facts, messages: messages.collect() }
    }

    /// Runs the federation under CCK, and inspects all partitions after every event.
    pub(crate) fn watch(&self, protocol: cck::Config) -> (Outcome, Seen) {
        let mut seen = Seen::new(protocol.rerun.from_memory);
        let saved = Saved::default();
        let mut sink = saved.clone();
        let config = self.config::<Cck>(protocol);
        let processes = (0..config.membership.members.len() as u32).map(ProcessId);
        let mut simulation = Simulation::<Partition<Cck, Flow>, _>::new(config, &mut sink);
        while simulation.step() {
            for (by, name) in saved.0.take() {
                seen.saves(name, simulation.process(by).expect("it has just saved a state"));
            }
            for process in processes.clone().filter_map(|it| simulation.process(it)) {
                seen.look(process, self.ranks());
            }
        }
        (simulation.outcome().expect("the run is over").clone(), seen)
    }

    fn config<P: PartitionProtocol + Send + 'static>(
        &self,
        protocol: P::Config,
    ) -> Config<PartitionConfig<P, Flow>> {
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
            joins: self.joins.into_iter().collect(),
            leaves: self.leaves.into_iter().collect(),
            plan: plan.collect(),
            is_planned: true,
            least_work_left_percent: 0,
            system: None,
        };
        let link = |latency: Span| LinkProperties {
            latency,
            jitter: Span(latency.0 / 4),
            ..LinkProperties::default()
        };
        let links = Links::new(self.clusters.len(), |from, to| match self.far {
            Some((cluster, latency)) if (from, to) == (ClusterId::OUTSIDE, cluster) => link(latency),
            _ if from == to => link(Span::from_micros(50)),
            _ => link(Span::from_millis(2)),
        });
        let drawn = || (0..self.ranks()).map(|it| 25 * (1 + (self.seed as u32 + it) % 4)).collect();
        let process = PartitionConfig::<P, Flow> {
            initial_map: PartitionMap::initial(&membership),
            protocol: Arc::new(protocol),
            program: Arc::new(self.program.clone()),
            plan: Arc::new(self.plan()),
            window: self.window,
            speeds: self.speeds.clone().map_or_else(drawn, Into::into),
            cores: (0..self.ranks()).map(|it| 1 + (self.seed as u32 + it) % 2).collect(),
        };
        let mut config = Config::new(Arc::new(process), membership, links, supervisor, self.seed);
        config.paranoid = self.seed.is_multiple_of(16);
        config
    }
}

/// The images saved since the last inspection, and the processes that saved them.
#[derive(Clone, Debug, Default)]
struct Saved(Rc<RefCell<Vec<(ProcessId, ImageName)>>>);

impl Sink for Saved {
    fn record(&mut self, record: Record) {
        if let Fact::Saved(saved) = &record.fact {
            self.0.borrow_mut().push((record.process, saved.0));
        }
    }
}
