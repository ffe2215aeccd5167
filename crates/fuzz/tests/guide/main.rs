//! Tests the protocol of the guide for authors with the kit, and that the guide shows it unchanged.

mod start_again;

use faultline_checker::Property;
use faultline_fuzz::Candidate;
use start_again::{Config, StartAgain};

fn candidate(accepts_stale: bool) -> Candidate<StartAgain> {
    Candidate { config: Config { accepts_stale } }
}

#[test]
fn the_protocol_of_the_guide_is_sound() {
    let complaint = candidate(false).first_complaint(0..60).unwrap();
    assert_eq!(complaint.and_then(|it| it.complaint()), None);
}

#[test]
fn the_defect_of_the_guide_is_found() {
    let tried = candidate(true).first_complaint(0..60).unwrap().expect("it is found");
    let violated: Vec<Property> = tried.judgement.violated().collect();
    assert!(violated.contains(&Property::NoGhost), "{violated:?}");
}

#[test]
fn a_transcript_contains_the_facts() {
    let transcript = candidate(false).try_seed(1).unwrap().transcript();
    assert!(transcript.contains(" sent p") && transcript.contains(" delivered p"), "{transcript}");
}

#[test]
fn the_guide_shows_the_protocol_that_is_tested() {
    let guide = include_str!("../../../../docs/protocols.md");
    let shown = guide.split("```rust\n").nth(1).and_then(|it| it.split("```\n").next());
    assert_eq!(shown, Some(include_str!("start_again.rs")), "docs/protocols.md is stale");
}
