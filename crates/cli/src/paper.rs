//! The HC3I paper's three files: `faultline simulate` and `faultline import`.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::{Federation, Names};
use faultline_core::{Claim, ClusterId, Fact, ProcessId, Time};
use faultline_experiments::{Files, Statistics, Watch, tell};
use faultline_trace::Record;
use faultline_trace::describe::describe;

use crate::arguments::{FilesArguments, ImportArguments, SimulateArguments, StatisticsFormat, TraceLevel};
use crate::progress::Progress;
use crate::trouble::{Exit, Trouble};
use crate::{files, interrupt, output};

/// `faultline import`
pub(crate) fn import(arguments: &ImportArguments) -> Result<Exit, Trouble> {
    let federation = federation(&read(&arguments.files)?, &arguments.name)?;
    let text = serde_saphyr::to_string(&federation).expect("a federation has a YAML form");
    output::print(&text)?;
    Ok(Exit::Pass)
}

/// `faultline simulate`
pub(crate) fn simulate(arguments: &SimulateArguments) -> Result<Exit, Trouble> {
    let mut files = read(&arguments.files)?;
    if let Some(duration) = arguments.duration {
        files.application.duration = duration;
    }
    let federation = federation(&files, "simulated")?;
    let mut watcher = Watcher {
        level: arguments.trace,
        out: match arguments.format {
            StatisticsFormat::Text => Box::new(BufWriter::new(io::stdout())),
            StatisticsFormat::Json | StatisticsFormat::Csv => Box::new(BufWriter::new(io::stderr())),
        },
        cluster_of: Vec::new(),
        interrupted: interrupt::flag(),
        progress: Progress::new(),
        hours: files.application.duration.0.as_secs_f64() / 3600.0,
        run: (0, arguments.seeds),
    };
    let mut runs: Vec<Statistics> = Vec::new();
    for (seed, number) in (arguments.seed..).zip(1..=arguments.seeds) {
        watcher.run.0 = number;
        runs.push(faultline_experiments::simulate(&federation, seed, &mut watcher).map_err(files::unfit)?);
        if watcher.interrupted.load(Ordering::Relaxed) {
            break;
        }
    }
    watcher.finish()?;
    output::print(&match arguments.format {
        StatisticsFormat::Text => tell::text(&runs),
        StatisticsFormat::Json => tell::json(&runs),
        StatisticsFormat::Csv => tell::csv(&runs),
    })?;
    Ok(tell::verdict(&runs).into())
}

fn read(arguments: &FilesArguments) -> Result<Files, Trouble> {
    let FilesArguments { topology, application, timers } = arguments;
    let [topology, application, timers] = [
        (topology, "`faultline samples hc3i/topology` prints one to start from"),
        (application, "`faultline samples hc3i/application` prints one to start from"),
        (timers, "`faultline samples hc3i/timers` prints one to start from"),
    ]
    .map(|(path, help)| files::read_with(path, help));
    let (topology, application, timers) = (topology?, application?, timers?);
    Files::read(
        (&topology.label, &topology.bytes),
        (&application.label, &application.bytes),
        (&timers.label, &timers.bytes),
    )
    .map_err(|rejected| Trouble::input(*rejected))
}

fn federation(files: &Files, name: &str) -> Result<Federation, Trouble> {
    files.import(name).map_err(|rejected| Trouble::input(*rejected))
}

/// Prints what happens, as far as the user wants to know, and how far it is.
struct Watcher {
    level: TraceLevel,
    out: Box<dyn Write>,
    /// By process, from the first fact on.
    cluster_of: Vec<ClusterId>,
    interrupted: Arc<AtomicBool>,
    progress: Progress,
    hours: f64,
    /// The number of the run, and how many there are.
    run: (u32, u32),
}

impl Watcher {
    fn finish(mut self) -> Result<(), Trouble> {
        self.out.flush().or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(Trouble::machine(format!("cannot write the trace: {error}"))),
        })
    }

    /// Whether a fact is told at this level.
    fn tells(&self, process: ProcessId, fact: &Fact) -> bool {
        let cluster = |process: ProcessId| self.cluster_of.get(process.index());
        let between =
            faultline_trace::describe::message_of(fact).is_some_and(|id| cluster(id.from) != cluster(id.to));
        let speaks =
            process.index() == 0 || cluster(process) != cluster(ProcessId(process.0.wrapping_sub(1)));
        let is_event = match fact {
            Fact::Claim(claim) => !matches!(**claim, Claim::Resent { .. } | Claim::Forcing { .. }) && speaks,
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

impl Watch for Watcher {
    fn stated(&mut self, names: &Names, record: &Record) {
        if self.level == TraceLevel::Statistics {
            return;
        }
        if self.cluster_of.is_empty() {
            let clusters = (0..names.clusters() as u16).map(ClusterId);
            self.cluster_of = clusters.flat_map(|it| names.processes_of(it).map(move |_| it)).collect();
        }
        let Record { process, at, fact, .. } = record;
        if self.tells(*process, fact) {
            let name = names.process(*process);
            let line =
                format!("{:>16.9} s  {name:<16} {}\n", at.since(Time::ZERO).as_secs_f64(), describe(fact));
            // A reader who has gone away wants to see no more.
            if self.out.write_all(line.as_bytes()).is_err() {
                self.level = TraceLevel::Statistics;
            }
        }
    }

    fn goes_on(&mut self, now: Time) -> bool {
        let (number, runs) = self.run;
        let (hours, done) = (self.hours, now.since(Time::ZERO).as_secs_f64() / 3600.0);
        self.progress.show(|| format!("run {number} of {runs}: {done:.2} of {hours:.2} hours simulated"));
        !self.interrupted.load(Ordering::Relaxed)
    }
}
