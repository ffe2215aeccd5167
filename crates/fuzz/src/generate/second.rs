//! Additional faults for task-based programs, while an earlier fault still has an effect or while a cluster joins.

use faultline_api::quantity::Duration;
use faultline_api::resource::{ANY, Crash, Fate, FaultSpec, Federation, LoseCluster, When};
use faultline_api::validate;
use faultline_core::{FactKind, Span};

use super::faults::OF_CHECKPOINTS;
use crate::chance::{Chance, short};

/// Facts of an absorption: the successor takes over the graph, writes it, and settles the thefts of its predecessor.
const OF_ABSORPTIONS: &[FactKind] = &[
    FactKind::Absorbed,
    FactKind::Absorbed,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::Voided,
    FactKind::Returned,
];

/// Facts at which a storage server is needed.
const OF_SERVERS: &[FactKind] =
    &[FactKind::Shipped, FactKind::Saved, FactKind::Durable, FactKind::Restored, FactKind::Absorbed];

/// Adds faults that strike while a process is being absorbed, while a storage server is needed, or while a cluster
/// joins. `outage` is the approximate time from a failure to the next life.
pub(super) fn add(chance: &mut Chance, federation: &mut Federation, outside: &[String], outage: Span) {
    let mut more = Vec::new();
    let spec = &federation.spec;
    // Without checkpoints, no process ever reports that it takes one.
    let takes_checkpoints = spec.protocol.checkpointing().is_some();
    let stated = |all: &[FactKind]| -> Vec<FactKind> {
        let is_stated = |it: &FactKind| takes_checkpoints || !OF_CHECKPOINTS.contains(it);
        all.iter().copied().filter(is_stated).collect()
    };
    if let Some(lost) = spec.faults.iter().find(|it| it.never_returns())
        && chance.percent(40)
    {
        let at = lost.at.filter(|_| chance.percent(50));
        let at = at.map(|it| Duration(short(it.0 + Span(chance.between(0, outage.0 * 3 / 2)))));
        let when = at.is_none().then(|| moment(chance, &stated(OF_ABSORPTIONS), 3));
        more.push(FaultSpec { at, when, ..strike(chance, federation) });
    }
    if !outside.is_empty() && chance.percent(20) {
        let process = chance.pick(outside);
        let storage = chance.percent(50).then_some(Fate::Lost);
        let crash = Crash { storage, ..Crash::of_process(process) };
        let when = Some(moment(chance, OF_SERVERS, 20));
        more.push(FaultSpec { when, ..crash.into() });
    }
    let late = spec.clusters.iter().find_map(|it| it.joins_after);
    if let Some(late) = late.filter(|_| chance.percent(50)) {
        let at = Some(Duration(short(late.0 + Span(chance.between(0, outage.0 * 2)))));
        more.push(FaultSpec { at, ..strike(chance, federation) });
    }
    for fault in more {
        federation.spec.faults.push(fault);
        if !validate(federation).is_empty() {
            federation.spec.faults.pop();
        }
    }
}

fn moment(chance: &mut Chance, facts: &[FactKind], at_most: u64) -> When {
    let occurrence = Some(chance.between(1, at_most) as u32);
    When { of: None, fact: chance.pick(facts), cluster: ANY.to_owned(), node: None, occurrence }
}

/// Draws the crash of one rank, or the loss of a cluster.
fn strike(chance: &mut Chance, federation: &Federation) -> FaultSpec {
    let cluster = chance.pick(&federation.spec.clusters);
    let storage = chance.percent(50).then_some(Fate::Lost);
    let returns = chance.percent(30).then_some(false);
    let (node, cluster) = (chance.between(0, u64::from(cluster.nodes) - 1) as u32, cluster.name);
    if chance.percent(75) {
        let crash = Crash { storage, returns, ..Crash::new(cluster, Some(node)) };
        crash.into()
    } else {
        LoseCluster { storage, returns, ..LoseCluster::new(cluster) }.into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use faultline_api::Names;

    use super::super::tasks;
    use super::*;

    /// Times are rounded to two digits.
    const ROUNDING: Span = Span::from_millis(100);

    /// Returns the number of additional faults by the situation in which they occur, and the facts that they wait for.
    /// Panics if an additional fault occurs in none of these situations.
    fn added(seeds: u64) -> ([u64; 4], BTreeSet<FactKind>) {
        let outage = Span::from_millis(100);
        let (mut counts, mut facts) = ([0; 4], BTreeSet::new());
        for seed in 0..seeds {
            let mut federation = tasks::federation(seed, "tic".parse().unwrap());
            federation.spec.faults.retain(FaultSpec::never_returns);
            federation.spec.faults.truncate(1);
            let lost = federation.spec.faults.first().cloned();
            let late = federation.spec.clusters.iter().find_map(|it| it.joins_after);
            let outside = Names::extra_of(&federation.spec.extra_processes());
            add(&mut Chance::new(seed), &mut federation, &outside, outage);
            assert!(validate(&federation).is_empty(), "seed {seed}");
            let new = &federation.spec.faults[usize::from(lost.is_some())..];
            for fault in new {
                let after = |from: Option<Duration>| {
                    let from = from.map(|it| it.0)?;
                    fault.at.map(|it| it.0 + ROUNDING >= from && it.0 <= from + outage * 2)
                };
                let waits_for =
                    |all: &[FactKind]| fault.when.as_ref().is_some_and(|it| all.contains(&it.fact));
                facts.extend(fault.when.as_ref().map(|it| it.fact));
                let meets = match fault.process() {
                    Some(_) if waits_for(OF_SERVERS) => 0,
                    None if waits_for(OF_ABSORPTIONS) && lost.is_some() => 1,
                    None if lost.as_ref().is_some_and(|it| after(it.at) == Some(true)) => 2,
                    None if after(late) == Some(true) => 3,
                    _ => panic!("seed {seed}: {fault:?} matches none of the situations"),
                };
                counts[meets] += 1;
            }
        }
        (counts, facts)
    }

    #[test]
    fn additional_faults_coincide_with_absorptions_servers_and_joins() {
        let (counts, facts) = added(1000);
        println!("{counts:?} {facts:?}");
        assert!(counts.iter().all(|it| *it > 10), "{counts:?}");
        assert!(OF_ABSORPTIONS.iter().chain(OF_SERVERS).all(|it| facts.contains(it)), "{facts:?}");
    }
}
