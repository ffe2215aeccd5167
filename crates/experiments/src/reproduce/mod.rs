//! Reproductions of published evaluations: every experiment runs with many seeds, and is compared with the numbers in
//! the paper.
//!
//! No parameter is fitted to a published number. Where the paper does not specify an experiment completely, the result
//! states the choices that were made.
//!
//! | module | contents |
//! | --- | --- |
//! | `paper` | the experiments of the HC3I paper (sections 5.2 to 5.4) |
//! | `options` | the future work of that paper |
//! | [`hydee`] | the experiments of the HydEE paper |
//! | [`tic`] | the experiments of the paper on TIC and SEL |
//! | [`cck`] | the experiments of the two papers on CCK |
//! | `section` | the result of an experiment: text, tables, figures, findings |
//! | [`reality`] | the simulator compared with real processes |
//! | [`page`] | a reproduction as one page |

pub mod cck;
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

use faultline_api::Federation;
use faultline_catalog::SetupError;
use faultline_checker::Verdict;
use faultline_session::SimulationObserver;

use crate::compare::Costs;
use crate::simulate::{Until, simulate, simulate_and};
use crate::statistics::Statistics;
use crate::stored::{ResultStore, RunResult};

pub use section::{Cell, Figure, Finding, Grade, Section, Table};

/// The parameters of a reproduction.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The number of runs of each setting.
    pub seeds: u32,
    /// Whether to run only the settings that show the shape of a figure.
    pub quick: bool,
    /// The number of simultaneous runs.
    pub jobs: NonZero<usize>,
}

/// A paper, as its page presents it.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The title of the page.
    pub title: &'static str,
    /// The first line of the page.
    pub heading: &'static str,
    /// The authors, and the part of the paper that is reproduced.
    pub meta: &'static str,
    /// Paragraphs that state which parts are real, and which are not.
    pub prose: &'static [&'static str],
    /// The command that generates the page.
    pub command: &'static str,
}

/// The HC3I paper.
pub const HC3I: Paper = Paper {
    title: "HC3I, reproduced",
    heading: "Hybrid Checkpointing for Parallel Applications in Cluster Federations, reproduced",
    meta: "S. Monnet, C. Morin, R. Badrinath, 2003: the evaluation of the HC3I protocol (sections 5.2 to 5.4)",
    prose: &[
        "The protocol is the same code that runs on real processes. Three files as the paper describes them \
         (topology, application, timers) define what is simulated. Every run was judged by the independent checker: no \
         message was lost, delivered twice, or delivered without having been sent, every forced checkpoint was taken \
         before the delivery, and every garbage collection was safe.",
    ],
    command: "faultline reproduce hc3i",
};

/// The result of a reproduction.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// The paper.
    pub paper: &'static Paper,
    /// The number of runs of each setting.
    pub seeds: u32,
    /// Whether only some of the settings were run.
    pub quick: bool,
    /// Sections in the order of the page.
    pub sections: Vec<Section>,
    /// The checker's judgements of all runs.
    pub judged: Judged,
    /// Runs that are missing because of an interruption. The experiments that need them have no section.
    pub missing: u64,
    /// Runs that ended because the program reached its memory limit. The experiments that need them have no section.
    pub out_of_memory: u64,
}

/// The checker's judgements of many runs.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// The number of runs.
    pub runs: u64,
    /// Hours of virtual time.
    pub hours: f64,
    /// The number of simulator events.
    pub events: u64,
    /// The number of instances judged.
    pub instances: u64,
    /// Runs that should have passed but did not, and the reasons.
    pub wrong: Vec<String>,
    /// Goals of this project that the runs miss. If there are any, the reproduction fails.
    pub missed: Vec<String>,
}

/// A requested run on real processes.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The name shown to users, which is also a directory name.
    pub name: String,
    /// The text of the federation file.
    pub text: String,
}

/// Error returned when the work is interrupted or an experiment lacks a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// The number of settings of the HC3I paper's evaluation, in a full and in a quick reproduction.
const HC3I_SETTINGS: [u64; 2] = [73, 58];
/// The HC3I paper's experiments.
const HC3I_EXPERIMENTS: [&[&Experiment<'_>]; 2] = [paper::ALL, options::ALL];

/// The amount of work of an evaluation without runs on real processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of experiments. They do not depend on each other, so each belongs to one part.
    pub experiments: u64,
    /// The number of settings. Each has the same number of runs.
    pub settings: u64,
}

/// Returns the extent of the HC3I paper's evaluation.
pub fn extent(quick: bool) -> Extent {
    let experiments = HC3I_EXPERIMENTS.iter().map(|it| it.len() as u64).sum();
    Extent { experiments, settings: HC3I_SETTINGS[usize::from(quick)] }
}

/// Reproduces the HC3I paper's evaluation. Does not repeat runs whose results are in `store`. After an interruption,
/// the remaining experiments are missing.
pub fn reproduce(settings: Settings, store: &mut ResultStore<'_>) -> Reproduction {
    all(&HC3I, &HC3I_EXPERIMENTS.concat(), extent(settings.quick).settings, settings, store)
}

/// Performs all experiments of a paper, which together have `count` settings. A [part](ResultStore::of_part) consists of
/// whole experiments.
fn all(
    paper: &'static Paper,
    experiments: &[&Experiment<'_>],
    count: u64,
    settings: Settings,
    store: &mut ResultStore<'_>,
) -> Reproduction {
    store.expect(count * u64::from(settings.seeds));
    let part = store.take_part();
    let mut runner = ExperimentRunner { settings, store, judged: Judged::default() };
    let mut sections = Vec::new();
    let is_in_part = |index| part.is_none_or(|it| it.contains(index));
    for (_, experiment) in (0..).zip(experiments).filter(|(index, _)| is_in_part(*index)) {
        match experiment(&mut runner) {
            Ok(more) => sections.extend(more),
            Err(Interrupted) if runner.store.is_interrupted() => break,
            // A run reached the memory limit. The other experiments do not need it.
            Err(Interrupted) => {}
        }
    }
    let ExperimentRunner { store, judged, .. } = runner;
    let (done, total) = store.progress();
    let out_of_memory = store.out_of_memory();
    let is_cut = store.is_interrupted();
    debug_assert!(
        is_cut || out_of_memory > 0 || part.is_some() || done == total,
        "{done} of {total} runs were completed"
    );
    let missing = if is_cut { total.saturating_sub(done) } else { 0 };
    let Settings { seeds, quick, .. } = settings;
    Reproduction { paper, seeds, quick, sections, judged, missing, out_of_memory }
}

/// An experiment: performs its runs, and describes the results.
type Experiment<'e> = dyn Fn(&mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> + 'e;

/// Performs the runs of experiments.
struct ExperimentRunner<'a, 's> {
    settings: Settings,
    store: &'a mut ResultStore<'s>,
    judged: Judged,
}

impl ExperimentRunner<'_, '_> {
    /// Returns whether only the shape of each figure is needed.
    fn is_quick(&self) -> bool {
        self.settings.quick
    }

    /// Records that the runs miss a goal of this project. The reproduction then fails.
    fn miss(&mut self, goal: String) {
        self.judged.missed.push(goal);
    }

    /// Runs one setting with every seed. Every run should pass.
    fn run(&mut self, what: &str, federation: &Federation) -> Result<Vec<Statistics>, Interrupted> {
        let runs = self.run_allowing_loss(what, federation)?;
        runs.iter().for_each(|run| self.judged.expect_pass(what, run));
        Ok(runs)
    }

    /// Runs one setting with every seed. Some runs may end as unrecoverable by design.
    fn run_allowing_loss(
        &mut self,
        what: &str,
        federation: &Federation,
    ) -> Result<Vec<Statistics>, Interrupted> {
        let interrupted = self.store.interrupted();
        let runs = self.results("statistics", what, federation, |seed| {
            simulate(federation, seed, &mut Until(interrupted))
        })?;
        runs.iter().for_each(|run| self.judged.add(run));
        Ok(runs)
    }

    /// Runs one setting with every seed, and computes the costs. Every run should pass.
    fn costs(&mut self, what: &str, federation: &Federation) -> Result<Vec<Costs>, Interrupted> {
        let interrupted = self.store.interrupted();
        let runs = self.results("costs", what, federation, |seed| {
            simulate_and(federation, seed, &mut Until(interrupted), Costs::of)
        })?;
        Ok(self.passing(what, runs))
    }

    /// Runs one setting with every seed, each run with its own observer. Returns the result of `close` for each
    /// observer. Every run should pass.
    fn observed<O: SimulationObserver, R>(
        &mut self,
        form: &str,
        what: &str,
        federation: &Federation,
        begin: impl Fn() -> O + Sync,
        close: impl Fn(O) -> R + Sync,
    ) -> Result<Vec<R>, Interrupted>
    where
        (Statistics, R): RunResult,
    {
        let runs = self.results(form, what, federation, |seed| {
            let mut observer = begin();
            let run = simulate(federation, seed, &mut observer)?;
            Ok((run, close(observer)))
        })?;
        Ok(self.passing(what, runs))
    }

    /// Counts runs, all of which should pass. Returns the result that accompanies the statistics of each.
    fn passing<R>(&mut self, what: &str, runs: Vec<(Statistics, R)>) -> Vec<R> {
        let close = |(run, result): (Statistics, R)| {
            self.judged.add(&run);
            self.judged.expect_pass(what, &run);
            result
        };
        runs.into_iter().map(close).collect()
    }

    /// Returns the results of one setting with every seed. Returns an error if the work was interrupted, or if a run
    /// reached the memory limit and therefore has no result.
    fn results<R: RunResult>(
        &mut self,
        form: &str,
        what: &str,
        federation: &Federation,
        make: impl Fn(u64) -> Result<R, SetupError> + Sync,
    ) -> Result<Vec<R>, Interrupted> {
        let Settings { seeds, jobs, .. } = self.settings;
        let results = self.store.results((form, what), federation, 1..=u64::from(seeds), jobs, make);
        let results = results.unwrap_or_else(|it| panic!("the experiment {what} cannot be set up: {it}"));
        let is_whole = results.len() == seeds as usize && !results.iter().any(RunResult::is_out_of_memory);
        if is_whole { Ok(results) } else { Err(Interrupted) }
    }
}

impl Judged {
    fn add(&mut self, run: &Statistics) {
        self.runs += 1;
        self.hours += run.duration_seconds / 3600.0;
        self.events += run.events;
        self.instances += run.instances;
    }

    /// Records the run if it did not pass.
    fn expect_pass(&mut self, what: &str, run: &Statistics) {
        if run.verdict != Verdict::Pass {
            self.wrong.push(format!("{what}, seed {}: {}", run.seed, run.reasons.join("; ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use serde::Deserialize;

    use super::*;
    use crate::stored::StoredResult;

    /// The result of a run. The field indicates whether the run reached the memory limit.
    #[derive(Clone, Copy, serde::Serialize, Deserialize)]
    struct Made(bool);

    impl RunResult for Made {
        fn is_out_of_memory(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn a_run_out_of_memory_is_neither_wrong_nor_a_result() {
        let federation = |steps: u32| {
            hydee::parse(&format!(
                "apiVersion: faultline.dev/v1alpha1\nkind: Federation\nmetadata: {{ name: small }}\nspec:\n  \
                 clusters: [{{ name: a, nodes: 2 }}]\n  protocol: {{ none: {{}} }}\n  \
                 application: {{ heat: {{ steps: {steps}, stepTime: 1ms, state: 1KiB }} }}\n"
            ))
        };
        let section = |id| Section {
            id,
            title: String::new(),
            place: "",
            text: Vec::new(),
            findings: Vec::new(),
            figures: Vec::new(),
            tables: Vec::new(),
        };
        let full = |runner: &mut ExperimentRunner<'_, '_>| {
            runner.results("made", "full", &federation(1), |seed| Ok(Made(seed == 2)))?;
            Ok(vec![section("full")])
        };
        let other = |runner: &mut ExperimentRunner<'_, '_>| {
            runner.results("made", "other", &federation(2), |_| Ok(Made(false)))?;
            Ok(vec![section("other")])
        };
        let settings = Settings { seeds: 3, quick: true, jobs: NonZero::<usize>::MIN };
        let (never, mut kept) = (AtomicBool::new(false), 0);
        let mut keep = |_: &StoredResult| kept += 1;
        let mut tell = |_: crate::stored::RunProgress<'_>| {};
        let mut store = ResultStore::new(Vec::new(), &mut keep, &mut tell, &never);
        let done = all(&HC3I, &[&full, &other], 2, settings, &mut store);
        let ids: Vec<&str> = done.sections.iter().map(|it| it.id).collect();
        assert_eq!((ids, done.out_of_memory, done.missing), (vec!["other"], 1, 0));
        assert_eq!(done.judged.wrong, Vec::<String>::new());
        assert!(page::render(&done).contains("Out of memory: 1 run reached"), "the page says so");
        assert_eq!(kept, 5, "the run is repeated with `--resume`");
    }
}
