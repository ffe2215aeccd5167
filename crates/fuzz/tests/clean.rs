//! Random faults, and no violation.

use faultline_checker::Verdict;
use faultline_fuzz::{Coverage, Observed, Scenario, repeats, run};

#[test]
fn hundreds_of_seeds_are_clean_and_reach_what_they_are_meant_to() {
    let mut coverage = Coverage::default();
    for seed in 0..600 {
        let scenario = Scenario::new(seed, None, None);
        let problems = faultline_api::validate::plain(&scenario.federation);
        assert!(problems.is_empty(), "seed {seed}: {problems:?}");
        let trial = run(scenario).unwrap();
        assert_ne!(trial.judgement.verdict, Verdict::Fail, "seed {seed}: {:#?}", trial.judgement.reasons);
        coverage.add(&Observed::new(&trial, None));
    }

    let shares = coverage.shares();
    assert!(shares.median_events >= 1000, "{shares:#?}");
    assert!(shares.cascading >= 15.0, "{shares:#?}");
    assert!(shares.failed_in_recovery >= 10.0, "{shares:#?}");
    assert!(shares.salted >= 50.0, "{shares:#?}");
    let percent = |count: Option<&u64>| count.copied().unwrap_or(0) * 100 / shares.runs;
    assert!(percent(shares.outcomes.get("completed")) > 80, "{shares:#?}");
    assert!(percent(shares.verdicts.get(&Verdict::Pass)) > 70, "{shares:#?}");
    for fault in ["crash", "cluster loss", "pause", "partition", "slow link", "corrupt storage"] {
        let states = shares.hits.get(fault).map_or(0, |it| it.len());
        assert!(states >= 4, "{fault} struck a cluster in {states} of 5 states: {shares:#?}");
    }
}

#[test]
fn a_scenario_repeats_itself() {
    for seed in 0..20 {
        assert!(repeats(&run(Scenario::new(seed, None, None)).unwrap()).unwrap(), "seed {seed}");
    }
}

#[test]
fn a_scenario_survives_its_file() {
    for seed in 0..40 {
        let scenario = Scenario::new(seed, None, None);
        let text = scenario.to_yaml();
        let federation = faultline_api::parse("scenario.yaml", text.as_bytes());
        let federation = federation.unwrap_or_else(|it| panic!("seed {seed}: {:?}\n{text}", it.complaints()));
        assert_eq!(Scenario { federation, ..scenario.clone() }, scenario, "{text}");
    }
}
