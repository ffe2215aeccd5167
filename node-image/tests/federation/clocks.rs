//! Machines whose clocks differ, or are set while a federation runs. Each test says that it is skipped if this machine
//! cannot give its programs other clocks.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use faultline_trace::Bundle;

use crate::common::{PROGRAM, Program, SUPERVISOR, Setting};
use crate::{FAULTS, PROCESSES, federation, passes};

/// Where the monotonic clocks of the agents are ahead of the supervisor's, in seconds.
const AHEAD: [(&str, u32); 2] = [("paris-1", 86_400), ("rennes-0", 3600)];

/// Returns a command that runs the program in a time namespace of its own.
fn ahead(seconds: u32) -> Command {
    let mut command = Command::new("unshare");
    let seconds = seconds.to_string();
    command.args(["--time", "--monotonic", &seconds, "--boottime", &seconds, "--fork", "--kill-child"]);
    command.arg(PROGRAM);
    command
}

#[test]
fn faults_are_injected_at_once_on_machines_with_other_monotonic_clocks() {
    if !ahead(1).arg("--version").output().is_ok_and(|it| it.status.success()) {
        // Not captured, unlike the output of a macro.
        return drop(writeln!(std::io::stderr(), "SKIPPED: this user cannot create time namespaces"));
    }
    let setting = Setting::start_by(&federation(FAULTS), &PROCESSES, |name| {
        let ahead_by = AHEAD.iter().find(|it| it.0 == name);
        ahead_by.map_or_else(|| Command::new(PROGRAM), |it| ahead(it.1))
    });
    assert_eq!(setting.put(&setting.places(1)), 200);
    let status = setting.judged();
    passes(&status);
    assert_eq!((status.faults.planned, status.faults.done), (2, 2));
    assert!(status.faults.worst_skew_micros.is_some_and(|skew| skew < 50_000), "{:?}", status.faults);
    assert!(status.links.iter().all(|it| it.measured_micros.is_some()), "{:?}", status.links);
}

/// A library that replaces the wall clock of a program by one that is set by a file.
fn library() -> Option<PathBuf> {
    let directories = fs::read_dir("/usr/lib").ok()?.flatten();
    directories.map(|it| it.path().join("faketime/libfaketimeMT.so.1")).find(|it| it.exists())
}

fn with_wall_clock(library: &Path, setting: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", setting);
    // The file is read every second, and only the wall clock depends on it.
    command.env("FAKETIME_CACHE_DURATION", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

/// While the federation runs, the wall clocks of its machines are set by hours, and its supervisor is killed. The run is
/// resumed, and judged, as if no clock had been set.
#[test]
fn wall_clocks_that_are_set_while_a_federation_runs_change_nothing() {
    let Some(library) = library() else {
        return drop(writeln!(std::io::stderr(), "SKIPPED: libfaketime is not installed"));
    };
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let set = |name: &str, to: &str| fs::write(file(name), to).unwrap();
    for name in PROCESSES.into_iter().chain([SUPERVISOR]) {
        set(name, "+0");
    }
    set(SUPERVISOR, "+2h");
    let mut setting =
        Setting::start_by(&federation(FAULTS), &PROCESSES, |name| with_wall_clock(&library, &file(name)));
    assert_eq!(setting.put(&setting.places(1)), 200);
    setting.wait("the first fault", |it| it.faults.done == 1);
    let manifest = Bundle::open(setting.dir.path().join("out")).read_manifest().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    assert!(
        u128::from(manifest.started_unix_ms) > now + 3_600_000,
        "the clock of the supervisor was not set"
    );
    set(SUPERVISOR, "+0");
    set("paris-0", "-3h");
    set("rennes-1", "+1d");
    setting.wait("the second fault", |it| it.faults.done == 2);
    set(SUPERVISOR, "-2h");
    setting.supervisor.kill();
    setting.supervisor =
        Program::supervisor_by(with_wall_clock(&library, &file(SUPERVISOR)), setting.dir.path());
    assert_eq!(setting.put(&setting.places(2)), 200);
    set("rennes-1", "-1d");
    let status = setting.judged();
    passes(&status);
    assert_eq!((status.faults.planned, status.faults.done), (2, 2), "neither repeated nor lost");
    assert!(status.events.iter().any(|it| it.reason == "SupervisorRestarted"), "{:?}", status.events);
}
