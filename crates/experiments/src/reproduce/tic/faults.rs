//! Runs with more and more crashes: figures 10 and 11 of the paper.

use super::{OUTAGE_SECONDS, Program, UNPROTECTED, again, fit, longer, of, sel, tic};
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};
use faultline_report::chart::{Chart, Series};

/// The number of places. The paper does not state its own.
const PLACES: u32 = 30;

/// The cost of crashes under one protocol.
struct Way {
    name: &'static str,
    /// By number of crashes: overhead compared with the protocol's own runs without crashes, in percent.
    over_own: Vec<(f64, Spread)>,
    /// By number of crashes: overhead compared with unprotected runs without crashes, in percent.
    over_unprotected: Vec<(f64, Spread)>,
    /// By number of crashes: time of re-executed tasks, in seconds.
    again: Vec<(f64, Spread)>,
}

impl Way {
    /// Fits a line through the origin to the overhead, compared with the protocol's own runs without crashes, by number
    /// of crashes. Returns the slope of the line and the share of the variation that the line explains.
    fn fitted_line(&self) -> (f64, f64) {
        fit(&self.over_own.iter().map(|(crashes, it)| (*crashes, it.mean)).collect::<Vec<_>>())
    }

    /// Returns the seconds of re-executed work per crash.
    fn again_per_crash(&self) -> f64 {
        fit(&self.again.iter().map(|(crashes, it)| (*crashes, it.mean)).collect::<Vec<_>>()).0
    }
}

/// Returns the numbers of crashes to simulate.
fn counts(quick: bool) -> &'static [u32] {
    if quick { &[0, 4, 8] } else { &[0, 4, 8, 16, 32] }
}

/// Returns the number of settings: one unprotected, and both protocols with each number of crashes.
pub(super) fn settings(quick: bool) -> usize {
    1 + 2 * counts(quick).len()
}

pub(super) fn faults(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let counts = counts(runner.is_quick());
    let program = Program::new(runner, PLACES);
    let ways = measure(runner, &program, counts)?;
    let rows = counts.iter().enumerate().map(|(index, &count)| {
        let mut row = vec![Cell::from(f64::from(count))];
        for way in &ways {
            row.extend(
                [way.over_own[index].1, way.over_unprotected[index].1, way.again[index].1].map(Cell::from),
            );
        }
        row
    });
    let series = |of: fn(&Way) -> &Vec<(f64, Spread)>| {
        ways.iter().map(|it| Series { name: it.name.into(), points: of(it).clone() }).collect()
    };
    let chart = |title: &str, series| Chart::new(title, "crashes", "longer, %", series);
    let section = claims(&ways, counts, &program)
        .figure(
            "faults-own",
            "Figure 10: compared with the same protocol without crashes",
            chart("overhead by number of crashes, excluding that of the protocol", series(|it| &it.over_own)),
        )
        .figure(
            "faults-total",
            "Figure 11: compared with unprotected runs without crashes",
            chart("total overhead by number of crashes", series(|it| &it.over_unprotected)),
        )
        .table(
            "faults",
            "TIC, then SEL",
            vec![
                "crashes",
                "TIC over its own runs, %",
                "over unprotected, %",
                "re-executed, s",
                "SEL over its own runs, %",
                "over unprotected, %",
                "re-executed, s",
            ],
            rows.collect(),
        );
    Ok(vec![section])
}

fn measure(
    runner: &mut ExperimentRunner<'_, '_>,
    program: &Program,
    counts: &[u32],
) -> Result<Vec<Way>, Interrupted> {
    let unprotected =
        runner.costs("crashes, unprotected without crashes", &program.federation(UNPROTECTED, &[]))?;
    let mut ways = Vec::new();
    for (name, protocol) in [("TIC", tic(1)), ("SEL", sel())] {
        let mut way = Way { name, over_own: Vec::new(), over_unprotected: Vec::new(), again: Vec::new() };
        let mut calm = Vec::new();
        for &count in counts {
            let crash = |number: u32| {
                let at = program.ideal_seconds() * f64::from(number) / f64::from(count + 1);
                format!("{{ at: {at:.3}s, crash: {{}} }}")
            };
            let crashes: Vec<String> = (1..=count).map(crash).collect();
            let runs = runner
                .costs(&format!("{count} crashes under {name}"), &program.federation(&protocol, &crashes))?;
            if count == 0 {
                calm.clone_from(&runs);
            }
            way.over_own.push((count.into(), longer(&runs, &calm)));
            way.over_unprotected.push((count.into(), longer(&runs, &unprotected)));
            way.again.push((count.into(), of(&runs, again)));
        }
        ways.push(way);
    }
    Ok(ways)
}

fn claims(ways: &[Way], counts: &[u32], program: &Program) -> Section {
    let [tic, sel] = ways else { unreachable!("there are two") };
    let ((tic_slope, tic_share), (sel_slope, sel_share)) = (tic.fitted_line(), sel.fitted_line());
    let last = counts.len() - 1;
    let expected = 100.0 * OUTAGE_SECONDS / f64::from(PLACES) / program.ideal_seconds();
    Section::new("faults", "Runs with crashes", "VII-C, figures 10 and 11")
        .text(format!(
            "Crashes happen at equal intervals on {PLACES} places, each in a process that is drawn from the \
             seed. TIC takes a checkpoint every second, and leaf tasks take 0.23 s, as in the paper. A crash \
             is detected after 1 ms, and the process restarts 0.2 s later. Figure 10 compares these runs \
             with runs under the same protocol without crashes, and figure 11 compares them with unprotected \
             runs without crashes."
        ))
        .finding(
            "the run time grows linearly with the number of crashes",
            "grows linearly",
            format!(
                "TIC {} % and SEL {} % for each crash; a line explains {} % and {} % of the variation",
                short(tic_slope),
                short(sel_slope),
                short(100.0 * tic_share),
                short(100.0 * sel_share)
            ),
            Grade::direction(tic_share >= 0.8 && sel_share >= 0.8),
            format!(
                "The fitted curve is a line through the origin. The outage of one of {PLACES} places alone \
                 costs {} % of the run time; the rest is re-executed work, and waiting for it.",
                short(expected)
            ),
        )
        .finding(
            "computation that is lost",
            "lower under SEL: only the computation of failed tasks is lost",
            format!(
                "{} s of finished tasks re-executed for each crash under TIC, {} s under SEL",
                short(tic.again_per_crash()),
                short(sel.again_per_crash())
            ),
            Grade::direction(sel.again_per_crash() < tic.again_per_crash()),
            "The task that a process was running when it failed is lost under both, and not included.",
        )
        .finding(
            "total overhead with crashes",
            "the overhead of SEL overshadows its advantage",
            format!(
                "{} % under TIC and {} % under SEL with {} crashes",
                short(tic.over_unprotected[last].1.mean),
                short(sel.over_unprotected[last].1.mean),
                counts[last]
            ),
            Grade::less(&tic.over_unprotected[last].1, &sel.over_unprotected[last].1),
            "Here, a log is written in segments while tasks run. A message of a theft waits for one write, \
             as it does under TIC, so a log costs volume rather than time. In the paper, events are logged \
             one by one.",
        )
}
