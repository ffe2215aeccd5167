//! Tests that a run killed at any moment leaves a record of what had happened, and nothing else.
//!
//! `FAULTLINE_KILLS` is the number of runs (default: 4). `FAULTLINE_KILL_SEED` determines when they are killed
//! (default: different in each test run).

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use predicates::prelude::*;
use predicates::str::contains;

use crate::common::{CRASH, TestDirectory, signal, small};

const SIGNALS: [&str; 3] = ["KILL", "INT", "TERM"];

#[test]
fn a_run_that_is_ended_at_any_moment_leaves_a_record_and_nothing_else() {
    let runs = from_env("FAULTLINE_KILLS").unwrap_or(4);
    let mut seed = from_env("FAULTLINE_KILL_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64
    });
    println!("FAULTLINE_KILL_SEED={seed}");
    let begun = Instant::now();
    assert!(begin(&TestDirectory::new()).wait().unwrap().code().is_some());
    let length = begun.elapsed();
    for run in 0..runs as usize {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = length.mul_f64((seed >> 32) as f64 / f64::from(u32::MAX));
        end(SIGNALS[run % SIGNALS.len()], after);
    }
}

/// Starts a run, sends it a signal after this time, and judges what it leaves behind.
fn end(name: &str, after: Duration) {
    let place = TestDirectory::new();
    let mut run = begin(&place);
    // The run may be in any state at that moment.
    thread::sleep(after);
    signal(&run, name);
    let status = run.wait().unwrap();
    place.wait_until_empty();
    let left = judge(&place, status);
    println!("SIG{name} after {after:.2?}: {status}, {left}");
}

/// Judges what a run has left behind.
fn judge(place: &TestDirectory, status: ExitStatus) -> &'static str {
    let temporary: Vec<_> = fs::read_dir(place.path("tmp")).unwrap().map(|it| it.unwrap().path()).collect();
    assert!(temporary.is_empty(), "temporary files: {temporary:?}");
    let Ok(manifest) = fs::read_to_string(place.path("run/manifest.json")) else {
        assert!(status.signal().is_some(), "the run ended normally and without a record");
        let facts = fs::read_dir(place.path("run/facts")).map_or(0, Iterator::count);
        assert_eq!(facts, 0, "facts of a run that cannot be judged");
        return "nothing was begun";
    };
    let check = place.faultline(["check", "run"]).assert();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    // The signal may arrive after everything was printed.
    if manifest["outcome"].is_null() || manifest["outcome"] == "Interrupted" {
        assert!(status.code().is_none_or(|code| code == 3), "{status}");
        let is_truthful =
            contains("UNKNOWN").and(contains("after 0 ns").not()).and(contains("violation").not());
        check.code(3).stdout(is_truthful);
        if manifest["outcome"].is_null() {
            place.faultline(["explain", "run"]).assert().code(0).stdout(contains(" due.").not());
        }
        return "a part is recorded";
    }
    let judged = check.get_output().status.code();
    assert!(matches!(judged, Some(0 | 3)), "{judged:?}");
    assert!(status.code().is_none_or(|code| Some(code) == judged), "{status}");
    "the whole is recorded"
}

/// Starts a short run with its own directory for temporary files.
fn begin(place: &TestDirectory) -> Child {
    place.write("small.yaml", small(CRASH));
    fs::create_dir(place.path("tmp")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_faultline"))
        .current_dir(place.dir())
        .args(["run", "small.yaml", "--out", "run", "-q"])
        .env("TMPDIR", place.path("tmp"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn from_env(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}
