//! The federation that a seed determines. The code documents every draw, and is the complete definition of the
//! distribution.

mod faults;
mod moves;
mod nodes;
mod plans;
mod presence;
mod second;
mod slow;
mod successors;
mod tasks;

use std::collections::BTreeMap;

use faultline_api::Names;
use faultline_api::quantity::{Bandwidth, Duration, Loss, Period, Size};
use faultline_api::resource::{
    ApplicationSpec, ClusterSpec, CollectBy, Demand, Exchange, Failures, Family, Farm, Federation,
    FederationSpec, Forcing, Heat, InFlightSpec, Link, Links, MIN_DETECT_AFTER, Options, Pair, Piggyback,
    ProtocolSpec, Receive, ReplicateTo, Salted, SharedOptions, Simulator, Storage, StorageKind, Unprotected,
};
use faultline_core::{Promise, Promises, Role, Span};

use crate::chance::{Chance, short};
use crate::scenario::ProtocolName;
use faults::Faults;

/// Protocols, each listed as often as its share requires.
const MIX: [&str; 10] =
    ["hc3i", "hc3i", "hc3i", "hc3i", "hc3i", "hc3i", "coordinated", "hydee", "hydee", "hydee"];

/// The protocol for which a federation is drawn.
struct Subject {
    /// The protocol in the federation.
    protocol: ProtocolSpec,
    /// Whether the options of the protocol are not drawn.
    is_fixed: bool,
    demand: Demand,
    /// The roles of the processes outside the clusters; `None` for those that the resource knows.
    extra: Option<Vec<Role>>,
}

impl Subject {
    fn named(name: ProtocolName) -> Subject {
        Subject { is_fixed: false, ..Subject::fixed(name.with(SharedOptions::default())) }
    }

    fn fixed(protocol: ProtocolSpec) -> Subject {
        Subject { demand: protocol.demand(), protocol, is_fixed: true, extra: None }
    }

    fn unnamed(promises: Promises, extra: Vec<Role>) -> Subject {
        let demand = if promises.include(Promise::RepeatedOrder) {
            Demand::SameOrder
        } else if promises.include(Promise::Repetition) {
            Demand::AnyOrder
        } else {
            Demand::Nothing
        };
        let protocol = ProtocolSpec::None(Unprotected::default());
        Subject { protocol, is_fixed: true, demand, extra: Some(extra) }
    }
}

/// Returns the random federation of a seed.
pub(crate) fn federation(seed: u64, protocol: Option<ProtocolName>) -> Federation {
    let is_of_tasks = |it: &ProtocolName| it.with(SharedOptions::default()).family() == Some(Family::Tasks);
    let federation = match protocol.filter(is_of_tasks) {
        Some(protocol) => tasks::federation(seed, protocol),
        None => federation_with(seed, protocol.map(Subject::named)),
    };
    varied(seed, federation)
}

/// Returns the random federation of a seed, under this protocol with its options.
pub(crate) fn federation_under(seed: u64, protocol: ProtocolSpec) -> Federation {
    federation_with(seed, Some(Subject::fixed(protocol)))
}

/// Returns the random federation of a seed under this protocol. Draws the shared options that the protocol sets.
pub(crate) fn federation_drawn(seed: u64, protocol: ProtocolSpec) -> Federation {
    varied(seed, federation_with(seed, Some(Subject { is_fixed: false, ..Subject::fixed(protocol) })))
}

/// Adds what has random streams of its own.
fn varied(seed: u64, federation: Federation) -> Federation {
    slow::vary(seed, nodes::vary(seed, federation))
}

/// Returns the random federation of a seed for a protocol that no file can name, given its promises and the roles of
/// the processes outside the clusters. The protocol in the federation is `none`.
pub(crate) fn federation_promised(seed: u64, promises: Promises, extra: Vec<Role>) -> Federation {
    federation_with(seed, Some(Subject::unnamed(promises, extra)))
}

fn federation_with(seed: u64, subject: Option<Subject>) -> Federation {
    let chance = &mut Chance::new(seed);
    // Always drawn, so that a requested protocol does not shift all later draws.
    let drawn = chance.pick(&MIX);
    let Subject { protocol, is_fixed, demand, extra } =
        subject.unwrap_or_else(|| Subject::named(drawn.parse().expect("the name denotes a protocol")));
    let clusters = clusters(chance, demand);
    let step_time = chance.span(Span::from_millis(1), Span::from_millis(20));
    let application = match demand {
        Demand::Nothing => any_application(chance, step_time),
        Demand::AnyOrder => deterministic_application(chance, step_time),
        Demand::SameOrder => ordered_application(chance, step_time),
    };
    let links = links(chance, &clusters);
    let length = length(&application, &clusters);
    let drawn = options(chance, protocol.clone(), &clusters, length);
    let failures = failures(chance);
    let outage = failures.detect_after() + failures.restart_after();
    let protocol = if is_fixed { protocol } else { drawn };
    let mut spec = FederationSpec {
        seed: Some(seed),
        links: Some(links),
        failures: Some(failures),
        simulator: Some(simulator(chance)),
        storage: Some(storage(chance)),
        // Leaves time without faults, in which the federation must recover and finish.
        deadline: Some(Duration(length * 10 + Span::from_secs(20))),
        ..FederationSpec::new(clusters, protocol, application)
    };
    let outside = Names::extra_of(&extra.unwrap_or_else(|| spec.extra_processes()));
    spec.faults = Faults::new(chance, &spec.clusters, outside, length, outage).list(chance);
    if !is_fixed {
        spec.protocol = with_rare_options(chance, spec.protocol);
    }
    // Drawn after everything else, like the rare options.
    if matches!(spec.protocol, ProtocolSpec::Hc3i(_)) && spec.clusters.len() > 1 && chance.percent(15) {
        presence::vary(chance, &mut spec, length);
    }
    Federation::new(&format!("fuzz-{seed}"), spec)
}

fn clusters(chance: &mut Chance, demand: Demand) -> Vec<ClusterSpec> {
    let count = match demand {
        Demand::Nothing => chance.pick(&[1, 2, 2, 2, 3, 3, 3, 3, 4, 4]),
        // Messages within a cluster are not logged, and a program needs at least two ranks.
        Demand::SameOrder | Demand::AnyOrder => chance.pick(&[2, 2, 2, 3, 3, 3, 4]),
    };
    let mut cluster = |name: &str| ClusterSpec::new(name, chance.between(1, 4) as u32);
    ["a", "b", "c", "d"][..count].iter().map(|name| cluster(name)).collect()
}

/// Returns the approximate computation time.
fn length(application: &ApplicationSpec, clusters: &[ClusterSpec]) -> Span {
    let ranks: u32 = clusters.iter().map(|it| it.nodes).sum();
    application.computing_time().unwrap_or_else(|| match application {
        // Messages that no process waits for are in transit at the same time.
        ApplicationSpec::Exchange(it) => {
            (it.step_time() + Span::from_millis(5)) * (u64::from(it.exchanges()) * 2 / u64::from(ranks))
        }
        ApplicationSpec::Farm(it) => it.step_time() * (u64::from(it.pieces()) / u64::from(ranks - 1) + 1),
        _ => panic!("all other applications state their computing time"),
    })
}

/// Draws an application whose re-execution sends the same messages.
fn deterministic_application(chance: &mut Chance, step_time: Span) -> ApplicationSpec {
    if chance.percent(25) {
        return heat(chance, step_time);
    }
    let (named, gathered, polled) = (Receive::Named, Receive::Gathered, Receive::Polled);
    ApplicationSpec::Exchange(Exchange {
        pattern: Some(chance.between(0, 999_999) as u32),
        exchanges: Some(chance.pick(&[20, 50, 100, 200])),
        step_time: Some(Duration(step_time)),
        receive: chance.pick(&[None, None, Some(vec![named]), Some(vec![gathered]), Some(vec![polled])]),
    })
}

/// Draws an application whose re-execution sends the same messages if it receives the same messages in the same
/// order.
fn ordered_application(chance: &mut Chance, step_time: Span) -> ApplicationSpec {
    if chance.percent(40) {
        return deterministic_application(chance, step_time);
    }
    let pieces = Some(chance.pick(&[10, 50, 100, 200]));
    ApplicationSpec::Farm(Farm { pieces, step_time: Some(Duration(step_time)) })
}

fn any_application(chance: &mut Chance, step_time: Span) -> ApplicationSpec {
    if chance.percent(72) {
        return ApplicationSpec::Salted(Salted {
            steps: Some(chance.between(20, 100) as u32),
            step_time: Some(Duration(step_time)),
            fan_out: Some(chance.between(1, 4) as u32),
            between: Some(chance.pick(&[0.2, 0.5, 0.7, 0.9])),
            reply: Some(chance.pick(&[0.0, 0.2, 0.5])),
            reply_depth: Some(chance.between(0, 3) as u32),
        });
    }
    heat(chance, step_time)
}

fn heat(chance: &mut Chance, step_time: Span) -> ApplicationSpec {
    ApplicationSpec::Heat(Heat {
        rows: Some(2),
        columns: Some(4),
        steps: Some(chance.between(20, 100) as u32),
        step_time: Some(Duration(step_time)),
        feedback_every: Some(chance.pick(&[0, 0, 1, 1, 5, 20])),
        state: Some(Size(64)),
    })
}

/// Draws the properties of the links: those within each cluster, and those between clusters in each direction.
fn links(chance: &mut Chance, clusters: &[ClusterSpec]) -> Links {
    let mut link = |least: Span, most: Span| {
        let latency = chance.span(least, most);
        Link {
            preset: None,
            latency: Some(Duration(latency)),
            jitter: Some(Duration(short(Span(chance.between(0, latency.0))))),
            bandwidth: bandwidth(chance, &[0, 0, 10_000_000]),
            loss: chance.pick(&[None, None, None, Some(Loss { ppm: 20_000 })]),
        }
    };
    let (near, far) = (Span::from_micros(5), Span::from_micros(50));
    let within = link(near, Span::from_millis(2));
    let between = link(far, Span::from_millis(40));
    let mut pairs = Vec::new();
    for from in clusters {
        for to in clusters {
            let Link { preset, latency, jitter, bandwidth, loss } = match from.name == to.name {
                true => link(near, Span::from_millis(2)),
                false => link(far, Span::from_millis(40)),
            };
            let (from, to) = (from.name.clone(), to.name.clone());
            // Unset properties would be taken from the class of the link. Setting all of them keeps each link
            // independent.
            let (bandwidth, loss) =
                (bandwidth.or(Some(Bandwidth::UNLIMITED)), loss.or(Some(Loss { ppm: 0 })));
            pairs.push(Pair { from, to, preset, latency, jitter, bandwidth, loss });
        }
    }
    Links { within: Some(within), between: Some(between), pairs }
}

/// Draws how long the detection of failures and the restart of processes take.
fn failures(chance: &mut Chance) -> Failures {
    Failures {
        detect_after: Some(Duration(chance.span(MIN_DETECT_AFTER, Span::from_millis(200)))),
        restart_after: Some(Duration(chance.span(Span::from_millis(1), Span::from_millis(200)))),
        ..Failures::default()
    }
}

fn storage(chance: &mut Chance) -> Storage {
    Storage {
        kind: if chance.percent(20) { StorageKind::Memory } else { StorageKind::Disk },
        write_bandwidth: bandwidth(chance, &[0, 1_000_000, 100_000_000]),
        latency: Some(chance.duration(Span::from_micros(1), Span::from_millis(5))),
        ..Storage::default()
    }
}

fn bandwidth(chance: &mut Chance, from: &[u64]) -> Option<Bandwidth> {
    Some(Bandwidth::from_bytes_per_second(chance.pick(from)))
}

/// Draws the shared options of a protocol.
fn options(
    chance: &mut Chance,
    mut asked: ProtocolSpec,
    clusters: &[ClusterSpec],
    length: Span,
) -> ProtocolSpec {
    let least = Span(length.0 / 20).max(Span::from_millis(1));
    let period = |chance: &mut Chance, percent| {
        let most = Span(length.0 / 2).max(least);
        Period(chance.percent(percent).then(|| chance.span(least, most).max(Span::from_millis(1))))
    };
    let every = period(chance, 85);
    let every_in: BTreeMap<_, _> =
        clusters.iter().map(|cluster| (cluster.name.clone(), period(chance, 50))).collect();
    let collect_every = Some(period(chance, 60));
    let (replicas, replicate_to) = copies(chance, clusters);
    let (replicas, replicate_to) = (Some(replicas), Some(replicate_to));
    let piggyback = chance.percent(15).then_some(Piggyback::Ddv);
    // A protocol may have only one of the two. A program need not understand that it is to take no checkpoints.
    let is_understood = every.0.is_some() || asked.program().is_none();
    asked.change_shared_options(|it| {
        *it = SharedOptions {
            checkpoint_every: if is_understood { Some(every) } else { it.checkpoint_every },
            checkpoint_every_in: every_in,
            collect_every,
            replicas,
            replicate_to,
            log_memory: None,
        };
    });
    if !asked.shared_options().checkpoint_every_in.is_empty() {
        asked.change_shared_options(|it| it.checkpoint_every = None);
    }
    if let ProtocolSpec::Hc3i(hc3i) = &mut asked {
        hc3i.piggyback = piggyback;
    }
    asked
}

/// Sets options that only some federations have. Draws them after all other options and the faults, so that they do not
/// shift these draws.
fn with_rare_options(chance: &mut Chance, asked: ProtocolSpec) -> ProtocolSpec {
    let mut options = asked.options();
    match &mut options {
        Options::Hc3i(hc3i) => {
            hc3i.collect_by = chance.percent(35).then_some(CollectBy::EveryCluster);
            hc3i.forcing = chance.percent(8).then_some(Forcing::EveryMessage);
        }
        // A message in a random program is a few dozen bytes long.
        Options::Hydee(it) => {
            it.log_memory = chance.percent(35).then(|| Size(chance.pick(&[0, 50, 200, 1000])));
        }
        _ => {}
    }
    asked.with_options(options)
}

/// Draws the number and location of replicas within the limits of these clusters.
fn copies(chance: &mut Chance, clusters: &[ClusterSpec]) -> (u32, ReplicateTo) {
    let replicas = chance.pick(&[1, 1, 1, 2]);
    let smallest = clusters.iter().map(|it| it.nodes).min().unwrap_or(0);
    let others = clusters.len() as u32 - 1;
    let wanted = chance.pick(&[
        ReplicateTo::OtherCluster,
        ReplicateTo::OtherCluster,
        ReplicateTo::SameCluster,
        ReplicateTo::SharedStorage,
    ]);
    match wanted {
        ReplicateTo::OtherCluster if others > 0 => (replicas.min(others), wanted),
        ReplicateTo::SameCluster | ReplicateTo::OtherCluster if smallest > 1 => {
            (replicas.min(smallest - 1), ReplicateTo::SameCluster)
        }
        _ => (1, ReplicateTo::SharedStorage),
    }
}

fn simulator(chance: &mut Chance) -> Simulator {
    // A slow and uneven control plane: some processes learn of a failure, or of a new life, long before others.
    let uneven = if chance.percent(25) { 300 } else { 20 };
    Simulator {
        reorder: Some(Loss { ppm: chance.pick(&[0, 0, 50_000, 300_000]) }),
        reorder_within: Some(chance.duration(Span::from_micros(100), Span::from_millis(50))),
        in_flight: Some(chance.pick(&[
            InFlightSpec::Sampled,
            InFlightSpec::Sampled,
            InFlightSpec::Lost,
            InFlightSpec::Kept,
        ])),
        sync: Some(chance.duration(Span::from_micros(1), Span::from_millis(30))),
        control_latency: Some(chance.duration(Span::from_micros(10), Span::from_millis(5))),
        control_jitter: Some(chance.duration(Span::from_micros(1), Span::from_millis(uneven))),
        launch: Some(chance.duration(Span::from_millis(1), Span::from_millis(50))),
        exit_notice: Some(Period(
            chance.percent(70).then(|| chance.span(Span::from_micros(10), Span::from_millis(20))),
        )),
        handling: None,
        least_work_left: Some(0),
    }
}
