//! `faultline compare`: one federation under several protocols.

use faultline_api::Federation;
use faultline_api::resource::Protocol;
use faultline_experiments::compare::{Runs, Settings, compare as run, page, tell};
use faultline_experiments::reproduce::Interrupted;
use faultline_trace::manifest::Backend;
use miette::miette;

use crate::arguments::{CompareArguments, ComparedOn, Format};
use crate::paper::jobs;
use crate::processes::{Compared, Evaluation};
use crate::progress::Progress;
use crate::trouble::{Exit, Trouble};
use crate::{files, interrupt, output};

/// `faultline compare`
pub(crate) fn compare(arguments: &CompareArguments) -> Result<Exit, Trouble> {
    let CompareArguments { file, protocols, seeds, seed, out, format, backend, .. } = arguments;
    if *backend == ComparedOn::Local && arguments.jobs.is_some() {
        return Err(Trouble::input(miette!(
            help = "omit `--jobs`, or add `--backend simulate`",
            "`--jobs` has no effect on real processes, whose runs are sequential"
        )));
    }
    let federation = files::read(file)?.parse()?;
    files::refuse_pause(&file.display().to_string(), &federation)?;
    output::directory(out)?;
    let of_family =
        || Protocol::compared(federation.spec.application.family()).into_iter().map(str::to_owned);
    let settings = Settings {
        protocols: if protocols.is_empty() { of_family().collect() } else { protocols.clone() },
        first_seed: seed.unwrap_or_else(|| federation.spec.seed()),
        seeds: seeds.unwrap_or(match backend {
            ComparedOn::Simulate => 10,
            ComparedOn::Local => 3,
        }),
        jobs: jobs(arguments.jobs),
    };
    let interrupted = interrupt::flag();
    let mut progress = Progress::new();
    let mut processes = Compared::new(Evaluation { out, interrupted: &interrupted });
    let mut maker = |federation: &Federation, seed| processes.run(federation, seed);
    let runs = match backend {
        ComparedOn::Simulate => Runs::Simulated,
        ComparedOn::Local => Runs::Elsewhere(Backend::Local, &mut maker),
    };
    let done = run(&federation, &settings, runs, &interrupted, &mut |what, runs| {
        progress.show(|| format!("{what} ({runs} runs done)"));
    });
    drop(progress);
    let done = done.map_err(|Interrupted| {
        let trouble = processes.trouble.take();
        trouble.unwrap_or_else(|| Trouble::machine("interrupted before the page was written"))
    })?;
    let json = tell::json(&done);
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
        Format::Text => format!("{}\n{}\n", tell::text(&done), out.join("index.html").display()),
    })?;
    Ok(if done.has_failed() { Exit::Fail } else { Exit::Pass })
}
