//! Exit statuses, and the errors of commands that end without a verdict.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

use faultline_checker::Verdict;
use miette::{Report, miette};
use nix::errno::Errno;
use textwrap::{WordSeparator, WordSplitter};

/// The exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success. For a run: all required properties were judged and hold.
    Pass = 0,
    /// A property is violated, or a check failed.
    Fail = 1,
    /// The input cannot be used.
    BadInput = 2,
    /// The verdict is unknown, or there is none.
    Unknown = 3,
}

impl Exit {
    /// Returns the exit status of a command that performs many runs. A violation outweighs a missing result.
    pub fn of_runs(has_failed: bool, is_complete: bool) -> Exit {
        match (has_failed, is_complete) {
            (true, _) => Exit::Fail,
            (false, true) => Exit::Pass,
            (false, false) => Exit::Unknown,
        }
    }
}

impl From<Verdict> for Exit {
    fn from(verdict: Verdict) -> Exit {
        match verdict {
            Verdict::Pass => Exit::Pass,
            Verdict::Unknown => Exit::Unknown,
            Verdict::Fail => Exit::Fail,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// The error of a command that could not perform the requested work.
#[derive(Debug)]
pub struct CommandError {
    /// The exit status.
    pub exit: Exit,
    /// The message to print.
    pub report: Report,
}

impl CommandError {
    /// Creates an error about unusable input.
    pub fn input(report: impl Into<Report>) -> CommandError {
        CommandError { exit: Exit::BadInput, report: report.into() }
    }

    /// Creates an error about an unusable path.
    pub fn path(what: &str, path: &Path, why: impl Display, help: &str) -> CommandError {
        CommandError::input(miette!(help = help, "cannot {what} {}: {why}", path.display()))
    }

    /// Creates an error about a path that cannot be written. If a limit of the machine is the cause, the verdict is
    /// unknown, and the remedy raises the limit. Otherwise, the path is unusable, and the remedy is `help`.
    pub fn writing(what: &str, path: &Path, error: &(dyn Error + 'static), help: &str) -> CommandError {
        match limit(error) {
            Some(remedy) => {
                CommandError::machine_with(format!("cannot {what} {}: {error}", path.display()), remedy)
            }
            None => CommandError::path(what, path, error, help),
        }
    }

    /// Creates an error about the machine, with the remedy if one of its limits is the cause.
    pub fn of_machine(error: &(dyn Error + 'static)) -> CommandError {
        match limit(error) {
            Some(remedy) => CommandError::machine_with(error, remedy),
            None => CommandError::machine(error),
        }
    }

    /// Creates an error about the machine. Such an error leaves the verdict unknown.
    pub fn machine(error: impl Display) -> CommandError {
        CommandError { exit: Exit::Unknown, report: miette!("{error}") }
    }

    /// Creates an error about the machine, with a remedy.
    pub fn machine_with(error: impl Display, help: impl Display) -> CommandError {
        CommandError { exit: Exit::Unknown, report: miette!(help = help.to_string(), "{error}") }
    }
}

/// Returns the remedy if a limit of the machine caused the error.
fn limit(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut causes = std::iter::successors(Some(error), |&it| it.source());
    let error: &io::Error = causes.find_map(|it| it.downcast_ref())?;
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Some("free some space on that disk, or specify a directory on another disk")
        }
        ErrorKind::FileTooLarge => Some("raise the limit on the size of files (`ulimit -f`)"),
        ErrorKind::OutOfMemory => Some("free some memory, or raise its limit (`ulimit -v`)"),
        _ => match Errno::from_raw(error.raw_os_error()?) {
            Errno::EMFILE => Some("raise the limit on open files (`ulimit -n`)"),
            Errno::ENFILE => {
                Some("close some programs, or raise the limit on all open files (`sysctl fs.file-max`)")
            }
            Errno::EAGAIN => Some("raise the limit on processes and threads (`ulimit -u`)"),
            Errno::EIO => Some("check the disk, or specify a directory on another disk"),
            _ => None,
        },
    }
}

/// Formats all later errors for human readers, with their remedies and, for errors in a file, the line. Call this
/// function once, before any error is printed.
///
/// # Panics
///
/// Panics if the format of errors has already been set.
pub fn explain() {
    // Breaks lines only between words, so that names with hyphens or slashes can be copied.
    let unbroken = |_: &_| -> Box<dyn miette::ReportHandler> {
        let options = miette::MietteHandlerOpts::new().break_words(false);
        Box::new(
            options
                .word_separator(WordSeparator::AsciiSpace)
                .word_splitter(WordSplitter::NoHyphenation)
                .build(),
        )
    };
    miette::set_hook(Box::new(unbroken)).expect("the hook is set only here");
}
