//! The life at a place: started, signalled and buried; and the orphans that fall to the first process of a container.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use faultline_core::Life;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::clock::monotonic;
use crate::node::NodeOptions;
use crate::secret::Secret;

/// How a process ends whose supervisor has hung up.
pub(super) const ORDERLY: &str = "exit status: 0";

/// A life that runs here.
pub(super) struct Running {
    pub(super) life: Life,
    pid: Pid,
}

impl Running {
    /// Starts a life with `command`; what it has to say goes to `log`.
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
        let mut stdin = child.stdin.take().expect("it was asked for");
        // Far less than a pipe holds. One that dies before it reads is reported by its end.
        drop(stdin.write_all(secret.to_line().as_bytes()));
        Ok(Running { life: options.life, pid: Pid::from_raw(child.id() as i32) })
    }

    /// Stops it where it stands, or lets it go on. One that has just died by itself is no error.
    pub(super) fn pause(&self, paused: bool) -> nix::Result<()> {
        self.signal(if paused { Signal::SIGSTOP } else { Signal::SIGCONT })
    }

    /// Kills it, waits until it is gone, and says when that was, by the monotonic clock.
    pub(super) fn end(self) -> nix::Result<u64> {
        self.signal(Signal::SIGKILL)?;
        loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                // Buried already, as one of many.
                Err(Errno::ECHILD) => return Ok(monotonic()),
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return Ok(monotonic()),
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

/// Buries every child that is dead, also those that were born to others. When `running` was among them, its life and
/// how it ended.
pub(super) fn reap(running: &mut Option<Running>) -> Option<(Life, String)> {
    let mut ended = None;
    loop {
        let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return ended,
            Ok(status) => status,
            Err(Errno::EINTR) => continue,
            Err(error) => unreachable!("any child can be waited for: {error}"),
        };
        let how = match status {
            WaitStatus::Exited(_, code) => format!("exit status: {code}"),
            WaitStatus::Signaled(_, signal, _) => format!("signal: {signal}"),
            // Stopped, or going on again.
            _ => continue,
        };
        if let Some(dead) = running.take_if(|it| status.pid() == Some(it.pid)) {
            ended = Some((dead.life, how));
        }
    }
}
