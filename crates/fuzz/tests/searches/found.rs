//! Federations that once had a violation, as shrunk by the fuzzer. Each must remain clean.

use std::fs;
use std::path::Path;

use faultline_checker::Verdict;
use faultline_core::{Claim, Fact};
use faultline_fuzz::{Scenario, Trial, run};

#[test]
fn fixed_scenarios_stay_clean() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy();
        let federation = faultline_api::parse(&name, &fs::read(&file).unwrap());
        let federation = federation.unwrap_or_else(|it| panic!("{name}: {:?}", it.errors()));
        let seed = federation.spec.seed.expect("a scenario has a seed");
        let trial = run(Scenario { seed, federation, defect: None }).unwrap();
        assert_ne!(trial.judgement.verdict, Verdict::Fail, "{name}: {:?}", trial.judgement.reasons);
    }
}

/// Returns how often processes reported that their lost storage was complete again.
fn protected(trial: &Trial) -> usize {
    let is_claim = |it: &Fact| matches!(it, Fact::Claim(claim) if **claim == Claim::Protected);
    trial.trace.streams.values().flatten().filter(|it| is_claim(&it.1)).count()
}

/// A process and one of its holders lose their storage one after the other. The holder asks the process for its part
/// before the process has got the part back from the other holder.
#[test]
fn a_holder_is_refilled_by_an_owner_that_lost_its_storage_under_every_protocol() {
    let text = include_str!("../found/owner-lost-its-storage-before-a-listing.yaml");
    for protocol in ["hydee", "spbc", "fullLogging", "pessimisticLogging", "independent"] {
        let text = text.replace("hydee:", &format!("{protocol}:"));
        let federation =
            faultline_api::parse(protocol, text.as_bytes()).unwrap_or_else(|_| panic!("{protocol}"));
        let trial = run(Scenario { seed: 1, federation, defect: None }).unwrap();
        assert_eq!(trial.judgement.verdict, Verdict::Pass, "{protocol}: {:?}", trial.judgement.reasons);
        assert_eq!(protected(&trial), 2, "{protocol}");
    }
}

/// An owner begins its first life after a holder has lost its storage and begun its second.
#[test]
fn a_holder_is_refilled_by_an_owner_that_begins_later() {
    let text = include_str!("../found/hc3i-holder-replaced-before-start.yaml");
    let federation = faultline_api::parse("holder", text.as_bytes()).expect("the scenario is valid");
    let trial = run(Scenario { seed: 10, federation, defect: None }).unwrap();
    assert_eq!(protected(&trial), 1);
}
