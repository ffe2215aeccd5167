//! Performs runs on real processes, for reproductions (a small federation compared with the simulator, and the runs for
//! HydEE and CCK) and for comparisons of protocols.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_checker::{Strictness, Verdict};
use faultline_console::output;
use faultline_console::place::remove_record;
use faultline_core::Time;
use faultline_core::fault::Outcome;
use faultline_experiments::compare::{Made, name_of_runs};
use faultline_experiments::reproduce::cck::costs::{self, MeasuredTasks};
use faultline_experiments::reproduce::hydee::ping_pong::{HalfRoundTrips, Setting};
use faultline_experiments::reproduce::hydee::real::{self, RealRuns};
use faultline_experiments::reproduce::reality::{FEDERATION, Pair, RunCounts};
use faultline_experiments::reproduce::{Interrupted, RunRequest};
use faultline_trace::{Bundle, Trace, shell_word};
use miette::miette;

use crate::arguments::OutputArguments;
use crate::command_error::{CommandError, Exit};
use crate::live::View;
use crate::progress::Progress;
use crate::recording::LocatedRecording;
use crate::runner::{LocalBackend, Runner};

/// The maximum number of attempts at a run whose verdict is unknown, because the machine was busy.
const ATTEMPTS: usize = 3;
/// Real processes with links emulated in the nodes, and without metrics.
const PROCESSES: LocalBackend = LocalBackend::Processes { kernel: None, metrics: None };

/// An evaluation: the directory for the records of its runs, and whether it reuses earlier records.
#[derive(Clone, Copy)]
pub(crate) struct Evaluation<'a> {
    /// The directory of `--out`.
    pub(crate) out: &'a Path,
    pub(crate) interrupted: &'a Arc<AtomicBool>,
    /// Whether to reuse runs that were recorded earlier.
    pub(crate) resume: bool,
    /// Whether to show progress only on a terminal.
    pub(crate) quiet: bool,
}

/// A run with its record.
struct RecordedComparisonRun {
    recording: LocatedRecording,
    dir: PathBuf,
    /// Whether the run was recorded earlier.
    is_known: bool,
}

impl Evaluation<'_> {
    /// Runs a small federation with the first `seeds` seeds, on real processes and on the simulator. After an
    /// interruption, the result contains only the completed pairs.
    pub(crate) fn with_simulator(self, seeds: u64) -> Result<Vec<Pair>, CommandError> {
        let mut progress = Progress::counting(0, seeds).unless_quiet(self.quiet);
        let mut pairs = Vec::new();
        for seed in 1..=seeds {
            let run = |here, on| self.uninterrupted(here, on, FEDERATION, seed);
            let Some(real) = run(&PROCESSES, "real")? else { break };
            let Some(simulated) = run(&LocalBackend::Simulator, "simulated")? else { break };
            let RecordedComparisonRun { recording, is_known, .. } = real;
            let simulated = counts(&simulated.recording);
            pairs.push(Pair { seed, real: counts(&recording), simulated });
            progress.step("real processes and simulator", (seed, seeds), is_known);
        }
        Ok(pairs)
    }

    /// Runs ping-pong among this many processes in each setting, `runs` times, with `rounds` round trips for each
    /// message length. The settings alternate, so that a temporary disturbance of the machine affects all of them
    /// equally. After an interruption, the result contains only the completed runs.
    pub(crate) fn ping_pong(
        self,
        processes: usize,
        (runs, rounds): (u32, u32),
    ) -> Result<Vec<HalfRoundTrips>, CommandError> {
        let mut shown = Progress::new().unless_quiet(self.quiet);
        let what = format!("ping-pong of {processes} processes");
        let total = u64::from(runs) * Setting::ALL.len() as u64;
        let mut all = Vec::new();
        for (run, setting) in (1..=runs).flat_map(|run| Setting::ALL.map(|it| (run, it))) {
            let name = format!("ping-pong-{processes}-{setting:?}").to_lowercase();
            let text = setting.text(processes, rounds);
            let Some(kept) = self.uninterrupted(&PROCESSES, &name, &text, run.into())? else { break };
            let played = HalfRoundTrips::of(setting, processes, rounds, &kept.recording.run.trace);
            all.push(played.ok_or_else(|| {
                CommandError::machine(format!("ping-pong did not finish; see {}", kept.dir.display()))
            })?);
            shown.step(&what, (all.len() as u64, total), kept.is_known);
        }
        Ok(all)
    }

    /// Performs all runs other than ping-pong that the evaluation of HydEE needs, `turns` times each. After an
    /// interruption, the result contains only the completed runs.
    pub(crate) fn hydee_runs(self, turns: u32) -> Result<RealRuns, CommandError> {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let runs = real::runs();
        let mut made = vec![Vec::new(); runs.len()];
        self.in_turns(turns, &runs, |index, run, _| {
            let is_good = run.is_good();
            made[index].push(run);
            is_good
        })?;
        Ok(RealRuns { cores, made })
    }

    /// Measures the tasks of each program that the evaluation of CCK simulates, `turns` times per program. After an
    /// interruption, the result is empty.
    pub(crate) fn task_times(self, turns: u32) -> Result<Vec<Vec<MeasuredTasks>>, CommandError> {
        let runs = costs::runs();
        let mut measured = vec![Vec::new(); runs.len()];
        let is_complete = self.in_turns(turns, &runs, |index, run, trace| {
            let tasks = MeasuredTasks::of(trace, &run);
            measured[index].extend(tasks);
            tasks.is_some()
        })?;
        Ok(if is_complete { measured } else { Vec::new() })
    }

    /// Performs each run once per turn on real processes, and passes it to `keep` with its index and its trace. `keep`
    /// returns whether the run passed. Returns `false` after an interruption.
    fn in_turns(
        self,
        turns: u32,
        runs: &[RunRequest],
        mut keep: impl FnMut(usize, Made, &Trace) -> bool,
    ) -> Result<bool, CommandError> {
        let mut shown = Progress::new().unless_quiet(self.quiet);
        let (mut done, total) = (0, u64::from(turns) * runs.len() as u64);
        for turn in 1..=turns {
            for (index, wanted) in runs.iter().enumerate() {
                let kept = self.uninterrupted(&PROCESSES, &wanted.name, &wanted.text, turn.into())?;
                let Some(kept) = kept else { return Ok(false) };
                let federation = faultline_api::parse(&wanted.name, wanted.text.as_bytes())
                    .map_err(|rejected| CommandError::input(*rejected))?;
                let run = &kept.recording.run;
                if !keep(index, Made::of(&federation, run), &run.trace) {
                    return Err(not_judged(&wanted.name, &kept));
                }
                done += 1;
                shown.step(&format!("{} on real processes", wanted.name), (done, total), kept.is_known);
            }
        }
        Ok(true)
    }

    /// Performs a run of a reproduction, unless the user has already interrupted the program. A run whose verdict is unknown
    /// is repeated, up to the number of [`attempts`]. Returns `None` after an interruption, and an error if the run failed.
    fn uninterrupted(
        self,
        here: &LocalBackend,
        name: &str,
        text: &str,
        seed: u64,
    ) -> Result<Option<RecordedComparisonRun>, CommandError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut run = self.run(here, name, text, seed)?;
        let verdict = |it: &RecordedComparisonRun| it.recording.run.judgement.verdict;
        for _ in 1..attempts(here) {
            let Some(unknown) = run.as_ref().filter(|it| verdict(it) == Verdict::Unknown) else { break };
            output::note(format_args!("{name} is repeated: {}", reasons(unknown)));
            remove_record(&unknown.dir)?;
            run = self.run(here, name, text, seed)?;
        }
        match run {
            Some(it) if verdict(&it) == Verdict::Fail => Err(CommandError {
                exit: Exit::Fail,
                report: miette!(
                    help = format!(
                        "`faultline explain {}` describes the run",
                        shell_word(&it.dir.display().to_string())
                    ),
                    "the run recorded in {} failed: {}",
                    it.dir.display(),
                    it.recording.run.judgement.reasons.join("; ")
                ),
            }),
            run => Ok(run),
        }
    }

    /// Performs a run or, when resuming, reads its record. Returns `None` if the user interrupts the program during the
    /// run.
    fn run(
        self,
        here: &LocalBackend,
        name: &str,
        text: &str,
        seed: u64,
    ) -> Result<Option<RecordedComparisonRun>, CommandError> {
        let federation =
            faultline_api::parse(name, text.as_bytes()).map_err(|it| CommandError::input(*it))?;
        let view = View { federation: &federation, output: OutputArguments::SILENT, of_many: true };
        let (interrupted, records_inputs) = (self.interrupted, false);
        let strictness = Strictness::Lenient;
        let runner = Runner {
            federation: &federation,
            text,
            here,
            records_inputs,
            strictness,
            view,
            page: None,
            interrupted,
        };
        let dir = self.out.join("processes").join(format!("{name}-{seed}"));
        if let Some(recording) = self.resume.then(|| known(&dir, text, seed)).flatten() {
            return Ok(Some(RecordedComparisonRun { recording, dir, is_known: true }));
        }
        remove_record(&dir)?;
        let recording = runner.once(seed, &dir)?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        Ok(Some(RecordedComparisonRun { recording, dir, is_known: false }))
    }
}

/// Returns how often a run whose verdict is unknown is performed. A simulated run always gives the same verdict.
fn attempts(here: &LocalBackend) -> usize {
    match here {
        LocalBackend::Simulator => 1,
        LocalBackend::Processes { .. } => ATTEMPTS,
    }
}

/// Returns the error for a run whose figures are missing, because none of its attempts could be judged.
fn not_judged(name: &str, run: &RecordedComparisonRun) -> CommandError {
    let dir = run.dir.display();
    CommandError::machine_with(
        format_args!("the figures of `{name}` on real processes are missing: {}; see {dir}", reasons(run)),
        "run the command again on an idle machine with `--resume`, which reuses all other runs",
    )
}

/// Returns why the verdict on a run is not a pass.
fn reasons(run: &RecordedComparisonRun) -> String {
    run.recording.run.judgement.reasons.join("; ")
}

/// Returns the record of this run, if one exists and the run neither was interrupted nor reached the memory limit.
fn known(dir: &Path, text: &str, seed: u64) -> Option<LocatedRecording> {
    let manifest = Bundle::open(dir).read_manifest().ok()?;
    let is_over = !matches!(manifest.outcome, None | Some(Outcome::Interrupted | Outcome::OutOfMemory(_)));
    let is_this = manifest.federation == text && manifest.seed == seed;
    let recording = (is_over && is_this).then(|| LocatedRecording::read(dir))?;
    recording.ok()
}

/// Performs the runs of a comparison on real processes.
pub(crate) struct Compared<'a> {
    evaluation: Evaluation<'a>,
    /// The error that ended the runs, if any.
    pub(crate) command_error: Option<CommandError>,
}

impl<'a> Compared<'a> {
    pub(crate) fn new(evaluation: Evaluation<'a>) -> Compared<'a> {
        Compared { evaluation, command_error: None }
    }

    /// Performs and judges one run of `what`: a protocol's name in the comparison, or its reference.
    pub(crate) fn run(
        &mut self,
        what: &str,
        federation: &Federation,
        seed: u64,
    ) -> Result<(Made, bool), Interrupted> {
        let name = name_of_runs(what, !federation.spec.faults.is_empty());
        let kept = self.evaluation.run(&PROCESSES, &name, &faultline_api::to_yaml(federation), seed);
        match kept {
            Ok(Some(it)) => Ok((Made::of(federation, &it.recording.run), it.is_known)),
            // The comparison shows the completed runs.
            Ok(None) => Err(Interrupted),
            Err(error) => {
                self.command_error = Some(error);
                Err(Interrupted)
            }
        }
    }
}

fn counts(recording: &LocatedRecording) -> RunCounts {
    let run = &recording.run;
    let begun = run.trace.begun().map_or(0.0, Time::as_secs_f64);
    RunCounts::of(&run.account(), run.manifest.duration.as_secs_f64() - begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runs_on_real_processes_are_repeated() {
        assert_eq!([attempts(&LocalBackend::Simulator), attempts(&PROCESSES)], [1, ATTEMPTS]);
    }

    #[test]
    fn an_error_while_interrupted_is_not_an_interruption() {
        fn evaluation<'a>(out: &'a Path, interrupted: &'a Arc<AtomicBool>) -> Evaluation<'a> {
            Evaluation { out, interrupted, resume: false, quiet: true }
        }

        let place = tempfile::tempdir().expect("a directory");
        let interrupted = Arc::new(AtomicBool::new(true));
        let text = faultline_api::samples::sample("quickstart").expect("it is one").text;
        let run = |out: &Path| evaluation(out, &interrupted).run(&LocalBackend::Simulator, "run", text, 7);
        assert!(run(&place.path().join("good")).is_ok_and(|it| it.is_none()));
        // The records cannot be written below a file.
        let file = place.path().join("file");
        std::fs::write(&file, "text").expect("it can be written");
        let error = run(&file).err().expect("there is no record");
        assert!(error.report.to_string().contains("cannot"), "{}", error.report);

        let federation = faultline_api::parse("quickstart", text.as_bytes()).expect("it is valid");
        let mut compared = Compared::new(evaluation(&file, &interrupted));
        assert!(compared.run("hc3i", &federation, 7).is_err());
        let error = compared.command_error.expect("the comparison reports it");
        assert!(error.report.to_string().contains("cannot"), "{}", error.report);
    }
}
