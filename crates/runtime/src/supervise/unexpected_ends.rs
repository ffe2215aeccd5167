//! Lives that ended unexpectedly, and when restarting their processes is futile.

use std::path::Path;

use faultline_core::fault::Panic;
use faultline_core::{Life, ProcessId};
use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use tracing::warn;

use super::{RunError, RunOptions, UnexpectedEnd};
use crate::exits::panic_at_end;

/// Number of unexpected exits of one process after which the run fails.
const MOST_COLLAPSES: usize = 10;
/// Free space below which a disk counts as full, in bytes.
const LEAST_ROOM: u64 = 64 << 10;

/// The unexpected ends of a run.
#[derive(Default)]
pub(super) struct UnexpectedEnds {
    ends: Vec<UnexpectedEnd>,
    /// The reason why the run cannot continue, once it is known.
    hopeless: Option<RunError>,
}

impl UnexpectedEnds {
    /// Records that a life ended unexpectedly, with its exit status and the end of its output. Returns its panic, if it
    /// panicked.
    pub(super) fn ended(
        &mut self,
        (process, life): (ProcessId, Life),
        status: String,
        output: &str,
        options: &RunOptions,
    ) -> Option<Panic> {
        warn!(%process, %life, status, "a node ended unexpectedly");
        let (panic, last_output) = panic_at_end(output);
        let panic = panic.filter(|it| (it.process, it.life) == (process, life));
        if panic.is_none() {
            self.check_repeated_failures(process, &status, last_output, options);
        }
        let last_output = last_output.to_owned();
        self.ends.push(UnexpectedEnd { process, life, status, last_output });
        panic
    }

    /// States that the run cannot continue.
    pub(super) fn give_up(&mut self, error: RunError) {
        self.hopeless.get_or_insert(error);
    }

    /// Returns the reason why the run cannot continue, if there is one.
    pub(super) fn why_hopeless(&mut self) -> Option<RunError> {
        self.hopeless.take()
    }

    pub(super) fn into_list(self) -> Vec<UnexpectedEnd> {
        self.ends
    }

    /// Ends the run if restarting a process that ended unexpectedly would be futile: if the disk is full, or if the
    /// process has ended too often.
    fn check_repeated_failures(
        &mut self,
        process: ProcessId,
        status: &str,
        last_output: &str,
        options: &RunOptions,
    ) {
        let times = 1 + self.ends.iter().filter(|it| it.process == process).count();
        let name = options.names.processes[process.index()].clone();
        if is_full(&options.run_dir) || tells_of_full_disk(last_output) {
            self.hopeless = Some(RunError::DiskFull(format!("{name} ended unexpectedly")));
        } else if times >= MOST_COLLAPSES {
            let (status, last_output) = (status.to_owned(), last_output.to_owned());
            self.hopeless = Some(RunError::Collapses { name, times, status, last_output });
        }
    }
}

/// Returns whether the disk on which a run is recorded is full.
pub(super) fn is_full(dir: &Path) -> bool {
    statvfs(dir).is_ok_and(|it| it.blocks_available() * it.fragment_size() < LEAST_ROOM)
}

/// Returns whether the last lines of a process's output report a full disk, even if the message is wrapped across
/// lines.
fn tells_of_full_disk(last_output: &str) -> bool {
    let words = last_output.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty());
    words.collect::<Vec<_>>().join(" ").contains(Errno::ENOSPC.desc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_detected_in_wrapped_lines() {
        let error = std::io::Error::from_raw_os_error(Errno::ENOSPC as i32);
        assert!(tells_of_full_disk(&format!("cannot write the image: {error}")));
        assert!(tells_of_full_disk("  × cannot write facts: No space left on\n  │ device (os error 28)"));
        assert!(!tells_of_full_disk("cannot write facts: no such device"));
    }
}
