//! Exit statuses, and the errors of commands that end without a verdict.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use faultline_checker::Verdict;
use miette::{Report, miette};
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

    /// Creates an error about the machine. Such an error leaves the verdict unknown.
    pub fn machine(error: impl Display) -> CommandError {
        CommandError { exit: Exit::Unknown, report: miette!("{error}") }
    }

    /// Creates an error about the machine, with a remedy.
    pub fn machine_with(error: impl Display, help: impl Display) -> CommandError {
        CommandError { exit: Exit::Unknown, report: miette!(help = help.to_string(), "{error}") }
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
