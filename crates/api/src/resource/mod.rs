//! The `Federation` resource: what a user asks for, as a file or as a Kubernetes object.
//!
//! Shapes only. What a combination of values means is checked in [`crate::validate`]; the CEL rules here are the part of
//! that check which an API server can make by itself. Tests evaluate them, with the feature `rules`, to see that both agree.
//!
//! Rules for these types, each of which an API server enforces or a user would miss: enums are externally tagged with
//! struct variants, or plain words; numbers are `u32`, `i64` or `f64`; strings, lists and maps are bounded; what is
//! absent is not serialised; unknown fields are errors.

#![expect(unreachable_pub, reason = "the derive of KubeSchema repeats each struct inside a function")]

mod application;
mod fault;
mod known;
mod kubernetes;
mod link;
mod protocol;
mod simulator;
mod status;

pub use application::*;
pub use fault::*;
pub use known::{Demand, Logs, Options, Stated};
pub use kubernetes::*;
pub use link::*;
pub use protocol::*;
pub use simulator::*;
pub use status::*;

use faultline_core::Span;
use kube::core::{Message, Rule};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Bandwidth, Duration};

/// Most clusters of a federation.
pub const MAX_CLUSTERS: usize = 256;
/// Most nodes of one cluster.
pub const MAX_NODES_PER_CLUSTER: u32 = 100_000;
/// Most nodes of a federation.
pub const MAX_NODES: u32 = 1_000_000;
/// Most exceptions among the links.
pub const MAX_PAIRS: usize = 512;
/// Most pairs of clusters with a count of messages.
pub const MAX_COUNTS: usize = 1024;
/// Most entries in the list of faults.
pub const MAX_FAULTS: usize = 256;
/// Shortest time without a heartbeat after which a process may be taken for dead.
pub const MIN_DETECT_AFTER: Span = Span::from_millis(20);
/// The word that stands for a target to be drawn from the seed, and so names no cluster.
pub const ANY: &str = "any";

/// Clusters, the links between them, a protocol, an application, faults and a seed: one experiment.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "faultline.dev",
    version = "v1alpha1",
    kind = "Federation",
    plural = "federations",
    shortname = "fed",
    category = "faultline",
    namespaced,
    status = "FederationStatus",
    derive = "PartialEq",
    doc = "An experiment: clusters, links, a rollback-recovery protocol, an application, faults and a seed.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Clusters", type_ = "string", json_path = ".status.clustersReady",
        description = "Clusters all of whose processes are up, of all."),
    printcolumn(name = "Protocol", type_ = "string", json_path = ".status.protocol"),
    printcolumn(name = "Faults", type_ = "string", json_path = ".status.faultsDone",
        description = "Planned faults that are over, of all."),
    printcolumn(name = "Rollbacks", type_ = "integer", json_path = ".status.rollbacks"),
    printcolumn(name = "Verdict", type_ = "string", json_path = ".status.verdict"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Seed", type_ = "integer", json_path = ".spec.seed", priority = 1),
    printcolumn(name = "Links", type_ = "string", json_path = ".status.shaping", priority = 1,
        description = "What emulates the links."),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 40").message("metadata.name has at most 40 characters"),
    validation = Rule::new("self.spec.clusters.all(c, size(self.metadata.name) + size(c.name) <= 51)")
        .message("the names of the federation and of a cluster have together at most 51 characters"),
)]
#[cfg_attr(feature = "rules", kube(cel))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = stays("seed"),
    validation = Rule::new("self.clusters == oldSelf.clusters").message(cannot_change("clusters"))
        .field_path(".clusters"),
    validation = stays("storage"),
    validation = Rule::new("self.protocol == oldSelf.protocol").message(cannot_change("protocol"))
        .field_path(".protocol"),
    validation = Rule::new("self.application == oldSelf.application").message(cannot_change("application"))
        .field_path(".application"),
    validation = stays("failures"),
    validation = stays("deadline"),
    validation = stays("kubernetes"),
    validation = stays("simulator"),
    validation = faults_are_added(),
    validation = Rule::new("self.clusters.map(c, c.nodes).sum() <= 1000000")
        .message("a federation has at most 1000000 nodes").field_path(".clusters"),
    validation = Rule::new(
        "!has(self.links) || !has(self.links.pairs) || self.links.pairs.all(p, \
         self.clusters.exists(c, c.name == p.from) && self.clusters.exists(c, c.name == p.to))"
    ).message("links.pairs names a cluster that does not exist").field_path(".links"),
    validation = names_a_cluster("crash", "cluster"),
    validation = names_a_cluster("pause", "cluster"),
    validation = names_a_cluster("loseCluster", "cluster"),
    validation = names_a_cluster("slowStorage", "cluster"),
    validation = names_a_cluster("fullStorage", "cluster"),
    validation = names_a_cluster("corruptStorage", "cluster"),
    validation = names_a_cluster("link", "from"),
    validation = names_a_cluster("link", "to"),
    validation = names_a_cluster("partition", "from"),
    validation = names_a_cluster("partition", "to"),
)]
pub struct FederationSpec {
    /// Everything that is drawn at random is drawn from this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0))]
    pub seed: Option<u64>,
    /// The clusters, in the order in which they and their processes are numbered.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub clusters: Vec<Cluster>,
    /// What the network between processes is like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
    /// What the storage of every node is like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// How the application is protected.
    pub protocol: Protocol,
    /// What is protected.
    pub application: Application,
    /// How failures are noticed and repaired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<Failures>,
    /// What is done to the federation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub faults: Vec<Fault>,
    /// The run ends undecided when it has not completed this long after its beginning. Default 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Duration>,
    /// How its pods are made. The other backends have none, and ignore this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// Chance and delays that only the simulator adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulator: Option<Simulator>,
    /// Every process stands still as long as this is true, and goes on as if nothing had been: neither the deadline nor
    /// the times of faults count it. True from the start, the application does not begin. Only on Kubernetes, where it may
    /// change while the federation runs, as `links` and `faults` may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pause: bool,
}

/// A cluster: a failure domain with a fast network inside.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cluster {
    /// Names the cluster, and with a number its processes: `paris-0`, `paris-1`, …
    #[schemars(length(min = 1, max = 40), pattern(r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// How many nodes it has; each runs one process.
    #[schemars(range(min = 1, max = 100_000))]
    pub nodes: u32,
    /// It joins this long after the beginning: its processes begin then, and nobody sends to it before. Default: it is there
    /// from the beginning. Under `hc3i`, with `synthetic` traffic that has a duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins_after: Option<Duration>,
    /// It leaves when the application has computed for so long: nobody sends to it from then on, and when no recovery can want
    /// anything of it any more, its processes end and its storage is given back. Default: it stays to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves_after: Option<Duration>,
}

impl Cluster {
    /// A cluster that is there from the beginning to the end.
    pub fn new(name: &str, nodes: u32) -> Cluster {
        Cluster { name: name.to_owned(), nodes, joins_after: None, leaves_after: None }
    }

    /// Whether it is there from the beginning to the end.
    pub fn is_permanent(&self) -> bool {
        self.joins_after.is_none() && self.leaves_after.is_none()
    }
}

/// The storage of a node: what the simulator charges, and what the real backends really do.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Storage {
    /// Where checkpoints are kept. Default `disk`.
    #[serde(default)]
    pub kind: StorageKind,
    /// At most this much is written per second. Default: a disk is as fast as it is, and the simulator charges a
    /// solid-state one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bandwidth: Option<Bandwidth>,
    /// What each write takes beside the transfer. Default: as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Duration>,
}

/// Where checkpoints are kept.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StorageKind {
    /// In memory: lost with its process, so that only copies elsewhere survive a crash.
    Memory,
    /// In files that are written through to the device.
    #[default]
    Disk,
}

/// How failures are noticed and repaired.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failures {
    /// A process without a heartbeat for this long is taken for dead, ended, and announced so. Default 500ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect_after: Option<Duration>,
    /// From the announcement of a death to the start of the next life. Default 200ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_after: Option<Duration>,
    /// On Kubernetes: from the end of a life whose pod does not answer to the replacement of that pod, with which goes what
    /// is stored in it. A pod that answers before stays. Default 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_after: Option<Duration>,
}

impl FederationSpec {
    /// The seed; 0 when none is given.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// The links, all defaults when none are given.
    pub fn links(&self) -> Links {
        self.links.clone().unwrap_or_default()
    }

    /// The storage, all defaults when none is given.
    pub fn storage(&self) -> Storage {
        self.storage.clone().unwrap_or_default()
    }

    /// The failures, all defaults when none are given.
    pub fn failures(&self) -> Failures {
        self.failures.clone().unwrap_or_default()
    }

    /// What only the simulator does, all defaults when nothing is given.
    pub fn simulator(&self) -> Simulator {
        self.simulator.clone().unwrap_or_default()
    }

    /// The deadline, counted from the beginning of the application.
    pub fn deadline(&self) -> Span {
        self.deadline.map_or(Span::from_secs(300), |it| it.0)
    }
}

impl Failures {
    /// See [`Failures::detect_after`].
    pub fn detect_after(&self) -> Span {
        self.detect_after.map_or(Span::from_millis(500), |it| it.0)
    }

    /// See [`Failures::restart_after`].
    pub fn restart_after(&self) -> Span {
        self.restart_after.map_or(Span::from_millis(200), |it| it.0)
    }

    /// See [`Failures::replace_after`].
    pub fn replace_after(&self) -> Span {
        self.replace_after.map_or(Span::from_secs(10), |it| it.0)
    }
}

/// What is said to somebody who changes what stays.
fn cannot_change(field: &str) -> Message {
    Message::Message(format!(
        "spec.{field} cannot change; delete the federation and apply it again, or change only links, faults and pause"
    ))
}

/// The rule that a field that may be absent stays as it is.
fn stays(field: &str) -> Rule {
    let rule = format!(
        "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    );
    Rule::new(rule).message(cannot_change(field)).field_path(format!(".{field}"))
}

/// The rule that faults change at the end of their list only, and that none that is added is drawn from a distribution, whose
/// times are counted from the beginning. One that the run has refused can be taken back: that a fault which it has taken
/// stays is not seen here, since the stored spec has both, and is left to the run. The rules' language has no ranges: an
/// index is a sum, of a multiple of 16 and the rest.
fn faults_are_added() -> Rule {
    const { assert!(MAX_FAULTS == 16 * 16) };
    let numbers = |step: usize| (0..16).map(|it| (it * step).to_string()).collect::<Vec<_>>().join(", ");
    let rule = format!(
        "!has(oldSelf.faults) ? !has(self.faults) || !self.faults.exists(f, has(f.mtbf)) \
         : !has(self.faults) || [{}].all(h, [{}].all(l, h + l >= self.faults.size() || (h + l < oldSelf.faults.size() \
         ? self.faults[h + l] == oldSelf.faults[h + l] : !has(self.faults[h + l].mtbf))))",
        numbers(16),
        numbers(1),
    );
    let message = "spec.faults: the faults of a running federation stay as they are; others, with at or when, may be \
                   added at the end of the list, and one that was refused may be taken back";
    Rule::new(rule).message(Message::Message(message.to_owned())).field_path(".faults")
}

/// The rule that a target of a fault exists or is to be drawn.
fn names_a_cluster(action: &str, field: &str) -> Rule {
    let target = format!("f.{action}.{field}");
    let rule = format!(
        "!has(self.faults) || self.faults.all(f, !has(f.{action}) || !has({target}) || {target} == '{ANY}' \
         || self.clusters.exists(c, c.name == {target}))"
    );
    let message = format!("a fault's {action}.{field} is a cluster that does not exist");
    Rule::new(rule).message(Message::Message(message)).field_path(".faults")
}
