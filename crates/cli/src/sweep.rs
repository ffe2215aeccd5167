//! `faultline sweep`: runs one federation with many settings of its parameters.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use faultline_api::Federation;
use faultline_checker::Verdict;
use faultline_console::place::{self, Claim};
use faultline_console::repetition::consecutive;
use faultline_experiments::compare::Made;
use faultline_experiments::sweep::{Links, Measured, Parameter, Plan, Seeds, Sweep, page, quantities, text};
use miette::miette;
use serde::{Deserialize, Serialize};

use crate::arguments::{SimulatedOn, SweepArguments, SweepFormat};
use crate::campaign::{self, Divisible};
use crate::command_error::{CommandError, Exit};
use crate::journal::{
    Head, PartPrinter, RUNS, ResultJournal, RunResult, gather, print_missing, print_out_of_memory,
};
use crate::paper::jobs;
use crate::progress::Progress;
use crate::records::Records;
use crate::{files, interrupt, output};

/// The directory that contains the federation file of each setting.
pub(crate) const SETTINGS: &str = "settings";

/// Identifies a sweep in its journal.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Swept {
    federation: Federation,
    /// The values of each parameter as they were written, by path.
    parameters: Vec<(String, Vec<String>)>,
    sample: Option<(usize, u64)>,
}

impl RunResult for Measured {
    type Run = (usize, u64);

    fn run(&self) -> (usize, u64) {
        (self.setting, self.seed)
    }

    fn has_failed(&self) -> bool {
        self.verdict == Verdict::Fail
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

/// Executes `faultline sweep`.
pub(crate) fn sweep(arguments: &SweepArguments) -> Result<Exit, CommandError> {
    let SweepArguments { file, seeds, out, .. } = arguments;
    let is_on_cluster = arguments.backend == SimulatedOn::Kubernetes;
    campaign::check_options(&arguments.parts, is_on_cluster)?;
    let source = files::read(file)?;
    let federation = source.parse()?;
    files::refuse_pause(&source.label, &federation)?;
    let first_seed = arguments.seed.unwrap_or_else(|| federation.spec.seed());
    let sample = arguments.sample.map(|it| (it, first_seed));
    let plan = Plan::new(&federation, arguments.parameters.clone(), sample).map_err(|error| {
        CommandError::input(miette!(help = error.help().to_owned(), "{}: {error}", source.label))
    })?;
    plan.parameters.iter().flat_map(|it| &it.notes).for_each(|it| output::note(format_args!("note: {it}")));
    consecutive(first_seed, *seeds)?;
    let records = Records::new(out, plan.settings.len());
    let written = |it: &Parameter| (it.path.clone(), it.values.iter().map(|value| value.0.clone()).collect());
    let swept = Swept { federation, parameters: plan.parameters.iter().map(written).collect(), sample };
    let head = Head::of(swept);
    let of_parts = head.of_parts(options(arguments, first_seed));
    let seeds_of = |part| Seeds { first: first_seed, count: *seeds, part };
    if let Some(part) = arguments.parts.part {
        return print_part(arguments, plan, seeds_of(Some(part)), PartPrinter::begin(part, &of_parts));
    }
    let mut gathered = gather(&arguments.parts.gather, "sweep", &of_parts)?;
    let _claim = Claim::of(place::RESULTS, out)?;
    let names: Vec<String> = (1..=plan.settings.len()).map(|it| it.to_string()).collect();
    records.check(&names)?;
    output::directory(&out.join(SETTINGS))?;
    let (mut journal, runs) = ResultJournal::open(&out.join(RUNS), "sweep", &head, arguments.resume)?;
    let mut runs: Vec<Measured> = runs;
    let interrupted = interrupt::flag();
    if is_on_cluster && *seeds > 1 {
        let runs = seeds_of(None).runs(plan.settings.len()) - plan.settings.len() as u64;
        let parts = on_cluster(arguments, &source.text(), &of_parts, (first_seed, runs), &interrupted)?;
        gathered = gather(&parts, "sweep", &of_parts)?;
    }
    gathered.join(&mut runs);
    // Only now is it certain that the directory does not contain another sweep.
    let path_of = |setting: usize| format!("{SETTINGS}/{}.yaml", setting + 1);
    for (number, setting) in plan.settings.iter().enumerate() {
        output::write(out, &path_of(number), &faultline_api::to_yaml(&setting.federation))?;
    }
    let total = seeds_of(None).runs(plan.settings.len());
    let settings = plan.settings.clone();
    let record = |setting: usize, recording| {
        records.keep(&names[setting], &settings[setting].federation, recording);
    };
    let mut progress = Progress::counting(runs.len() as u64, total).unless_quiet(arguments.quiet);
    let swept = Sweep::run(plan, seeds_of(None), runs, jobs(arguments.jobs), &interrupted, record, |run| {
        gathered.compare(run);
        if !run.out_of_memory {
            journal.add(run);
        }
        progress.advance();
    });
    drop(progress);
    gathered.keep(Some(&mut journal))?;
    campaign::remove(&out.join(campaign::PARTS))?;
    let swept = swept.map_err(files::unfit)?;
    // The sweep can be continued with more seeds.
    journal.finish_sorted::<Measured>()?;
    let linked = |setting: usize| records.link(&names[setting], first_seed);
    present(arguments, &swept, Links { file: &path_of, record: &linked })?;
    records.result()?;
    Ok(Exit::of_runs(swept.has_failed(), swept.missing() + swept.out_of_memory() == 0))
}

/// Lets pods perform the runs, except those with the first seed. Returns the files with their results. `text` is that
/// of the file.
fn on_cluster(
    arguments: &SweepArguments,
    text: &str,
    head: &Head<Swept>,
    (first_seed, runs): (u64, u64),
    interrupted: &AtomicBool,
) -> Result<Vec<PathBuf>, CommandError> {
    let begun = Instant::now();
    Made::recorded(&head.of.federation, first_seed, interrupted).map_err(files::unfit)?;
    let divisible = Divisible {
        federation: Some(text),
        runs,
        pieces: runs,
        run: begun.elapsed(),
        dir: &arguments.out.join(campaign::PARTS),
        quiet: arguments.quiet,
        first_found: false,
    };
    campaign::perform(&divisible, head, &arguments.parts, interrupted)
}

/// Writes the page and the tables, and prints the results and what is missing.
fn present(arguments: &SweepArguments, swept: &Sweep, links: Links<'_>) -> Result<(), CommandError> {
    let out = &arguments.out;
    let quantity = quantities().find(|it| it.name == arguments.best).expect("clap permits only known names");
    let (json, csv) = (text::json(swept, quantity), text::csv(swept));
    let page = page::render(swept, quantity, links);
    for (name, content) in [("index.html", &page), ("sweep.json", &json), ("runs.csv", &csv)] {
        output::write(out, name, content)?;
    }
    output::print(&match arguments.format {
        SweepFormat::Json => json,
        SweepFormat::Csv => csv,
        SweepFormat::Text => {
            format!("{}\n{}\n", text::text(swept, quantity), out.join("index.html").display())
        }
    })?;
    print_missing(swept.missing() as u64);
    print_out_of_memory(swept.out_of_memory() as u64);
    Ok(())
}

/// Returns the options that determine the runs.
fn options(arguments: &SweepArguments, first_seed: u64) -> Vec<(&'static str, String)> {
    let SweepArguments { parameters, seeds, sample, .. } = arguments;
    let set: Vec<String> = parameters.iter().map(ToString::to_string).collect();
    let mut options = vec![
        ("--set", set.join(" --set ")),
        ("--seed", first_seed.to_string()),
        ("--seeds", seeds.to_string()),
    ];
    options.extend(sample.map(|it| ("--sample", it.to_string())));
    options
}

/// Performs one part of the runs, and prints their results.
fn print_part(
    arguments: &SweepArguments,
    plan: Plan,
    seeds: Seeds,
    mut printer: PartPrinter,
) -> Result<Exit, CommandError> {
    let interrupted = interrupt::flag();
    let mut progress = Progress::counting(0, seeds.runs(plan.settings.len())).unless_quiet(arguments.quiet);
    let mut is_complete = true;
    let done = Sweep::run(
        plan,
        seeds,
        Vec::new(),
        jobs(arguments.jobs),
        &interrupted,
        |_, _| (),
        |run| {
            is_complete &= !run.out_of_memory;
            printer.add(run);
            progress.advance();
        },
    );
    drop(progress);
    done.map_err(files::unfit)?;
    printer.finish(is_complete && !interrupted.load(Ordering::Relaxed))
}
