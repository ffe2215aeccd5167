//! Re-execution by processes that have not failed: figure 6 of the short paper, and section 3.6.2 of the long one.

use faultline_core::ProcessId;

use super::observed::Redone;
use super::{Planned, Watched, watch};
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Finding, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};
use faultline_report::chart::{Chart, Series};

/// The number of iterations from one checkpoint to the next.
const PERIOD: u32 = 10;

/// The lowest percentage of processes without re-execution that counts as "most".
const MOSTLY_IDLE: f64 = 70.0;

/// Returns the longest checkpoint period, in iterations, at which failures at random times leave most processes without
/// re-execution on average. `idle` contains the percentage of these processes for each number of iterations from the
/// checkpoint to the failure, in ascending order of that number.
fn longest_period(idle: &[(f64, Spread)]) -> u32 {
    let mean = |count: usize| Spread::of(idle[..count].iter().map(|it| it.1.mean)).mean;
    let longest = (1..=idle.len()).rev().find(|count| mean(*count) >= MOSTLY_IDLE);
    longest.map_or(0, |count| idle[count - 1].0 as u32 + 1)
}

/// Returns a run in which one process fails `after` seconds after the first checkpoint.
pub(super) fn with_failure(planned: &Planned, failed: ProcessId, tau: f64, after: f64) -> Planned {
    let at = ((tau + after) * 1e3).round();
    let faults = format!("{{ at: {at}ms, crash: {{ cluster: orsay, node: {} }} }}", failed.0);
    Planned { tau: Some(tau), faults, ..planned.clone() }
}

/// Returns the re-execution in each run with a failure.
pub(super) fn redone(runs: &[Watched]) -> Vec<Redone> {
    runs.iter().filter_map(|it| it.redone.clone()).collect()
}

pub(super) fn spread(all: &[Redone], of: impl Fn(&Redone) -> f64) -> Spread {
    Spread::of(all.iter().map(of))
}

pub(super) fn required(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let grid = if runner.is_quick() { [6, 8] } else { [15, 16] };
    // The duration of a task in seconds: long relative to the time until the failed process runs again.
    let task = 1.0;
    let tau = f64::from(PERIOD) * task;
    let iterations: &[u32] = if runner.is_quick() { &[2, 5] } else { &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9] };
    let middle = ProcessId(grid[0] / 2 * grid[1] + grid[1] / 2);
    let base = Planned { iterations: 3 * PERIOD, task_ms: task * 1e3, ..Planned::new("jacobi", grid) };
    let ways = [("with the checkpoint only", ""), ("with values in memory", ", fromMemory: true")];
    let mut series: Vec<Series> = Vec::new();
    let mut rows: Vec<Vec<Cell>> = iterations.iter().map(|it| vec![f64::from(*it).into()]).collect();
    let (mut means, mut periods) = (Vec::new(), Vec::new());
    for (name, option) in ways {
        let (mut shares, mut idle) = (Vec::new(), Vec::new());
        for (row, &after) in rows.iter_mut().zip(iterations) {
            let options = format!("replicas: 1{option}");
            // The failure occurs in the middle of an iteration.
            let planned = with_failure(
                &Planned { options, ..base.clone() },
                middle,
                tau,
                (f64::from(after) + 0.5) * task,
            );
            let runs = watch(runner, &format!("a failure after {after} iterations, {name}"), &planned)?;
            let all = redone(&runs);
            let (share, none) = (spread(&all, Redone::share), spread(&all, Redone::idle));
            shares.push((f64::from(after), share));
            idle.push((f64::from(after), none));
            row.extend([Cell::from(share), none.into()]);
        }
        means.push(Spread::of(shares.iter().map(|it| it.1.mean)).mean);
        means.push(Spread::of(idle.iter().map(|it| it.1.mean)).mean);
        periods.push(longest_period(&idle));
        series.push(Series { name: format!("re-executed {name}"), points: shares });
        series.push(Series { name: format!("processes without re-execution, {name}"), points: idle });
    }
    let n = grid[0] * grid[1];
    let section = Section::new("required", "Re-execution", "long paper, sections 3.5 and 3.6.2")
        .text(format!(
            "The program is Jacobi, with one block for each of {n} processes. A process in the middle fails \
             some iterations after a checkpoint; all others keep their states. The tasks that they \
             re-execute are compared with those that they would re-execute after a rollback of all processes \
             to the same checkpoint. A value from k iterations ago depends on blocks up to k steps away. \
             Both figures therefore depend on the number of iterations since the checkpoint, and there is no \
             gain if the period is long relative to the width of the grid."
        ))
        .findings(findings(&means, &periods, iterations, runner.is_quick()))
        .figure(
            "required",
            "Re-executed tasks in percent of a global rollback, and percentage of processes that re-execute \
             nothing",
            Chart::new(
                "re-executed tasks by iterations since the checkpoint",
                "iterations since the checkpoint",
                "percent",
                series,
            ),
        )
        .table(
            "required",
            "A failure some iterations after a checkpoint",
            vec![
                "iterations",
                "re-executed %",
                "processes without re-execution %",
                "with memory: re-executed %",
                "with memory: processes without re-execution %",
            ],
            rows,
        );
    Ok(vec![section, neighbours(runner)?])
}

/// Judges the mean percentages of re-executed tasks and of idle processes, from the checkpoint only and with values in
/// memory, and the longest periods of both.
fn findings(means: &[f64], periods: &[u32], iterations: &[u32], is_quick: bool) -> Vec<Finding> {
    // With few processes, all of them are near the failed one.
    let judged = |agrees| if is_quick { Grade::NotStated } else { Grade::direction(agrees) };
    vec![
        Finding::new(
            "re-executed by processes that have not failed",
            "a share ε of the period, for neighbours of the failed process only (no number)",
            format!(
                "{} % of the tasks of a global rollback, {} % with values in memory",
                short(means[0]),
                short(means[2])
            ),
            judged(means[0] <= 20.0),
            format!(
                "The mean over failures after {} to {} iterations. Up to 20 % counts as agreement.",
                iterations[0],
                iterations[iterations.len() - 1]
            ),
        ),
        Finding::new(
            "processes that re-execute nothing",
            "the number of processes that take part is small, and may be constant",
            format!("{} %, {} % with values in memory", short(means[1]), short(means[3])),
            judged(means[1] >= MOSTLY_IDLE),
            format!(
                "The share of the processes that have not failed. At least {MOSTLY_IDLE} % counts as \
                 agreement, which is reached for periods of up to {} iterations, or up to {} with values in \
                 memory.",
                periods[0], periods[1]
            ),
        ),
    ]
}

/// Counts the tasks of the cloth program that neighbours of the failed process re-execute, as in the short
/// paper.
fn neighbours(runner: &mut ExperimentRunner<'_, '_>) -> Result<Section, Interrupted> {
    let (blocks, iterations): ([u32; 2], &[u32]) =
        if runner.is_quick() { ([3, 3], &[1, 3]) } else { ([10, 12], &[0, 1, 2, 3, 4, 5, 6, 8]) };
    let tasks = 2 * blocks[0] * blocks[1];
    let step = 2.4;
    let tau = f64::from(PERIOD) * step;
    let failed = ProcessId(4);
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    let mut means = Vec::new();
    for sends_first in [false, true] {
        let base = Planned {
            blocks,
            iterations: 3 * PERIOD,
            task_ms: step * 1e3 / f64::from(tasks),
            sends_first,
            ..Planned::new("cloth", [3, 3])
        };
        let (mut cck, mut global) = (Vec::new(), Vec::new());
        for &after in iterations {
            let planned = with_failure(&base, failed, tau, (f64::from(after) + 0.5) * step);
            let order = if sends_first { "awaited tasks first" } else { "oldest first" };
            let runs =
                watch(runner, &format!("cloth, a failure after {after} iterations, {order}"), &planned)?;
            let all = redone(&runs);
            let mean = |it: &Redone, of: &dyn Fn(&(ProcessId, u64, u64)) -> u64| {
                it.live.iter().map(of).sum::<u64>() as f64 / it.live.len() as f64
            };
            let again = spread(&all, |it| mean(it, &|it| it.1));
            let globally = spread(&all, |it| mean(it, &|it| it.2));
            cck.push((f64::from(after), again));
            global.push((f64::from(after), globally));
            rows.push(vec![order.into(), f64::from(after).into(), again.into(), globally.into()]);
        }
        let sum = |points: &[(f64, Spread)]| points.iter().map(|it| it.1.mean).sum::<f64>();
        means.push((sum(&cck) / sum(&global), cck[0].1.mean / global[0].1.mean.max(1.0)));
        let name = if sends_first { "CCK, awaited tasks first" } else { "CCK, oldest first" };
        series.push(Series { name: name.into(), points: cck });
        if !sends_first {
            series.push(Series { name: "global rollback".into(), points: global });
        }
    }
    Ok(Section::new("neighbours", "Re-execution by neighbours", "short paper, section 4.3, figure 6")
        .text(format!(
            "The program is Cloth on nine processes, with {tasks} tasks for each process in one iteration. \
             The process in the middle fails; all others send values to it. In the paper, tasks that others \
             wait for run first."
        ))
        .finding(
            "soon after a checkpoint",
            "very few: most communications are part of the checkpoint",
            format!(
                "{} % of the tasks of a global rollback, {} % if tasks that others wait for run first",
                short(100.0 * means[0].1),
                short(100.0 * means[1].1)
            ),
            Grade::direction(means[0].1 < 0.5),
            format!(
                "These shares are for a failure half an iteration after the first iteration. Over all \
                 failures, they are {} % and {} %.",
                short(100.0 * means[0].0),
                short(100.0 * means[1].0)
            ),
        )
        .figure(
            "neighbours",
            "Tasks re-executed by a process that has not failed",
            Chart::new(
                "re-executed tasks of a neighbour by iterations since the checkpoint",
                "iterations since the checkpoint",
                "tasks",
                series,
            ),
        )
        .table(
            "neighbours",
            "Tasks of a process that has not failed, on average",
            vec!["order", "iterations", "re-executed", "after a global rollback"],
            rows,
        ))
}
