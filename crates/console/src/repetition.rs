//! Runs a federation with consecutive seeds: once, with a summary, or several times, with a row for each run.

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_checker::Verdict;
use faultline_report::table::wrapped;
use faultline_report::{Summary, explain, text};
use faultline_trace::Bundle;
use faultline_trace::manifest::BackendKind;
use miette::miette;
use serde::Serialize;

use crate::arguments::{Format, OutputArguments};
use crate::command_error::{CommandError, Exit};
use crate::output;
use crate::place::{ACTION, Claim, check_free, discard_refused};
use crate::progress::Progress;
use crate::recording::LocatedRecording;

/// Returns `count` consecutive seeds.
///
/// # Errors
///
/// Returns an error if the last seed would exceed [`u64::MAX`].
pub fn consecutive(first: u64, count: u32) -> Result<RangeInclusive<u64>, CommandError> {
    let last = first.checked_add(u64::from(count.saturating_sub(1))).ok_or_else(|| {
        CommandError::input(miette!(
            help = "use a smaller seed, or fewer runs",
            "{count} consecutive seeds from {first} would exceed {}, the largest seed",
            u64::MAX
        ))
    })?;
    Ok(first..=last)
}

/// Runs with consecutive seeds, on any backend.
#[derive(Clone, Copy, Debug)]
pub struct Repetition<'a> {
    /// The name of the federation.
    pub name: &'a str,
    /// The federation.
    pub federation: &'a Federation,
    /// The backend that executes the runs.
    pub backend: BackendKind,
    /// The number of runs.
    pub repeat: u32,
    /// Whether to keep the records of passing runs, too.
    pub keeps_all: bool,
    /// The directory for records, if the user named one.
    pub out: Option<&'a Path>,
    /// The file to which the results are written as JUnit XML, if the user named one.
    pub junit: Option<&'a Path>,
    /// The format of the results.
    pub output: OutputArguments,
    /// Whether the user has interrupted the program.
    pub interrupted: &'a AtomicBool,
}

/// One of several runs, as `--format json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    seed: u64,
    verdict: Verdict,
    /// Whether the verdict is unknown only because no random fault of the file took effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    without_fault: bool,
    reasons: Vec<String>,
    rollbacks: usize,
    lost_work_seconds: f64,
    duration_seconds: f64,
    /// The location of the record; `None` if it was removed.
    bundle: Option<String>,
}

/// The output of `--repeat N --format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcomes<'a> {
    /// The name of the federation.
    name: &'a str,
    /// The worst verdict of all runs except those without a fault; at best `unknown` if there are no other runs, or if
    /// some runs were not performed.
    verdict: Verdict,
    passed: usize,
    failed: usize,
    unknown: usize,
    /// The number of runs whose verdict is unknown only because no random fault took effect.
    without_fault: usize,
    runs: Vec<Outcome>,
}

/// Performs a run. If a problem with the machine ended the run early, its record is judged like any other.
fn recorded(seed: u64, dir: &Path, once: &mut Once<'_>) -> Result<LocatedRecording, CommandError> {
    check_free(ACTION, dir)?;
    match once(seed, dir) {
        Err(command_error) if command_error.exit == Exit::Unknown && Bundle::open(dir).holds_a_run() => {
            let Ok(recording) = LocatedRecording::read(dir) else { return Err(command_error) };
            output::note(format_args!("{:?}", command_error.report));
            Ok(recording)
        }
        Err(command_error) if command_error.exit == Exit::BadInput => {
            discard_refused(dir);
            Err(command_error)
        }
        other => other,
    }
}

/// Runs a federation with a seed, records the run in a directory, and judges it.
type Once<'a> = dyn FnMut(u64, &Path) -> Result<LocatedRecording, CommandError> + 'a;

impl Repetition<'_> {
    /// Performs the runs, with seeds starting at `first`, and prints the results.
    ///
    /// # Errors
    ///
    /// Fails if a run cannot be performed or recorded.
    pub fn perform(
        &self,
        first: u64,
        mut once: impl FnMut(u64, &Path) -> Result<LocatedRecording, CommandError>,
    ) -> Result<Exit, CommandError> {
        output::check_junit(self.junit)?;
        if self.repeat == 1 { self.once(first, &mut once) } else { self.several(first, &mut once) }
    }

    fn once(&self, seed: u64, once: &mut Once<'_>) -> Result<Exit, CommandError> {
        let place = self.place(seed)?;
        let recording = recorded(seed, place.dir(), once)?;
        recording.print(self.output, self.junit)?;
        Ok(recording.exit())
    }

    /// Performs runs until all are done, the user interrupts them, or one of them cannot be performed. The runs so far
    /// are reported in any case.
    fn several(&self, first: u64, once: &mut Once<'_>) -> Result<Exit, CommandError> {
        let output = self.output;
        let seeds = consecutive(first, self.repeat)?;
        let mut runs: Vec<Outcome> = Vec::new();
        let mut summaries: Vec<(Summary, bool)> = Vec::new();
        if output.format == Format::Text && !output.quiet {
            output::print(&row(["seed", "verdict", "rollbacks", "lost work", "duration", "record"]))?;
        }
        let mut progress = self.shows_progress().then(|| Progress::counting(0, self.repeat.into()));
        for seed in seeds {
            if self.interrupted.load(Ordering::Relaxed) {
                break;
            }
            let attempt = self.place(seed).and_then(|it| Ok((recorded(seed, it.dir(), once)?, it)));
            let (recording, place) = match attempt {
                Err(command_error) if command_error.exit == Exit::Unknown || !runs.is_empty() => {
                    progress.iter_mut().for_each(Progress::hide);
                    output::note(format_args!("{:?}", command_error.report));
                    break;
                }
                other => other?,
            };
            let without_fault = recording.run.is_without_fault(self.federation);
            let summary = Summary::new(recording.recorded());
            let passed = summary.verdict == Verdict::Pass || without_fault;
            let is_kept = self.keeps_all || !passed;
            let dir = place.dir();
            if !is_kept {
                fs::remove_dir_all(dir).map_err(|error| {
                    CommandError::machine(format!("cannot remove {}: {error}", dir.display()))
                })?;
            }
            let run = Outcome {
                seed,
                verdict: summary.verdict,
                without_fault,
                rollbacks: summary.clusters.iter().map(|it| it.rollbacks.len()).sum(),
                lost_work_seconds: summary.clusters.iter().map(|it| it.lost_work_seconds).sum(),
                duration_seconds: summary.run.duration_seconds,
                bundle: is_kept.then(|| dir.display().to_string()),
                reasons: if without_fault { Vec::new() } else { summary.reasons.clone() },
            };
            if self.junit.is_some() {
                summaries.push((summary, without_fault));
            }
            progress.iter_mut().for_each(Progress::advance);
            if output.format == Format::Text && !(output.quiet && passed) {
                progress.iter_mut().for_each(Progress::hide);
                output::print(&output::filled(rows(&run)))?;
            }
            runs.push(run);
        }
        drop(progress);
        if let Some(file) = self.junit {
            let is_idle = summaries.iter().all(|it| it.1);
            output::junit(file, summaries.iter().filter(|it| is_idle || !it.1).map(|it| &it.0))?;
        }
        let judged = || runs.iter().filter(|it| !it.without_fault);
        let count = |verdict| judged().filter(|it| it.verdict == verdict).count();
        let (passed, unknown, failed) = (count(Verdict::Pass), count(Verdict::Unknown), count(Verdict::Fail));
        let without_fault = runs.len() - judged().count();
        let missing = self.repeat as usize - runs.len();
        let worst = judged().map(|it| it.verdict).max().unwrap_or(Verdict::Unknown);
        let verdict = if missing > 0 { worst.max(Verdict::Unknown) } else { worst };
        match output.format {
            Format::Json => {
                let name = self.name;
                let outcomes = Outcomes { name, verdict, passed, failed, unknown, without_fault, runs };
                output::print(&output::json(&outcomes))?;
            }
            Format::Text => {
                let some = |number: usize, what| match number {
                    0 => String::new(),
                    number => format!(", {number} {what}"),
                };
                let idle = some(without_fault, "without a fault");
                let not_run = some(missing, "not run");
                let total = runs.len() as u64;
                output::print(&format!(
                    "{}: {passed} pass, {unknown} unknown, {failed} fail{idle}{not_run}\n",
                    explain::count(total, "run")
                ))?;
            }
        }
        Ok(verdict.into())
    }

    /// Returns whether to show progress: only without a live view, and with `--quiet` only on a terminal.
    fn shows_progress(&self) -> bool {
        let on_screen = match (self.output.quiet, self.output.format) {
            (true, _) => return output::supports_escapes(&io::stderr()),
            (false, Format::Text) => output::supports_escapes(&io::stdout()),
            (false, Format::Json) => output::supports_escapes(&io::stderr()),
        };
        !on_screen
    }

    /// Claims the directory for the record of a run: the one that the user named (for several runs, a subdirectory of
    /// it), or a new one.
    fn place(&self, seed: u64) -> Result<Claim, CommandError> {
        match (self.out, self.repeat) {
            (Some(out), 1) => Claim::of(ACTION, out),
            (Some(out), _) => Claim::of(ACTION, &out.join(format!("seed-{seed}"))),
            (None, _) => Claim::of_run(self.name, seed, self.federation, self.backend),
        }
    }
}

/// Returns the row of a run in the table, followed by the reasons if the run did not pass.
fn rows(run: &Outcome) -> String {
    let mut rows = row([
        &run.seed.to_string(),
        &if run.without_fault { "NO FAULT".to_owned() } else { text::verdict(run.verdict).to_uppercase() },
        &run.rollbacks.to_string(),
        &if run.rollbacks == 0 && run.lost_work_seconds == 0.0 {
            "-".to_owned()
        } else {
            text::span(run.lost_work_seconds)
        },
        &text::span(run.duration_seconds),
        run.bundle.as_deref().unwrap_or("-"),
    ]);
    for reason in &run.reasons {
        rows.push_str(&wrapped(&format!("{:>10}  - ", ""), reason));
    }
    rows
}

/// Formats a row of the table. Columns have fixed widths, because rows are printed while other runs are
/// pending.
fn row([seed, verdict, rollbacks, lost, duration, record]: [&str; 6]) -> String {
    format!("{seed:>10}  {verdict:<8}  {rollbacks:>9}  {lost:>9}  {duration:>9}  {record}\n")
}

#[cfg(test)]
mod tests {
    use faultline_session::{Session, Simulator};

    use super::*;

    /// A machine that fails during one run does not hide the results of the others.
    #[test]
    fn a_run_that_cannot_be_performed_ends_the_repetition_without_an_error() {
        let sample = faultline_api::samples::sample("quickstart").unwrap();
        let federation = faultline_api::parse("quickstart", sample.text.as_bytes()).unwrap();
        let repetition = Repetition {
            name: "quickstart",
            federation: &federation,
            backend: BackendKind::Local,
            repeat: 3,
            keeps_all: true,
            out: Some(Path::new("no-such-directory")),
            junit: None,
            output: OutputArguments { format: Format::Json, quiet: true, verbose: 0 },
            interrupted: &AtomicBool::new(false),
        };
        let mut seeds = Vec::new();
        let failed = repetition.perform(7, |seed, _| {
            seeds.push(seed);
            Err(CommandError::machine("no network"))
        });
        assert_eq!((failed.unwrap(), seeds), (Exit::Unknown, vec![7]));
        let wrong =
            repetition.perform(7, |_, _| Err(CommandError::input(miette::miette!("the file is wrong"))));
        assert_eq!(wrong.err().map(|it| it.exit), Some(Exit::BadInput));
    }

    /// On a cluster, later runs can be refused although the first was not.
    #[test]
    fn bad_input_after_a_run_does_not_hide_the_result_of_that_run() {
        let sample = faultline_api::samples::sample("quickstart").unwrap();
        let federation = faultline_api::parse("quickstart", sample.text.as_bytes()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let repetition = Repetition {
            name: "quickstart",
            federation: &federation,
            backend: BackendKind::Simulate,
            repeat: 3,
            keeps_all: true,
            out: Some(dir.path()),
            junit: None,
            output: OutputArguments { format: Format::Json, quiet: true, verbose: 0 },
            interrupted: &AtomicBool::new(false),
        };
        let mut seeds = Vec::new();
        let exit = repetition.perform(7, |seed, dir| {
            seeds.push(seed);
            if seed > 7 {
                return Err(CommandError::input(miette::miette!("a quota is exceeded")));
            }
            let bundle = Bundle::create(dir).expect("the directory is free");
            let session = Session::new(&federation);
            session.record_simulated(&bundle, &mut Simulator::new(&mut ())).expect("the run is recorded");
            LocatedRecording::read(dir)
        });
        assert_eq!((exit.unwrap(), seeds), (Exit::Unknown, vec![7, 8]));
    }
}
