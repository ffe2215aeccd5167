//! The HC3I paper's evaluation (sections 5.2 to 5.4), repeated: every experiment with many seeds, beside what the paper
//! prints.
//!
//! Nothing is tuned to a number. Where the paper says too little to repeat an experiment exactly, what was chosen stands
//! beside the result.
//!
//! | module | holds |
//! | --- | --- |
//! | `paper` | the experiments of the paper |
//! | `options` | what the paper leaves to future work |
//! | `section` | what an experiment leaves: text, tables, figures, findings |
//! | [`chart`] | figures |
//! | [`reality`] | the simulator beside real processes |
//! | [`page`] | all of it as one page |

pub mod chart;
mod options;
pub mod page;
mod paper;
pub mod reality;
mod section;

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_checker::Verdict;

use crate::simulate::simulate_all;
use crate::statistics::Statistics;

pub use section::{Agreement, Cell, Figure, Finding, Section, Table};

/// How the experiments are run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Runs of each setting.
    pub seeds: u32,
    /// Fewer settings: only those that show the shape of a figure.
    pub quick: bool,
    /// Runs at the same time.
    pub jobs: NonZero<usize>,
}

/// Everything that was repeated.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// Runs of each setting.
    pub seeds: u32,
    /// Whether there were fewer settings.
    pub quick: bool,
    /// In the order of the page.
    pub sections: Vec<Section>,
    /// What the checkers say of all runs.
    pub judged: Judged,
}

/// What the checkers say of many runs.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Runs.
    pub runs: u64,
    /// Hours of virtual time.
    pub hours: f64,
    /// Events of the simulator.
    pub events: u64,
    /// Instances judged.
    pub instances: u64,
    /// Of runs that should pass, those that did not: which, and why.
    pub wrong: Vec<String>,
}

/// Somebody interrupted the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// Repeats everything. `tell` is told before each setting what will be run, and after how many settings.
pub fn reproduce(
    settings: Settings,
    interrupted: &AtomicBool,
    tell: &mut dyn FnMut(&str, u64),
) -> Result<Reproduction, Interrupted> {
    let mut lab = Lab { settings, interrupted, tell, runs: 0, judged: Judged::default() };
    let mut sections = Vec::new();
    for experiment in paper::ALL.iter().chain(options::ALL) {
        sections.extend(experiment(&mut lab)?);
    }
    Ok(Reproduction { seeds: settings.seeds, quick: settings.quick, sections, judged: lab.judged })
}

/// An experiment: runs what it needs, and says what came of it.
type Experiment = fn(&mut Lab<'_>) -> Result<Vec<Section>, Interrupted>;

/// Where experiments are run.
struct Lab<'a> {
    settings: Settings,
    interrupted: &'a AtomicBool,
    tell: &'a mut dyn FnMut(&str, u64),
    runs: u64,
    judged: Judged,
}

impl Lab<'_> {
    /// Whether only the shape of a figure is wanted.
    fn is_quick(&self) -> bool {
        self.settings.quick
    }

    /// Runs one setting with every seed. Every run should pass.
    fn run(&mut self, what: &str, federation: &Federation) -> Result<Vec<Statistics>, Interrupted> {
        let runs = self.run_whatever(what, federation)?;
        for run in runs.iter().filter(|it| it.verdict != Verdict::Pass) {
            let reasons = run.reasons.join("; ");
            self.judged.wrong.push(format!("{what}, seed {}: {reasons}", run.seed));
        }
        Ok(runs)
    }

    /// Runs one setting with every seed, of which some may be lost by design.
    fn run_whatever(&mut self, what: &str, federation: &Federation) -> Result<Vec<Statistics>, Interrupted> {
        let Settings { seeds, jobs, .. } = self.settings;
        let (judged, tell, count) = (&mut self.judged, &mut *self.tell, &mut self.runs);
        tell(what, *count);
        let runs = simulate_all(federation, 1..=u64::from(seeds), jobs, self.interrupted, |run| {
            *count += 1;
            judged.runs += 1;
            judged.hours += run.duration_seconds / 3600.0;
            judged.events += run.events;
            judged.instances += run.instances;
            tell(what, *count);
        });
        let runs = runs.unwrap_or_else(|it| panic!("the experiment {what} can be set up: {it}"));
        if self.interrupted.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(runs) }
    }
}
