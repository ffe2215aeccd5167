//! `faultline reproduce`: runs a published evaluation, and writes the page, the tables and the figures.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use faultline_experiments::reproduce::{Settings, page, reproduce as repeat};

use crate::arguments::{Paper, ReproduceArguments};
use crate::paper::jobs;
use crate::progress::Progress;
use crate::trouble::{Exit, Trouble};
use crate::{interrupt, output};

/// Runs of each setting.
const SEEDS: u32 = 30;
/// The same when only the shape is wanted.
const QUICK_SEEDS: u32 = 5;

/// `faultline reproduce`
pub(crate) fn reproduce(arguments: &ReproduceArguments) -> Result<Exit, Trouble> {
    let ReproduceArguments { paper: Paper::Hc3i, quick, out, .. } = arguments;
    let help = "name a directory that can be written with `--out`";
    fs::create_dir_all(out).map_err(|error| Trouble::path("write to", out, error, help))?;
    let seeds = arguments.seeds.unwrap_or(if *quick { QUICK_SEEDS } else { SEEDS });
    let settings = Settings { seeds, quick: *quick, jobs: jobs(arguments.jobs) };
    let interrupted = interrupt::flag();
    let mut progress = Progress::new();
    let done = repeat(settings, &interrupted, &mut |what, runs| {
        progress.show(|| format!("{what} ({runs} runs done)"));
    });
    drop(progress);
    let Ok(done) = done else {
        debug_assert!(interrupted.load(Ordering::Relaxed));
        return Err(Trouble::machine("interrupted: nothing was written"));
    };
    let write = |name: &str, content: &str| {
        let path = out.join(name);
        fs::write(&path, content).map_err(|error| Trouble::path("write", &path, error, help))
    };
    for section in &done.sections {
        for table in &section.tables {
            write(&format!("{}.csv", table.name), &table.csv())?;
        }
        for figure in &section.figures {
            write(&format!("{}.svg", figure.name), &figure.chart.file())?;
        }
    }
    write("index.html", &page::render(&done))?;
    output::print(&page::text(&done))?;
    output::print(&format!("{}\n", Path::new(out).join("index.html").display()))?;
    Ok(if done.judged.wrong.is_empty() { Exit::Pass } else { Exit::Fail })
}
