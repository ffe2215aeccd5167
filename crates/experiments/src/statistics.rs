//! What a simulated run is told in: numbers by cluster, pair of clusters, collection and kind of message.

use faultline_checker::{Finding, Verdict};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The numbers of one run. Times are in seconds since the application began, unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statistics {
    /// Of the run.
    pub seed: u64,
    /// How it ended.
    #[serde(deserialize_with = "outcome")]
    pub outcome: Word,
    /// What the checkers say of it.
    pub verdict: Verdict,
    /// Why it is not `pass`.
    pub reasons: Vec<String>,
    /// Instances that the checkers judged.
    pub instances: u64,
    /// What the checkers found, property by property.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// Virtual time from the launch to the end.
    pub duration_seconds: f64,
    /// Events of the simulator.
    pub events: u64,
    /// Facts that were stated.
    pub facts: u64,
    /// In the order of the topology.
    pub clusters: Vec<ClusterStatistics>,
    /// Application messages, by sending cluster and then receiving cluster. What a rollback undid counts as well; what
    /// was sent again counts once.
    pub messages: Vec<Vec<u64>>,
    /// Garbage collections that came to something.
    pub collections: Vec<Collection>,
    /// What went over the network, by kind, in alphabetical order.
    pub traffic: Vec<Kind>,
}

/// What one cluster did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatistics {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: u32,
    /// Committed checkpoints that the timer asked for; the initial one is not counted.
    pub unforced: u64,
    /// Committed checkpoints that a message forced.
    pub forced: u64,
    /// Checkpoints that are stored in the end, the initial one included while it is there.
    pub stored: u64,
    /// The same at its greatest.
    pub most_stored: u64,
    /// Most messages in the log of one node.
    pub most_logged_by_a_node: u64,
    /// Most messages in the logs of all its nodes.
    pub most_logged: u64,
    /// The longest that a node's application stood still for a checkpoint.
    pub longest_freeze_seconds: f64,
    /// Lives of its nodes that ended before the run did.
    pub failures: u64,
    /// Messages that it sent again.
    pub resent: u64,
    /// When it joined; absent for one that was there from the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_seconds: Option<f64>,
    /// When its last process had left the program, and when it was let go; absent for one that stayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<(f64, f64)>,
    /// In the order of incarnations.
    pub rollbacks: Vec<Rollback>,
}

/// One rollback of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    /// `failure`, or the cluster whose rollback made this one necessary.
    pub because_of: String,
    /// Number of the checkpoint that was restored; 0 is the beginning.
    pub to: u32,
    /// Committed checkpoints that were passed over.
    pub depth: u32,
    /// Lost work of all its nodes together.
    pub lost_work_seconds: f64,
    /// Until the last node went on; absent when it cannot be told.
    pub recovery_seconds: Option<f64>,
}

/// One garbage collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collection {
    /// Its number, from 1.
    pub round: u32,
    /// When the first node removed something.
    pub at_seconds: f64,
    /// When the last node did.
    pub done_seconds: f64,
    /// By cluster; absent for one that did not take part.
    pub clusters: Vec<Option<Collected>>,
}

/// What a collection did in one cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collected {
    /// Checkpoints stored just before.
    pub before: u64,
    /// Checkpoints stored just after.
    pub after: u64,
    /// Logged messages that were removed, by all nodes.
    pub log: u64,
}

/// Messages of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// `application`, `image` (a part of a checkpoint), or as the protocol calls it.
    pub kind: String,
    /// Inside clusters.
    pub messages_within: u64,
    /// Inside clusters, as charged on the links.
    pub bytes_within: u64,
    /// Between clusters.
    pub messages_between: u64,
    /// Between clusters, as charged on the links.
    pub bytes_between: u64,
}

/// A word from a known list. A type of its own, because serde takes every `&str` for a part of its input.
pub type Word = &'static str;

/// Reads how a run ended, which is one of a few words.
fn outcome<'de, D: Deserializer<'de>>(source: D) -> Result<&'static str, D::Error> {
    const OUTCOMES: [&str; 5] = ["completed", "deadline", "interrupted", "unrecoverable", "notRepeated"];
    let word = String::deserialize(source)?;
    let known = OUTCOMES.into_iter().find(|it| *it == word);
    known.ok_or_else(|| D::Error::unknown_variant(&word, &OUTCOMES))
}

impl Statistics {
    /// Messages of one kind, inside clusters and between them.
    pub fn traffic_of(&self, kind: &str) -> (u64, u64) {
        let found = self.traffic.iter().find(|it| it.kind == kind);
        found.map_or((0, 0), |it| (it.messages_within, it.messages_between))
    }
}

impl ClusterStatistics {
    /// All committed checkpoints but the initial one.
    pub fn checkpoints(&self) -> u64 {
        self.unforced + self.forced
    }
}
