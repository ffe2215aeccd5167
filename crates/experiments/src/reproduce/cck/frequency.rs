//! Run time by checkpoint frequency: figure 11 of the long paper.

use super::{Planned, watch};
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Finding, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};
use faultline_report::chart::{Chart, Series};

/// The duration of a task, in milliseconds. It is short because a process saves its state only after its
/// running tasks have ended, so saving cannot overlap with them.
const TASK_MS: f64 = 20.0;
/// The frequency below which the published bound applies, in Hz.
const BOUNDED: f64 = 0.1;
/// The published bound on the overhead, in percent.
const PUBLISHED: f64 = 1.0;
/// The goal for the overhead, in percent. It is below the published bound, because coordinating and copying a state
/// take no processor time in the simulation.
const GOAL: f64 = 0.5;

pub(super) fn frequency(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let taus: &[f64] = if runner.is_quick() { &[1.0, 5.0] } else { &[0.5, 1.0, 2.0, 5.0, 10.0, 20.0] };
    let (size, iterations) = if runner.is_quick() { (32, 300) } else { (125, 3_000) };
    // The bandwidth at which writing the state takes as long as writing 2 MB at 125 MB/s. The state is smaller than 2
    // MB so that the simulation ends sooner: each task computes the whole state.
    let bandwidth = 125.0 * f64::from(size * size) / 250_000.0;
    let setting = |tau: Option<f64>| Planned {
        size,
        iterations,
        task_ms: TASK_MS,
        options: "replicas: 1, replicateTo: sharedStorage, servers: 10".into(),
        tau,
        bandwidth,
        ..Planned::new("jacobi", [4, 8])
    };
    let calm = watch(runner, "without checkpoints", &setting(None))?;
    let (mut points, mut rows) = (Vec::new(), Vec::new());
    for &tau in taus {
        let runs = watch(runner, &format!("a checkpoint every {tau} s"), &setting(Some(tau)))?;
        let longer =
            |(run, calm): (&super::Watched, &super::Watched)| 100.0 * (run.seconds / calm.seconds - 1.0);
        let overhead = Spread::of(runs.iter().zip(&calm).map(longer));
        let taken = Spread::of(runs.iter().map(|it| it.checkpoints.len() as f64));
        points.push((1.0 / tau, overhead));
        rows.push(vec![Cell::from(tau), Cell::from(1.0 / tau), taken.into(), overhead.into()]);
    }
    points.reverse();
    let (finding, missed) = judge(&points);
    missed.into_iter().for_each(|it| runner.miss(it));
    Ok(vec![
        Section::new(
            "frequency",
            "Run time by the frequency of checkpoints",
            "long paper, section 4.2, figure 11",
        )
        .text(format!(
            "The program is Jacobi on 32 processes, with ten storage servers and tasks of {TASK_MS} ms. \
             Sending a state of {} KB over a wire of {} MB/s takes as long as sending 2 MB over Gigabit \
             Ethernet. Without checkpoints, a run takes {} s.",
            short(f64::from(size * size) * 8.0 / 1e3),
            short(bandwidth),
            short(Spread::of(calm.iter().map(|it| it.seconds)).mean)
        ))
        .findings([finding])
        .figure(
            "frequency",
            "How much longer the run takes",
            Chart::new(
                "overhead by frequency of checkpoints",
                "checkpoints per second",
                "percent",
                vec![Series { name: "overhead".into(), points }],
            )
            .stated(vec![(format!("below {BOUNDED} Hz: less than {PUBLISHED} %"), PUBLISHED)]),
        )
        .table(
            "frequency",
            "Run time by the time between checkpoints",
            vec!["seconds between checkpoints", "Hz", "complete checkpoints", "overhead %"],
            rows,
        ),
    ])
}

/// Compares the greatest overhead at frequencies below [`BOUNDED`] with the published bound. Also returns the goal if
/// this overhead misses it.
fn judge(points: &[(f64, Spread)]) -> (Finding, Option<String>) {
    let most = points.iter().filter(|it| it.0 < BOUNDED).map(|it| it.1.most).reduce(f64::max);
    let missed = most.filter(|it| *it > GOAL).map(|it| {
        format!("the overhead of CCK below {BOUNDED} Hz is at most {GOAL} % (found {} %)", short(it))
    });
    let finding = Finding::new(
        "overhead at low frequencies",
        format!("less than {PUBLISHED} % below {BOUNDED} Hz"),
        most.map_or_else(|| "not run".to_owned(), |it| format!("at most {} % below {BOUNDED} Hz", short(it))),
        most.map_or(Grade::NotStated, |it| Grade::at_most(it, PUBLISHED)),
        format!(
            "Compared with the run without checkpoints that has the same seed. Coordinating and copying a \
             state take no processor time here, so the goal is {GOAL} %."
        ),
    );
    (finding, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_measurement_gives_one_finding_and_at_most_one_missed_goal() {
        let judged = |overheads: &[(f64, f64)]| {
            let points: Vec<_> = overheads.iter().map(|(hz, it)| (*hz, Spread::of([*it]))).collect();
            let (finding, missed) = judge(&points);
            (finding.grade, finding.ours, missed.is_some())
        };
        // Overheads at higher frequencies do not count.
        let found = judged(&[(0.02, 0.1), (0.05, 0.25), (0.1, 7.0)]);
        assert_eq!(found, (Grade::DirectionAgrees(Some(0.25)), "at most 0.25 % below 0.1 Hz".into(), false));
        assert_eq!(
            judged(&[(0.05, 0.6)]),
            (Grade::DirectionAgrees(Some(0.6)), "at most 0.6 % below 0.1 Hz".into(), true)
        );
        assert_eq!(judged(&[(0.05, 1.01)]), (Grade::Differs, "at most 1.01 % below 0.1 Hz".into(), true));
        assert_eq!(judged(&[(0.1, 0.1)]), (Grade::NotStated, "not run".into(), false));
    }
}
