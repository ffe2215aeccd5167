//! Smaller federations: each simplifies the given one in one respect. The largest reductions come first.

use std::collections::BTreeMap;

use faultline_api::quantity::{Duration, Loss, Period};
use faultline_api::resource::{
    ApplicationSpec, Cck, Cloth, Count, Crash, ExactTraffic, Exchange, Farm, FaultSpec, Federation,
    FederationSpec, Fibonacci, Heat, Jacobi, Link, Links, NQueens, Nas, Options, PingPong, Qap, Receive,
    ReplicateTo, Salted, Schedule, Sel, Simulator, Stealing, Synthetic, TaskGraph, Tic, Traffic,
};
use faultline_core::Span;

use crate::chance::short;

type Smaller = Vec<FederationSpec>;

/// Returns federations that are smaller than this one. They may be invalid.
pub(super) fn of(federation: &Federation) -> Vec<Federation> {
    let spec = &federation.spec;
    let parts = [faults, clusters, nodes, presence, application, protocol, surroundings, details];
    let specs = parts.into_iter().flat_map(|part| part(spec));
    let changed = specs.filter(|it| it != spec);
    changed.map(|spec| Federation { spec, ..federation.clone() }).collect()
}

fn with(spec: &FederationSpec, change: impl FnOnce(&mut FederationSpec)) -> FederationSpec {
    let mut spec = spec.clone();
    change(&mut spec);
    spec
}

/// Removes half of the faults, then one fault at a time.
fn faults(spec: &FederationSpec) -> Smaller {
    let count = spec.faults.len();
    let mut smaller = Vec::new();
    if count > 2 {
        smaller.push(with(spec, |it| it.faults.truncate(count / 2)));
        smaller.push(with(spec, |it| drop(it.faults.drain(..count / 2))));
    }
    smaller.extend((0..count).rev().map(|index| with(spec, |it| drop(it.faults.remove(index)))));
    smaller
}

/// Removes one cluster at a time, with all references to it.
fn clusters(spec: &FederationSpec) -> Smaller {
    if spec.clusters.len() < 2 {
        return Vec::new();
    }
    let without = |gone: &str| {
        with(spec, |it| {
            it.clusters.retain(|cluster| cluster.name != gone);
            it.faults.retain(|fault| !names(fault).contains(&gone));
            if let Some(links) = &mut it.links {
                links.pairs.retain(|pair| pair.from != gone && pair.to != gone);
            }
            it.protocol.change_shared_options(|it| {
                it.checkpoint_every_in.remove(gone);
            });
            if let ApplicationSpec::Synthetic(Synthetic { traffic: Traffic::Exact(exact), .. }) =
                &mut it.application
            {
                exact.messages.retain(|count| count.from != gone && count.to != gone);
            }
            if let ApplicationSpec::Synthetic(Synthetic { traffic: Traffic::Random(random), .. }) =
                &mut it.application
            {
                random.clusters.retain(|it| it.cluster != gone);
                random.clusters.iter_mut().for_each(|it| it.send.retain(|send| send.to != gone));
            }
        })
    };
    spec.clusters.iter().rev().map(|cluster| without(&cluster.name)).collect()
}

/// Returns the clusters that a fault names.
fn names(fault: &FaultSpec) -> Vec<&str> {
    let FaultSpec { when, crash, pause, lose_cluster, link, partition, .. } = fault;
    let FaultSpec { slow_storage, full_storage, corrupt_storage, .. } = fault;
    let one = [
        when.as_ref().map(|it| &it.cluster),
        crash.as_ref().map(|it| &it.cluster),
        pause.as_ref().map(|it| &it.cluster),
        lose_cluster.as_ref().map(|it| &it.cluster),
        link.as_ref().map(|it| &it.from),
        link.as_ref().map(|it| &it.to),
        partition.as_ref().map(|it| &it.from),
        partition.as_ref().map(|it| &it.to),
        slow_storage.as_ref().map(|it| &it.cluster),
        full_storage.as_ref().map(|it| &it.cluster),
        corrupt_storage.as_ref().map(|it| &it.cluster),
    ];
    one.into_iter().flatten().map(String::as_str).collect()
}

/// Removes nodes from one cluster at a time. Faults of removed nodes then affect the cluster's last remaining node.
fn nodes(spec: &FederationSpec) -> Smaller {
    let mut smaller = Vec::new();
    for (index, cluster) in spec.clusters.iter().enumerate() {
        for nodes in [1, cluster.nodes - 1].into_iter().filter(|&it| 0 < it && it < cluster.nodes) {
            smaller.push(with(spec, |it| {
                it.clusters[index].nodes = nodes;
                let last = nodes - 1;
                for fault in &mut it.faults {
                    clamp(fault, &cluster.name, last);
                }
            }));
        }
    }
    smaller
}

/// Makes clusters take part from the start, or until the end.
fn presence(spec: &FederationSpec) -> Smaller {
    let mut smaller = Vec::new();
    for (index, cluster) in spec.clusters.iter().enumerate() {
        if cluster.joins_after.is_some() {
            smaller.push(with(spec, |it| it.clusters[index].joins_after = None));
        }
        if cluster.leaves_after.is_some() {
            smaller.push(with(spec, |it| it.clusters[index].leaves_after = None));
        }
    }
    smaller
}

fn clamp(fault: &mut FaultSpec, cluster: &str, last: u32) {
    let FaultSpec { crash, pause, slow_storage, full_storage, corrupt_storage, .. } = fault;
    let all = [
        crash.as_mut().map(|it| (&it.cluster, &mut it.node)),
        pause.as_mut().map(|it| (&it.cluster, &mut it.node)),
        slow_storage.as_mut().map(|it| (&it.cluster, &mut it.node)),
        full_storage.as_mut().map(|it| (&it.cluster, &mut it.node)),
        corrupt_storage.as_mut().map(|it| (&it.cluster, &mut it.node)),
    ];
    for (of, node) in all.into_iter().flatten() {
        if of == cluster {
            *node = node.map(|it| it.min(last));
        }
    }
}

fn application(spec: &FederationSpec) -> Smaller {
    let put = |application| with(spec, |it| it.application = application);
    match &spec.application {
        ApplicationSpec::Heat(heat) => {
            let steps = fewer(heat.steps()).map(|steps| Heat { steps: Some(steps), ..heat.clone() });
            let rare = [0].map(|every| Heat { feedback_every: Some(every), ..heat.clone() });
            steps.chain(rare).map(|it| put(ApplicationSpec::Heat(it))).collect()
        }
        ApplicationSpec::Salted(salted) => {
            let duration = salted.step_time() * u64::from(salted.steps());
            let scripted = scripts(spec, duration);
            let steps = fewer(salted.steps()).map(|steps| Salted { steps: Some(steps), ..salted.clone() });
            let others = [
                Salted { reply: Some(0.0), reply_depth: Some(0), ..salted.clone() },
                Salted { fan_out: Some(1), ..salted.clone() },
                Salted { between: Some(if salted.between() > 0.5 { 1.0 } else { 0.5 }), ..salted.clone() },
            ];
            let salted = steps.chain(others).map(|it| put(ApplicationSpec::Salted(it)));
            scripted.into_iter().map(put).chain(salted).collect()
        }
        ApplicationSpec::Exchange(exchange) => {
            let duration = exchange.step_time() * u64::from(exchange.exchanges());
            let exchanges = fewer(exchange.exchanges())
                .map(|exchanges| Exchange { exchanges: Some(exchanges), ..exchange.clone() });
            let receive = |receive| Exchange { receive: Some(receive), ..exchange.clone() };
            let one = exchange.receive().len() > 1;
            let ways = one.then_some([Receive::Named, Receive::Gathered]).into_iter().flatten();
            let ways = ways.map(|way| receive(vec![way]));
            // No program is simpler than the others by itself, but another one may need fewer exchanges.
            let programs = (0..8).filter(|&it| it < exchange.pattern());
            let programs = programs.map(|pattern| Exchange { pattern: Some(pattern), ..exchange.clone() });
            let smaller = exchanges.chain(ways).chain(programs).map(|it| put(ApplicationSpec::Exchange(it)));
            scripts(spec, duration).into_iter().map(put).chain(smaller).collect()
        }
        ApplicationSpec::Nas(nas) => {
            let iterations = fewer(nas.iterations()).map(|it| Nas { iterations: Some(it), ..nas.clone() });
            iterations.map(|it| put(ApplicationSpec::Nas(it))).collect()
        }
        ApplicationSpec::Farm(it) => {
            let pieces = fewer(it.pieces()).map(|pieces| Farm { pieces: Some(pieces), ..it.clone() });
            pieces.map(|it| put(ApplicationSpec::Farm(it))).collect()
        }
        ApplicationSpec::PingPong(it) => {
            let rounds = fewer(it.rounds()).map(|rounds| PingPong { rounds: Some(rounds), ..it.clone() });
            rounds.map(|it| put(ApplicationSpec::PingPong(it))).collect()
        }
        ApplicationSpec::Fibonacci(it) => {
            let fewer = fewer(it.n()).map(|n| Fibonacci { n: Some(n), ..it.clone() });
            fewer.map(|it| put(ApplicationSpec::Fibonacci(it))).collect()
        }
        ApplicationSpec::NQueens(it) => {
            let fewer =
                fewer(it.n()).map(|n| NQueens { n: Some(n), depth: Some(it.depth().min(n)), ..it.clone() });
            fewer.map(|it| put(ApplicationSpec::NQueens(it))).collect()
        }
        ApplicationSpec::Qap(it) => {
            let fewer = fewer(it.depth()).map(|depth| Qap { depth: Some(depth), ..it.clone() });
            fewer.map(|it| put(ApplicationSpec::Qap(it))).collect()
        }
        ApplicationSpec::TaskGraph(it) => {
            let flatter = fewer(it.depth()).map(|depth| TaskGraph { depth: Some(depth), ..it.clone() });
            let narrower = fewer(it.width()).map(|width| TaskGraph { width: Some(width), ..it.clone() });
            flatter.chain(narrower).map(|it| put(ApplicationSpec::TaskGraph(it))).collect()
        }
        ApplicationSpec::Cloth(it) => {
            let shorter = fewer(it.iterations()).map(|all| Cloth { iterations: Some(all), ..it.clone() });
            let lower = fewer(it.rows()).map(|rows| Cloth { rows: Some(rows), ..it.clone() });
            let narrower = fewer(it.columns()).map(|columns| Cloth { columns: Some(columns), ..it.clone() });
            shorter.chain(lower).chain(narrower).map(|it| put(ApplicationSpec::Cloth(it))).collect()
        }
        ApplicationSpec::Jacobi(it) => {
            let shorter = fewer(it.iterations()).map(|all| Jacobi { iterations: Some(all), ..it.clone() });
            let lower = fewer(it.rows()).map(|rows| Jacobi { rows: Some(rows), ..it.clone() });
            let narrower = fewer(it.columns()).map(|columns| Jacobi { columns: Some(columns), ..it.clone() });
            let untested = (it.test_every() > 0).then(|| Jacobi { test_every: Some(0), ..it.clone() });
            let all = shorter.chain(lower).chain(narrower).chain(untested);
            all.map(|it| put(ApplicationSpec::Jacobi(it))).collect()
        }
        ApplicationSpec::Custom(_) | ApplicationSpec::Program(_) => Vec::new(),
        ApplicationSpec::Synthetic(synthetic) => {
            let Traffic::Exact(exact) = &synthetic.traffic else { return Vec::new() };
            let put = |exact| {
                let traffic = Traffic::Exact(exact);
                put(ApplicationSpec::Synthetic(Synthetic { traffic, ..synthetic.clone() }))
            };
            let mut smaller = Vec::new();
            for (index, count) in exact.messages.iter().enumerate() {
                let mut fewer_of = exact.clone();
                if count.count > 1 {
                    fewer_of.messages[index].count -= 1;
                } else {
                    fewer_of.messages.remove(index);
                }
                smaller.push(put(fewer_of));
            }
            if exact.duration.0 > Span::from_millis(20) {
                smaller
                    .push(put(ExactTraffic { duration: Duration(half(exact.duration.0)), ..exact.clone() }));
            }
            smaller
        }
    }
}

/// Returns applications that send only a few messages.
fn scripts(spec: &FederationSpec, duration: Span) -> Vec<ApplicationSpec> {
    const MESSAGES: [u32; 3] = [1, 2, 4];
    let pairs = |count: u32| {
        let names = || spec.clusters.iter();
        names()
            .flat_map(|from| names().map(move |to| (from, to)))
            .filter(|(from, to)| from.name != to.name || from.nodes > 1)
            .map(|(from, to)| Count { from: from.name.clone(), to: to.name.clone(), count })
            .collect()
    };
    let script = |count| {
        let traffic = Traffic::Exact(ExactTraffic { duration: Duration(duration), messages: pairs(count) });
        ApplicationSpec::Synthetic(Synthetic {
            traffic,
            message: None,
            state: Some(faultline_api::quantity::Size(64)),
        })
    };
    MESSAGES.map(script).into()
}

/// Returns 1, half and three quarters of the number, and the number minus one.
fn fewer(number: u32) -> impl Iterator<Item = u32> {
    [1, number / 2, number / 4 * 3, number.saturating_sub(1)]
        .into_iter()
        .filter(move |&it| 0 < it && it < number)
}

fn half(span: Span) -> Span {
    short(Span(span.0 / 2))
}

fn protocol(spec: &FederationSpec) -> Smaller {
    let never = Some(never_period());
    let put = |options| with(spec, |it| it.protocol = spec.protocol.with_options(options));
    match spec.protocol.options() {
        Options::Hc3i(hc3i) => {
            let mut smaller = vec![put(Options::Hc3i(faultline_api::resource::Hc3i {
                collect_every: never,
                ..hc3i.clone()
            }))];
            let mut plain = hc3i.clone();
            plain.piggyback = None;
            smaller.push(put(Options::Hc3i(plain)));
            let mut central = hc3i.clone();
            central.collect_by = None;
            smaller.push(put(Options::Hc3i(central)));
            let mut rarer = hc3i.clone();
            rarer.forcing = None;
            smaller.push(put(Options::Hc3i(rarer)));
            for (name, period) in &hc3i.checkpoint_every_in {
                if *period != Period(None) {
                    let mut rarer = hc3i.clone();
                    rarer.checkpoint_every_in.insert(name.clone(), Period(None));
                    smaller.push(put(Options::Hc3i(rarer)));
                }
            }
            if hc3i.checkpoint_every_in.values().all(|it| *it == Period(None)) {
                let mut plain = hc3i.clone();
                (plain.checkpoint_every, plain.checkpoint_every_in) = (never, BTreeMap::new());
                smaller.push(put(Options::Hc3i(plain)));
            }
            for (replicas, to) in [(1, ReplicateTo::OtherCluster), (1, ReplicateTo::SharedStorage)] {
                // Prefers fewer processes: a replica in another cluster needs no storage server.
                let better = to == ReplicateTo::OtherCluster || hc3i.replicas != Some(1);
                if better && hc3i.replicate_to != Some(ReplicateTo::OtherCluster) {
                    let mut other = hc3i.clone();
                    (other.replicas, other.replicate_to) = (Some(replicas), Some(to));
                    smaller.push(put(Options::Hc3i(other)));
                } else if hc3i.replicas.is_some_and(|it| it > 1) {
                    let mut other = hc3i.clone();
                    other.replicas = Some(1);
                    smaller.push(put(Options::Hc3i(other)));
                }
            }
            smaller
        }
        Options::Coordinated(coordinated) => {
            let mut rarer = coordinated.clone();
            rarer.collect_every = never;
            let mut never_at_all = coordinated.clone();
            never_at_all.checkpoint_every = never;
            vec![put(Options::Coordinated(rarer)), put(Options::Coordinated(never_at_all))]
        }
        Options::Independent(independent) => {
            let mut rarer = independent.clone();
            rarer.collect_every = never;
            let mut never_at_all = independent.clone();
            (never_at_all.checkpoint_every, never_at_all.checkpoint_every_in) = (never, BTreeMap::new());
            vec![put(Options::Independent(rarer)), put(Options::Independent(never_at_all))]
        }
        Options::Hydee(hydee) => {
            let put = |options| put(Options::Hydee(options));
            let mut smaller = Vec::new();
            let rare = hydee.checkpoint_every_in.iter().filter(|(_, period)| **period != never_period());
            for (name, _) in rare {
                let mut rarer = hydee.clone();
                rarer.checkpoint_every_in.insert(name.clone(), never_period());
                smaller.push(put(rarer));
            }
            if hydee.log_memory.is_some() {
                let mut other = hydee.clone();
                other.log_memory = None;
                smaller.push(put(other));
            }
            if hydee.replicas != Some(1) || hydee.replicate_to != Some(ReplicateTo::OtherCluster) {
                let mut other = hydee.clone();
                (other.replicas, other.replicate_to) = (Some(1), Some(ReplicateTo::OtherCluster));
                smaller.push(put(other));
            }
            smaller
        }
        Options::Tic(tic) => {
            let mut smaller = vec![put(Options::Tic(Tic { cp0: None, ..tic.clone() }))];
            if let Some(tau) = rarer(tic.tau) {
                smaller.push(put(Options::Tic(Tic { tau, ..tic.clone() })));
            }
            if let Some((replicas, replicate_to)) = plainer(tic.replicas, tic.replicate_to) {
                smaller.push(put(Options::Tic(Tic { replicas, replicate_to, ..tic })));
            }
            smaller
        }
        Options::Sel(sel) => {
            let mut smaller = Vec::new();
            if let Some(tau) = rarer(sel.tau) {
                smaller.push(put(Options::Sel(Sel { tau, ..sel.clone() })));
            }
            if let Some((replicas, replicate_to)) = plainer(sel.replicas, sel.replicate_to) {
                smaller.push(put(Options::Sel(Sel { replicas, replicate_to, ..sel })));
            }
            smaller
        }
        Options::Cck(cck) => {
            let mut smaller = Vec::new();
            if let Some((replicas, replicate_to)) = plainer(cck.replicas, cck.replicate_to) {
                smaller.push(put(Options::Cck(Cck { replicas, replicate_to, ..cck.clone() })));
            }
            if let Some(tau) = rarer(cck.tau) {
                smaller.push(put(Options::Cck(Cck { tau, ..cck.clone() })));
            }
            if cck.coordination.is_some() {
                smaller.push(put(Options::Cck(Cck { coordination: None, ..cck.clone() })));
            }
            if cck.servers.is_some() {
                smaller.push(put(Options::Cck(Cck { servers: None, ..cck.clone() })));
            }
            if cck.from_memory.is_some() {
                smaller.push(put(Options::Cck(Cck { from_memory: None, ..cck.clone() })));
            }
            if cck.spread.is_some() {
                smaller.push(put(Options::Cck(Cck { spread: None, ..cck.clone() })));
            }
            smaller
        }
        Options::Satin(_) | Options::Unprotected(_) | Options::Custom(_) | Options::Program(_) => Vec::new(),
    }
}

/// Returns a longer time between checkpoints, so that a stalled process takes fewer of them before the deadline; `None`
/// if the time is unset or already long.
fn rarer(tau: Option<Duration>) -> Option<Option<Duration>> {
    const LONG: Span = Span::from_secs(10);
    let tau = tau.filter(|it| it.0 < LONG)?;
    Some(Some(Duration(short((tau.0 * 4).min(LONG)))))
}

/// Returns the options for one replica in another cluster, which needs no storage server; `None` if they are already
/// set.
fn plainer(
    replicas: Option<u32>,
    replicate_to: Option<ReplicateTo>,
) -> Option<(Option<u32>, Option<ReplicateTo>)> {
    let plain = (Some(1), Some(ReplicateTo::OtherCluster));
    ((replicas, replicate_to) != plain).then_some(plain)
}

fn never_period() -> Period {
    Period(None)
}

/// Simplifies the network, the storage and the control plane.
fn surroundings(spec: &FederationSpec) -> Smaller {
    let mut smaller = vec![
        with(spec, |it| it.simulator = it.simulator.take().and_then(least_work_left_only)),
        with(spec, |it| it.storage = None),
        with(spec, |it| it.failures = None),
        with(spec, |it| it.stealing = None),
        with(spec, |it| it.schedule = None),
    ];
    if let Some(stealing) = &spec.stealing {
        let put = |stealing| with(spec, |it| it.stealing = Some(stealing));
        smaller.extend([
            put(Stealing { patience: None, ..stealing.clone() }),
            put(Stealing { cluster_first: None, ..stealing.clone() }),
        ]);
    }
    if let Some(schedule) = &spec.schedule {
        let put = |schedule| with(spec, |it| it.schedule = Some(schedule));
        smaller.extend([
            put(Schedule { order: None, ..schedule.clone() }),
            put(Schedule { pieces: None, ..schedule.clone() }),
        ]);
    }
    if let Some(links) = &spec.links {
        smaller.push(with(spec, |it| it.links = None));
        let plain =
            Links { within: Some(milliseconds(1)), between: Some(milliseconds(5)), pairs: Vec::new() };
        smaller.push(with(spec, |it| it.links = Some(plain)));
        for index in 0..links.pairs.len() {
            smaller.push(with(spec, |it| {
                let links = it.links.as_mut().expect("there are links");
                links.pairs.remove(index);
            }));
        }
    }
    if let Some(simulator) = &spec.simulator {
        let put = |simulator| with(spec, |it| it.simulator = Some(simulator));
        let plain = Simulator::default();
        let none = Some(Loss { ppm: 0 });
        smaller.extend([
            put(Simulator { reorder: None, reorder_within: None, ..simulator.clone() }),
            put(Simulator { reorder: simulator.reorder.and(none), ..simulator.clone() }),
            put(Simulator { in_flight: None, ..simulator.clone() }),
            put(Simulator { sync: None, ..simulator.clone() }),
            put(Simulator { control_latency: plain.control_latency, ..simulator.clone() }),
            put(Simulator { control_jitter: plain.control_jitter, ..simulator.clone() }),
            put(Simulator { launch: None, ..simulator.clone() }),
            put(Simulator { exit_notice: None, ..simulator.clone() }),
            put(Simulator { handling: None, ..simulator.clone() }),
            put(Simulator { least_work_left: None, ..simulator.clone() }),
        ]);
    }
    smaller
}

/// Removes all options except `least_work_left`; returns `None` if no option is set. Never sets `least_work_left`:
/// another candidate removes it, so the search could alternate between the two.
fn least_work_left_only(simulator: Simulator) -> Option<Simulator> {
    let only = Simulator { least_work_left: simulator.least_work_left, ..Simulator::default() };
    (simulator != Simulator::default()).then_some(only)
}

fn milliseconds(latency: u64) -> Link {
    Link { latency: Some(Duration(Span::from_millis(latency))), ..Link::default() }
}

/// Makes one fault milder, simpler or earlier, or shortens the deadline.
fn details(spec: &FederationSpec) -> Smaller {
    let mut smaller = Vec::new();
    for (index, fault) in spec.faults.iter().enumerate() {
        let mut put = |change: &dyn Fn(&mut FaultSpec)| {
            smaller.push(with(spec, |it| change(&mut it.faults[index])));
        };
        if let Some(lost) = &fault.lose_cluster {
            put(&|it| {
                let cluster = lost.cluster.clone();
                let (storage, returns) = (lost.storage, lost.returns);
                let crash = Crash { cluster, node: Some(0), process: None, storage, returns };
                (it.lose_cluster, it.crash) = (None, Some(crash));
            });
            put(&|it| it.lose_cluster.iter_mut().for_each(|it| it.storage = None));
            put(&|it| it.lose_cluster.iter_mut().for_each(|it| it.returns = None));
        }
        if fault.crash.is_some() {
            put(&|it| it.crash.iter_mut().for_each(|it| it.storage = None));
            put(&|it| it.crash.iter_mut().for_each(|it| it.returns = None));
        }
        if fault.when.as_ref().is_some_and(|it| it.occurrence.unwrap_or(1) > 1) {
            for occurrence in fewer(fault.when.as_ref().and_then(|it| it.occurrence).unwrap_or(1)) {
                put(&|it| it.when.iter_mut().for_each(|it| it.occurrence = Some(occurrence)));
            }
        }
        if let Some(at) = fault.at.filter(|at| at.0 > Span::from_millis(10)) {
            put(&|it| it.at = Some(Duration(half(at.0))));
        }
    }
    let least = spec.application.computing_time().unwrap_or_default() + Span::from_secs(10);
    if spec.deadline() > least * 2 {
        smaller.push(with(spec, |it| it.deadline = Some(Duration(short(Span(it.deadline().0 / 2))))));
    }
    smaller
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;
    use crate::scenario::{ProtocolName, Scenario};

    /// The number of seeds for each protocol.
    const SEEDS: u64 = 40;

    fn drawn() -> impl Iterator<Item = (ProtocolName, u64, Federation)> {
        let of = |protocol| {
            (0..SEEDS).map(move |seed| (protocol, seed, Scenario::new(seed, Some(protocol), None).federation))
        };
        ProtocolName::all().filter(|it| !it.is_custom()).flat_map(of)
    }

    /// Describes how a candidate simplified the federation.
    fn change(from: &Federation, to: &Federation) -> String {
        let (from, to) = (faultline_api::to_yaml(from), faultline_api::to_yaml(to));
        let lost = from.lines().filter(|it| !to.contains(it)).map(|it| format!("-{it}\n"));
        let new = to.lines().filter(|it| !from.contains(it)).map(|it| format!("+{it}\n"));
        lost.chain(new).collect()
    }

    #[test]
    fn no_candidate_of_a_candidate_is_the_original() {
        for (protocol, seed, federation) in drawn() {
            for smaller in of(&federation) {
                let leads_back = of(&smaller).contains(&federation);
                assert!(!leads_back, "{protocol}, seed {seed}:\n{}", change(&federation, &smaller));
            }
        }
    }

    /// A search that accepts every candidate never visits a federation twice, and ends with one that has no
    /// candidates.
    #[test]
    fn every_sequence_of_candidates_ends() {
        /// Far more than the number of simplifications of any federation.
        const MOST: usize = 1_000;
        for (protocol, seed, mut federation) in drawn() {
            let chance = &mut Chance::new(seed);
            let mut smaller = of(&federation);
            let mut steps = 0;
            while !smaller.is_empty() {
                let next = chance.pick(&smaller);
                smaller = of(&next);
                steps += 1;
                let ends = steps < MOST && !smaller.contains(&federation);
                assert!(ends, "{protocol}, seed {seed}:\n{}", change(&federation, &next));
                federation = next;
            }
        }
    }

    #[test]
    fn the_waiting_time_of_thieves_becomes_the_default() {
        let federation = Scenario::new(1, Some("tic".parse().unwrap()), None).federation;
        let stealing = federation.spec.stealing.clone().expect("the settings for stealing are drawn");
        assert!(stealing.patience.is_some());
        let patient = Stealing { patience: None, ..stealing };
        let all = of(&federation);
        assert!(all.iter().any(|it| it.spec.stealing.is_none()));
        assert!(all.iter().any(|it| it.spec.stealing.as_ref() == Some(&patient)));
    }
}
