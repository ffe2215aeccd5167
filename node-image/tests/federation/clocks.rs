//! Machines with different monotonic clocks. If the current user cannot create time namespaces, the test reports that
//! it is skipped.

use std::io::Write;
use std::process::Command;

use crate::common::{PROGRAM, Setting};
use crate::{FAULTS, PROCESSES, federation, passes};

/// Processes whose monotonic clocks are ahead of the supervisor's, and by how many seconds.
const AHEAD: [(&str, u32); 2] = [("paris-1", 86_400), ("rennes-0", 3600)];

/// Returns a command that runs the program in its own time namespace, with a monotonic clock that is
/// `seconds` ahead.
fn ahead(seconds: u32) -> Command {
    let mut command = Command::new("unshare");
    let seconds = seconds.to_string();
    command.args(["--time", "--monotonic", &seconds, "--boottime", &seconds, "--fork", "--kill-child"]);
    command.arg(PROGRAM);
    command
}

#[test]
fn different_monotonic_clocks_do_not_delay_faults() {
    if !ahead(1).arg("--version").output().is_ok_and(|it| it.status.success()) {
        // Unlike the output of `eprintln!`, this is not captured.
        return drop(writeln!(std::io::stderr(), "SKIPPED: this user cannot create time namespaces"));
    }
    let setting = Setting::start_with(&federation(FAULTS), &PROCESSES, |name| {
        let difference = AHEAD.iter().find(|it| it.0 == name);
        difference.map_or_else(|| Command::new(PROGRAM), |it| ahead(it.1))
    });
    assert_eq!(setting.put(&setting.places(1)), 200);
    let status = setting.judged();
    passes(&status);
    assert_eq!((status.faults.planned, status.faults.done), (2, 2));
    assert!(status.faults.worst_skew_micros.is_some_and(|skew| skew < 50_000), "{:?}", status.faults);
    assert!(status.links.iter().all(|it| it.measured_micros.is_some()), "{:?}", status.links);
}
