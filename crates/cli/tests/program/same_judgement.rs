//! Tests that all commands that run a federation with the same seed, or read its record, give the same judgement,
//! finding by finding.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use crate::common::TestDirectory;
use faultline_checker::{Judgement, Property, Verdict};
use faultline_experiments::compare::Made;
use faultline_experiments::simulate;
use faultline_report::Summary;
use faultline_session::Recording;
use faultline_trace::Bundle;
use serde_json::Value;

const SEED: u64 = 3;

/// Returns a federation of two clusters with two nodes each, under a protocol, with faults and a deadline.
fn federation(protocol: &str, rest: &str) -> String {
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: small }}
spec:
  clusters: [{{ name: lyon, nodes: 2 }}, {{ name: nancy, nodes: 2 }}]
  links: {{ between: {{ latency: 3ms }} }}
  protocol: {{ {protocol}: {{ checkpointEvery: 300ms, replicas: 1, replicateTo: otherCluster }} }}
  application: {{ heat: {{ steps: 60, stepTime: 20ms }} }}
  failures: {{ detectAfter: 100ms, restartAfter: 50ms }}
{rest}"
    )
}

/// Returns the judgement, on which all commands must agree.
fn judged_by_all(text: &str) -> Judgement {
    let place = TestDirectory::new();
    place.write("small.yaml", text);
    let object = |arguments: &[&str]| -> Value {
        let output = place.faultline(arguments.iter().copied()).output().unwrap();
        serde_json::from_slice(&output.stdout).expect("the standard output is one JSON object")
    };
    let seed = SEED.to_string();
    let run = ["run", "small.yaml", "--backend", "simulate", "--seed", &seed, "--out", "record"];
    let run = object(&[&run[..], &["--format", "json"]].concat());
    let check = object(&["check", "record", "--format", "json"]);
    assert_eq!(run["properties"], check["properties"]);
    assert_eq!(run["reasons"], check["reasons"]);

    let dir: PathBuf = place.path("record");
    let recording = Recording::read(&Bundle::open(&dir)).unwrap();
    let recorded = faultline_report::RecordedRun {
        bundle: "record",
        manifest: &recording.manifest,
        trace: &recording.trace,
        judgement: &recording.judgement,
    };
    let properties = serde_json::to_value(Summary::new(recorded).properties).unwrap();
    assert_eq!(check["properties"], properties);
    let judgement = recording.judgement;

    let federation = faultline_api::parse("small.yaml", text.as_bytes()).unwrap();
    let statistics = simulate(&federation, SEED, &mut ()).unwrap();
    assert_eq!((statistics.verdict, &statistics.reasons), (judgement.verdict, &judgement.reasons));
    assert_eq!(statistics.findings, judgement.findings);
    let compared = Made::simulated(&federation, SEED, &AtomicBool::new(false)).unwrap();
    assert_eq!(*compared.judgement(), judgement);
    let fuzzed = object(&["fuzz", "--file", "small.yaml", "--seed", &seed, "--format", "json"]);
    assert_eq!(serde_json::from_value::<Judgement>(fuzzed).unwrap(), judgement);
    judgement
}

#[test]
fn a_crash_that_waits_for_a_fact_halts_processes_for_every_judge() {
    let fault = "{ when: { fact: checkpointRequested, cluster: nancy, occurrence: 2 }, crash: { cluster: lyon, node: 1 } }";
    for protocol in ["hc3i", "hydee", "independent"] {
        let judgement = judged_by_all(&federation(protocol, &format!("  faults: [{fault}]\n")));
        assert_eq!(judgement.verdict, Verdict::Pass, "{protocol}: {:?}", judgement.reasons);
        // Independent checkpoints promise no limit: a rollback can undo any number of them.
        let is_bounded = protocol != "independent";
        assert_eq!(judgement.of(Property::BoundedLoss).instances > 0, is_bounded, "{protocol}");
    }
}

#[test]
fn a_run_that_its_deadline_ends_is_settled_for_every_judge_or_for_none() {
    for (deadline, is_settled) in [("8s", false), ("30s", true)] {
        // The process is not restarted, so messages stop long before the deadline.
        let fault = "  faults: [{ at: 500ms, crash: { cluster: lyon, node: 1 } }]\n";
        let text = federation("hc3i", &format!("{fault}  deadline: {deadline}\n"))
            .replace("restartAfter: 50ms", "restartAfter: 1h");
        let judgement = judged_by_all(&text);
        assert_eq!(judgement.verdict, Verdict::Unknown, "{deadline}: {:?}", judgement.reasons);
        let losses = judgement.of(Property::NoLoss);
        assert_eq!(losses.instances > 0 || losses.unknown.is_some(), is_settled, "{deadline}: {losses:?}");
    }
}
