//! The number of tasks at each threshold of the search: figure 7 of the paper.

use super::{UNPROTECTED, of, parse};
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};
use faultline_report::chart::{Chart, Series};

/// Returns the thresholds: each is the number of facilities whose locations are chosen by separate tasks.
fn thresholds(quick: bool) -> &'static [u32] {
    if quick { &[1, 2, 3] } else { &[1, 2, 3, 4, 5, 6, 7] }
}

/// Returns the number of settings.
pub(super) fn settings(quick: bool) -> usize {
    thresholds(quick).len()
}

pub(super) fn granularity(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let thresholds = thresholds(runner.is_quick());
    let mut points: Vec<(f64, Spread)> = Vec::new();
    let mut rows = Vec::new();
    for &threshold in thresholds {
        let federation = parse(&format!(
            "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: search }}
spec:
  \
             clusters: [{{ name: c0, nodes: 30 }}]
  links: {{ within: {{ latency: 100us, bandwidth: 100Mbit \
             }} }}
  protocol: {UNPROTECTED}
  application: {{ qap: {{ instance: nug12, depth: {threshold}, \
             taskTime: 20ms }} }}
  deadline: 1h
"
        ));
        let runs = runner.costs(&format!("tasks at threshold {threshold}"), &federation)?;
        let tasks = of(&runs, |it| it.tasks.map_or(0.0, |it| it.tasks as f64));
        points.push((threshold.into(), tasks));
        rows.push(vec![Cell::from(f64::from(threshold)), tasks.into()]);
    }
    let means: Vec<f64> = points.iter().map(|(_, it)| it.mean).collect();
    let grows = means.windows(2).all(|it| it[1] >= it[0]);
    let factors: Vec<f64> = means.windows(2).map(|it| it[1] / it[0]).collect();
    let flattens = factors.last() < factors.first();
    let (first, last) = (means[0], means[means.len() - 1]);
    Ok(vec![
        Section::new("granularity", "Tasks by threshold", "VII-B, figure 7")
            .text(
                "The threshold is the number of facilities whose locations are chosen by separate tasks. The \
                 paper searches NUGENT 22; here, NUGENT 12 is searched on 30 places. The number of tasks \
                 depends on how early a place learns of a cheap assignment, and therefore on the schedule.",
            )
            .finding(
                "smaller tasks mean more tasks",
                "grows drastically at threshold 5, and approaches its maximum at 10",
                format!(
                    "from {} to {} tasks; the last step multiplies them by {}, the first by {}",
                    short(first),
                    short(last),
                    short(factors[factors.len() - 1]),
                    short(factors[0])
                ),
                Grade::direction(grows && flattens),
                "The same shape: growth until the bound ends most branches above the threshold. The \
                 thresholds themselves depend on the size of the problem, and are not compared.",
            )
            .figure(
                "granularity",
                "NUGENT 12 on 30 places",
                Chart::new(
                    "number of tasks by threshold",
                    "threshold, facilities",
                    "tasks",
                    vec![Series { name: "tasks".into(), points }],
                ),
            )
            .table(
                "granularity",
                "Number of different tasks that were run",
                vec!["threshold", "tasks"],
                rows,
            ),
    ])
}
