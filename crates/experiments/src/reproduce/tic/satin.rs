//! TIC compared with Satin: figure 13 of the paper.

use super::{Program, SATIN, TASK_SECONDS, again, longer, of, tic};
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};
use faultline_report::chart::{Chart, Series};

/// The number of places of the program, as in the paper.
const PLACES: u32 = 32;
/// The times of the failure, as percentages of the run time.
const MOMENTS: [u32; 3] = [25, 50, 75];
/// Seconds between two checkpoints, as in the paper.
const TAU: u32 = 1;
/// The maximum time in seconds until a checkpoint is durable.
const WRITE_SECONDS: f64 = 0.1;
/// The failing processes, with their ranks: one that starts without work, and the one that initially has the whole
/// program.
const VICTIMS: [(&str, u32); 2] = [("a process", 17), ("the first process", 0)];

/// The number of settings: for each of the two protocols, one without a failure, and one for each combination of a
/// failing process and a time of failure.
pub(super) const SETTINGS: usize = 2 * (1 + VICTIMS.len() * MOMENTS.len());

/// The results of one protocol with one failing process.
struct Way {
    name: String,
    is_tic: bool,
    /// Time of re-executed tasks in seconds, by the time of the failure.
    again: Vec<(f64, Spread)>,
    /// The overhead in percent, by the time of the failure.
    longer: Vec<Spread>,
}

pub(super) fn satin(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let (ways, calm_seconds) = measure(runner)?;
    let rows = ways.iter().map(|way| {
        let mut row = vec![Cell::from(way.name.as_str())];
        for ((_, again), longer) in way.again.iter().zip(&way.longer) {
            row.extend([Cell::from(*again), Cell::from(*longer)]);
        }
        row
    });
    let section = claims(&ways, &calm_seconds)
        .figure(
            "satin",
            "Time of tasks that were re-executed after one failure",
            Chart::new(
                "re-executed work by the time of the failure",
                "time of the failure, % of the run time",
                "re-executed, s",
                ways.iter().map(|it| Series { name: it.name.clone(), points: it.again.clone() }).collect(),
            ),
        )
        .table(
            "satin",
            "After 25 %, 50 % and 75 % of the run time: re-executed tasks, and the increase in run time",
            vec![
                "setting",
                "25 %: re-executed, s",
                "longer, %",
                "50 %: re-executed, s",
                "longer, %",
                "75 %: re-executed, s",
                "longer, %",
            ],
            rows.collect(),
        );
    Ok(vec![section])
}

/// Returns the results, and the run times without failures under TIC and Satin.
fn measure(runner: &mut ExperimentRunner<'_, '_>) -> Result<(Vec<Way>, Vec<Spread>), Interrupted> {
    let program = Program::new(runner, PLACES);
    let mut ways = Vec::new();
    let mut calm_seconds = Vec::new();
    for (name, protocol) in [("TIC", tic(TAU)), ("Satin", SATIN.to_owned())] {
        let calm = runner.costs(&format!("{name} without a failure"), &program.federation(&protocol, &[]))?;
        let seconds = of(&calm, |it| it.seconds);
        for (victim, node) in VICTIMS {
            let mut way = Way {
                name: format!("{name}, {victim} fails"),
                is_tic: name == "TIC",
                again: Vec::new(),
                longer: Vec::new(),
            };
            for moment in MOMENTS {
                let at = seconds.mean * f64::from(moment) / 100.0;
                let fault = format!("{{ at: {at:.3}s, crash: {{ cluster: c0, node: {node} }} }}");
                let what = format!("{} after {moment} %", way.name);
                let runs = runner.costs(&what, &program.federation(&protocol, &[fault]))?;
                way.again.push((moment.into(), of(&runs, again)));
                way.longer.push(longer(&runs, &calm));
            }
            ways.push(way);
        }
        calm_seconds.push(seconds);
    }
    Ok((ways, calm_seconds))
}

fn claims(ways: &[Way], calm_seconds: &[Spread]) -> Section {
    let bound = f64::from(TAU) + TASK_SECONDS + WRITE_SECONDS;
    let of_tic = || ways.iter().filter(|it| it.is_tic);
    let of_satin = || ways.iter().filter(|it| !it.is_tic);
    let most = of_tic().flat_map(|it| &it.again).map(|(_, it)| it.most).fold(0.0, f64::max);
    let grows = of_satin().all(|it| it.again[0].1.mean < it.again[MOMENTS.len() - 1].1.mean);
    let means = |way: &Way| way.again.iter().map(|(_, it)| short(it.mean)).collect::<Vec<_>>().join(", ");
    let satins: Vec<&Way> = of_satin().collect();
    let costlier = MOMENTS.iter().enumerate().all(|(index, _)| {
        let mean =
            |ways: &mut dyn Iterator<Item = &Way>| Spread::of(ways.map(|it| it.longer[index].mean)).mean;
        mean(&mut of_satin()) > mean(&mut of_tic())
    });
    Section::new("satin", "TIC compared with Satin", "VII-E, figure 13")
        .text(format!(
            "The Fibonacci recursion runs on {PLACES} places of one cluster. One process fails after 25 %, \
             50 % or 75 % of the run time, and returns 0.2 s later. The paper does not say which process \
             fails, nor whether it returns. Here, it is either a process that began without work, or the \
             process that began with the program."
        ))
        .finding(
            "Satin's loss grows with the time of the failure",
            "the loss is higher the later the fault occurs",
            format!(
                "{} s of tasks re-executed after 25, 50 and 75 %; {} s if the first process fails",
                means(satins[0]),
                means(satins[1])
            ),
            Grade::direction(grows),
            "The results that a process computed for itself are lost with it. Results that it had returned, \
             and results of orphaned tasks, are not lost.",
        )
        .finding(
            "TIC's loss is bounded",
            "at most the period and the longest task",
            format!("at most {} s of tasks re-executed in any run", short(most)),
            Grade::value(most <= bound),
            format!(
                "The bound is {} s: the period, one task, and {WRITE_SECONDS} s for the write of a \
                 checkpoint.",
                short(bound)
            ),
        )
        .finding(
            "a failure costs more time under Satin",
            "significantly higher than under TIC (relative to runs without failures)",
            format!(
                "after 75 %: {} % and {} % longer under Satin, {} % and {} % under TIC",
                short(satins[0].longer[2].mean),
                short(satins[1].longer[2].mean),
                short(ways[0].longer[2].mean),
                short(ways[1].longer[2].mean)
            ),
            Grade::direction(costlier),
            "For a process that began without work, and for the first process.",
        )
        .finding(
            "without failures, Satin costs less than TIC",
            "lower overhead than TIC, whose overhead is very small",
            format!("{} s and {} s", calm_seconds[1].text(), calm_seconds[0].text()),
            Grade::less(&calm_seconds[1], &calm_seconds[0]),
            "Mean run times without failures: Satin, then TIC. They can be told apart if they differ by more \
             than their uncertainty and half a percent.",
        )
}
