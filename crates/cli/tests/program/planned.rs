//! Tests programs whose tasks are assigned in advance, from the federation's file to the report, in virtual time and on
//! real processes.

use std::fs;

use crate::common::{TestDirectory, passes_but_for_links};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// Returns a federation file of two clusters that run this task-based program under CCK, with the lines `more` at the
/// end of the spec.
fn program(application: &str, more: &str) -> String {
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: planned }}
spec:
  seed: 5
  clusters: [{{ name: lyon, nodes: 2 }}, {{ name: nancy, nodes: 2 }}]
  links: {{ between: {{ latency: 3ms, bandwidth: 100Mbit }} }}
  protocol: {{ cck: {{ tau: 300ms, replicateTo: otherCluster }} }}
  application: {{ {application} }}
  failures: {{ detectAfter: 2s, restartAfter: 50ms }}
  deadline: 60s
{more}"
    )
}

const JACOBI: &str = "jacobi: { rows: 4, columns: 4, size: 4, iterations: 30, taskTime: 10ms }";
const CLOTH: &str = "cloth: { rows: 4, columns: 4, size: 4, iterations: 30, taskTime: 10ms }";

/// A process fails and returns; then another one fails permanently, and its partition moves to a third one.
const FAULTS: &str = "  faults:
    - { at: 500ms, crash: { cluster: lyon, node: 1 } }
    - { at: 900ms, crash: { cluster: nancy, node: 0, returns: false } }
";

/// Returns the result of a completed run. All processes that reported a result must have reported the same one.
fn digest(summary: &Value) -> String {
    assert_eq!(summary["run"]["outcome"], "completed", "{summary:#}");
    assert_eq!(summary["result"]["equal"], true, "{summary:#}");
    let digests = summary["result"]["digests"].as_object().expect("a summary lists the results");
    let first = digests.values().next().expect("processes finished");
    assert!(digests.values().all(|it| it == first), "{digests:?}");
    first.as_str().expect("a result is a text").to_owned()
}

#[test]
fn both_backends_compute_the_same_with_a_crash_and_a_process_that_never_returns() {
    for application in [JACOBI, CLOTH] {
        let place = TestDirectory::new();
        let (calm, code) = place.run("planned.yaml", "simulate", &program(application, ""), "calm");
        assert_eq!(code, Some(0), "{calm:#}");
        for backend in ["simulate", "local"] {
            let (json, code) = place.run("planned.yaml", backend, &program(application, FAULTS), backend);
            assert_eq!(digest(&json), digest(&calm), "{backend}");
            for fault in [0, 1] {
                assert_eq!(json["faults"][fault]["state"], "effective", "{json:#}");
            }
            assert_eq!(code, Some(if passes_but_for_links(&json) { 0 } else { 3 }), "{backend}: {json:#}");
            let properties = json["properties"].as_array().expect("a summary lists its properties");
            for name in ["strictlyRequired", "demandedOnly", "validCheckpoints"] {
                let found =
                    properties.iter().find(|it| it["property"] == name).expect("the property is judged");
                assert!(found["instances"].as_u64() > Some(0), "{backend}: {found:#}");
            }
            // On a busy machine, it is possible that no process has a checkpoint of nancy-0 yet.
            let took_over =
                contains("took over the work of nancy-0").or(contains("took the place of nancy-0"));
            let expected = took_over.and(contains("by processes that kept their states"));
            place.faultline(["explain", backend]).assert().success().stdout(expected);
        }
        assert_eq!(place.processes(), [] as [String; 0]);
    }
}

#[test]
fn computed_partitions_are_used_as_a_schedule() {
    let place = TestDirectory::new();
    place.write("planned.yaml", program(JACOBI, ""));
    let output = place.faultline(["cluster", "planned.yaml"]).assert().code(0).get_output().stdout.clone();
    let text = String::from_utf8(output).unwrap();
    // METIS format: the partition of each of the 16 blocks, one per line.
    let mut partitions: Vec<u32> = text.lines().map(|it| it.parse().expect("a number")).collect();
    assert_eq!(partitions.len(), 16);
    place.write("planned.part", &text);
    let schedule = format!("  schedule: {{ file: planned.part }}\n{FAULTS}");
    let (json, code) = place.run("planned.yaml", "simulate", &program(JACOBI, &schedule), "run");
    assert_eq!(code, Some(0), "{json:#}");
    digest(&json);
    // The record contains the partitions, and does not need the file.
    fs::remove_file(place.path("planned.part")).unwrap();
    place.faultline(["check", "run", "-q"]).assert().code(0);
    // A byte order mark and carriage returns are not part of a number; a second number, or other bytes, are refused.
    place.write("planned.part", format!("\u{feff}{}", text.replace('\n', "\r\n")));
    place.faultline(["validate", "planned.yaml"]).assert().code(0);
    for (wrong, why) in [
        ("1 0\n".as_bytes(), "line 1: `1 0` is not the number of a process"),
        (b"0\n1.5\n", "line 2: `1.5` is not the number of a process"),
        (b"0\n-1\n", "line 2: `-1` is not the number of a process"),
        (b"0\n1\xff\n", "line 2: the file is not UTF-8 text"),
    ] {
        place.write("planned.part", wrong);
        place.faultline(["validate", "planned.yaml"]).assert().code(2).stderr(contains(why));
    }
    // A partition file for another program is rejected.
    partitions.pop();
    let short: Vec<String> = partitions.iter().map(u32::to_string).collect();
    place.write("planned.part", short.join("\n"));
    place.faultline(["validate", "planned.yaml"]).assert().code(2).stderr(contains("15"));
}

#[test]
fn removing_the_valid_checkpoint_too_early_is_detected() {
    let place = TestDirectory::new();
    let fuzz = ["fuzz", "--defect", "cck-one-slot", "--seed", "1", "--runs", "20", "--no-shrink"];
    place.faultline(fuzz).assert().code(1);
    let found =
        fs::read_dir(place.path("faultline-runs")).unwrap().next().expect("the run is recorded").unwrap();
    let record = found.path();
    let check = ["check", record.to_str().unwrap(), "--format", "json"];
    let output = place.faultline(check).assert().code(1).get_output().stdout.clone();
    let json: Value = serde_json::from_slice(&output).unwrap();
    let properties = json["properties"].as_array().expect("a summary lists its properties");
    let found =
        properties.iter().find(|it| it["property"] == "validCheckpoints").expect("the property is judged");
    assert_eq!(found["verdict"], "fail", "{found:#}");
    assert!(found.to_string().contains("before a newer checkpoint was complete"), "{found:#}");
}

/// The processes of the cluster that joins take over their partitions. They neither roll back nor lose work before one
/// of them fails, and the cluster that leaves needs no result.
#[test]
fn clusters_that_join_and_leave_are_not_reported_as_failed() {
    let place = TestDirectory::new();
    let sample = faultline_api::samples::sample("cck-elastic").unwrap();
    let (json, code) = place.run("elastic.yaml", "simulate", sample.text, "run");
    assert_eq!(code, Some(0), "{json:#}");
    let rollbacks = |it: &Value| it["rollbacks"].as_array().map_or(0, Vec::len);
    let rollbacks: Vec<usize> = json["clusters"].as_array().unwrap().iter().map(rollbacks).collect();
    assert_eq!(rollbacks, [0, 0, 0, 1], "{json:#}");
    assert_eq!((&json["result"]["remaining"], &json["result"]["equal"]), (&9.into(), &true.into()));
    let explained = place.faultline(["explain", "run"]).output().unwrap();
    let explained = String::from_utf8(explained.stdout).unwrap();
    assert!(explained.contains("ran the partition of nancy-1, which had not joined yet."), "{explained}");
    assert!(explained.contains("nancy-1 took over its own partition from"), "{explained}");
    assert!(!explained.contains("no checkpoint of nancy"), "{explained}");
}
