//! Tests the search for violations from the user's point of view.

use std::fs;

use crate::common::{TestDirectory, says};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

fn json(output: &[u8]) -> Value {
    serde_json::from_slice(output).unwrap()
}

#[test]
fn the_reported_coverage_of_a_search_does_not_depend_on_the_number_of_jobs() {
    let place = TestDirectory::new();
    let search = |jobs| {
        let arguments = ["fuzz", "--runs", "25", "--seed", "100", "--jobs", jobs, "--format", "json"];
        let mut report = json(&place.faultline(arguments).assert().code(0).get_output().stdout);
        assert_eq!(report["coverage"]["repeated"], 25);
        assert!(report["runsPerSecond"].as_f64().unwrap() > 0.0);
        for varying in ["seconds", "runsPerSecond", "jobs"] {
            report[varying] = Value::Null;
        }
        report
    };
    assert_eq!(search("1"), search("2"));
    assert!(!place.path("faultline-runs").exists(), "nothing was found, and nothing written");
}

#[test]
fn a_search_that_runs_out_of_seeds_is_unknown_and_reports_its_schedules() {
    let place = TestDirectory::new();
    let search = |seed: &str, runs: &str, code| {
        let arguments = ["fuzz", "--seed", seed, "--runs", runs, "--twice", "0", "--format", "json"];
        json(&place.faultline(arguments).assert().code(code).get_output().stdout)
    };
    // Seeds can exceed 32 bits.
    let report = search("4294967290", "20", 0);
    assert_eq!((&report["coverage"]["runs"], &report["verdict"]), (&20.into(), &"pass".into()), "{report}");
    assert_eq!(report["firstSeed"], 4_294_967_290_u64);
    let report = search("18446744073709551610", "20", 3);
    assert_eq!((&report["coverage"]["runs"], &report["verdict"]), (&6.into(), &"unknown".into()), "{report}");
    let reason = "the search ended after 6 of 20 schedules: 18446744073709551615 is the last seed; use a smaller \
                  `--seed`";
    assert_eq!(report["reason"], reason, "{report}");
    let arguments = ["fuzz", "--seed", "18446744073709551615", "--for", "1h", "--twice", "0"];
    place
        .faultline(arguments)
        .assert()
        .code(3)
        .stdout(contains("UNKNOWN").and(says("the search ended after 1 schedule:")));
    // All requested schedules ran, including the one with the last seed.
    let report = search("18446744073709551610", "6", 0);
    assert_eq!((&report["coverage"]["runs"], &report["reason"]), (&6.into(), &Value::Null), "{report}");
}

#[test]
fn a_search_that_reaches_its_memory_limit_is_unknown_and_names_the_option() {
    let place = TestDirectory::new();
    // Only slightly more memory than the program uses before its first schedule.
    let limit = ["--jobs", "1", "--memory", "12MiB"];
    let search = ["fuzz", "--runs", "30"];
    let told = contains("UNKNOWN")
        .and(says(
            "schedules reached the memory limit (first: the program reached its memory limit, 12 MiB, with ",
        ))
        .and(says(" for everything else, such as the states of processes"))
        .and(says("); use a larger `--memory`"));
    place.faultline(search.into_iter().chain(limit)).assert().code(3).stdout(told);
    assert!(!place.path("faultline-runs").exists(), "nothing was found");
    let table = ["fuzz", "--table", "--defect", "no-drain", "--runs", "30"];
    let told = contains("reached the memory limit").and(contains("use a larger `--memory`"));
    place.faultline(table.into_iter().chain(limit)).assert().code(3).stderr(told);
}

#[test]
fn the_verdict_is_the_last_line_and_coverage_is_printed_on_request() {
    let place = TestDirectory::new();
    let search = ["fuzz", "--runs", "5", "--twice", "0"];
    let said = |more: &[&str]| {
        let done = place.faultline(search.iter().chain(more).copied()).assert().code(0);
        String::from_utf8(done.get_output().stdout.clone()).unwrap()
    };
    for (more, is_long) in [(&["-v"][..], true), (&[], false), (&["-q"], false)] {
        let text = said(more);
        assert!(text.lines().all(|it| it.chars().count() <= 100), "{text}");
        let verdict = text.lines().rev().find(|it| !it.starts_with("   ")).unwrap();
        assert!(verdict.starts_with(" PASS  5 runs from seed 0"), "{text}");
        assert_eq!(
            (text.contains("cascading rollbacks"), text.lines().count() > 3),
            (is_long, is_long),
            "{text}"
        );
    }
}

#[test]
fn a_quiet_search_prints_only_the_verdict_and_its_reasons() {
    let place = TestDirectory::new();
    let search = ["fuzz", "--defect", "no-drain", "--runs", "500", "--twice", "0", "--out", "found", "-q"];
    let found = place.faultline(search).assert().code(1);
    let said = String::from_utf8(found.get_output().stdout.clone()).unwrap();
    assert!(said.starts_with(" FAIL  ") && said.contains("recorded in found: "), "{said}");
    assert!(said.lines().count() < 12 && !said.contains("Smallest run"), "{said}");
}

#[test]
fn a_violation_names_tasks_like_the_transcript_below_it() {
    let place = TestDirectory::new();
    let arguments =
        ["fuzz", "--defect", "tic-receipt-at-merge", "--runs", "20", "--jobs", "1", "--out", "found"];
    let search = place.faultline(arguments).assert();
    let text = String::from_utf8(search.code(1).get_output().stdout.clone()).unwrap();
    let (_, named) =
        text.split_once("acknowledged the result of ").expect("the output names the early acknowledgement");
    let (task, rest) = named.split_once(' ').unwrap();
    assert!(task.starts_with('t') && text.contains(&format!("runs {task}")), "{task}: {text}");
    let (_, theft) = rest.split_once("was durable (theft ").expect("the output names the theft");
    assert!(theft.contains(" by ") && theft.contains(" in life "), "{text}");
}

#[test]
fn unknown_protocols_and_defects_are_explained() {
    let place = TestDirectory::new();
    place
        .faultline(["fuzz", "--defect", "no-brain"])
        .assert()
        .code(2)
        .stderr(contains("unknown defect `no-brain`"));
    place
        .faultline(["fuzz", "--protocol", "paxos"])
        .assert()
        .code(2)
        .stderr(contains("use one of: hc3i, hydee"));
    for arguments in [["fuzz", "--protocol", "hidee"], ["errata", "--out=x", "hidee"]] {
        place.faultline(arguments).assert().code(2).stderr(contains("did you mean `hydee`?"));
    }
    place.faultline(["errata", "paxos"]).assert().code(2).stderr(contains("use one of: hc3i"));
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn a_known_defect_is_found_shrunk_and_reproduced() {
        let place = TestDirectory::new();
        let arguments =
            ["fuzz", "--defect", "resend-greater", "--runs", "50", "--jobs", "1", "--out", "found"];
        let search = place.faultline(arguments).assert();
        search.code(1).stdout(
            contains("every sent message was delivered").and(contains("FAULT 0")).and(contains("run again")),
        );
        let picture = fs::read_to_string(place.path("found/diagram.svg")).unwrap();
        assert!(picture.starts_with("<svg") && picture.contains("</svg>"));
        place.faultline(["check", "found"]).assert().code(1);
        let file = "found/federation.yaml";
        let again = place.faultline(["fuzz", "--file", file, "--defect", "resend-greater"]).assert().code(1);
        let transcript = fs::read_to_string(place.path("found/transcript.txt")).unwrap();
        again.stdout(contains(transcript));
        // The correct protocol passes with the same file.
        place.faultline(["run", file, "--backend", "simulate", "--out", "sound", "-q"]).assert().code(0);
    }
}
