//! Exit statuses, and the errors of commands that end without a verdict.

use std::error::Error;
use std::fmt::{self, Display};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

use faultline_checker::Verdict;
use faultline_trace::{is_printable, printable};
use miette::{
    Diagnostic, LabeledSpan, MietteHandler, NamedSource, Report, ReportHandler, SourceCode, miette,
};
use nix::errno::Errno;
use textwrap::{WordSeparator, WordSplitter};

use crate::output;

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

    /// Creates the error of a command whose message has already been printed, here or by another program.
    pub fn reported(exit: Exit) -> CommandError {
        CommandError { exit, report: Reported.into() }
    }

    /// Returns whether the message of the error has been printed.
    pub fn is_reported(&self) -> bool {
        self.report.is::<Reported>()
    }

    /// Prints the error, unless its message has been printed, and returns its exit status.
    pub fn end(self) -> ExitCode {
        self.print();
        self.exit.into()
    }

    /// Prints the error, unless its message has been printed.
    pub fn print(&self) {
        if !self.is_reported() {
            output::note(format_args!("{:?}", self.report));
        }
    }

    /// Creates an error about the machine, with a remedy.
    pub fn machine_with(error: impl Display, help: impl Display) -> CommandError {
        CommandError { exit: Exit::Unknown, report: miette!(help = help.to_string(), "{error}") }
    }
}

/// An error whose message has been printed.
#[derive(Debug, Diagnostic)]
struct Reported;

impl Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message has been printed")
    }
}

impl Error for Reported {}

/// Returns the remedy if a limit of the machine caused the last error of the operating system that a program's output
/// names, as in `File too large (os error 27)`.
pub fn limit_in(output: &str) -> Option<&'static str> {
    let (_, number) = output.rsplit_once("(os error ")?;
    limit(&io::Error::from_raw_os_error(number.split_once(')')?.0.parse().ok()?))
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
        let options = options.word_separator(WordSeparator::AsciiSpace);
        let options = if output::is_dumb(&io::stderr()) { options.color(false) } else { options };
        Box::new(Explaining(options.word_splitter(WordSplitter::NoHyphenation).build()))
    };
    miette::set_hook(Box::new(unbroken)).expect("the hook is set only here");
}

/// Formats errors without the characters that [may not](is_printable) reach a terminal: errors quote files and names.
struct Explaining(MietteHandler);

impl ReportHandler for Explaining {
    fn debug(&self, error: &dyn Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug(&Shown::of(error), f)
    }
}

/// A diagnostic as it is shown.
#[derive(Debug)]
struct Shown {
    message: String,
    help: Option<String>,
    labels: Vec<LabeledSpan>,
    source_code: Option<NamedSource<String>>,
    related: Vec<Shown>,
    cause: Option<Box<Shown>>,
}

impl Shown {
    fn of(error: &dyn Diagnostic) -> Shown {
        let labels = error.labels().into_iter().flatten();
        let shown = |it: LabeledSpan| LabeledSpan::new_with_span(it.label().map(text), *it.inner());
        Shown {
            message: text(&error.to_string()),
            help: error.help().map(|it| text(&it.to_string())),
            labels: labels.map(shown).collect(),
            source_code: error.source_code().and_then(source),
            related: error.related().into_iter().flatten().map(Shown::of).collect(),
            cause: error.source().map(|it| Box::new(Shown::of_cause(it))),
        }
    }

    fn of_cause(error: &dyn Error) -> Shown {
        Shown {
            message: text(&error.to_string()),
            help: None,
            labels: Vec::new(),
            source_code: None,
            related: Vec::new(),
            cause: error.source().map(|it| Box::new(Shown::of_cause(it))),
        }
    }
}

/// Returns the lines of a message.
fn text(message: &str) -> String {
    message.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// Returns the text to which labels refer, with each character replaced by one of the same length.
fn source(source: &dyn SourceCode) -> Option<NamedSource<String>> {
    let whole = source.read_span(&(0, 0).into(), 0, usize::MAX).ok()?;
    let replaced = |it: char| match it {
        '\n' | '\r' | '\t' => it,
        it if is_printable(it) => it,
        it => ['?', '¿', '\u{fffd}', '\u{1fbc4}'][it.len_utf8() - 1],
    };
    let text: String = String::from_utf8_lossy(whole.data()).chars().map(replaced).collect();
    let name = printable(whole.name().unwrap_or_default());
    let named = NamedSource::new(name, text);
    Some(match whole.language() {
        Some(language) => named.with_language(language),
        None => named,
    })
}

impl Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Shown {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|it| it as &dyn Error)
    }
}

impl Diagnostic for Shown {
    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        self.help.as_ref().map(|it| Box::new(it) as Box<dyn Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        (!self.labels.is_empty())
            .then(|| Box::new(self.labels.iter().cloned()) as Box<dyn Iterator<Item = _>>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source_code.as_ref().map(|it| it as &dyn SourceCode)
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        let related =
            || Box::new(self.related.iter().map(|it| it as &dyn Diagnostic)) as Box<dyn Iterator<Item = _>>;
        (!self.related.is_empty()).then(related)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_recognised_in_the_output_of_a_program() {
        let said = |output| limit_in(output).unwrap_or_default();
        assert!(said("cannot write p0: File too large (os error 27)\n").contains("`ulimit -f`"));
        assert!(said("x (os error 2)\nToo many open files (os error 24); bye").contains("`ulimit -n`"));
        for other in ["no such file (os error 2)", "(os error", "(os error x)", ""] {
            assert_eq!(said(other), "", "{other}");
        }
    }

    #[test]
    fn an_error_about_any_bytes_shows_only_printable_characters() {
        let file = "metadata: { name: \u{1b}]0;t\u{7}\u{9b}2J\u{202e}\u{e0041} }\n";
        let rejected =
            faultline_api::parse("na\u{1b}me.yaml", file.as_bytes()).expect_err("the name is invalid");
        let shown = Shown::of(&*rejected);
        let handler = miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor());
        let mut printed = String::new();
        handler.render_report(&mut printed, &shown).expect("a string accepts every write");
        assert!(printed.chars().all(|it| is_printable(it) || it == '\n'), "{printed:?}");
        let message = Shown::of_cause(&std::io::Error::other("no \u{1b}[2J\nsecond line")).to_string();
        assert_eq!(message, "no \u{fffd}[2J\nsecond line");
    }
}
