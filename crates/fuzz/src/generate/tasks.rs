//! Federations that run task-based programs. They are drawn separately, so that the draws for message-passing
//! applications are unaffected.

use faultline_api::Names;
use faultline_api::flow::flow;
use faultline_api::quantity::{Duration, Period};
use faultline_api::resource::{
    ApplicationSpec, Cck, Cloth, ClusterSpec, Coordination, Cp0, Fate, FaultSpec, Federation, FederationSpec,
    Fibonacci, Jacobi, NQueens, Options, ProtocolSpec, Qap, Schedule, SharedOptions, Stealing, TaskGraph,
    Tic,
};
use faultline_api::validate;
use faultline_core::Span;
use faultline_dataflow::{ProgramSize, extent};

use super::faults::Faults;
use super::{copies, failures, links, moves, plans, second, simulator, storage, successors};
use crate::chance::{Chance, short};
use crate::scenario::ProtocolName;

/// Limits on a program's computing time, chosen so that the program takes about as long as a recovery.
const SHORTEST: Span = Span::from_millis(100);
const LONGEST: Span = Span::from_millis(600);
/// The percentage of federations under TIC and SEL whose tasks share a bound.
const SEARCHES: u64 = 4;

/// The percentage of long programs among federations under TIC and SEL in which faults destroy storage and all processes
/// return. The storage must be complete again before a long program ends.
const REFILLS: u64 = 20;
/// How much longer a long program lasts than others.
const REFILL: Span = Span::from_secs(10);

/// Returns the random federation of a seed under a protocol for task-based programs.
pub(super) fn federation(seed: u64, protocol: ProtocolName) -> Federation {
    let chance = &mut Chance::new(seed);
    let clusters = clusters(chance);
    let ranks: u32 = clusters.iter().map(|it| it.nodes).sum();
    let plans = protocol.with(SharedOptions::default()).plans();
    let application = if plans { planned(chance, ranks) } else { application(chance) };
    let length = chance.span(SHORTEST, LONGEST);
    let application = lasting(application, length, &clusters);
    let links = links(chance, &clusters);
    let protocol = with_options(chance, protocol, &clusters, length);
    let failures = failures(chance);
    let (detect_after, restart_after) = (failures.detect_after(), failures.restart_after());
    let outage = detect_after + restart_after;
    let mut spec = FederationSpec {
        seed: Some(seed),
        links: Some(links),
        failures: Some(failures),
        simulator: Some(simulator(chance)),
        storage: Some(storage(chance)),
        // Leaves time without faults, in which the federation must recover and finish.
        deadline: Some(Duration(length * 20 + Span::from_secs(20))),
        ..FederationSpec::new(clusters, protocol, application)
    };
    let outside = Names::extra_of(&spec.extra_processes());
    let never_return = if chance.percent(60) { 50 } else { 0 };
    let faults = Faults::of_tasks(chance, &spec.clusters, outside.clone(), length, outage, never_return);
    let faults = match (plans, spec.protocol.checkpointing().is_some()) {
        (true, _) => faults.of_plans(),
        (false, true) => faults,
        (false, false) => faults.without_checkpoints(),
    };
    let drawn = faults.list(chance);
    spec.faults = faults.with_one_at_a_time(chance, drawn);
    spec.stealing = (!plans).then(|| Stealing {
        patience: Some(chance.duration(Span::from_micros(200), Span::from_millis(10))),
        cluster_first: Some(chance.pick(&[0.0, 0.5, 0.9])),
    });
    spec.schedule =
        plans.then(|| Schedule { window: Some(chance.between(1, 4) as u32), ..Schedule::default() });
    let mut federation = Federation::new(&format!("fuzz-{seed}"), spec);
    let_a_process_return(&mut federation);
    joins_late(chance, &mut federation, length);
    if !plans {
        second::add(chance, &mut federation, &outside, outage);
        successors::fail(chance, &mut federation, detect_after, restart_after);
    }
    let is_searched = !plans && federation.spec.protocol.checkpointing().is_some();
    // Drawn last, so that it does not change the other draws.
    if is_searched && chance.percent(SEARCHES) {
        let spec = &mut federation.spec;
        spec.application = lasting(search(chance), length, &spec.clusters);
    }
    if is_searched && chance.percent(REFILLS) && is_refilled(&federation.spec.faults) {
        let spec = &mut federation.spec;
        spec.application = lasting(spec.application.clone(), length + REFILL, &spec.clusters);
        spec.deadline = Some(Duration((length + REFILL) * 20));
    }
    if plans {
        plans::vary(chance, &mut federation, length);
        moves::vary(chance, &mut federation, &outside, length, outage);
    }
    federation
}

/// Returns whether these faults destroy storage, and all processes return.
fn is_refilled(faults: &[FaultSpec]) -> bool {
    let is_lost = |it: &FaultSpec| {
        let crash = it.crash.as_ref().and_then(|it| it.storage);
        crash.or(it.lose_cluster.as_ref().and_then(|it| it.storage)) == Some(Fate::Lost)
    };
    faults.iter().any(is_lost) && !faults.iter().any(FaultSpec::never_returns)
}

/// Draws the options of a protocol.
fn with_options(
    chance: &mut Chance,
    protocol: ProtocolName,
    clusters: &[ClusterSpec],
    length: Span,
) -> ProtocolSpec {
    let tau = chance.span(Span::from_millis(5), Span(length.0 / 2));
    let (replicas, replicate_to) = copies(chance, clusters);
    let asked = protocol.with(SharedOptions {
        checkpoint_every: Some(Period(Some(tau))),
        replicas: Some(replicas),
        replicate_to: Some(replicate_to),
        ..SharedOptions::default()
    });
    match asked.options() {
        Options::Tic(tic) => {
            let cp0 = chance.percent(20).then_some(Cp0::Each);
            asked.with_options(Options::Tic(Tic { cp0, ..tic }))
        }
        Options::Cck(cck) => {
            let coordination = chance.percent(20).then_some(Coordination::Global);
            asked.with_options(Options::Cck(Cck { coordination, ..cck }))
        }
        _ => asked,
    }
}

/// Lets crashed processes return until the federation is valid. It is invalid only if none of its processes would
/// remain.
fn let_a_process_return(federation: &mut Federation) {
    while !validate(federation).is_empty() {
        let last = federation.spec.faults.iter_mut().rev().find(|it| it.never_returns());
        let last = last.expect("nothing else is wrong with a federation that was drawn");
        last.crash.iter_mut().for_each(|it| it.returns = None);
        last.lose_cluster.iter_mut().for_each(|it| it.returns = None);
    }
}

/// Draws a small quadratic assignment problem, whose tasks share a bound.
pub(super) fn search(chance: &mut Chance) -> ApplicationSpec {
    let facilities = chance.between(4, 5);
    let entries = 2 * facilities * facilities;
    let entries = (0..entries).map(|_| chance.between(0, 9).to_string()).collect::<Vec<String>>();
    let data = format!("{facilities} {}", entries.join(" "));
    let depth = Some(chance.between(2, 3) as u32);
    ApplicationSpec::Qap(Qap { data: Some(data), depth, ..Qap::default() })
}

/// Makes the last cluster join late in a fifth of the federations, unless replicas or successors need the cluster from
/// the start.
fn joins_late(chance: &mut Chance, federation: &mut Federation, length: Span) {
    let at = chance.duration(Span::from_millis(1), length);
    if !chance.percent(20) {
        return;
    }
    let mut late = federation.clone();
    late.spec.clusters.iter_mut().skip(1).last().into_iter().for_each(|it| it.joins_after = Some(at));
    if validate(&late).is_empty() {
        *federation = late;
    }
}

fn clusters(chance: &mut Chance) -> Vec<ClusterSpec> {
    let count = chance.pick(&[1, 2, 2, 3, 3]);
    let mut cluster = |name: &str| {
        let nodes = chance.between(1, 3) as u32;
        let (speed, cores) =
            (chance.pick(&[None, None, Some(50), Some(200)]), chance.pick(&[None, None, Some(2)]));
        // There must be at least one process to steal from.
        let nodes = if count == 1 { nodes + 1 } else { nodes };
        ClusterSpec { speed, cores, ..ClusterSpec::new(name, nodes) }
    };
    ["a", "b", "c"][..count].iter().map(|name| cluster(name)).collect()
}

/// Draws a program whose tasks are known before it runs, with at least one piece for each process.
fn planned(chance: &mut Chance, ranks: u32) -> ApplicationSpec {
    let columns = chance.between(1, 3) as u32;
    ApplicationSpec::Jacobi(Jacobi {
        rows: Some(ranks.div_ceil(columns) + chance.between(0, 1) as u32),
        columns: Some(columns),
        size: Some(2),
        iterations: Some(chance.between(5, 60) as u32),
        test_every: Some(chance.between(0, 4) as u32),
        tolerance: Some(0.1),
        task_time: None,
    })
}

fn application(chance: &mut Chance) -> ApplicationSpec {
    match chance.between(0, 9) {
        0 | 1 => ApplicationSpec::Fibonacci(Fibonacci { n: Some(14), threshold: Some(5), task_time: None }),
        2 => ApplicationSpec::NQueens(NQueens { n: Some(6), depth: Some(3), task_time: None }),
        _ => ApplicationSpec::TaskGraph(TaskGraph {
            pattern: Some(chance.between(0, 999_999) as u32),
            depth: Some(chance.between(3, 5) as u32),
            width: Some(chance.between(3, 5) as u32),
            task_time: None,
        }),
    }
}

/// Returns a program whose tasks take so long that these clusters cannot compute it in less than `length`. A fault
/// before that time affects a program that has not ended.
pub(super) fn lasting(
    application: ApplicationSpec,
    length: Span,
    clusters: &[ClusterSpec],
) -> ApplicationSpec {
    /// A time long enough that dividing it by a speed loses no precision.
    const UNIT: Span = Span::from_secs(1);
    let with = |time: Span| {
        let task_time = Some(Duration(time));
        match application.clone() {
            ApplicationSpec::Fibonacci(it) => ApplicationSpec::Fibonacci(Fibonacci { task_time, ..it }),
            ApplicationSpec::NQueens(it) => ApplicationSpec::NQueens(NQueens { task_time, ..it }),
            ApplicationSpec::TaskGraph(it) => ApplicationSpec::TaskGraph(TaskGraph { task_time, ..it }),
            ApplicationSpec::Jacobi(it) => ApplicationSpec::Jacobi(Jacobi { task_time, ..it }),
            ApplicationSpec::Cloth(it) => ApplicationSpec::Cloth(Cloth { task_time, ..it }),
            ApplicationSpec::Qap(it) => ApplicationSpec::Qap(Qap { task_time, ..it }),
            other => unreachable!("{} is not drawn", other.name()),
        }
    };
    let unit = least_time(&with(UNIT), clusters);
    // A program may consist of one task that takes no time.
    let factor = (unit.as_secs_f64() / UNIT.as_secs_f64()).max(1e-3);
    // Rounding reduces the time by less than a tenth.
    with(short(Span((length.0 as f64 / factor * 1.11) as u64)).max(Span::from_micros(1)))
}

/// Returns a lower bound on the time in which these clusters compute the program, if nothing fails and no process waits
/// for work.
fn least_time(application: &ApplicationSpec, clusters: &[ClusterSpec]) -> Span {
    let flow = flow(application)
        .expect("the application is a task-based program")
        .expect("its parameters are valid");
    let ProgramSize { work, path, .. } = extent(&flow);
    let power = |it: &ClusterSpec| u64::from(it.nodes * it.speed() * it.cores());
    let power: u64 = clusters.iter().map(power).sum();
    let fastest = clusters.iter().map(ClusterSpec::speed).max().unwrap_or(100);
    Span(work.0 * 100 / power).max(Span(path.0 * 100 / u64::from(fastest)))
}

#[cfg(test)]
mod tests {
    use faultline_api::resource::ClusterSpec;
    use faultline_core::FactKind;

    use super::super::faults::OF_CHECKPOINTS;
    use super::*;

    #[test]
    fn federations_cover_the_situations_that_a_recovery_may_meet() {
        let all: Vec<Federation> = (0..400).map(|seed| federation(seed, "tic".parse().unwrap())).collect();
        let count = |has: &dyn Fn(&FederationSpec) -> bool| all.iter().filter(|it| has(&it.spec)).count();
        let late = count(&|it| it.clusters.iter().any(|it| it.joins_after.is_some()));
        let speeds = count(&|it| it.clusters.iter().any(|one| one.speed != it.clusters[0].speed));
        let servers = count(&|it| it.faults.iter().any(|it| it.process().is_some()));
        let never_return = |it: &FederationSpec| it.faults.iter().filter(|it| it.never_returns()).count();
        let (once, more) = (count(&|it| never_return(it) > 0), count(&|it| never_return(it) > 1));
        let searches = count(&|it| matches!(it.application, ApplicationSpec::Qap(_)));
        let refills = count(&|it| least_time(&it.application, &it.clusters) > REFILL);
        println!("{late} {speeds} {servers} {once} {more} {searches} {refills}");
        assert!((4..40).contains(&searches), "{searches}");
        assert!((4..40).contains(&refills), "{refills}");
        assert!(late > 20 && speeds > 100 && servers > 30 && once > 100 && more > 30);
    }

    #[test]
    fn a_program_lasts_until_the_time_of_its_faults() {
        let mut judged = 0;
        for protocol in ["tic", "cck", "satin"] {
            for seed in 0..200 {
                let spec = federation(seed, protocol.parse().unwrap()).spec;
                let least = least_time(&spec.application, &spec.clusters);
                assert!(least >= SHORTEST, "{protocol}, seed {seed}: {least:?}");
                // A fault that follows a join, a departure or a theft may come later.
                let joins_or_leaves =
                    |it: &ClusterSpec| it.joins_after.is_some() || it.leaves_after.is_some();
                let follows_join = spec.clusters.iter().any(joins_or_leaves);
                let awaits_theft =
                    |it: &FaultSpec| it.when.as_ref().is_some_and(|it| it.fact == FactKind::Taken);
                if follows_join || spec.faults.first().is_none_or(awaits_theft) {
                    continue;
                }
                let first = spec.faults.iter().filter_map(|it| it.at).min();
                let is_judged = first.is_some_and(|it| it.0 <= least);
                assert!(is_judged, "{protocol}, seed {seed}: {first:?} of {least:?}");
                judged += 1;
            }
        }
        assert!(judged > 300, "{judged}");
    }

    #[test]
    fn no_fault_waits_for_checkpoints_that_are_never_taken() {
        for seed in 0..200 {
            let spec = federation(seed, "satin".parse().unwrap()).spec;
            let facts = spec.faults.iter().filter_map(|it| it.when.as_ref()).map(|it| it.fact);
            assert!(!facts.into_iter().any(|it| OF_CHECKPOINTS.contains(&it)), "seed {seed}");
        }
    }
}
