//! Runs without failures: figures 8 and 9 of the paper.

use super::{Program, UNPROTECTED, longer, of, sel, tic};
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};
use faultline_report::chart::{Chart, Series};

/// The largest difference between protocols that the paper reports, in percent, with [`PROCESSORS`] processors.
const PUBLISHED_PERCENT: f64 = 7.6;
const PROCESSORS: u32 = 120;
/// Checkpoint periods of TIC, in seconds.
const TAUS: [u32; 3] = [1, 5, 20];
/// The maximum cost of TIC with a period of 5 s, in percent: this project's own goal.
const AIM_PERCENT: f64 = 1.0;

/// The results of one protocol for each number of places.
struct Way {
    name: String,
    protocol: String,
    seconds: Vec<(f64, Spread)>,
    percent: Vec<Spread>,
    megabytes: Vec<(f64, Spread)>,
}

/// Returns the numbers of places to simulate.
fn sizes(quick: bool) -> &'static [u32] {
    if quick { &[30, PROCESSORS] } else { &[15, 30, 60, PROCESSORS] }
}

/// Returns the number of settings: unprotected, TIC with each period, and SEL.
pub(super) fn settings(quick: bool) -> usize {
    sizes(quick).len() * (TAUS.len() + 2)
}

pub(super) fn fault_free(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let sizes = sizes(runner.is_quick());
    let way = |name: String, protocol: String| Way {
        name,
        protocol,
        seconds: Vec::new(),
        percent: Vec::new(),
        megabytes: Vec::new(),
    };
    let mut ways = vec![way("unprotected".into(), UNPROTECTED.into())];
    ways.extend(TAUS.map(|tau| way(format!("TIC, {tau} s"), tic(tau))));
    ways.push(way("SEL".into(), sel()));
    for &places in sizes {
        let program = Program::new(runner, places);
        let mut unprotected = Vec::new();
        for way in &mut ways {
            let what = format!("{} on {places} places", way.name);
            let runs = runner.costs(&what, &program.federation(&way.protocol, &[]))?;
            if unprotected.is_empty() {
                unprotected.clone_from(&runs);
            }
            way.seconds.push((places.into(), of(&runs, |it| it.seconds)));
            way.percent.push(longer(&runs, &unprotected));
            way.megabytes.push((places.into(), of(&runs, |it| it.checkpoint_bytes as f64 / 1e6)));
        }
    }
    Ok(vec![times(sizes, &ways), volume(sizes, &ways)])
}

fn times(sizes: &[u32], ways: &[Way]) -> Section {
    let largest = ways.iter().flat_map(|it| &it.percent).map(|it| it.mean.abs()).fold(0.0, f64::max);
    let first = ways[0].seconds[0].1.mean;
    let last = ways.iter().map(|it| it.seconds[sizes.len() - 1].1.mean).fold(0.0, f64::max);
    let (fewest, most) = (f64::from(sizes[0]), f64::from(sizes[sizes.len() - 1]));
    let efficiency = 100.0 * (first * fewest) / (last * most);
    let five = ways[2].percent.iter().map(|it| it.mean).fold(f64::NEG_INFINITY, f64::max);
    let rows = sizes.iter().enumerate().map(|(index, &places)| {
        let mut row = vec![Cell::from(f64::from(places)), ways[0].seconds[index].1.into()];
        row.extend(ways[1..].iter().map(|it| Cell::from(it.percent[index])));
        row
    });
    Section::new("fault-free", "Runs without failures", "VII-B, figure 8")
        .text(
            "The same program runs on more and more places of one cluster (100 Mbit/s, as in the paper). \
             Every place writes to its own disk (50 MB/s, 5 ms per write) and to that of the next place, \
             which stands in for the paper's checkpoint server of each processor. The paper does not say how \
             fast its disks are. Overhead is compared seed by seed.",
        )
        .finding(
            "the program scales under every protocol",
            "scales with the number of processors for all protocols",
            format!("at least {} % of a linear speed-up", short(efficiency)),
            Grade::direction(efficiency >= 80.0),
            format!(
                "From {} to {} places, under the protocol that scales least.",
                sizes[0],
                sizes[sizes.len() - 1]
            ),
        )
        .finding(
            "difference between protocols",
            format!("at most {PUBLISHED_PERCENT} %, with {PROCESSORS} processors"),
            format!("at most {} %", short(largest)),
            Grade::at_most(largest, PUBLISHED_PERCENT),
            "The largest mean over all sizes. Only thieves wait for checkpoints; a place never stops running \
             tasks for one.",
        )
        .finding(
            "overhead of TIC with a checkpoint every 5 s",
            String::new(),
            format!("at most {} %", short(five)),
            Grade::NotStated,
            format!(
                "{} {AIM_PERCENT} %, this project's goal.",
                if five <= AIM_PERCENT { "Below" } else { "Above" }
            ),
        )
        .figure(
            "fault-free",
            "Run time without failures",
            Chart::new(
                "run time by number of places",
                "places",
                "run time, s",
                ways.iter().map(|it| Series { name: it.name.clone(), points: it.seconds.clone() }).collect(),
            ),
        )
        .table(
            "fault-free",
            "Unprotected run time, and the overhead of each protocol",
            vec![
                "places",
                "unprotected, s",
                "TIC every 1 s, %",
                "TIC every 5 s, %",
                "TIC every 20 s, %",
                "SEL, %",
            ],
            rows.collect(),
        )
}

fn volume(sizes: &[u32], ways: &[Way]) -> Section {
    let protected = &ways[1..];
    let last = sizes.len() - 1;
    let mean = |way: &Way, index: usize| way.megabytes[index].1.mean;
    let (sel, tics) = protected.split_last().expect("SEL is the last protocol");
    let all: Vec<usize> = (0..sizes.len()).collect();
    let shares = |tic: &Way| Spread::of(all.iter().map(|&index| 100.0 * mean(tic, index) / mean(sel, index)));
    let [one, five, twenty] = [&tics[0], &tics[1], &tics[2]].map(shares);
    let falls = all.iter().all(|&index| mean(&tics[0], index) > mean(&tics[1], index))
        && all.iter().all(|&index| mean(&tics[1], index) > mean(&tics[2], index));
    let growth = mean(&tics[0], last) / mean(&tics[0], 0);
    let rows = all.iter().map(|&index| {
        let mut row = vec![Cell::from(f64::from(sizes[index]))];
        row.extend(protected.iter().map(|it| Cell::from(it.megabytes[index].1)));
        row
    });
    Section::new("volume", "Volume of stored data", "VII-B, figure 9")
        .text(
            "All checkpoints and log segments of the same runs, including replicas. A log segment contains \
             all events since the previous segment.",
        )
        .finding(
            "TIC stores less than SEL",
            "a significant reduction, most visible for larger periods",
            format!(
                "{} %, {} % and {} % of SEL's volume with 1 s, 5 s and 20 s",
                short(one.mean),
                short(five.mean),
                short(twenty.mean)
            ),
            Grade::direction(one.most < 100.0 && five.most < 100.0 && twenty.most < 100.0),
            "SEL's volume grows with the number of tasks, TIC's with the run time, the number of thefts, and \
             the size of the graphs. A program with more data in its graphs has larger checkpoints, but also \
             larger events.",
        )
        .finding(
            "TIC's volume falls with the period",
            "most visible for larger periods",
            if falls { "for every size" } else { "not for every size" },
            Grade::direction(falls),
            "With long periods, only the checkpoints that thefts force remain.",
        )
        .finding(
            "TIC's volume by number of processors",
            "relatively constant",
            format!("multiplied by {} from {} to {} places", short(growth), sizes[0], sizes[last]),
            Grade::direction((0.5..=2.0).contains(&growth)),
            "With a period of 1 s. More places take more checkpoints per second, but for fewer seconds, and \
             the number of thefts increases.",
        )
        .figure(
            "volume",
            "Data written to storage, including replicas",
            Chart::new(
                "stored data by number of places",
                "places",
                "stored, MB",
                protected
                    .iter()
                    .map(|it| Series { name: it.name.clone(), points: it.megabytes.clone() })
                    .collect(),
            ),
        )
        .table(
            "volume",
            "Stored data in MB",
            vec!["places", "TIC every 1 s", "TIC every 5 s", "TIC every 20 s", "SEL"],
            rows.collect(),
        )
}
