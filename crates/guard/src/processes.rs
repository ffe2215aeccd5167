//! The processes of a node's commands.
//!
//! They are the descendants of the node's own process, which also adopts those whose parent has ended; the processes with
//! the identifier of the life in their environment; the descendants of these; and all others in their process groups. No
//! single rule finds them all. A program may leave its session and its process group, and some programs overwrite their
//! environment, for example to change their title. After the end of a node's own process, its processes have no common
//! ancestor any more; a file contains the number of the command's process group ([`group_file`]).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultline_core::{Life, ProcessId};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgrp};

/// The environment variable with the identifier.
pub const VARIABLE: &str = "FAULTLINE_ID";
/// The environment variable with the identifier of an attempt: a sample, a check, or the setup of a system.
pub const ATTEMPT_VARIABLE: &str = "FAULTLINE_ATTEMPT";
/// The number of numbers of processes that are looked up one by one.
const FEW: i32 = 2_000;
/// The files whose last word is the number of the newest process. Not every kernel has the first one, and some
/// containers replace the second.
const NEWEST: [&str; 2] = ["/proc/sys/kernel/ns_last_pid", "/proc/loadavg"];
/// Time between two searches for processes that remain.
pub const PAUSE: Duration = Duration::from_millis(2);
/// The maximum number of such searches. A process that the kernel cannot end yet outlives them.
pub const MOST_SEARCHES: usize = 1_000;

/// The identifiers of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunId(String);

impl RunId {
    /// Returns an identifier that no other run on this machine has.
    ///
    /// # Errors
    ///
    /// Fails if the kernel provides no random bytes.
    pub fn generate() -> Result<RunId, getrandom::Error> {
        Ok(RunId(format!("{:016x}", getrandom::u64()?)))
    }

    /// Returns the text that identifies the run.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the identifier of the programs that are protocols or applications.
    pub fn of_programs(&self) -> String {
        format!("{}-programs", self.0)
    }

    /// Returns the identifier of a life.
    pub fn of_life(&self, process: ProcessId, life: Life) -> String {
        format!("{}-{}-{}", self.0, process.0, life.0)
    }
}

/// A process that runs.
#[derive(Debug)]
struct Running {
    pid: Pid,
    parent: Pid,
    group: Pid,
}

impl Running {
    /// Reads the state of a process; `None` if it has ended.
    fn read(pid: Pid) -> Option<Running> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain spaces and parentheses.
        let mut words = text.rsplit_once(')')?.1.split_whitespace();
        let state = words.next()?;
        let mut number = || words.next()?.parse().ok().map(Pid::from_raw);
        let (parent, group) = (number()?, number()?);
        (!matches!(state, "Z" | "X")).then_some(Running { pid, parent, group })
    }
}

/// The processes of this machine that ran at one moment.
#[derive(Debug)]
pub struct Processes(Vec<Running>);

impl Processes {
    /// Returns all processes.
    pub fn all() -> Processes {
        let Ok(entries) = fs::read_dir("/proc") else { return Processes(Vec::new()) };
        let pids = entries.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok()).map(Pid::from_raw);
        Processes(pids.filter_map(Running::read).collect())
    }

    /// Returns `first` and the processes that were started after it, and possibly others. The kernel numbers processes
    /// in the order of their start, so few files have to be read if `first` has started recently.
    pub fn started_since(first: Pid) -> Processes {
        let last = |file: &&str| fs::read_to_string(file).ok()?.split_whitespace().last()?.parse().ok();
        match NEWEST.iter().find_map(last) {
            // Otherwise, the numbers have begun again.
            Some(newest) if (first.as_raw()..first.as_raw().saturating_add(FEW)).contains(&newest) => {
                let pids = (first.as_raw()..=newest).map(Pid::from_raw);
                Processes(pids.filter_map(Running::read).collect())
            }
            _ => Processes::all(),
        }
    }

    /// Returns the processes that meet a condition.
    pub fn matching(&self, is_it: impl Fn(Pid) -> bool) -> BTreeSet<Pid> {
        self.0.iter().map(|it| it.pid).filter(|it| is_it(*it)).collect()
    }

    /// Returns the children of a process.
    pub fn children_of(&self, parent: Pid) -> impl Iterator<Item = Pid> {
        self.0.iter().filter(move |it| it.parent == parent).map(|it| it.pid)
    }

    /// Returns the process group of a process; `None` if the process did not run.
    pub fn group_of(&self, process: Pid) -> Option<Pid> {
        self.0.iter().find(|it| it.pid == process).map(|it| it.group)
    }

    /// Adds the descendants of processes to them.
    pub fn with_descendants(&self, mut of: BTreeSet<Pid>) -> BTreeSet<Pid> {
        loop {
            let more = self.0.iter().filter(|it| of.contains(&it.parent)).map(|it| it.pid);
            let more: Vec<Pid> = more.collect();
            let before = of.len();
            of.extend(more);
            if of.len() == before {
                return of;
            }
        }
    }
}

/// Returns whether a process is running.
pub fn is_running(process: Pid) -> bool {
    Running::read(process).is_some()
}

/// Returns the name of a process, as the kernel knows it; `None` if it has ended.
pub fn name_of(process: Pid) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// The unit of the kernel's processor times, on every architecture that Faultline supports.
const TICK: Duration = Duration::from_millis(10);

/// Returns the processor time of processes, including that of children that they have waited for.
pub fn processor_time(of: &[Pid]) -> Duration {
    let ticks = |pid: &Pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The first word after the name is the third field. The times are fields 14 to 17.
        let words = text.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
        words.map(|it| it.parse::<u32>().ok()).sum::<Option<u32>>()
    };
    of.iter().filter_map(ticks).map(|it| TICK * it).sum()
}

/// Returns whether the environment of a process contains a variable with a value that meets a condition.
fn has_variable(process: Pid, name: &str, is_it: impl Fn(&str) -> bool) -> bool {
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    environment.split(|it| *it == 0).any(|it| {
        let value = it.strip_prefix(name.as_bytes()).and_then(|it| it.strip_prefix(b"="));
        value.and_then(|it| std::str::from_utf8(it).ok()).is_some_and(&is_it)
    })
}

/// Returns whether the environment of a process contains a variable with this value.
pub fn has(process: Pid, name: &str, value: &str) -> bool {
    has_variable(process, name, |it| it == value)
}

/// Returns whether a process has no environment, or none that can be read, because the process is executing another program.
pub fn is_without_environment(process: Pid) -> bool {
    fs::read(format!("/proc/{process}/environ")).is_ok_and(|it| it.is_empty())
}

/// Returns whether the environment of a process says that it belongs to an attempt.
pub fn is_of_attempt(process: Pid) -> bool {
    has_variable(process, ATTEMPT_VARIABLE, |_| true)
}

/// Returns the processes of commands: those that `nodes`, the own processes of nodes, started, and those whose identifier
/// meets a condition. Omits `nodes`.
pub fn matching(is_it: impl Fn(&str) -> bool, nodes: &[Pid]) -> Vec<Pid> {
    let Processes(running) = Processes::all();
    let running: Vec<Running> = running.into_iter().filter(|it| !nodes.contains(&it.pid)).collect();
    let marked = running.iter().filter(|it| has_variable(it.pid, VARIABLE, &is_it)).map(|it| it.pid);
    let mut found: BTreeSet<Pid> = marked.collect();
    loop {
        // A process may join the group of another program, such as this one, whose leader may have ended. The group of a
        // node's own process is that of its programs, which are not commands.
        let led_by_others = |group: &Pid| {
            let is_led = !found.contains(group) && running.iter().any(|it| it.pid == *group);
            is_led || nodes.contains(group) || *group == getpgrp()
        };
        let own = running.iter().filter(|it| found.contains(&it.pid));
        let groups: BTreeSet<Pid> = own.map(|it| it.group).filter(|it| !led_by_others(it)).collect();
        let belongs = |it: &&Running| {
            let is_descendant = nodes.contains(&it.parent) || found.contains(&it.parent);
            is_descendant || groups.contains(&it.group)
        };
        let more: Vec<Pid> = running.iter().filter(belongs).map(|it| it.pid).collect();
        let before = found.len();
        found.extend(more);
        if found.len() == before {
            return found.into_iter().collect();
        }
    }
}

/// Returns the file with the number of the process group of a life's command, beside the life's working directory.
pub fn group_file(dir: &Path) -> PathBuf {
    dir.with_extension("group")
}

/// Kills the process group of a life's command, if the command is running.
pub fn kill_group(file: &Path) {
    let number = fs::read_to_string(file).ok().and_then(|it| it.parse().ok());
    if let Some(group) = number.filter(|it| *it > 1) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _ = fs::remove_file(file);
}

/// Sends a signal to [these processes](matching). Returns whether there were any.
pub fn signal(is_it: impl Fn(&str) -> bool, nodes: &[Pid], signal: Signal) -> bool {
    let found = matching(is_it, nodes);
    signal_all(&found, signal);
    !found.is_empty()
}

/// Sends a signal to processes. One that has ended in the meantime needs none.
pub fn signal_all(processes: &[Pid], signal: Signal) {
    for pid in processes {
        let _ = kill(*pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::thread;

    use super::*;

    fn sleeping(id: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").env(VARIABLE, id).process_group(0).stdin(Stdio::null());
        command.spawn().expect("`sleep` starts")
    }

    #[test]
    fn processes_that_started_later_are_found_with_their_descendants() {
        let mut before = sleeping("before");
        let mut command = Command::new("sh");
        command.args(["-c", "sh -c 'sleep 60; true' & wait"]).env(ATTEMPT_VARIABLE, "7").process_group(0);
        let mut first = command.stdin(Stdio::null()).spawn().expect("`sh` starts");
        let pid = |it: &Child| Pid::from_raw(it.id().cast_signed());
        let found = || {
            let processes = Processes::started_since(pid(&first));
            assert!(processes.matching(|it| it == pid(&before)).is_empty() || processes.0.len() > 100);
            assert_eq!(processes.group_of(pid(&first)), Some(pid(&first)));
            processes.with_descendants([pid(&first)].into())
        };
        while found().len() < 3 {
            thread::sleep(PAUSE);
        }
        for process in found() {
            assert!(is_running(process) && has(process, ATTEMPT_VARIABLE, "7") && is_of_attempt(process));
            kill(process, Signal::SIGKILL).unwrap();
        }
        first.wait().unwrap();
        assert!(!is_running(pid(&first)) && name_of(pid(&before)).as_deref() == Some("sleep"));
        before.kill().and_then(|()| before.wait()).unwrap();
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
        // A process that joins the group of this one does not make this one a process of the command.
        let mut joined = Command::new("sleep").arg("60").env(VARIABLE, "joined").spawn().unwrap();
        while !matching(|it| it == "joined", &[]).contains(&pid(&joined)) {
            thread::sleep(PAUSE);
        }
        assert_eq!(matching(|it| it == "joined", &[]), [pid(&joined)]);
        joined.kill().and_then(|()| joined.wait()).unwrap();
        // Without an identifier, a process is found by its parent or its group.
        let mut plain = Command::new("sh");
        let plain = plain.args(["-c", "sleep 60 & wait"]).process_group(0).stdin(Stdio::null()).spawn();
        let mut plain = plain.expect("`sh` starts");
        while matching(|_| false, &[pid(&plain)]).len() != 1 {
            thread::sleep(PAUSE);
        }
        let dir = tempfile::tempdir().unwrap();
        let file = group_file(&dir.path().join("1.dir"));
        fs::write(&file, plain.id().to_string()).unwrap();
        kill_group(&file);
        assert!(!plain.wait().unwrap().success() && !file.exists());
        assert!(signal(|it| it == ids[0], &[], Signal::SIGKILL));
        assert!(!children[0].wait().unwrap().success());
        assert!(!signal(|it| it == ids[0], &[], Signal::SIGKILL));
        assert!(children[1].try_wait().unwrap().is_none());
        assert!(signal(|it| it.starts_with(run.as_str()), &[], Signal::SIGKILL));
        children[1].wait().unwrap();
    }
}
