//! Repairs of failed nodes, spare nodes, and racks. They have a random stream of their own, so that the other draws of a
//! seed are unaffected.

use faultline_api::quantity::Duration;
use faultline_api::resource::{
    Crash, Failures, FaultSpec, Federation, FederationSpec, LoseCluster, LoseRack,
};
use faultline_api::validate;
use faultline_core::Span;

use crate::chance::Chance;

/// The percentage of federations that have repairs, spares or racks.
const SHARE: u64 = 15;

/// Lets the nodes of some crashed processes need a repair, adds spares, and turns some faults into losses of racks.
pub(super) fn vary(seed: u64, mut federation: Federation) -> Federation {
    let chance = &mut Chance::of_nodes(seed);
    if !chance.percent(SHARE) {
        return federation;
    }
    let before = federation.spec.clone();
    let spec = &mut federation.spec;
    if chance.percent(50) {
        lose_racks(chance, spec);
    }
    let failures = spec.failures();
    let outage = failures.detect_after() + failures.restart_after();
    for fault in spec.faults.iter_mut().filter(|it| !it.never_returns()) {
        let repair = chance.percent(70).then(|| chance.duration(Span(outage.0 / 4), outage * 6));
        set_repair(fault, repair);
    }
    if spec.protocol.checkpointing().is_some_and(|it| it.replicas > 0) && chance.percent(60) {
        spec.failures = Some(Failures { spares: Some(chance.between(1, 2) as u32), ..failures });
    }
    if !validate(&federation).is_empty() {
        federation.spec = before;
    }
    federation
}

fn set_repair(fault: &mut FaultSpec, repair: Option<Duration>) {
    let FaultSpec { crash, lose_cluster, lose_rack, .. } = fault;
    let crash = crash.as_mut().map(|it| &mut it.repair);
    let rest = [lose_cluster.as_mut().map(|it| &mut it.repair), lose_rack.as_mut().map(|it| &mut it.repair)];
    rest.into_iter().chain([crash]).flatten().for_each(|it| *it = repair);
}

/// Divides the clusters into racks, and turns cluster losses and some crashes into losses of racks.
fn lose_racks(chance: &mut Chance, spec: &mut FederationSpec) {
    for cluster in &mut spec.clusters {
        cluster.rack = Some(chance.between(1, 2) as u32);
    }
    let clusters = &spec.clusters;
    for fault in &mut spec.faults {
        let named = |name: &str| clusters.iter().find(|it| it.name == name).cloned();
        let lost = match (&fault.lose_cluster, &fault.crash) {
            (Some(LoseCluster { cluster, storage, returns, .. }), _) => named(cluster).map(|of| {
                let rack = Some(chance.between(0, u64::from(of.racks()) - 1) as u32);
                LoseRack { cluster: of.name, rack, storage: *storage, returns: *returns, repair: None }
            }),
            (_, Some(Crash { cluster, node: Some(node), storage, returns, .. })) => {
                named(cluster).filter(|_| chance.percent(40)).map(|of| {
                    let rack = Some(node / of.rack.unwrap_or(1));
                    LoseRack { cluster: of.name, rack, storage: *storage, returns: *returns, repair: None }
                })
            }
            _ => None,
        };
        if lost.is_some() {
            (fault.lose_cluster, fault.crash, fault.lose_rack) = (None, None, lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::{ProtocolName, Scenario};

    #[test]
    fn every_protocol_meets_repairs_spares_and_racks() {
        for protocol in ProtocolName::all().filter(|it| !it.is_custom()) {
            let mut counts = [0; 3];
            for seed in 0..1000 {
                let spec = Scenario::new(seed, Some(protocol), None).federation.spec;
                let has_repair = spec.faults.iter().any(|it| it.repair().is_some());
                let has_rack = spec.faults.iter().any(|it| it.lose_rack.is_some());
                let has = [has_repair, has_repair && spec.failures().spares() > 0, has_rack];
                (0..3).for_each(|it| counts[it] += u32::from(has[it]));
            }
            let takes_checkpoints =
                Scenario::new(0, Some(protocol), None).federation.spec.protocol.checkpointing();
            let least = if takes_checkpoints.is_some() { [80, 30, 40] } else { [80, 0, 40] };
            assert!(counts.iter().zip(least).all(|(it, least)| *it >= least), "{protocol}: {counts:?}");
        }
    }
}
