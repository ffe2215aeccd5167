//! Runs on real processes, compared with the same runs in the simulator.
//!
//! The caller performs [`runs`], and passes in the results.

use crate::compare::{Costs, Made};
use crate::measures::short;
use crate::reproduce::section::{Cell, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted, RunRequest};

use super::calibration::Predicted;
use super::containment::Effect;
use super::ping_pong::CROWD;
use super::{CLOSE, GLOBAL, HYDEE, furthest, parse};

/// The number of processes of each run, in clusters of [`CLUSTER`] processes.
pub(super) const PROCESSES: usize = CROWD;
pub(super) const CLUSTER: usize = 4;

/// The results of the runs.
#[derive(Clone, Debug)]
pub struct RealRuns {
    /// The number of cores that all processes shared.
    pub cores: usize,
    /// The results of each run, in the order of [`runs`]: one result per repetition.
    pub made: Vec<Vec<Made>>,
}

/// Returns the runs to perform. Every run must be performed the same number of times.
pub fn runs() -> Vec<RunRequest> {
    let predicted = Predicted::ALL.map(|it| RunRequest { name: it.name(), text: it.text() });
    let failing = Failing::ALL.map(|it| RunRequest { name: it.name(), text: it.text() });
    predicted.into_iter().chain(failing).collect()
}

impl RealRuns {
    /// Returns the measured costs of the predicted runs.
    pub(super) fn predicted(&self) -> impl Iterator<Item = Vec<Costs>> {
        self.costs(0, Predicted::ALL.len())
    }

    fn failing(&self) -> impl Iterator<Item = Vec<Costs>> {
        self.costs(Predicted::ALL.len(), Failing::ALL.len())
    }

    fn costs(&self, from: usize, runs: usize) -> impl Iterator<Item = Vec<Costs>> {
        self.made.iter().skip(from).take(runs).map(|it| it.iter().map(Made::costs).cloned().collect())
    }
}

/// Returns the part of a federation file that precedes the protocol and the application.
pub(super) fn head(storage: &str) -> String {
    let cluster = |it: usize| format!("{{ name: c{it}, nodes: {CLUSTER} }}");
    let clusters: Vec<String> = (0..PROCESSES / CLUSTER).map(cluster).collect();
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: beside }}
spec:
  clusters: \
         [{}]
  links: {{ within: {{ preset: none }}, between: {{ preset: none }} }}
  storage: {{ kind: \
         {storage} }}
  failures: {{ detectAfter: 10s, restartAfter: 200ms }}
  deadline: 5m
",
        clusters.join(", "),
    )
}

/// CG for three seconds, with a checkpoint every second, and optionally with a failure halfway between two
/// checkpoints.
#[derive(Clone, Copy, Debug)]
struct Failing {
    contained: bool,
    fails: bool,
}

impl Failing {
    /// All settings. Each setting with a failure follows the same setting without a failure.
    const ALL: [Failing; 4] = [
        Failing { contained: true, fails: false },
        Failing { contained: true, fails: true },
        Failing { contained: false, fails: false },
        Failing { contained: false, fails: true },
    ];

    fn protocol(self) -> &'static str {
        if self.contained { "HydEE" } else { "global checkpoints" }
    }

    fn name(self) -> String {
        let protocol = if self.contained { "hydee" } else { "global" };
        format!("{protocol}-{}", if self.fails { "failure" } else { "calm" })
    }

    fn text(self) -> String {
        let protocol = if self.contained { HYDEE } else { GLOBAL };
        let faults = if self.fails { "[{ at: 1500ms, crash: { cluster: c3, node: 0 } }]" } else { "[]" };
        format!(
            "{}  protocol: {protocol}
  application: {{ nas: {{ pattern: cg, iterations: 100, stepTime: \
             30ms, message: 2KiB, state: 1MiB }} }}
  faults: {faults}
",
            head("disk")
        )
    }
}

/// Returns the number of settings.
pub(super) fn settings() -> usize {
    Failing::ALL.len()
}

/// Compares the failure on real processes and in the simulator.
pub(super) fn section(
    runner: &mut ExperimentRunner<'_, '_>,
    real: &RealRuns,
) -> Result<Section, Interrupted> {
    let mut simulated = Vec::new();
    for run in Failing::ALL {
        simulated.push(runner.costs(&run.name(), &parse(&run.text()))?);
    }
    let real: Vec<Vec<Costs>> = real.failing().collect();
    let mut rows = Vec::new();
    let mut off = Vec::new();
    let mut as_expected = true;
    for (place, expected) in [(0, CLUSTER), (2, PROCESSES)] {
        let both = [("real", &real), ("simulated", &simulated)].map(|(on, runs)| {
            let effect = Effect::of(&runs[place + 1], &runs[place]);
            let mut row = vec![Cell::from(Failing::ALL[place].protocol()), Cell::from(on)];
            row.extend([effect.rolled_back, effect.recovery, effect.undone, effect.longer].map(Cell::from));
            rows.push(row);
            effect
        });
        let [real, simulated] = both;
        as_expected &= real.always(expected) && simulated.always(expected);
        off.push(100.0 * (simulated.longer.mean / real.longer.mean - 1.0));
    }
    let furthest = furthest(off);
    Ok(Section::new("real", "A failure among real processes", "V-B")
        .text(format!(
            "CG runs on {PROCESSES} real processes in clusters of {CLUSTER}, with three seconds of \
             computation and a checkpoint every second. One process is killed halfway between two \
             checkpoints. The same file also runs in virtual time."
        ))
        .finding(
            "processes that roll back",
            "one cluster",
            if as_expected {
                format!(
                    "{CLUSTER} of {PROCESSES} processes with HydEE, all processes with global checkpoints, \
                     real and simulated"
                )
            } else {
                "not the same in every run (see the table)".into()
            },
            Grade::value(as_expected),
            "Counts the processes that restored a state.",
        )
        .finding(
            "cost of the failure, simulated compared with real",
            String::new(),
            format!("at most {} % error", short(f64::abs(furthest))),
            Grade::NotStated,
            format!(
                "Additional time of the run; {}. Starting a process takes longer here than the simulator \
                 charges.",
                if furthest.abs() <= CLOSE {
                    "the simulator predicts it well"
                } else {
                    "the simulator does not predict it well"
                }
            ),
        )
        .table(
            "real",
            "One failure, on real processes and in virtual time",
            vec![
                "protocol",
                "processes",
                "rolled back",
                "recovered in, s",
                "undone, process-s",
                "additional time, s",
            ],
            rows,
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_runs_are_valid_and_have_different_names() {
        let runs = runs();
        let mut names: Vec<&str> = runs.iter().map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), runs.len());
        runs.iter().for_each(|it| _ = parse(&it.text));
    }
}
