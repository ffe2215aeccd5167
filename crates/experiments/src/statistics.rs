//! The statistics of a simulated run: by cluster, pair of clusters, collection and kind of message.

use faultline_checker::{Finding, Verdict};
use faultline_core::fault::Outcome;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};

use crate::stored::RunResult;

/// The statistics of one run. Times are in seconds since the application started, unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statistics {
    /// The seed of the run.
    pub seed: u64,
    /// The outcome of the run.
    #[serde(deserialize_with = "outcome")]
    pub outcome: Word,
    /// The checker's verdict.
    pub verdict: Verdict,
    /// The reasons why the verdict is not `pass`.
    pub reasons: Vec<String>,
    /// The number of instances that the checker judged.
    pub instances: u64,
    /// The checker's findings, property by property.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// Virtual time from the launch to the end, in seconds.
    pub duration_seconds: f64,
    /// The number of simulator events.
    pub events: u64,
    /// The number of facts.
    pub facts: u64,
    /// Clusters in the order of the topology.
    pub clusters: Vec<ClusterStatistics>,
    /// Application messages, by sending cluster and then receiving cluster. Includes messages whose sends were undone
    /// by a rollback; counts re-sent messages once.
    pub messages: Vec<Vec<u64>>,
    /// Garbage collections that at least one node carried out.
    pub collections: Vec<Collection>,
    /// Messages on the network by kind, in alphabetical order.
    pub traffic: Vec<Kind>,
}

impl RunResult for Statistics {
    fn is_out_of_memory(&self) -> bool {
        self.outcome == "outOfMemory"
    }
}

impl<R: Serialize + DeserializeOwned + Send> RunResult for (Statistics, R) {
    fn is_out_of_memory(&self) -> bool {
        self.0.is_out_of_memory()
    }
}

/// The statistics of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatistics {
    /// The cluster's name.
    pub name: String,
    /// The number of its nodes.
    pub nodes: u32,
    /// Committed checkpoints requested by the timer, excluding the initial one.
    pub unforced: u64,
    /// Committed checkpoints forced by a message.
    pub forced: u64,
    /// Checkpoints stored at the end, including the initial one if it still exists.
    pub stored: u64,
    /// The largest number of checkpoints stored at the same time.
    pub most_stored: u64,
    /// The largest number of messages in the log of one node.
    pub most_logged_by_a_node: u64,
    /// The largest number of messages in the logs of all nodes of the cluster together.
    pub most_logged: u64,
    /// The longest time, in seconds, for which a checkpoint paused a node's application.
    pub longest_freeze_seconds: f64,
    /// Lives of the cluster's nodes that ended before the end of the run.
    pub failures: u64,
    /// Messages that the cluster re-sent to other clusters.
    pub resent: u64,
    /// The time at which the cluster joined; absent for a cluster that exists from the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_seconds: Option<f64>,
    /// The time at which the cluster's last process finished, and the time at which the cluster was released;
    /// absent for a cluster that stayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<(f64, f64)>,
    /// Rollbacks in the order of incarnations.
    pub rollbacks: Vec<Rollback>,
}

/// One rollback of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// `failure`, or the cluster whose rollback made this one necessary.
    pub because_of: String,
    /// The SN of the restored checkpoint; 0 is the initial state.
    pub to: u32,
    /// The number of committed checkpoints that were newer than the restored one.
    pub depth: u32,
    /// Lost work of all nodes of the cluster together, in seconds.
    pub lost_work_seconds: f64,
    /// Seconds until the last node resumed; absent if unknown.
    pub recovery_seconds: Option<f64>,
}

/// One garbage collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collection {
    /// The collection's number, from 1.
    pub round: u32,
    /// The time at which the first node carried out the collection.
    pub at_seconds: f64,
    /// The time at which the last node carried out the collection.
    pub done_seconds: f64,
    /// Removals by cluster; absent for a cluster that did not take part.
    pub clusters: Vec<Option<Collected>>,
}

/// The effect of a collection in one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collected {
    /// Checkpoints stored just before the collection.
    pub before: u64,
    /// Checkpoints stored just after the collection.
    pub after: u64,
    /// Messages removed from the logs of all nodes together.
    pub log: u64,
}

/// Messages of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// `application`, `image` (a part of a checkpoint), or the protocol's name for the kind.
    pub kind: String,
    /// Messages within clusters.
    pub messages_within: u64,
    /// Bytes within clusters, as charged on the links.
    pub bytes_within: u64,
    /// Messages between clusters.
    pub messages_between: u64,
    /// Bytes between clusters, as charged on the links.
    pub bytes_between: u64,
}

/// A word from a known list. This type exists because serde borrows every `&str` field from its input.
pub type Word = &'static str;

/// Parses the outcome of a run, which is one of a few words.
fn outcome<'de, D: Deserializer<'de>>(source: D) -> Result<&'static str, D::Error> {
    let word = String::deserialize(source)?;
    let known = Outcome::NAMES.into_iter().find(|it| *it == word);
    known.ok_or_else(|| D::Error::unknown_variant(&word, &Outcome::NAMES))
}

impl Statistics {
    /// Returns the number of messages of one kind, within clusters and between them.
    pub fn traffic_of(&self, kind: &str) -> (u64, u64) {
        let found = self.traffic.iter().find(|it| it.kind == kind);
        found.map_or((0, 0), |it| (it.messages_within, it.messages_between))
    }
}

impl ClusterStatistics {
    /// Returns the number of committed checkpoints, excluding the initial one.
    pub fn checkpoints(&self) -> u64 {
        self.unforced + self.forced
    }
}
