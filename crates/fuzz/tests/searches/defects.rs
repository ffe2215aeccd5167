//! Tests that every known defect violates a property, except for the rare defects in [`DIRECTED`].

use std::ops::ControlFlow;

use faultline_catalog::Defect;
use faultline_checker::Property;
use faultline_fuzz::{Scenario, Steps, Trial, run, shrink};
use faultline_protocols::{cck, hc3i, hydee, independent, pessimistic_logging, satin, theft};

/// The number of seeds within which each defect must be detected.
const BOUND: u64 = 100;

/// Defects that need more seeds, which only the long tests run.
const RARE: &[(Defect, u64)] = &[
    (Defect::Hc3i(hc3i::Defect::OlderEpochsAccepted), 500),
    (Defect::Hc3i(hc3i::Defect::CollectsWithoutSilent), 1000),
    (Defect::Hc3i(hc3i::Defect::CollectsWithoutGuests), 1000),
    (Defect::Hc3i(hc3i::Defect::LeavesUndoable), 2000),
    (Defect::Hc3i(hc3i::Defect::LeavesWithLog), 2000),
    (Defect::Hc3i(hc3i::Defect::NewcomersNotTold), 1000),
    (Defect::Hydee(hydee::Defect::NoDrain), 500),
    (Defect::Hydee(hydee::Defect::OneRound), 500),
    (Defect::Hydee(hydee::Defect::OlderLevelObeyed), 500),
    (Defect::Hydee(hydee::Defect::OlderSyncAccepted), 2500),
    (Defect::Pessimistic(pessimistic_logging::Defect::AcknowledgesBeforeDurable), 500),
    (Defect::Tic(theft::Defect::WantDenied), 1000),
    (Defect::Tic(theft::Defect::HereAlone), 500),
    (Defect::Sel(theft::Defect::AbsorbedTwice), 500),
    (Defect::Sel(theft::Defect::WantDenied), 1000),
    (Defect::Sel(theft::Defect::HereAlone), 3000),
    (Defect::Tic(theft::Defect::NotReturnedAgain), 1000),
    (Defect::Tic(theft::Defect::StorageUnfenced), 2000),
    (Defect::Sel(theft::Defect::NotReturnedAgain), 1000),
    (Defect::Sel(theft::Defect::KeysWithoutLife), 500),
    (Defect::Sel(theft::Defect::StorageUnfenced), 2000),
    (Defect::Satin(satin::Defect::OrphanKept), 1000),
    (Defect::Cck(cck::Defect::ContinuePerPing), 1000),
];

fn bound(defect: Defect) -> u64 {
    RARE.iter().find(|(rare, _)| *rare == defect).map_or(BOUND, |&(_, bound)| bound)
}

/// Defects that random schedules reveal so rarely that a directed test in the protocol's own tests replaces the search.
const DIRECTED: &[Defect] = &[
    Defect::Hc3i(hc3i::Defect::RoundWithoutLives),
    Defect::Hc3i(hc3i::Defect::NotesNotRefilled),
    Defect::Hc3i(hc3i::Defect::PastOutsideCheckpoint),
    Defect::Hc3i(hc3i::Defect::LogCollectedUnaware),
    Defect::Hc3i(hc3i::Defect::CollectedRestored),
    Defect::Hc3i(hc3i::Defect::CollectsOnSpoilt),
    Defect::Hc3i(hc3i::Defect::CollectsOnMixed),
    Defect::Hc3i(hc3i::Defect::CollectsOnUncovered),
    Defect::Hc3i(hc3i::Defect::RefillsUnconfirmed),
    Defect::Hc3i(hc3i::Defect::LateReplicasStored),
    Defect::Hc3i(hc3i::Defect::ResendOnlyOnAlerts),
    Defect::Hc3i(hc3i::Defect::TablesVolatile),
    Defect::Hc3i(hc3i::Defect::OnlyLastEntry),
    Defect::Hc3i(hc3i::Defect::NoWriteBarrier),
    Defect::Hc3i(hc3i::Defect::AlertsBeforeDurable),
    Defect::Hc3i(hc3i::Defect::ForgottenWritesAwaited),
    Defect::Independent(independent::Defect::AlertsBeforeDurable),
    Defect::Independent(independent::Defect::CollectedRestored),
    Defect::Hydee(hydee::Defect::NoDuplicateCheck),
    Defect::Hydee(hydee::Defect::SpilledBeforeDurable),
    Defect::Hydee(hydee::Defect::SegmentsOutsideCheckpoint),
    // The tests of the simulator cover these: the first requires storage that is briefly full; the second costs work,
    // but does not change any result.
    Defect::Sel(theft::Defect::LogOutOfOrder),
    Defect::Satin(satin::Defect::NoLookup),
];

/// Returns the first seed with a [decisive violation](Trial::decisive_violation), and the violated property.
fn first_violation(defect: Defect) -> Option<(u64, Property)> {
    (0..bound(defect)).find_map(|seed| {
        let trial = run(Scenario::new(seed, None, Some(defect))).unwrap();
        trial.decisive_violation().map(|property| (seed, property))
    })
}

fn found_within_the_bound(protocol: &str) {
    let is_rare = |defect: &Defect| RARE.iter().any(|(rare, _)| rare == defect);
    all_found(Defect::of(protocol).filter(|it| !DIRECTED.contains(it) && !is_rare(it)));
}

fn all_found(defects: impl Iterator<Item = Defect>) {
    let mut missed = Vec::new();
    for defect in defects {
        match first_violation(defect) {
            Some((seed, property)) => println!("{defect}: seed {seed}, {property:?}"),
            None => missed.push(defect),
        }
    }
    assert!(missed.is_empty(), "not found within their bounds: {missed:?}");
}

#[test]
fn each_defect_of_hc3i_is_found_within_the_bound() {
    found_within_the_bound("hc3i");
}

#[test]
fn each_defect_of_hydee_is_found_within_the_bound() {
    found_within_the_bound("hydee");
}

#[test]
fn each_defect_of_spbc_is_found_within_the_bound() {
    found_within_the_bound("spbc");
}

#[test]
fn each_defect_of_pessimistic_logging_is_found_within_the_bound() {
    found_within_the_bound("pessimisticLogging");
}

#[test]
fn each_defect_of_independent_checkpoints_is_found_within_the_bound() {
    found_within_the_bound("independent");
}

#[test]
fn each_defect_of_coordinated_checkpoints_is_found_within_the_bound() {
    found_within_the_bound("coordinated");
}

#[test]
fn each_defect_of_the_non_blocking_baseline_is_found_within_the_bound() {
    found_within_the_bound("chandyLamport");
}

#[test]
fn each_defect_of_the_hierarchical_baseline_is_found_within_the_bound() {
    found_within_the_bound("hierarchicalCoordinated");
}

#[test]
fn each_defect_of_satin_is_found_within_the_bound() {
    found_within_the_bound("satin");
}

#[test]
fn each_defect_of_tic_is_found_within_the_bound() {
    found_within_the_bound("tic");
}

#[test]
fn each_defect_of_sel_is_found_within_the_bound() {
    found_within_the_bound("sel");
}

#[test]
fn each_defect_of_cck_is_found_within_the_bound() {
    found_within_the_bound("cck");
}

#[test]
fn a_failing_scenario_shrinks_to_the_same_small_one_each_time() {
    let defect = Defect::Hc3i(hc3i::Defect::ResendGreater);
    let (seed, property) = first_violation(defect).expect("the defect is found");
    let scenario = Scenario::new(seed, None, Some(defect));
    let steps = Steps { seeds: 4, trials: 3000, last: 20, ..Steps::default() };
    let shrunk = shrink(&scenario, property, steps, |_, _| ControlFlow::Continue(())).unwrap();
    let spec = &shrunk.trial.scenario.federation.spec;
    assert!(shrunk.trial.violated().any(|it| it == property));
    // The last summand is the number of deadlines that are tried.
    assert!(shrunk.trials <= steps.trials + steps.seeds + steps.last + 1 + 8);
    let nodes: u32 = spec.clusters.iter().map(|it| it.nodes).sum();
    assert!(
        nodes <= 4 && spec.faults.len() <= 2 && shrunk.trial.trace.len() <= 200,
        "{} facts of {spec:#?}",
        shrunk.trial.trace.len()
    );
    // The shrunk scenario's file leads to the same run, and a second search finds the same scenario.
    let file = faultline_api::parse("small.yaml", shrunk.trial.scenario.to_yaml().as_bytes()).unwrap();
    let again = run(Scenario { federation: file, ..shrunk.trial.scenario.clone() }).unwrap();
    assert_eq!(again.trace, shrunk.trial.trace);
    let second = shrink(&scenario, property, steps, |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(second.trial.scenario, shrunk.trial.scenario);
}

#[test]
fn shrinking_ends_with_the_best_scenario_so_far_if_the_caller_asks() {
    let defect = Defect::Hc3i(hc3i::Defect::ResendGreater);
    let (seed, property) = first_violation(defect).expect("the defect is found");
    let scenario = Scenario::new(seed, None, Some(defect));
    let faults = |it: &Scenario| it.federation.spec.faults.len();
    let most = faults(&scenario);
    let fewer = |_, best: &Trial| {
        if faults(&best.scenario) < most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let shrunk = shrink(&scenario, property, Steps::default(), fewer).unwrap();
    assert!(shrunk.is_interrupted && faults(&shrunk.trial.scenario) < most, "{:?}", shrunk.trial.scenario);
    assert!(shrunk.trial.violated().any(|it| it == property));
    let at_once = shrink(&scenario, property, Steps::default(), |_, _| ControlFlow::Break(())).unwrap();
    assert_eq!((at_once.trials, &at_once.trial.scenario), (0, &scenario), "the scenario is unchanged");
}

mod long {
    use super::*;

    /// Searches for the rare defects of these protocols.
    fn rare_found(of_protocols: impl Fn(&str) -> bool) {
        all_found(RARE.iter().map(|(defect, _)| *defect).filter(|it| of_protocols(it.protocol())));
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn each_rare_defect_of_hc3i_is_found_within_its_bound() {
        rare_found(|it| it == "hc3i");
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn each_rare_defect_of_any_other_protocol_is_found_within_its_bound() {
        rare_found(|it| it != "hc3i");
    }
}
