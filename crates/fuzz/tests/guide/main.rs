//! Uses the kit to test the protocol from the guide for protocol authors, and checks that the guide shows its code
//! unchanged.

mod start_again;

use faultline_api::resource::{Custom, FederationSpec, ProtocolSpec};
use faultline_catalog::CustomProtocol;
use faultline_catalog::custom::add_protocol;
use faultline_checker::Property;
use faultline_fuzz::Candidate;
use faultline_session::{Recording, Session, Simulator};
use faultline_trace::{Bundle, Trace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use start_again::{Config, StartAgain};

fn candidate(accepts_stale: bool) -> Candidate<StartAgain> {
    Candidate::new(Config { accepts_stale })
}

/// The parameters in a file.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Parameters {
    /// Whether messages from before a failure are delivered after it.
    accepts_stale: bool,
}

impl CustomProtocol for StartAgain {
    const NAME: &'static str = "start-again";
    type Parameters = Parameters;

    fn configure(parameters: Parameters, _: &FederationSpec) -> Result<Config, String> {
        Ok(Config { accepts_stale: parameters.accepts_stale })
    }
}

/// Naming the protocol in a file erases its types, which must not change anything.
#[test]
fn a_file_that_names_the_protocol_describes_the_same_run() {
    add_protocol::<StartAgain>();
    let named = |parameters: serde_json::Value| {
        let serde_json::Value::Object(parameters) = parameters else {
            panic!("the parameters are an object")
        };
        ProtocolSpec::Custom(Custom { name: "start-again".to_owned(), parameters })
    };
    for seed in 0..5 {
        for accepts_stale in [false, true] {
            let tried = candidate(accepts_stale).try_seed(seed).unwrap();
            let mut federation = tried.federation;
            federation.spec.protocol = named(serde_json::json!({ "acceptsStale": accepts_stale }));
            let text = faultline_api::to_yaml(&federation);
            assert_eq!(faultline_api::parse("federation.yaml", text.as_bytes()).unwrap(), federation);
            let mut no_observer = ();
            let mut simulator = Simulator::new(&mut no_observer).at_most(2_000_000);
            let run = Session::new(&federation).seed(seed).simulate(&mut simulator).unwrap();
            assert_eq!(run.manifest.protocol, "start-again");
            assert_eq!(run.manifest.promises, tried.manifest.promises);
            assert!(run.trace == tried.trace, "seed {seed}: the runs differ");
        }
    }
    let mut federation = candidate(false).try_seed(0).unwrap().federation;
    federation.spec.protocol = named(serde_json::json!({ "acceptsState": true }));
    let text = faultline_api::to_yaml(&federation);
    let rejected = faultline_api::parse("federation.yaml", text.as_bytes()).unwrap_err();
    let error = &rejected.errors()[0];
    assert!(error.message.contains("unknown field `acceptsState`"), "{error:?}");
    assert!(text.lines().nth(error.line - 1).unwrap().contains("acceptsState"), "{error:?}");
}

#[test]
fn the_protocol_of_the_guide_is_sound() {
    let failing = candidate(false).first_failure(0..60).unwrap();
    assert_eq!(failing.and_then(|it| it.failure()), None);
}

#[test]
fn the_defect_of_the_guide_is_found() {
    let tried = candidate(true).first_failure(0..60).unwrap().expect("it is found");
    let violated: Vec<Property> = tried.judgement.violated().collect();
    assert!(violated.contains(&Property::NoGhost), "{violated:?}");
}

#[test]
fn a_shrunk_counterexample_is_judged_again_from_its_record() {
    let candidate = Candidate::<StartAgain>::named(Parameters { accepts_stale: true });
    let tried = candidate.first_failure(0..60).unwrap().expect("it is found");
    let shrunk = candidate.shrink(&tried).unwrap();
    let facts = |trace: &Trace| trace.streams.values().map(Vec::len).sum::<usize>();
    assert!(facts(&shrunk.trace) < facts(&tried.trace));
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("found");
    shrunk.write(&dir).unwrap();
    let read = Recording::read(&Bundle::open(&dir)).unwrap();
    assert_eq!(read.trace.flaws, []);
    assert_eq!(read.manifest.protocol, "start-again");
    assert!(read.judgement.violated().eq(shrunk.judgement.violated()));
    assert_eq!(read.judgement.violated().next(), tried.judgement.violated().next());
    // Running the file again gives the same facts.
    let federation = faultline_api::parse("federation.yaml", read.manifest.federation.as_bytes()).unwrap();
    let run = Session::new(&federation).simulate(&mut Simulator::new(&mut ())).unwrap();
    assert!(run.trace == shrunk.trace);
    let file = |name| std::fs::read_to_string(dir.join(name)).unwrap();
    assert!(file("diagram.svg").contains("<svg") && file("transcript.txt").contains("delivers"));
}

#[test]
fn a_transcript_contains_the_facts() {
    let transcript = candidate(false).try_seed(1).unwrap().transcript();
    assert!(transcript.contains(" sends p") && transcript.contains(" delivers p"), "{transcript}");
}

#[test]
fn the_guide_shows_the_protocol_that_is_tested() {
    let guide = include_str!("../../../../docs/protocols.md");
    let shown = guide.split("```rust\n").nth(1).and_then(|it| it.split("```\n").next());
    assert_eq!(shown, Some(include_str!("start_again.rs")), "docs/protocols.md is stale");
}
