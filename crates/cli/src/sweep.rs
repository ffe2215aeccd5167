//! `faultline sweep`: one federation at many settings of its parameters.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;

use faultline_api::Federation;
use faultline_experiments::sweep::{Measured, Parameter, Plan, Sweep, page, quantities, tell};
use miette::miette;
use serde::{Deserialize, Serialize};

use crate::arguments::{SweepArguments, SweepFormat};
use crate::paper::jobs;
use crate::progress::Progress;
use crate::trouble::{Exit, Trouble};
use crate::{files, interrupt, output};

/// Every run of the sweep, one JSON object a line, behind a line that says what is swept.
const RUNS: &str = "runs.jsonl";
/// The federation file of each setting.
const SETTINGS: &str = "settings";

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
            "interrupted: {} of {total} runs are missing; the same command with `--resume` continues",
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
    let refused = |error| Trouble::path("write", path, error, "name a writable directory with `--out`");
    let mut file = File::create(path).map_err(refused)?;
    file.write_all(head.as_bytes()).map_err(refused)?;
    Ok(file)
}

/// Continues the file of runs. A line that was cut off, by the end of the program, is removed.
fn resumed(path: &Path, swept: &Swept) -> Result<(File, Vec<Measured>), Trouble> {
    let unreadable = |why: String| {
        Trouble::path("continue", path, why, "omit `--resume`, and name another directory with `--out`")
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
            "it contains another sweep: the file, the values or the version differ".to_owned(),
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
