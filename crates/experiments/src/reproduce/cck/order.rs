//! Local re-scheduling, which first runs the tasks that other processes wait for: figure 12 of the long paper.

use faultline_core::ProcessId;

use super::observed::Redone;
use super::required::{redone, spread, with_failure};
use super::{Planned, watch};
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Figure, Finding, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};
use faultline_report::chart::{Chart, Series};

pub(super) fn order(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let side = if runner.is_quick() { 8 } else { 16 };
    // The numbers of iterations that are unrolled as a whole: one that is small relative to the width of a partition,
    // and one that is large.
    let windows = [side / 4, 2 * side];
    let moments: &[u32] =
        if runner.is_quick() { &[30, 95] } else { &[5, 15, 25, 30, 35, 45, 50, 55, 65, 70, 75, 85, 90, 95] };
    let (mut figures, mut rows, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for window in windows {
        let seconds = 100.0;
        let mut series: Vec<Series> = Vec::new();
        for sends_first in [false, true] {
            let base = Planned {
                blocks: [side, side],
                size: 1,
                iterations: window,
                task_ms: seconds * 1e3 / f64::from(window * side * side),
                // The first task of each block counts as a step.
                window: window + 1,
                sends_first,
                ..Planned::new("jacobi", [3, 3])
            };
            let name = if sends_first { "awaited tasks first" } else { "oldest first" };
            let mut points = Vec::new();
            for &at in moments {
                // There is a checkpoint after each fifth of the run. `after` is relative to the first
                // checkpoint, and negative for an earlier failure.
                let tau = seconds / 5.0;
                let after = seconds * f64::from(at) / 100.0 - tau;
                let planned = with_failure(&base, ProcessId(4), tau, after);
                let runs = watch(
                    runner,
                    &format!("{window} iterations unrolled, {name}, a failure at {at} %"),
                    &planned,
                )?;
                let again = spread(&redone(&runs), |it: &Redone| it.again() as f64);
                points.push((f64::from(at) / 100.0, again));
                rows.push(vec![
                    f64::from(window).into(),
                    name.into(),
                    Cell::from(f64::from(at) / 100.0),
                    again.into(),
                ]);
            }
            series.push(Series { name: name.into(), points });
        }
        findings.push(finding(window, side, &series));
        figures.push(Figure::new(
            if window < side { "order-short" } else { "order-long" },
            format!("{window} iterations unrolled: tasks re-executed by processes that have not failed"),
            Chart::new(
                format!("re-executed tasks by the time of the failure, window of {window} iterations"),
                "time of the failure, as a share of the whole computation",
                "tasks",
                series,
            ),
        ));
    }
    Ok(vec![
        Section::new("order", "Local re-scheduling", "long paper, sections 3.7.2 and 4.3, figure 12")
            .text(
                "The program is Jacobi on nine processes, with a checkpoint after each fifth of the run; the \
                 process in the middle fails. Oldest first is the order without the optimisation. With the \
                 optimisation, a partition first runs the tasks whose values, or values computed from them, \
                 are sent soonest. The paper does not say how many iterations were unrolled, although the \
                 result depends on this number, so the figure shows two numbers.",
            )
            .findings(findings)
            .figures(figures)
            .table(
                "order",
                "Tasks re-executed by processes that have not failed",
                vec!["iterations unrolled", "order", "time of the failure", "tasks"],
                rows,
            ),
    ])
}

/// Compares the curves of both orders, the oldest task first and awaited tasks first.
fn finding(window: u32, side: u32, series: &[Series]) -> Finding {
    let at = |series: &Series, late: bool| {
        let points = series.points.iter().filter(|it| (it.0 > 0.5) == late);
        Spread::of(points.map(|it| it.1.mean)).mean
    };
    let is_short = window < side;
    Finding::new(
        format!("{window} iterations unrolled, blocks of {side} x {side} for each process"),
        "more tasks if the failure comes early, and 0 if it comes late",
        format!(
            "in the first half {} instead of {} tasks, in the second {} instead of {}; none after {} % \
             instead of {} %",
            short(at(&series[1], false)),
            short(at(&series[0], false)),
            short(at(&series[1], true)),
            short(at(&series[0], true)),
            short(100.0 * last_with_tasks(&series[1])),
            short(100.0 * last_with_tasks(&series[0]))
        ),
        match is_short {
            true => Grade::direction(last_with_tasks(&series[1]) < last_with_tasks(&series[0])),
            false => Grade::NotStated,
        },
        match is_short {
            true => {
                "The window is short relative to the width of a partition: most tasks contribute to no \
                 value that is sent, and wait until all values have been sent."
            }
            false => {
                "The window is long: almost every task contributes to a value that is sent, so there is \
                 little to postpone."
            }
        },
    )
}

/// Returns the time of the latest failure that caused re-execution, as a share of the computation; 0 if there is none.
fn last_with_tasks(series: &Series) -> f64 {
    series.points.iter().rfind(|it| it.1.most > 0.0).map_or(0.0, |it| it.0)
}
