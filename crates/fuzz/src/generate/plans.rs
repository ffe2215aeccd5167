//! Variations of federations whose tasks are assigned in advance: other programs, other assignments, and options of
//! the recovery.

use faultline_api::Names;
use faultline_api::flow::flow;
use faultline_api::resource::{
    ApplicationSpec, Cck, Cloth, Federation, Fibonacci, NQueens, Options, ReplicateTo, TaskGraph, TaskOrder,
};
use faultline_api::validate;
use faultline_core::Span;

use super::tasks::{lasting, search};
use crate::chance::Chance;

/// The share of federations that run a program other than Jacobi's method, in percent.
const OTHER_PROGRAMS: u64 = 25;
/// The share of federations with each of the other variations, in percent.
const VARIED: u64 = 20;

/// Varies a federation that computes for about `length`. Each variation is drawn independently, and omitted if the
/// federation does not support it.
pub(super) fn vary(chance: &mut Chance, federation: &mut Federation, length: Span) {
    if chance.percent(OTHER_PROGRAMS) {
        let program = program(chance, Names::of(&federation.spec).ranks());
        attempt(federation, |it| it.spec.application = lasting(program, length, &it.spec.clusters));
    }
    if let Options::Cck(cck) = federation.spec.protocol.options() {
        let from_memory = chance.percent(VARIED).then_some(true);
        let spread = chance.percent(VARIED).then_some(true);
        let has_servers = cck.replicate_to == Some(ReplicateTo::SharedStorage) && chance.percent(50);
        let servers = has_servers.then(|| chance.between(2, 4) as u32);
        let options = Options::Cck(Cck { from_memory, spread, servers, ..cck });
        attempt(federation, |it| it.spec.protocol = it.spec.protocol.with_options(options));
    }
    let order = chance.percent(VARIED).then_some(TaskOrder::SendingFirst);
    let is_scattered = chance.percent(VARIED);
    let Some(mut schedule) = federation.spec.schedule.clone() else { return };
    schedule.order = order;
    if let Some(Ok(flow)) = flow(&federation.spec.application).filter(|_| is_scattered) {
        let last = u64::from(Names::of(&federation.spec).ranks() - 1);
        let pieces = 0..flow.planned().pieces();
        schedule.pieces = Some(pieces.map(|_| chance.between(0, last) as u32).collect());
    }
    attempt(federation, |it| it.spec.schedule = Some(schedule));
}

/// Applies a change if the changed federation is valid.
fn attempt(federation: &mut Federation, change: impl FnOnce(&mut Federation)) {
    let mut changed = federation.clone();
    change(&mut changed);
    if validate(&changed).is_empty() {
        *federation = changed;
    }
}

/// Draws a cloth simulation with at least one piece for each process, or a program that must be unrolled because its
/// tasks spawn others.
fn program(chance: &mut Chance, ranks: u32) -> ApplicationSpec {
    match chance.between(0, 5) {
        0 | 1 => {
            let columns = chance.between(1, 3) as u32;
            ApplicationSpec::Cloth(Cloth {
                rows: Some(ranks.div_ceil(columns) + chance.between(0, 1) as u32),
                columns: Some(columns),
                size: Some(2),
                iterations: Some(chance.between(5, 30) as u32),
                task_time: None,
            })
        }
        2 => ApplicationSpec::Fibonacci(Fibonacci { n: Some(12), threshold: Some(4), task_time: None }),
        3 => ApplicationSpec::NQueens(NQueens { n: Some(6), depth: Some(3), task_time: None }),
        4 => search(chance),
        _ => ApplicationSpec::TaskGraph(TaskGraph {
            pattern: Some(chance.between(0, 999_999) as u32),
            depth: Some(chance.between(3, 5) as u32),
            width: Some(chance.between(3, 5) as u32),
            task_time: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use faultline_api::resource::ProtocolSpec;

    use super::super::tasks;

    #[test]
    fn planned_federations_cover_every_program_and_option() {
        const SEEDS: u64 = 600;
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for seed in 0..SEEDS {
            let spec = tasks::federation(seed, "cck".parse().unwrap()).spec;
            let mut count = |what: &str| *found.entry(what.to_owned()).or_default() += 1;
            count(spec.application.name());
            let ProtocolSpec::Cck(cck) = &spec.protocol else { panic!("seed {seed}") };
            let schedule = spec.schedule.as_ref().unwrap();
            for (what, is_set) in [
                ("fromMemory", cck.from_memory.is_some()),
                ("spread", cck.spread.is_some()),
                ("servers", cck.servers.is_some_and(|it| it > 1)),
                ("sendingFirst", schedule.order.is_some()),
                ("scattered", schedule.pieces.is_some()),
            ] {
                if is_set {
                    count(what);
                }
            }
        }
        let at_least = |what: &str, percent: u64| {
            let found = found.get(what).copied().unwrap_or(0);
            assert!(100 * found >= percent * SEEDS, "{what}: {found} of {SEEDS}");
        };
        at_least("jacobi", 70);
        at_least("cloth", 5);
        ["fibonacci", "nQueens", "qap", "taskGraph"].iter().for_each(|it| at_least(it, 1));
        ["fromMemory", "spread", "sendingFirst", "scattered"].iter().for_each(|it| at_least(it, 15));
        at_least("servers", 5);
    }
}
