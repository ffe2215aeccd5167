//! Smaller federations: each simplifies the given one in one respect. The largest reductions come first.

use std::collections::BTreeMap;

use faultline_api::quantity::{Duration, Loss, Period};
use faultline_api::resource::{
    ApplicationSpec, Count, Crash, ExactTraffic, Exchange, Failures, FaultSpec, Federation, FederationSpec,
    Hc3i, Hydee, Independent, Link, Links, LoseCluster, LoseRack, NQueens, Options, Receive, ReplicateTo,
    Schedule, Simulator, Stealing, Synthetic, Traffic,
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
            it.faults.retain(|fault| !fault.clusters().contains(&gone));
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

/// Removes nodes from one cluster at a time. Faults of removed nodes then affect the cluster's last remaining node.
fn nodes(spec: &FederationSpec) -> Smaller {
    let mut smaller = Vec::new();
    for (index, cluster) in spec.clusters.iter().enumerate() {
        for nodes in [1, cluster.nodes - 1].into_iter().filter(|&it| 0 < it && it < cluster.nodes) {
            smaller.push(with(spec, |it| {
                it.clusters[index].nodes = nodes;
                let last = nodes - 1;
                let named = it.faults.iter_mut().flat_map(FaultSpec::nodes_mut);
                named.filter(|it| it.0 == cluster.name).for_each(|it| *it.1 = it.1.map(|it| it.min(last)));
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

/// Returns copies of `it`, each with one of these changes.
fn vary<T: Clone>(it: &T, changes: &[&dyn Fn(&mut T)]) -> Vec<T> {
    let changed = |change: &&dyn Fn(&mut T)| {
        let mut copy = it.clone();
        change(&mut copy);
        copy
    };
    changes.iter().map(changed).collect()
}

/// Returns copies, each with a smaller number in one of these fields.
macro_rules! reduced {
    ($it:expr, $($field:ident),+) => {
        [$(fewer($it.$field()).flat_map(|to| vary($it, &[&|it| it.$field = Some(to)])).collect::<Vec<_>>()),+].concat()
    };
}

/// Returns copies, each without one of these options.
macro_rules! unset {
    ($it:expr, $($field:ident),+) => { vary($it, &[$(&|it| it.$field = None),+]) };
}

fn application(spec: &FederationSpec) -> Smaller {
    fn all<T>(wrap: fn(T) -> ApplicationSpec, smaller: Vec<T>) -> Vec<ApplicationSpec> {
        smaller.into_iter().map(wrap).collect()
    }
    use ApplicationSpec as App;
    let smaller = match &spec.application {
        App::Heat(it) => {
            let mut smaller = reduced!(it, steps);
            smaller.extend(vary(it, &[&|it| it.feedback_every = Some(0)]));
            all(App::Heat, smaller)
        }
        App::Salted(it) => {
            let mut smaller = reduced!(it, steps);
            let between = if it.between() > 0.5 { 1.0 } else { 0.5 };
            smaller.extend(vary(
                it,
                &[
                    &|it| (it.reply, it.reply_depth) = (Some(0.0), Some(0)),
                    &|it| it.fan_out = Some(1),
                    &|it| it.between = Some(between),
                ],
            ));
            let scripted = scripts(spec, it.step_time() * u64::from(it.steps()));
            [scripted, all(App::Salted, smaller)].concat()
        }
        App::Exchange(it) => {
            let mut smaller = reduced!(it, exchanges);
            if it.receive().len() > 1 {
                let [named, gathered] = [Receive::Named, Receive::Gathered].map(|way| Some(vec![way]));
                let set: [&dyn Fn(&mut Exchange); 2] =
                    [&|it| it.receive.clone_from(&named), &|it| it.receive.clone_from(&gathered)];
                smaller.extend(vary(it, &set));
            }
            // No program is simpler than the others by itself, but another one may need fewer exchanges.
            let programs = (0..8).filter(|&program| program < it.pattern());
            smaller.extend(programs.flat_map(|program| vary(it, &[&|it| it.pattern = Some(program)])));
            let scripted = scripts(spec, it.step_time() * u64::from(it.exchanges()));
            [scripted, all(App::Exchange, smaller)].concat()
        }
        App::Nas(it) => all(App::Nas, reduced!(it, iterations)),
        App::Farm(it) => all(App::Farm, reduced!(it, pieces)),
        App::PingPong(it) => all(App::PingPong, reduced!(it, rounds)),
        App::Fibonacci(it) => all(App::Fibonacci, reduced!(it, n)),
        App::NQueens(it) => {
            let fewer = fewer(it.n());
            let set = |it: &mut NQueens, to| (it.n, it.depth) = (Some(to), Some(it.depth().min(to)));
            all(App::NQueens, fewer.flat_map(|to| vary(it, &[&|it| set(it, to)])).collect())
        }
        App::Qap(it) => all(App::Qap, reduced!(it, depth)),
        App::TaskGraph(it) => all(App::TaskGraph, reduced!(it, depth, width)),
        App::Cloth(it) => all(App::Cloth, reduced!(it, iterations, rows, columns)),
        App::Jacobi(it) => {
            let mut smaller = reduced!(it, iterations, rows, columns);
            if it.test_every() > 0 {
                smaller.extend(vary(it, &[&|it| it.test_every = Some(0)]));
            }
            all(App::Jacobi, smaller)
        }
        App::Custom(_) | App::Program(_) | App::System(_) => Vec::new(),
        App::Synthetic(it) => all(App::Synthetic, synthetic(it)),
    };
    smaller.into_iter().map(|it| with(spec, |spec| spec.application = it)).collect()
}

/// Removes one message at a time, or shortens the application.
fn synthetic(it: &Synthetic) -> Vec<Synthetic> {
    let Traffic::Exact(exact) = &it.traffic else { return Vec::new() };
    let mut smaller = Vec::new();
    for (index, count) in exact.messages.iter().enumerate() {
        smaller.extend(vary(
            exact,
            &[&|it| match count.count {
                0 | 1 => drop(it.messages.remove(index)),
                _ => it.messages[index].count -= 1,
            }],
        ));
    }
    if exact.duration.0 > Span::from_millis(20) {
        smaller.extend(vary(exact, &[&|it| it.duration = Duration(half(it.duration.0))]));
    }
    smaller.into_iter().map(|exact| Synthetic { traffic: Traffic::Exact(exact), ..it.clone() }).collect()
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

/// Returns a copy with a longer time between checkpoints, so that a stalled process takes fewer of them before the
/// deadline; nothing if the time is unset or already long.
macro_rules! rarer {
    ($it:expr) => {
        match $it.tau.filter(|it| it.0 < LONG) {
            Some(tau) => vary($it, &[&|it| it.tau = Some(Duration(short((tau.0 * 4).min(LONG))))]),
            None => Vec::new(),
        }
    };
}

const LONG: Span = Span::from_secs(10);

/// Returns a copy with one replica in another cluster, which needs no storage server.
macro_rules! plainer {
    ($it:expr) => {
        vary($it, &[&|it| (it.replicas, it.replicate_to) = (Some(1), Some(ReplicateTo::OtherCluster))])
    };
}

fn protocol(spec: &FederationSpec) -> Smaller {
    fn all<T>(wrap: fn(T) -> Options, smaller: Vec<T>) -> Vec<Options> {
        smaller.into_iter().map(wrap).collect()
    }
    let smaller = match spec.protocol.options() {
        Options::Hc3i(it) => all(Options::Hc3i, hc3i(&it)),
        Options::Coordinated(it) => all(
            Options::Coordinated,
            vary(&it, &[&|it| it.collect_every = NEVER, &|it| it.checkpoint_every = NEVER]),
        ),
        Options::Independent(it) => {
            let never_at_all: &dyn Fn(&mut Independent) =
                &|it| (it.checkpoint_every, it.checkpoint_every_in) = (NEVER, BTreeMap::new());
            all(Options::Independent, vary(&it, &[&|it| it.collect_every = NEVER, never_at_all]))
        }
        Options::Hydee(it) => all(Options::Hydee, hydee(&it)),
        Options::Tic(it) => all(Options::Tic, [unset!(&it, cp0), rarer!(&it), plainer!(&it)].concat()),
        Options::Sel(it) => all(Options::Sel, [rarer!(&it), plainer!(&it)].concat()),
        Options::Cck(it) => {
            let unset = unset!(&it, coordination, servers, from_memory, spread);
            all(Options::Cck, [plainer!(&it), rarer!(&it), unset].concat())
        }
        Options::Satin(_) | Options::Unprotected(_) | Options::Custom(_) | Options::Program(_) => Vec::new(),
    };
    smaller.into_iter().map(|it| with(spec, |to| to.protocol = spec.protocol.with_options(it))).collect()
}

fn hc3i(it: &Hc3i) -> Vec<Hc3i> {
    let mut smaller = vary(
        it,
        &[&|it| it.collect_every = NEVER, &|it| it.piggyback = None, &|it| it.collect_by = None, &|it| {
            it.forcing = None
        }],
    );
    for name in it.checkpoint_every_in.keys() {
        smaller.extend(vary(
            it,
            &[&|it| *it.checkpoint_every_in.entry(name.clone()).or_default() = Period(None)],
        ));
    }
    if it.checkpoint_every_in.values().all(|it| *it == Period(None)) {
        smaller.extend(vary(
            it,
            &[&|it| (it.checkpoint_every, it.checkpoint_every_in) = (NEVER, BTreeMap::new())],
        ));
    }
    for to in [ReplicateTo::OtherCluster, ReplicateTo::SharedStorage] {
        // Prefers fewer processes: a replica in another cluster needs no storage server.
        let better = to == ReplicateTo::OtherCluster || it.replicas != Some(1);
        if better && it.replicate_to != Some(ReplicateTo::OtherCluster) {
            smaller.extend(vary(it, &[&|it| (it.replicas, it.replicate_to) = (Some(1), Some(to))]));
        } else if it.replicas.is_some_and(|it| it > 1) {
            smaller.extend(vary(it, &[&|it| it.replicas = Some(1)]));
        }
    }
    smaller
}

fn hydee(it: &Hydee) -> Vec<Hydee> {
    let mut smaller = Vec::new();
    for name in it.checkpoint_every_in.keys() {
        smaller.extend(vary(
            it,
            &[&|it| *it.checkpoint_every_in.entry(name.clone()).or_default() = Period(None)],
        ));
    }
    smaller.extend(vary(
        it,
        &[&|it| it.log_memory = None, &|it| {
            (it.replicas, it.replicate_to) = (Some(1), Some(ReplicateTo::OtherCluster))
        }],
    ));
    smaller
}

/// Never taken or collected.
const NEVER: Option<Period> = Some(Period(None));

/// Simplifies the network, the storage and the control plane.
fn surroundings(spec: &FederationSpec) -> Smaller {
    let mut smaller = vec![
        with(spec, |it| it.simulator = it.simulator.take().and_then(least_work_left_only)),
        with(spec, |it| it.storage = None),
        with(spec, |it| it.failures = None),
        with(spec, |it| it.stealing = None),
        with(spec, |it| it.schedule = None),
        with(spec, |it| it.clusters.iter_mut().for_each(|it| it.rack = None)),
    ];
    if let Some(failures) = &spec.failures {
        let failures = Failures { spares: None, ..failures.clone() };
        smaller.push(with(spec, |it| it.failures = Some(failures)));
    }
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
                let LoseCluster { storage, returns, repair, .. } = *lost;
                let crash = Crash { storage, returns, repair, ..Crash::new(cluster, Some(0)) };
                (it.lose_cluster, it.crash) = (None, Some(crash));
            });
            put(&|it| it.lose_cluster.iter_mut().for_each(|it| it.storage = None));
            put(&|it| it.lose_cluster.iter_mut().for_each(|it| it.returns = None));
            put(&|it| it.lose_cluster.iter_mut().for_each(|it| it.repair = None));
        }
        if let Some(lost) = &fault.lose_rack {
            put(&|it| {
                let cluster = lost.cluster.clone();
                let LoseRack { storage, returns, repair, .. } = *lost;
                let crash = Crash { storage, returns, repair, ..Crash::new(cluster, Some(0)) };
                (it.lose_rack, it.crash) = (None, Some(crash));
            });
            put(&|it| it.lose_rack.iter_mut().for_each(|it| it.storage = None));
            put(&|it| it.lose_rack.iter_mut().for_each(|it| it.returns = None));
            put(&|it| it.lose_rack.iter_mut().for_each(|it| it.repair = None));
        }
        if fault.crash.is_some() {
            put(&|it| it.crash.iter_mut().for_each(|it| it.storage = None));
            put(&|it| it.crash.iter_mut().for_each(|it| it.returns = None));
            put(&|it| it.crash.iter_mut().for_each(|it| it.repair = None));
        }
        if fault.slow.as_ref().is_some_and(|it| it.by > 2.0) {
            put(&|it| it.slow.iter_mut().for_each(|it| it.by = 2.0));
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
