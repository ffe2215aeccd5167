//! Clusters that join and leave (section 7), compared with a federation in which all clusters stay.

use faultline_api::Federation;
use faultline_api::quantity::{Duration, Period};
use faultline_core::Span;

use crate::measures::{Spread, short};
use crate::statistics::Statistics;

use super::options::{all_forced, kill, options, three_clusters};
use super::paper::{federation, of};
use super::section::{Cell, Finding, Grade, Section, Table};
use super::{ExperimentRunner, Interrupted};

/// The cluster that joins and leaves.
const GUEST: usize = 2;
/// The kinds of messages that carry application data or parts of checkpoints. All other kinds are protocol messages.
const LOAD: [&str; 2] = ["application", "image"];

/// Measures the effect of clusters that join and leave. The paper: "In the future we want to manage dynamism."
pub(super) fn joining_and_leaving(
    runner: &mut ExperimentRunner<'_, '_>,
) -> Result<Vec<Section>, Interrupted> {
    let base = federation(&three_clusters(|_, _| 100));
    let (two, six) = (Some(2), Some(6));
    let settings = [
        ("all clusters stay", with_guest(&base, None, None)),
        ("cluster 2 joins after 2 h", with_guest(&base, two, None)),
        ("cluster 2 leaves after 6 h", with_guest(&base, None, six)),
        ("cluster 2 joins and leaves", with_guest(&base, two, six)),
        ("the same, with collections every 10 min", every_ten_minutes(with_guest(&base, two, six))),
    ];
    let mut rows = Vec::new();
    let mut waits = Vec::new();
    for (name, setting) in &settings {
        let runs = runner.run(&format!("three clusters, {name}"), setting)?;
        waits.push(waits_minutes(&runs));
        rows.push(row(name, &runs));
    }
    let (finding, failures) = failures(runner, &base)?;
    Ok(vec![
        Section::new("joining-and-leaving", "Clusters that join and leave", "7, future work")
            .text(
                "With \"joinsAfter\" and \"leavesAfter\", a cluster takes part in only part of the run. A \
                 leaving cluster waits until collections have shown that no recovery can need anything from \
                 it. Then its processes end and its storage is released. The runs have three clusters of 100 \
                 nodes, and last ten hours. Each cluster sends a hundred messages to each other cluster, all \
                 of them while both are present. Unless stated otherwise, there is a collection every two \
                 hours.",
            )
            .finding(
                "the time until a cluster may leave depends on the collections",
                "\"we want to manage dynamism\"",
                format!(
                    "{} minutes with a collection every two hours, {} with one every ten minutes",
                    waits[3].text(),
                    waits[4].text()
                ),
                Grade::NotStated,
                "Until then, the cluster keeps its last checkpoints and its log, and could still recover.",
            )
            .findings([finding])
            .table(
                "joining-and-leaving",
                "Means over runs of ten hours",
                vec![
                    "cluster 2",
                    "messages of the application between clusters",
                    "of the protocol between clusters",
                    "forced checkpoints",
                    "unforced",
                    "most stored in cluster 2",
                    "stored there at the end",
                    "waited to leave, min",
                ],
                rows,
            )
            .tables([failures]),
    ])
}

/// Crashes a node of cluster 0 while all clusters are present, and after cluster 2 has left.
fn failures(
    runner: &mut ExperimentRunner<'_, '_>,
    base: &Federation,
) -> Result<(Finding, Table), Interrupted> {
    let mut failures = Vec::new();
    for (name, leaves) in [("all clusters stay", None), ("cluster 2 has left", Some(3))] {
        let mut setting = every_ten_minutes(with_guest(base, None, leaves));
        kill(&mut setting, "cluster-0", 10..11);
        let runs = runner.run(&format!("a failure when {name}"), &setting)?;
        let back = |cluster: usize| of(&runs, |run| run.clusters[cluster].rollbacks.len() as f64);
        let lost = of(&runs, |run| {
            let all = run.clusters.iter().flat_map(|it| &it.rollbacks).map(|it| it.lost_work_seconds);
            all.sum::<f64>() / 3600.0
        });
        failures.push((name, [0, 1, 2].map(back), lost));
    }
    let concerned = failures[1].1[GUEST].most;
    let rows_of_failures = failures.into_iter().map(|(name, back, lost)| {
        let back = back.map(Cell::from);
        [Cell::from(name)].into_iter().chain(back).chain([lost.into()]).collect()
    });
    let finding = Finding::new(
        "a failure after a cluster has left does not affect that cluster",
        String::new(),
        format!("it rolls back {} times", short(concerned)),
        Grade::NotStated,
        "Every run was judged: in the final state, no message to or from the cluster is lost, or \
                 delivered without having been sent.",
    );
    let table = Table::new(
        "failure-after-leaving",
        "A node of cluster 0 fails halfway through, with a collection every ten minutes",
        vec!["when", "rollbacks of cluster 0", "of cluster 1", "of cluster 2", "lost work, node-hours"],
        rows_of_failures.collect(),
    );
    Ok((finding, table))
}

/// Makes cluster 2 join and leave after the given times, in hours.
fn with_guest(base: &Federation, joins: Option<u64>, leaves: Option<u64>) -> Federation {
    let mut federation = base.clone();
    let hours = |it: u64| Duration(Span::from_secs(it * 3600));
    let guest = &mut federation.spec.clusters[GUEST];
    (guest.joins_after, guest.leaves_after) = (joins.map(hours), leaves.map(hours));
    federation
}

fn every_ten_minutes(mut federation: Federation) -> Federation {
    options(&mut federation).collect_every = Some(Period(Some(Span::from_secs(600))));
    federation
}

/// Returns the minutes from the time at which the last process of cluster 2 finished until the cluster left.
fn waits_minutes(runs: &[Statistics]) -> Spread {
    let waits = runs.iter().filter_map(|run| run.clusters[GUEST].left_seconds);
    Spread::of(waits.map(|(done, left)| (left - done) / 60.0))
}

fn row(name: &str, runs: &[Statistics]) -> Vec<Cell> {
    let between = |run: &Statistics| run.traffic_of("application").1 as f64;
    let protocol = |run: &Statistics| {
        let kinds = run.traffic.iter().filter(|it| !LOAD.contains(&it.kind.as_str()));
        kinds.map(|it| it.messages_between).sum::<u64>() as f64
    };
    let unforced = |run: &Statistics| run.clusters.iter().map(|it| it.unforced as f64).sum();
    let leaves = runs.iter().any(|run| run.clusters[GUEST].left_seconds.is_some());
    vec![
        name.into(),
        of(runs, between).into(),
        of(runs, protocol).into(),
        of(runs, all_forced).into(),
        of(runs, unforced).into(),
        of(runs, |run| run.clusters[GUEST].most_stored as f64).into(),
        of(runs, |run| run.clusters[GUEST].stored as f64).into(),
        if leaves { waits_minutes(runs).into() } else { "".into() },
    ]
}
