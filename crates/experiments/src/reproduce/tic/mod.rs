//! Reproduction of the evaluation of the paper on TIC and SEL (section VII): figures 7 to 13.
//!
//! | module | contents |
//! | --- | --- |
//! | `granularity` | tasks by threshold (figure 7) |
//! | `fault_free` | run time and stored data without failures (figures 8 and 9) |
//! | `faults` | the cost of crashes (figures 10 and 11) |
//! | `heterogeneous` | clusters of different speeds, one of which is lost permanently (figure 12) |
//! | `satin` | TIC compared with Satin (figure 13) |

mod fault_free;
mod faults;
mod granularity;
mod heterogeneous;
mod satin;

use faultline_api::Federation;

use super::hydee::parse;
use super::{Experiment, ExperimentRunner, Extent, Paper, Reproduction, Settings, all};
use crate::compare::Costs;
use crate::measures::Spread;
use crate::stored::ResultStore;

/// Describes the paper on TIC and this reproduction of its evaluation.
pub const PAPER: Paper = Paper {
    title: "TIC and SEL, reproduced",
    heading: "Flexible Rollback Recovery in Dynamic Heterogeneous Grid Computing, reproduced",
    meta: "S. Jafar, A. Krings, T. Gautier, 2009: the evaluation of TIC and SEL (section VII)",
    prose: &[
        "The protocols are the same code that runs on real processes, and every simulated run was judged: every task \
         counts exactly once in the result, no task has two owners, a stolen task or a result is sent only after a \
         durable record of it, and only failed processes roll back.",
        "The paper solves the quadratic assignment problem NUGENT 22 for about three minutes on 30 processors. \
         The simulator would have to search that tree in every run. Except in the first section, the program here \
         is therefore a Fibonacci recursion whose leaf tasks take 0.23 s each, the mean task time that the paper \
         states. It has the shape of the search, but less data: a place's graph is about one kilobyte. \
         The text of the paper has no numbers for the bars and lines of its figures, except those quoted below.",
    ],
    command: "faultline reproduce tic",
};

const EXPERIMENTS: [&Experiment<'_>; 5] = [
    &granularity::granularity,
    &fault_free::fault_free,
    &faults::faults,
    &heterogeneous::heterogeneous,
    &satin::satin,
];

/// Returns the extent of the evaluation.
pub fn extent(quick: bool) -> Extent {
    let of_size = [granularity::settings, fault_free::settings, faults::settings];
    let settings = of_size.map(|it| it(quick)).iter().sum::<usize>();
    let settings = (settings + heterogeneous::SETTINGS + satin::SETTINGS) as u64;
    Extent { experiments: EXPERIMENTS.len() as u64, settings }
}

/// Reproduces the evaluation. Does not repeat runs whose results are in `store`.
pub fn reproduce(settings: Settings, store: &mut ResultStore<'_>) -> Reproduction {
    all(&PAPER, &EXPERIMENTS, extent(settings.quick).settings, settings, store)
}

const UNPROTECTED: &str = "{ none: {} }";
const SATIN: &str = "{ satin: {} }";
/// The duration of a leaf task in seconds: the paper's mean (VII-C).
const TASK_SECONDS: f64 = 0.23;
/// Seconds until a crashed process restarts. The simulator detects a crash after 1 ms.
const OUTAGE_SECONDS: f64 = 0.2;

/// Returns TIC with this `tau` in seconds, and one replica on another node.
fn tic(tau: u32) -> String {
    format!("{{ tic: {{ tau: {tau}s }} }}")
}

/// Returns SEL with a checkpoint that truncates the log every ten seconds, and one replica on another node.
fn sel() -> String {
    "{ sel: { tau: 10s } }".to_owned()
}

/// A Fibonacci recursion on clusters.
#[derive(Clone, Debug)]
struct Program {
    /// The number of nodes and the speed (in percent) of each cluster.
    clusters: Vec<(u32, u32)>,
    /// Levels of the recursion above the leaves.
    levels: u32,
}

impl Program {
    /// Creates a program on one cluster of `places` nodes.
    fn new(runner: &ExperimentRunner<'_, '_>, places: u32) -> Program {
        Program { clusters: vec![(places, 100)], levels: if runner.is_quick() { 17 } else { 21 } }
    }

    /// Returns the number of leaf tasks, which are the only ones that take time.
    fn leaves(&self) -> u64 {
        let (mut before, mut last) = (1, 1);
        for _ in 0..self.levels {
            (before, last) = (last, before + last);
        }
        last
    }

    /// Returns the run time in seconds if no place ever has to wait.
    fn ideal_seconds(&self) -> f64 {
        let power: f64 =
            self.clusters.iter().map(|&(nodes, speed)| f64::from(nodes) * f64::from(speed) / 100.0).sum();
        self.leaves() as f64 * TASK_SECONDS / power
    }

    /// Returns the federation under this protocol, with these faults, both written as in a federation file.
    fn federation(&self, protocol: &str, faults: &[String]) -> Federation {
        /// The largest number that one task computes without spawning others.
        const THRESHOLD: u32 = 5;
        let cluster = |(number, (nodes, speed)): (usize, &(u32, u32))| {
            format!("{{ name: c{number}, nodes: {nodes}, speed: {speed} }}")
        };
        let clusters: Vec<String> = self.clusters.iter().enumerate().map(cluster).collect();
        parse(&format!(
            "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: program }}
spec:
  clusters: [{clusters}]
  links:
    within: {{ latency: 100us, bandwidth: 100Mbit }}
    between: {{ latency: 5ms, jitter: 500us, bandwidth: 1Gbit }}
  protocol: {protocol}
  application: {{ fibonacci: {{ n: {n}, threshold: {THRESHOLD}, taskTime: 230ms }} }}
  stealing: {{ patience: 5ms, clusterFirst: 0.8 }}
  storage: {{ latency: 5ms, writeBandwidth: 50MB }}
  failures: {{ detectAfter: 1s, restartAfter: 200ms }}
  faults: [{faults}]
  deadline: 1h
",
            clusters = clusters.join(", "),
            n = self.levels + THRESHOLD,
            faults = faults.join(", "),
        ))
    }
}

/// Returns the spread of a quantity over runs.
fn of(runs: &[Costs], quantity: impl Fn(&Costs) -> f64) -> Spread {
    Spread::of(runs.iter().map(quantity))
}

/// Returns the overhead of runs, in percent, compared with the runs with the same seeds in `without`.
fn longer(runs: &[Costs], without: &[Costs]) -> Spread {
    Spread::of(runs.iter().zip(without).map(|(run, without)| 100.0 * (run.seconds / without.seconds - 1.0)))
}

/// Returns the time of re-executed tasks, in seconds.
fn again(run: &Costs) -> f64 {
    run.tasks.map_or(0.0, |it| it.again_seconds)
}

/// Returns the slope of the line through the origin that fits the points best (least squares), and the share of the
/// variation that it explains.
fn fit(points: &[(f64, f64)]) -> (f64, f64) {
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let slope = sum(&|(x, y)| x * y) / sum(&|(x, _)| x * x);
    let mean = sum(&|(_, y)| *y) / points.len() as f64;
    let rest = sum(&|(x, y)| (y - slope * x).powi(2));
    let all = sum(&|(_, y)| (y - mean).powi(2));
    (slope, if all > 0.0 { 1.0 - rest / all } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{RunProgress, StoredResult};
    use std::num::NonZero;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn every_figure_is_repeated_and_every_run_passes() {
        let settings = Settings { seeds: 1, quick: true, jobs: NonZero::<usize>::MIN };
        let (never, mut told) = (AtomicBool::new(false), (0, 0));
        let mut keep = |_: &StoredResult| {};
        let mut tell = |step: RunProgress<'_>| told = (step.done, step.total);
        let done = reproduce(settings, &mut ResultStore::new(Vec::new(), &mut keep, &mut tell, &never));
        assert_eq!(done.judged.wrong, Vec::<String>::new());
        assert_eq!((told.0, done.missing), (told.1, 0), "as many runs as were announced");
        let places: Vec<&str> = done.sections.iter().map(|it| it.place).collect();
        let figures = ["figure 7", "figure 8", "figure 9", "figures 10 and 11", "figure 12", "figure 13"];
        assert!(places.iter().zip(figures).all(|(place, it)| place.contains(it)), "{places:?}");
        assert_eq!(places.len(), figures.len());
        assert!(done.sections.iter().all(|it| !it.findings.is_empty() && !it.tables.is_empty()));
        let page = super::super::page::render(&done);
        assert!(page.contains(PAPER.heading) && !page.contains("NaN"));
    }

    #[test]
    fn the_program_is_as_long_as_its_federation_says() {
        let program = Program { clusters: vec![(10, 150), (10, 150), (10, 100)], levels: 21 };
        assert_eq!(program.leaves(), 28_657);
        assert!((program.ideal_seconds() - 164.8).abs() < 0.1, "{}", program.ideal_seconds());
    }

    #[test]
    fn a_line_is_fitted() {
        let (slope, share) = fit(&[(1.0, 2.0), (2.0, 4.0), (4.0, 8.0)]);
        assert!((slope - 2.0).abs() < 1e-9 && share > 0.999);
        let (_, share) = fit(&[(1.0, 5.0), (2.0, 1.0), (3.0, 5.0)]);
        assert!(share < 0.5);
    }
}
