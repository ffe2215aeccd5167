//! Searches that several machines perform. Each machine runs some of the stretches of schedules, which do not depend on
//! each other. The search ends at the violation with the lowest seed, as on one machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use faultline_experiments::Part;
use faultline_fuzz::{Coverage, Observed, STRETCH};
use miette::miette;
use serde::{Deserialize, Serialize};

use super::search::Search;
use super::summary::SearchProgress;
use crate::arguments::{FuzzArguments, SimulatedOn};
use crate::campaign::{self, Divisible};
use crate::command_error::{CommandError, Exit};
use crate::journal::{PartPrinter, RunResult, gather};
use crate::run::without_effect;

/// The number of schedules with which the speed of this machine is measured.
const TIMED: u64 = 32;

/// The result of one stretch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Stretch {
    /// From 0.
    number: u64,
    first_seed: u64,
    coverage: Coverage,
    /// The seed of the violation that ended the stretch.
    violation: Option<u64>,
}

impl RunResult for Stretch {
    type Run = u64;

    fn run(&self) -> u64 {
        self.number
    }

    fn has_failed(&self) -> bool {
        self.violation.is_some()
    }

    fn seed(&self) -> u64 {
        self.violation.unwrap_or(self.first_seed)
    }

    /// Repeating a stretch of every part would take too long.
    fn is_repeated(&self, _: bool) -> bool {
        self.number == 0 || self.has_failed()
    }
}

/// Returns whether several machines perform the search.
pub(super) fn is_divided(FuzzArguments { parts, backend, .. }: &FuzzArguments) -> bool {
    parts.part.is_some() || !parts.gather.is_empty() || *backend == SimulatedOn::Kubernetes
}

/// Rejects options that have no effect, or that a divided search does not support.
pub(super) fn check_options(arguments: &FuzzArguments) -> Result<(), CommandError> {
    campaign::check_options(&arguments.parts, arguments.backend == SimulatedOn::Kubernetes)?;
    let FuzzArguments { span, table, file, resume, program, .. } = arguments;
    if arguments.first_found && arguments.backend != SimulatedOn::Kubernetes {
        return Err(without_effect("--first-found", "kubernetes"));
    }
    let unsupported = [
        ("--for", span.is_some(), "specify the number of schedules with `--runs`"),
        ("--table", *table, "omit it"),
        ("--file", file.is_some(), "omit it"),
        ("--resume", *resume, "omit it: the same command continues with the parts that exist"),
        ("--program", program.is_some(), "omit it: the other machines do not have the program"),
    ];
    match unsupported.into_iter().find(|(_, is_given, _)| *is_given && is_divided(arguments)) {
        Some((option, _, help)) => Err(CommandError::input(miette!(
            help = help,
            "`{option}` is not supported if several machines perform the search"
        ))),
        None => Ok(()),
    }
}

/// Performs one part of a search, and prints its results.
pub(super) fn print_part(
    search: &Search<'_>,
    part: Part,
    interrupted: &AtomicBool,
) -> Result<Exit, CommandError> {
    let mut printer = PartPrinter::begin(part, &search.head_of_parts());
    let of_part = || (0..count(search)).filter(|it| part.contains(*it));
    let total = of_part().map(|it| length(search, it)).sum();
    let mut done = 0;
    for number in of_part() {
        let (stretch, _) = run(search, number, Some((done, total)))?;
        done += stretch.coverage.runs();
        if interrupted.load(Ordering::Relaxed) {
            return printer.finish(false);
        }
        printer.add(&stretch);
        if stretch.has_failed() {
            break;
        }
    }
    printer.finish(true)
}

/// Completes a search with the results of its parts. Runs here the stretches without results, the first one, and that of
/// the violation. Returns the violation, if any.
pub(super) fn first(
    search: &mut Search<'_>,
    parts: &[PathBuf],
    interrupted: &AtomicBool,
) -> Result<Option<Observed>, CommandError> {
    let begun = Instant::now();
    let mut gathered = gather(parts, "search", &search.head_of_parts())?;
    let mut known: Vec<Stretch> = Vec::new();
    gathered.join(&mut known);
    known.retain(|it| it.coverage.runs() == length(search, it.number) && it.coverage.is_consistent(true));
    let known: BTreeMap<u64, Stretch> = known.into_iter().map(|it| (it.number, it)).collect();
    let only = gathered.failed().filter(|_| search.arguments.first_found);
    let mut progress = SearchProgress::new(search.arguments, 0, "");
    let mut found = None;
    for number in 0..count(search) {
        let coverage = match known.get(&number) {
            Some(there) => there.coverage.clone(),
            None if only.is_some_and(|it| it != number) => continue,
            None => {
                let (here, violation) = run(search, number, None)?;
                if !interrupted.load(Ordering::Relaxed) {
                    gathered.compare(&here);
                }
                found = violation;
                here.coverage
            }
        };
        search.coverage.append(&coverage);
        progress.tick(&search.coverage);
        if found.is_some() || interrupted.load(Ordering::Relaxed) {
            break;
        }
    }
    search.took = begun.elapsed();
    gathered.keep(None)?;
    Ok(found)
}

/// Lets pods perform the parts of a search, and returns the files with their results, which are in `dir`.
pub(super) fn perform(
    search: &Search<'_>,
    dir: &Path,
    interrupted: &AtomicBool,
) -> Result<Vec<PathBuf>, CommandError> {
    let FuzzArguments { runs, quiet, parts, .. } = search.arguments;
    let mut timed = search.arguments.clone();
    timed.runs = TIMED.min(*runs);
    timed.quiet = true;
    let mut timed = Search::new(&timed, search.defect, interrupted);
    timed.first()?;
    let schedules = u32::try_from(timed.coverage.runs()).unwrap_or(1).max(1);
    let cores = u32::try_from(timed.jobs.get()).unwrap_or(1);
    let divisible = Divisible {
        federation: None,
        runs: *runs,
        pieces: count(search),
        run: timed.took * cores / schedules,
        dir,
        quiet: *quiet,
        first_found: search.arguments.first_found,
    };
    campaign::perform(&divisible, &search.head_of_parts(), parts, interrupted)
}

/// Returns the number of stretches.
fn count(search: &Search<'_>) -> u64 {
    search.arguments.runs.div_ceil(STRETCH)
}

/// Returns the number of schedules in a stretch without a violation.
fn length(search: &Search<'_>, number: u64) -> u64 {
    search.arguments.runs.saturating_sub(number.saturating_mul(STRETCH)).min(STRETCH)
}

/// Runs the schedules of a stretch here. `shown` are the numbers of schedules that are shown as done before the stretch
/// and as requested; without them, no progress is shown.
fn run(
    search: &Search<'_>,
    number: u64,
    shown: Option<(u64, u64)>,
) -> Result<(Stretch, Option<Observed>), CommandError> {
    let first_seed = search.first_seed.saturating_add(number.saturating_mul(STRETCH));
    let mut arguments = search.arguments.clone();
    (arguments.seed, arguments.runs) = (Some(first_seed), length(search, number));
    arguments.quiet |= shown.is_none();
    let mut stretch = Search::new(&arguments, search.defect, search.interrupted);
    stretch.within = shown;
    let found = stretch.first()?;
    let violation = found.as_ref().map(|it| it.seed);
    Ok((Stretch { number, first_seed, coverage: stretch.coverage, violation }, found))
}
