//! What commands leave behind. The node's process adopts processes whose parent has ended, and reaps them. All processes
//! of an attempt end with it, also those that have left its process group: they are found by the variable
//! [`ATTEMPT_VARIABLE`](faultline_guard::ATTEMPT_VARIABLE), and by their parents.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faultline_core::Ending;
use faultline_guard::{ATTEMPT_VARIABLE, MOST_SEARCHES, Processes};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// Time until a search is repeated, because a process takes a moment to end.
const AGAIN: Duration = Duration::from_millis(1);
/// The number of searches in which a process that this process has adopted may have no environment that can be read: until it
/// executes another program, it may belong to the attempt.
const MOST_UNREADABLE: usize = 100;
/// The maximum number of adopted processes whose endings are remembered.
const MOST_ENDINGS: usize = 256;

/// The children of this process. They belong to the process as a whole.
static CHILDREN: Mutex<Children> =
    Mutex::new(Children { started: BTreeSet::new(), are_adopted: false, endings: BTreeMap::new() });

#[derive(Debug)]
struct Children {
    /// The children that this process started itself, and waits for.
    started: BTreeSet<Pid>,
    /// Whether this process adopts others.
    are_adopted: bool,
    /// How adopted processes ended.
    endings: BTreeMap<Pid, Ending>,
}

fn children() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that this process started, from its start until it has been waited for.
#[derive(Debug)]
pub(super) struct Started(Pid);

impl Started {
    /// Takes note of a child that has not been waited for.
    pub(super) fn by(child: &Child) -> Started {
        let pid = Pid::from_raw(child.id().expect("the child has not been reaped").cast_signed());
        children().started.insert(pid);
        Started(pid)
    }

    pub(super) fn pid(&self) -> Pid {
        self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        children().started.remove(&self.0);
    }
}

/// Lets this process adopt and reap processes whose parent has ended.
pub(crate) fn adopt() -> io::Result<()> {
    set_child_subreaper(true)?;
    children().are_adopted = true;
    let mut ended = signal(SignalKind::child())?;
    tokio::task::spawn_local(async move {
        while ended.recv().await.is_some() {
            // The runtime reaps the children that this process started.
            while reap() {
                sleep(AGAIN).await;
            }
        }
    });
    Ok(())
}

/// Reaps adopted processes that have ended, up to the first child that another task waits for. Returns whether there is
/// one.
pub(super) fn reap() -> bool {
    let mut children = children();
    if !children.are_adopted {
        return false;
    }
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Some(pid) = waitid(Id::All, peek).ok().and_then(|it| it.pid()) {
        if children.started.contains(&pid) {
            return true;
        }
        let ending = match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, status)) => Ending::Exit(status as u8),
            Ok(WaitStatus::Signaled(_, signal, _)) => Ending::Signal(signal as i32 as u8),
            _ => return false,
        };
        if children.endings.len() >= MOST_ENDINGS {
            children.endings.pop_first();
        }
        children.endings.insert(pid, ending);
    }
    false
}

/// Returns how an adopted process ended, if it has.
pub(super) fn ending_of(pid: Pid) -> Option<Ending> {
    reap();
    children().endings.get(&pid).cloned()
}

/// Returns the children that this process started.
pub(super) fn started() -> BTreeSet<Pid> {
    children().started.clone()
}

/// Returns the identifier of the next attempt in the life with this identifier.
pub(super) fn next_attempt(life: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{life}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Kills all processes of an attempt, whose first process was `first`, and waits until they have ended.
pub(super) async fn end_attempt(first: Pid, id: &str) {
    let mut killed: BTreeSet<Pid> = BTreeSet::new();
    let mut unreadable = 0;
    for _ in 0..MOST_SEARCHES {
        // Only processes that were started later can belong to the attempt, which is why a search takes little time.
        let processes = Processes::started_since(first);
        let is_own = |it: Pid| it == first || killed.contains(&it) || processes.group_of(it) == Some(first);
        let roots = processes.matching(|it| is_own(it) || faultline_guard::has(it, ATTEMPT_VARIABLE, id));
        let found = processes.with_descendants(roots);
        if found.is_empty() {
            let started = started();
            let is_open = |it: Pid| !started.contains(&it) && faultline_guard::is_without_environment(it);
            unreadable += 1;
            if unreadable > MOST_UNREADABLE || !processes.children_of(getpid()).any(is_open) {
                return;
            }
        }
        for pid in &found {
            // A process that has ended in the meantime needs no signal.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        killed.extend(found);
        sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;
    use crate::transport::tests::run;

    /// Returns the processes whose command line is `sleep` with this argument.
    fn sleeping(argument: &str) -> usize {
        let all = Command::new("ps").args(["-eo", "stat,args"]).output().unwrap().stdout;
        let all = String::from_utf8_lossy(&all).into_owned();
        let is_one =
            |it: &&str| !it.starts_with('Z') && it.trim_end().ends_with(&format!(" sleep {argument}"));
        all.lines().filter(is_one).count()
    }

    #[test]
    fn processes_that_leave_their_group_or_change_their_environment_end_with_the_attempt() {
        for (script, argument) in [
            ("setsid sleep 8101 & timeout 60 sleep 8101 & sleep 8101 & exit 0", "8101"),
            (
                "setsid sh -c 'env -i sleep 8102; true' & (trap '' TERM; setsid -f sleep 8102); sleep 8102",
                "8102",
            ),
            ("env -i setsid sleep 8103 & exec sleep 8103", "8103"),
        ] {
            run(async {
                let id = next_attempt("test");
                let mut command = Command::new("sh");
                command.args(["-c", script]).env(ATTEMPT_VARIABLE, &id).stdin(Stdio::null());
                let mut child =
                    std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn().unwrap();
                let begun = Instant::now();
                while sleeping(argument) < 2 {
                    assert!(begun.elapsed() < Duration::from_secs(30), "the processes start");
                }
                end_attempt(Pid::from_raw(child.id().cast_signed()), &id).await;
                assert_eq!(sleeping(argument), 0, "{script}");
                child.wait().unwrap();
            });
        }
    }
}
