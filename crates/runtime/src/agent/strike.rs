//! Stops a process at a given instant, as precisely as a busy machine allows.
//!
//! A fault that ends a whole cluster ends many processes, perhaps several on one machine. Two effects would spread
//! their ends over several milliseconds. First, the kernel frees the memory and the connections of a killed process,
//! and other agents on the same processor wait for that. Each agent therefore stops its process (`SIGSTOP`), and kills
//! it [later](KILL_AFTER), when the others have stopped theirs. Second, a thread that wakes up waits while its
//! processor is in the kernel. Two threads on different processors therefore wait for the instant, and the first one
//! that wakes up sends the signal.
//!
//! When the signal has been sent, the process is still running: one of its threads receives the signal, and stops the
//! others once it gets a processor. The process has stopped when the kernel reports this to its parent. Both threads
//! wait for the report, and the first one that wakes up notes the time.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tracing::debug;

use crate::clock::{monotonic, wait_until};

/// Time from the stop of a process until it is killed.
pub(super) const KILL_AFTER: Duration = Duration::from_millis(5);
/// Number of threads that wait for the instant.
const THREADS: usize = 2;

/// Threads that stop a process at an instant. Dropping them prevents the stop if it has not happened yet.
#[derive(Debug)]
pub(super) struct Strike(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether a thread stops the process, or the stop has been prevented; empty until either happens.
    stops: OnceLock<bool>,
    /// Time at which the process had stopped, by the monotonic clock; `None` if it ended first.
    stopped: OnceLock<Option<u64>>,
}

impl Strike {
    /// Stops the process once the monotonic clock shows `at`, in nanoseconds. The caller must not reap the process
    /// before it has called [`finish`](Strike::finish), because another process could then get its number.
    pub(super) fn at(at: u64, process: Pid) -> Strike {
        let state = Arc::new(State::default());
        for processor in processors(process) {
            let state = Arc::clone(&state);
            let wait_and_stop = move || {
                if let Some(it) = processor
                    && let Err(error) = sched_setaffinity(Pid::from_raw(0), &it)
                {
                    debug!(%error, "cannot choose a processor");
                }
                wait_until(at);
                state.stop(process);
            };
            // If no thread starts, the process is killed without having been stopped.
            if let Err(error) = thread::Builder::new().name("strike".to_owned()).spawn(wait_and_stop) {
                debug!(%error, "cannot start a thread");
            }
        }
        Strike(state)
    }

    /// Prevents the stop, unless it has begun. Returns whether it is prevented.
    pub(super) fn cancel(&self) -> bool {
        !*self.0.stops.get_or_init(|| false)
    }

    /// Prevents the stop. If the stop has begun, waits until the process has stopped or ended instead, and returns the
    /// time at which it had stopped, by the monotonic clock; `None` if it ended first.
    pub(super) fn finish(self) -> Option<u64> {
        if self.cancel() { None } else { *self.0.stopped.wait() }
    }
}

impl Drop for Strike {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl State {
    /// Stops the process, or waits until another thread has stopped it, unless the stop is prevented.
    fn stop(&self, process: Pid) {
        let is_first = self.stops.set(true).is_ok();
        if self.stops.get() == Some(&true) {
            let is_sent = !is_first || kill(process, Signal::SIGSTOP).is_ok();
            let stopped = if is_sent { stopped(process) } else { None };
            self.stopped.get_or_init(|| stopped);
        }
    }
}

/// Waits until all threads of a child of this process have stopped. Returns the time afterwards, by the monotonic
/// clock; `None` if the child has ended.
fn stopped(child: Pid) -> Option<u64> {
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::Pid(child), flags) {
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::Stopped(..)) => return Some(monotonic()),
            _ => return None,
        }
    }
}

/// Returns the processor of each thread; `None` if any will do. Threads of different agents should use different
/// processors, so the choice depends on the number of the process.
fn processors(process: Pid) -> Vec<Option<CpuSet>> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let allowed: Vec<usize> = (0..CpuSet::count()).filter(|&it| allowed.is_set(it) == Ok(true)).collect();
    if allowed.is_empty() {
        return vec![None];
    }
    let (first, threads) = (process.as_raw().unsigned_abs() as usize, THREADS.min(allowed.len()));
    let only = |thread: usize| {
        let mut set = CpuSet::new();
        let processor = allowed[(first + thread * allowed.len() / threads) % allowed.len()];
        set.set(processor).ok().map(|()| set)
    };
    (0..threads).map(only).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::process::{Child, Command};

    use super::*;

    struct Victim(Child);

    impl Victim {
        fn new() -> Victim {
            Victim(Command::new("sleep").arg("60").spawn().unwrap())
        }

        fn pid(&self) -> Pid {
            Pid::from_raw(self.0.id() as i32)
        }

        fn is_stopped(&self) -> bool {
            let peek = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            matches!(waitid(Id::Pid(self.pid()), peek).unwrap(), WaitStatus::Stopped(..))
        }
    }

    impl Drop for Victim {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    /// Names the file in which the threads of a test's child record their progress.
    const PROGRESS: &str = "FAULTLINE_STRIKE_PROGRESS";
    /// Number of threads of that child.
    const BUSY: u64 = 8;

    fn soon() -> u64 {
        monotonic() + 20_000_000
    }

    /// The child of [`no_thread_executes_anything_after_the_reported_time`].
    #[test]
    #[ignore = "started by another test"]
    fn record_progress() {
        let Some(path) = std::env::var_os(PROGRESS) else { return };
        let file = File::options().write(true).open(path).unwrap();
        let record = |thread: u64| {
            loop {
                file.write_all_at(&monotonic().to_le_bytes(), 8 * thread).unwrap();
            }
        };
        thread::scope(|scope| (0..BUSY).for_each(|thread| drop(scope.spawn(move || record(thread)))));
    }

    #[test]
    fn no_thread_executes_anything_after_the_reported_time() {
        for _ in 0..20 {
            let progress = tempfile::NamedTempFile::new().unwrap();
            let newest = || {
                let bytes = std::fs::read(progress.path()).unwrap();
                let times = bytes.as_chunks().0.iter().map(|it| u64::from_le_bytes(*it));
                Some(times.collect::<Vec<_>>()).filter(|it| it.len() == BUSY as usize && !it.contains(&0))
            };
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "agent::strike::tests::record_progress", "--ignored", "--quiet"]);
            child.env(PROGRESS, progress.path()).stdout(std::process::Stdio::null());
            let victim = Victim(child.spawn().unwrap());
            while newest().is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            let strike = Strike::at(soon(), victim.pid());
            while !victim.is_stopped() {
                thread::sleep(Duration::from_millis(1));
            }
            let stopped = strike.finish().expect("the process stops");
            let newest = newest().unwrap().into_iter().max().unwrap();
            assert!(newest <= stopped, "a thread was running {} us later", (newest - stopped) / 1000);
        }
    }

    #[test]
    fn a_process_stops_at_the_instant() {
        let victim = Victim::new();
        let at = soon();
        let strike = Strike::at(at, victim.pid());
        while !victim.is_stopped() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(strike.finish().is_some_and(|it| it >= at));
    }

    #[test]
    fn a_cancelled_strike_stops_nothing() {
        for finishes in [true, false] {
            let victim = Victim::new();
            let at = soon();
            let strike = Strike::at(at, victim.pid());
            if finishes {
                assert_eq!(strike.finish(), None);
            } else {
                drop(strike);
            }
            thread::sleep(Duration::from_millis(60));
            assert!(!victim.is_stopped());
        }
    }

    #[test]
    fn threads_wait_on_different_processors() {
        let chosen = processors(Pid::from_raw(7));
        let allowed = thread::available_parallelism().unwrap().get();
        assert_eq!(chosen.len(), THREADS.min(allowed));
        assert!(chosen.iter().all(Option::is_some));
        assert!(chosen.windows(2).all(|it| it[0] != it[1]));
    }
}
