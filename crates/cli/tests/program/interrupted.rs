//! Tests that interrupted work shows its results so far and, when resumed, continues where it stopped.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use crate::common::{CRASH, TestDirectory, signal, small, wait_until};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

const SIGINT: u32 = 2;
const SIGTERM: u32 = 15;

/// Starts the command without waiting for it.
fn begun(place: &TestDirectory, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultline"));
    command.current_dir(place.dir()).args(arguments).env("NO_COLOR", "1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Interrupts the command when its journal has at least `lines` lines, and waits until the command exits.
fn interrupted(place: &TestDirectory, arguments: &[&str], journal: &str, lines: usize) -> Output {
    let child = begun(place, arguments);
    let written = || fs::read_to_string(place.path(journal)).map_or(0, |it| it.lines().count());
    wait_until(|| written() >= lines, || format!("{journal} does not get {lines} lines"));
    signal(&child, "INT");
    child.wait_with_output().unwrap()
}

/// Returns whether the process handles interrupts and termination signals itself, according to its signal mask in
/// `/proc`. It installs the handlers one after the other.
fn handles_interrupts(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    // The lowest bit stands for signal 1.
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    [SIGINT, SIGTERM].iter().all(|signal| mask & (1 << (signal - 1)) != 0)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn one_signal_ends_a_simulation_whose_events_take_long_and_keeps_its_record() {
    let place = TestDirectory::new();
    // The search takes hours, and a thousand of its tasks take minutes.
    place.write(
        "search.yaml",
        "apiVersion: faultline.dev/v1alpha1\nkind: Federation\nmetadata: { name: search }\nspec:\n  \
         clusters: [{ name: paris, nodes: 2 }]\n  protocol: { tic: {} }\n  \
         application: { nQueens: { n: 18, depth: 4, taskTime: 1ms } }\n",
    );
    let child = begun(&place, &["run", "search.yaml", "--backend", "simulate", "--out", "record"]);
    wait_until(|| handles_interrupts(&child), || "the run does not handle interrupts".to_owned());
    signal(&child, "TERM");
    let cut = child.wait_with_output().unwrap();
    let said = text(&cut.stdout);
    assert_eq!(cut.status.code(), Some(3), "{said} {}", text(&cut.stderr));
    assert!(said.contains("UNKNOWN") && said.contains("the run was interrupted"), "{said}");
    let record = place.faultline(["check", "record"]).assert().code(3);
    record.stdout(contains("the run was interrupted").and(contains("incomplete").not()));
}

#[test]
fn a_resumed_comparison_equals_an_uninterrupted_one() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let arguments = |out: &'static str| {
        ["compare", "small.yaml", "--protocols", "hc3i,hydee", "--seeds", "12", "--jobs", "1", "--out", out]
    };
    let cut = interrupted(&place, &arguments("cut"), "cut/runs.jsonl", 4);
    let said = text(&cut.stderr);
    assert_eq!(cut.status.code(), Some(3), "{said}");
    assert!(said.contains("runs are missing; to continue, run the same command with `--resume`"), "{said}");
    assert!(text(&cut.stdout).contains("because the comparison was interrupted"), "{}", text(&cut.stdout));
    assert!(place.path("cut/index.html").exists());
    let refused = || contains("already contains results").and(contains("--resume"));
    place.faultline(arguments("cut")).assert().code(2).stderr(refused());
    place.write("other.yaml", small(""));
    let other = ["compare", "other.yaml", "--out", "cut", "--resume"];
    place.faultline(other).assert().code(2).stderr(contains("it belongs to another comparison"));
    let again = || arguments("cut").into_iter().chain(["--resume"]);
    let resumed = place.faultline(again()).assert().code(0);
    let whole = place.faultline(arguments("whole")).assert().code(0);
    let told = |output: &Output| text(&output.stdout).replace("cut/index.html", "whole/index.html");
    assert_eq!(told(resumed.get_output()), told(whole.get_output()));
    // The results are complete now, but another comparison still must not replace them.
    place.faultline(["compare", "other.yaml", "--out", "cut"]).assert().code(2).stderr(refused());
    assert_eq!(told(resumed.get_output()), told(place.faultline(again()).assert().code(0).get_output()));
    // Records that were deleted are made again; the results remain the same.
    let results = fs::read_to_string(place.path("cut/runs.jsonl")).unwrap();
    let report = "cut/records/hydee-with-faults/report.html";
    fs::remove_dir_all(place.path("cut/records/hydee-with-faults")).expect("the record exists");
    assert_eq!(told(resumed.get_output()), told(place.faultline(again()).assert().code(0).get_output()));
    assert!(place.path(report).exists());
    assert_eq!(fs::read_to_string(place.path("cut/runs.jsonl")).unwrap(), results);
}

#[test]
fn a_search_continues_with_the_next_schedule() {
    let place = TestDirectory::new();
    let kept = "faultline-runs/fuzz-hc3i-7.interrupted";
    let fuzz = |runs: &str, more: &[&'static str]| {
        let fixed =
            ["fuzz", "--protocol", "hc3i", "--seed", "7", "--jobs", "1", "--twice", "0", "--format", "json"];
        let mut all: Vec<String> = fixed.iter().chain(more).map(|it| (*it).to_owned()).collect();
        all.extend(["--runs".to_owned(), runs.to_owned()]);
        all
    };
    let arguments = fuzz("1000000", &[]);
    let child = begun(&place, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    wait_until(|| handles_interrupts(&child), || "the search does not handle interrupts".to_owned());
    signal(&child, "INT");
    let cut = child.wait_with_output().unwrap();
    assert_eq!(cut.status.code(), Some(3), "{}", text(&cut.stderr));
    assert!(text(&cut.stderr).contains(kept), "{}", text(&cut.stderr));
    let coverage = |output: &[u8]| serde_json::from_slice::<Value>(output).unwrap()["coverage"].clone();
    let done = coverage(&cut.stdout)["runs"].as_u64().unwrap();
    let runs = (done + 10).to_string();
    let search = |more: &[&'static str]| {
        let arguments = fuzz(&runs, more);
        let assert = place.faultline(arguments.iter().map(String::as_str)).assert().code(0);
        coverage(&assert.get_output().stdout)
    };
    assert_eq!(search(&["--resume"]), search(&[]));
    assert!(!place.path(kept).exists(), "the search is complete");
    place
        .faultline(["fuzz", "--resume", "--runs", "1"])
        .assert()
        .code(2)
        .stderr(contains("search has these arguments"));
}

#[test]
fn a_killed_search_continues_from_its_last_saved_state() {
    let place = TestDirectory::new();
    let kept = "faultline-runs/fuzz-hc3i-7.interrupted";
    let fuzz = ["fuzz", "--protocol", "hc3i", "--seed", "7", "--runs", "100000000"];
    let mut child = begun(&place, &fuzz);
    wait_until(|| place.path(kept).exists(), || "the search is not kept".to_owned());
    child.kill().unwrap();
    child.wait().unwrap();
    let state = || serde_json::from_slice::<Value>(&fs::read(place.path(kept)).unwrap()).unwrap();
    let runs = |coverage: &Value| coverage["runs"].as_u64().unwrap();
    let before = runs(&state()[1]);
    // Numbers that no search can reach are refused, and so is a file that is not one.
    let whole = fs::read_to_string(place.path(kept)).unwrap();
    let number = format!("\"runs\":{before}");
    for (from, to) in [
        (&*number, format!("\"runs\":{}", before - 1)),
        (&*number, format!("\"runs\":{}", u64::MAX)),
        ("\"pass\":{", "\"fail\":{".to_owned()),
        ("\"completed\":", format!("\"completed\":{}", u64::MAX)),
    ] {
        assert!(whole.contains(from), "{from}: {whole}");
        place.write(kept, whole.replacen(from, &to, 1));
        let resumed = place.faultline(fuzz.into_iter().chain(["--resume"])).assert().code(2);
        resumed.stderr(contains("cannot continue from"));
    }
    fs::remove_file(place.path(kept)).unwrap();
    assert!(Command::new("mkfifo").arg(place.path(kept)).status().unwrap().success());
    let resumed = place.faultline(fuzz.into_iter().chain(["--resume"])).assert().code(2);
    resumed.stderr(contains("it is not a"));
    fs::remove_file(place.path(kept)).unwrap();
    place.write(kept, whole);
    let child = begun(&place, &[&fuzz[..], &["--format", "json", "--resume"]].concat());
    wait_until(|| runs(&state()[1]) > before, || "the search does not continue".to_owned());
    signal(&child, "TERM");
    let cut = child.wait_with_output().unwrap();
    assert_eq!(cut.status.code(), Some(3), "{}", text(&cut.stderr));
    let report: Value = serde_json::from_slice(&cut.stdout).unwrap();
    assert_eq!(report["runsBefore"], before);
    assert!(runs(&report["coverage"]) > before, "{report}");
}

#[test]
fn a_reproduction_shows_what_is_complete_and_repeats_nothing() {
    let place = TestDirectory::new();
    let arguments = ["reproduce", "hc3i", "--quick", "--seeds", "1", "--jobs", "1", "--out", "out"];
    let journal = "out/runs.jsonl";
    let runs = || {
        let text = fs::read_to_string(place.path(journal)).unwrap();
        let run = |line: &str| {
            let run: Value = serde_json::from_str(line).unwrap();
            (run["setting"].to_string(), run["seed"].to_string())
        };
        text.lines().skip(1).map(run).collect::<Vec<_>>()
    };
    let cut = interrupted(&place, &arguments, journal, 5);
    assert_eq!(cut.status.code(), Some(3), "{}", text(&cut.stderr));
    let before = runs();
    let page = fs::read_to_string(place.path("out/index.html")).unwrap();
    assert!(page.contains("Interrupted") && page.contains("<section id=\"messages\">"), "{page}");
    assert!(!page.contains("<section id=\"replicas\">"), "that experiment was not reached");
    let resume: Vec<&str> = arguments.into_iter().chain(["--resume"]).collect();
    let again = interrupted(&place, &resume, journal, before.len() + 3);
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
    let after = runs();
    assert_eq!(after[..before.len()], before[..]);
    assert!(after.len() > before.len());
    assert_eq!(after.iter().collect::<BTreeSet<_>>().len(), after.len(), "nothing was run again: {after:?}");
}

#[test]
fn a_search_interrupted_while_it_shrinks_keeps_the_smallest_run_so_far() {
    let place = TestDirectory::new();
    let kept = "faultline-runs/fuzz-sel-no-query-0.interrupted";
    let fuzz = ["fuzz", "--defect", "sel-no-query", "--runs", "50", "--jobs", "1", "--out", "found"];
    let child = begun(&place, &fuzz);
    // The search writes its state when it has found a violation.
    wait_until(|| place.path(kept).exists(), || "no violation is found".to_owned());
    signal(&child, "TERM");
    let cut = child.wait_with_output().unwrap();
    assert_eq!(cut.status.code(), Some(1), "a violation was found: {}", text(&cut.stderr));
    assert!(
        text(&cut.stdout).contains("Smallest run found before the interruption"),
        "{}",
        text(&cut.stdout)
    );
    assert!(text(&cut.stderr).contains("to find the violation again"), "{}", text(&cut.stderr));
    place.faultline(["check", "found", "-q"]).assert().code(1);
    let size = || fs::read_to_string(place.path("found/transcript.txt")).unwrap().lines().count();
    let before = size();
    let resumed = place.faultline(fuzz.into_iter().chain(["--resume"])).assert().code(1);
    resumed.stdout(contains("Smallest run found that violates it"));
    assert!(size() < before, "{} {before}", size());
    assert!(!place.path(kept).exists(), "the search is complete");
}

#[test]
fn an_interrupted_table_has_the_rows_so_far() {
    let place = TestDirectory::new();
    let mut child =
        begun(&place, &["fuzz", "--table", "--protocol", "hydee", "--runs", "100", "--twice", "0"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.find(|it| it.starts_with("| `hydee-")).expect("the table has a first row");
    signal(&child, "TERM");
    let rows = 1 + lines.filter(|it| it.starts_with("| `hydee-")).count();
    let cut = child.wait_with_output().unwrap();
    assert_eq!(cut.status.code(), Some(3), "{}", text(&cut.stderr));
    let told = format!("interrupted: the table has {rows} of ");
    assert!(text(&cut.stderr).contains(&told), "{first} {}", text(&cut.stderr));
}

#[test]
fn an_evaluation_interrupted_on_real_processes_writes_a_page_with_what_is_missing() {
    for arguments in [
        &["reproduce", "hydee", "--quick", "--out", "out"][..],
        &["reproduce", "hc3i", "--quick", "--seeds", "1", "--with-processes", "--out", "out"],
    ] {
        let place = TestDirectory::new();
        let child = begun(&place, arguments);
        let runs = || fs::read_dir(place.path("out/processes")).is_ok_and(|mut it| it.next().is_some());
        wait_until(runs, || "no run on real processes begins".to_owned());
        signal(&child, "INT");
        let cut = child.wait_with_output().unwrap();
        let said = text(&cut.stderr);
        assert_eq!(cut.status.code(), Some(3), "{said}");
        assert!(
            said.contains("runs are missing; to continue, run the same command with `--resume`"),
            "{said}"
        );
        let page = fs::read_to_string(place.path("out/index.html")).unwrap();
        assert!(page.contains("Interrupted: ") && page.contains("runs missing"), "{page}");
        assert!(place.path("out/runs.jsonl").exists(), "the journal is kept");
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn an_interrupted_page_of_errata_continues_with_the_counterexample_that_it_shrinks() {
        let place = TestDirectory::new();
        let arguments = ["errata", "hydee", "--runs", "20", "--jobs", "1", "--out", "page"];
        let journal = || -> Vec<Value> {
            let text = fs::read_to_string(place.path("page/runs.jsonl")).unwrap_or_default();
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole.lines().skip(1).map(|it| serde_json::from_str(it).unwrap()).collect()
        };
        let of = |is_shrunk: bool| {
            journal().into_iter().find(|it| it["isShrunk"] == is_shrunk && it["detection"]["seeds"].is_u64())
        };
        let child = begun(&place, &arguments);
        wait_until(|| of(false).is_some(), || "no counterexample is found".to_owned());
        signal(&child, "TERM");
        let cut = child.wait_with_output().unwrap();
        assert_eq!(cut.status.code(), Some(3), "{}", text(&cut.stderr));
        assert!(text(&cut.stderr).contains("entries incomplete; to continue"), "{}", text(&cut.stderr));
        let before = journal();
        let detection = of(false).unwrap()["detection"].clone();
        let record = format!("page/{}", detection["defect"].as_str().unwrap());
        let page = fs::read_to_string(place.path("page/errata.html")).unwrap();
        assert!(page.contains("The search for a smaller counterexample was interrupted."));
        place.faultline(["check", &record, "-q"]).assert().code(1);
        let resume: Vec<&str> = arguments.into_iter().chain(["--resume"]).collect();
        let child = begun(&place, &resume);
        wait_until(|| of(true).is_some(), || "the counterexample is not shrunk".to_owned());
        signal(&child, "TERM");
        let again = child.wait_with_output().unwrap();
        assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
        let after = journal();
        assert_eq!(after[..before.len()], before[..]);
        assert_eq!(
            after[before.len()]["detection"],
            detection,
            "the defect is not searched for again: {after:?}"
        );
        place.faultline(["check", &record, "-q"]).assert().code(1);
        let page = fs::read_to_string(place.path("page/errata.html")).unwrap();
        assert!(page.contains(record.trim_start_matches("page/")));
    }
}
