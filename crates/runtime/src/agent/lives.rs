//! Starts, signals and reaps the life at a place. Also reaps the orphans that the first process of a
//! container inherits.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use faultline_core::Life;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tracing::warn;

use super::strike::Strike;
use crate::clock::monotonic;
use crate::exits::has_ended;
use crate::node::NodeOptions;
use crate::remote::messages::Killed;
use crate::system::ExecutorClient;

/// Exit status of a process that ended because the supervisor closed the connection.
pub(super) const ORDERLY: &str = "exit status: 0";

/// How a life that was ordered to end ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was killed as ordered.
    Ordered(Killed),
    /// It had already ended. Contains its exit status.
    Own(String),
}

/// A life that runs at this place.
pub(super) struct Running {
    pub(super) life: Life,
    pid: Pid,
    /// What stops the process before it is killed at a given instant.
    strike: Option<Strike>,
    /// Access to the commands of the life, which run elsewhere.
    commands: Option<ExecutorClient>,
}

impl Running {
    /// Starts a life with `command`, which reads `input` from its standard input. Its output goes to `log`.
    pub(super) fn start(
        command: &[OsString],
        options: &NodeOptions,
        input: Vec<u8>,
        log: &Path,
    ) -> io::Result<Running> {
        fs::create_dir_all(log.parent().expect("a log is in a directory"))?;
        let log = File::create(log)?;
        let (program, first) = command.split_first().expect("a command starts with a program");
        let mut child = Command::new(program)
            .args(first)
            .args(options.to_args())
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut stdin = child.stdin.take().expect("standard input is piped");
        let running = Running {
            life: options.life,
            pid: Pid::from_raw(child.id() as i32),
            strike: None,
            commands: options.executor.as_deref().map(ExecutorClient::at),
        };
        // The input may exceed a pipe's buffer. If the process exits before it reads everything, its exit is reported.
        thread::Builder::new().name("input".into()).spawn(move || drop(stdin.write_all(&input)))?;
        Ok(running)
    }

    /// Pauses or resumes the process. Returns the time of the signal by the monotonic clock, in nanoseconds; `None` if
    /// the process has ended. A process that is about to be killed is not resumed. If the life has commands, only these
    /// are paused: the process observes them.
    pub(super) fn pause(&self, paused: bool) -> io::Result<Option<u64>> {
        if has_ended(self.pid) {
            return Ok(None);
        }
        if let Some(commands) = &self.commands {
            let is_running = (paused || self.strike.is_none()) && commands.pause(paused)?;
            return Ok(is_running.then(monotonic));
        }
        match paused {
            true => self.signal(Signal::SIGSTOP)?,
            false if self.strike.is_none() => self.signal(Signal::SIGCONT)?,
            false => {}
        }
        Ok(Some(monotonic()))
    }

    /// Stops the process once the monotonic clock shows `at`, in nanoseconds. [`Running::end`] must follow, or
    /// [`Running::cancel_stop`].
    pub(super) fn stop_at(&mut self, at: u64) {
        if let Some(Err(error)) = self.commands.as_ref().map(|it| it.stop_at(at)) {
            warn!(%error, "cannot stop the commands at the instant; they are killed later");
        }
        self.strike.get_or_insert_with(|| Strike::at(at, self.pid));
    }

    /// Cancels [`Running::stop_at`], unless the stop has begun. Returns whether the process continues.
    pub(super) fn cancel_stop(&mut self) -> bool {
        let Some(strike) = &self.strike else { return true };
        let commands_continue = self.commands.as_ref().is_none_or(|it| it.cancel_stop().unwrap_or(false));
        let continues = strike.cancel() && commands_continue;
        self.strike.take_if(|_| continues);
        continues
    }

    /// Kills the process, and waits until it has exited.
    pub(super) fn end(mut self) -> io::Result<End> {
        let has_ended = has_ended(self.pid);
        self.signal(Signal::SIGKILL)?;
        // From here on, the process executes nothing, however long a busy machine takes to remove it. If the stop was
        // not confirmed earlier, a thread was in an operation that the kernel cannot interrupt, such as `fsync`.
        let killed = monotonic();
        let stopped = self.strike.take().and_then(Strike::finish).map_or(killed, |it| it.min(killed));
        // After the process, which would otherwise observe the ends of its commands.
        let commands = self.commands.as_ref().map(ExecutorClient::kill).transpose()?;
        loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)) if !has_ended => {
                    let stopped = commands.map_or(stopped, |it| it.stopped.max(stopped));
                    return Ok(End::Ordered(Killed { stopped, exited: monotonic() }));
                }
                Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => {
                    return Ok(End::Own(describe(status)));
                }
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn signal(&self, signal: Signal) -> nix::Result<()> {
        match kill(self.pid, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Reaps every child that has ended, including inherited ones. If `running` is among them, returns its life and exit
/// status.
pub(super) fn reap(running: &mut Option<Running>) -> Option<(Life, String)> {
    let mut ended = None;
    loop {
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let pid = match waitid(Id::All, peek) {
            Ok(status) => status.pid(),
            Err(Errno::EINTR) => continue,
            Err(Errno::ECHILD) => None,
            Err(error) => unreachable!("any child can be waited for: {error}"),
        };
        let Some(pid) = pid else { return ended };
        // After the child has been reaped, another process may get its number.
        let life = running.take_if(|it| it.pid == pid).map(|it| {
            it.strike.and_then(Strike::finish);
            // The executor ends the commands with the connection of this process anyway, before the next life begins.
            if let Some(Err(error)) = it.commands.map(|it| it.kill()) {
                warn!(%error, "cannot end the commands yet");
            }
            it.life
        });
        let how = waitpid(pid, None).map(describe).expect("this child has ended");
        ended = life.map(|it| (it, how)).or(ended);
    }
}

/// Returns the exit status of a child that has ended, as text.
fn describe(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("exit status: {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("signal: {signal}"),
        other => unreachable!("this child has ended: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::zombie_processes, reason = "`Running::end` reaps the process")]
    fn running(command: &str) -> Running {
        let child = Command::new("sh").args(["-c", command]).spawn().unwrap();
        Running { life: Life(1), pid: Pid::from_raw(child.id() as i32), strike: None, commands: None }
    }

    fn has_ended_by_itself(running: &Running) {
        while !has_ended(running.pid) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_that_ended_by_itself_was_neither_killed_nor_paused() {
        for (command, status) in [("exit 3", "exit status: 3"), ("kill -9 $$", "signal: SIGKILL")] {
            for is_struck in [false, true] {
                let mut running = running(command);
                has_ended_by_itself(&running);
                if is_struck {
                    running.stop_at(0);
                }
                assert_eq!(running.pause(true).unwrap(), None);
                assert_eq!(running.end().unwrap(), End::Own(status.to_owned()));
            }
        }
    }

    #[test]
    fn a_process_that_is_killed_ends_as_ordered() {
        for is_struck in [false, true] {
            let mut running = running("exec sleep 60");
            let before = monotonic();
            if is_struck {
                running.stop_at(0);
            }
            let Ok(End::Ordered(Killed { stopped, exited })) = running.end() else { panic!("it was killed") };
            assert!(before <= stopped && stopped < exited && exited <= monotonic());
        }
    }
}
