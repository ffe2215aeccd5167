//! Tells children that were killed from children that ended by themselves just before. A signal to a child that has
//! ended, but has not been reaped, succeeds without an effect.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// Returns whether a child that has not been reaped has ended.
pub(crate) fn has_ended(child: Pid) -> bool {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    matches!(waitid(Id::Pid(child), peek), Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)))
}

/// Returns whether `SIGKILL` ended a process.
pub(crate) fn is_by_kill(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::SIGKILL as i32)
}
