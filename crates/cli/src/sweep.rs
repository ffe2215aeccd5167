//! `faultline sweep`: runs one federation with many settings of its parameters.

use faultline_api::Federation;
use faultline_experiments::sweep::{Measured, Parameter, Plan, Sweep, page, quantities, text};
use miette::miette;
use serde::{Deserialize, Serialize};

use crate::arguments::{SweepArguments, SweepFormat};
use crate::command_error::{CommandError, Exit};
use crate::journal::{Head, Journal, RUNS, print_missing, print_out_of_memory};
use crate::paper::jobs;
use crate::progress::Progress;
use crate::{files, interrupt, output};

/// The directory of the federation files of the settings.
const SETTINGS: &str = "settings";

/// Identifies a sweep in its journal.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Swept {
    federation: Federation,
    /// The values of each parameter as they were written, by path.
    parameters: Vec<(String, Vec<String>)>,
    sample: Option<(usize, u64)>,
}

/// Executes `faultline sweep`.
pub(crate) fn sweep(arguments: &SweepArguments) -> Result<Exit, CommandError> {
    let SweepArguments { file, seeds, out, format, .. } = arguments;
    let source = files::read(file)?;
    let federation = source.parse()?;
    files::refuse_pause(&source.label, &federation)?;
    let first_seed = arguments.seed.unwrap_or_else(|| federation.spec.seed());
    let sample = arguments.sample.map(|it| (it, first_seed));
    let plan = Plan::new(&federation, arguments.parameters.clone(), sample).map_err(|error| {
        CommandError::input(miette!(
            help = "name a field below `spec`, as in `links.between.latency`, and give it values of its type; \
                    `faultline schema` lists the fields",
            "{}: {error}",
            source.label
        ))
    })?;
    output::directory(&out.join(SETTINGS))?;
    let path_of = |setting: usize| format!("{SETTINGS}/{}.yaml", setting + 1);
    for (number, setting) in plan.settings.iter().enumerate() {
        output::write(out, &path_of(number), &faultline_api::to_yaml(&setting.federation))?;
    }
    let written = |it: &Parameter| (it.path.clone(), it.values.iter().map(|value| value.0.clone()).collect());
    let swept = Swept { federation, parameters: plan.parameters.iter().map(written).collect(), sample };
    let (mut journal, runs) = Journal::open(&out.join(RUNS), "sweep", &Head::of(swept), arguments.resume)?;
    let runs: Vec<Measured> = runs;
    let interrupted = interrupt::flag();
    let total = plan.settings.len() as u64 * u64::from(*seeds);
    let mut progress = Progress::counting(runs.len() as u64, total);
    let swept = Sweep::run(plan, (first_seed, *seeds), runs, jobs(arguments.jobs), &interrupted, |run| {
        if !run.out_of_memory {
            journal.add(run);
        }
        progress.advance();
    });
    drop(progress);
    let swept = swept.map_err(files::unfit)?;
    // The sweep can be continued with more seeds.
    journal.finish(false)?;
    let quantity = quantities().find(|it| it.name == arguments.best).expect("clap allows no other");
    let (json, csv) = (text::json(&swept, quantity), text::csv(&swept));
    let page = page::render(&swept, quantity, &path_of);
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
    Ok(Exit::of_runs(swept.has_failed(), swept.missing() + swept.out_of_memory() == 0))
}
