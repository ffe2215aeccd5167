//! Clusters that join or leave while a planned program runs, with faults while their partitions move.

use faultline_api::quantity::Duration;
use faultline_api::resource::{ANY, Crash, Fate, FaultSpec, Federation, LoseCluster, When};
use faultline_api::validate;
use faultline_core::{FactKind, Span};

use crate::chance::{Chance, short};

/// The percentage of federations in which a cluster leaves.
const SHARE: u64 = 15;

/// Steps of a move: the old host cedes a partition, the new one restores it and joins the recovery, and the second
/// checkpoint without the old host releases the cluster.
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

/// Steps of a move to a cluster that joins. All except the first are steps of the cluster's own processes.
const OF_JOINS: &[FactKind] = &[
    FactKind::Ceded,
    FactKind::Absorbed,
    FactKind::Absorbed,
    FactKind::RecoveryJoined,
    FactKind::Rerun,
    FactKind::Saved,
    FactKind::Durable,
];

/// A cluster to or from which partitions move.
#[derive(Clone, Copy)]
struct Moving {
    cluster: usize,
    /// The time at which the cluster joins, or begins to leave.
    at: Span,
    joins: bool,
}

/// Makes a cluster leave within `length` in some federations. Adds faults to federations in which a cluster
/// joins or leaves. `outside` lists the processes outside the clusters, and `outage` is the approximate time
/// from a failure to the next life.
pub(super) fn vary(
    chance: &mut Chance,
    federation: &mut Federation,
    outside: &[String],
    length: Span,
    outage: Span,
) {
    let clusters = &federation.spec.clusters;
    let count = clusters.len() as u64;
    let joins = clusters.iter().position(|it| it.joins_after.is_some());
    let leaves = count >= 2 && chance.percent(SHARE);
    if !leaves && joins.is_none() {
        return;
    }
    let mut changed = federation.clone();
    let clusters = &mut changed.spec.clusters;
    let joining = joins.map(|cluster| {
        // Leaves time for the partitions to move before the program ends.
        let at =
            short(Span(clusters[cluster].joins_after.unwrap_or_default().0.0 / 2).max(Span::from_micros(1)));
        clusters[cluster].joins_after = Some(Duration(at));
        Moving { cluster, at, joins: true }
    });
    let mut moving: Vec<Moving> = joining.into_iter().collect();
    if leaves {
        let leaving = chance.between(0, count - 1) as usize;
        let from = joining.filter(|it| it.cluster == leaving).map_or(Span::ZERO, |it| it.at);
        let at = from + short(Span(chance.between(length.0 / 50, length.0 * 4 / 5).max(1)));
        clusters[leaving].leaves_after = Some(Duration(at));
        if validate(&changed).is_empty() {
            moving.push(Moving { cluster: leaving, at, joins: false });
        } else {
            changed.spec.clusters[leaving].leaves_after = None;
        }
    }
    // Half of these federations have no other faults, so that the cluster usually leaves.
    if chance.percent(50) {
        changed.spec.faults.clear();
    }
    if moving.is_empty() {
        return;
    }
    if let Some(Moving { cluster, at, .. }) = joining {
        let name = changed.spec.clusters[cluster].name.clone();
        changed.spec.faults.retain(|it| !has_no_effect(it, &name, at));
    }
    for _ in 0..chance.between(0, 3) {
        let one = if moving.len() == 1 { moving[0] } else { chance.pick(&moving) };
        let fault = fault(chance, &changed, one, outside, outage);
        changed.spec.faults.push(fault);
        if !validate(&changed).is_empty() {
            changed.spec.faults.pop();
        }
    }
    *federation = changed;
}

/// Returns whether a fault has no effect because it ends or pauses processes of a cluster that has not joined
/// yet.
fn has_no_effect(fault: &FaultSpec, cluster: &str, joins: Span) -> bool {
    let crashes = fault.crash.as_ref().is_some_and(|it| it.cluster == cluster);
    let pauses = fault.pause.as_ref().is_some_and(|it| it.cluster == cluster);
    let loses = fault.lose_cluster.as_ref().is_some_and(|it| it.cluster == cluster);
    (crashes || pauses || loses) && fault.at.is_some_and(|it| it.0 < joins)
}

/// Draws a fault that strikes while the partitions of a cluster move.
fn fault(
    chance: &mut Chance,
    federation: &Federation,
    Moving { cluster: moving, at, joins }: Moving,
    outside: &[String],
    outage: Span,
) -> FaultSpec {
    let clusters = &federation.spec.clusters;
    let at = Duration(short(at + Span(chance.between(0, outage.0 * 2))));
    let when = chance.percent(70).then(|| {
        let fact = chance.pick(if joins { OF_JOINS } else { MOMENTS });
        let is_of_joiner = joins && fact != FactKind::Ceded;
        When {
            of: None,
            fact,
            cluster: if is_of_joiner { clusters[moving].name.clone() } else { ANY.to_owned() },
            node: None,
            occurrence: Some(chance.between(1, 4) as u32),
        }
    });
    let storage = chance.percent(40).then_some(Fate::Lost);
    let returns = chance.percent(15).then_some(false);
    let fault = FaultSpec { at: when.is_none().then_some(at), when, ..FaultSpec::default() };
    if !outside.is_empty() && chance.percent(20) {
        let crash = Crash { storage, ..Crash::of_process(chance.pick(outside)) };
        return FaultSpec { crash: Some(crash), ..fault };
    }
    let index =
        if chance.percent(40) { moving } else { chance.between(0, clusters.len() as u64 - 1) as usize };
    let cluster = clusters[index].name.clone();
    let node = Some(chance.between(0, u64::from(clusters[index].nodes) - 1) as u32);
    if chance.percent(80) {
        FaultSpec { crash: Some(Crash { storage, returns, ..Crash::new(cluster, node) }), ..fault }
    } else {
        FaultSpec {
            lose_cluster: Some(LoseCluster { storage, returns, ..LoseCluster::new(cluster) }),
            ..fault
        }
    }
}

#[cfg(test)]
mod tests {
    use faultline_api::validate;

    use super::super::tasks;

    #[test]
    fn clusters_join_and_leave_in_some_planned_federations() {
        const SEEDS: u64 = 600;
        let (mut join, mut leave, mut both, mut faulty, mut quiet) = (0, 0, 0, 0, 0);
        for seed in 0..SEEDS {
            let federation = tasks::federation(seed, "cck".parse().unwrap());
            assert!(validate(&federation).is_empty(), "seed {seed}");
            let spec = &federation.spec;
            let joins = spec.clusters.iter().any(|it| it.joins_after.is_some());
            let leaves = spec.clusters.iter().any(|it| it.leaves_after.is_some());
            join += u64::from(joins);
            both += u64::from(joins && leaves);
            if leaves {
                leave += 1;
                faulty += u64::from(!spec.faults.is_empty());
                quiet += u64::from(spec.faults.is_empty());
            }
        }
        let share = SEEDS * 5 / 100..=SEEDS * 15 / 100;
        assert!(share.contains(&join) && share.contains(&leave), "{join} and {leave} of {SEEDS}");
        assert!(both > 0);
        assert!(faulty > leave / 2 && quiet > 0, "{faulty} with faults, {quiet} without");
    }
}
