//! Slow nodes and flipped bits. They have a random stream of their own, so that the other draws of a seed are unaffected.

use faultline_api::quantity::Duration;
use faultline_api::resource::{FaultSpec, Federation, Flip, Slow};
use faultline_api::validate;
use faultline_core::Span;

use crate::chance::{Chance, short};

/// The percentage of federations in which nodes are slow for a while.
const SHARE: u64 = 10;

/// Slows down one or two nodes of some federations, or flips bits of what they store, which verified storage must detect.
pub(super) fn vary(seed: u64, mut federation: Federation) -> Federation {
    let chance = &mut Chance::of_slow_nodes(seed);
    if !chance.percent(SHARE) {
        return federation;
    }
    for _ in 0..chance.between(1, 2) {
        let spec = &mut federation.spec;
        let cluster = chance.pick(&spec.clusters);
        let node = Some(chance.between(0, u64::from(cluster.nodes) - 1) as u32);
        let by = chance.pick(&[1.5, 2.0, 3.0, 5.0]);
        let span = Some(chance.duration(Span::from_millis(10), Span::from_secs(2)));
        let at = Some(Duration(short(Span(chance.between(0, Span::from_secs(2).0)))));
        let slow = Slow { cluster: cluster.name.clone(), node, process: None, by, span };
        let flip = Flip { cluster: cluster.name, node, process: None };
        for fault in [
            FaultSpec { at, slow: Some(slow), ..FaultSpec::default() },
            FaultSpec { at, flip: Some(flip), ..FaultSpec::default() },
        ] {
            let is_flip = fault.flip.is_some();
            let before = federation.spec.clone();
            federation.spec.faults.push(fault);
            if let Some(storage) = federation.spec.storage.as_mut().filter(|_| is_flip) {
                storage.verify = true;
            }
            if !validate(&federation).is_empty() {
                federation.spec = before;
            }
        }
    }
    federation
}

#[cfg(test)]
mod tests {
    use crate::scenario::{ProtocolName, Scenario};

    #[test]
    fn every_protocol_meets_slow_nodes() {
        for protocol in ProtocolName::all().filter(|it| !it.is_custom()) {
            let is_slow = |seed: &u64| {
                let spec = Scenario::new(*seed, Some(protocol), None).federation.spec;
                spec.faults.iter().any(|it| it.slow.is_some())
            };
            let count = (0..400).filter(is_slow).count();
            assert!(count >= 20, "{protocol}: {count}");
        }
    }
}
