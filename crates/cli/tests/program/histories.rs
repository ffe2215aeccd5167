//! `faultline check --history`.

use predicates::prelude::*;
use predicates::str::contains;

use crate::common::TestDirectory;

/// A register that has the value 1 and then 2, and what a client reads afterwards.
fn read_after_two_writes(read: u32) -> String {
    let lines = [
        (0, "invoke", "write", "1"),
        (0, "ok", "write", "1"),
        (1, "invoke", "write", "2"),
        (1, "ok", "write", "2"),
        (2, "invoke", "read", "null"),
        (2, "ok", "read", &read.to_string()),
    ];
    let line = |(time, (process, kind, name, value)): (usize, &(u32, &str, &str, &str))| {
        format!(
            r#"{{"process":{process},"type":"{kind}","f":"{name}","key":"k","value":{value},"time":{time}}}"#
        ) + "\n"
    };
    lines.iter().enumerate().map(line).collect()
}

#[test]
fn the_exit_status_tells_how_a_history_was_judged() {
    let place = TestDirectory::new();
    let history = read_after_two_writes(2);
    let check = |text: &str, level: &[&str]| {
        place.write("history.jsonl", text);
        let words = ["check", "--history", "history.jsonl", "--model", "register"];
        place.faultline(words).args(level).assert()
    };
    check(&history, &[]).code(0).stdout(contains(" PASS  history.jsonl: 3 operations of 3 clients"));
    let stale = read_after_two_writes(1);
    let drawn = contains("read → 1").and(contains("does not contradict: session"));
    check(&stale, &[]).code(1).stdout(contains("stale: ").and(drawn));
    check(&stale, &["--level", "session"]).code(0);
    // Without an answer to any read, nothing can be judged.
    let unanswered = history.replace(r#"{"process":2,"type":"ok""#, r#"{"process":2,"type":"info""#);
    check(&unanswered, &[]).code(3).stdout(contains(" UNKNOWN ").and(contains("help: ")));
    check(&history, &["--level", "strict"]).code(2).stderr(contains("has no level `strict`"));
    let torn = history.replace("\"key\":\"k\",\"value\":2", "\"key\":\"k\",\"value\":");
    check(&torn, &[]).code(2).stderr(contains("history.jsonl, line 3").and(contains("help: ")));
}

#[test]
fn each_line_of_a_judgement_fits_into_100_columns() {
    let place = TestDirectory::new();
    let name = "a-key-with-a-rather-long-name ".repeat(5);
    place.write("long.jsonl", read_after_two_writes(1).replace("\"k\"", &format!("{name:?}")));
    let words = ["check", "--history", "long.jsonl", "--model", "register"];
    let judged = place.faultline(words).assert().code(1);
    let text = String::from_utf8(judged.get_output().stdout.clone()).unwrap();
    let widest = text.lines().map(|it| it.chars().count()).max();
    assert!(widest <= Some(100), "{text}");
}
