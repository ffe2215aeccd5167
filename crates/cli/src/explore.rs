//! `faultline explore`: visits every run of a small federation, within given bounds.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use faultline_api::Federation;
use faultline_api::quantity::Size;
use faultline_api::resource::Family;
use faultline_checker::{Property, Verdict};
use faultline_console::place::{ACTION, Claim, check_free, write_record};
use faultline_console::recording::STEPS;
use faultline_explore::{
    Bounds, Counterexample, Ending, Exploration, Program, SearchExtent, Storage, explore as search,
    federation, names,
};
use faultline_report::explain::count;
use faultline_report::table::wrapped;
use faultline_report::transcript::{text, transcript};
use faultline_report::{DisplayNames, Timeline};
use faultline_session::{UnjudgedRecording, memory_bound};
use miette::miette;
use serde::Serialize;

use crate::arguments::{ExploreArguments, Format, Overtakings, SimulatedOn, StorageName};
use crate::command_error::{CommandError, Exit};
use crate::fuzz::available;
use crate::paper::jobs;
use crate::progress::Progress;
use crate::{files, interrupt, output};

/// Executes `faultline explore`.
pub(crate) fn explore(arguments: &ExploreArguments) -> Result<Exit, CommandError> {
    if arguments.backend == SimulatedOn::Kubernetes || arguments.workers.is_some() {
        return Err(CommandError::input(miette!(
            help = "omit `--backend` and `--workers`, and use a machine with more cores and memory (`--jobs`, `--memory`); or \
                    search at random in pods, with `faultline fuzz --backend kubernetes`",
            "pods cannot explore: all steps of the search share one set of visited states, so it cannot be divided"
        )));
    }
    if let Some(defect) = arguments.defect {
        available(&format!("explore --defect {defect}"))?;
    }
    let claim = arguments.out.as_ref().map(|out| Claim::of(ACTION, out)).transpose()?;
    claim.as_ref().map_or(Ok(()), |it| check_free(ACTION, it.dir()))?;
    let federation = subject(arguments)?;
    let programs = programs(arguments, &federation)?;
    let interrupted = interrupt::flag();
    let jobs = jobs(arguments.jobs);
    let mut report = Report::new(&federation, arguments);
    if !arguments.quiet && arguments.format == Format::Text {
        output::print(&output::filled(title(&report, &programs)))?;
    }
    let levels = match arguments.overtakings {
        Overtakings::Deepen => (0..=100).map(Some).collect(),
        Overtakings::AtMost(most) => vec![Some(most)],
        Overtakings::All => vec![None],
    };
    let begun = Instant::now();
    'deeper: for overtakings in levels {
        let mut level = Level::new(overtakings);
        for program in &programs {
            let bounds = Bounds {
                crashes: arguments.crashes,
                timers: arguments.timers,
                overtakings,
                storage: match arguments.storage {
                    StorageName::Kept => Storage::Kept,
                    StorageName::Lost => Storage::Lost,
                    StorageName::Any => Storage::Any,
                },
                permanent: report.tasks.is_some(),
                states: arguments.states.saturating_sub(report.states() + level.states).max(1),
            };
            let mut ticker = Ticker::new(arguments, overtakings, &interrupted);
            let Exploration { extent, end } =
                search(&federation, program, bounds, arguments.defect, jobs, &mut |it| ticker.tick(it))
                    .map_err(files::unfit)?;
            level.add(&extent);
            let (is_complete, found) = match end {
                Ending::Exhausted => (true, None),
                Ending::Stopped | Ending::Interrupted => (false, None),
                Ending::Found(it) => (false, Some(it)),
            };
            if !is_complete {
                level.seconds = begun.elapsed().as_secs_f64();
                report.levels.push(level);
                report.finding = found.map(|it| Finding::record(&it, program, arguments)).transpose()?;
                report.interrupted = interrupted.load(Ordering::Relaxed);
                report.memory_limit = ticker.memory_limit;
                break 'deeper;
            }
        }
        level.is_complete = true;
        level.seconds = begun.elapsed().as_secs_f64();
        let is_bounded = level.is_bounded;
        if !arguments.quiet && arguments.format == Format::Text {
            output::print(&output::filled(line(&level)))?;
        }
        report.levels.push(level);
        if !is_bounded {
            break;
        }
    }
    let verdict = report.conclude();
    output::print(&match arguments.format {
        Format::Json => output::json(&report),
        Format::Text => output::filled(conclusion(&report, arguments)),
    })?;
    Ok(verdict.into())
}

/// Returns the federation to explore.
fn subject(arguments: &ExploreArguments) -> Result<Federation, CommandError> {
    if let Some(file) = &arguments.file {
        let federation = files::read(file)?.parse()?;
        faultline_catalog::check_virtual_time(&federation).map_err(files::unfit)?;
        if federation.spec.protocol.program().is_some() || federation.spec.application.program().is_some() {
            return Err(CommandError::input(miette!(
                help = "search with `faultline fuzz`, or write the program as a Rust crate (docs/protocols.md, docs/applications.md)",
                "a program cannot be explored, because its state cannot be copied"
            )));
        }
        return Ok(federation);
    }
    let of_defect = arguments.defect.map(|it| it.protocol());
    let usual = || names().next().expect("there are protocols");
    let protocol = arguments.protocol.as_deref().or(of_defect).unwrap_or_else(usual);
    federation(protocol, arguments.clusters, arguments.nodes)
        .map_err(|it| CommandError::input(miette!("{it}")))
}

fn programs(arguments: &ExploreArguments, federation: &Federation) -> Result<Vec<Program>, CommandError> {
    const MOST: u64 = 10_000;
    if federation.spec.application.family() == Family::Tasks {
        if arguments.program.is_some() || arguments.all_programs {
            return Err(CommandError::input(miette!(
                help = "write another task-based program to a file, and use `--file`",
                "`--program` and `--all-programs` apply only to programs that exchange messages, but {} protects \
                 task-based programs",
                federation.spec.protocol.name()
            )));
        }
        return Ok(vec![Program::usual(1, 2, 0)]);
    }
    let clusters = &federation.spec.clusters;
    let ranks: u32 = clusters.iter().map(|it| it.nodes).sum();
    if let Some(program) = &arguments.program {
        if program.largest_rank().is_some_and(|it| it.0 >= ranks) {
            let help = format!("the ranks are 0 to {}", ranks - 1);
            return Err(CommandError::input(miette!(
                help = help,
                "`--program {program}` names a rank that does not exist"
            )));
        }
        return Ok(vec![program.clone()]);
    }
    if !arguments.all_programs {
        let nodes = clusters.iter().map(|it| it.nodes).min().unwrap_or(1);
        return Ok(vec![Program::usual(clusters.len() as u32, nodes, arguments.messages)]);
    }
    let pairs = u64::from(ranks) * u64::from(ranks.saturating_sub(1));
    if pairs == 0 {
        return Err(CommandError::input(miette!(
            help = "add ranks",
            "`--all-programs` requires at least two ranks (found {ranks})"
        )));
    }
    match pairs.checked_pow(arguments.messages) {
        Some(1..=MOST) => Ok(Program::all(ranks, arguments.messages).collect()),
        _ => Err(CommandError::input(miette!(
            help = "use fewer messages or ranks, or specify one program with `--program`",
            "there are more than {MOST} programs with {} between {ranks} ranks",
            count(arguments.messages.into(), "message")
        ))),
    }
}

/// Prints the progress of the search, and stops the search if the user interrupts it or it reaches the memory limit.
struct Ticker<'a> {
    progress: Progress,
    overtakings: Option<u32>,
    begun: Instant,
    interrupted: &'a AtomicBool,
    /// The memory limit of this program in bytes, once the search has reached it.
    memory_limit: Option<u64>,
}

impl<'a> Ticker<'a> {
    fn new(
        arguments: &ExploreArguments,
        overtakings: Option<u32>,
        interrupted: &'a AtomicBool,
    ) -> Ticker<'a> {
        let progress = Progress::new().unless_quiet(arguments.quiet);
        Ticker { progress, overtakings, begun: Instant::now(), interrupted, memory_limit: None }
    }

    /// Shows the progress. Returns whether the search may continue.
    fn tick(&mut self, extent: &SearchExtent) -> bool {
        self.progress.show(|| {
            let SearchExtent { states, depth, runs, .. } = extent;
            let rate = *states as f64 / self.begun.elapsed().as_secs_f64().max(1e-3);
            let overtakings = overtaken(self.overtakings);
            let (states, runs) = (count(*states, "state"), count(*runs, "run"));
            format!("{overtakings}: {states}, depth {depth}, {runs} judged, {rate:.0} states per second")
        });
        self.memory_limit = memory_bound().filter(|it| (it.used)() >= it.bytes).map(|it| it.bytes);
        self.memory_limit.is_none() && !self.interrupted.load(Ordering::Relaxed)
    }
}

/// The output of `--format json`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    verdict: Verdict,
    protocol: String,
    clusters: Vec<u32>,
    /// The task-based program, if the federation runs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<String>,
    crashes: u32,
    timers: u32,
    /// One entry for each limit on overtakings.
    levels: Vec<Level>,
    finding: Option<Finding>,
    interrupted: bool,
    /// The memory limit in bytes, if it ended the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_limit: Option<u64>,
    #[serde(skip)]
    is_deepening: bool,
}

/// The coverage of the search with one limit on overtakings.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Level {
    /// The maximum number of overtakings in a run; `null` means any number.
    overtakings: Option<u32>,
    /// Whether every run was visited.
    is_complete: bool,
    /// Whether a higher limit on overtakings would permit more runs.
    is_bounded: bool,
    states: u64,
    steps: u64,
    depth: u32,
    runs: u64,
    /// The number of runs that could not be judged completely.
    unknown: u64,
    /// The time from the start of the search to the end of this level.
    seconds: f64,
}

impl Level {
    fn new(overtakings: Option<u32>) -> Level {
        Level {
            overtakings,
            is_complete: false,
            is_bounded: false,
            states: 0,
            steps: 0,
            depth: 0,
            runs: 0,
            unknown: 0,
            seconds: 0.0,
        }
    }

    fn add(&mut self, extent: &SearchExtent) {
        self.states += extent.states;
        self.steps += extent.steps;
        self.depth = self.depth.max(extent.depth);
        self.runs += extent.runs;
        self.unknown += extent.unknown;
        self.is_bounded |= extent.is_bounded;
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    properties: Vec<Property>,
    texts: Vec<String>,
    program: String,
    /// The number of steps until the federation is quiescent.
    steps: usize,
    transcript: String,
    bundle: PathBuf,
}

impl Finding {
    fn record(
        found: &Counterexample,
        program: &Program,
        arguments: &ExploreArguments,
    ) -> Result<Finding, CommandError> {
        let names = DisplayNames::new(&found.manifest);
        let history = Timeline::new(&found.trace, &found.manifest);
        let transcript = text(&transcript(&found.trace, &history, &names));
        // The directory that the user named was claimed before the search.
        let new = arguments.out.is_none().then(|| claim(arguments, &found.manifest.name)).transpose()?;
        let dir = arguments.out.as_deref().or(new.as_ref().map(Claim::dir)).expect("one of them exists");
        let dir = dir.to_owned();
        let run = UnjudgedRecording { manifest: found.manifest.clone(), trace: found.trace.clone() };
        write_record(&dir, &run)?;
        output::write(&dir, "transcript.txt", &transcript)?;
        let steps: String =
            (1..).zip(&found.steps).map(|(number, step)| format!("{number:4}  {step}\n")).collect();
        output::write(&dir, STEPS, &steps)?;
        Ok(Finding {
            properties: found.violated(),
            texts: found.violations(),
            program: program.to_string(),
            steps: found.steps.len(),
            transcript,
            bundle: dir,
        })
    }
}

/// Claims a new directory for the record of a counterexample.
fn claim(arguments: &ExploreArguments, name: &str) -> Result<Claim, CommandError> {
    match arguments.defect {
        Some(defect) => Claim::numbered(&format!("explore-{defect}")),
        None => Claim::numbered(name),
    }
}

impl Report {
    fn new(federation: &Federation, arguments: &ExploreArguments) -> Report {
        Report {
            verdict: Verdict::Unknown,
            protocol: federation.spec.protocol.name().to_owned(),
            clusters: federation.spec.clusters.iter().map(|it| it.nodes).collect(),
            tasks: (federation.spec.application.family() == Family::Tasks)
                .then(|| federation.spec.application.name().to_owned()),
            crashes: arguments.crashes,
            timers: arguments.timers,
            levels: Vec::new(),
            finding: None,
            interrupted: false,
            memory_limit: None,
            is_deepening: arguments.overtakings == Overtakings::Deepen,
        }
    }

    fn states(&self) -> u64 {
        self.levels.iter().map(|it| it.states).sum()
    }

    /// Decides the verdict. A search passes only if it has visited all runs: those with at most N overtakings under
    /// `--overtakings N`, otherwise those with any number. If no run could be judged completely, the verdict is
    /// unknown.
    fn conclude(&mut self) -> Verdict {
        let covers_all = |it: &Level| it.is_complete && !(self.is_deepening && it.is_bounded);
        let is_all_visited = self.levels.last().is_some_and(covers_all);
        let is_any_judged = self.levels.iter().any(|it| it.is_complete && it.runs > it.unknown);
        self.verdict = match self.finding {
            None if !is_any_judged => Verdict::Unknown,
            Some(_) => Verdict::Fail,
            None if is_all_visited => Verdict::Pass,
            None => Verdict::Unknown,
        };
        self.verdict
    }
}

/// Describes a limit on overtakings; `None` means any number.
fn overtaken(overtakings: Option<u32>) -> String {
    match overtakings {
        None => "all orders".to_owned(),
        Some(0) => "no step overtaken".to_owned(),
        Some(1) => "at most 1 step overtaken".to_owned(),
        Some(most) => format!("at most {most} steps overtaken"),
    }
}

/// Names the tasks of an application.
fn tasks_of(application: &str) -> String {
    format!("tasks of `{application}`")
}

/// Describes the messages of a program.
fn messages_of(program: &str) -> String {
    if program.is_empty() { "no messages".to_owned() } else { format!("messages: {program}") }
}

fn title(report: &Report, programs: &[Program]) -> String {
    let clusters: Vec<String> = report.clusters.iter().map(u32::to_string).collect();
    let program = match (&report.tasks, programs) {
        (Some(tasks), _) => tasks_of(tasks),
        (None, [one]) => messages_of(&one.to_string()),
        (None, many) => format!("{} programs", many.len()),
    };
    format!(
        "{}; nodes per cluster: {}; {program}; at most {} and {}\n",
        report.protocol,
        clusters.join(", "),
        count(report.crashes.into(), "failure"),
        count(report.timers.into(), "early timer")
    )
}

fn line(level: &Level) -> String {
    let overtakings = overtaken(level.overtakings);
    let Level { depth, unknown, seconds, .. } = level;
    let (states, runs) = (count(level.states, "state"), count(level.runs, "run"));
    let end = if level.is_complete { "all visited" } else { "stopped" };
    format!(
        "  {overtakings}: {states}, depth {depth}, {runs} judged ({unknown} unknown), {end} after {seconds:.1} s\n"
    )
}

fn conclusion(report: &Report, arguments: &ExploreArguments) -> String {
    let mut text = String::new();
    let stopped = report.levels.last().filter(|it| !it.is_complete);
    if let Some(level) = stopped.filter(|_| !arguments.quiet) {
        text.push_str(&line(level));
    }
    let verdict = faultline_report::text::verdict(report.verdict).to_uppercase();
    let complete = report.levels.iter().rfind(|it| it.is_complete);
    let reached = match (complete, stopped) {
        (Some(level), None) if !level.is_bounded => "every run within the bounds was visited".to_owned(),
        (Some(level), _) => {
            let overtakings = overtaken(level.overtakings);
            let rest = if stopped.is_some() { ", but not every run with more overtakings" } else { "" };
            format!("every run with {overtakings} was visited{rest}")
        }
        (None, _) => "the search did not visit every run within the bounds".to_owned(),
    };
    text.push_str(&wrapped(
        &format!(" {verdict}  "),
        &format!("{}; {reached}", count(report.states(), "state")),
    ));
    let is_bounded = report.levels.iter().any(|it| it.is_complete && it.is_bounded);
    let more = match (report.verdict, stopped) {
        (Verdict::Pass, _) => is_bounded
            .then(|| "to visit more runs, permit more overtakings: `--overtakings deepen`".to_owned()),
        (Verdict::Fail, _) => None,
        (Verdict::Unknown, None) => Some(
            "no run could be judged; permit runs to complete, with fewer failures or kept storage".to_owned(),
        ),
        (Verdict::Unknown, Some(_)) if report.interrupted => {
            Some("the search was interrupted; repeat it, with smaller bounds if it takes too long".to_owned())
        }
        (Verdict::Unknown, Some(_)) => Some(match report.memory_limit {
            Some(limit) => format!(
                "the search reached the memory limit of {} with the states visited so far; `--memory` sets the limit, \
                 and smaller bounds need less memory",
                Size(limit)
            ),
            None => format!(
                "the search stopped after {}; `--states` sets the limit, and smaller bounds (`--nodes`, `--messages`, \
                 `--timers`) have fewer states",
                count(report.states(), "state")
            ),
        }),
    };
    text.extend(more.map(|it| wrapped(&" ".repeat(verdict.len() + 3), &it)));
    if let Some(finding) = &report.finding {
        for violation in &finding.texts {
            let _ = writeln!(text, "  {violation}");
        }
        let program = match &report.tasks {
            Some(tasks) => tasks_of(tasks),
            None => messages_of(&finding.program),
        };
        let _ = write!(
            text,
            "\nShortest run ({}; {program}):\n{}\nRecord: {} (steps.txt lists every step)\n",
            count(finding.steps as u64, "step"),
            finding.transcript,
            finding.bundle.display()
        );
    }
    text
}
