//! Starts, signals and reaps the life at a place. Also reaps the orphans that the first process of a
//! container inherits.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use faultline_core::Life;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::strike::Strike;
use crate::clock::monotonic;
use crate::node::NodeOptions;
use crate::secret::Secret;

/// Exit status of a process that ended because the supervisor closed the connection.
pub(super) const ORDERLY: &str = "exit status: 0";

/// A life that runs at this place.
pub(super) struct Running {
    pub(super) life: Life,
    pid: Pid,
    /// What stops the process before it is killed at a given instant.
    strike: Option<Strike>,
}

impl Running {
    /// Starts a life with `command`. Its output goes to `log`.
    pub(super) fn start(
        command: &[OsString],
        options: &NodeOptions,
        secret: &Secret,
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
        // The line fits into a pipe's buffer. If the process exits before it reads the line, its exit is reported.
        drop(stdin.write_all(secret.to_line().as_bytes()));
        Ok(Running { life: options.life, pid: Pid::from_raw(child.id() as i32), strike: None })
    }

    /// Pauses or resumes the process. Returns the time of the signal by the monotonic clock, in nanoseconds. Succeeds
    /// even if the process has just exited. A process that is about to be killed is not resumed.
    pub(super) fn pause(&self, paused: bool) -> nix::Result<u64> {
        match paused {
            true => self.signal(Signal::SIGSTOP)?,
            false if self.strike.is_none() => self.signal(Signal::SIGCONT)?,
            false => {}
        }
        Ok(monotonic())
    }

    /// Stops the process once the monotonic clock shows `at`, in nanoseconds. [`Running::end`] must follow.
    pub(super) fn stop_at(&mut self, at: u64) {
        self.strike.get_or_insert_with(|| Strike::at(at, self.pid));
    }

    /// Cancels [`Running::stop_at`]. If it is too late for that, returns the time at which the process stopped, by the
    /// monotonic clock, in nanoseconds.
    pub(super) fn cancel_stop(&mut self) -> Option<u64> {
        self.strike.take().and_then(Strike::finish)
    }

    /// Kills the process, and waits until it has exited. Returns the time at which it stopped or was killed, by the
    /// monotonic clock, in nanoseconds. It executes nothing afterwards, however long a busy machine takes to remove it.
    pub(super) fn end(mut self) -> nix::Result<u64> {
        let stopped = self.cancel_stop();
        self.signal(Signal::SIGKILL)?;
        let at = stopped.unwrap_or_else(monotonic);
        loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                // The process was already reaped, together with other children.
                Err(Errno::ECHILD) => return Ok(at),
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return Ok(at),
                Ok(_) => {}
                Err(error) => return Err(error),
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
        let life = running.take_if(|it| it.pid == pid).map(|mut it| {
            it.cancel_stop();
            it.life
        });
        let how = match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, code)) => format!("exit status: {code}"),
            Ok(WaitStatus::Signaled(_, signal, _)) => format!("signal: {signal}"),
            other => unreachable!("this child has ended: {other:?}"),
        };
        ended = life.map(|it| (it, how)).or(ended);
    }
}
