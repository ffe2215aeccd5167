//! Reproduction of the HydEE paper's evaluation (section V): ping-pong, the NAS kernels without failures, and the
//! spread of failures.
//!
//! | module | contents |
//! | --- | --- |
//! | [`ping_pong`] | latency and bandwidth on real processes |
//! | `calibration` | the cost of a message in ping-pong; the simulator's predictions at this cost, compared with real runs |
//! | `overhead` | the kernels without failures |
//! | `containment` | the kernels with a failure, compared with global checkpoints |
//! | `phases` | the depth of a recovery |
//! | [`real`] | runs on real processes, compared with the simulator |

mod calibration;
mod containment;
mod overhead;
mod phases;
pub mod ping_pong;
pub mod real;

use std::fmt::Write;

use faultline_api::Federation;
use faultline_clustering::patterns::Pattern;
use faultline_clustering::{Constraints, Division, find};

use super::{Experiment, ExperimentRunner, Judged, Paper, Reproduction, Settings, all};
use crate::stored::ResultStore;
use calibration::Calibration;
use ping_pong::{CROWD, HalfRoundTrips, PAIR, Setting};
use real::RealRuns;

/// Describes the paper on HydEE and this reproduction of its evaluation.
pub const PAPER: Paper = Paper {
    title: "HydEE, reproduced",
    heading: "HydEE: Failure Containment without Event Logging for Large Scale Send-Deterministic MPI Applications, \
        reproduced",
    meta: "A. Guermouche, T. Ropars, M. Snir, F. Cappello, IPDPS 2012: the evaluation (section V)",
    prose: &[
        "These parts are real: the protocol is the same code everywhere, and ping-pong runs between two processes \
         over TCP on this machine. In every simulated run, each message was sent, logged, delivered and checked, \
         and every value depends on what was received before.",
        "These parts are not real: the kernels compute nothing; only time passes. Their messages have the \
         destinations and the proportions of those of the real kernels, but not their lengths. In the simulator, \
         links have a latency and a bandwidth, and a message keeps the processes at its ends busy for the time \
         that ping-pong measured on this machine, so these figures differ from machine to machine. MPICH2, Myrinet \
         and InfiniPath of 2012 are not available here.",
    ],
    command: "faultline reproduce hydee",
};

/// The measurements on real processes.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Ping-pong between [`ping_pong::PAIR`] processes, with every setting in each turn.
    pub played: Vec<HalfRoundTrips>,
    /// Ping-pong among [`ping_pong::CROWD`] processes, in pairs.
    pub crowded: Vec<HalfRoundTrips>,
    /// The results of [`real::runs`].
    pub real: RealRuns,
}

/// Reproduces the evaluation with simulations at the measured costs. Does not repeat runs whose results are in
/// `store`.
pub fn reproduce(settings: Settings, measured: &Measured, store: &mut ResultStore<'_>) -> Reproduction {
    let calibration = Calibration::of(&measured.played, PAIR, measured.real.cores);
    let crowded = Calibration::of(&measured.crowded, CROWD, measured.real.cores);
    let ping_pong = |_: &mut ExperimentRunner<'_, '_>| Ok(vec![ping_pong::section(&measured.played)]);
    let predicted = |runner: &mut ExperimentRunner<'_, '_>| {
        Ok(vec![calibration::section(runner, &calibration, &crowded, &measured.real)?])
    };
    let overhead = |runner: &mut ExperimentRunner<'_, '_>| overhead::overhead(runner, &calibration);
    let real = |runner: &mut ExperimentRunner<'_, '_>| Ok(vec![real::section(runner, &measured.real)?]);
    let all_of_them: [&Experiment<'_>; 5] =
        [&ping_pong, &predicted, &overhead, &containment::containment, &real];
    all(&PAPER, &all_of_them, simulated(settings.quick), settings, store)
}

/// Describes an evaluation that was interrupted during its runs on real processes, of which `missing` were not
/// performed. Without their measurements, nothing was simulated.
pub fn interrupted(settings: Settings, played: &[HalfRoundTrips], missing: u64) -> Reproduction {
    let Settings { seeds, quick, .. } = settings;
    // The settings of ping-pong are compared turn by turn.
    let turns = played.len() - played.len() % Setting::ALL.len();
    let sections = if turns > 0 { vec![ping_pong::section(&played[..turns])] } else { Vec::new() };
    let missing = missing + simulated(quick) * u64::from(seeds);
    Reproduction {
        paper: &PAPER,
        seeds,
        quick,
        sections,
        judged: Judged::default(),
        missing,
        out_of_memory: 0,
    }
}

/// Returns the number of simulated settings.
fn simulated(quick: bool) -> u64 {
    let counts = [calibration::settings(), real::settings()];
    let of_size = [overhead::settings(quick), containment::settings(quick)];
    counts.into_iter().chain(of_size).sum::<usize>() as u64
}

const UNPROTECTED: &str = "{ none: {} }";
/// HydEE without checkpoints, except the initial one.
const HYDEE_CALM: &str = "{ hydee: { checkpointEvery: never, replicas: 0 } }";
/// HydEE with a checkpoint each second.
const HYDEE: &str = "{ hydee: { checkpointEvery: 1s, replicas: 0 } }";
/// Global checkpoints, one per second.
const GLOBAL: &str = "{ coordinated: { checkpointEvery: 1s, replicas: 0 } }";

/// The maximum difference from real processes, in percent, at which a prediction counts as good.
const CLOSE: f64 = 25.0;

/// Returns the value furthest from zero.
fn furthest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, |most: f64, it| if it.abs() > most.abs() { it } else { most })
}

/// Parses a federation file of this evaluation.
pub(super) fn parse(text: &str) -> Federation {
    let parsed = faultline_api::parse("experiment", text.as_bytes());
    parsed.unwrap_or_else(|it| panic!("the experiment's federation is invalid: {it}: {:?}", it.errors()))
}

/// A kernel whose processes are divided into clusters.
#[derive(Clone, Debug)]
struct Kernel {
    pattern: Pattern,
    division: Division,
    iterations: u32,
    /// `spec.simulator`, as in a federation file.
    simulator: String,
}

/// The computation time of each process in one run, in milliseconds.
const COMPUTING_MS: u32 = 3_000;

impl Kernel {
    /// Creates a kernel with the clusters that the search finds for it.
    fn new(pattern: Pattern, processes: usize, quick: bool) -> Kernel {
        let found = find(&pattern.graph(processes), Constraints::default());
        let division = found.front[found.chosen].clone();
        // All-to-all communication sends many messages, so there are fewer but longer iterations.
        let iterations = match pattern {
            Pattern::Ft if processes > 256 => 1,
            Pattern::Ft if quick => 2,
            Pattern::Ft => 5,
            _ if quick => 5,
            _ => 20,
        };
        Kernel { pattern, division, iterations, simulator: "{}".into() }
    }

    /// Returns the ranks of each cluster.
    fn clusters(&self) -> Vec<Vec<usize>> {
        let mut clusters = vec![Vec::new(); self.division.clusters];
        for (rank, cluster) in self.division.cluster_of.iter().enumerate() {
            clusters[*cluster as usize].push(rank);
        }
        clusters
    }

    /// Returns the federation under this protocol, with these faults, both written as in a federation file.
    fn federation(&self, protocol: &str, faults: &str) -> Federation {
        let clusters = self.clusters();
        let mut text = String::from(
            "apiVersion: faultline.dev/v1alpha1\nkind: Federation\nmetadata: { name: kernel }\nspec:\n  clusters:\n",
        );
        let mut line = |arguments: std::fmt::Arguments<'_>| {
            text.write_fmt(arguments).expect("a string accepts every write")
        };
        for (number, members) in clusters.iter().enumerate() {
            line(format_args!("    - {{ name: c{number}, nodes: {} }}\n", members.len()));
        }
        let order: Vec<String> = clusters.concat().iter().map(usize::to_string).collect();
        let (iterations, step) = (self.iterations, COMPUTING_MS / self.iterations);
        // The latency and bandwidth of the paper's network, Myri-10G. Detecting a crash and restarting the process
        // take a fifth of a second.
        line(format_args!(
            "  links: {{ within: {{ latency: 3us, bandwidth: 10Gbit }}, between: {{ latency: 3us, bandwidth: 10Gbit }} }}
  protocol: {protocol}
  application:
    nas: {{ pattern: {}, iterations: {iterations}, stepTime: {step}ms, message: 2KiB, state: 1MiB, order: [{}] }}
  failures: {{ detectAfter: 1s, restartAfter: 200ms }}
  simulator: {}
  faults: {faults}
  deadline: 10m
",
            self.pattern.name().to_lowercase(),
            order.join(", "),
            self.simulator,
        ));
        parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::ping_pong::SIZES;
    use super::*;
    use crate::compare::Made;
    use crate::reproduce::RunRequest;
    use crate::stored::{RunProgress, StoredResult};
    use std::num::NonZero;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn every_run_of_the_simulated_part_passes() {
        let settings = Settings { seeds: 1, quick: true, jobs: NonZero::<usize>::MIN };
        let turn = Setting::ALL.map(|it| HalfRoundTrips { setting: it, halves: vec![20.0; SIZES.len()] });
        let made = |it: RunRequest| {
            vec![
                Made::simulated(&parse(&it.text), 1, &AtomicBool::new(false)).expect("the run can be set up"),
            ]
        };
        let real = RealRuns { cores: 2, made: real::runs().into_iter().map(made).collect() };
        let measured = Measured { played: turn.clone().into(), crowded: turn.into(), real };
        let (never, mut kept) = (AtomicBool::new(false), Vec::new());
        let mut told = (0, 0);
        let mut keep = |it: &StoredResult| kept.push(it.clone());
        let mut tell = |step: RunProgress<'_>| told = (step.done, step.total);
        let done =
            reproduce(settings, &measured, &mut ResultStore::new(Vec::new(), &mut keep, &mut tell, &never));
        assert_eq!((told.0, done.missing), (told.1, 0), "as many runs as were announced");
        assert_eq!(done.judged.wrong, Vec::<String>::new());
        let ids: Vec<&str> = done.sections.iter().map(|it| it.id).collect();
        assert_eq!(ids, ["ping-pong", "calibration", "overhead", "containment", "depth", "real"]);
        let contained = &done.sections[3].findings[0];
        assert_eq!(contained.grade, super::super::Grade::ValueAgrees, "{contained:?}");
        let beside = &done.sections[5].findings;
        assert_eq!(
            (beside[0].grade, beside[1].ours.as_str()),
            (super::super::Grade::ValueAgrees, "at most 0 % error")
        );
        // With the stored results, the second reproduction gives the same result, and simulates nothing.
        let mut nothing = |it: &StoredResult| panic!("{} was simulated again", it.setting);
        let mut all_known = |step: RunProgress<'_>| assert!(step.is_known);
        let again =
            reproduce(settings, &measured, &mut ResultStore::new(kept, &mut nothing, &mut all_known, &never));
        let text = super::super::page::text;
        assert_eq!(text(&again), text(&done));
        let page = super::super::page::render(&done);
        assert!(page.contains(PAPER.heading) && !page.contains("NaN"));
    }

    #[test]
    fn an_evaluation_interrupted_on_real_processes_shows_whole_turns_and_counts_what_is_missing() {
        let settings = Settings { seeds: 2, quick: true, jobs: NonZero::<usize>::MIN };
        let played = Setting::ALL.map(|it| HalfRoundTrips { setting: it, halves: vec![20.0; SIZES.len()] });
        let one_more = [&played[..], &played[..1]].concat();
        for (played, sections) in [(&[][..], 0), (&played[..1], 0), (&played, 1), (&one_more, 1)] {
            let done = interrupted(settings, played, 7);
            assert_eq!((done.sections.len(), done.missing), (sections, 7 + 2 * simulated(true)));
            let page = super::super::page::render(&done);
            assert!(page.contains("Interrupted: ") && !page.contains("NaN"), "{page}");
        }
    }
}
