//! Directed schedules: a second fault at moments that matter, under the correct protocols.

use faultline_checker::Verdict;
use faultline_core::Fact;
use faultline_fuzz::{
    Coverage, Directions, Observed, ProtocolName, Scenario, Shares, Trial, directed_scenario, is_directed,
    run,
};

/// Runs directed schedules, and asserts that none violates a property. Returns the number of kinds of second
/// faults, and the number of schedules in which a second fault took effect.
fn clean(protocol: &str, seeds: u64) -> (usize, u64) {
    let protocol: ProtocolName = protocol.parse().unwrap();
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

/// Counts the lives that the supervisor ended.
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

#[test]
fn a_directed_schedule_depends_on_the_seed_and_the_coverage_alone() {
    let protocol: ProtocolName = "hc3i".parse().unwrap();
    let coverage = Coverage::default();
    let scenario = || directed_scenario(7, Some(protocol), coverage.steering()).unwrap();
    assert_eq!(scenario(), scenario());
}

mod long {
    use super::*;

    /// Runs schedules of a protocol, asserts that none violates a property, and returns their coverage.
    fn coverage(protocol: ProtocolName, seeds: impl Iterator<Item = u64>, is_guided: bool) -> Shares {
        let mut coverage = Coverage::default();
        for seed in seeds {
            let scenario = match is_guided {
                true => directed_scenario(seed, Some(protocol), coverage.steering()).unwrap(),
                false => Scenario::new(seed, Some(protocol), None),
            };
            let text = scenario.to_yaml();
            let trial = run(scenario).unwrap();
            assert_ne!(
                trial.judgement.verdict,
                Verdict::Fail,
                "seed {seed}: {:?}\n{text}",
                trial.judgement.reasons
            );
            coverage.add(&Observed::new(&trial, None));
        }
        coverage.shares()
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn directed_seeds_strike_more_writes_before_their_announcement_than_random_ones() {
        for protocol in ["hc3i", "independent", "coordinated"] {
            let protocol: ProtocolName = protocol.parse().unwrap();
            let of_kind = |is_wanted: bool| (0..).filter(move |&it| is_directed(it) == is_wanted).take(160);
            let (directed, random) =
                (coverage(protocol, of_kind(true), true), coverage(protocol, of_kind(false), false));
            let shown = |it: &Shares| (it.writes, it.recoveries);
            println!("{protocol}: directed {:?}, random {:?}", shown(&directed), shown(&random));
            assert!(directed.writes.struck > random.writes.struck, "{protocol}");
            assert!(
                directed.writes.struck * 10 >= directed.writes.seen * 6,
                "{protocol}: {:?}",
                directed.writes
            );
        }
    }
}
