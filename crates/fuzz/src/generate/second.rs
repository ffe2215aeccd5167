//! Faults of programs of tasks that meet what an earlier fault, or a cluster that joins, has set in motion.

use faultline_api::quantity::Duration;
use faultline_api::resource::{ANY, Crash, Fate, Fault, Federation, LoseCluster, When};
use faultline_api::validate;
use faultline_core::{FactKind, Span};

use crate::chance::{Chance, short};

/// The moments of an absorption: the successor has the graph, writes it, and settles the thefts of its predecessor.
const OF_ABSORPTIONS: &[FactKind] = &[
    FactKind::Absorbed,
    FactKind::Absorbed,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::Voided,
    FactKind::Returned,
];

/// The moments at which a storage server matters.
const OF_SERVERS: &[FactKind] =
    &[FactKind::Shipped, FactKind::Saved, FactKind::Durable, FactKind::Restored, FactKind::Absorbed];

/// Adds faults while a process is absorbed, while a storage server is needed, and while a cluster joins. `outage` is
/// the approximate time from a failure to the next life.
pub(super) fn add(chance: &mut Chance, federation: &mut Federation, outside: &[String], outage: Span) {
    let mut more = Vec::new();
    let spec = &federation.spec;
    if let Some(lost) = spec.faults.iter().find(|it| it.is_for_good())
        && chance.percent(40)
    {
        let at = lost.at.filter(|_| chance.percent(50));
        let at = at.map(|it| Duration(short(it.0 + Span(chance.between(0, outage.0 * 3 / 2)))));
        let when = at.is_none().then(|| moment(chance, OF_ABSORPTIONS, 3));
        more.push(Fault { at, when, ..strike(chance, federation) });
    }
    if !outside.is_empty() && chance.percent(20) {
        let process = Some(chance.pick(outside));
        let storage = chance.percent(50).then_some(Fate::Lost);
        let crash = Crash { cluster: ANY.into(), node: None, process, storage, returns: None };
        let when = Some(moment(chance, OF_SERVERS, 20));
        more.push(Fault { when, crash: Some(crash), ..Fault::default() });
    }
    let late = spec.clusters.iter().find_map(|it| it.joins_after);
    if let Some(late) = late.filter(|_| chance.percent(50)) {
        let at = Some(Duration(short(late.0 + Span(chance.between(0, outage.0 * 2)))));
        more.push(Fault { at, ..strike(chance, federation) });
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
    When { fact: chance.pick(facts), cluster: ANY.to_owned(), node: None, occurrence }
}

/// Draws the crash of one rank, or the loss of a cluster.
fn strike(chance: &mut Chance, federation: &Federation) -> Fault {
    let cluster = chance.pick(&federation.spec.clusters);
    let storage = chance.percent(50).then_some(Fate::Lost);
    let returns = chance.percent(30).then_some(false);
    let (node, cluster) = (chance.between(0, u64::from(cluster.nodes) - 1) as u32, cluster.name);
    if chance.percent(75) {
        let crash = Crash { cluster, node: Some(node), process: None, storage, returns };
        Fault { crash: Some(crash), ..Fault::default() }
    } else {
        Fault { lose_cluster: Some(LoseCluster { cluster, storage, returns }), ..Fault::default() }
    }
}
