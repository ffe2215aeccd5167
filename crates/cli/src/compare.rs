//! `faultline compare`: one federation under several protocols.

use std::sync::atomic::Ordering;
use std::time::Instant;

use faultline_api::Federation;
use faultline_api::resource::{Program, ProtocolSpec};
use faultline_api::validate::one_of;
use faultline_console::place::{self, Claim};
use faultline_console::repetition::consecutive;
use faultline_experiments::compare::{Made, Runs, Settings, compare as run, page, text};
use faultline_experiments::stored::{ResultStore, RunProgress, StoredResult};
use faultline_trace::manifest::BackendKind;
use miette::miette;
use serde::{Deserialize, Serialize};

use crate::arguments::{CompareArguments, ComparedOn, Format, compared};
use crate::campaign::{self, Divisible};
use crate::command_error::{CommandError, Exit};
use crate::journal::{
    Head, PartPrinter, RUNS, ResultJournal, RunResult, gather, print_missing, print_out_of_memory,
};
use crate::paper::jobs;
use crate::processes::{self, Evaluation};
use crate::progress::Progress;
use crate::{files, interrupt, output};

/// Identifies a comparison in its journal. Omits protocols and seeds, because a resumed comparison may use different
/// ones.
#[derive(PartialEq, Serialize, Deserialize)]
struct Compared {
    federation: Federation,
}

impl RunResult for StoredResult {
    type Run = (String, u64);

    fn run(&self) -> (String, u64) {
        (self.setting.clone(), self.seed)
    }

    fn has_failed(&self) -> bool {
        // A result consists of the seed and the outcome.
        self.result[1]["verdict"] == "fail"
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

/// Executes `faultline compare`.
pub(crate) fn compare(arguments: &CompareArguments) -> Result<Exit, CommandError> {
    let CompareArguments { file, protocols, seeds, seed, out, format, backend, resume, quiet, .. } =
        arguments;
    let is_on_cluster = *backend == ComparedOn::Kubernetes;
    campaign::check_options(&arguments.parts, is_on_cluster)?;
    if *backend == ComparedOn::Local && arguments.jobs.is_some() {
        return Err(CommandError::input(miette!(
            help = "omit `--jobs`, or add `--backend simulate`",
            "`--jobs` has no effect on real processes, whose runs are sequential"
        )));
    }
    if *backend == ComparedOn::Local && (arguments.parts.part.is_some() || !arguments.parts.gather.is_empty())
    {
        return Err(CommandError::input(miette!(
            help = "omit `--part` and `--gather`, or add `--backend simulate`",
            "runs on real processes cannot be divided among machines, because their results depend on the machine"
        )));
    }
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
    for name in protocols {
        check_name(name, &federation)?;
    }
    let program = federation.spec.protocol.program().map(|it| it.name().to_owned());
    let known = ProtocolSpec::compared_by_default(&federation.spec.application);
    let usual = || program.into_iter().chain(known.into_iter().map(str::to_owned));
    let settings = Settings {
        protocols: if protocols.is_empty() { usual().collect() } else { protocols.clone() },
        first_seed: seed.unwrap_or_else(|| federation.spec.seed()),
        seeds: seeds.unwrap_or(match backend {
            ComparedOn::Simulate | ComparedOn::Kubernetes => 10,
            ComparedOn::Local => 3,
        }),
        jobs: jobs(arguments.jobs),
    };
    consecutive(settings.first_seed, settings.seeds)?;
    let interrupted = interrupt::flag();
    let head = Head::of(Compared { federation: federation.clone() });
    let mut progress = Progress::counting(0, 0).unless_quiet(*quiet);
    let mut tell = |step: RunProgress<'_>| progress.step(step.what, (step.done, step.total), step.is_known);
    if let Some(part) = arguments.parts.part {
        let mut printer = PartPrinter::begin(part, &head);
        let mut keep = |it: &StoredResult| printer.add(it);
        let mut store = ResultStore::new(Vec::new(), &mut keep, &mut tell, &interrupted).of_part(part);
        let done = run(&federation, &settings, Runs::Simulated, &mut store);
        drop(progress);
        return printer.finish(done.out_of_memory == 0 && !interrupted.load(Ordering::Relaxed));
    }
    let mut gathered = gather(&arguments.parts.gather, "comparison", &head)?;
    let _claim = Claim::of(place::RESULTS, out)?;
    // Runs on real processes have records of their own instead of a journal.
    let journal = (*backend != ComparedOn::Local)
        .then(|| ResultJournal::open(&out.join(RUNS), "comparison", &head, *resume))
        .transpose()?;
    let (mut journal, known) = journal.unzip();
    let mut known: Vec<StoredResult> = known.unwrap_or_default();
    if is_on_cluster {
        let begun = Instant::now();
        Made::recorded(&federation, settings.first_seed, &interrupted).map_err(files::unfit)?;
        // Each protocol runs with and without faults.
        let runs = settings.protocols.len() as u64 * u64::from(settings.seeds) * 2;
        let divisible = Divisible {
            federation: Some(&source.text()),
            runs,
            pieces: runs,
            run: begun.elapsed(),
            dir: &out.join(campaign::PARTS),
            quiet: *quiet,
            first_found: false,
        };
        let identity = (&head, &settings.protocols, settings.first_seed, settings.seeds);
        let parts = campaign::perform(&divisible, &identity, &arguments.parts, &interrupted)?;
        gathered = gather(&parts, "comparison", &head)?;
    }
    gathered.join(&mut known);
    let mut processes = processes::Compared::new(Evaluation {
        out,
        interrupted: &interrupted,
        resume: *resume,
        quiet: *quiet,
    });
    let mut maker = |what: &str, federation: &Federation, seed| processes.run(what, federation, seed);
    let runs = match backend {
        ComparedOn::Simulate | ComparedOn::Kubernetes => Runs::Simulated,
        ComparedOn::Local => Runs::Elsewhere(BackendKind::Local, &mut maker),
    };
    let mut keep = |it: &StoredResult| {
        gathered.compare(it);
        journal.iter_mut().for_each(|journal| journal.add(it));
    };
    let mut store = ResultStore::new(known, &mut keep, &mut tell, &interrupted);
    let done = run(&federation, &settings, runs, &mut store);
    drop(progress);
    gathered.keep(journal.as_mut())?;
    campaign::remove(&out.join(campaign::PARTS))?;
    let is_complete = done.missing == 0 && done.out_of_memory == 0;
    // The comparison can be continued with more seeds and protocols.
    journal.map(|it| it.finish(false)).transpose()?;
    if let Some(command_error) = processes.command_error.take() {
        return Err(command_error);
    }
    let json = text::json(&done);
    let files = [
        ("index.html", page::render(&done)),
        ("picture.svg", page::file(&done)),
        ("comparison.json", json.clone()),
    ];
    for (name, content) in files {
        output::write(out, name, &content)?;
    }
    output::print(&match format {
        Format::Json => json,
        Format::Text => {
            output::filled(format!("{}\n{}\n", text::text(&done), out.join("index.html").display()))
        }
    })?;
    print_missing(done.missing);
    print_out_of_memory(done.out_of_memory);
    if is_complete && !done.is_judged() {
        output::note("nothing could be judged: the notes state the reasons and their remedies");
    }
    Ok(Exit::of_runs(done.has_failed(), is_complete && done.is_judged()))
}
