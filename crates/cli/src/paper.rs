//! The commands that read the three input files of the HC3I paper's simulator: `faultline simulate` and `faultline
//! import`.

use std::io::{self, BufWriter, Write};
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use faultline_api::Federation;
use faultline_catalog::SetupError;
use faultline_checker::Verdict;
use faultline_console::repetition::consecutive;
use faultline_core::{Claim, ClusterId, Fact, Life, ProcessId, Time};
use faultline_experiments::{Files, Statistics, simulate_all, text};
use faultline_session::{SimulationObserver, SimulationView};
use faultline_trace::describe::{describe, message_of};
use faultline_trace::{Manifest, Record, RunNames};

use crate::arguments::{FilesArguments, ImportArguments, SimulateArguments, StatisticsFormat, TraceLevel};
use crate::command_error::{CommandError, Exit};
use crate::progress::Progress;
use crate::{files, interrupt, output};

/// Executes `faultline import`.
pub(crate) fn import(arguments: &ImportArguments) -> Result<Exit, CommandError> {
    let federation = federation(&read(&arguments.files)?, &arguments.name)?;
    let text = serde_saphyr::to_string(&federation).expect("a federation can be written as YAML");
    output::print(&text)?;
    Ok(Exit::Pass)
}

/// Executes `faultline simulate`.
pub(crate) fn simulate(arguments: &SimulateArguments) -> Result<Exit, CommandError> {
    let mut files = read(&arguments.files)?;
    if let Some(duration) = arguments.duration {
        files.application.duration = duration;
    }
    let federation = federation(&files, "simulated")?;
    let seeds = consecutive(arguments.seed, arguments.seeds)?;
    let interrupted = interrupt::flag();
    let hours = files.application.duration.0.as_secs_f64() / 3600.0;
    let several = arguments.seeds > 1 && arguments.trace == TraceLevel::Statistics;
    let runs = if several {
        let mut progress = Progress::counting(0, arguments.seeds.into());
        simulate_all(&federation, seeds, jobs(arguments.jobs), &interrupted, |_| progress.advance())
    } else {
        watched(arguments, &federation, seeds, hours, interrupted)
    };
    let runs = runs.map_err(files::unfit)?;
    output::print(&match arguments.format {
        StatisticsFormat::Text => text::text(&runs),
        StatisticsFormat::Json => text::json(&runs),
        StatisticsFormat::Csv => text::csv(&runs),
    })?;
    let missing = arguments.seeds as usize - runs.len();
    if missing > 0 {
        output::note(format_args!(
            "interrupted after {} of {} seeds; repeat the command to run all",
            runs.len(),
            arguments.seeds
        ));
        return Ok(Exit::from(text::verdict(&runs).max(Verdict::Unknown)));
    }
    Ok(text::verdict(&runs).into())
}

/// Returns the requested number of parallel jobs, or the number of cores.
pub(crate) fn jobs(asked: Option<NonZero<usize>>) -> NonZero<usize> {
    asked.or_else(|| available_parallelism().ok()).unwrap_or(NonZero::<usize>::MIN)
}

/// Runs one seed after another, and shows the progress of each run.
fn watched(
    arguments: &SimulateArguments,
    federation: &Federation,
    seeds: RangeInclusive<u64>,
    hours: f64,
    interrupted: Arc<AtomicBool>,
) -> Result<Vec<Statistics>, SetupError> {
    let mut watcher = Watcher {
        level: arguments.trace,
        out: match arguments.format {
            StatisticsFormat::Text => Box::new(BufWriter::new(io::stdout())),
            StatisticsFormat::Json | StatisticsFormat::Csv => Box::new(BufWriter::new(io::stderr())),
        },
        names: RunNames::default(),
        cluster_of: Vec::new(),
        interrupted,
        progress: Progress::new(),
        hours,
        run: (0, arguments.seeds),
    };
    let mut runs = Vec::new();
    for (seed, number) in seeds.zip(1..=arguments.seeds) {
        watcher.run.0 = number;
        runs.push(faultline_experiments::simulate(federation, seed, &mut watcher)?);
        if watcher.interrupted.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(runs)
}

fn read(arguments: &FilesArguments) -> Result<Files, CommandError> {
    let FilesArguments { topology, application, timers } = arguments;
    let [topology, application, timers] = [
        (topology, "`faultline samples hc3i/topology` prints an example"),
        (application, "`faultline samples hc3i/application` prints an example"),
        (timers, "`faultline samples hc3i/timers` prints an example"),
    ]
    .map(|(path, help)| files::read_with(path, help));
    let (topology, application, timers) = (topology?, application?, timers?);
    Files::read(
        (&topology.label, &topology.bytes),
        (&application.label, &application.bytes),
        (&timers.label, &timers.bytes),
    )
    .map_err(|rejected| CommandError::input(*rejected))
}

fn federation(files: &Files, name: &str) -> Result<Federation, CommandError> {
    files.import(name).map_err(|rejected| CommandError::input(*rejected))
}

/// Prints events at the requested level, and the progress.
struct Watcher {
    level: TraceLevel,
    out: Box<dyn Write>,
    names: RunNames,
    /// The cluster of each process.
    cluster_of: Vec<ClusterId>,
    interrupted: Arc<AtomicBool>,
    progress: Progress,
    hours: f64,
    /// The number of the current run, from 1, and the total number of runs.
    run: (u32, u32),
}

impl Watcher {
    /// Returns whether a fact is shown at the requested level.
    fn shows(&self, process: ProcessId, fact: &Fact) -> bool {
        let cluster = |process: ProcessId| self.cluster_of.get(process.index());
        let between = message_of(fact).is_some_and(|id| cluster(id.from) != cluster(id.to));
        let speaks =
            process.index() == 0 || cluster(process) != cluster(ProcessId(process.0.wrapping_sub(1)));
        let is_event = match fact {
            Fact::Claim(claim) => !matches!(**claim, Claim::Resent { .. } | Claim::Forcing { .. }) && speaks,
            // Every process starts once; only restarts are shown.
            Fact::LifeStarted { life, .. } => *life > Life(1),
            _ => process == ProcessId::SUPERVISOR,
        };
        match self.level {
            TraceLevel::Statistics => false,
            TraceLevel::Events => is_event,
            TraceLevel::Messages => is_event || between,
            TraceLevel::Actions => true,
        }
    }
}

impl SimulationObserver for Watcher {
    fn begins(&mut self, manifest: &Manifest) {
        self.cluster_of = manifest.ranks().map(|(_, it)| it.cluster).collect();
        self.names = manifest.names();
    }

    fn recorded(&mut self, record: &Record) {
        if self.level == TraceLevel::Statistics {
            return;
        }
        let Record { process, at, fact, .. } = record;
        if self.shows(*process, fact) {
            let names = &self.names;
            let name = names.process(*process);
            let (seconds, sentence) = (at.since(Time::ZERO).as_secs_f64(), describe(*process, fact, names));
            let line = format!("{seconds:>16.9} s  {name:<14} {sentence:#}\n");
            // Stop writing once the reader has closed the pipe.
            if self.out.write_all(line.as_bytes()).is_err() {
                self.level = TraceLevel::Statistics;
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn continues(&mut self, moment: SimulationView<'_>) -> bool {
        let (number, runs) = self.run;
        let (hours, done) = (self.hours, moment.now.since(Time::ZERO).as_secs_f64() / 3600.0);
        self.progress.show(|| format!("run {number} of {runs}: {done:.2} of {hours:.2} hours simulated"));
        true
    }
}
