//! `faultline reproduce`: runs a published evaluation, and writes the page, the tables and the figures.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use faultline_console::place::{self, Claim};
use faultline_experiments::reproduce::hydee::ping_pong::{CROWD, PAIR, Setting};
use faultline_experiments::reproduce::{
    Extent, Reproduction, Settings, cck, extent, hydee, page, reality, reproduce as repeat, tic,
};
use faultline_experiments::stored::{ResultStore, RunProgress, StoredResult};
use faultline_experiments::{Part, table1};
use miette::miette;
use serde::{Deserialize, Serialize};

use crate::arguments::{Paper, ReproduceArguments, SimulatedOn};
use crate::campaign::{self, Divisible, PART};
use crate::command_error::{CommandError, Exit};
use crate::journal::{Head, PartPrinter, RUNS, ResultJournal, gather, print_missing, print_out_of_memory};
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
    check_options(arguments)?;
    if let Some(part) = arguments.parts.part {
        return print_part(arguments, part);
    }
    match arguments.paper {
        Paper::Hc3i => hc3i(arguments),
        Paper::Hydee => hydee(arguments),
        Paper::HydeeTable1 => hydee_table1(arguments),
        Paper::Tic => tic(arguments),
        Paper::Cck => cck(arguments),
    }
}

/// Rejects options that have no effect, or that divide an evaluation that cannot be divided.
fn check_options(arguments: &ReproduceArguments) -> Result<(), CommandError> {
    let ReproduceArguments { paper, backend, parts, with_processes, .. } = arguments;
    let is_on_cluster = *backend == SimulatedOn::Kubernetes;
    campaign::check_options(parts, is_on_cluster)?;
    if parts.part.is_some() && *with_processes {
        return Err(CommandError::input(miette!(
            help = "omit `--with-processes`; use it with `--gather`",
            "`--with-processes` has no effect on a part, which consists of simulations"
        )));
    }
    let cannot = match paper {
        Paper::Hc3i | Paper::Tic | Paper::Cck => return Ok(()),
        Paper::Hydee => "its simulations need measurements that precede them on the same machine",
        Paper::HydeeTable1 => "it simulates no runs",
    };
    if is_on_cluster || parts.part.is_some() || !parts.gather.is_empty() {
        return Err(CommandError::input(miette!(
            help = "omit the options, or reproduce `hc3i`, `tic` or `cck`",
            "`{}` cannot be divided among machines: {cannot}",
            name(*paper)
        )));
    }
    Ok(())
}

fn name(paper: Paper) -> String {
    paper.to_possible_value().expect("no evaluation is hidden").get_name().to_owned()
}

fn settings(arguments: &ReproduceArguments) -> Settings {
    let ReproduceArguments { paper, seeds, quick, .. } = *arguments;
    let usual = match paper {
        Paper::Hc3i | Paper::Tic => [SEEDS, QUICK_SEEDS],
        Paper::Hydee | Paper::HydeeTable1 => [HYDEE_SEEDS, HYDEE_QUICK_SEEDS],
        Paper::Cck => [CCK_SEEDS, CCK_QUICK_SEEDS],
    };
    let seeds = seeds.unwrap_or(usual[usize::from(quick)]);
    Settings { seeds, quick, jobs: jobs(arguments.jobs) }
}

/// Performs one part of the simulations, and prints their results.
fn print_part(arguments: &ReproduceArguments, part: Part) -> Result<Exit, CommandError> {
    let mut printer = PartPrinter::begin(part, &head_of_parts(arguments));
    let interrupted = interrupt::flag();
    let settings = settings(arguments);
    let mut progress = Progress::new().unless_quiet(arguments.quiet);
    let mut tell = |step: RunProgress<'_>| progress.step(step.what, (step.done, step.total), step.is_known);
    let mut keep = |it: &StoredResult| printer.add(it);
    let mut store = ResultStore::new(Vec::new(), &mut keep, &mut tell, &interrupted).of_part(part);
    let done = match arguments.paper {
        Paper::Hc3i => repeat(settings, &mut store),
        Paper::Tic => tic::reproduce(settings, &mut store),
        Paper::Cck => cck::reproduce(settings, None, &mut store),
        Paper::Hydee | Paper::HydeeTable1 => unreachable!("these evaluations are not divided"),
    };
    drop(progress);
    printer.finish(done.out_of_memory == 0 && !interrupted.load(Ordering::Relaxed))
}

fn head(arguments: &ReproduceArguments) -> Head<Reproduced> {
    Head::of(Reproduced { paper: name(arguments.paper), quick: arguments.quick })
}

/// Returns the first line of the results of a part.
fn head_of_parts(arguments: &ReproduceArguments) -> Head<Reproduced> {
    let seeds = settings(arguments).seeds.to_string();
    let quick = arguments.quick.then(|| ("--quick", String::new()));
    let options = [("reproduce", name(arguments.paper)), ("--seeds", seeds)];
    head(arguments).of_parts(options.into_iter().chain(quick))
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
    let wanted = match (arguments.with_processes, arguments.quick) {
        (false, _) => 0,
        (true, false) => PAIRS,
        (true, true) => QUICK_PAIRS,
    };
    let measure = |evaluation: Evaluation<'_>| evaluation.with_simulator(wanted);
    evaluate(arguments, "faultline-hc3i", measure, |settings, pairs, store| {
        let mut done = repeat(settings, store);
        done.missing += wanted - pairs.len() as u64;
        if !pairs.is_empty() {
            done.sections.push(reality::section(&pairs));
            let differ = pairs.iter().filter(|it| !it.agrees());
            done.judged.wrong.extend(
                differ.map(|it| format!("real processes differ from the simulator, seed {}", it.seed)),
            );
        }
        done
    })
}

fn hydee(arguments: &ReproduceArguments) -> Result<Exit, CommandError> {
    let (few, many, turns) = match arguments.quick {
        true => (QUICK_PING_PONG, QUICK_PING_PONG, QUICK_TURNS),
        false => (PING_PONG, CROWDED_PING_PONG, TURNS),
    };
    let measure = |evaluation: Evaluation<'_>| {
        Ok(hydee::Measured {
            played: evaluation.ping_pong(PAIR, few)?,
            crowded: evaluation.ping_pong(CROWD, many)?,
            real: evaluation.hydee_runs(turns)?,
        })
    };
    evaluate(arguments, "faultline-hydee", measure, |settings, measured, store| {
        let hydee::Measured { played, crowded, real } = &measured;
        let performed = played.len() + crowded.len() + real.made.iter().map(Vec::len).sum::<usize>();
        let wanted = (few.0 + many.0) as usize * Setting::ALL.len() + turns as usize * real.made.len();
        match (wanted - performed) as u64 {
            0 => hydee::reproduce(settings, &measured, store),
            missing => hydee::interrupted(settings, played, missing),
        }
    })
}

fn cck(arguments: &ReproduceArguments) -> Result<Exit, CommandError> {
    let turns = if arguments.quick { QUICK_TURNS } else { TURNS };
    let measure = |evaluation: Evaluation<'_>| {
        arguments.with_processes.then(|| evaluation.task_times(turns)).transpose()
    };
    evaluate(arguments, "faultline-cck", measure, |settings, tasks, store| {
        // After an interruption, there are no results.
        let is_interrupted = tasks.as_ref().is_some_and(Vec::is_empty);
        let missing = if is_interrupted { u64::from(turns) * cck::costs::runs().len() as u64 } else { 0 };
        let mut done = cck::reproduce(settings, tasks.as_deref().filter(|it| !it.is_empty()), store);
        done.missing += missing;
        done
    })
}

fn tic(arguments: &ReproduceArguments) -> Result<Exit, CommandError> {
    evaluate(arguments, "faultline-tic", |_| Ok(()), |settings, (), store| tic::reproduce(settings, store))
}

/// Reproduces an evaluation: measures runs on real processes, if it needs any, and then simulates.
fn evaluate<M>(
    arguments: &ReproduceArguments,
    default: &str,
    measure: impl FnOnce(Evaluation<'_>) -> Result<M, CommandError>,
    reproduce: impl FnOnce(Settings, M, &mut ResultStore<'_>) -> Reproduction,
) -> Result<Exit, CommandError> {
    let claim = claim(arguments, default)?;
    let out = claim.dir();
    let settings = settings(arguments);
    let interrupted = interrupt::flag();
    let work = Work { out, arguments, interrupted: &interrupted };
    let opened = work.open()?;
    // The runs on real processes come first, before this program puts any other load on the machine.
    let (resume, quiet) = (arguments.resume, arguments.quiet);
    let measured = measure(Evaluation { out, interrupted: &interrupted, resume, quiet })?;
    let done = work.repeat(opened, |store| reproduce(settings, measured, store))?;
    write_results(&done, out)
}

/// Identifies a reproduction in its journal. The number of seeds is not part of this identity.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
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
        let path = self.out.join(RUNS);
        ResultJournal::open(&path, "reproduction", &head(self.arguments), self.arguments.resume)
    }

    /// Lets pods simulate the runs. Returns the files with their results.
    fn on_cluster(&self) -> Result<Vec<PathBuf>, CommandError> {
        let extent = match self.arguments.paper {
            Paper::Tic => tic::extent,
            Paper::Cck => cck::extent,
            _ => extent,
        };
        let Settings { seeds, quick, .. } = settings(self.arguments);
        let Extent { experiments, settings: count } = extent(quick);
        let divisible = Divisible {
            federation: None,
            runs: count * u64::from(seeds),
            pieces: experiments,
            // Experiments differ in length, so each should be a part.
            run: PART,
            dir: &self.out.join(campaign::PARTS),
            quiet: self.arguments.quiet,
            first_found: false,
        };
        let head = head_of_parts(self.arguments);
        campaign::perform(&divisible, &head, &self.arguments.parts, self.interrupted)
    }

    /// Simulates the runs that are neither in the journal nor in parts that other machines performed.
    fn repeat(
        &self,
        (mut journal, mut known): (ResultJournal, Vec<StoredResult>),
        run: impl FnOnce(&mut ResultStore<'_>) -> Reproduction,
    ) -> Result<Reproduction, CommandError> {
        let parts = match self.arguments.backend {
            SimulatedOn::Simulate => self.arguments.parts.gather.clone(),
            SimulatedOn::Kubernetes => self.on_cluster()?,
        };
        let mut gathered = gather(&parts, "reproduction", &head_of_parts(self.arguments))?;
        gathered.join(&mut known);
        let mut progress = Progress::new().unless_quiet(self.arguments.quiet);
        let mut keep = |it: &StoredResult| {
            gathered.compare(it);
            journal.add(it);
        };
        let mut tell =
            |step: RunProgress<'_>| progress.step(step.what, (step.done, step.total), step.is_known);
        let done = run(&mut ResultStore::new(known, &mut keep, &mut tell, self.interrupted));
        drop(progress);
        gathered.keep(Some(&mut journal))?;
        campaign::remove(&self.out.join(campaign::PARTS))?;
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
