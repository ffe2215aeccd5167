//! Runs with more facts than the memory limit admits.

use std::time::UNIX_EPOCH;

use faultline_checker::Verdict;
use faultline_core::fault::Outcome;
use faultline_session::{Session, Simulator, UnjudgedRecording};
use faultline_trace::Bundle;

#[test]
fn a_run_with_too_many_facts_is_unknown_and_its_record_stays() {
    let text = faultline_api::samples::sample("quickstart").expect("the sample exists").text;
    let federation = faultline_api::parse("quickstart", text.as_bytes()).expect("the sample is valid");
    let dir = tempfile::tempdir().expect("a directory");
    let bundle = Bundle::create(dir.path().join("run")).expect("a bundle");
    let session = Session::new(&federation).of_text(text, UNIX_EPOCH);
    let whole = session.record_simulated(&bundle, &mut Simulator::new(&mut ())).expect("the run is recorded");
    let facts = whole.trace.len() as u64;
    let read = |most| {
        let manifest = bundle.read_manifest().expect("a manifest");
        UnjudgedRecording::read_back(&bundle, manifest, most).expect("the record can be read").judge()
    };
    assert_eq!(read(facts).judgement.verdict, Verdict::Pass);
    let many = read(facts - 1);
    assert_eq!(many.judgement.verdict, Verdict::Unknown);
    let [because] = &many.judgement.reasons[..] else { panic!("one reason: {:?}", many.judgement.reasons) };
    assert!(
        because.contains("its memory limit")
            && because.contains("facts and their judgement")
            && because.contains("`--memory`"),
        "{because}"
    );
    assert_eq!(read(facts).manifest.outcome, Some(Outcome::Completed), "the record is unchanged");
}
