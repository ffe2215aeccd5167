//! The time that a task of Jacobi or Cloth takes, measured on real processes, and simulated runs whose tasks take this
//! time.
//!
//! The caller performs [`runs`], and passes in the results.

use faultline_core::{Fact, ProcessId};
use faultline_trace::Trace;

use super::{Planned, watch};
use crate::compare::Made;
use crate::measures::{Spread, short};
use crate::reproduce::hydee::parse;
use crate::reproduce::section::{Cell, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted, RunRequest};

/// The programs whose tasks are measured. One process runs all blocks, so that no task waits for another process.
const PROGRAMS: [MeasuredProgram; 2] = [
    MeasuredProgram { name: "jacobi", blocks: [4, 4], size: 250, iterations: 50 },
    MeasuredProgram { name: "cloth", blocks: [10, 10], size: 8, iterations: 20 },
];

/// Seconds between checkpoints in the simulated runs, whose tasks are much shorter than those of figure 11.
const TAUS: [f64; 3] = [0.1, 0.2, 0.5];
/// Seconds that the simulated runs take without checkpoints.
const SECONDS: f64 = 1.0;

/// The number of settings that [`measured`] simulates.
pub(super) const SETTINGS: u64 = (PROGRAMS.len() + 1 + TAUS.len()) as u64;

#[derive(Clone, Copy, Debug)]
struct MeasuredProgram {
    name: &'static str,
    /// Rows and columns of blocks.
    blocks: [u32; 2],
    /// Cells or particles along the side of a block.
    size: u32,
    iterations: u32,
}

impl MeasuredProgram {
    /// Returns the text of a federation file with this task time. In a real process, a task takes longer than this if
    /// its computation does.
    fn text(self, task_us: u64) -> String {
        let MeasuredProgram { name, blocks: [rows, columns], size, iterations } = self;
        let test = if name == "jacobi" { "testEvery: 0, " } else { "" };
        format!(
            "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: {name} }}
spec:
  \
             clusters: [{{ name: orsay, nodes: 1 }}]
  protocol: {{ none: {{}} }}
  application:
    {name}: \
             {{ rows: {rows}, columns: {columns}, size: {size}, iterations: {iterations}, {test}taskTime: \
             {task_us}us }}
  schedule: {{ window: 2 }}
  failures: {{ detectAfter: 10s, restartAfter: 200ms \
             }}
  deadline: 5m
"
        )
    }
}

/// Returns the runs to perform. Every run must be performed the same number of times.
pub fn runs() -> Vec<RunRequest> {
    let request = |it: MeasuredProgram| RunRequest { name: format!("{}-tasks", it.name), text: it.text(0) };
    PROGRAMS.map(request).into()
}

/// The result of one run on real processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredTasks {
    /// The median time from one task to the next, in microseconds. It includes the runtime's work for each task.
    pub task_us: f64,
    /// Seconds from the beginning of the application to the end of the run.
    pub seconds: f64,
}

impl MeasuredTasks {
    /// Returns the measurements of a run; `None` if it did not pass, or ran too few tasks.
    pub fn of(trace: &Trace, made: &Made) -> Option<MeasuredTasks> {
        let task_us = median_interval(trace)?;
        made.is_good().then_some(MeasuredTasks { task_us, seconds: made.costs().seconds })
    }
}

/// Returns the median time between consecutive tasks of the first process, in microseconds.
fn median_interval(trace: &Trace) -> Option<f64> {
    let (_, stream) = trace.lives(ProcessId(0)).next_back()?;
    let ran: Vec<_> =
        stream.iter().filter(|(_, fact)| matches!(fact, Fact::Ran { .. })).map(|it| it.0).collect();
    let mut intervals: Vec<u64> = ran.windows(2).map(|pair| pair[1].since(pair[0]).0).collect();
    intervals.sort_unstable();
    Some(*intervals.get(intervals.len() / 2)? as f64 / 1e3)
}

/// Simulates the measured programs with their measured task times. Also simulates Jacobi, with its measured
/// task time, at several checkpoint intervals. `made` contains the results of each of the [`runs`].
pub(super) fn measured(
    runner: &mut ExperimentRunner<'_, '_>,
    made: &[Vec<MeasuredTasks>],
) -> Result<Vec<Section>, Interrupted> {
    let task_us = |made: &[MeasuredTasks]| Spread::of(made.iter().map(|it| it.task_us));
    let (mut rows, mut furthest) = (Vec::new(), 0.0_f64);
    for (program, made) in PROGRAMS.iter().zip(made) {
        let task = task_us(made);
        let federation = parse(&program.text(task.mean.round() as u64));
        let runs = runner.costs(&format!("{} with measured task times", program.name), &federation)?;
        let simulated = Spread::of(runs.iter().map(|it| it.seconds));
        let real = Spread::of(made.iter().map(|it| it.seconds));
        let off = 100.0 * (simulated.mean / real.mean - 1.0);
        furthest = furthest.max(off.abs());
        rows.push(vec![
            Cell::from(program.name),
            f64::from(program.size).into(),
            task.into(),
            real.into(),
            simulated.into(),
            off.into(),
        ]);
    }
    let MeasuredProgram { size, .. } = PROGRAMS[0];
    let task = made.first().map_or(Spread::default(), |it| task_us(it));
    let setting = |tau: Option<f64>| Planned {
        size,
        iterations: (SECONDS * 1e6 / task.mean).ceil() as u32,
        task_ms: task.mean / 1e3,
        options: "replicas: 1, replicateTo: sharedStorage, servers: 4".into(),
        tau,
        ..Planned::new("jacobi", [2, 2])
    };
    let calm = watch(runner, "measured task times, without checkpoints", &setting(None))?;
    let mut checkpoints = Vec::new();
    for tau in TAUS {
        let runs =
            watch(runner, &format!("measured task times, a checkpoint every {tau} s"), &setting(Some(tau)))?;
        let longer =
            Spread::of(runs.iter().zip(&calm).map(|(run, calm)| 100.0 * (run.seconds / calm.seconds - 1.0)));
        let taken = Spread::of(runs.iter().map(|it| it.checkpoints.len() as f64));
        checkpoints.push(vec![Cell::from(tau), taken.into(), longer.into()]);
    }
    Ok(vec![
        Section::new("task-times", "Task times measured on real processes", "not in the papers")
            .text(
                "One real process on this machine runs all blocks of Jacobi and of Cloth, and the median \
                 time from one task to the next is measured. The simulator then runs the same programs with \
                 tasks that take this time. The second table shows checkpoints of Jacobi on four processes \
                 whose tasks take the measured time.",
            )
            .finding(
                "simulated run time with measured task times",
                String::new(),
                format!("within {} % of the real run time", short(furthest)),
                Grade::NotStated,
                "The greatest difference of any program.",
            )
            .table(
                "task-times",
                "Time of a task, and run time on one process",
                vec!["program", "side of a block", "task us", "real s", "simulated s", "difference %"],
                rows,
            )
            .table(
                "task-times-checkpoints",
                "Checkpoints of Jacobi with measured task times, simulated",
                vec!["seconds between checkpoints", "complete checkpoints", "overhead %"],
                checkpoints,
            ),
    ])
}

#[cfg(test)]
mod tests {
    use faultline_core::{FactNo, Life, Span, TaskId, Time};
    use faultline_trace::{Record, Sink};

    use super::*;

    #[test]
    fn the_time_of_a_task_is_the_median_interval() {
        let mut trace = Trace::default();
        assert_eq!(median_interval(&trace), None);
        // A long pause between two tasks hardly affects the median.
        let mut at = Time::ZERO;
        for (number, gap) in (0..).zip([0, 50, 52, 9_000, 51]) {
            at += Span::from_micros(gap);
            let fact = Fact::Ran { task: TaskId(number), spawned: 0, cost_us: 0 };
            let (process, life) = (ProcessId(0), Life(1));
            trace.record(Record { process, life, number: FactNo(number), at, fact });
        }
        assert_eq!(median_interval(&trace), Some(52.0));
    }

    #[test]
    fn every_requested_run_is_a_valid_federation() {
        for it in runs() {
            let federation = faultline_api::parse(&it.name, it.text.as_bytes());
            federation.unwrap_or_else(|error| panic!("{}: {error}", it.name));
        }
    }
}
