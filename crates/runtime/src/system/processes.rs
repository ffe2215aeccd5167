//! The processes of a node's commands, by an identifier in their environment.
//!
//! An identifier names a run, a process and a life. All programs that a node's process starts, directly or not, have it,
//! whichever session and process group they have moved to. The processes of all nodes of a run can therefore be found,
//! even after the programs that started them have ended.

use std::fs;
use std::io::{self, Read};
use std::thread;
use std::time::Duration;

use faultline_core::{Life, ProcessId};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The environment variable with the identifier.
pub(crate) const VARIABLE: &str = "FAULTLINE_ID";
/// Time between two searches for processes that remain.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
/// The maximum number of such searches. A process that the kernel cannot end yet outlives them.
pub(crate) const MOST_SEARCHES: usize = 1_000;

/// The identifiers of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunId(String);

impl RunId {
    /// Returns an identifier that no other run on this machine has.
    pub(crate) fn generate() -> Result<RunId, getrandom::Error> {
        Ok(RunId(format!("{:016x}", getrandom::u64()?)))
    }

    /// Returns the text that identifies the run.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the identifier of a life.
    pub(crate) fn of_life(&self, process: ProcessId, life: Life) -> String {
        format!("{}-{}-{}", self.0, process.0, life.0)
    }
}

/// Returns the processes whose identifier meets a condition, except `except`.
pub(crate) fn matching(is_it: impl Fn(&str) -> bool, except: &[Pid]) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok()).map(Pid::from_raw);
    let has_id = |pid: &Pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environment.split(|it| *it == 0);
        variables.any(|it| {
            let value = it.strip_prefix(VARIABLE.as_bytes()).and_then(|it| it.strip_prefix(b"="));
            value.and_then(|it| std::str::from_utf8(it).ok()).is_some_and(&is_it)
        })
    };
    pids.filter(|it| !except.contains(it)).filter(has_id).collect()
}

/// Sends a signal to the processes whose identifier meets a condition, except `except`. Returns whether there were any.
pub(crate) fn signal(is_it: impl Fn(&str) -> bool, except: &[Pid], signal: Signal) -> bool {
    let found = matching(is_it, except);
    for pid in &found {
        // A process that has ended in the meantime needs no signal.
        let _ = kill(*pid, signal);
    }
    !found.is_empty()
}

/// Kills all processes of a run once standard input ends, which is when the program that wrote to it has ended.
///
/// # Errors
///
/// Fails if standard input cannot be read.
pub fn guard(run: &str) -> io::Result<()> {
    let ended = io::stdin().lock().read_to_end(&mut Vec::new());
    let prefix = format!("{run}-");
    // A process that starts another one while it is being killed is found in the next search.
    let mut quiet = 0;
    for _ in 0..MOST_SEARCHES {
        quiet = if signal(|it| it.starts_with(&prefix), &[], Signal::SIGKILL) { 0 } else { quiet + 1 };
        if quiet > 2 {
            break;
        }
        thread::sleep(PAUSE);
    }
    ended.map(drop)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeping(id: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").env(VARIABLE, id).stdin(Stdio::null());
        command.spawn().expect("`sleep` starts")
    }

    #[test]
    fn only_processes_with_the_identifier_receive_a_signal() {
        let run = RunId::generate().unwrap();
        let ids = [run.of_life(ProcessId(1), Life(1)), run.of_life(ProcessId(1), Life(11))];
        let mut children = ids.clone().map(|it| sleeping(&it));
        let pid = |it: &Child| Pid::from_raw(it.id().cast_signed());
        // Until it executes its program, a child has the environment of this one.
        for (id, child) in ids.iter().zip(&children) {
            while matching(|it| it == id, &[]) != [pid(child)] {
                thread::sleep(PAUSE);
            }
        }
        assert_eq!(matching(|it| it == ids[0], &[pid(&children[0])]), []);
        assert!(signal(|it| it == ids[0], &[], Signal::SIGKILL));
        assert!(!children[0].wait().unwrap().success());
        assert!(!signal(|it| it == ids[0], &[], Signal::SIGKILL));
        assert!(children[1].try_wait().unwrap().is_none());
        assert!(signal(|it| it.starts_with(run.as_str()), &[], Signal::SIGKILL));
        children[1].wait().unwrap();
    }
}
