//! Slow nodes and flipped bits. They have a random stream of their own, so that the other draws of a seed are unaffected.

use faultline_api::quantity::Duration;
use faultline_api::resource::{ApplicationSpec, FaultSpec, Federation, Flip, FlipIn, Slow};
use faultline_api::validate;
use faultline_core::Span;

use crate::chance::{Chance, short};

/// The percentage of federations in which nodes are slow for a while.
const SHARE: u64 = 10;

/// The percentage of these nodes at which a bit of a message or of a state is flipped. No protocol detects this, so the
/// run has the right result or no verdict.
const SHARE_IN_MEMORY: u64 = 30;

/// Slows down one or two nodes of some federations, or flips bits of what they store, which verified storage must detect,
/// or of what they hold in memory.
pub(super) fn vary(seed: u64, mut federation: Federation) -> Federation {
    let chance = &mut Chance::of_slow_nodes(seed);
    let in_memory = &mut Chance::of_flips(seed);
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
        let flip = |target| Flip { cluster: cluster.name.clone(), node, process: None, target };
        let mut faults = vec![
            FaultSpec { at, slow: Some(slow), ..FaultSpec::default() },
            FaultSpec { at, flip: Some(flip(FlipIn::Copy)), ..FaultSpec::default() },
        ];
        if in_memory.percent(SHARE_IN_MEMORY) {
            let target = in_memory.pick(&[FlipIn::Message, FlipIn::State]);
            if target == FlipIn::State || !is_numbered(&federation.spec.application) {
                faults.push(FaultSpec { at, flip: Some(flip(target)), ..FaultSpec::default() });
            }
        }
        for fault in faults {
            let is_stored = fault.flip.as_ref().is_some_and(|it| it.target == FlipIn::Copy);
            let before = federation.spec.clone();
            federation.spec.faults.push(fault);
            if let Some(storage) = federation.spec.storage.as_mut().filter(|_| is_stored) {
                storage.verify = true;
            }
            if !validate(&federation).is_empty() {
                federation.spec = before;
            }
        }
    }
    federation
}

/// Returns whether the messages of an application contain their numbers. With a wrong number, a message counts as missing,
/// so the run would often exceed its deadline.
fn is_numbered(application: &ApplicationSpec) -> bool {
    matches!(
        application,
        ApplicationSpec::Exchange(_) | ApplicationSpec::Nas(_) | ApplicationSpec::PingPong(_)
    )
}

#[cfg(test)]
mod tests {
    use faultline_api::resource::FlipIn;
    use faultline_checker::Verdict;

    use crate::scenario::{ProtocolName, Scenario};
    use crate::trial::run;

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

    /// Asserts that runs of the first seeds with bits flipped in memory have the right result or no verdict. Returns the
    /// numbers of both.
    fn flipped(seeds: u64) -> [u32; 2] {
        let mut verdicts = [0; 2];
        for seed in 0..seeds {
            let scenario = Scenario::new(seed, None, None);
            let faults = &scenario.federation.spec.faults;
            if !faults.iter().any(|it| it.flip.as_ref().is_some_and(|it| it.target != FlipIn::Copy)) {
                continue;
            }
            let trial = run(scenario).expect("the scenario can run");
            let judgement = &trial.judgement;
            assert_ne!(judgement.verdict, Verdict::Fail, "seed {seed}: {:?}", judgement.reasons);
            assert_eq!(trial.violated().next(), None, "seed {seed}");
            verdicts[usize::from(judgement.verdict == Verdict::Unknown)] += 1;
        }
        verdicts
    }

    #[test]
    fn runs_with_bits_flipped_in_memory_have_the_right_result_or_no_verdict() {
        let verdicts = flipped(500);
        assert!(verdicts.iter().all(|&it| it > 0), "{verdicts:?}");
    }

    mod long {
        #[test]
        #[ignore = "long: run by the step `long tests` of .ci/run"]
        fn many_runs_with_bits_flipped_in_memory_have_the_right_result_or_no_verdict() {
            let verdicts = super::flipped(4000);
            assert!(verdicts.iter().all(|&it| it > 20), "{verdicts:?}");
        }
    }
}
