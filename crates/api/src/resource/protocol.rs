//! Protocols and their options. Options that two protocols share have the same name and meaning in both.

use std::collections::BTreeMap;

use faultline_core::Span;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::quantity::{Period, Size};

/// How the application is protected.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Protocol {
    /// HC3I: coordinated checkpoints inside each cluster, communication-induced ones between clusters.
    Hc3i(Hc3i),
    /// HydEE: coordinated checkpoints inside each cluster, logged messages between clusters; only a failed cluster rolls
    /// back. For send-deterministic applications.
    Hydee(Hydee),
    /// HydEE in which each process is a cluster of its own: every message is logged, and only the failed process goes back.
    /// A baseline. For send-deterministic applications.
    FullLogging(Hydee),
    /// SPBC: HydEE without a recovery process, for channel-deterministic applications. Each pair of processes takes its
    /// channels up again by itself.
    Spbc(Hydee),
    /// Pessimistic message logging: as `fullLogging`, and an event logger holds the order in which every process was delivered
    /// messages, so that a failed one is delivered them in the same order again. A baseline. For all applications that do the
    /// same again when they get the same messages in the same order.
    PessimisticLogging(Hydee),
    /// Each process takes checkpoints by itself, with nothing that makes them fit together: a failure takes back whoever
    /// depends on it, in the worst case to the start. The baseline that shows the domino effect.
    Independent(Independent),
    /// One coordinated checkpoint of the whole federation at a time: the baseline that HC3I is compared with.
    Coordinated(Coordinated),
    /// The same without stopping the application: the snapshot of Chandy and Lamport, whose checkpoint also holds the messages
    /// that were in transit. A baseline.
    ChandyLamport(Coordinated),
    /// The same as `coordinated`, but only one process of each cluster speaks to other clusters while a checkpoint is taken:
    /// fewer messages over the links between clusters. A baseline.
    HierarchicalCoordinated(Coordinated),
    /// No protection: the baseline for overhead. A failure is not survived.
    None(Unprotected),
}

/// Options of HC3I.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hc3i {
    /// Delay between unforced checkpoints of a cluster; a forced one restarts it. Default 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<Period>,
    /// The same for single clusters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub checkpoint_every_in: BTreeMap<String, Period>,
    /// Delay between garbage collections. Default 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collect_every: Option<Period>,
    /// Who decides what is collected. Default `initiator`, as in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collect_by: Option<CollectBy>,
    /// Copies of each part of a checkpoint, beside the owner's own. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where the copies are kept. Default `sameCluster`, as in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicate_to: Option<ReplicateTo>,
    /// What a message between clusters carries of its sender's dependencies. Default `sn`, as in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub piggyback: Option<Piggyback>,
    /// Which messages between clusters force a checkpoint before their delivery. Default `news`, as in the paper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forcing: Option<Forcing>,
}

/// Options of HydEE, of SPBC, and of full and pessimistic logging, in which each process counts as a cluster.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hydee {
    /// Delay between checkpoints of a cluster. What a checkpoint makes superfluous is collected after it. Default 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<Period>,
    /// The same for single clusters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub checkpoint_every_in: BTreeMap<String, Period>,
    /// Copies of each part of a checkpoint, beside the owner's own. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where the copies are kept. Default `sameCluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicate_to: Option<ReplicateTo>,
    /// Content of logged messages that a process keeps in its memory. Past it the oldest move to stable storage while
    /// everything goes on, and are read when a recovery wants them. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_memory: Option<Size>,
}

/// Options of independent checkpoints.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Independent {
    /// Delay between checkpoints of a process. Default 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<Period>,
    /// The same for the processes of single clusters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub checkpoint_every_in: BTreeMap<String, Period>,
    /// Delay between garbage collections. Default 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collect_every: Option<Period>,
    /// Copies of each checkpoint, beside the owner's own. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where the copies are kept. Default `sameCluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicate_to: Option<ReplicateTo>,
}

/// Options of the coordinated baselines.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Coordinated {
    /// Delay between checkpoints of the federation. Default 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_every: Option<Period>,
    /// Delay between garbage collections. Default 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collect_every: Option<Period>,
    /// Copies of each part of a checkpoint, beside the owner's own. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where the copies are kept. Default `sameCluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicate_to: Option<ReplicateTo>,
}

/// The options of no protocol: none.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = without_additional_properties)]
pub struct Unprotected {}

/// Who decides what is collected.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CollectBy {
    /// The first cluster asks all others, and decides for everyone: while one cannot answer, nothing is removed.
    #[default]
    Initiator,
    /// Each cluster tells all others what it stores, and decides for itself by what it has heard.
    EveryCluster,
}

/// What a message between clusters carries of its sender's dependencies.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Piggyback {
    /// The number of the sender's checkpoint.
    #[default]
    Sn,
    /// The whole vector of dependencies, so that a forced checkpoint also covers what the sender had received from
    /// others: fewer are forced where messages go in circles.
    Ddv,
}

/// Which messages between clusters force a checkpoint before their delivery.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Forcing {
    /// Those that bring news of a checkpoint of the sender's cluster.
    #[default]
    News,
    /// Every one: a baseline, which takes far more checkpoints.
    EveryMessage,
}

/// Where copies of checkpoints are kept.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplicateTo {
    /// By the next nodes of the owner's cluster, as in the paper. A whole cluster's loss is unrecoverable by design.
    #[default]
    SameCluster,
    /// By nodes of the next clusters.
    OtherCluster,
    /// By a storage server that stands outside every cluster.
    SharedStorage,
}

/// What the protocols that take checkpoints have in common, defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpointing {
    /// Delay between checkpoints; `None` is never.
    pub every: Option<Span>,
    /// Delay between garbage collections; `None` is never.
    pub collect_every: Option<Span>,
    /// Copies beside the owner's own.
    pub replicas: u32,
    /// Where they are.
    pub replicate_to: ReplicateTo,
}

/// An API server refuses `additionalProperties: false`, and removes unknown fields by itself.
fn without_additional_properties(schema: &mut Schema) {
    schema.remove("additionalProperties");
}
