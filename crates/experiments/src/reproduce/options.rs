//! Experiments on what the HC3I paper leaves to future work (section 7).

use faultline_api::Federation;
use faultline_api::quantity::Duration;
use faultline_api::resource::{Crash, Fate, FaultSpec, Hc3i, Piggyback, ProtocolSpec};
use faultline_core::Span;
use faultline_report::explain::count;

use crate::files::Files;
use crate::measures::{Spread, short};
use crate::samples::files;
use crate::statistics::Statistics;

use super::distributed::without_initiator;
use super::dynamism::joining_and_leaving;
use super::paper::{federation, of, paired, set_messages};
use super::section::{Cell, Grade, Section};
use super::{Experiment, ExperimentRunner, Interrupted};

/// All experiments in the order of the page.
pub(super) const ALL: &[&Experiment<'_>] =
    &[&whole_vector, &replicas, &failures_at_once, &without_initiator, &joining_and_leaving];

/// The time at which nodes crash: after half of the work.
const HALF_TIME: Span = Span::from_secs(5 * 3600);

pub(super) fn options(federation: &mut Federation) -> &mut Hc3i {
    match &mut federation.spec.protocol {
        ProtocolSpec::Hc3i(options) => options,
        _ => unreachable!("the three files are simulated under HC3I"),
    }
}

/// Crashes nodes of a cluster at the same instant. The contents of their memory are lost.
pub(super) fn kill(federation: &mut Federation, cluster: &str, nodes: std::ops::Range<u32>) {
    for node in nodes {
        federation.spec.faults.push(FaultSpec {
            at: Some(Duration(HALF_TIME)),
            ..Crash { storage: Some(Fate::Lost), ..Crash::new(cluster, Some(node)) }.into()
        });
    }
    // Allow time to re-execute lost work.
    federation.spec.deadline = Some(Duration(Span::from_secs(20 * 3600)));
}

/// Counts the forced checkpoints of all clusters.
pub(super) fn all_forced(run: &Statistics) -> f64 {
    run.clusters.iter().map(|it| it.forced as f64).sum()
}

/// Returns the files of a federation of three clusters, with these numbers of messages for each ordered pair.
pub(super) fn three_clusters(messages: impl Fn(usize, usize) -> u32) -> Files {
    let mut files = files("topology-three-clusters", "application-three-clusters", "timers-three-clusters");
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            set_messages(&mut files, from, to, messages(from, to));
        }
    }
    files
}

/// Measures the effect of piggybacking the whole DDV. The paper: "Sending the whole DDV instead of the SN should allow
/// to take less forced checkpoints."
fn whole_vector(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let settings: [(&str, Files); 4] = [
        ("two clusters, 145 and 103 messages", files("topology", "application-103", "timers-collect")),
        ("three clusters, 100 messages per pair", three_clusters(|_, _| 100)),
        ("three clusters, 200 messages per pair", three_clusters(|_, _| 200)),
        (
            "three clusters in a pipeline, 145 messages from each to every later one",
            three_clusters(|from, to| if from < to { 145 } else { 0 }),
        ),
    ];
    let mut rows = Vec::new();
    let mut saved = Vec::new();
    for (name, files) in &settings {
        let mut setting = federation(files);
        let number = runner.run(&format!("piggybacking the SN, {name}"), &setting)?;
        options(&mut setting).piggyback = Some(Piggyback::Ddv);
        let vector = runner.run(&format!("piggybacking the DDV, {name}"), &setting)?;
        let fewer = paired(&number, &vector, all_forced);
        let share = 100.0 * fewer.mean / of(&number, all_forced).mean;
        rows.push(vec![
            Cell::from(*name),
            of(&number, all_forced).into(),
            of(&vector, all_forced).into(),
            fewer.into(),
            share.into(),
        ]);
        saved.push((share, fewer));
    }
    let [(_, two), (exchange, _), (busy, _), (pipeline, _)] = saved[..] else {
        panic!("there are not four settings")
    };
    Ok(vec![
        Section::new("whole-vector", "Piggybacking the whole DDV", "7, future work")
            .text(
                "With the option \"piggyback: ddv\", a message carries its sender's whole DDV. A checkpoint \
                 that it forces then also covers what its sender had received from third clusters, whose own \
                 messages then force no checkpoint. This costs one number (8 bytes) per cluster on each \
                 message between clusters. Runs with the same seed are compared with each other.",
            )
            .finding(
                "the whole DDV forces fewer checkpoints",
                "\"should allow to take less forced checkpoints\"",
                format!(
                    "{} %, {} % and {} % fewer with three clusters",
                    short(exchange),
                    short(busy),
                    short(pipeline)
                ),
                Grade::direction(exchange > 1.0 && busy > 1.0 && pipeline > 1.0),
                "The paper expects this, but does not measure it. The settings are in the order of the table.",
            )
            .finding(
                "with two clusters, the DDV makes no difference",
                String::new(),
                format!("{} fewer", two.text()),
                Grade::NotStated,
                "The DDV then contains only the receiver's own position and the sender's position, which the \
                 message carries anyway.",
            )
            .table(
                "whole-vector",
                "Forced checkpoints in all clusters in ten hours",
                vec!["setting", "with the SN", "with the DDV", "fewer, seed by seed", "fewer, %"],
                rows,
            ),
    ])
}

/// Measures the effect of several replicas. The paper: "The protocol should tolerate multiple faults in a cluster,
/// this implies more redundancy."
fn replicas(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let base = federation(&files("topology", "application-103", "timers-collect"));
    let mut rows = Vec::new();
    let mut as_expected = true;
    let mut freezes = Vec::new();
    for copies in 1..=3 {
        let mut setting = base.clone();
        options(&mut setting).replicas = Some(copies);
        let quiet = runner.run(&count(copies.into(), "replica"), &setting)?;
        let gigabytes = of(&quiet, |run| {
            let images = run.traffic.iter().find(|it| it.kind == "image");
            images.map_or(0.0, |it| it.bytes_within as f64 / 1e9)
        });
        let freeze = of(&quiet, |run| {
            run.clusters.iter().map(|it| it.longest_freeze_seconds * 1e3).fold(0.0, f64::max)
        });
        freezes.push(freeze.mean);
        let mut row = vec![Cell::from(f64::from(copies)), gigabytes.into(), freeze.into()];
        for failures in 1..=4 {
            let mut setting = setting.clone();
            kill(&mut setting, "cluster-0", 10..10 + failures);
            let what = format!("{}, {failures} of the neighbours killed", count(copies.into(), "replica"));
            let survives = failures <= copies;
            let runs = if survives {
                runner.run(&what, &setting)?
            } else {
                runner.run_allowing_loss(&what, &setting)?
            };
            let completed = runs.iter().filter(|it| it.outcome == "completed").count();
            as_expected &= completed == if survives { runs.len() } else { 0 };
            row.push(Cell::Word(match completed {
                0 => "lost".to_owned(),
                all if all == runs.len() => "recovers".to_owned(),
                some => format!("recovers in {some} of {}", runs.len()),
            }));
        }
        rows.push(row);
    }
    Ok(vec![
        Section::new("replicas", "More than one replica", "7, future work")
            .text(
                "With the option \"replicas: k\", each node's part of a checkpoint is stored in its own \
                 memory and at k neighbours. Halfway through the run, neighbouring nodes of cluster 0 are \
                 killed at the same instant and lose their memory. This is the worst case, because \
                 neighbours hold each other's replicas.",
            )
            .finding(
                "k replicas survive k simultaneous failures of neighbours",
                "\"this implies more redundancy in the stable storage implementation\"",
                if as_expected { "in every run, but never more than k" } else { "not always" },
                Grade::direction(as_expected),
                format!(
                    "A run that lost a checkpoint reports which parts are missing; none continues with a \
                     wrong state. The cost is network traffic: freezes grow from {} to {} ms with 10 MB per \
                     node.",
                    short(freezes[0]),
                    short(freezes[2])
                ),
            )
            .table(
                "replicas",
                "Replicas, their cost in ten hours, and what they survive",
                vec![
                    "replicas",
                    "images sent, GB",
                    "longest freeze, ms",
                    "1 killed",
                    "2 killed",
                    "3 killed",
                    "4 killed",
                ],
                rows,
            ),
    ])
}

/// Measures the effect of simultaneous failures. The paper: "It should tolerate simultaneous fault in different
/// clusters, the garbage collector should take care of this."
fn failures_at_once(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let base = federation(&files("topology", "application-103", "timers-collect"));
    let mut rows = Vec::new();
    let mut completed = true;
    let mut rollbacks = Vec::new();
    for (name, clusters) in [
        ("cluster 0", &["cluster-0"][..]),
        ("cluster 1", &["cluster-1"]),
        ("both at once", &["cluster-0", "cluster-1"]),
    ] {
        let mut setting = base.clone();
        clusters.iter().for_each(|it| kill(&mut setting, it, 10..11));
        let runs = runner.run(&format!("a failure in {name}"), &setting)?;
        completed &= runs.iter().all(|it| it.outcome == "completed");
        let lost = |cluster: usize| {
            of(&runs, |run| {
                let all = run.clusters[cluster].rollbacks.iter().map(|it| it.lost_work_seconds);
                all.sum::<f64>() / 3600.0
            })
        };
        let back = |cluster: usize| of(&runs, |run| run.clusters[cluster].rollbacks.len() as f64);
        let depth = Spread::of(
            runs.iter()
                .flat_map(|run| &run.clusters)
                .flat_map(|it| &it.rollbacks)
                .map(|it| f64::from(it.depth)),
        );
        rollbacks.push((back(0), back(1), depth));
        rows.push(vec![
            Cell::from(name),
            back(0).into(),
            back(1).into(),
            lost(0).into(),
            lost(1).into(),
            depth.into(),
            of(&runs, |run| run.clusters.iter().map(|it| it.resent as f64).sum()).into(),
        ]);
    }
    let deepest = rollbacks.iter().map(|it| it.2.most).fold(0.0, f64::max);
    Ok(vec![
        Section::new("failures-at-once", "Simultaneous failures in several clusters", "7, future work")
            .text(
                "One node is killed halfway through the run and loses its memory, in one cluster or in both \
                 clusters at the same instant, with a collection every two hours.",
            )
            .finding(
                "simultaneous failures in both clusters are survived, even after collections",
                "\"should tolerate simultaneous faults in different clusters\"",
                if completed { "every run recovers and completes" } else { "not in every run" },
                Grade::direction(completed),
                format!(
                    "The recovery line of several failures consists of the older checkpoint of each cluster, \
                     so a collection that is safe for one failure is safe for all. No rollback skipped more \
                     than {} committed checkpoints.",
                    short(deepest)
                ),
            )
            .table(
                "failures-at-once",
                "Cost of a failure",
                vec![
                    "a node fails in",
                    "rollbacks of cluster 0",
                    "rollbacks of cluster 1",
                    "lost work of 0, node-hours",
                    "lost work of 1, node-hours",
                    "checkpoints skipped",
                    "messages re-sent",
                ],
                rows,
            ),
    ])
}
