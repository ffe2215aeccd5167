//! Published evaluations, repeated: every experiment with many seeds, beside what the paper prints.
//!
//! Nothing is tuned to a number. Where the paper says too little to repeat an experiment exactly, what was chosen stands
//! beside the result.
//!
//! | module | holds |
//! | --- | --- |
//! | `paper` | the experiments of the HC3I paper (sections 5.2 to 5.4) |
//! | `options` | what that paper leaves to future work |
//! | [`hydee`] | the experiments of the HydEE paper |
//! | [`tic`] | the experiments of the paper on TIC and SEL |
//! | `section` | what an experiment leaves: text, tables, figures, findings |
//! | [`chart`] | figures |
//! | [`reality`] | the simulator beside real processes |
//! | [`page`] | all of it as one page |

pub mod chart;
mod distributed;
mod dynamism;
pub mod hydee;
mod options;
pub mod page;
mod paper;
pub mod reality;
mod section;
pub mod tic;

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use faultline_api::Federation;
use faultline_checker::Verdict;
use faultline_sim::in_order;

use crate::compare::{Bookkeeper, Costs};
use crate::simulate::{simulate, simulate_all};
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

/// Which evaluation, in the words of its page.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Of the page.
    pub title: &'static str,
    /// Its first line.
    pub heading: &'static str,
    /// Who wrote it, and what of it is repeated.
    pub meta: &'static str,
    /// What is real, and what is not.
    pub prose: &'static [&'static str],
    /// What makes the page.
    pub command: &'static str,
}

/// The HC3I paper.
pub const HC3I: Paper = Paper {
    title: "HC3I, reproduced",
    heading: "Hybrid Checkpointing for Parallel Applications in Cluster Federations, reproduced",
    meta: "S. Monnet, C. Morin, R. Badrinath, 2003: the evaluation of the HC3I protocol (sections 5.2 to 5.4)",
    prose: &[
        "The protocol is the same code that runs on real processes. Three files as the paper describes them \
         (topology, application, timers) define what is simulated. Every run was judged by independent checkers: no \
         message was lost, delivered twice, or delivered without having been sent, every forced checkpoint was taken \
         before the delivery, and every garbage collection was safe.",
    ],
    command: "faultline reproduce hc3i",
};

/// Everything that was repeated.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// Of what.
    pub paper: &'static Paper,
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

/// Repeats the HC3I paper's evaluation. `tell` is told before each setting what will be run, and after how many settings.
pub fn reproduce(
    settings: Settings,
    interrupted: &AtomicBool,
    tell: &mut dyn FnMut(&str, u64),
) -> Result<Reproduction, Interrupted> {
    all(&HC3I, &[paper::ALL, options::ALL].concat(), settings, interrupted, tell)
}

/// Runs all experiments of a paper.
fn all(
    paper: &'static Paper,
    experiments: &[&Experiment<'_>],
    settings: Settings,
    interrupted: &AtomicBool,
    tell: &mut dyn FnMut(&str, u64),
) -> Result<Reproduction, Interrupted> {
    let mut lab = Lab { settings, interrupted, tell, runs: 0, judged: Judged::default() };
    let mut sections = Vec::new();
    for experiment in experiments {
        sections.extend(experiment(&mut lab)?);
    }
    Ok(Reproduction { paper, seeds: settings.seeds, quick: settings.quick, sections, judged: lab.judged })
}

/// An experiment: runs what it needs, and says what came of it.
type Experiment<'e> = dyn Fn(&mut Lab<'_>) -> Result<Vec<Section>, Interrupted> + 'e;

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
            judged.add(run);
            tell(what, *count);
        });
        let runs = runs.unwrap_or_else(|it| panic!("the experiment {what} can be set up: {it}"));
        if self.interrupted.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(runs) }
    }

    /// Runs one setting with every seed, and keeps the books. Every run should pass.
    fn costs(&mut self, what: &str, federation: &Federation) -> Result<Vec<Costs>, Interrupted> {
        let Settings { seeds, jobs, .. } = self.settings;
        let (judged, tell, count) = (&mut self.judged, &mut *self.tell, &mut self.runs);
        let interrupted = self.interrupted;
        tell(what, *count);
        let mut all = Vec::new();
        let work = |seed| {
            let mut books = Bookkeeper::new(interrupted);
            let run = simulate(federation, seed, &mut books);
            (run.unwrap_or_else(|it| panic!("the experiment {what} can be set up: {it}")), books.close())
        };
        let _: ControlFlow<()> = in_order(jobs, 1..=u64::from(seeds), work, |(run, costs)| {
            judged.add(&run);
            if run.verdict != Verdict::Pass {
                judged.wrong.push(format!("{what}, seed {}: {}", run.seed, run.reasons.join("; ")));
            }
            all.push(costs);
            *count += 1;
            tell(what, *count);
            ControlFlow::Continue(())
        });
        if interrupted.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(all) }
    }
}

impl Judged {
    fn add(&mut self, run: &Statistics) {
        self.runs += 1;
        self.hours += run.duration_seconds / 3600.0;
        self.events += run.events;
        self.instances += run.instances;
    }
}
