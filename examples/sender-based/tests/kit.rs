//! Tests the protocol with random federations and faults: it is sound, and the omission of each rule is detected.

use faultline::core::Span;
use faultline::kit::{Candidate, Property};
use faultline::quantity::Period;
use sender_based::{Defect, Parameters, SenderBased};

fn candidate(defect: Option<Defect>) -> Candidate<SenderBased> {
    Candidate::named(Parameters { checkpoint_every: Period(Some(Span::from_millis(100))), defect })
}

/// Runs schedules until one violates one of `properties`.
fn is_found(defect: Defect, properties: &[Property]) {
    let candidate = candidate(Some(defect));
    let violates = |seed| {
        let tried = candidate.try_seed(seed).unwrap();
        tried.judgement.violated().any(|it| properties.contains(&it))
    };
    assert!((0..1000).any(violates), "{defect:?} violates none of {properties:?}");
}

#[test]
fn it_is_sound() {
    let failing = candidate(None).first_failure(0..300).unwrap();
    assert_eq!(failing.and_then(|it| it.failure()), None);
}

#[test]
fn a_process_must_not_send_before_its_order_is_logged() {
    is_found(Defect::SendsAtOnce, &[Property::RepeatedOrder]);
}

#[test]
fn messages_must_be_delivered_in_their_order() {
    is_found(Defect::OrderIgnored, &[Property::RepeatedOrder]);
}

#[test]
fn a_message_must_not_be_delivered_before_what_it_answers_is_sent_again() {
    is_found(Defect::RepeatedAtOnce, &[Property::CausalOrder]);
}

#[test]
fn a_message_must_be_delivered_once() {
    is_found(Defect::DuplicatesAccepted, &[Property::ExactlyOnce]);
}

#[test]
fn a_checkpoint_must_contain_the_log() {
    is_found(Defect::LogNotSaved, &[Property::NoLoss]);
}
