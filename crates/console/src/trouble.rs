//! How a command ends: the exit statuses, and what is printed when there is no verdict.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use faultline_checker::Verdict;
use miette::{Report, miette};
use textwrap::{WordSeparator, WordSplitter};

/// How a command ends, as its exit status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; for a run: everything was judged and holds.
    Pass = 0,
    /// Something that must not happen was seen.
    Fail = 1,
    /// What was given cannot be used.
    BadInput = 2,
    /// No verdict.
    Unknown = 3,
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

/// Why a command could not do what it was asked for.
#[derive(Debug)]
pub struct Trouble {
    /// The exit status.
    pub exit: Exit,
    /// What to print.
    pub report: Report,
}

impl Trouble {
    /// The user gave something that cannot be used.
    pub fn input(report: impl Into<Report>) -> Trouble {
        Trouble { exit: Exit::BadInput, report: report.into() }
    }

    /// A path that the user gave cannot be used.
    pub fn path(what: &str, path: &Path, why: impl Display, help: &str) -> Trouble {
        Trouble::input(miette!(help = help, "cannot {what} {}: {why}", path.display()))
    }

    /// The machine did not let it happen: nothing is known of the run.
    pub fn machine(error: impl Display) -> Trouble {
        Trouble { exit: Exit::Unknown, report: miette!("{error}") }
    }

    /// The same, with what to do about it.
    pub fn machine_with(error: impl Display, help: impl Display) -> Trouble {
        Trouble { exit: Exit::Unknown, report: miette!(help = help.to_string(), "{error}") }
    }
}

/// Has errors printed for people, with their remedy and, where they are about a file, its line. Call it once, before any
/// error is printed.
///
/// # Panics
///
/// If something else has decided already how errors are printed.
pub fn explain() {
    // Lines are broken between words only: names with hyphens or slashes are to be copied whole.
    let unbroken = |_: &_| -> Box<dyn miette::ReportHandler> {
        let options = miette::MietteHandlerOpts::new().break_words(false);
        Box::new(
            options
                .word_separator(WordSeparator::AsciiSpace)
                .word_splitter(WordSplitter::NoHyphenation)
                .build(),
        )
    };
    miette::set_hook(Box::new(unbroken)).expect("nobody else sets it");
}
