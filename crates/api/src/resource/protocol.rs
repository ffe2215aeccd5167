//! Protocols and their options. Options that two protocols share have the same name and meaning in both.

use std::collections::BTreeMap;

use faultline_core::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::custom::Custom;
use super::program::Program;
use crate::quantity::{Duration, Period, Size};

/// The protocol that protects the application.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProtocolSpec {
    /// HC3I: coordinated checkpoints within each cluster; messages between clusters force checkpoints.
    Hc3i(Hc3i),
    /// HydEE: coordinated checkpoints within each cluster; messages between clusters are logged. Only failed clusters
    /// roll back. For send-deterministic applications.
    Hydee(Hydee),
    /// Full message logging: HydEE with one process per cluster. Every message is logged, and only the failed process
    /// rolls back. Baseline. For send-deterministic applications.
    FullLogging(Hydee),
    /// SPBC: HydEE without a recovery process, for channel-deterministic applications. After a failure, each pair of
    /// processes restores its channels on its own.
    Spbc(Hydee),
    /// Pessimistic message logging: like `fullLogging`, with an event logger that records the delivery order of every
    /// process, so that a failed process can replay it. Baseline. For applications that act identically after receiving
    /// the same messages in the same order.
    PessimisticLogging(Hydee),
    /// Uncoordinated checkpoints: each process takes checkpoints on its own. A failure also rolls back the processes
    /// that depend on undone messages, in the worst case to the start (the domino effect). Baseline.
    Independent(Independent),
    /// One coordinated checkpoint of the whole federation at a time. The baseline for HC3I.
    Coordinated(Coordinated),
    /// Like `coordinated`, but without stopping the application: the snapshot algorithm of Chandy and Lamport. The
    /// checkpoint contains the messages in transit. Baseline.
    ChandyLamport(Coordinated),
    /// Like `coordinated`, but during a checkpoint, one process of each cluster communicates with the other clusters
    /// on behalf of its whole cluster, so that fewer messages cross the links between clusters. Baseline.
    HierarchicalCoordinated(Coordinated),
    /// TIC, for task-based programs: only thefts force checkpoints, and only failed processes roll back. If a failed
    /// process never returns, another process takes over its tasks.
    Tic(Tic),
    /// SEL, for task-based programs: like `tic`, but every event of a process is logged, so that a failure loses no
    /// finished task.
    Sel(Sel),
    /// Satin, for task-based programs: nothing is stored. The tasks of a failed process run again, except those whose
    /// results other processes still have. Baseline.
    Satin(Satin),
    /// CCK, for task-based programs that are planned in advance: a checkpoint is coordinated only between processes
    /// that communicate. After a failure, only failed processes roll back; the others re-execute only the tasks whose
    /// values were lost with the failed ones.
    Cck(Cck),
    /// No checkpoints. The first failure ends the run. The baseline for overhead.
    None(Unprotected),
    /// A protocol from another crate. The program that runs the federation must contain it.
    Custom(Custom),
    /// A program in any language that speaks a simple contract (docs/programs.md). Records contain the program.
    Program(Program),
}

/// Options of HC3I.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hc3i {
    /// Delay between unforced checkpoints of a cluster. A forced checkpoint restarts the timer. Default 10s.
    pub checkpoint_every: Option<Period>,
    /// Overrides `checkpointEvery` for individual clusters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub checkpoint_every_in: BTreeMap<String, Period>,
    /// Delay between garbage collections. Default 60s.
    pub collect_every: Option<Period>,
    /// The clusters that decide what is garbage-collected. Default `initiator`, as in the paper.
    pub collect_by: Option<CollectBy>,
    /// Number of replicas of each part of a checkpoint, in addition to the owner's part. Default 1.
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where replicas are stored. Default `sameCluster`, as in the paper.
    pub replicate_to: Option<ReplicateTo>,
    /// Dependencies that are piggybacked on messages between clusters. Default `sn`, as in the paper.
    pub piggyback: Option<Piggyback>,
    /// Which messages between clusters force a checkpoint before their delivery. Default `news`, as in the paper.
    pub forcing: Option<Forcing>,
}

/// Options of HydEE and SPBC, and of full and pessimistic logging, in which each process counts as a cluster.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hydee {
    /// Delay between checkpoints of a cluster. Garbage collection follows each checkpoint. Default 10s.
    pub checkpoint_every: Option<Period>,
    /// Overrides `checkpointEvery` for individual clusters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub checkpoint_every_in: BTreeMap<String, Period>,
    /// Number of replicas of each part of a checkpoint, in addition to the owner's part. Default 1.
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where replicas are stored. Default `sameCluster`.
    pub replicate_to: Option<ReplicateTo>,
    /// Maximum size of the message log in a process's memory. Beyond it, the oldest entries move to stable storage in
    /// the background, and are read from there during a recovery. Default: no limit.
    pub log_memory: Option<Size>,
}

/// Options of uncoordinated checkpoints.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Independent {
    /// Delay between checkpoints of a process. Default 10s.
    pub checkpoint_every: Option<Period>,
    /// Overrides `checkpointEvery` for the processes of individual clusters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub checkpoint_every_in: BTreeMap<String, Period>,
    /// Delay between garbage collections. Default 60s.
    pub collect_every: Option<Period>,
    /// Number of replicas of each checkpoint, in addition to the owner's. Default 1.
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where replicas are stored. Default `sameCluster`.
    pub replicate_to: Option<ReplicateTo>,
}

/// Options of the coordinated baselines.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Coordinated {
    /// Delay between checkpoints of the federation. Default 10s.
    pub checkpoint_every: Option<Period>,
    /// Delay between garbage collections. Default 60s.
    pub collect_every: Option<Period>,
    /// Number of replicas of each part of a checkpoint, in addition to the owner's part. Default 1.
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where replicas are stored. Default `sameCluster`.
    pub replicate_to: Option<ReplicateTo>,
}

/// Options of TIC.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tic {
    /// Maximum time between two checkpoints of a process. A forced checkpoint restarts the timer. Default 10s.
    pub tau: Option<Duration>,
    /// When a process takes a checkpoint before it asks another process for a task. Default `none`: recovery does not
    /// need these checkpoints.
    pub cp0: Option<Cp0>,
    /// Number of replicas of each checkpoint, in addition to the owner's. Default 1.
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where replicas are stored. Default `sameCluster`. Only replicas outside the cluster survive the loss of a
    /// whole cluster with its storage.
    pub replicate_to: Option<ReplicateTo>,
}

/// Options of SEL.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sel {
    /// Time between checkpoints of a process. Each checkpoint truncates the log. Default 10s.
    pub tau: Option<Duration>,
    /// Number of replicas of each checkpoint and of the log, in addition to the owner's. Default 1.
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where replicas are stored. Default `sameCluster`. Only replicas outside the cluster survive the loss of a
    /// whole cluster with its storage.
    pub replicate_to: Option<ReplicateTo>,
}

/// Options of CCK.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cck {
    /// Delay between the starts of two checkpoints. Default 10s.
    pub tau: Option<Duration>,
    /// The processes with which a process coordinates its checkpoint. Default `neighbours`.
    pub coordination: Option<Coordination>,
    /// Number of replicas of each part of a checkpoint, in addition to the owner's part. Default 1.
    #[schemars(range(min = 0, max = 16))]
    pub replicas: Option<u32>,
    /// Where replicas are stored. Default `sameCluster`. Only replicas outside the cluster survive the loss of a
    /// whole cluster with its storage.
    pub replicate_to: Option<ReplicateTo>,
    /// Number of storage servers, with `replicateTo: sharedStorage`. Each server stores the parts of several processes.
    /// Default: the number of replicas.
    #[schemars(range(min = 1, max = 1024))]
    pub servers: Option<u32>,
    /// Whether a re-execution starts not only from the checkpoint, but also from values that are still in memory.
    /// Default false.
    pub from_memory: Option<bool>,
    /// Whether a process may hand tasks of its re-execution to other processes. Default false.
    pub spread: Option<bool>,
}

/// The processes with which a process coordinates its checkpoint.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Coordination {
    /// The processes with which the process exchanges messages, as in the long paper.
    #[default]
    Neighbours,
    /// All processes, as in the short paper. A baseline that sends far more messages.
    Global,
}

/// Options of Satin. There are none.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Satin {}

/// When a process takes a checkpoint before it asks another process for a task.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cp0 {
    /// Never. A theft then forces two checkpoints instead of three.
    #[default]
    None,
    /// Before each request, as in the paper.
    Each,
}

/// Options of `none`. There are none.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unprotected {
    /// Whether the file states no protocol, which only systems permit.
    #[serde(skip)]
    pub is_absent: bool,
}

/// The clusters that decide what is garbage-collected.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CollectBy {
    /// The first cluster asks all other clusters and decides for all of them. Nothing is collected while a cluster
    /// cannot answer.
    #[default]
    Initiator,
    /// Each cluster announces its stored checkpoints to all other clusters, and decides for itself.
    EveryCluster,
}

/// Dependencies that are piggybacked on messages between clusters.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Piggyback {
    /// The SN of the sender's cluster.
    #[default]
    Sn,
    /// The whole DDV of the sender's cluster. A forced checkpoint then also covers the messages that this cluster
    /// received from other clusters, so cyclic traffic forces fewer checkpoints.
    Ddv,
}

/// Which messages between clusters force a checkpoint before their delivery.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Forcing {
    /// Messages whose piggybacked dependencies are newer than the receiver's.
    #[default]
    News,
    /// All messages. A baseline that takes far more checkpoints.
    EveryMessage,
}

/// Where replicas of checkpoints are stored.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplicateTo {
    /// On the next nodes of the owner's cluster, as in the paper. The loss of a whole cluster is then unrecoverable by
    /// design.
    #[default]
    SameCluster,
    /// On nodes of the next clusters.
    OtherCluster,
    /// On a storage server outside the clusters; under `cck`, on one or more such servers.
    SharedStorage,
}

/// Checkpoint options that several protocols share, with defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpointing {
    /// Delay between checkpoints; `None` disables the timer.
    pub every: Option<Span>,
    /// Delay between garbage collections; `None` disables the timer.
    pub collect_every: Option<Span>,
    /// Number of replicas of each part, in addition to the owner's part.
    pub replicas: u32,
    /// Where replicas are stored.
    pub replicate_to: ReplicateTo,
}
