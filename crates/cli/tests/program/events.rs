//! `faultline check --events` and `faultline export --format events`.

use predicates::prelude::*;
use predicates::str::contains;

use crate::common::{CRASH, TestDirectory, says, small};

const FORK: &str = include_str!("../../../session/tests/sessions/logs/torchft-fork.jsonl");

#[test]
fn the_log_of_another_system_is_judged_and_recorded() {
    let place = TestDirectory::new();
    place.write("log.jsonl", FORK);
    let import = ["check", "--events", "log.jsonl", "--mapping", "torchft", "--out", "run"];
    let disagree = says("a and b committed checkpoint 11 in different attempts");
    let not_judged = says("(the events contain no evidence about them)")
        .and(contains("faults were planned").not())
        .and(contains("ranks finished").not());
    let judged = place.faultline(import).assert().code(1);
    judged
        .stdout(contains("torchft: 3 processes, events from log.jsonl"))
        .stdout(disagree.and(not_judged).and(contains("The run is recorded in run")));
    place.faultline(["check", "run"]).assert().code(1).stdout(contains("events from log.jsonl"));
    place.faultline(["explain", "run"]).assert().code(0).stdout(contains(", c failed.\n"));
    place.faultline(["report", "run"]).assert().code(0);
    let page = std::fs::read_to_string(place.path("run/report.html")).unwrap();
    assert!(page.contains("events from log.jsonl"), "the page names the file");
    place.faultline(import).assert().code(2).stderr(contains("help: "));
    // Without `--out`, nothing is recorded.
    let piped =
        place.faultline(["check", "--events", "-", "--mapping", "torchft"]).write_stdin(FORK).assert();
    piped.code(1).stdout(contains("events from standard input").and(contains("recorded in").not()));
}

#[test]
fn a_violation_that_missing_lines_could_explain_is_shown_but_not_counted() {
    let place = TestDirectory::new();
    place.write("log.jsonl", FORK.replace("\"seq\"", "\"other\""));
    let judged = place.faultline(["check", "--events", "log.jsonl", "--mapping", "torchft"]).assert().code(3);
    judged.stdout(
        says("some events have no number")
            .and(says("not counted: doubtful, because lines may be missing: a and b")),
    );
}

#[test]
fn a_dry_run_shows_the_facts_of_the_first_lines() {
    let place = TestDirectory::new();
    place.write("log.jsonl", format!("starting\n{FORK}"));
    let shown =
        place.faultline(["check", "--events", "log.jsonl", "--mapping", "torchft", "--dry-run"]).assert();
    shown.code(0).stdout(
        contains("line 1: left out: the line is not a JSON object")
            .and(
                contains("line 2: a, life \"7c1e\", number 0, 1716300000").and(contains(": no rule matches")),
            )
            .and(contains(": checkpointCommitted {\"checkpoint_attempt\":5,\"checkpoint_sn\":10}")),
    );
}

#[test]
fn an_exported_run_has_the_same_verdict() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.faultline(["run", "small.yaml", "--backend", "simulate", "--out", "run", "-q"]).assert().code(0);
    let events = place.faultline(["export", "run", "--format", "events"]).output().unwrap().stdout;
    place.write("events.jsonl", &events);
    place.faultline(["check", "--events", "events.jsonl"]).assert().code(0);
    // Without its last line, the log may lack others, too.
    let text = String::from_utf8(events).unwrap();
    let cut = text.trim_end().rsplit_once('\n').unwrap().0;
    place.write("cut.jsonl", cut);
    let cut = place.faultline(["check", "--events", "cut.jsonl", "--out", "again"]).assert().code(3);
    cut.stdout(says("complete the events, and import them again"));
    place.faultline(["check", "again"]).assert().code(3);
}

#[test]
fn malformed_events_are_refused_with_file_line_and_remedy() {
    let place = TestDirectory::new();
    place.write("bad.jsonl", FORK.replacen("\"step\":11", "\"step\":\"x\"", 1));
    let import = ["check", "--events", "bad.jsonl", "--mapping", "torchft", "--out", "run"];
    let refused = place.faultline(import).assert().code(2).stdout("");
    refused.stderr(contains("bad.jsonl, line 10: `checkpoint_sn` must be").and(contains("help: ")));
    assert!(!place.path("run").exists(), "nothing is recorded");
    for (arguments, expected) in [
        (["check", "--events", "nowhere.jsonl", "--mapping", "torchft"], "cannot read nowhere.jsonl"),
        (["check", "--events", "bad.jsonl", "--mapping", "nowhere"], "cannot read nowhere"),
        (["check", "--events", "bad.jsonl", "--mapping", "bad.jsonl"], "bad.jsonl"),
    ] {
        place.faultline(arguments).assert().code(2).stderr(contains(expected).and(contains("help: ")));
    }
    place.faultline(["check", "--out", "run"]).assert().code(2).stderr(contains("--events"));
}
