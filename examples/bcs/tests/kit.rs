//! Tests the protocol with random federations and faults: it is sound, and the omission of each rule is detected.

use std::process::Command;

use bcs::{Bcs, Defect, Parameters};
use faultline::core::Span;
use faultline::kit::{Candidate, Property};
use faultline::quantity::Period;

fn candidate(defect: Option<Defect>) -> Candidate<Bcs> {
    Candidate::named(Parameters { checkpoint_every: Period(Some(Span::from_millis(100))), defect })
}

/// Runs schedules until one violates `property`.
fn is_found(defect: Defect, property: Property) {
    let candidate = candidate(Some(defect));
    let violates = |seed| {
        let tried = candidate.try_seed(seed).unwrap();
        tried.judgement.violated().any(|it| it == property)
    };
    assert!((0..300).any(violates), "{defect:?} does not violate {property:?}");
}

#[test]
fn it_is_sound() {
    let failing = candidate(None).first_failure(0..300).unwrap();
    assert_eq!(failing.and_then(|it| it.failure()), None);
}

#[test]
fn a_counterexample_is_shrunk_and_can_be_checked() {
    let candidate = candidate(Some(Defect::NoForcing));
    let tried = candidate.first_failure(0..300).unwrap().expect("a schedule fails");
    let place = tempfile::tempdir().unwrap();
    let found = place.path().join("found");
    candidate.shrink(&tried).unwrap().write(&found).unwrap();
    assert!(found.join("diagram.svg").exists() && found.join("transcript.txt").exists());
    let checked = Command::new(env!("CARGO_BIN_EXE_bcs")).arg("check").arg(&found).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(1), "{said}{}", String::from_utf8_lossy(&checked.stderr));
    assert!(said.contains("every delivered message was sent"), "{said}");
}

#[test]
fn a_message_must_force_its_checkpoint() {
    is_found(Defect::NoForcing, Property::NoGhost);
}

#[test]
fn messages_from_before_a_recovery_must_be_dropped() {
    is_found(Defect::StaleAccepted, Property::NoGhost);
}

#[test]
fn a_message_must_be_delivered_once() {
    is_found(Defect::DuplicatesAccepted, Property::ExactlyOnce);
}

#[test]
fn a_checkpoint_must_contain_the_log() {
    is_found(Defect::LogNotSaved, Property::NoLoss);
}

#[test]
fn the_line_must_have_one_index() {
    is_found(Defect::NewestRestored, Property::NoGhost);
}

#[test]
fn a_message_must_wait_while_the_application_is_held() {
    is_found(Defect::DeliversWhileHeld, Property::NoPanic);
}

#[test]
fn a_timeout_must_be_in_the_future() {
    is_found(Defect::TimeoutInThePast, Property::TimeAdvances);
}

#[test]
fn a_decision_to_roll_back_must_be_durable() {
    is_found(Defect::DecisionNotDurable, Property::NoGhost);
}
