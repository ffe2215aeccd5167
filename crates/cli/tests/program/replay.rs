//! Tests the replay of recorded nodes.

use std::fs;

use crate::common::{CRASH, TestDirectory, small};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// Records a run with a crash, and replays every life of every node.
fn record_and_replay(backend: &str) -> TestDirectory {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let run = ["run", "small.yaml", "--backend", backend, "--record", "--out", "run", "-q"];
    // On a busy machine, links between real processes may not have their requested delays, which makes the verdict
    // unknown.
    let status = place.faultline(run).assert().get_output().status.code();
    assert!(status == Some(0) || (status == Some(3) && backend == "local"), "{status:?}");
    let replay = place.faultline(["replay", "run", "--format", "json"]).assert().code(0);
    let lives: Vec<Value> = serde_json::from_slice(&replay.get_output().stdout).unwrap();
    let names = ["lyon-0", "lyon-1", "lyon-1", "nancy-0", "nancy-1"];
    assert_eq!(lives.iter().map(|it| it["node"].as_str().unwrap()).collect::<Vec<_>>(), names);
    for life in &lives {
        assert_eq!(life["difference"], Value::Null, "{life}");
        let count = |what: &str| life[what].as_u64().unwrap();
        assert!(count("inputs") > 20 && count("actions") > 20 && count("facts") > 20, "{life}");
    }
    place
}

#[test]
fn nodes_of_a_simulation_repeat_their_actions_and_differences_are_found() {
    let place = record_and_replay("simulate");
    place
        .faultline(["replay", "run", "--node", "lyon-1"])
        .assert()
        .code(0)
        .stdout(contains("lyon-1, life 2"));
    place
        .faultline(["replay", "run", "--node", "lyon-7"])
        .assert()
        .code(2)
        .stderr(contains("lyon-0, lyon-1"));

    // With a different option, the protocol responds differently to the same inputs.
    let file = place.path("run/federation.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("replicateTo: otherCluster", "replicateTo: sameCluster")).unwrap();
    place
        .faultline(["replay", "run"])
        .assert()
        .code(1)
        .stdout(contains("DIFFERS lyon-0").and(contains("action")));
    fs::write(&file, text).unwrap();

    // A flipped bit in the recorded inputs is detected.
    let inputs = place.path("run/inputs/p0-1.inputs");
    let mut bytes = fs::read(&inputs).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&inputs, bytes).unwrap();
    place
        .faultline(["replay", "run", "--node", "lyon-0"])
        .assert()
        .code(1)
        .stdout(contains("DIFFERS lyon-0"));
}

#[test]
fn inputs_beyond_the_memory_limit_are_refused() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(""));
    let run = ["run", "small.yaml", "--backend", "simulate", "--record", "--out", "run", "-q"];
    place.faultline(run).assert().code(0);
    let replay = ["replay", "run", "--memory", "200MiB"];
    place.faultline(replay).assert().code(0);
    // A sparse file, which takes up no space on the disk.
    let inputs = fs::File::options().write(true).open(place.path("run/inputs/p0-1.inputs")).unwrap();
    inputs.set_len(3 << 30).unwrap();
    let refused = contains("has 3072 MiB").and(contains("use a larger `--memory`"));
    place.faultline(replay).assert().code(2).stderr(refused);
}

/// A fault waits for a fact of one process and crashes another. The first
/// process is halted at that fact until the fault has been injected.
#[test]
fn a_process_halted_while_a_fault_is_injected_repeats_its_actions() {
    let place = TestDirectory::new();
    let when = "{ fact: checkpointRequested, cluster: lyon, occurrence: 2 }";
    place.write(
        "small.yaml",
        small(&format!("  faults: [{{ when: {when}, crash: {{ cluster: nancy }} }}]\n")),
    );
    let run = ["run", "small.yaml", "--backend", "simulate", "--record", "--out", "run", "-q"];
    place.faultline(run).assert().code(0);
    place.faultline(["replay", "run"]).assert().code(0).stdout(contains("DIFFERS").not());
}

#[test]
fn nodes_of_real_processes_repeat_their_actions() {
    record_and_replay("local");
}

#[test]
fn a_run_that_was_not_recorded_cannot_be_replayed_but_its_facts_can_be_exported() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.faultline(["run", "small.yaml", "--backend", "simulate", "--out", "run", "-q"]).assert().code(0);
    place.faultline(["replay", "run"]).assert().code(2).stderr(contains("faultline run --record"));
    let lines = |format| {
        let export = place.faultline(["export", "run", "--format", format]).assert().code(0);
        String::from_utf8(export.get_output().stdout.clone()).unwrap()
    };
    let (json, csv) = (lines("jsonl"), lines("csv"));
    assert!(csv.starts_with("process,cluster,life,number,time_ns,fact,"));
    assert_eq!(json.lines().count() + 1, csv.lines().count());
    assert!(json.lines().count() > 500);
    assert!(json.lines().all(|it| serde_json::from_str::<Value>(it).is_ok()));
}
