//! Random faults must not lead to violations.

use std::ops::Range;

use faultline_checker::{Property, Verdict};
use faultline_core::FactKind;
use faultline_fuzz::{Coverage, Observed, ProtocolName, Repetition, Scenario, Shares, repeats, run};
use faultline_history::{Context, History, Ledger};

/// Runs the first scenarios of a protocol, none of which may violate a property. Returns the coverage, and how often
/// each of these properties was judged.
fn clean<const N: usize>(protocol: &str, runs: u64, properties: [Property; N]) -> (Shares, [u64; N]) {
    clean_from(protocol, 0..runs, properties)
}

/// Works like [`clean`], but for these seeds.
fn clean_from<const N: usize>(
    protocol: &str,
    seeds: Range<u64>,
    properties: [Property; N],
) -> (Shares, [u64; N]) {
    let protocol: ProtocolName = protocol.parse().unwrap();
    let mut coverage = Coverage::default();
    let mut judged = [0; N];
    let mut wrong = Vec::new();
    for seed in seeds {
        let scenario = Scenario::new(seed, Some(protocol), None);
        let problems = faultline_api::validate(&scenario.federation);
        assert!(problems.is_empty(), "seed {seed}: {problems:?}");
        let trial = run(scenario).unwrap();
        if trial.judgement.verdict == Verdict::Fail {
            wrong.push((seed, trial.violated().collect::<Vec<_>>(), trial.judgement.reasons.clone()));
        }
        // An unchanged record violates none of the rules that reveal changes.
        let flaws = &trial.trace.flaws;
        assert!(flaws.is_empty(), "seed {seed}: {flaws:#?}");
        for (judged, property) in judged.iter_mut().zip(properties) {
            *judged += trial.judgement.of(property).instances;
        }
        let context = Context::from_manifest(&trial.manifest);
        for it in Ledger::of(&History::new(&trial.trace, &context)).processes {
            let (from, upto) = it.window;
            assert_eq!(it.time.total(), upto.since(from), "seed {seed}: the parts of {}", it.process);
        }
        coverage.add(&Observed::new(&trial, None));
    }
    assert!(wrong.is_empty(), "{protocol}: {wrong:#?}");
    let shares = coverage.shares();
    println!("{protocol}: {:?}", shares.outcomes);
    assert_eq!(shares.unusual(), [""; 0]);
    (shares, judged)
}

#[test]
fn the_first_seeds_of_each_protocol_are_clean() {
    for protocol in ProtocolName::all() {
        clean(protocol.name(), 40, []);
    }
}

/// An earlier form of the bound on lost work was violated in this schedule, although no checkpoint was
/// requested late.
#[test]
fn a_schedule_without_a_late_request_keeps_the_bound_on_lost_work() {
    let trial = run(Scenario::new(773, Some("cck".parse().unwrap()), None)).unwrap();
    let finding = trial.judgement.of(Property::BoundedLoss);
    assert!(finding.violations.is_empty(), "{:?}", finding.violations);
}

/// Uses `CLEAN_COUNT` (default 10000) seeds from `CLEAN_FROM` (default 0), for `CLEAN_PROTOCOL` (default all).
#[test]
#[ignore = "takes minutes: the step `fuzzing` of .ci/run runs as many seeds with `faultline fuzz`"]
fn ten_thousand_seeds_of_each_protocol_are_clean() {
    let setting = |name: &str, default| std::env::var(name).map_or(default, |it| it.parse().unwrap());
    let (from, count) = (setting("CLEAN_FROM", 0), setting("CLEAN_COUNT", 10_000));
    let only = std::env::var("CLEAN_PROTOCOL").ok();
    for protocol in ProtocolName::all().filter(|it| only.as_ref().is_none_or(|only| only == it.name())) {
        let (shares, []) = clean_from(protocol.name(), from..from + count, []);
        println!("{protocol}: {} runs from seed {from}, {:?}", shares.runs, shares.verdicts);
    }
}

/// Under an earlier version of independent checkpoints, rollbacks recurred in this schedule.
#[test]
fn a_schedule_in_which_rollbacks_recurred_is_clean() {
    let trial = run(Scenario::new(3_900_000_291, Some("independent".parse().unwrap()), None)).unwrap();
    assert_eq!(trial.violated().collect::<Vec<_>>(), []);
    assert!(trial.judgement.of(Property::RollbackCaused).instances > 0, "{:?}", trial.judgement);
}

#[test]
fn a_scenario_repeats_itself() {
    for seed in 0..20 {
        assert_eq!(
            repeats(&run(Scenario::new(seed, None, None)).unwrap()).unwrap(),
            Some(Repetition::Equal),
            "seed {seed}"
        );
    }
}

#[test]
fn a_scenario_is_unchanged_after_it_is_written_and_read() {
    for seed in 0..40 {
        let scenario = Scenario::new(seed, None, None);
        let text = scenario.to_yaml();
        let federation = faultline_api::parse("scenario.yaml", text.as_bytes());
        let federation = federation.unwrap_or_else(|it| panic!("seed {seed}: {:?}\n{text}", it.errors()));
        assert_eq!(Scenario { federation, ..scenario.clone() }, scenario, "{text}");
    }
}

/// In this schedule, a holder requests a replica while the storage of the replica's owner returns corrupt data. A
/// defect once kept the cluster from resuming in this case.
#[test]
fn a_part_lost_while_it_is_copied_does_not_stop_a_recovery() {
    let trial = run(Scenario::new(9710, Some("hydee".parse().unwrap()), None)).unwrap();
    assert_eq!(trial.violated().collect::<Vec<_>>(), []);
}

/// Searches of many seeds, which also reach the rare states.
mod long {
    use super::*;

    /// Asserts the coverage that searches of HC3I and HydEE must reach.
    fn assert_coverage(shares: &Shares) {
        println!("{shares:#?}");
        assert!(shares.median_events >= 1000, "{shares:#?}");
        assert!(shares.failed_in_recovery >= 10.0, "{shares:#?}");
        let percent = |of: fn(Verdict, &str) -> bool| {
            let each = shares.verdicts.iter().flat_map(|(verdict, by)| by.iter().map(|it| (*verdict, it)));
            let runs: u64 =
                each.filter(|(verdict, (outcome, _))| of(*verdict, outcome)).map(|(_, (_, runs))| runs).sum();
            runs * 100 / shares.runs
        };
        assert!(percent(|_, outcome| outcome == "completed") > 80, "{shares:#?}");
        assert!(percent(|verdict, _| verdict == Verdict::Pass) > 70, "{shares:#?}");
        for fault in ["crash", "loseCluster", "pause", "partition", "link", "corruptStorage"] {
            let states = shares.hits.get(fault).map_or(0, |it| it.len());
            assert!(states >= 4, "{fault} struck a cluster in {states} of 5 states: {shares:#?}");
        }
    }

    /// Asserts that few runs of task-based programs are `unknown`: those in which the faults destroyed every copy of the
    /// program, and those in which all faults came too late to have an effect.
    fn most_are_judged(shares: &Shares) {
        let unknown: u64 =
            shares.verdicts.get(&Verdict::Unknown).into_iter().flat_map(|it| it.values()).sum();
        println!("{unknown} of {} are unknown: {:?}", shares.runs, shares.unjudged);
        assert!(
            unknown * 100 < shares.runs * 8,
            "{unknown} of {} are unknown: {:?}",
            shares.runs,
            shares.unjudged
        );
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn hundreds_of_seeds_of_hc3i_are_clean_and_cover_its_states() {
        let (shares, judged) = clean("hc3i", 1000, [Property::BoundedLoss]);
        assert_coverage(&shares);
        assert!(shares.cascading >= 25.0, "{shares:#?}");
        assert!(shares.salted >= 50.0, "{shares:#?}");
        assert!(judged.iter().all(|&it| it > 50), "{judged:?}");
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn hundreds_of_seeds_of_hydee_are_clean_and_cover_its_states() {
        let properties = [
            Property::BoundedLoss,
            Property::CausalOrder,
            Property::Contained,
            Property::OrphansReplayed,
            Property::OrphansFirst,
            Property::PhasesAgree,
            Property::LogKept,
        ];
        let (shares, judged) = clean("hydee", 400, properties);
        println!("{judged:?}");
        assert_coverage(&shares);
        assert!(judged.iter().all(|&it| it > 50), "{judged:?}");
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn the_baselines_are_clean() {
        clean("coordinated", 60, []);
        for protocol in ["chandyLamport", "hierarchicalCoordinated"] {
            let (_, judged) = clean(protocol, 100, [Property::ConsistentCheckpoint, Property::NoLoss]);
            assert!(judged.iter().all(|&it| it > 1000), "{judged:?}");
        }
        let (_, judged) = clean("fullLogging", 60, [Property::Contained, Property::OrphansReplayed]);
        assert!(judged.iter().all(|&it| it > 50), "{judged:?}");
        let (_, judged) = clean("spbc", 100, [Property::Contained, Property::OrphansReplayed]);
        assert!(judged.iter().all(|&it| it > 50), "{judged:?}");
        let properties = [Property::Contained, Property::OrphansReplayed, Property::RepeatedOrder];
        let (_, judged) = clean("pessimisticLogging", 150, properties);
        assert!(judged.iter().all(|&it| it > 100), "{judged:?}");
        let (_, judged) = clean("independent", 60, [Property::MaximalLine]);
        assert!(judged.iter().all(|&it| it > 20), "{judged:?}");
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn thousands_of_seeds_of_tic_are_clean_and_cover_its_states() {
        let properties = [
            Property::TasksOnce,
            Property::OneOwner,
            Property::CheckpointedFirst,
            Property::ForcedPerTheft,
            Property::Contained,
            Property::BoundedLoss,
            Property::WitnessAgrees,
        ];
        let (shares, judged) = clean("tic", 3000, properties);
        println!("{judged:?} {shares:#?}");
        assert!(judged.iter().all(|&it| it > 500), "{judged:?}");
        most_are_judged(&shares);
        let absorbed = shares.stated.get(&FactKind::Absorbed).map_or(0, |it| it.0);
        assert!(absorbed > 400, "{shares:#?}");
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn thousands_of_seeds_of_sel_are_clean() {
        let properties = [Property::TasksOnce, Property::OneOwner, Property::CheckpointedFirst];
        let (shares, judged) = clean("sel", 2000, properties);
        assert!(judged.iter().all(|&it| it > 50), "{judged:?}");
        most_are_judged(&shares);
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn hundreds_of_seeds_of_satin_are_clean() {
        let (shares, judged) = clean("satin", 1000, [Property::TasksOnce, Property::Contained]);
        assert!(judged.iter().all(|&it| it > 50), "{judged:?}");
        most_are_judged(&shares);
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn hundreds_of_seeds_of_cck_are_clean_and_reach_the_intended_states() {
        let properties = [
            Property::ValidCheckpoints,
            Property::Drained,
            Property::QuietCheckpoints,
            Property::NeighboursOnly,
            Property::StrictlyRequired,
            Property::DemandedOnly,
            Property::Contained,
            Property::NoLoss,
            Property::ExactlyOnce,
            Property::WitnessAgrees,
            Property::BoundedLoss,
        ];
        let (shares, judged) = clean("cck", 300, properties);
        println!("{judged:?} {shares:#?}");
        assert!(judged.iter().all(|&it| it > 50), "{judged:?}");
        let absorbed = shares.stated.get(&FactKind::Absorbed).map_or(0, |it| it.0);
        assert!(absorbed > 20, "{shares:#?}");
    }
}
