//! The statistics of runs as one flat list, and the spread of each statistic over several runs.

use std::collections::BTreeMap;

use serde::Serialize;

pub use faultline_report::spread::{Spread, short};

use crate::statistics::Statistics;

/// Identifies a statistic of a run, and the cluster or the kind of messages that it describes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measure {
    /// The statistic's name in the JSON form.
    pub statistic: &'static str,
    /// The cluster or kind of message; empty for the whole run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// The receiving cluster of messages; empty otherwise.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// The number of the collection or rollback, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
}

impl Measure {
    /// Identifies a statistic of a cluster, of a kind of message or, if `of` is empty, of the whole run.
    pub fn of(statistic: &'static str, of: &str) -> Measure {
        Measure { statistic, of: of.to_owned(), to: String::new(), number: None }
    }

    fn numbered(self, number: u32) -> Measure {
        Measure { number: Some(number), ..self }
    }
}

/// Returns every statistic of a run, with its value.
pub fn measures(run: &Statistics) -> Vec<(Measure, f64)> {
    let mut all = vec![
        (Measure::of("durationSeconds", ""), run.duration_seconds),
        (Measure::of("events", ""), run.events as f64),
        (Measure::of("facts", ""), run.facts as f64),
    ];
    for cluster in &run.clusters {
        let lost = cluster.rollbacks.iter().map(|it| it.lost_work_seconds);
        let of = |statistic| Measure::of(statistic, &cluster.name);
        all.extend([
            (of("unforced"), cluster.unforced as f64),
            (of("forced"), cluster.forced as f64),
            (of("stored"), cluster.stored as f64),
            (of("mostStored"), cluster.most_stored as f64),
            (of("mostLoggedByANode"), cluster.most_logged_by_a_node as f64),
            (of("mostLogged"), cluster.most_logged as f64),
            (of("longestFreezeSeconds"), cluster.longest_freeze_seconds),
            (of("failures"), cluster.failures as f64),
            (of("resent"), cluster.resent as f64),
            (of("rollbacks"), cluster.rollbacks.len() as f64),
            (of("lostWorkSeconds"), lost.sum::<f64>() + 0.0),
        ]);
        for (rollback, number) in cluster.rollbacks.iter().zip(1..) {
            all.push((of("rollbackDepth").numbered(number), rollback.depth.into()));
            let seconds = [
                ("rollbackLostWorkSeconds", Some(rollback.lost_work_seconds)),
                ("rollbackRecoverySeconds", rollback.recovery_seconds),
            ];
            all.extend(seconds.into_iter().filter_map(|(it, value)| Some((of(it).numbered(number), value?))));
        }
    }
    for (from, row) in run.clusters.iter().zip(&run.messages) {
        for (to, &count) in run.clusters.iter().zip(row) {
            let measure = Measure { to: to.name.clone(), ..Measure::of("messages", &from.name) };
            all.push((measure, count as f64));
        }
    }
    for collection in &run.collections {
        for (cluster, collected) in run.clusters.iter().zip(&collection.clusters) {
            let Some(collected) = collected else { continue };
            let of = |statistic| Measure::of(statistic, &cluster.name).numbered(collection.round);
            all.extend([
                (of("storedBefore"), collected.before as f64),
                (of("storedAfter"), collected.after as f64),
                (of("logCollected"), collected.log as f64),
            ]);
        }
    }
    for kind in &run.traffic {
        let of = |statistic| Measure::of(statistic, &kind.kind);
        all.extend([
            (of("messagesWithin"), kind.messages_within as f64),
            (of("bytesWithin"), kind.bytes_within as f64),
            (of("messagesBetween"), kind.messages_between as f64),
            (of("bytesBetween"), kind.bytes_between as f64),
        ]);
    }
    all
}

/// Computes the spread of every statistic over several runs. A run that lacks a statistic, because it had fewer
/// collections or rollbacks, is not counted for that statistic.
pub fn spreads(runs: &[Statistics]) -> BTreeMap<Measure, Spread> {
    let mut values: BTreeMap<Measure, Vec<f64>> = BTreeMap::new();
    for (measure, value) in runs.iter().flat_map(measures) {
        values.entry(measure).or_default().push(value);
    }
    values.into_iter().map(|(measure, values)| (measure, Spread::of(values))).collect()
}
