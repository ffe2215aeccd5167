//! `faultline compare`: one federation under several protocols.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use faultline_api::Federation;
use faultline_api::resource::{Program, ProtocolSpec};
use faultline_api::validate::one_of;
use faultline_console::place::{self, Claim};
use faultline_console::repetition::consecutive;
use faultline_experiments::compare::page::Link;
use faultline_experiments::compare::{
    Comparison, Keeper, Made, Runs, Settings, compare as run, name_of_runs, page, text,
};
use faultline_experiments::curves::{self, Curves};
use faultline_experiments::stored::{ResultStore, RunProgress, StoredResult};
use faultline_experiments::sweep::{Plan, SweepError};
use faultline_trace::manifest::BackendKind;
use miette::miette;
use serde::{Deserialize, Serialize};

use crate::arguments::{CompareArguments, ComparedOn, Format, compared};
use crate::campaign::{self, Divisible};
use crate::command_error::{CommandError, Exit};
use crate::files::Source;
use crate::journal::{
    Head, PartPrinter, RUNS, ResultJournal, RunResult, gather, print_missing, print_out_of_memory,
};
use crate::paper::jobs;
use crate::processes::{self, Evaluation};
use crate::progress::Progress;
use crate::records::Records;
use crate::sweep::SETTINGS;
use crate::{files, interrupt, output};

/// Identifies a comparison in its journal. Omits protocols and seeds, because a resumed comparison may use different
/// ones.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Compared {
    federation: Federation,
}

impl RunResult for StoredResult {
    type Run = (String, u64);

    fn run(&self) -> (String, u64) {
        (self.setting.clone(), self.seed)
    }

    fn has_failed(&self) -> bool {
        // A result of a comparison consists of the seed and the outcome; that of a reproduction consists of statistics,
        // or contains them in the first place.
        [&self.result, &self.result[0], &self.result[1]].iter().any(|it| it["verdict"] == "fail")
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

/// Rejects a name that denotes neither a protocol nor the program in the file.
fn check_name(name: &str, federation: &Federation) -> Result<(), CommandError> {
    let own = &federation.spec.protocol;
    let mut names = compared();
    names.extend(own.program().map(Program::name));
    if names.contains(&name) {
        return Ok(());
    }
    Err(CommandError::input(miette!(
        help = one_of(name, &names),
        "`{name}` is not a protocol that can be compared"
    )))
}

/// What is compared: the costs of protocols, or their goodput over the values of a parameter.
enum Work {
    Costs,
    Curves(Plan),
}

/// The results of either.
enum Done {
    Costs(Box<Comparison>),
    Curves(Box<Curves>),
}

impl Work {
    fn of(arguments: &CompareArguments, federation: &Federation, label: &str) -> Result<Work, CommandError> {
        let Some(parameter) = &arguments.sweep else { return Ok(Work::Costs) };
        parameter.notes.iter().for_each(|it| output::note(format_args!("note: {it}")));
        let planned = curves::plan(federation, parameter);
        let refused = |error: SweepError| {
            CommandError::input(miette!(help = error.help().to_owned(), "{label}: {error}"))
        };
        planned.map(Work::Curves).map_err(refused)
    }

    /// Returns the number of runs of each protocol and seed.
    fn runs_of_protocol(&self) -> u64 {
        match self {
            // One run has faults, and the other has none.
            Work::Costs => 2,
            Work::Curves(plan) => plan.settings.len() as u64 + 1,
        }
    }

    fn run(
        self,
        federation: &Federation,
        settings: &Settings,
        runs: Runs<'_>,
        store: &mut ResultStore<'_>,
    ) -> Done {
        match self {
            Work::Costs => Done::Costs(Box::new(run(federation, settings, runs, store))),
            Work::Curves(plan) => Done::Curves(Box::new(curves::curves(plan, settings, store))),
        }
    }
}

impl Done {
    /// Returns the numbers of runs that are missing and that ran out of memory.
    fn incomplete(&self) -> (u64, u64) {
        match self {
            Done::Costs(it) => (it.missing, it.out_of_memory),
            Done::Curves(it) => (it.missing, it.out_of_memory),
        }
    }

    fn is_complete(&self) -> bool {
        self.incomplete() == (0, 0)
    }

    fn has_failed(&self) -> bool {
        match self {
            Done::Costs(it) => it.has_failed(),
            Done::Curves(it) => it.has_failed(),
        }
    }

    fn is_judged(&self) -> bool {
        match self {
            Done::Costs(it) => it.is_judged(),
            Done::Curves(it) => it.is_judged(),
        }
    }

    fn text(&self) -> String {
        match self {
            Done::Costs(it) => text::text(it),
            Done::Curves(it) => curves::text::text(it),
        }
    }

    fn json(&self) -> String {
        match self {
            Done::Costs(it) => text::json(it),
            Done::Curves(it) => curves::text::json(it),
        }
    }

    /// Writes the page and what it links to, except reports.
    fn write(&self, out: &Path, link: &Link<'_>) -> Result<(), CommandError> {
        let (page, picture) = match self {
            Done::Costs(it) => (page::render(it, link), page::file(it)),
            Done::Curves(it) => (curves::page::render(it), curves::page::picture(it)),
        };
        if let Done::Curves(it) = self {
            output::directory(&out.join(SETTINGS))?;
            for (path, federation) in it.files() {
                output::write(out, &path, &faultline_api::to_yaml(federation))?;
            }
        }
        let files = [("index.html", page), ("picture.svg", picture), ("comparison.json", self.json())];
        files.iter().try_for_each(|(name, content)| output::write(out, name, content).map(drop))
    }
}

/// Rejects options that have no effect on real processes, or that need virtual time.
fn check_backend(arguments: &CompareArguments) -> Result<(), CommandError> {
    let refused = |help: &'static str, message: &'static str| {
        Err(CommandError::input(miette!(help = help, "{message}")))
    };
    match arguments {
        CompareArguments { backend: ComparedOn::Simulate | ComparedOn::Kubernetes, .. } => Ok(()),
        CompareArguments { jobs: Some(_), .. } => refused(
            "omit `--jobs`, or add `--backend simulate`",
            "`--jobs` has no effect on real processes, whose runs are sequential",
        ),
        CompareArguments { sweep: Some(_), .. } => refused(
            "omit `--sweep`, or add `--backend simulate`",
            "`--sweep` works only in virtual time, because its runs would take too long on real processes",
        ),
        CompareArguments { parts, .. } if parts.part.is_some() || !parts.gather.is_empty() => refused(
            "omit `--part` and `--gather`, or add `--backend simulate`",
            "runs on real processes cannot be divided among machines, because their results depend on the machine",
        ),
        _ => Ok(()),
    }
}

/// Returns the protocols to compare, and the seeds.
fn settings(arguments: &CompareArguments, federation: &Federation) -> Result<Settings, CommandError> {
    let CompareArguments { protocols, seeds, seed, backend, .. } = arguments;
    for name in protocols {
        check_name(name, federation)?;
    }
    let program = federation.spec.protocol.program().map(|it| it.name().to_owned());
    let known = ProtocolSpec::compared_by_default(&federation.spec.application);
    let usual = || program.into_iter().chain(known.into_iter().map(str::to_owned));
    let usual_seeds = match (backend, &arguments.sweep) {
        (ComparedOn::Local, _) => 3,
        (_, None) => 10,
        (_, Some(_)) => 20,
    };
    let settings = Settings {
        protocols: if protocols.is_empty() { usual().collect() } else { protocols.clone() },
        first_seed: seed.unwrap_or_else(|| federation.spec.seed()),
        seeds: seeds.unwrap_or(usual_seeds),
        jobs: jobs(arguments.jobs),
    };
    consecutive(settings.first_seed, settings.seeds)?;
    Ok(settings)
}

/// Lets pods perform the runs. Returns the files with their results. `text` is that of the file.
fn on_cluster(
    arguments: &CompareArguments,
    federation: &Federation,
    text: &str,
    settings: &Settings,
    (work, head): (&Work, &Head<Compared>),
    interrupted: &AtomicBool,
) -> Result<Vec<PathBuf>, CommandError> {
    let begun = Instant::now();
    Made::compared(federation, settings.first_seed, interrupted).map_err(files::unfit)?;
    let run = begun.elapsed();
    let runs = settings.protocols.len() as u64 * u64::from(settings.seeds) * work.runs_of_protocol();
    let divisible = Divisible {
        federation: Some(text),
        runs,
        pieces: runs,
        run,
        dir: &arguments.out.join(campaign::PARTS),
        quiet: arguments.quiet,
        first_found: false,
    };
    campaign::perform(&divisible, head, &arguments.parts, interrupted)
}

/// Returns the options that determine the runs.
fn options(arguments: &CompareArguments, settings: &Settings) -> Vec<(&'static str, String)> {
    let Settings { protocols, first_seed, seeds, .. } = settings;
    let mut options = vec![
        ("--protocols", protocols.join(",")),
        ("--seed", first_seed.to_string()),
        ("--seeds", seeds.to_string()),
    ];
    options.extend(arguments.sweep.iter().map(|it| ("--sweep", it.to_string())));
    options
}

/// Executes `faultline compare`.
pub(crate) fn compare(arguments: &CompareArguments) -> Result<Exit, CommandError> {
    let CompareArguments { file, out, backend, resume, quiet, .. } = arguments;
    let is_on_cluster = *backend == ComparedOn::Kubernetes;
    campaign::check_options(&arguments.parts, is_on_cluster)?;
    check_backend(arguments)?;
    let (source, federation) = read(file)?;
    let settings = settings(arguments, &federation)?;
    let work = Work::of(arguments, &federation, &source.label)?;
    let interrupted = interrupt::flag();
    let head = Head::of(Compared { federation: federation.clone() });
    let of_parts = head.of_parts(options(arguments, &settings));
    let mut progress = Progress::counting(0, 0).unless_quiet(*quiet);
    let mut tell = |step: RunProgress<'_>| progress.step(step.what, (step.done, step.total), step.is_known);
    if let Some(part) = arguments.parts.part {
        let mut printer = PartPrinter::begin(part, &of_parts);
        let mut keep = |it: &StoredResult| printer.add(it);
        let mut store = ResultStore::new(Vec::new(), &mut keep, &mut tell, &interrupted).of_part(part);
        let done = work.run(&federation, &settings, Runs::Simulated(Keeper::NONE), &mut store);
        drop(progress);
        return printer.finish(done.incomplete().1 == 0 && !interrupted.load(Ordering::Relaxed));
    }
    let mut gathered = gather(&arguments.parts.gather, "comparison", &of_parts)?;
    let _claim = Claim::of(place::RESULTS, out)?;
    let protocols = settings.protocols.iter();
    let names: Vec<_> =
        protocols.flat_map(|it| [true, false].map(|faults| name_of_runs(it, faults))).collect();
    let records = Records::new(out, names.len());
    records.check(&names)?;
    // Runs on real processes have records of their own instead of a journal.
    let journal = (*backend != ComparedOn::Local)
        .then(|| ResultJournal::open(&out.join(RUNS), "comparison", &head, *resume))
        .transpose()?;
    let (mut journal, known) = journal.unzip();
    let mut known: Vec<StoredResult> = known.unwrap_or_default();
    if is_on_cluster {
        let work = (&work, &of_parts);
        let parts = on_cluster(arguments, &federation, &source.text(), &settings, work, &interrupted)?;
        gathered = gather(&parts, "comparison", &of_parts)?;
    }
    gathered.repeat(settings.first_seed);
    gathered.join(&mut known);
    let mut processes = processes::Compared::new(Evaluation {
        out,
        interrupted: &interrupted,
        resume: *resume,
        quiet: *quiet,
    });
    let mut maker = |what: &str, federation: &Federation, seed| processes.run(what, federation, seed);
    let record = |protocol: &str, federation: &Federation, recording| {
        records.keep(&name_of_runs(protocol, !federation.spec.faults.is_empty()), federation, recording);
    };
    let lacks = |protocol: &str, federation: &Federation| {
        let name = name_of_runs(protocol, !federation.spec.faults.is_empty());
        records.link(&name, settings.first_seed).is_none()
    };
    let runs = match backend {
        ComparedOn::Simulate | ComparedOn::Kubernetes => {
            Runs::Simulated(Keeper { keep: &record, lacks: &lacks })
        }
        ComparedOn::Local => Runs::Elsewhere(BackendKind::Local, &mut maker),
    };
    let mut keep = |it: &StoredResult| {
        gathered.compare(it);
        journal.iter_mut().for_each(|journal| journal.add(it));
    };
    let mut store = ResultStore::new(known, &mut keep, &mut tell, &interrupted);
    let done = work.run(&federation, &settings, runs, &mut store);
    drop(progress);
    gathered.keep(journal.as_mut())?;
    campaign::remove(&out.join(campaign::PARTS))?;
    // The comparison can be continued with more seeds and protocols.
    journal.map(ResultJournal::finish_sorted::<StoredResult>).transpose()?;
    if let Some(command_error) = processes.command_error.take() {
        return Err(command_error);
    }
    present(arguments, &done, &records, settings.first_seed)?;
    records.result()?;
    Ok(Exit::of_runs(done.has_failed(), done.is_complete() && done.is_judged()))
}

/// Reads the federation to compare.
fn read(file: &Path) -> Result<(Source, Federation), CommandError> {
    let source = files::read(file)?;
    let federation = source.parse()?;
    files::refuse_pause(&source.label, &federation)?;
    if federation.spec.application.system().is_some() {
        return Err(CommandError::input(miette!(
            help = "repeat its run with `faultline run --repeat N`",
            "{}: a system has no protocol that could be compared with others",
            source.label
        )));
    }
    Ok((source, federation))
}

/// Writes the page, and prints the results and what is missing.
fn present(
    CompareArguments { out, format, .. }: &CompareArguments,
    done: &Done,
    records: &Records<'_>,
    first_seed: u64,
) -> Result<(), CommandError> {
    done.write(out, &|protocol, faults| records.link(&name_of_runs(protocol, faults), first_seed))?;
    output::print(&match format {
        Format::Json => done.json(),
        Format::Text => output::filled(format!("{}\n{}\n", done.text(), out.join("index.html").display())),
    })?;
    let (missing, out_of_memory) = done.incomplete();
    print_missing(missing);
    print_out_of_memory(out_of_memory);
    if done.is_complete() && !done.is_judged() {
        output::note("nothing could be judged: the notes state the reasons and their remedies");
    }
    Ok(())
}
