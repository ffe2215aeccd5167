//! Tests whole runs on real processes from the user's point of view. Waits for conditions, never for a fixed time.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::common::{CRASH, TestDirectory, passes_but_for_links, signal, small};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

#[test]
fn a_node_is_killed_and_the_result_is_the_same() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let run = place.faultline(["run", "small.yaml", "--out", "run", "--format", "json"]).assert();
    let run = run.stderr(contains("fault 0: lyon-1 is killed")).get_output().clone();
    let json: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(json["result"]["equal"], true);
    assert_eq!(json["faults"][0]["state"], "effective");
    assert_eq!(run.status.code(), Some(if passes_but_for_links(&json) { 0 } else { 3 }));
    place.faultline(["check", "run", "-q"]).assert().code(run.status.code().unwrap());
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn master_and_workers_survive_failures_of_the_master_and_the_event_logger() {
    let place = TestDirectory::new();
    let faults = "  faults:
    - { at: 500ms, crash: { cluster: lyon, node: 0 } }
    - { at: 700ms, crash: { process: event-logger } }\n";
    let hc3i = "hc3i: { checkpointEvery: 300ms, replicas: 1, replicateTo: otherCluster }";
    let heat = "heat: { steps: 60, stepTime: 20ms, feedbackEvery: 20, state: 64KiB }";
    let text = small(faults).replace(hc3i, "pessimisticLogging: { replicateTo: otherCluster }");
    place.write("farm.yaml", text.replace(heat, "farm: { pieces: 200, stepTime: 20ms }"));
    let run = place.faultline(["run", "farm.yaml", "--out", "run", "--format", "json"]).assert();
    let json: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    assert_eq!(json["result"]["equal"], true, "{json}");
    for fault in [0, 1] {
        assert_eq!(json["faults"][fault]["state"], "effective", "{json}");
    }
    let properties = json["properties"].as_array().unwrap();
    passes_but_for_links(&json);
    let repeated = properties.iter().find(|it| it["property"] == "repeatedOrder").unwrap();
    assert!(repeated["instances"].as_u64().unwrap() > 0, "{repeated}");
}

#[test]
fn a_cluster_joins_and_leaves_among_real_processes() {
    let place = TestDirectory::new();
    let sample = faultline_api::samples::sample("guest").unwrap();
    let faster = [
        ("joinsAfter: 3s, leavesAfter: 8s", "joinsAfter: 1s, leavesAfter: 3s"),
        ("checkpointEvery: 1s, collectEvery: 1s", "checkpointEvery: 400ms, collectEvery: 400ms"),
        ("duration: 20s", "duration: 6s"),
        ("at: 8500ms", "at: 2s"),
        ("at: 15s", "at: 5s"),
    ];
    let text = faster.iter().fold(sample.text.to_owned(), |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replace(old, new)
    });
    place.write("guest.yaml", text);
    let run = place.faultline(["run", "guest.yaml", "--out", "run", "--format", "json"]).output().unwrap();
    let json: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(json["run"]["outcome"], "completed", "{json}");
    assert_eq!(run.status.code(), Some(if passes_but_for_links(&json) { 0 } else { 3 }), "{json}");
    let told = place.faultline(["explain", "run"]).assert().code(0);
    let told = String::from_utf8_lossy(&told.get_output().stdout).into_owned();
    for part in ["nancy joined", "nancy left", "nancy-1 was killed"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn protocols_are_compared_on_real_processes() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let compare = |more: &[&str]| {
        let base = ["compare", "small.yaml", "--backend", "local", "--out", "out"];
        place.faultline(base.into_iter().chain(more.iter().copied())).assert()
    };
    compare(&["--jobs", "2"]).code(2).stderr(contains("`--jobs` has no effect on real processes"));
    let protocols = ["--protocols", "chandyLamport,hydee,none", "--seeds", "1", "--format", "json"];
    let told = compare(&protocols);
    let told = told.get_output();
    let json: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(json["backend"], "local");
    // On a busy machine, no link may be as requested.
    let passes = |row: usize, side: &str| json["protocols"][row][side]["pass"].as_u64().unwrap() > 0;
    let is_judged = ["withoutFaults", "withFaults"].iter().all(|side| passes(0, side) || passes(1, side));
    assert_eq!(told.status.code(), Some(if is_judged { 0 } else { 3 }), "{json}");
    let unprotected = json["unprotectedSeconds"]["mean"].as_f64();
    assert!(unprotected.is_some_and(|it| it > 1.0), "{json}");
    let back = |row: usize| json["protocols"][row]["quantities"]["rolledBackPercent"]["mean"].as_f64();
    assert_eq!((back(0), back(1)), (Some(100.0), Some(50.0)), "{json}");
    assert!(std::fs::read_to_string(place.path("out/index.html")).unwrap().contains("on real processes"));
    // The records are kept.
    place.faultline(["check", "out/processes/hydee-with-faults-3", "-q"]).assert().code(&[0, 3][..]);
    for name in ["chandyLamport", "none", "reference"] {
        assert!(
            place.path(&format!("out/processes/{name}-without-faults-3/manifest.json")).exists(),
            "{name}"
        );
    }
    // The runs of the reference are not those of `none`, so their durations differ.
    let overhead = json["protocols"][2]["quantities"]["overheadPercent"]["mean"].as_f64();
    assert!(overhead.is_some_and(|it| it != 0.0), "{json}");
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn an_interrupted_run_is_recorded_up_to_its_end_and_leaves_no_process_behind() {
    let place = TestDirectory::new();
    place.write("long.yaml", small("").replace("steps: 60", "steps: 10000"));
    let mut run = begin(&place, "long.yaml");
    assert!(place.processes().len() > 1, "the run has started its processes");
    signal(&run, "INT");
    let status = run.wait().unwrap();
    assert_eq!(status.code(), Some(3));
    assert_eq!(place.processes(), [] as [String; 0]);
    place
        .faultline(["check", "run"])
        .assert()
        .code(3)
        .stdout(contains("UNKNOWN").and(contains("interrupted")));
    // Commands that do not print the verdict warn that later facts are missing.
    let warned =
        || contains("this run was interrupted after").and(contains("later facts and messages are missing"));
    for format in ["csv", "jsonl", "graph"] {
        place.faultline(["export", "run", "--format", format]).assert().code(0).stderr(warned());
    }
    place.faultline(["cluster", "run"]).assert().code(0).stderr(warned());
}

#[test]
fn a_run_that_is_killed_leaves_no_process_behind() {
    let place = TestDirectory::new();
    place.write("long.yaml", small("").replace("steps: 60", "steps: 10000"));
    let mut run = begin(&place, "long.yaml");
    signal(&run, "KILL");
    run.wait().unwrap();
    place.wait_until_empty();
    place.faultline(["check", "run"]).assert().code(3).stdout(contains("UNKNOWN"));
}

#[test]
fn a_run_whose_disk_is_full_ends_with_the_reason_and_is_judged() {
    let place = TestDirectory::new();
    let long = small("").replace("steps: 60", "steps: 10000").replace("64KiB", "512KiB");
    place.write("long.yaml", long);
    std::fs::create_dir(place.path("disk")).unwrap();
    // A disk of a few MiB in its own mount namespace, which disappears when the shell exits.
    let within = |script: &str| {
        let mut command = assert_cmd::Command::new("unshare");
        command
            .current_dir(place.dir())
            .args(["--map-root-user", "--mount", "sh", "-c"])
            .arg(format!("mount -t tmpfs -o size=6m none disk || exit 99; {script}"));
        command.env("NO_COLOR", "1").env("FAULTLINE", env!("CARGO_BIN_EXE_faultline"));
        command.output()
    };
    if !within("exit 0").is_ok_and(|it| it.status.success()) {
        eprintln!("SKIPPED: no disk can be mounted here (requires root or user namespaces)");
        return;
    }
    let script = "$FAULTLINE run long.yaml -q --out disk/run; echo \"run: $?\"; $FAULTLINE check disk/run; echo \"check: $?\"; $FAULTLINE explain disk/run";
    let run = within(script).unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(out.contains("run: 3") && out.contains("check: 3") && out.contains("UNKNOWN"), "{out}{err}");
    for claim in ["after 0 ns", " due.", "violation", "There were no failures", "had not delivered"] {
        assert!(!out.contains(claim), "{claim}: {out}");
    }
    assert!(out.contains("The record shows"), "{out}");
    for part in ["the disk is full", "disk/run", "free some space", "--out"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert!(!err.contains("WARN") && !err.contains('\u{1b}'), "{err}");
    assert!(err.lines().count() < 12, "{err}");
    assert_eq!(place.processes(), [] as [String; 0]);
}

/// Starts a run, and waits until its application has started.
fn begin(place: &TestDirectory, file: &str) -> Child {
    let mut run = Command::new(env!("CARGO_BIN_EXE_faultline"))
        .current_dir(place.dir())
        .args(["run", file, "--out", "run"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(run.stdout.take().unwrap());
    let begun = out.lines().any(|line| line.unwrap().contains("the application starts"));
    assert!(begun, "the run ended before its application started");
    run
}
