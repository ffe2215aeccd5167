//! Clusters that join and leave, with faults at about the same times.

use faultline_api::quantity::{Duration, Period, Size};
use faultline_api::resource::{
    ANY, ApplicationSpec, Behaviour, Crash, Fate, FaultSpec, FederationSpec, Hc3i, LoseCluster, ProtocolSpec,
    RandomTraffic, ReplicateTo, Send, Synthetic, Traffic, When,
};
use faultline_core::{FactKind, Span};

use crate::chance::{Chance, short};

/// Facts that a fault may wait for: steps on which the departure of a cluster depends.
const MOMENTS: &[FactKind] = &[
    FactKind::Finished,
    FactKind::CheckpointRequested,
    FactKind::CheckpointCommitted,
    FactKind::Collected,
    FactKind::Collected,
    FactKind::Released,
    FactKind::Released,
];

/// Lets some clusters of `spec` join or leave within `length`. `spec` must run HC3I and have at least two clusters.
/// Replaces the program with one that supports this.
pub(super) fn vary(chance: &mut Chance, spec: &mut FederationSpec, length: Span) {
    // Leaves time after the last cluster has left.
    let length = length.max(Span::from_millis(50)) * 2;
    let at = |chance: &mut Chance, from: u64, to: u64| {
        Duration(short(Span(chance.between(length.0 * from / 100, length.0 * to / 100))))
    };
    let all = spec.clusters.len() as u64;
    // Chooses consecutive clusters, but not all of them.
    let (first, count) = (chance.between(0, all - 1), chance.between(1, all - 1));
    for index in (0..count).map(|step| ((first + step) % all) as usize) {
        let cluster = &mut spec.clusters[index];
        let (joins, leaves) = chance.pick(&[(true, false), (false, true), (false, true), (true, true)]);
        cluster.joins_after = joins.then(|| at(chance, 2, 12));
        cluster.leaves_after = leaves.then(|| at(chance, 14, 35));
    }
    spec.application = program(chance, spec, length);
    spec.deadline = Some(Duration(length * 10 + Span::from_secs(20)));
    if let ProtocolSpec::Hc3i(options) = &mut spec.protocol {
        // No cluster can leave without garbage collections.
        if chance.percent(90) {
            options.collect_every = Some(Period(Some(at(chance, 2, 8).0)));
        }
        // If every message forced a checkpoint, some ranks would rarely compute.
        options.forcing = None;
        // A cluster that takes no checkpoints prevents garbage collection.
        for cluster in &spec.clusters {
            if chance.percent(80) {
                let period = Period(Some(at(chance, 2, 8).0));
                options.checkpoint_every_in.insert(cluster.name.clone(), period);
            }
        }
        make_room(options, all - count);
    }
    let more = (0..chance.between(0, 3)).map(|_| fault(chance, spec, length)).collect::<Vec<_>>();
    spec.faults.extend(more);
}

/// Limits replicas in other clusters to the number of clusters that stay, not counting the owner's. If only one
/// cluster stays, a storage server keeps the replica instead.
fn make_room(options: &mut Hc3i, stay: u64) {
    if options.replicate_to == Some(ReplicateTo::OtherCluster) {
        match stay {
            1 => (options.replicas, options.replicate_to) = (Some(1), Some(ReplicateTo::SharedStorage)),
            _ => options.replicas = options.replicas.map(|it| it.min(stay as u32 - 1)),
        }
    }
}

/// Draws a program with traffic between all clusters that are present.
fn program(chance: &mut Chance, spec: &FederationSpec, length: Span) -> ApplicationSpec {
    let often = chance.pick(&[0.3, 0.6, 0.9]);
    let behaviour = |chance: &mut Chance, cluster: &str, nodes: u32| Behaviour {
        cluster: cluster.to_owned(),
        mean_computation: Duration(short(Span(chance.between(length.0 / 100, length.0 / 20)))),
        send: spec
            .clusters
            .iter()
            .filter(|to| to.name != cluster || nodes > 1)
            .map(|to| Send { to: to.name.clone(), probability: chance.pick(&[0.0, often, often]) })
            .collect(),
    };
    let clusters = spec.clusters.iter().map(|it| behaviour(chance, &it.name, it.nodes)).collect();
    let random = RandomTraffic { duration: Duration(length), clusters };
    ApplicationSpec::Synthetic(Synthetic {
        traffic: Traffic::Random(random),
        message: Some(Size(100)),
        state: Some(Size(1000)),
    })
}

/// Draws a fault that occurs soon after a cluster joins or starts to leave, or at one of [`MOMENTS`].
fn fault(chance: &mut Chance, spec: &FederationSpec, length: Span) -> FaultSpec {
    let moved = spec.clusters.iter().filter(|it| !it.is_permanent()).collect::<Vec<_>>();
    let of = chance.pick(&moved);
    let when = chance.percent(50).then(|| When {
        of: None,
        fact: chance.pick(MOMENTS),
        cluster: if chance.percent(70) { of.name.clone() } else { ANY.to_owned() },
        node: None,
        occurrence: Some(chance.between(1, 6) as u32),
    });
    let moment = chance.pick(&[of.joins_after, of.leaves_after, of.leaves_after]);
    let moment = moment.or(of.leaves_after).or(of.joins_after).map_or(Span::ZERO, |it| it.0);
    let at = Duration(short(moment + Span(chance.between(0, length.0 / 4))));
    let target = if chance.percent(60) { of.name.clone() } else { chance.pick(&spec.clusters).name };
    let storage = chance.percent(40).then_some(Fate::Lost);
    let fault = FaultSpec { at: when.is_none().then_some(at), when, ..FaultSpec::default() };
    if chance.percent(60) {
        let nodes = spec.clusters.iter().find(|it| it.name == target).map_or(1, |it| it.nodes);
        let node = Some(chance.between(0, u64::from(nodes) - 1) as u32);
        FaultSpec { crash: Some(Crash { storage, ..Crash::new(target, node) }), ..fault }
    } else {
        FaultSpec { lose_cluster: Some(LoseCluster { storage, ..LoseCluster::new(target) }), ..fault }
    }
}
