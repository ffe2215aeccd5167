//! Garbage collection without an initiator (section 7), compared with the paper's collection.

use faultline_api::Federation;
use faultline_api::quantity::Duration;
use faultline_api::resource::{CollectBy, FaultSpec, Partition};
use faultline_core::Span;

use crate::files::Files;
use crate::measures::{Spread, short};
use crate::samples::files;
use crate::statistics::{Collected, Collection, Statistics};

use super::options::{options, three_clusters};
use super::paper::{federation, of, paired};
use super::section::{Cell, Finding, Grade, Section, Table};
use super::{ExperimentRunner, Interrupted};

/// The kinds of messages that belong to collections.
const KINDS: [&str; 3] = ["ask", "stock", "collect"];
/// The period during which the last cluster is cut off, in seconds. It includes three collections.
const CUT: std::ops::Range<u64> = 3 * 3600..9 * 3600;

/// Compares collections with and without an initiator. The paper: "The garbage collector should be more distributed."
pub(super) fn without_initiator(runner: &mut ExperimentRunner<'_, '_>) -> Result<Vec<Section>, Interrupted> {
    let pipeline = three_clusters(|from, to| if from < to { 145 } else { 0 });
    let settings: [(&str, Files); 3] = [
        ("two clusters, 145 and 103 messages", files("topology", "application-103", "timers-collect")),
        ("three clusters, 100 messages per pair", three_clusters(|_, _| 100)),
        ("three clusters in a pipeline, 145 messages from each to every later one", pipeline.clone()),
    ];
    let mut rows = Vec::new();
    let mut earlier = Vec::new();
    let mut alike = true;
    for (name, files) in &settings {
        let setting = federation(files);
        let central = runner.run(&format!("an initiator collects, {name}"), &setting)?;
        let alone = runner.run(&format!("every cluster collects, {name}"), &by_every_cluster(setting))?;
        alike &= central.iter().zip(&alone).all(|(central, alone)| after(central) == after(alone));
        earlier.push(paired(&central, &alone, last_removal_milliseconds).mean);
        rows.push(row(name, "an initiator", &central));
        rows.push(row(name, "every cluster", &alone));
    }
    let (finding, outage) = cut_off(runner, &pipeline)?;

    Ok(vec![
        Section::new("without-initiator", "Garbage collection without an initiator", "7, future work")
            .text(
                "With the option \"collectBy: everyCluster\", each cluster periodically announces what it \
                 stores to all other clusters. It decides for itself once it has heard from all of them, or \
                 at its next announcement, based on the latest lists. Both variants run with the same seeds, \
                 and with a collection every two hours. A list holds one DDV (8 bytes per cluster) for each \
                 stored checkpoint.",
            )
            .finding(
                "the same checkpoints are collected without an initiator",
                "\"the garbage collector should be more distributed\"",
                match alike {
                    true => "the same in every collection of every run",
                    false => "not the same in every collection",
                },
                Grade::NotStated,
                format!(
                    "N(N-1) messages between N clusters replace 3(N-1): fewer with two clusters, the same \
                     number with three, and more with more than three. All clusters receive all lists. A \
                     collection takes one message delay instead of three: with two clusters, the last node \
                     finished {} ms earlier.",
                    short(earlier[0])
                ),
            )
            .findings([finding])
            .table(
                "without-initiator",
                "Mean per collection",
                vec![
                    "setting",
                    "who decides",
                    "messages between clusters",
                    "messages within clusters",
                    "DDVs sent between clusters",
                    "stored before",
                    "stored after",
                ],
                rows,
            )
            .tables([outage]),
    ])
}

/// Cuts off the last cluster of a pipeline during several collections.
fn cut_off(runner: &mut ExperimentRunner<'_, '_>, pipeline: &Files) -> Result<(Finding, Table), Interrupted> {
    let mut cut_off = federation(pipeline);
    partition(&mut cut_off);
    let central = runner.run("an initiator collects, the last cluster is cut off", &cut_off)?;
    let alone = runner.run("every cluster collects, the last is cut off", &by_every_cluster(cut_off))?;
    let most = |runs: &[Statistics], cluster: usize| of(runs, |run| run.clusters[cluster].most_stored as f64);
    let outage = [("an initiator", &central), ("every cluster", &alone)].map(|(who, runs)| {
        let meanwhile = of(runs, collections_meanwhile);
        vec![who.into(), meanwhile.into(), most(runs, 0).into(), most(runs, 1).into(), most(runs, 2).into()]
    });
    let fewer = most(&alone, 1).mean < most(&central, 1).mean;
    let finding = Finding::new(
        "cutting off a cluster does not delay clusters that do not depend on it",
        String::new(),
        format!(
            "cluster 1 stores at most {} checkpoints instead of {}",
            most(&alone, 1).text(),
            most(&central, 1).text()
        ),
        Grade::NotStated,
        match fewer {
            true => {
                "The last announcement of the silent cluster remains valid. A cluster that has \
                         delivered later messages of the silent cluster keeps everything that it may need \
                         because of them, with or without an initiator."
            }
            false => "Here, it made no difference.",
        },
    );
    let table = Table::new(
        "cut-off",
        "Three clusters in a pipeline, the last of which is cut off from the third hour to the ninth",
        vec![
            "who decides",
            "collections in that time",
            "most stored in cluster 0",
            "in cluster 1",
            "in cluster 2",
        ],
        outage.into(),
    );
    Ok((finding, table))
}

fn by_every_cluster(mut federation: Federation) -> Federation {
    options(&mut federation).collect_by = Some(CollectBy::EveryCluster);
    federation
}

/// Cuts the last of three clusters off from the others.
fn partition(federation: &mut Federation) {
    for other in ["cluster-0", "cluster-1"] {
        federation.spec.faults.push(FaultSpec {
            at: Some(Duration(Span::from_secs(CUT.start))),
            partition: Some(Partition::between(
                "cluster-2",
                other,
                Some(Duration(Span::from_secs(CUT.end - CUT.start))),
            )),
            ..FaultSpec::default()
        });
    }
}

/// Iterates over the removals of each collection in each cluster.
fn removals(run: &Statistics) -> impl Iterator<Item = &Collected> {
    run.collections.iter().flat_map(|it| it.clusters.iter().flatten())
}

/// Returns how many checkpoints each cluster had in storage just after each collection.
fn after(run: &Statistics) -> Vec<u64> {
    removals(run).map(|it| it.after).collect()
}

fn last_removal_milliseconds(run: &Statistics) -> f64 {
    Spread::of(run.collections.iter().map(|it| it.done_seconds * 1e3)).mean
}

/// Counts the collections that were carried out while the last cluster was cut off.
fn collections_meanwhile(run: &Statistics) -> f64 {
    let meanwhile = |it: &&Collection| (CUT.start as f64..CUT.end as f64).contains(&it.at_seconds);
    run.collections.iter().filter(meanwhile).count() as f64
}

fn row(setting: &str, who: &str, runs: &[Statistics]) -> Vec<Cell> {
    let per_collection = |run: &Statistics, count: f64| count / run.collections.len() as f64;
    let messages = |run: &Statistics| KINDS.map(|it| run.traffic_of(it));
    // With an initiator, every list except the initiator's own is sent once. Without an initiator, each list is sent
    // to all other clusters.
    let copies = if who == "an initiator" { 1 } else { runs[0].clusters.len() as u64 - 1 };
    let skipped = usize::from(who == "an initiator");
    let vectors = |run: &Statistics| {
        let lists = run.collections.iter().flat_map(|it| it.clusters.iter().skip(skipped).flatten());
        lists.map(|it| it.before * copies).sum::<u64>() as f64
    };
    let mean = |value: fn(&Collected) -> u64| {
        Spread::of(runs.iter().map(|run| Spread::of(removals(run).map(|it| value(it) as f64)).mean))
    };
    vec![
        setting.into(),
        who.into(),
        of(runs, |run| per_collection(run, messages(run).iter().map(|it| it.1 as f64).sum())).into(),
        of(runs, |run| per_collection(run, messages(run).iter().map(|it| it.0 as f64).sum())).into(),
        of(runs, |run| per_collection(run, vectors(run))).into(),
        mean(|it| it.before).into(),
        mean(|it| it.after).into(),
    ]
}
