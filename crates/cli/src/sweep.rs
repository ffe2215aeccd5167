//! `faultline sweep`: one federation at many settings of its parameters.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use faultline_api::Federation;
use faultline_console::arguments::number;
use faultline_experiments::sweep::{Measured, Parameter, Plan, Sweep, page, quantities, tell};
use miette::miette;
use serde::{Deserialize, Serialize};

use crate::arguments::jobs as jobs_value;
use crate::paper::jobs;
use crate::progress::Progress;
use crate::trouble::{Exit, Trouble};
use crate::{files, interrupt, output};

/// Every run of the sweep, one JSON object a line, behind a line that says what is swept.
const RUNS: &str = "runs.jsonl";
/// The federation file of each setting.
const SETTINGS: &str = "settings";

/// Run one federation at many settings of its parameters, and find the best.
///
/// `--set` names a field below `spec` and its values; several `--set` form a grid. Every setting runs in virtual time with
/// the same seeds, and every run is judged. Writes one page with pictures (index.html), a line for each run (runs.csv), the
/// estimates (sweep.json) and the federation file of each setting (settings/), and prints a table. Names the setting with
/// the least of one quantity, and how certain that is.
///
/// Interrupted, it keeps the runs it has made; the same command with `--resume` continues, also with more seeds.
///
/// Exits with 1 if a run violated a property, with 3 if it was interrupted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  faultline sweep my.yaml --set protocol.hc3i.checkpointEvery=1s,2s,5s
  faultline sweep my.yaml --set protocol.hc3i.checkpointEvery=1s,2s,5s \\
                          --set links.between.latency=1ms..100ms/5 --seeds 30 --best lostWork
  faultline sweep my.yaml --set clusters.paris.nodes=2..32/5 --format csv > runs.csv")]
pub(crate) struct SweepArguments {
    /// The federation.
    pub(crate) file: PathBuf,
    /// Varies the field at PATH below `spec`. VALUES are separated by commas; `1ms..100ms/5` stands for five values with equal
    /// ratios (with equal distances when the range begins at 0).
    #[arg(long = "set", value_name = "PATH=VALUES", required = true)]
    pub(crate) parameters: Vec<Parameter>,
    /// Runs of each setting, with consecutive seeds.
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true, value_parser = number::<u32>(1..=u32::MAX.into()))]
    pub(crate) seeds: u32,
    /// The first seed, instead of the one in the file. Also draws the settings of `--sample`.
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = number::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Runs only this many settings of the grid, drawn at random.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::<usize>(1..=4096))]
    pub(crate) sample: Option<usize>,
    /// The quantity whose least value makes a setting the best.
    #[arg(long, value_name = "QUANTITY", default_value = "seconds",
        value_parser = PossibleValuesParser::new(quantities().map(|it| it.name)))]
    pub(crate) best: String,
    /// Runs in parallel; the output is the same for any number. Default: as many as there are cores.
    #[arg(long, value_name = "J", allow_negative_numbers = true, value_parser = jobs_value)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Where the page, the numbers and the settings are written.
    #[arg(long, value_name = "DIR", default_value = "faultline-sweep")]
    pub(crate) out: PathBuf,
    /// Continues a sweep that was interrupted in the same directory.
    #[arg(long)]
    pub(crate) resume: bool,
    /// How the sweep is printed.
    #[arg(long, value_enum, default_value_t = SweepFormat::Text)]
    pub(crate) format: SweepFormat,
}

/// How a sweep is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SweepFormat {
    /// For people: a row for each setting.
    Text,
    /// One JSON object.
    Json,
    /// A line for each run.
    Csv,
}

/// The first line of [`RUNS`]: runs of anything else cannot be added to.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Swept {
    /// The program's version: another one may simulate differently.
    version: String,
    federation: Federation,
    /// By path, the values as they were written.
    parameters: Vec<(String, Vec<String>)>,
    sample: Option<(usize, u64)>,
}

/// `faultline sweep`
pub(crate) fn sweep(arguments: &SweepArguments) -> Result<Exit, Trouble> {
    let SweepArguments { file, seeds, out, format, .. } = arguments;
    let federation = files::read(file)?.parse()?;
    files::refuse_pause(&file.display().to_string(), &federation)?;
    let first_seed = arguments.seed.unwrap_or_else(|| federation.spec.seed());
    let sample = arguments.sample.map(|it| (it, first_seed));
    let plan = Plan::new(&federation, arguments.parameters.clone(), sample).map_err(|error| {
        Trouble::input(miette!(
            help = "a path names fields below `spec` as the file does; `faultline schema` lists them",
            "{}: {error}",
            file.display()
        ))
    })?;
    output::directory(&out.join(SETTINGS))?;
    let path_of = |setting: usize| format!("{SETTINGS}/{}.yaml", setting + 1);
    for (number, setting) in plan.settings.iter().enumerate() {
        output::write(out, &path_of(number), &faultline_api::to_yaml(&setting.federation))?;
    }
    let written = |it: &Parameter| (it.path.clone(), it.values.iter().map(|value| value.0.clone()).collect());
    let swept = Swept {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        federation,
        parameters: plan.parameters.iter().map(written).collect(),
        sample,
    };
    let kept = out.join(RUNS);
    let (mut log, runs) = match arguments.resume {
        true => resumed(&kept, &swept)?,
        false => (begun(&kept, &swept)?, Vec::new()),
    };
    let interrupted = interrupt::flag();
    let total = plan.settings.len() as u64 * u64::from(*seeds);
    let mut progress = Progress::counting(runs.len() as u64, total);
    let mut broken = None;
    let swept = Sweep::run(plan, (first_seed, *seeds), runs, jobs(arguments.jobs), &interrupted, |run| {
        let line = serde_json::to_string(run).expect("a run has a JSON form") + "\n";
        if let Err(error) = log.write_all(line.as_bytes()) {
            broken.get_or_insert(error);
        }
        progress.advance();
    });
    drop(progress);
    let swept = swept.map_err(files::unfit)?;
    if let Some(error) = broken {
        return Err(Trouble::machine(format!("cannot write to {}: {error}", kept.display())));
    }
    let quantity = quantities().find(|it| it.name == arguments.best).expect("clap allows no other");
    let (json, csv) = (tell::json(&swept, quantity), tell::csv(&swept));
    let page = page::render(&swept, quantity, &path_of);
    for (name, content) in [("index.html", &page), ("sweep.json", &json), ("runs.csv", &csv)] {
        output::write(out, name, content)?;
    }
    output::print(&match format {
        SweepFormat::Json => json,
        SweepFormat::Csv => csv,
        SweepFormat::Text => {
            format!("{}\n{}\n", tell::text(&swept, quantity), out.join("index.html").display())
        }
    })?;
    if swept.missing() > 0 {
        anstream::eprintln!(
            "interrupted: {} of {total} runs were not made; the same command with `--resume` makes them",
            swept.missing()
        );
    }
    Ok(match (swept.has_failed(), swept.missing()) {
        (true, _) => Exit::Fail,
        (false, 0) => Exit::Pass,
        (false, _) => Exit::Unknown,
    })
}

/// Begins the file of runs. One with the runs of another sweep is not overwritten.
fn begun(path: &Path, swept: &Swept) -> Result<File, Trouble> {
    if let Ok(mut lines) = lines_of(path)
        && lines.nth(1).is_some()
    {
        return Err(Trouble::input(miette!(
            help = "add `--resume` to continue that sweep, name another directory with `--out`, or delete this one",
            "{} already has runs",
            path.display()
        )));
    }
    let head = serde_json::to_string(swept).expect("a federation has a JSON form") + "\n";
    let refused =
        |error| Trouble::path("write", path, error, "name a directory that can be written with `--out`");
    let mut file = File::create(path).map_err(refused)?;
    file.write_all(head.as_bytes()).map_err(refused)?;
    Ok(file)
}

/// Continues the file of runs. A line that was cut off, by the end of the program, is removed.
fn resumed(path: &Path, swept: &Swept) -> Result<(File, Vec<Measured>), Trouble> {
    let unreadable = |why: String| {
        Trouble::path("continue", path, why, "leave `--resume` out, and name another directory with `--out`")
    };
    let mut lines = match lines_of(path) {
        Ok(lines) => lines,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((begun(path, swept)?, Vec::new())),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let head = lines.next().unwrap_or_default();
    let known: Swept = serde_json::from_str(&head).map_err(|error| unreadable(format!("line 1: {error}")))?;
    if known != *swept {
        return Err(unreadable(
            "it holds another sweep: the file, the values or the version differ".to_owned(),
        ));
    }
    let (mut runs, mut whole) = (Vec::new(), head + "\n");
    let lines: Vec<String> = lines.collect();
    for (index, line) in lines.iter().enumerate() {
        match serde_json::from_str(line) {
            Ok(run) => {
                runs.push(run);
                whole += &(line.clone() + "\n");
            }
            Err(_) if index + 1 == lines.len() => {}
            Err(error) => return Err(unreadable(format!("line {}: {error}", index + 2))),
        }
    }
    let rewritten = path.with_extension("part");
    let file = fs::write(&rewritten, whole)
        .and_then(|()| fs::rename(&rewritten, path))
        .and_then(|()| OpenOptions::new().append(true).open(path));
    Ok((file.map_err(|error| unreadable(error.to_string()))?, runs))
}

fn lines_of(path: &Path) -> std::io::Result<impl Iterator<Item = String>> {
    Ok(BufReader::new(File::open(path)?).lines().map_while(Result::ok))
}
