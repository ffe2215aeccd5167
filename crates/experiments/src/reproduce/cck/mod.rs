//! Reproductions of the evaluations of the two papers on CCK: figures 5 and 6 of the short one, figures 10 to 12 of
//! the long one.
//!
//! | module | contents |
//! | --- | --- |
//! | `checkpoint` | the cost of a checkpoint: messages and time (figures 5 and 10) |
//! | `frequency` | run time by checkpoint frequency (figure 11) |
//! | `required` | re-execution (figure 6, and the limit of section 3.6.2) |
//! | `order` | re-execution with local re-scheduling (figure 12) |
//! | [`costs`] | task times measured on real processes |
//! | `observed` | checkpoints and recoveries, computed from the facts |

mod checkpoint;
pub mod costs;
mod frequency;
mod observed;
mod order;
mod required;

use std::fmt::Write;

use faultline_api::Federation;

use super::hydee::parse;
use super::{Experiment, ExperimentRunner, Extent, Interrupted, Paper, Reproduction, Settings, all};
use crate::measures::Spread;
use crate::stored::ResultStore;
use costs::MeasuredTasks;
use observed::{Watch, Watched};

/// Describes the papers on CCK and this reproduction of their evaluation.
pub const PAPER: Paper = Paper {
    title: "CCK, reproduced",
    heading: "CCK: coordinated checkpoints of task-based programs in KAAPI, reproduced",
    meta: "X. Besseron, S. Jafar, T. Gautier, J.-L. Roch, 2006 (short paper, section 4), and X. Besseron, L. Pigeon, \
        T. Gautier, S. Jafar, 2006 (long paper, section 4)",
    prose: &[
        "The protocol is the same code that runs on real processes, and the programs compute real results: every \
         run was judged, and its result equals that of the sequential reference. Time is simulated: a task takes \
         the time that the setting states.",
        "The time of a checkpoint is modelled as its time on the wire. A storage server receives 1 Gbit/s (100 \
         Mbit/s for the short paper), which is set as the bandwidth of its storage; processors and disks take no \
         time. The rest of the time that the papers measured is due to their implementations and to their machines \
         of 2006. The text of the papers has no numbers for the curves of their figures, except those quoted \
         below.",
    ],
    command: "faultline reproduce cck",
};

/// The number of settings, in a full and in a quick reproduction.
const SETTINGS: [u64; 2] = [137, 33];

/// The experiments that need no measurements.
const SIMULATED: [&Experiment<'_>; 6] = [
    &checkpoint::messages,
    &checkpoint::one_server,
    &checkpoint::many_servers,
    &frequency::frequency,
    &required::required,
    &order::order,
];

/// Returns the extent of the evaluations without measured task times.
pub fn extent(quick: bool) -> Extent {
    Extent { experiments: SIMULATED.len() as u64, settings: SETTINGS[usize::from(quick)] }
}

/// Reproduces the evaluations. Does not repeat runs whose results are in `store`. `tasks` contains the results of each
/// of [`costs::runs`]; without them, task times measured on real processes are not simulated.
pub fn reproduce(
    settings: Settings,
    tasks: Option<&[Vec<MeasuredTasks>]>,
    store: &mut ResultStore<'_>,
) -> Reproduction {
    let measured = |runner: &mut ExperimentRunner<'_, '_>| {
        tasks.map_or(Ok(Vec::new()), |it| costs::measured(runner, it))
    };
    let all_of_them = [&SIMULATED[..], &[&measured]].concat();
    let more = if tasks.is_some() { costs::SETTINGS } else { 0 };
    all(&PAPER, &all_of_them, extent(settings.quick).settings + more, settings, store)
}

/// A planned program on one cluster under CCK.
#[derive(Clone, Debug)]
struct Planned {
    /// Rows and columns of processes.
    grid: [u32; 2],
    /// Rows and columns of blocks of each process.
    blocks: [u32; 2],
    /// The kind of program, as named in a federation file.
    program: &'static str,
    /// Cells or particles along the side of a block.
    size: u32,
    iterations: u32,
    task_ms: f64,
    window: u32,
    /// Options of the protocol other than the time between checkpoints.
    options: String,
    /// Seconds from one checkpoint to the next; `None` means that there are no checkpoints and no protocol.
    tau: Option<f64>,
    sends_first: bool,
    /// The write bandwidth of the storage of each process, in megabytes per second.
    bandwidth: f64,
    faults: String,
}

impl Planned {
    fn new(program: &'static str, grid: [u32; 2]) -> Planned {
        Planned {
            grid,
            blocks: [1, 1],
            program,
            size: 2,
            iterations: 20,
            task_ms: 100.0,
            window: 2,
            options: "replicas: 1".into(),
            tau: Some(1.0),
            sends_first: false,
            bandwidth: 125.0,
            faults: String::new(),
        }
    }

    fn processes(&self) -> u32 {
        self.grid[0] * self.grid[1]
    }

    /// Returns the process of each block, row by row. Each process has a rectangle of blocks.
    fn pieces(&self) -> Vec<u32> {
        let [rows, columns] = [0, 1].map(|it| self.grid[it] * self.blocks[it]);
        let of = |row: u32, column: u32| row / self.blocks[0] * self.grid[1] + column / self.blocks[1];
        (0..rows).flat_map(|row| (0..columns).map(move |column| of(row, column))).collect()
    }

    fn federation(&self) -> Federation {
        let Planned { grid, blocks, program, size, iterations, task_ms, window, .. } = self;
        let [rows, columns] = [0, 1].map(|it| grid[it] * blocks[it]);
        let mut pieces = String::new();
        for it in self.pieces() {
            write!(pieces, "{it}, ").expect("a string accepts every write");
        }
        let cck = |tau: f64| format!("{{ cck: {{ tau: {}ms, {} }} }}", (tau * 1e3).round(), self.options);
        let protocol = self.tau.map_or_else(|| "{ none: {} }".to_owned(), cck);
        let test = if *program == "jacobi" { "testEvery: 0, " } else { "" };
        let order = if self.sends_first { ", order: sendingFirst" } else { "" };
        parse(&format!(
            "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: planned }}
spec:
  clusters: [{{ name: orsay, nodes: {processes} }}]
  links: {{ within: {{ latency: 50us }}, between: {{ latency: 50us }} }}
  protocol: {protocol}
  application:
    {program}: {{ rows: {rows}, columns: {columns}, size: {size}, iterations: {iterations}, {test}taskTime: {task}us }}
  schedule: {{ window: {window}{order}, pieces: [{pieces}] }}
  storage: {{ latency: 0ms, writeBandwidth: {bandwidth}kB }}
  simulator: {{ sync: 0ms }}
  failures: {{ detectAfter: 1s, restartAfter: 200ms }}
  faults: [{faults}]
  deadline: 1h
",
            processes = self.processes(),
            task = (task_ms * 1e3).round(),
            pieces = pieces.trim_end_matches(", "),
            bandwidth = (self.bandwidth * 1e3).round(),
            faults = self.faults,
        ))
    }
}

/// Runs one setting with every seed, and observes each run. Every run should pass.
fn watch(
    runner: &mut ExperimentRunner<'_, '_>,
    what: &str,
    planned: &Planned,
) -> Result<Vec<Watched>, Interrupted> {
    let interrupted = runner.store.interrupted();
    runner.observed("watched", what, &planned.federation(), || Watch::new(interrupted), Watch::close)
}

/// Returns the spread of the durations of complete checkpoints, in milliseconds.
fn times(runs: &[Watched]) -> Spread {
    Spread::of(runs.iter().flat_map(|it| it.checkpoints.iter()).map(|it| it.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_a_rectangle_of_blocks() {
        let planned = Planned { blocks: [1, 2], ..Planned::new("jacobi", [2, 2]) };
        assert_eq!(planned.pieces(), [0, 0, 1, 1, 2, 2, 3, 3]);
    }
}
