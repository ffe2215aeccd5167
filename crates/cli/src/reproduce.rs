//! `faultline reproduce`: runs a published evaluation, and writes the page, the tables and the figures.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use faultline_console::place::{self, Claim};
use faultline_experiments::reproduce::hydee::ping_pong::{CROWD, PAIR, Setting};
use faultline_experiments::reproduce::{
    Reproduction, Settings, cck, hydee, page, reality, reproduce as repeat, tic,
};
use faultline_experiments::stored::{ResultStore, RunProgress, StoredResult};
use faultline_experiments::table1;
use miette::miette;
use serde::{Deserialize, Serialize};

use crate::arguments::{Paper, ReproduceArguments};
use crate::command_error::{CommandError, Exit};
use crate::journal::{Head, RUNS, ResultJournal, print_missing, print_out_of_memory};
use crate::paper::jobs;
use crate::processes::Evaluation;
use crate::progress::Progress;
use crate::{interrupt, output};

/// Number of seeds for each setting.
const SEEDS: u32 = 30;
/// Number of seeds for each setting, with `--quick`.
const QUICK_SEEDS: u32 = 5;
/// Number of runs on real processes. The simulator performs the same number of runs.
const PAIRS: u64 = 10;
/// Number of runs on real processes, with `--quick`.
const QUICK_PAIRS: u64 = 3;

/// Number of seeds for each of HydEE's settings.
const HYDEE_SEEDS: u32 = 3;
/// Number of seeds for each of HydEE's settings, with `--quick`.
const HYDEE_QUICK_SEEDS: u32 = 1;
/// Number of ping-pong runs in each setting, and number of round trips for each message length.
const PING_PONG: (u32, u32) = (10, 200);
/// The same two numbers for ping-pong with many processes.
const CROWDED_PING_PONG: (u32, u32) = (5, 200);
/// The same two numbers with `--quick`, whatever the number of processes.
const QUICK_PING_PONG: (u32, u32) = (2, 50);
/// Number of runs of each federation other than ping-pong, on real processes.
const TURNS: u32 = 5;
/// Number of runs of each federation other than ping-pong, on real processes, with `--quick`.
const QUICK_TURNS: u32 = 1;

/// Number of seeds for each of CCK's settings.
const CCK_SEEDS: u32 = 3;
/// Number of seeds for each of CCK's settings, with `--quick`.
const CCK_QUICK_SEEDS: u32 = 1;

/// Executes `faultline reproduce`.
pub(crate) fn reproduce(arguments: &ReproduceArguments) -> Result<Exit, CommandError> {
    match arguments.paper {
        Paper::Hc3i => hc3i(arguments),
        Paper::Hydee => hydee(arguments),
        Paper::HydeeTable1 => hydee_table1(arguments),
        Paper::Tic => tic(arguments),
        Paper::Cck => cck(arguments),
    }
}

/// Claims the directory for the results.
fn claim(arguments: &ReproduceArguments, default: &str) -> Result<Claim, CommandError> {
    Claim::of(place::RESULTS, arguments.out.as_deref().unwrap_or(Path::new(default)))
}

fn hydee_table1(arguments: &ReproduceArguments) -> Result<Exit, CommandError> {
    if arguments.resume {
        return Err(CommandError::input(miette!(
            help = "omit `--resume`",
            "`--resume` has no effect on `hydee-table1`, which simulates no runs"
        )));
    }
    let claim = claim(arguments, "faultline-hydee-table1")?;
    let out = claim.dir();
    let rows = table1::repeat();
    for row in &rows {
        let name = format!("{}.svg", row.pattern.name().to_lowercase());
        output::write(out, &name, &row.chart().file())?;
    }
    output::write(out, "index.html", &table1::page(&rows))?;
    output::print(&format!("{}\n{}\n", table1::text(&rows), out.join("index.html").display()))?;
    Ok(if rows.iter().all(table1::Row::agrees) { Exit::Pass } else { Exit::Fail })
}

fn hc3i(arguments: &ReproduceArguments) -> Result<Exit, CommandError> {
    let ReproduceArguments { quick, resume, .. } = arguments;
    let claim = claim(arguments, "faultline-hc3i")?;
    let out = claim.dir();
    let seeds = arguments.seeds.unwrap_or(if *quick { QUICK_SEEDS } else { SEEDS });
    let settings = Settings { seeds, quick: *quick, jobs: jobs(arguments.jobs) };
    let interrupted = interrupt::flag();
    let work = Work { out, arguments, interrupted: &interrupted };
    let opened = work.open()?;
    // The runs on real processes come first, before this program puts any other load on the machine.
    let evaluation = Evaluation { out, interrupted: &interrupted, resume: *resume, quiet: arguments.quiet };
    let wanted = match (arguments.with_processes, *quick) {
        (false, _) => 0,
        (true, false) => PAIRS,
        (true, true) => QUICK_PAIRS,
    };
    let pairs = evaluation.with_simulator(wanted)?;
    let missing = wanted - pairs.len() as u64;
    let mut done = work.repeat(opened, |store| {
        let done = repeat(settings, store);
        Reproduction { missing: done.missing + missing, ..done }
    })?;
    if !pairs.is_empty() {
        done.sections.push(reality::section(&pairs));
        let differ = pairs.iter().filter(|it| !it.agrees());
        done.judged
            .wrong
            .extend(differ.map(|it| format!("real processes differ from the simulator, seed {}", it.seed)));
    }
    write_results(&done, out)
}

fn hydee(arguments: &ReproduceArguments) -> Result<Exit, CommandError> {
    let ReproduceArguments { quick, resume, .. } = arguments;
    let claim = claim(arguments, "faultline-hydee")?;
    let out = claim.dir();
    let seeds = arguments.seeds.unwrap_or(if *quick { HYDEE_QUICK_SEEDS } else { HYDEE_SEEDS });
    let settings = Settings { seeds, quick: *quick, jobs: jobs(arguments.jobs) };
    let interrupted = interrupt::flag();
    let work = Work { out, arguments, interrupted: &interrupted };
    let opened = work.open()?;
    // The runs on real processes come first, before this program puts any other load on the machine.
    let evaluation = Evaluation { out, interrupted: &interrupted, resume: *resume, quiet: arguments.quiet };
    let (few, many) =
        if *quick { (QUICK_PING_PONG, QUICK_PING_PONG) } else { (PING_PONG, CROWDED_PING_PONG) };
    let turns = if *quick { QUICK_TURNS } else { TURNS };
    let played = evaluation.ping_pong(PAIR, few)?;
    let crowded = evaluation.ping_pong(CROWD, many)?;
    let real = evaluation.hydee_runs(turns)?;
    let performed = played.len() + crowded.len() + real.made.iter().map(Vec::len).sum::<usize>();
    let wanted = (few.0 + many.0) as usize * Setting::ALL.len() + turns as usize * real.made.len();
    let missing = (wanted - performed) as u64;
    let measured = hydee::Measured { played, crowded, real };
    let done = work.repeat(opened, |store| match missing {
        0 => hydee::reproduce(settings, &measured, store),
        _ => hydee::interrupted(settings, &measured.played, missing),
    })?;
    write_results(&done, out)
}

fn cck(arguments: &ReproduceArguments) -> Result<Exit, CommandError> {
    let ReproduceArguments { quick, resume, with_processes, .. } = *arguments;
    let claim = claim(arguments, "faultline-cck")?;
    let out = claim.dir();
    let seeds = arguments.seeds.unwrap_or(if quick { CCK_QUICK_SEEDS } else { CCK_SEEDS });
    if !with_processes {
        return simulated(arguments, out, seeds, |settings, store| cck::reproduce(settings, None, store));
    }
    let settings = Settings { seeds, quick, jobs: jobs(arguments.jobs) };
    let interrupted = interrupt::flag();
    let work = Work { out, arguments, interrupted: &interrupted };
    let opened = work.open()?;
    // The runs on real processes come first, before this program puts any other load on the machine.
    let turns = if quick { QUICK_TURNS } else { TURNS };
    let tasks =
        Evaluation { out, interrupted: &interrupted, resume, quiet: arguments.quiet }.task_times(turns)?;
    // After an interruption, there are no results.
    let missing = if tasks.is_empty() { u64::from(turns) * cck::costs::runs().len() as u64 } else { 0 };
    let done = work.repeat(opened, |store| {
        let tasks = (missing == 0).then_some(&tasks[..]);
        let done = cck::reproduce(settings, tasks, store);
        Reproduction { missing: done.missing + missing, ..done }
    })?;
    write_results(&done, out)
}

fn tic(arguments: &ReproduceArguments) -> Result<Exit, CommandError> {
    let claim = claim(arguments, "faultline-tic")?;
    let out = claim.dir();
    let seeds = arguments.seeds.unwrap_or(if arguments.quick { QUICK_SEEDS } else { SEEDS });
    simulated(arguments, out, seeds, tic::reproduce)
}

/// Reproduces an evaluation that needs no real processes.
fn simulated(
    arguments: &ReproduceArguments,
    out: &Path,
    seeds: u32,
    reproduce: impl FnOnce(Settings, &mut ResultStore<'_>) -> Reproduction,
) -> Result<Exit, CommandError> {
    let settings = Settings { seeds, quick: arguments.quick, jobs: jobs(arguments.jobs) };
    let interrupted = interrupt::flag();
    let work = Work { out, arguments, interrupted: &interrupted };
    let done = work.repeat(work.open()?, |store| reproduce(settings, store))?;
    write_results(&done, out)
}

/// Identifies a reproduction in its journal. The number of seeds is not part of this identity.
#[derive(PartialEq, Serialize, Deserialize)]
struct Reproduced {
    paper: String,
    quick: bool,
}

/// The simulated part of an evaluation.
struct Work<'a> {
    out: &'a Path,
    arguments: &'a ReproduceArguments,
    interrupted: &'a AtomicBool,
}

impl Work<'_> {
    /// Opens the journal, and returns it with the results that it contains.
    fn open(&self) -> Result<(ResultJournal, Vec<StoredResult>), CommandError> {
        let ReproduceArguments { paper, quick, resume, .. } = self.arguments;
        let paper = paper.to_possible_value().expect("no evaluation is hidden").get_name().to_owned();
        let head = Head::of(Reproduced { paper, quick: *quick });
        ResultJournal::open(&self.out.join(RUNS), "reproduction", &head, *resume)
    }

    /// Simulates the runs that are not in the journal.
    fn repeat(
        &self,
        (mut journal, known): (ResultJournal, Vec<StoredResult>),
        run: impl FnOnce(&mut ResultStore<'_>) -> Reproduction,
    ) -> Result<Reproduction, CommandError> {
        let mut progress = Progress::new().unless_quiet(self.arguments.quiet);
        let mut keep = |it: &StoredResult| journal.add(it);
        let mut tell =
            |step: RunProgress<'_>| progress.step(step.what, (step.done, step.total), step.is_known);
        let done = run(&mut ResultStore::new(known, &mut keep, &mut tell, self.interrupted));
        drop(progress);
        journal.finish(done.missing == 0 && done.out_of_memory == 0)?;
        Ok(done)
    }
}

/// Writes and prints the results.
fn write_results(done: &Reproduction, out: &Path) -> Result<Exit, CommandError> {
    let write = |name: &str, content: &str| output::write(out, name, content);
    for section in &done.sections {
        for table in &section.tables {
            write(&format!("{}.csv", table.name), &table.csv())?;
        }
        for figure in &section.figures {
            write(&format!("{}.svg", figure.name), &figure.chart.file())?;
        }
    }
    write("index.html", &page::render(done))?;
    output::print(&page::text(done))?;
    output::print(&format!("{}\n", out.join("index.html").display()))?;
    print_missing(done.missing);
    print_out_of_memory(done.out_of_memory);
    let is_complete = done.missing == 0 && done.out_of_memory == 0;
    let has_failed = !done.judged.wrong.is_empty() || !done.judged.missed.is_empty();
    Ok(Exit::of_runs(has_failed, is_complete))
}
