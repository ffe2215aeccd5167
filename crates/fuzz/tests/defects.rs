//! Every known defect is found, by a property: a checker that lets one pass is not good enough.

use std::collections::BTreeSet;

use faultline_checker::Property;
use faultline_fuzz::{Scenario, run};
use faultline_protocols::hc3i::{Defect, Defects};

/// How many seeds are searched for each defect.
const BOUND: u64 = 3000;

/// So rare among random schedules that each has a directed test with the protocol instead (`hc3i` in its tests).
const DIRECTED: &[Defect] = &[
    Defect::RoundWithoutLives,
    Defect::NotesNotRefilled,
    Defect::LogCollectedUnaware,
    Defect::CollectedRestored,
    Defect::CollectsOnSpoilt,
    Defect::ResendOnlyOnAlerts,
    Defect::TablesVolatile,
    Defect::OnlyLastEntry,
    Defect::NoWriteBarrier,
];

/// The first seed at which a property is violated, with the properties. A different result does not count: most
/// applications cannot be compared with a run without faults.
fn first_violation(defect: Defect) -> Option<(u64, BTreeSet<Property>)> {
    (0..BOUND).find_map(|seed| {
        let trial = run(Scenario::new(seed, Defects::only(defect)));
        let violated: BTreeSet<Property> =
            trial.judgement.violated().filter(|&property| property != Property::SameResult).collect();
        (!violated.is_empty()).then_some((seed, violated))
    })
}

#[test]
fn each_defect_is_found_within_the_bound() {
    let mut missed = Vec::new();
    for &defect in Defect::ALL.iter().filter(|defect| !DIRECTED.contains(defect)) {
        match first_violation(defect) {
            Some((seed, properties)) => println!("{defect:?}: seed {seed}, {properties:?}"),
            None => missed.push(defect),
        }
    }
    assert!(missed.is_empty(), "not found within {BOUND} seeds: {missed:?}");
}
