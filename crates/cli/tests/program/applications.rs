//! Tests of applications that are programs, and of the examples in other languages than Python. An example whose language
//! is not installed is skipped.

use std::fs;
use std::path::Path;
use std::process::Command;

use faultline_core::{Digest, Fact, ProcessId};
use faultline_trace::Bundle;
use predicates::prelude::*;
use predicates::str::contains;

use crate::common::{TestDirectory, passes_but_for_links, says};

/// Copies an example into a directory, and returns its federation file; `None` if its language is not installed.
fn example(place: &TestDirectory, language: &str, command: &str, name: &str) -> Option<String> {
    if Command::new(command).arg("--help").output().is_err() {
        println!("SKIPPED: the example {language}/{name}, because `{command}` was not found");
        return None;
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(language);
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        place.write(path.file_name().unwrap().to_str().unwrap(), fs::read(&path).unwrap());
    }
    Some(fs::read_to_string(place.path(name)).unwrap())
}

/// Two ranks that take turns, in Python.
const TURNS: &str = r#"
import json, sys
for line in sys.stdin:
    event = json.loads(line)
    reply = {"n": event["n"]}
    match event["event"]:
        case "hello": reply["contract"] = 1
        case "start": me, done = event["me"], 0
        case "save": reply["state"] = done
        case "restore": done = event["state"] or 0
        case "next" if done == 30: reply["do"] = [{"do": "finish", "result": done}]
        case "next":
            send = {"do": "send", "to": 1 - me, "content": {"turn": done}}
            reply["do"] = [{"do": "compute", "for": 20_000_000}, send, {"do": "receive", "from": 1 - me}]
        case "received":
            assert event["messages"] == [{"from": 1 - me, "content": {"turn": done}}]
            done += 1
            reply["progress"] = {"done": done, "total": 30}
    print(json.dumps(reply), flush=True)
"#;

fn turns(place: &TestDirectory, protocol: &str) -> String {
    place.write("turns.py", TURNS);
    format!(
        "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: turns }}
spec:
  seed: 7
  clusters: [{{ name: a, nodes: 1 }}, {{ name: b, nodes: 1 }}]
  protocol: {{ {protocol}: {{ checkpointEvery: 100ms, replicateTo: otherCluster }} }}
  application:
    program: {{ command: [python3, turns.py], files: {{ turns.py: {{ file: turns.py }} }} }}
  faults: [{{ at: 300ms, crash: {{ cluster: b, node: 0 }} }}]
"
    )
}

#[test]
fn every_protocol_protects_a_program() {
    let place = TestDirectory::new();
    let protocols = [
        "hc3i",
        "hydee",
        "fullLogging",
        "spbc",
        "pessimisticLogging",
        "independent",
        "coordinated",
        "hierarchicalCoordinated",
        "chandyLamport",
    ];
    for protocol in protocols {
        let text = turns(&place, protocol);
        let (json, code) = place.run("turns.yaml", "simulate", &text, protocol);
        assert_eq!((code, &json["run"]["outcome"]), (Some(0), &"completed".into()), "{protocol}: {json}");
        let is_equal = |it: &serde_json::Value| it["property"] == "sameResult" && it["found"] == "holds";
        let properties = json["properties"].as_array().unwrap();
        assert!(properties.iter().any(is_equal), "{protocol}: {properties:?}");
    }
}

#[test]
fn a_record_is_judged_without_its_application() {
    let place = TestDirectory::new();
    let text = turns(&place, "hydee");
    place.write("orders.yaml", &text);
    let orders = place.faultline(["validate", "orders.yaml", "--orders", "4"]).assert().code(0);
    orders.stdout(says("every process sends the same messages in 5 delivery orders"));
    let (_, code) = place.run("turns.yaml", "simulate", &text, "run");
    assert_eq!(code, Some(0));
    fs::remove_file(place.path("turns.py")).unwrap();
    let check = place.faultline(["check", "run"]).env("PATH", "").assert().code(0);
    check.stderr(says(
        "the expected results are those of the record, because the application is a program, turns.py",
    ));
    place.faultline(["check", "run", "--run-programs"]).assert().code(0);
    let refused = place.faultline(["check", "run", "--resimulate"]).assert().code(2);
    refused.stderr(says("the application of this run is a program, turns.py, which would be started"));
    // Another result in the facts and in the expected results: only the program shows that it is not its own.
    let bundle = Bundle::open(place.path("run"));
    let (mut manifest, mut trace) = (bundle.read_manifest().unwrap(), bundle.read_trace().unwrap());
    manifest.expected.as_mut().unwrap().digests[0].1 = Digest([0; 16]);
    for (_, fact) in trace.streams.iter_mut().filter(|it| it.0.0 == ProcessId(0)).flat_map(|it| it.1) {
        if let Fact::Finished(finished) = fact {
            finished.1 = Digest([0; 16]);
        }
    }
    bundle.clear().unwrap();
    let bundle = Bundle::create(place.path("run")).unwrap();
    bundle.write_trace(&trace).unwrap();
    bundle.write_manifest(&manifest).unwrap();
    place.faultline(["check", "run"]).assert().code(0);
    let tampered = place.faultline(["check", "run", "--run-programs"]).assert().code(3);
    tampered.stdout(says("the program computes other expected results than those in the record"));
}

#[test]
fn an_application_that_breaks_its_contract_fails() {
    let place = TestDirectory::new();
    let text = turns(&place, "hc3i");
    let broken = TURNS.replace("\"to\": 1 - me", "\"to\": 1 + me");
    place.write("turns.py", broken);
    for backend in ["simulate", "local"] {
        let (json, code) = place.run("turns.yaml", backend, &text, backend);
        assert_eq!((code, &json["run"]["outcome"]), (Some(1), &"broken".into()), "{json}");
        let reasons = json["reasons"].to_string();
        let what =
            "broke the contract at event 2 (`next`): step 2 (`send`): there is no rank 2; the last one is 1";
        assert!(reasons.contains(what), "{reasons}");
    }
    place.write("unknown.yaml", text.replace("python3", "pyhton3"));
    let run = place.faultline(["run", "unknown.yaml", "--backend", "simulate"]).assert().code(2);
    run.stderr(says("turns.py cannot be started: `pyhton3` was not found"));
    place.write("any.yaml", turns(&place, "hydee").replace("command:", "receives: any, command:"));
    let any = place.faultline(["validate", "any.yaml"]).assert().code(2);
    any.stderr(says("the order of arrival may determine what turns.py sends"));
}

#[test]
fn a_program_runs_on_real_processes_and_its_lines_are_shown() {
    let place = TestDirectory::new();
    let text = turns(&place, "coordinated");
    place.write("turns.yaml", &text);
    let run = ["run", "turns.yaml", "--record", "--out", "run", "--format", "json"];
    let output = place.faultline(run).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(passes_but_for_links(&json), "{json}");
    let replay = ["replay", "run", "--node", "b-0", "--lines"];
    place.faultline(replay).assert().code(2).stderr(says("--run-programs"));
    let shown = place.faultline(replay).arg("--run-programs").assert().code(0);
    let lines = contains("turns.py > {\"n\":0,\"event\":\"hello\",\"contract\":[1],\"kind\":\"application\"")
        .and(contains("turns.py < {\"n\": 0, \"contract\": 1}\n"))
        .and(contains("\"event\":\"received\",\"messages\":[{\"from\":0,\"content\":{\"turn\": 0}}]}"))
        .and(contains("\"event\":\"save\""))
        .and(contains("equal   b-0, life 2"));
    shown.stdout(lines);
    place.wait_until_empty();
}

#[test]
fn the_protocol_in_go_acts_like_the_one_in_python() {
    let place = TestDirectory::new();
    let Some(go) = example(&place, "go", "go", "again.yaml") else { return };
    let Some(python) = example(&place, "python", "python3", "again.yaml") else { return };
    let facts = |text: &str, out: &str| {
        let (json, code) = place.run("again.yaml", "simulate", text, out);
        assert_eq!(code, Some(0), "{json}");
        place.faultline(["export", out]).output().unwrap().stdout
    };
    assert_eq!(facts(&go, "of-go"), facts(&python, "of-python"));
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn the_examples_in_other_languages_run() {
        for (language, command, name) in [
            ("go", "go", "again.yaml"),
            ("go", "go", "stencil.yaml"),
            ("javascript", "node", "sort.yaml"),
            ("java", "java", "ring.yaml"),
        ] {
            let place = TestDirectory::new();
            let Some(text) = example(&place, language, command, name) else { continue };
            let (json, code) = place.run(name, "simulate", &text, "run");
            assert_eq!((code, &json["run"]["outcome"]), (Some(0), &"completed".into()), "{name}: {json}");
            assert_eq!(json["faults"][0]["state"], "effective", "{name}: {json}");
        }
    }
}
