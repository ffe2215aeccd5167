//! `faultline sweep`: runs one federation with many settings of its parameters.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use faultline_api::Federation;
use faultline_checker::Verdict;
use faultline_console::place::{self, ACTION, Claim, check_replaceable, create_record, remove_record};
use faultline_console::repetition::consecutive;
use faultline_experiments::compare::Made;
use faultline_experiments::sweep::{
    Links, Measured, Parameter, Plan, Seeds, Setting, Sweep, page, quantities, text,
};
use faultline_report::RecordedRun;
use faultline_report::page::render as report;
use faultline_session::{Recording, UnjudgedRecording};
use faultline_trace::Bundle;
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
use crate::{files, interrupt, output};

/// The directory that contains the federation file of each setting.
pub(crate) const SETTINGS: &str = "settings";
/// The directory that contains the record of each setting.
const RECORDS: &str = "records";
/// The report in a record.
const REPORT: &str = "report.html";
/// The maximum size of all records and reports together, in bytes. All settings have equal shares, so that the order in
/// which runs complete does not affect which records are kept.
const RECORDED: u64 = 256 << 20;
/// A lower bound on the size of a fact in a record, in bytes.
const FACT: u64 = 8;

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
    let SweepArguments { file, seeds, out, format, .. } = arguments;
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
    let records = Records { out, most: RECORDED / plan.settings.len() as u64, failed: Mutex::default() };
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
    for setting in 0..plan.settings.len() {
        check_replaceable(ACTION, &records.dir(setting))?;
    }
    output::directory(&out.join(SETTINGS))?;
    let (mut journal, runs) = ResultJournal::open(&out.join(RUNS), "sweep", &head, arguments.resume)?;
    let mut runs: Vec<Measured> = runs;
    let interrupted = interrupt::flag();
    if is_on_cluster && *seeds > 1 {
        let begun = Instant::now();
        Made::recorded(&head.of.federation, first_seed, &interrupted).map_err(files::unfit)?;
        let runs = seeds_of(None).runs(plan.settings.len()) - plan.settings.len() as u64;
        let divisible = Divisible {
            federation: Some(&source.text()),
            runs,
            pieces: runs,
            run: begun.elapsed(),
            dir: &out.join(campaign::PARTS),
            quiet: arguments.quiet,
            first_found: false,
        };
        let parts = campaign::perform(&divisible, &of_parts, &arguments.parts, &interrupted)?;
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
    let record = |setting: usize, recording| records.keep(setting, &settings[setting], recording);
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
    let linked = |setting: usize| records.link(setting, first_seed);
    let links = Links { file: &path_of, record: &linked };
    let quantity = quantities().find(|it| it.name == arguments.best).expect("clap permits only known names");
    let (json, csv) = (text::json(&swept, quantity), text::csv(&swept));
    let page = page::render(&swept, quantity, links);
    for (name, content) in [("index.html", &page), ("sweep.json", &json), ("runs.csv", &csv)] {
        output::write(out, name, content)?;
    }
    output::print(&match format {
        SweepFormat::Json => json,
        SweepFormat::Csv => csv,
        SweepFormat::Text => {
            format!("{}\n{}\n", text::text(&swept, quantity), out.join("index.html").display())
        }
    })?;
    print_missing(swept.missing() as u64);
    print_out_of_memory(swept.out_of_memory() as u64);
    if let Some(command_error) =
        records.failed.lock().expect("no thread panics while it holds the lock").take()
    {
        return Err(command_error);
    }
    Ok(Exit::of_runs(swept.has_failed(), swept.missing() + swept.out_of_memory() == 0))
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

/// Records each setting's run with the first seed, unless the record is too large.
struct Records<'a> {
    /// The directory of `--out`.
    out: &'a Path,
    /// The maximum size of one record with its report, in bytes.
    most: u64,
    /// The first error while writing records.
    failed: Mutex<Option<CommandError>>,
}

impl Records<'_> {
    fn dir(&self, setting: usize) -> PathBuf {
        self.out.join(RECORDS).join((setting + 1).to_string())
    }

    /// Writes the record and the report of a run, unless they are too large. Removes those of an earlier run in any
    /// case.
    fn keep(&self, number: usize, setting: &Setting, recording: Recording) {
        if let Err(error) = self.write(number, setting, recording) {
            self.failed.lock().expect("no thread panics while it holds the lock").get_or_insert(error);
        }
    }

    fn write(&self, number: usize, setting: &Setting, recording: Recording) -> Result<(), CommandError> {
        const HELP: &str = "free some space, or specify another directory with `--out`";
        let dir = self.dir(number);
        remove_record(&dir)?;
        if recording.trace.len() as u64 * FACT > self.most {
            return Ok(());
        }
        let Recording { mut manifest, trace, judgement } = recording;
        manifest.federation = faultline_api::to_yaml(&setting.federation);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        manifest.started_unix_ms = now.as_millis() as u64;
        let unjudged = UnjudgedRecording { manifest, trace };
        let bundle = create_record(ACTION, &dir)?;
        unjudged.write(&bundle).map_err(|error| CommandError::writing(ACTION, &dir, &error, HELP))?;
        let UnjudgedRecording { manifest, trace, .. } = &unjudged;
        let shown = dir.display().to_string();
        let page = report(RecordedRun { bundle: &shown, manifest, trace, judgement: &judgement });
        let written = size(&dir).map_err(|error| CommandError::writing("read", &dir, &error, HELP))?;
        if written + page.len() as u64 > self.most {
            return remove_record(&dir);
        }
        output::write(&dir, REPORT, &page).map(|_| ())
    }

    /// Returns the path of a setting's report, relative to the page; `None` if the setting's run with this
    /// seed was not recorded.
    fn link(&self, setting: usize, seed: u64) -> Option<String> {
        let dir = self.dir(setting);
        let manifest = Bundle::open(&dir).read_manifest().ok()?;
        (manifest.seed == seed && dir.join(REPORT).exists())
            .then(|| format!("{RECORDS}/{}/{REPORT}", setting + 1))
    }
}

/// Returns the size of all files in a directory, in bytes.
fn size(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += if about.is_dir() { size(&entry.path())? } else { about.len() };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_record_above_its_share_is_left_out_and_an_earlier_one_removed() {
        let out = tempfile::tempdir().expect("a directory");
        let text = faultline_api::samples::sample("quickstart").expect("the sample exists").text;
        let federation = faultline_api::parse("quickstart", text.as_bytes()).expect("the sample is valid");
        let setting = Setting { choice: vec![0], federation: federation.clone() };
        let (_, recording) =
            Made::recorded(&federation, 7, &AtomicBool::new(false)).expect("the sample can be set up");
        let records = |most| Records { out: out.path(), most, failed: Mutex::default() };
        let enough = records(8 << 20);
        enough.keep(0, &setting, recording.clone());
        assert_eq!(enough.link(0, 7).as_deref(), Some("records/1/report.html"));
        assert_eq!(enough.link(0, 8), None, "the record has another seed");
        let whole = size(&enough.dir(0)).expect("the record was written");
        let facts = recording.trace.len() as u64 * FACT;
        assert!(facts < whole, "{facts} < {whole}");
        // The size is checked before and after the record is written. Each check rejects the record under one
        // of these limits.
        for most in [facts - 1, whole - 1] {
            enough.keep(0, &setting, recording.clone());
            let tight = records(most);
            tight.keep(0, &setting, recording.clone());
            assert_eq!((tight.link(0, 7), tight.dir(0).exists()), (None, false), "{most}");
            assert!(tight.failed.lock().expect("unlocked").is_none());
        }
    }
}
