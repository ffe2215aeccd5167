//! The cost of a checkpoint: messages (long paper, section 3.6.1), and time as a function of the number of processes
//! and of storage servers (figure 5 of the short paper, figure 10 of the long one).

use super::{Planned, times, watch};
use crate::measures::{Spread, short};
use crate::reproduce::section::{Cell, Finding, Grade, Section};
use crate::reproduce::{ExperimentRunner, Interrupted};
use faultline_report::chart::{Chart, Series};

/// Returns the number of channels between the blocks of a grid, where each block sends to its neighbours.
fn channels([rows, columns]: [u32; 2]) -> u64 {
    2 * u64::from((rows - 1) * columns + rows * (columns - 1))
}

pub(super) fn messages(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let grids: &[[u32; 2]] =
        if runner.is_quick() { &[[3, 4], [6, 8]] } else { &[[3, 4], [6, 8], [9, 10], [12, 13], [15, 16]] };
    let (mut rows, mut is_exact, mut last) = (Vec::new(), true, [0; 2]);
    let mut series = ["neighbours", "global"].map(|it| Series { name: it.into(), points: Vec::new() });
    for &grid in grids {
        let n = u64::from(grid[0] * grid[1]);
        let expected = [2 * n + 3 * channels(grid), n * (n + 2)];
        let mut row = vec![Cell::Word(format!("{} x {}", grid[0], grid[1])), (channels(grid) as f64).into()];
        for (index, coordination) in ["neighbours", "global"].into_iter().enumerate() {
            let options = format!("replicas: 1, coordination: {coordination}");
            let planned = Planned { options, tau: Some(0.5), iterations: 30, ..Planned::new("jacobi", grid) };
            let runs = watch(runner, &format!("messages of {n} processes, {coordination}"), &planned)?;
            let found = Spread::of(runs.iter().flat_map(|it| &it.checkpoints).map(|it| it.1 as f64));
            is_exact &= found.runs > 0 && [found.least, found.most] == [expected[index] as f64; 2];
            last[index] = found.mean as u64;
            series[index].points.push((n as f64, found));
            row.extend([found.into(), Cell::from(expected[index] as f64)]);
        }
        rows.push(row);
    }
    let n = grids[grids.len() - 1].map(u64::from);
    Ok(vec![
        Section::new("messages", "Messages of a checkpoint", "long paper, sections 3.4 and 3.6.1")
            .text(
                "The program is Jacobi, with one block for each process. With N processes and E channels, \
                 coordination between neighbours takes 2N + 3E messages: N to begin, 2E questions and \
                 answers that drain the channels, E to continue, and N acknowledgements. Coordination of all \
                 processes takes N(N + 2) messages. The messages of every checkpoint were counted.",
            )
            .finding(
                "messages of a checkpoint",
                "O(N V) with V neighbours, instead of O(N²)",
                format!("{} instead of {} with {} processes", last[0], last[1], n[0] * n[1]),
                Grade::value(is_exact),
                "Agrees if every checkpoint of every run required exactly the number of messages that the \
                 formulas give.",
            )
            .figure(
                "messages",
                "Messages of one checkpoint",
                Chart::new("messages by number of processes", "processes", "messages", series.into()),
            )
            .table(
                "messages",
                "Messages of one checkpoint, counted and computed",
                vec!["grid", "channels", "neighbours", "2N + 3E", "global", "N(N + 2)"],
                rows,
            ),
    ])
}

/// Returns the rectangle with this number of processes that is closest to a square.
fn rectangle(processes: u32) -> [u32; 2] {
    let is_side = |it: &u32| processes.is_multiple_of(*it) && it * it <= processes;
    let rows = (1..=processes).rev().find(is_side).unwrap_or(1);
    [rows, processes / rows]
}

/// The bandwidth of Fast Ethernet, in megabytes per second.
const FAST_ETHERNET: f64 = 12.5;

pub(super) fn one_server(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let counts: &[u32] = if runner.is_quick() { &[2, 6] } else { &[4, 8, 16, 24, 32, 40] };
    let (mut series, mut rows, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    // Each process has two tasks for each block in each of two unrolled iterations.
    for (tasks, blocks) in [(500, [25, 5]), (2000, [25, 20])] {
        let (mut points, mut last_bytes, mut last) = (Vec::new(), 0.0, Spread::default());
        for &count in counts {
            let planned = Planned {
                blocks,
                iterations: 6,
                task_ms: 1_000.0 / f64::from(2 * blocks[0] * blocks[1]),
                options: "replicas: 1, replicateTo: sharedStorage, coordination: global".into(),
                tau: Some(2.0),
                bandwidth: FAST_ETHERNET,
                ..Planned::new("cloth", rectangle(count))
            };
            let runs = watch(runner, &format!("cloth, {tasks} tasks, {count} processes"), &planned)?;
            let bytes = Spread::of(runs.iter().flat_map(|it| &it.state_bytes).map(|it| *it as f64));
            last = times(&runs);
            last_bytes = bytes.mean;
            points.push((f64::from(count), last));
            let wire = bytes.mean * f64::from(count) / FAST_ETHERNET / 1e3;
            rows.push(vec![
                f64::from(tasks).into(),
                f64::from(count).into(),
                Cell::from(bytes.mean / 1e3),
                wire.into(),
                last.into(),
            ]);
        }
        if tasks == 2000 {
            findings = large_states(counts[counts.len() - 1], last_bytes, last);
        }
        series.push(Series { name: format!("{tasks} tasks per process"), points });
    }
    Ok(vec![
        Section::new("servers-short", "One storage server", "short paper, section 4.2, figure 5")
            .text(
                "The program is Cloth, with 500 and with 2000 tasks for each process: two tasks for each \
                 block in each of two unrolled iterations. One server on Fast Ethernet stores all states; \
                 all processes coordinate. The paper says 200 tasks in its text, but 500 in the caption.",
            )
            .findings(findings)
            .figure(
                "servers-short",
                "Time of a checkpoint with one storage server",
                Chart::new(
                    "time of a checkpoint by number of processes",
                    "processes",
                    "milliseconds",
                    series,
                ),
            )
            .table(
                "servers-short",
                "Time of a checkpoint",
                vec!["tasks", "processes", "state KB", "wire ms", "checkpoint ms"],
                rows,
            ),
    ])
}

/// Judges the states of processes with 2000 tasks, and the time of a checkpoint of this many processes.
fn large_states(count: u32, bytes: f64, checkpoint: Spread) -> Vec<Finding> {
    let wire = bytes * f64::from(count) / FAST_ETHERNET / 1e3;
    vec![
        Finding::new(
            "state of a process with 2000 tasks",
            "about 300 KB",
            format!("{} KB", short(bytes / 1e3)),
            Grade::value((bytes / 3e5 - 1.0).abs() <= Grade::TOLERANCE),
            "Agrees within a fifth. Each block has four particles, so that a task is as small as the \
         paper's.",
        ),
        Finding::new(
            "the server is the bottleneck",
            "with 2000 tasks, the server receives about 12 MB from 40 processors",
            format!(
                "{} MB from {count}: {} ms on the wire, of {} ms for the checkpoint",
                short(bytes * f64::from(count) / 1e6),
                short(wire),
                short(checkpoint.mean)
            ),
            Grade::direction(wire / checkpoint.mean > 0.5),
            "Agrees if more than half of the time is spent on the server's wire.",
        ),
    ]
}

/// Compares the slopes of a curve below and above this number of processes. There is a break if the curve is at least a
/// quarter steeper above it.
fn break_at(processes: u32, points: &[(f64, Spread)]) -> (String, Grade) {
    let place = points.iter().position(|it| it.0 == f64::from(processes));
    let slope = |from: &(f64, Spread), to: &(f64, Spread)| (to.1.mean - from.1.mean) / (to.0 - from.0);
    match place.map(|it| (&points[..=it], &points[it..])) {
        Some((below @ [first, .., last], above @ [from, .., to])) if below.len() > 1 && above.len() > 1 => {
            let (below, above) = (slope(first, last), slope(from, to));
            let has_break = above >= 1.25 * below;
            let found = if has_break { "a break" } else { "no break" };
            let text =
                format!("{found}: {} ms for each process below, {} ms above", short(below), short(above));
            (text, Grade::direction(has_break))
        }
        _ => (format!("no slope below or above {processes} processes"), Grade::NotStated),
    }
}

pub(super) fn many_servers(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    /// The bandwidth of Gigabit Ethernet, in megabytes per second.
    const WIRE: f64 = 125.0;
    let counts: &[u32] =
        if runner.is_quick() { &[10, 20, 40] } else { &[20, 40, 60, 80, 120, 160, 200, 240] };
    let servers: [u32; 2] = if runner.is_quick() { [5, 10] } else { [20, 60] };
    // In a full reproduction, a block contains 2 MB of 8-byte numbers.
    let size = if runner.is_quick() { 64 } else { 500 };
    let (mut series, mut rows) = (Vec::new(), Vec::new());
    let mut at = |servers: u32, runner: &mut ExperimentRunner<'_, '_>| {
        let mut points = Vec::new();
        for &count in counts {
            let planned = Planned {
                size,
                iterations: 4,
                task_ms: 1_000.0,
                options: format!("replicas: 1, replicateTo: sharedStorage, servers: {servers}"),
                tau: Some(1.5),
                bandwidth: WIRE,
                ..Planned::new("jacobi", rectangle(count))
            };
            let runs = watch(runner, &format!("{count} processes, {servers} servers"), &planned)?;
            let found = times(&runs);
            let bytes = Spread::of(runs.iter().flat_map(|it| &it.state_bytes).map(|it| *it as f64));
            let clients = count.div_ceil(servers);
            let wire = bytes.mean * f64::from(clients) / WIRE / 1e3;
            points.push((f64::from(count), found));
            rows.push(vec![
                f64::from(servers).into(),
                f64::from(count).into(),
                Cell::from(f64::from(clients)),
                Cell::from(bytes.mean / 1e6),
                wire.into(),
                found.into(),
            ]);
        }
        series.push(Series { name: format!("{servers} servers"), points: points.clone() });
        Ok(points)
    };
    let few = at(servers[0], runner)?;
    let many = at(servers[1], runner)?;
    Ok(vec![
        Section::new("servers-long", "Many storage servers", "long paper, section 4.1, figure 10")
            .text(
                "The program is Jacobi, with one block of 2 MB for each process (32 KB with `--quick`). Each \
                 server receives the states of its processes sequentially. In the paper, both curves depart \
                 from the straight line at four processes for each server: with 20 servers, at 80 processes; \
                 with 60 servers, at 240 processes.",
            )
            .findings(congestion(servers, &few, &many, runner.is_quick()))
            .figure(
                "servers-long",
                "Time of a checkpoint",
                Chart::new(
                    "time of a checkpoint by number of processes and servers",
                    "processes",
                    "milliseconds",
                    series,
                )
                .stated(if runner.is_quick() {
                    Vec::new()
                } else {
                    vec![("240 processes, 60 servers".into(), 230.0)]
                }),
            )
            .table(
                "servers-long",
                "Time of a checkpoint",
                vec!["servers", "processes", "processes per server", "state MB", "wire ms", "checkpoint ms"],
                rows,
            ),
    ])
}

/// Compares the times with few and with many servers, by number of processes.
fn congestion(
    servers: [u32; 2],
    few: &[(f64, Spread)],
    many: &[(f64, Spread)],
    is_quick: bool,
) -> Vec<Finding> {
    let last = |points: &[(f64, Spread)]| points[points.len() - 1].1.mean;
    let ratio = last(few) / last(many);
    let expected = f64::from(servers[1]) / f64::from(servers[0]);
    let greatest = few[few.len() - 1].0;
    let full = 4 * servers[0];
    let (slopes, has_break) = break_at(full, few);
    vec![
        Finding::new(
            format!("{greatest} processes, {} servers", servers[1]),
            "less than 230 ms (240 processes, 60 servers)",
            format!("{} ms", short(last(many))),
            if is_quick { Grade::NotStated } else { Grade::at_most(last(many), 230.0) },
            "Four states of 2 MB take 64 ms on the wire. The rest of the published time was spent in \
                 processors and software, which take no time here.",
        ),
        Finding::new(
            format!("slope at {full} processes, {} servers", servers[0]),
            "a break at 80 processes with 20 servers, four for each server",
            slopes,
            has_break,
            "Agrees if the curve is at least a quarter steeper above four processes for each server. A \
                 server here receives its states sequentially and at the same rate, however many there are.",
        ),
        Finding::new(
            format!("{} servers instead of {}", servers[0], servers[1]),
            "the servers are congested",
            format!("{} times as long with {greatest} processes", short(ratio)),
            Grade::direction((0.7 * expected..1.3 * expected).contains(&ratio)),
            format!(
                "Agrees if the servers are the bottleneck: the time then grows with the number of \
                     processes for each server, which is {} times as large.",
                short(expected)
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_is_judged_by_the_slopes_on_both_sides() {
        let curve = |values: &[(f64, f64)]| -> Vec<(f64, Spread)> {
            values.iter().map(|(x, y)| (*x, Spread::of([*y]))).collect()
        };
        let straight = break_at(80, &curve(&[(20.0, 16.0), (80.0, 64.0), (240.0, 192.0)]));
        assert_eq!(straight.1, Grade::direction(false));
        assert_eq!(straight.0, "no break: 0.8 ms for each process below, 0.8 ms above");
        let broken = break_at(80, &curve(&[(20.0, 16.0), (80.0, 64.0), (240.0, 512.0)]));
        assert_eq!(broken.1, Grade::direction(true));
        assert_eq!(broken.0, "a break: 0.8 ms for each process below, 2.8 ms above");
        assert_eq!(break_at(80, &curve(&[(80.0, 64.0), (240.0, 192.0)])).1, Grade::NotStated);
    }
}
