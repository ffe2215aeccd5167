//! Recorded runs: reading, judging and printing them.

use std::path::{Path, PathBuf};

use faultline_checker::{Property, Strictness};
use faultline_core::BreakageKind;
use faultline_core::fault::Outcome;
use faultline_report::text::{self, Layout};
use faultline_report::{RecordedRun, Summary};
use faultline_session::UnjudgedRecording;
use faultline_trace::{Bundle, BundleError, printable};

use crate::arguments::{Format, OutputArguments};
use miette::miette;

use crate::command_error::{CommandError, Exit};
use crate::output;
use crate::place::{RUNS, newest_record};

/// The remedy if a directory contains no record.
pub const HELP: &str = "specify the directory that `faultline run` printed at the end";

/// The file in which `faultline explore` lists the steps of a run.
pub const STEPS: &str = "steps.txt";

/// A recorded run with its judgement, and the location of the record.
pub struct LocatedRecording {
    dir: String,
    /// The run with its judgement.
    pub run: faultline_session::Recording,
}

impl LocatedRecording {
    /// Judges a run that was read from `dir`, with this strictness.
    pub fn new(dir: &Path, run: UnjudgedRecording, strictness: Strictness) -> LocatedRecording {
        LocatedRecording { dir: dir.display().to_string(), run: run.judge_as(strictness) }
    }

    /// Reads and judges the record in `dir`.
    ///
    /// # Errors
    ///
    /// Fails if the directory contains no readable record.
    pub fn read(dir: &Path) -> Result<LocatedRecording, CommandError> {
        Ok(LocatedRecording::new(dir, open(dir)?, Strictness::Lenient))
    }

    /// Returns the data for reports.
    pub fn recorded(&self) -> RecordedRun<'_> {
        RecordedRun {
            bundle: &self.dir,
            manifest: &self.run.manifest,
            trace: &self.run.trace,
            judgement: &self.run.judgement,
        }
    }

    /// Explains why the record cannot be judged completely, if `faultline explore` wrote it: no federation file describes
    /// the messages, and no plan the failures.
    fn note_origin(&self) {
        let steps = Path::new(&self.dir).join(STEPS);
        if steps.is_file() {
            output::note(format_args!(
                "note: `faultline explore` chose the messages and the failures of this run, so its record cannot be judged \
                 like others; {} lists every step, and `transcript.txt` what happened",
                steps.display()
            ));
        }
    }

    /// Prints a warning if the record is incomplete. For commands that do not print the verdict.
    pub fn warn(&self) {
        self.note_origin();
        if let Some(reason) = &self.run.judgement.of(Property::RecordComplete).unknown {
            output::note(format_args!("the record is incomplete: {reason}"));
        }
    }

    /// Fails if a program of the federation could not be started. In pods, this is known only after the run.
    ///
    /// # Errors
    ///
    /// Fails with the reason, and with `help` as the remedy.
    pub fn check_started(&self, help: &str) -> Result<(), CommandError> {
        let manifest = &self.run.manifest;
        match &manifest.outcome {
            Some(Outcome::Broken(breakage)) if breakage.kind == BreakageKind::NotStarted => {
                let process = manifest.names().process(breakage.process);
                let (program, what) = (printable(&breakage.program), printable(&breakage.what));
                Err(CommandError::input(miette!(help = help, "{process} ({program}) {what}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the exit status that corresponds to the verdict.
    pub fn exit(&self) -> Exit {
        self.run.judgement.verdict.into()
    }

    /// Prints the summary, and writes it as JUnit XML to `junit`, if the user named a file.
    ///
    /// # Errors
    ///
    /// Fails if the output cannot be written.
    pub fn print(&self, output: OutputArguments, junit: Option<&Path>) -> Result<(), CommandError> {
        self.note_origin();
        let summary = Summary::new(self.recorded());
        output::print(&match output.format {
            Format::Json => output::json(&summary),
            Format::Text => text::summary(
                &summary,
                Layout { colour: output::colours(), quiet: output.quiet, verbose: output.verbose > 0 },
            ),
        })?;
        junit.map_or(Ok(()), |it| output::junit(it, [&summary]))
    }
}

/// Returns `dir` or, if the user specified none, the newest record, and prints which one that is.
///
/// # Errors
///
/// Fails if there is no record in the default directory.
pub fn located(dir: Option<&Path>) -> Result<PathBuf, CommandError> {
    if let Some(dir) = dir {
        return Ok(dir.to_owned());
    }
    let Some(newest) = newest_record() else {
        const NONE: &str = "run a federation first (`faultline run`), or specify the directory of a record";
        return Err(CommandError::input(miette!(help = NONE, "there is no record in `{RUNS}`")));
    };
    output::note(format_args!("newest record: {}", newest.display()));
    Ok(newest)
}

/// The remedy if a record exceeds the memory limit.
pub const MORE_MEMORY: &str = "use a larger `--memory`, or a machine with more memory";

/// Returns the error about the record in `dir`. Unless the error has a remedy of its own, `help` is the remedy.
pub fn unusable(dir: &Path, error: BundleError, help: &str) -> CommandError {
    let help = match error {
        BundleError::Format { .. } => "use the version of Faultline that recorded it",
        BundleError::TooManyFacts { .. } => MORE_MEMORY,
        _ => help,
    };
    CommandError::path("use", dir, error, help)
}

/// Reads the record in `dir` without judging it.
///
/// # Errors
///
/// Fails if the directory contains no readable record.
pub fn open(dir: &Path) -> Result<UnjudgedRecording, CommandError> {
    if !dir.is_dir() {
        let why = if dir.exists() { "it is not a directory" } else { "no such directory" };
        return Err(CommandError::path("read", dir, why, HELP));
    }
    let bundle = Bundle::open(dir);
    if bundle.is_claimed_only() {
        let help = "if no run is starting there, delete the directory";
        return Err(CommandError::path(
            "read",
            dir,
            "the run in it has not begun, or was ended before it began",
            help,
        ));
    }
    UnjudgedRecording::read(&bundle).map_err(|error| unusable(dir, error, HELP))
}

#[cfg(test)]
mod tests {
    use faultline_core::{Breakage, Life, ProcessId};
    use faultline_session::{Session, Simulator};

    use super::*;

    #[test]
    fn a_program_that_was_not_started_is_an_error() {
        let text = faultline_api::samples::sample("ping-pong").unwrap().text;
        let federation = faultline_api::parse("sample.yaml", text.as_bytes()).unwrap();
        let mut run = Session::new(&federation).simulate(&mut Simulator::new(&mut ())).unwrap();
        let recorded = |run: &UnjudgedRecording| {
            LocatedRecording::new(Path::new("run"), run.clone(), Strictness::Lenient)
        };
        assert!(recorded(&run).check_started("").is_ok());
        let mut breakage = Breakage {
            process: ProcessId(0),
            life: Life(1),
            program: "a.py".into(),
            kind: BreakageKind::Silent,
            what: "cannot be started".into(),
            log: [].into(),
        };
        run.manifest.outcome = Some(Outcome::Broken(breakage.clone().into()));
        assert!(recorded(&run).check_started("").is_ok());
        breakage.kind = BreakageKind::NotStarted;
        run.manifest.outcome = Some(Outcome::Broken(breakage.into()));
        let error = recorded(&run).check_started("build an image").unwrap_err();
        assert_eq!(error.exit, Exit::BadInput);
        let text = error.report.to_string();
        assert!(text.ends_with("-0 (a.py) cannot be started"), "{text}");
    }
}
