//! Directed schedules: a second fault at moments that matter, under the correct protocols.

use faultline_checker::Verdict;
use faultline_core::Fact;
use faultline_fuzz::{Directions, Protocol, Trial, run};

/// Runs directed schedules, none of which may have a violation. Returns the number of kinds of second faults, and
/// the number of schedules in which one took effect.
fn clean(protocol: &str, seeds: u64) -> (usize, u64) {
    let protocol: Protocol = protocol.parse().unwrap();
    let mut directions = Directions::default();
    let mut effective = 0;
    for seed in 0..seeds {
        let base = run(Directions::base(seed, protocol, None)).unwrap();
        assert_ne!(base.judgement.verdict, Verdict::Fail, "seed {seed}: {:?}", base.judgement.reasons);
        for scenario in directions.follow(&base, 4) {
            let text = scenario.to_yaml();
            let trial = run(scenario).unwrap();
            assert_ne!(trial.judgement.verdict, Verdict::Fail, "{:?}\n{text}", trial.judgement.reasons);
            effective += u64::from(failures(&trial) > failures(&base));
        }
    }
    (directions.kinds(), effective)
}

/// Counts the lives that faults ended.
fn failures(trial: &Trial) -> usize {
    trial.trace.supervisor().iter().filter(|(_, fact)| matches!(fact, Fact::Failed { .. })).count()
}

#[test]
fn second_faults_at_moments_that_matter_are_survived() {
    for protocol in ["hc3i", "independent", "hydee", "spbc", "coordinated"] {
        let (kinds, effective) = clean(protocol, 24);
        println!("{protocol}: {kinds} kinds of second faults, {effective} took effect");
        assert!(kinds >= 40, "{protocol}: {kinds}");
        assert!(effective >= 40, "{protocol}: {effective}");
    }
}
