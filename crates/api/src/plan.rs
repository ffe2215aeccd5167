//! Expansion of a federation's faults from a seed: a pure function that every backend uses.
//!
//! Faults are numbered in the order of the list. The faults drawn for an `mtbf` entry replace that entry, in
//! chronological order. Each entry has its own random stream, which its place in the list numbers unless the entry states
//! a number. Changing or leaving out one entry therefore does not shift the draws of another.
//!
//! Random choices:
//! * times between failures: from the entry's distribution, one after another until the run of a system
//!   [ends](FederationSpec::faults_end), or else until the deadline;
//! * a node in `any` cluster: every rank is equally likely, or every cluster if the node is given;
//! * a node of a given cluster: every node is equally likely;
//! * a rack in `any` cluster: that of a rank, all of which are equally likely, or every cluster if the rack is given;
//! * a rack of a given cluster: every rack is equally likely;
//! * an isolated cluster: every cluster is equally likely;
//! * the ends of a link: first the sending cluster, then the receiving cluster among the others.
//!
//! An `mtbf` entry draws a new target for each fault. The faults of a `trace` entry hit the processes that their nodes
//! stand for, unless the action names another target ([`crate::failure_trace`]).

use std::sync::Arc;

use faultline_core::fault::{Flip, Impairment};
use faultline_core::{
    ClusterId, Fault, FaultNo, PlannedFault, ProcessId, Span, StorageFate, Target, Time, Trigger, WatchNo,
};
use rand::distr::Distribution;
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Exp, Uniform, Weibull};

use crate::failure_trace::{Hit, hits};
use crate::names::Names;
use crate::quantity::Duration;
use crate::resource::{
    self, ANY, ActionRef, Fate, Federation, FederationSpec, Links, Mtbf, STOPS_WITHIN, TriggerRef, When,
};

/// First random stream for faults. Lower ones are free for other uses.
const FIRST_STREAM: u64 = 1 << 32;

/// Returns the faults of `federation` under `seed`, which replaces the seed of the resource. Equal arguments give equal
/// plans on every machine.
///
/// # Panics
///
/// May panic if [`crate::validate()`] finds problems.
pub fn plan(federation: &Federation, seed: u64) -> Vec<PlannedFault> {
    plan_among(federation, &Names::of(&federation.spec), seed)
}

/// Works like [`plan`], but for the processes in `names`. Outside the clusters, these may differ from the processes
/// that the protocol needs.
pub fn plan_among(federation: &Federation, names: &Names, seed: u64) -> Vec<PlannedFault> {
    let spec = &federation.spec;
    let faults = (0..spec.faults.len()).flat_map(|entry| faults_of(spec, names, seed, entry));
    let planned = |(no, Expanded { trigger, fault, reported, cause })| PlannedFault {
        no: FaultNo(no),
        trigger,
        fault,
        reported,
        cause,
    };
    (0..).zip(faults).map(planned).collect()
}

/// Returns the numbers of the faults in the plan whose times are drawn (`mtbf`) or taken from a failure trace, ascending. They
/// need not occur.
///
/// # Panics
///
/// May panic if [`crate::validate()`] finds problems.
pub fn drawn(federation: &Federation, names: &Names, seed: u64) -> Vec<FaultNo> {
    let spec = &federation.spec;
    if spec.faults.iter().all(|it| it.repeated().is_none()) {
        return Vec::new();
    }
    let is_drawn = |entry: usize| {
        let is_drawn = spec.faults[entry].repeated().is_some();
        faults_of(spec, names, seed, entry).map(move |_| is_drawn)
    };
    let all = (0..).map(FaultNo).zip((0..spec.faults.len()).flat_map(is_drawn));
    all.filter(|it| it.1).map(|it| it.0).collect()
}

/// A fault of an entry, before it is numbered.
pub(crate) struct Expanded {
    pub(crate) trigger: Trigger,
    pub(crate) fault: Fault,
    pub(crate) reported: Option<WatchNo>,
    pub(crate) cause: Option<Arc<str>>,
}

/// Returns the faults of one entry in the list of faults.
pub(crate) fn faults_of<'a>(
    spec: &'a FederationSpec,
    names: &'a Names,
    seed: u64,
    entry: usize,
) -> impl Iterator<Item = Expanded> + 'a {
    let fault = &spec.faults[entry];
    let [(_, trigger)] = fault.triggers()[..] else { panic!("a valid fault has one trigger") };
    let [(_, action)] = fault.actions()[..] else { panic!("a valid fault has one action") };
    let reported = fault.reported().and_then(|it| spec.application.system()?.watch_no(it));
    let mut draw =
        Draw { spec, links: spec.links(), names, rng: stream(spec, seed, entry), hit: None, reported };
    draw.triggers(trigger, seed).into_iter().map(move |(trigger, hit)| {
        let cause = hit.as_ref().map(|it| it.cause.clone());
        draw.hit = hit;
        Expanded { trigger, fault: draw.fault(action, entry), reported, cause }
    })
}

/// Returns the times of the faults of the `mtbf` entry with this index, until the [end](FederationSpec::faults_end) of the
/// faults. Draws each time only when it is requested.
///
/// # Panics
///
/// Panics if a parameter of the distribution is not above zero.
pub(crate) fn times_of(
    spec: &FederationSpec,
    seed: u64,
    entry: usize,
    mtbf: &Mtbf,
) -> impl Iterator<Item = Time> {
    let ranks = spec.clusters.iter().map(|it| it.nodes).sum();
    times(Between::new(mtbf, ranks), spec.faults_end(), stream(spec, seed, entry))
}

/// Returns the random stream of an entry.
fn stream(spec: &FederationSpec, seed: u64, entry: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let number = spec.faults[entry].stream.map_or(entry as u64, u64::from);
    rng.set_stream(FIRST_STREAM + number);
    rng
}

/// Distribution of the time between two faults, in nanoseconds.
enum Between {
    Exponential(Exp<f64>),
    Weibull(Weibull<f64>),
    Uniform(Uniform<f64>),
}

impl Between {
    fn new(mtbf: &Mtbf, ranks: u32) -> Between {
        if let Mtbf::Weibull(resource::Weibull { scale, shape }) = mtbf {
            let weibull = Weibull::new(scale.0.0 as f64, *shape);
            return Between::Weibull(weibull.expect("valid parameters are above zero"));
        }
        if let Mtbf::Uniform(resource::Uniform { least, most }) = mtbf {
            let uniform = Uniform::new_inclusive(least.0.0 as f64, most.0.0 as f64);
            return Between::Uniform(uniform.expect("a valid shortest time is at most the longest"));
        }
        let mean = match mtbf {
            // Exact for any number of nanoseconds.
            Mtbf::Exponential(mean) => mean.0.0 as f64,
            _ => 1e9 * mtbf.exponential_mean(ranks).expect("the other distributions are exponential"),
        };
        Between::Exponential(Exp::new(1.0 / mean).expect("a valid mean is above zero"))
    }
}

impl Distribution<f64> for Between {
    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> f64 {
        match self {
            Between::Exponential(it) => it.sample(rng),
            Between::Weibull(it) => it.sample(rng),
            Between::Uniform(it) => it.sample(rng),
        }
    }
}

/// Draws times until `end`, with the time between two of them drawn from `between`.
fn times(between: Between, end: Span, mut rng: impl Rng) -> impl Iterator<Item = Time> {
    let end = Time::ZERO + end;
    let mut now = Time::ZERO;
    std::iter::from_fn(move || {
        // Faults of one entry are never simultaneous.
        now += Span((between.sample(&mut rng) as u64).max(1));
        (now < end).then_some(now)
    })
}

/// State of the expansion of one entry.
struct Draw<'a> {
    spec: &'a FederationSpec,
    links: Links,
    names: &'a Names,
    rng: ChaCha8Rng,
    /// The recorded failure from which the current fault is taken, if any.
    hit: Option<Hit>,
    /// The watch whose newest line will name the target, if the entry names one.
    reported: Option<WatchNo>,
}

impl Draw<'_> {
    /// Returns when the faults of an entry are due, and the recorded failures from which they are taken.
    fn triggers(&mut self, trigger: TriggerRef<'_>, seed: u64) -> Vec<(Trigger, Option<Hit>)> {
        let at = |at| (Trigger::At(at), None);
        match trigger {
            TriggerRef::At(time) => vec![at(Time::ZERO + time.0)],
            TriggerRef::When(When { fact, of, cluster, node, occurrence }) => {
                let system = self.spec.application.system();
                let of = of.as_ref().and_then(|it| system?.source(*fact, it));
                let cluster = (cluster != ANY).then(|| self.named(cluster));
                let process = cluster.and_then(|cluster| node.map(|node| self.node(cluster, node)));
                let occurrence = occurrence.unwrap_or(1);
                vec![(Trigger::When { fact: *fact, of, cluster, process, occurrence }, None)]
            }
            TriggerRef::Mtbf(mtbf) => {
                times(Between::new(mtbf, self.names.ranks()), self.spec.faults_end(), &mut self.rng)
                    .map(at)
                    .collect()
            }
            TriggerRef::Trace(trace) => {
                let hits = hits(trace, self.names.ranks(), seed, self.spec.faults_end());
                hits.into_iter().map(|hit| (Trigger::At(hit.at), Some(hit))).collect()
            }
        }
    }

    /// Returns the duration of a fault: the one that its entry states, or else that of the recorded failure.
    fn span(&self, stated: Option<Duration>) -> Option<Span> {
        stated.map(|it| it.0).or(self.hit.as_ref().and_then(|it| it.lasts))
    }

    /// Returns the fault of the entry with this number.
    fn fault(&mut self, action: ActionRef<'_>, entry: usize) -> Fault {
        match action {
            ActionRef::Crash(it) => {
                let target = self.process(&it.process, &it.cluster, it.node).into();
                self.kill(target, it.storage, it.returns, it.repair)
            }
            ActionRef::Stop(it) => Fault::Stop {
                target: self.process(&it.process, &it.cluster, it.node).into(),
                storage: it.storage.unwrap_or_default().into(),
                repair: self.span(it.repair),
                within: it.within.map_or(STOPS_WITHIN, |it| it.0),
                in_turn: false,
                command: None,
            },
            ActionRef::Restart(it) => Fault::Stop {
                target: self
                    .struck_cluster(&it.cluster)
                    .unwrap_or_else(|| self.cluster(&it.cluster, None))
                    .into(),
                storage: StorageFate::Kept,
                repair: None,
                within: it.within.map_or(STOPS_WITHIN, |it| it.0),
                in_turn: it.in_turn,
                command: it.command.as_ref().map(|_| entry as u16),
            },
            ActionRef::LoseRack(it) => {
                let target = self.rack(&it.cluster, it.rack);
                self.kill(target, it.storage, it.returns, it.repair)
            }
            ActionRef::LoseCluster(it) => {
                let cluster = self.reported.map(|_| ClusterId::OUTSIDE);
                let cluster = cluster.or_else(|| self.struck_cluster(&it.cluster));
                let cluster = cluster.unwrap_or_else(|| self.cluster(&it.cluster, None));
                self.kill(cluster.into(), it.storage, it.returns, it.repair)
            }
            ActionRef::Link(it) => {
                let (from, to) = self.pair(&it.from, &it.to);
                let base = self.links.properties(self.names.cluster(from), self.names.cluster(to));
                Fault::Link { from, to, properties: Some(it.link().over(base)), span: self.span(it.span) }
            }
            ActionRef::Partition(it) if let Some(cluster) = &it.within => {
                let cluster = self.named(cluster);
                let nodes = it.nodes.iter().map(|node| self.node(cluster, *node)).collect();
                Fault::Split { cluster, nodes, span: self.span(it.span).unwrap_or(Span::MAX) }
            }
            ActionRef::Partition(it) => {
                let (from, to) = match &it.isolate {
                    _ if self.reported.is_some() => self.isolated(ClusterId::OUTSIDE, &it.except),
                    Some(cluster) => {
                        let cluster =
                            self.struck_cluster(cluster).unwrap_or_else(|| self.cluster(cluster, None));
                        self.isolated(cluster, &it.except)
                    }
                    None => {
                        let (from, to) = self.pair(&it.from, &it.to);
                        (from, vec![to])
                    }
                };
                let span = self.span(it.span).unwrap_or(Span::MAX);
                Fault::Partition { from, to, both: !it.one_way, span }
            }
            ActionRef::Impair(it) => {
                let process = self.process(it.process, it.cluster, it.node);
                match it.how {
                    Impairment::Flip(flip) => {
                        let how = Impairment::Flip(Flip { bit: self.rng.random(), ..flip });
                        Fault::Impair { process, how, span: None }
                    }
                    how => Fault::Impair { process, how, span: self.span(it.span) },
                }
            }
        }
    }

    fn kill(
        &self,
        target: Target,
        storage: Option<Fate>,
        returns: Option<bool>,
        repair: Option<Duration>,
    ) -> Fault {
        let returns = returns.unwrap_or(true);
        let repair = self.span(repair).filter(|_| returns);
        Fault::Kill { target, storage: storage.unwrap_or_default().into(), returns, repair }
    }

    fn rack(&mut self, cluster: &str, rack: Option<u32>) -> Target {
        let hit = self.hit.as_ref().map(|it| it.process);
        let process = (cluster == ANY && rack.is_none())
            .then(|| hit.unwrap_or_else(|| ProcessId(self.rng.random_range(0..self.names.ranks()))));
        let cluster = match process {
            Some(process) => self.names.cluster_of(process),
            None => self.cluster(cluster, None),
        };
        let spec = &self.spec.clusters[cluster.index()];
        let nodes = spec.rack.expect("a valid fault names a cluster with racks");
        let rack = match process {
            Some(process) => (process.0 - self.names.processes_of(cluster).start) / nodes,
            None => rack.unwrap_or_else(|| self.rng.random_range(0..spec.racks())),
        };
        Target::Rack { cluster, rack, nodes }
    }

    fn process(&mut self, name: &Option<String>, cluster: &str, node: Option<u32>) -> ProcessId {
        if self.reported.is_some() {
            return ProcessId::SUPERVISOR;
        }
        if let Some(name) = name {
            return self.names.process_id(name).expect("a valid fault names processes that exist");
        }
        if let Some(hit) = self.hit.as_ref().filter(|_| cluster == ANY && node.is_none()) {
            return hit.process;
        }
        match node {
            Some(node) => {
                let cluster = self.cluster(cluster, None);
                self.node(cluster, node)
            }
            None if cluster == ANY => ProcessId(self.rng.random_range(0..self.names.ranks())),
            None => ProcessId(self.rng.random_range(self.names.processes_of(self.named(cluster)))),
        }
    }

    /// Returns a cluster and those from which it is cut off.
    fn isolated(&self, cluster: ClusterId, except: &[String]) -> (ClusterId, Vec<ClusterId>) {
        let except: Vec<ClusterId> = except.iter().map(|it| self.named(it)).collect();
        let all = (0..self.names.clusters() as u16).map(ClusterId);
        (cluster, all.filter(|it| *it != cluster && !except.contains(it)).collect())
    }

    /// Draws the ends of a link. The two ends are the same cluster only if the entry names it twice.
    fn pair(&mut self, from: &str, to: &str) -> (ClusterId, ClusterId) {
        let taken = (from == ANY && to != ANY).then(|| self.named(to));
        let from = self.struck_cluster(from).unwrap_or_else(|| self.cluster(from, taken));
        (from, self.cluster(to, Some(from)))
    }

    /// Returns the cluster of the process that a recorded failure hits, unless the action names a cluster.
    fn struck_cluster(&self, name: &str) -> Option<ClusterId> {
        let hit = self.hit.as_ref().filter(|_| name == ANY)?;
        Some(self.names.cluster_of(hit.process))
    }

    /// Returns the cluster with this name; for `any`, draws a cluster other than `taken`.
    fn cluster(&mut self, name: &str, taken: Option<ClusterId>) -> ClusterId {
        if name != ANY {
            return self.named(name);
        }
        let clusters = self.names.clusters() as u16;
        match taken {
            None => ClusterId(self.rng.random_range(0..clusters)),
            Some(taken) => {
                let drawn = self.rng.random_range(0..clusters - 1);
                ClusterId(if drawn < taken.0 { drawn } else { drawn + 1 })
            }
        }
    }

    fn named(&self, cluster: &str) -> ClusterId {
        self.names.cluster_id(cluster).expect("a valid fault names clusters that exist")
    }

    fn node(&self, cluster: ClusterId, node: u32) -> ProcessId {
        self.names.node(cluster, node).expect("a valid fault names nodes that exist")
    }
}
