//! The kernels without failures: figure 6 of the paper, and the additional cost of checkpoints.

use faultline_clustering::patterns::Pattern;

use crate::compare::Costs;
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Finding, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};

use super::calibration::Calibration;
use super::ping_pong::Setting;
use super::{GLOBAL, HYDEE, HYDEE_CALM, Kernel, UNPROTECTED};

/// The largest overhead that the paper found, in percent.
const PUBLISHED_PERCENT: f64 = 1.25;

/// One way to run a kernel.
struct Way {
    name: &'static str,
    protocol: &'static str,
    /// The settings that determine the cost of messages within and between clusters.
    costs: (Setting, Setting),
}

const NATIVE: Way =
    Way { name: "unprotected", protocol: UNPROTECTED, costs: (Setting::Native, Setting::Native) };

const WAYS: [Way; 4] = [
    Way { name: "HydEE", protocol: HYDEE_CALM, costs: (Setting::Piggyback, Setting::Logging) },
    Way {
        name: "all logged",
        protocol: "{ fullLogging: { checkpointEvery: never, replicas: 0 } }",
        costs: (Setting::Logging, Setting::Logging),
    },
    Way { name: "HydEE, checkpoints", protocol: HYDEE, costs: (Setting::Piggyback, Setting::Logging) },
    Way { name: "global checkpoints", protocol: GLOBAL, costs: (Setting::Piggyback, Setting::Piggyback) },
];

/// The number of iterations, on 256 processes, of every kernel other than FT. Each process sends a few messages per
/// iteration. There are more iterations than elsewhere, because this experiment measures the cost of messages.
const ITERATIONS: u32 = 100;

/// Returns the numbers of processes to simulate.
fn sizes(quick: bool) -> &'static [usize] {
    if quick { &[64] } else { &[256, 1024] }
}

/// Returns the number of settings.
pub(super) fn settings(quick: bool) -> usize {
    sizes(quick).len() * Pattern::ALL.len() * (1 + WAYS.len())
}

pub(super) fn overhead(
    runner: &mut ExperimentRunner<'_, '_>,
    calibration: &Calibration,
) -> Result<Vec<Section>, Interrupted> {
    let sizes = sizes(runner.is_quick());
    let mut rows = Vec::new();
    // The mean overhead of each kernel at each number of processes, in percent, by protocol.
    let mut longer: [Vec<f64>; WAYS.len()] = Default::default();
    for &processes in sizes {
        for pattern in Pattern::ALL {
            let mut kernel = Kernel::new(pattern, processes, runner.is_quick());
            if pattern != Pattern::Ft && processes == 256 {
                kernel.iterations = ITERATIONS;
            }
            let federation = |way: &Way| {
                let simulator = calibration.simulator(way.costs, None);
                Kernel { simulator, ..kernel.clone() }.federation(way.protocol, "[]")
            };
            let what = |way: &str| format!("{} on {processes} processes, {way}", pattern.name());
            let seconds = |runs: &[Costs]| Spread::of(runs.iter().map(|it| it.seconds));
            let native = runner.costs(&what(NATIVE.name), &federation(&NATIVE))?;
            let messages =
                Spread::of(native.iter().map(|it| it.messages as f64 / it.seconds / processes as f64));
            let native = seconds(&native);
            let mut row =
                vec![Cell::from(pattern.name()), (processes as f64).into(), native.into(), messages.into()];
            let mut logged = Cell::Nothing;
            for (way, longer) in WAYS.iter().zip(&mut longer) {
                let runs = runner.costs(&what(way.name), &federation(way))?;
                let percent = runs.iter().map(|it| 100.0 * (it.seconds / native.mean - 1.0));
                let percent = Spread::of(percent);
                longer.push(percent.mean);
                row.push(percent.into());
                if way.name == WAYS[0].name {
                    let share = |it: &Costs| 100.0 * it.between_bytes as f64 / it.sent_bytes.max(1) as f64;
                    logged = Spread::of(runs.iter().map(share)).into();
                }
            }
            row.extend([logged, pattern.published().logged_percent.into()]);
            rows.push(row);
        }
    }
    Ok(vec![
        Section::new("overhead", "The NAS kernels without failures", "V-D, figure 6")
            .text(
                "The six kernels communicate in the clusters that \"faultline cluster\" finds, and compute \
                 for three seconds. Unprotected runs are the reference. Links have the latency and the \
                 bandwidth of the paper's network, and every process has its own core. The cost of a \
                 protocol depends on the number of messages relative to the computation, which the table \
                 shows.",
            )
            .findings(findings(&longer))
            .table(
                "overhead",
                "Overhead relative to unprotected runs, in percent, and the share of bytes that HydEE logs, \
                 compared with table I of the paper",
                vec![
                    "kernel",
                    "processes",
                    "unprotected, s",
                    "messages per process per second",
                    "HydEE, %",
                    "full logging, %",
                    "HydEE with checkpoints, %",
                    "global checkpoints, %",
                    "logged here, %",
                    "logged in the paper, %",
                ],
                rows,
            ),
    ])
}

/// Compares the overheads of all kernels, in percent, by protocol.
fn findings(longer: &[Vec<f64>; WAYS.len()]) -> Vec<Finding> {
    let most = |way: usize| longer[way].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mean = |way: usize| Spread::of(longer[way].iter().copied()).mean;
    vec![
        Finding::new(
            "execution time without failures and without checkpoints",
            "overhead is at most 1.25 % (2 % in the introduction)",
            format!("at most {} %", short(most(0))),
            Grade::at_most(most(0), PUBLISHED_PERCENT),
            "In the simulation, every message keeps its processes busy for the time that ping-pong measured \
             without a protocol, with piggybacked data, or with logging. Piggybacked data also takes time on \
             the links.",
        ),
        Finding::new(
            "all messages logged",
            "could induce a small overhead; partial logging is beneficial (figure 6, no numbers)",
            format!("on average {} % longer; under HydEE, {} %", short(mean(1)), short(mean(0))),
            Grade::direction(mean(1) > mean(0)),
            "Full logging: every process counts as a cluster, and every message costs what ping-pong \
             measured between two clusters. The table shows the share of bytes that are logged in memory.",
        ),
        Finding::new(
            "a checkpoint every second",
            String::new(),
            format!("HydEE {} % longer on average, global checkpoints {} %", short(mean(2)), short(mean(3))),
            Grade::NotStated,
            "Every process writes 1 MiB to its own disk, so that no process waits for a shared one. The \
             paper's figure does not include checkpoints.",
        ),
    ]
}
