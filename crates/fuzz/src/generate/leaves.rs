//! Clusters that leave while a planned program runs, with faults while their partitions move.

use faultline_api::quantity::Duration;
use faultline_api::resource::{ANY, Crash, Fate, Fault, Federation, LoseCluster, When};
use faultline_api::validate;
use faultline_core::{FactKind, Span};

use crate::chance::{Chance, short};

/// The share of federations in which a cluster leaves, in percent.
const SHARE: u64 = 15;

/// Steps of a move: the old host cedes a partition, the new one restores it and joins the recovery, and a checkpoint
/// without the old host releases the cluster.
const MOMENTS: &[FactKind] = &[
    FactKind::Ceded,
    FactKind::Ceded,
    FactKind::Absorbed,
    FactKind::Absorbed,
    FactKind::RecoveryJoined,
    FactKind::Rerun,
    FactKind::Saved,
    FactKind::Durable,
    FactKind::CheckpointRequested,
    FactKind::Released,
];

/// Makes a cluster of some federations leave within `length`, and adds faults. `outside` are the processes outside the
/// clusters, and `outage` is the approximate time from a failure to the next life.
pub(super) fn vary(
    chance: &mut Chance,
    federation: &mut Federation,
    outside: &[String],
    length: Span,
    outage: Span,
) {
    let count = federation.spec.clusters.len() as u64;
    if count < 2 || !chance.percent(SHARE) {
        return;
    }
    let leaving = chance.between(0, count - 1) as usize;
    let at = Duration(short(Span(chance.between(length.0 / 50, length.0 * 4 / 5).max(1))));
    let mut changed = federation.clone();
    changed.spec.clusters[leaving].leaves_after = Some(at);
    // Half of these federations have no other faults, so that the cluster usually leaves.
    if chance.percent(50) {
        changed.spec.faults.clear();
    }
    if !validate(&changed).is_empty() {
        return;
    }
    for _ in 0..chance.between(0, 3) {
        let fault = fault(chance, &changed, (leaving, at.0), outside, outage);
        changed.spec.faults.push(fault);
        if !validate(&changed).is_empty() {
            changed.spec.faults.pop();
        }
    }
    *federation = changed;
}

/// Draws a fault while the partitions of a cluster move.
fn fault(
    chance: &mut Chance,
    federation: &Federation,
    (leaving, at): (usize, Span),
    outside: &[String],
    outage: Span,
) -> Fault {
    let clusters = &federation.spec.clusters;
    let at = Duration(short(at + Span(chance.between(0, outage.0 * 2))));
    let when = chance.percent(70).then(|| When {
        fact: chance.pick(MOMENTS),
        cluster: ANY.to_owned(),
        node: None,
        occurrence: Some(chance.between(1, 4) as u32),
    });
    let storage = chance.percent(40).then_some(Fate::Lost);
    let returns = chance.percent(15).then_some(false);
    let fault = Fault { at: when.is_none().then_some(at), when, ..Fault::default() };
    if !outside.is_empty() && chance.percent(20) {
        let process = Some(chance.pick(outside));
        let crash = Crash { cluster: ANY.into(), node: None, process, storage, returns: None };
        return Fault { crash: Some(crash), ..fault };
    }
    let index =
        if chance.percent(40) { leaving } else { chance.between(0, clusters.len() as u64 - 1) as usize };
    let cluster = clusters[index].name.clone();
    let node = Some(chance.between(0, u64::from(clusters[index].nodes) - 1) as u32);
    if chance.percent(80) {
        Fault { crash: Some(Crash { cluster, node, process: None, storage, returns }), ..fault }
    } else {
        Fault { lose_cluster: Some(LoseCluster { cluster, storage, returns }), ..fault }
    }
}

#[cfg(test)]
mod tests {
    use faultline_api::validate;

    use super::super::tasks;

    #[test]
    fn clusters_leave_in_some_planned_federations() {
        const SEEDS: u64 = 600;
        let (mut leave, mut faulty, mut quiet) = (0, 0, 0);
        for seed in 0..SEEDS {
            let federation = tasks::federation(seed, "cck".parse().unwrap());
            assert!(validate(&federation).is_empty(), "seed {seed}");
            let spec = &federation.spec;
            if spec.clusters.iter().any(|it| it.leaves_after.is_some()) {
                leave += 1;
                faulty += u64::from(!spec.faults.is_empty());
                quiet += u64::from(spec.faults.is_empty());
            }
        }
        assert!((SEEDS * 5 / 100..=SEEDS * 15 / 100).contains(&leave), "{leave} of {SEEDS}");
        assert!(faulty > leave / 2 && quiet > 0, "{faulty} with faults, {quiet} without");
    }
}
