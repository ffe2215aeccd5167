//! Tests task-based programs, from the federation's file to the report, in virtual time and on real processes.

use crate::common::{TestDirectory, passes_but_for_links};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// Returns a federation file of three clusters that run a task-based program for about 1.5 s under this protocol, with
/// these faults.
fn program(protocol: &str, faults: &str) -> String {
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: program }}
spec:
  seed: 5
  clusters: [{{ name: lyon, nodes: 2 }}, {{ name: nancy, nodes: 2 }}, {{ name: lille, nodes: 1, speed: 200 }}]
  links:
    between: {{ latency: 3ms, bandwidth: 100Mbit }}
  protocol: {{ {protocol} }}
  application:
    fibonacci: {{ n: 19, threshold: 6, taskTime: 20ms }}
  failures: {{ detectAfter: 2s, restartAfter: 50ms }}
  faults: [{faults}]
  deadline: 60s
"
    )
}

const TIC: &str = "tic: { tau: 300ms, replicateTo: otherCluster }";
const CRASH: &str = "{ at: 300ms, crash: { cluster: lyon, node: 1 } }";
const LOST: &str = "{ at: 600ms, loseCluster: { cluster: nancy, storage: lost, returns: false } }";

fn instances(summary: &Value, property: &str) -> u64 {
    let all = summary["properties"].as_array().expect("a summary lists its properties");
    let found = all.iter().find(|it| it["property"] == property).expect("every property is judged");
    found["instances"].as_u64().unwrap()
}

#[test]
fn tic_survives_a_crash_and_the_loss_of_a_cluster_on_both_backends() {
    for backend in ["simulate", "local"] {
        let place = TestDirectory::new();
        let (json, code) =
            place.run("program.yaml", backend, &program(TIC, &format!("{CRASH}, {LOST}")), "run");
        assert_eq!(json["run"]["outcome"], "completed", "{json:#}");
        assert_eq!(json["result"]["equal"], true, "{json:#}");
        for fault in [0, 1] {
            assert_eq!(json["faults"][fault]["state"], "effective", "{json:#}");
        }
        for property in ["tasksOnce", "oneOwner", "checkpointedFirst", "forcedPerTheft", "witnessAgrees"] {
            assert!(instances(&json, property) > 0, "{property}: {json:#}");
        }
        // No process of nancy rolls back, but the work that the cluster did after its last checkpoints is
        // lost.
        let nancy = &json["clusters"][1];
        assert!(nancy["rollbacks"] == Value::Array(vec![]), "{nancy:#}");
        let lost = nancy["lostWorkSeconds"].as_f64().unwrap();
        assert!(lost > 0.0 && lost < 2.0, "{lost}");
        assert!(
            // A task that was running when the checkpoint was taken is undone from its start.
            nancy["time"]["undoneSeconds"].as_f64().is_some_and(|it| it > lost - 0.01 && it < lost + 0.2),
            "{nancy:#}"
        );
        assert_eq!(code, Some(if passes_but_for_links(&json) { 0 } else { 3 }), "{backend}: {json:#}");
        // The judgement of the record is the same, and the record contains all required evidence.
        place.faultline(["check", "run", "-q"]).assert().code(code.unwrap());
        let expected = contains("lyon-1").and(contains("took over the work of nancy-0"));
        place.faultline(["explain", "run"]).assert().success().stdout(expected);
        place.faultline(["report", "run"]).assert().success();
        assert_eq!(place.processes(), [] as [String; 0]);
    }
}

#[test]
fn sel_and_satin_survive_a_crash_and_the_loss_of_a_cluster_on_both_backends() {
    for (protocol, judged) in [
        (
            "sel: { tau: 300ms, replicateTo: otherCluster }",
            &["tasksOnce", "oneOwner", "checkpointedFirst"][..],
        ),
        ("satin: {}", &["tasksOnce"][..]),
    ] {
        for backend in ["simulate", "local"] {
            let place = TestDirectory::new();
            // One process runs two tasks at a time.
            let text = program(protocol, &format!("{CRASH}, {LOST}")).replace("speed: 200", "cores: 2");
            let (json, code) = place.run("program.yaml", backend, &text, "run");
            assert_eq!(json["run"]["outcome"], "completed", "{json:#}");
            assert_eq!(json["result"]["equal"], true, "{json:#}");
            for fault in [0, 1] {
                assert_eq!(json["faults"][fault]["state"], "effective", "{json:#}");
            }
            for property in judged {
                assert!(instances(&json, property) > 0, "{property}: {json:#}");
            }
            assert_eq!(code, Some(if passes_but_for_links(&json) { 0 } else { 3 }), "{backend}: {json:#}");
            place.faultline(["check", "run", "-q"]).assert().code(code.unwrap());
            assert_eq!(place.processes(), [] as [String; 0]);
        }
    }
}

#[test]
fn everything_that_a_lost_cluster_did_is_lost_if_nothing_is_stored() {
    let place = TestDirectory::new();
    let (json, code) = place.run("program.yaml", "simulate", &program("satin: {}", LOST), "run");
    assert_eq!((json["run"]["outcome"].as_str(), code), (Some("completed"), Some(0)), "{json:#}");
    // The work of two processes until they fail after 0.6 s.
    let lost = json["clusters"][1]["lostWorkSeconds"].as_f64().unwrap();
    assert!((lost - 1.2).abs() < 0.01, "{lost}");
}

#[test]
fn a_cluster_that_joins_late_takes_tasks_on_both_backends() {
    for backend in ["simulate", "local"] {
        let place = TestDirectory::new();
        let late = "{ name: lille, nodes: 1, joinsAfter: 400ms, speed: 200 }";
        let text = program(TIC, CRASH).replace("{ name: lille, nodes: 1, speed: 200 }", late);
        assert!(text.contains(late));
        let (json, _) = place.run("program.yaml", backend, &text, "run");
        assert_eq!(json["run"]["outcome"], "completed", "{json:#}");
        assert_eq!(json["result"]["equal"], true, "{json:#}");
        let facts = ["export", "run", "--format", "jsonl"];
        let output = place.faultline(facts).output().unwrap();
        let facts = String::from_utf8(output.stdout).unwrap();
        let ran = |it: &&str| it.contains("\"ran\"") && it.contains("lille-0");
        assert!(facts.lines().any(|it| ran(&it)), "{backend}: lille ran no task");
    }
}

#[test]
fn without_protection_the_loss_of_a_cluster_ends_the_run_on_both_backends() {
    for backend in ["simulate", "local"] {
        let place = TestDirectory::new();
        let (json, _) = place.run("program.yaml", backend, &program("none: {}", ""), "run");
        assert_eq!(json["result"]["equal"], true, "{json:#}");
        let place = TestDirectory::new();
        let (json, code) = place.run("program.yaml", backend, &program("none: {}", LOST), "run");
        assert_eq!((json["run"]["outcome"].as_str(), code), (Some("unrecoverable"), Some(3)), "{json:#}");
    }
}

#[test]
fn a_program_whose_every_copy_is_lost_is_unrecoverable_and_justified() {
    let place = TestDirectory::new();
    let lost = "{ at: 600ms, loseCluster: { cluster: lyon, storage: lost } }";
    let text = program("tic: { tau: 300ms }", lost).replace("lille, nodes: 1", "lille, nodes: 2");
    let (json, code) = place.run("program.yaml", "simulate", &text, "run");
    assert_eq!((json["run"]["outcome"].as_str(), code), (Some("unrecoverable"), Some(3)), "{json:#}");
    assert!(instances(&json, "unrecoverableJustified") > 0, "{json:#}");
    let remedy = "Replicas were kept within the cluster; with `replicateTo: otherCluster`";
    let explained = contains("No checkpoint of lyon-0 can be restored.").and(contains(remedy));
    place
        .faultline(["explain", "run"])
        .assert()
        .stdout(explained.and(contains("Time of the processes of lyon: ")));
    // If nothing is left of a process's work, no other process can take it over.
    let text = text.replace("storage: lost", "storage: lost, returns: false");
    let (json, _) = place.run("program.yaml", "simulate", &text, "gone");
    let reason = json["reasons"][0].as_str().unwrap();
    assert!(reason.contains("lyon-0's part of checkpoint 4 (not found at "), "{reason}");
    let explained = contains("lyon-0's part of checkpoint 4 (not found at ")
        .and(contains("could not take over the work of lyon-0"))
        .and(contains("took over the work of lyon-0").not());
    place.faultline(["explain", "gone"]).assert().stdout(explained);
}

#[test]
fn a_text_with_missing_entries_is_refused() {
    let place = TestDirectory::new();
    place.write("hole.dat", "3\n0 1 2\n1 0 3\n2 3 0\n\n0 5 2\n5 0\n2 3 0\n");
    let text = program(TIC, "")
        .replace("fibonacci: { n: 19, threshold: 6, taskTime: 20ms }", "qap: { file: hole.dat, depth: 1 }");
    place.write("program.yaml", &text);
    let expected =
        contains("line 7: this row has 2 instead of 3 entries").and(contains("add the missing entries"));
    place.faultline(["validate", "program.yaml"]).assert().code(2).stderr(expected);
    place.write("hole.dat", "\u{feff}3\r\n0 1 2\r\n1 0 3\r\n2 3 0\r\n\r\n0 5 2\r\n5 0 3\r\n2 3 0\r\n");
    place.faultline(["validate", "program.yaml"]).assert().code(0);
    place.write("hole.dat", b"3\n0 1 2\n1 0 \xff\n");
    let expected = contains("line 3: the file is not UTF-8 text");
    place.faultline(["validate", "program.yaml"]).assert().code(2).stderr(expected);
    // Even after the QAPLIB file has been read, errors name the lines of the federation file.
    place.write("hole.dat", "3\n0 1 2\n1 0 3\n2 3 0\n\n0 5 2\n5 0 3\n2 3 0\n");
    let text = text.replace("depth: 1", "depth: 7");
    place.write("program.yaml", &text);
    let line = 1 + text.lines().position(|it| it.contains("hole.dat")).expect("the file is named");
    let expected =
        contains("`depth` is 7, which is out of range").and(contains(format!("program.yaml:{line}:")));
    place.faultline(["validate", "program.yaml"]).assert().code(2).stderr(expected);
}

#[test]
fn invalid_programs_of_tasks_are_rejected_with_a_reason() {
    let place = TestDirectory::new();
    place.write("program.yaml", program("hc3i: {}", ""));
    let validate = ["validate", "program.yaml"];
    place.faultline(validate).assert().code(2).stderr(
        contains("`hc3i` does not support task-based programs").and(contains("choose the protocol `tic`")),
    );
    let all_clusters = ["lyon", "nancy", "lille"]
        .map(|it| format!("{{ at: 1s, loseCluster: {{ cluster: {it}, returns: false }} }}"));
    place.write("program.yaml", program(TIC, &all_clusters.join(", ")));
    place.faultline(validate).assert().code(2).stderr(contains("no process is left to take over the work"));
    place.write("program.yaml", program(TIC, ""));
    let orders = ["validate", "program.yaml", "--orders", "2"];
    place.faultline(orders).assert().code(2).stderr(contains("is a task-based program"));
}
