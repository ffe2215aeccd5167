//! Tells children that were killed from children that ended by themselves just before, and reads their last output. A
//! signal to a child that has ended, but has not been reaped, succeeds without an effect.
//!
//! If the code of a process panics, the last line of the process's log is the panic, as JSON.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use faultline_core::fault::Panic;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// Number of bytes from the end of a log that are included in the report of an unexpected exit.
const LOG_TAIL_LEN: u64 = 2000;

/// The beginning of the line with a panic.
const PANICKED: &str = "panicked: ";

/// Status with which a process exits after a panic, as Rust programs do.
const PANIC_STATUS: i32 = 101;

/// Writes the panic of a process to the log, with a backtrace if `RUST_BACKTRACE` requests one, and ends the program.
pub(crate) fn end_with(panic: &Panic) {
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => format!("{backtrace}\n"),
        _ => String::new(),
    };
    let json = serde_json::to_string(panic).expect("a panic can be written as JSON");
    // The supervisor learns of the exit even if the log cannot be written.
    drop(write!(io::stderr(), "{panic}\n{backtrace}{PANICKED}{json}\n"));
    std::process::exit(PANIC_STATUS);
}

/// Separates the panic at the end of an output, if there is one, from the rest.
pub(crate) fn panic_at_end(output: &str) -> (Option<Panic>, &str) {
    let (rest, last) = output.rsplit_once('\n').unwrap_or(("", output));
    match last.strip_prefix(PANICKED).and_then(|json| serde_json::from_str(json).ok()) {
        Some(panic) => (Some(panic), rest),
        None => (None, output),
    }
}

/// Returns whether a child that has not been reaped has ended.
pub(crate) fn has_ended(child: Pid) -> bool {
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    matches!(waitid(Id::Pid(child), peek), Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)))
}

/// Returns whether `SIGKILL` ended a process.
pub(crate) fn is_by_kill(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::SIGKILL as i32)
}

/// Returns the end of a child's log, or an empty text if the log cannot be read. A log has no maximum size.
pub(crate) fn last_output(log: &Path) -> String {
    let tail = || -> io::Result<Vec<u8>> {
        let mut log = File::open(log)?;
        let len = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(len.saturating_sub(LOG_TAIL_LEN)))?;
        let mut tail = Vec::new();
        // The child's own children may still be writing.
        log.take(LOG_TAIL_LEN).read_to_end(&mut tail)?;
        Ok(tail)
    };
    String::from_utf8_lossy(&tail().unwrap_or_default()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_the_last_line_of_a_log() {
        let (process, life) = (faultline_core::ProcessId(3), faultline_core::Life(2));
        let (at, handled) = (faultline_core::Time(7), faultline_core::fault::Handled::Timeout);
        let (message, place) = ("a\nb".into(), "src/lib.rs:1:2".into());
        let panic = Panic { process, life, at, handled, message, place };
        let output = format!("before\n{PANICKED}{}", serde_json::to_string(&panic).unwrap());
        assert_eq!(panic_at_end(&output), (Some(panic), "before"));
        for other in ["", "before", "panicked: no", "panicked: {}\nafter"] {
            assert_eq!(panic_at_end(other), (None, other));
        }
    }

    #[test]
    fn only_the_end_of_a_log_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("1.log");
        assert_eq!(last_output(&log), "");
        std::fs::write(&log, "panicked\n").unwrap();
        assert_eq!(last_output(&log), "panicked");
        // The file is longer than the memory of any machine.
        File::options().append(true).open(&log).unwrap().set_len(1 << 40).unwrap();
        std::io::Write::write_all(&mut File::options().append(true).open(&log).unwrap(), b"the end\n")
            .unwrap();
        assert!(last_output(&log).ends_with("the end"));
        assert_eq!(last_output(&log).trim_start_matches('\0'), "the end");
    }
}
