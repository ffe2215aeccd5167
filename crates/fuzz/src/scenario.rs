//! What a seed stands for.

use std::sync::Arc;

use faultline_core::fault::{LinkProperties, StorageFault};
use faultline_core::{
    Cluster, ClusterId, FactKind, Fault, FaultNo, Life, Member, Membership, MembershipVersion, NodeId,
    PlannedFault, ProcessId, Protocol as _, Role, Span, StorageFate, Time, Trigger,
};
use faultline_protocols::hc3i::{self, Defects, Hc3i, ReplicateTo, Scope};
use faultline_sim::{Chance as NetworkChance, Control, InFlight, Links, StorageCosts};
use faultline_workloads::{heat, salted, synthetic};

use crate::chance::Chance;

/// Which application a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// One whose re-execution differs: judged by properties only.
    Salted,
    /// One with a known result.
    Heat,
}

/// Everything that one seed decides.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Processes of each cluster.
    pub clusters: Vec<usize>,
    /// Parameters of the protocol.
    pub protocol: hc3i::Config,
    /// Parameters of the application.
    pub application: faultline_workloads::Config,
    /// The network.
    pub links: Links,
    /// Overtaking, and what a crash leaves on the way.
    pub chance: NetworkChance,
    /// The storages.
    pub storage: StorageCosts,
    /// Storage dies with its process.
    pub volatile_storage: bool,
    /// The control plane.
    pub control: Control,
    /// How long a silent process is taken for alive.
    pub detect_after: Span,
    /// From a death to the next life.
    pub restart_after: Span,
    /// What is done to it.
    pub plan: Vec<PlannedFault>,
    /// The end of the run, with enough quiet time after the last fault.
    pub deadline: Span,
}

impl Scenario {
    /// The scenario of a seed; `defects` are switched on in the protocol.
    pub fn new(seed: u64, defects: Defects) -> Scenario {
        let chance = &mut Chance::new(seed);
        let clusters: Vec<usize> =
            (0..chance.pick(&[1, 2, 2, 2, 3, 3, 4])).map(|_| chance.between(1, 4) as usize).collect();
        let step_cost = chance.span(Span::from_millis(1), Span::from_millis(20));
        let application = application(chance, step_cost);
        let length = step_cost * steps(&application);
        let links = links(chance, clusters.len());
        let detect_after = chance.span(Span::from_millis(5), Span::from_millis(200));
        let protocol = protocol(chance, &clusters, length, defects);
        let plan = Faults::new(chance, &clusters, length, detect_after).plan(chance);
        Scenario {
            seed,
            protocol,
            application,
            links,
            chance: NetworkChance {
                reorder_ppm: chance.pick(&[0, 0, 50_000, 300_000]),
                reorder_within: chance.span(Span::from_micros(100), Span::from_millis(50)),
                in_flight: chance.pick(&[
                    InFlight::Sampled,
                    InFlight::Sampled,
                    InFlight::Lost,
                    InFlight::Kept,
                ]),
            },
            storage: StorageCosts {
                latency: chance.span(Span::from_micros(1), Span::from_millis(5)),
                bandwidth: chance.pick(&[0, 1_000_000, 100_000_000]),
                fsync: chance.span(Span::from_micros(1), Span::from_millis(30)),
            },
            volatile_storage: chance.percent(20),
            control: Control {
                delay: chance.span(Span::from_micros(10), Span::from_millis(5)),
                jitter: chance.span(Span::from_micros(1), Span::from_millis(20)),
                launch: chance.span(Span::from_millis(1), Span::from_millis(50)),
                exit_notice: chance
                    .percent(70)
                    .then(|| chance.span(Span::from_micros(10), Span::from_millis(20))),
            },
            detect_after,
            restart_after: chance.span(Span::from_millis(1), Span::from_millis(200)),
            deadline: length * 10 + Span::from_secs(20),
            clusters,
            plan,
        }
    }

    /// The kind of its application.
    pub fn application_kind(&self) -> Application {
        match self.application {
            faultline_workloads::Config::Salted(_) => Application::Salted,
            _ => Application::Heat,
        }
    }

    /// Who is where, before anybody is up.
    pub fn membership(&self) -> Membership {
        let mut members = Vec::new();
        let mut clusters = Vec::new();
        let mut add = |cluster, role| {
            let id = members.len() as u32;
            members.push(Member { cluster, role, node: NodeId(id), life: Life(0), up: false });
            ProcessId(id)
        };
        for (index, &size) in self.clusters.iter().enumerate() {
            let processes = (0..size).map(|_| add(ClusterId(index as u16), Role::RANK)).collect();
            clusters.push(Cluster { processes, started: false });
        }
        for role in Hc3i::extra_processes(&self.protocol) {
            add(ClusterId::OUTSIDE, role);
        }
        Membership { version: MembershipVersion(0), members: members.into(), clusters: clusters.into() }
    }
}

fn application(chance: &mut Chance, step_cost: Span) -> faultline_workloads::Config {
    match chance.between(0, 9) {
        0..=6 => faultline_workloads::Config::Salted(salted::Config {
            steps: chance.between(20, 120) as u32,
            step_cost,
            fan_out: chance.between(1, 4) as u32,
            between: chance.pick(&[0.05, 0.2, 0.5]),
            reply: chance.pick(&[0.0, 0.2, 0.5]),
            reply_depth: chance.between(0, 3) as u8,
        }),
        _ => faultline_workloads::Config::Heat(heat::Config {
            rows: 2,
            columns: 4,
            steps: chance.between(20, 100) as u32,
            step_cost,
            feedback_every: chance.pick(&[0, 1, 5, 20]),
            state_bytes: 64,
        }),
    }
}

fn steps(application: &faultline_workloads::Config) -> u64 {
    match application {
        faultline_workloads::Config::Salted(config) => config.steps.into(),
        faultline_workloads::Config::Heat(config) => config.steps.into(),
        faultline_workloads::Config::Synthetic(synthetic::Config { .. }) => 0,
    }
}

fn links(chance: &mut Chance, clusters: usize) -> Links {
    let mut link = |least: Span, most: Span| LinkProperties {
        latency: chance.span(least, most),
        jitter: chance.span(Span(1), most),
        bandwidth: chance.pick(&[0, 0, 10_000_000]),
        loss_ppm: chance.pick(&[0, 0, 0, 20_000]),
    };
    let within: Vec<_> = (0..=clusters).map(|_| link(Span::from_micros(5), Span::from_millis(2))).collect();
    let between: Vec<_> =
        (0..(clusters + 1).pow(2)).map(|_| link(Span::from_micros(50), Span::from_millis(40))).collect();
    let place = |cluster: ClusterId| cluster.index().min(clusters);
    Links::new(clusters, |from, to| {
        if from == to { within[place(from)] } else { between[place(from) * (clusters + 1) + place(to)] }
    })
}

fn protocol(chance: &mut Chance, clusters: &[usize], length: Span, defects: Defects) -> hc3i::Config {
    let least = Span(length.0 / 50).max(Span::from_millis(1));
    let checkpoint_every = clusters
        .iter()
        .map(|_| chance.percent(85).then(|| chance.span(least, Span(length.0 / 2))))
        .collect::<Arc<[_]>>();
    let replicate_to = match clusters.len() {
        1 => chance.pick(&[ReplicateTo::SameCluster, ReplicateTo::SharedStorage]),
        _ => chance.pick(&[
            ReplicateTo::OtherCluster,
            ReplicateTo::OtherCluster,
            ReplicateTo::SameCluster,
            ReplicateTo::SharedStorage,
        ]),
    };
    hc3i::Config {
        checkpoint_every,
        collect_every: chance.percent(60).then(|| chance.span(least, length)),
        replicas: chance.pick(&[1, 1, 1, 2]),
        replicate_to,
        scope: if chance.percent(7) { Scope::Federation } else { Scope::Cluster },
        piggyback: hc3i::Piggyback::Sn,
        retry_every: chance.span(Span::from_millis(20), Span::from_millis(200)),
        defects,
    }
}

/// The kinds of fault that a scenario has at all.
struct Faults<'a> {
    clusters: &'a [usize],
    length: Span,
    detect_after: Span,
    storage_lost: bool,
    by_fact: bool,
    kinds: Vec<Kind>,
}

#[derive(Clone, Copy)]
enum Kind {
    Crash,
    Pause,
    LoseCluster,
    Partition,
    Storage,
}

impl<'a> Faults<'a> {
    fn new(chance: &mut Chance, clusters: &'a [usize], length: Span, detect_after: Span) -> Faults<'a> {
        let mut kinds = vec![Kind::Crash];
        for kind in [Kind::Crash, Kind::Pause, Kind::LoseCluster, Kind::Partition, Kind::Storage] {
            if chance.percent(40) {
                kinds.push(kind);
            }
        }
        let (storage_lost, by_fact) = (chance.percent(50), chance.percent(60));
        Faults { clusters, length, detect_after, storage_lost, by_fact, kinds }
    }

    fn plan(&self, chance: &mut Chance) -> Vec<PlannedFault> {
        let count = chance.pick(&[0, 1, 1, 2, 3, 4, 6]);
        (0..count)
            .map(|no| PlannedFault {
                no: FaultNo(no),
                trigger: self.trigger(chance),
                fault: self.fault(chance),
            })
            .collect()
    }

    fn trigger(&self, chance: &mut Chance) -> Trigger {
        if !(self.by_fact && chance.percent(60)) {
            return Trigger::At(Time(chance.between(0, self.length.0)));
        }
        let fact = chance.pick(&[
            FactKind::CheckpointRequested,
            FactKind::CheckpointRequested,
            FactKind::CheckpointCommitted,
            FactKind::Saved,
            FactKind::Durable,
            FactKind::RecoveryStarted,
            FactKind::Restored,
            FactKind::RolledBack,
            FactKind::Alerted,
            FactKind::Forcing,
            FactKind::Resent,
            FactKind::Collected,
            FactKind::Delivered,
        ]);
        Trigger::When {
            fact,
            cluster: chance.percent(50).then(|| self.cluster(chance)),
            process: None,
            occurrence: chance.between(1, 12) as u32,
        }
    }

    fn cluster(&self, chance: &mut Chance) -> ClusterId {
        ClusterId(chance.between(0, self.clusters.len() as u64 - 1) as u16)
    }

    fn process(&self, chance: &mut Chance) -> ProcessId {
        ProcessId(chance.between(0, self.clusters.iter().sum::<usize>() as u64 - 1) as u32)
    }

    fn fate(&self, chance: &mut Chance) -> StorageFate {
        if self.storage_lost && chance.percent(50) { StorageFate::Lost } else { StorageFate::Kept }
    }

    fn fault(&self, chance: &mut Chance) -> Fault {
        let brief = |chance: &mut Chance| chance.span(Span::from_millis(1), Span::from_millis(500));
        match chance.pick(&self.kinds) {
            Kind::Crash => Fault::Crash { process: self.process(chance), storage: self.fate(chance) },
            Kind::Pause => Fault::Pause {
                process: self.process(chance),
                span: Span(chance.between(self.detect_after.0 / 4, self.detect_after.0 * 2)),
            },
            Kind::LoseCluster => {
                Fault::LoseCluster { cluster: self.cluster(chance), storage: self.fate(chance) }
            }
            Kind::Partition => Fault::Partition {
                from: self.cluster(chance),
                to: self.cluster(chance),
                both: chance.percent(50),
                span: brief(chance),
            },
            Kind::Storage => Fault::Storage {
                process: self.process(chance),
                how: match chance.between(0, 2) {
                    0 => StorageFault::Slow(brief(chance)),
                    1 => StorageFault::Full,
                    _ => StorageFault::Corrupt,
                },
                span: Some(brief(chance)),
            },
        }
    }
}
