//! Faults: each entry is one trigger (`at`, `when`, `mtbf`) and one action (`crash`, `pause`, …).
//!
//! The two are options of one flat struct rather than enums, so that an entry reads as one line and an API server
//! understands it; [`Fault::trigger`] and [`Fault::action`] give them back as what they are.

use faultline_core::{FactKind, StorageFate};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::quantity::{Bandwidth, Duration, Loss};
use crate::resource::{ANY, Link, Preset};

/// One entry: when, and what. Exactly one of each.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(
    validation = Rule::new("[has(self.at), has(self.when), has(self.mtbf)].filter(x, x).size() == 1")
        .message("a fault has exactly one trigger: at, when or mtbf"),
    validation = Rule::new(
        "[has(self.crash), has(self.pause), has(self.loseCluster), has(self.link), has(self.partition), \
         has(self.slowStorage), has(self.fullStorage), has(self.corruptStorage)].filter(x, x).size() == 1"
    ).message("a fault has exactly one action: crash, pause, loseCluster, link, partition, slowStorage, fullStorage or corruptStorage"),
)]
pub struct Fault {
    /// Trigger: at this instant, counted from the beginning of the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Duration>,
    /// Trigger: when something is observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Trigger: again and again until the deadline, after times drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtbf: Option<Mtbf>,

    /// Action: a process is killed; its next life follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// Action: a process is stopped, and goes on after a while unless it was taken for dead in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    /// Action: all processes of a cluster are killed at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lose_cluster: Option<LoseCluster>,
    /// Action: a link changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkChange>,
    /// Action: nothing passes between two clusters until the partition is healed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// Action: writes take longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_storage: Option<SlowStorage>,
    /// Action: writes fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_storage: Option<BadStorage>,
    /// Action: what is read back fails its checksum, and so counts as absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupt_storage: Option<BadStorage>,
}

/// Something to be observed.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct When {
    /// What a process states.
    #[schemars(schema_with = "facts_of_processes")]
    pub fact: FactKind,
    /// The cluster of the process. Default `any`: whichever.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The process, by its number in the cluster. Default: whichever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The how-manieth such fact, from 1. Default 1. Every process states what it does itself, so that a checkpoint of a
    /// cluster is committed as often as it has processes; only one of them requests it (`checkpointRequested`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub occurrence: Option<u32>,
}

/// Times between failures, of the whole federation.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mtbf {
    /// Exponentially distributed with this mean: failures without memory.
    Exponential(Duration),
    /// Weibull distributed.
    Weibull(Weibull),
}

/// Parameters of a Weibull distribution.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Weibull {
    /// The time within which 63 % of the failures have come.
    pub scale: Duration,
    /// Below 1 failures come in bursts, above 1 they come regularly; observed on clusters: 0.7 to 0.8.
    #[schemars(range(min = 0.1, max = 10.0))]
    pub shape: f64,
}

/// Kills a process.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Crash {
    /// The process's cluster. Default `any`: every process of the federation is equally likely.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The process, by its number in the cluster. Default: drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The process by its name, instead of its cluster and number: `paris-1`, or one that stands outside every cluster,
    /// `storage-server`, `recovery-process` or `event-logger`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// What becomes of its storage. Default `kept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Fate>,
}

/// Stops a process for a while.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pause {
    /// The process's cluster. Default `any`: every process of the federation is equally likely.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The process, by its number in the cluster. Default: drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The process by its name, instead of its cluster and number: `paris-1`, or one that stands outside every cluster,
    /// `storage-server`, `recovery-process` or `event-logger`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// How long. Longer than `failures.detectAfter`, it is taken for dead and replaced.
    #[serde(rename = "for")]
    pub span: Duration,
}

/// Kills all processes of a cluster at once.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoseCluster {
    /// Which. Default `any`: drawn from the seed.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// What becomes of the storage of its nodes. Default `kept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Fate>,
}

/// Changes a link, one direction. What is not stated stays as the federation has it.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkChange {
    /// Sending side. Default `any`: drawn from the seed.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub from: String,
    /// Receiving side. Default `any`: drawn from the seed among the other clusters.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub to: String,
    /// A known kind of network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// One-way delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Duration>,
    /// Half-width of a uniform distribution around the delay; at most the delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Duration>,
    /// What passes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Packets lost; the transport sends them again, so that a loss appears as delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// How long. Default: until the end.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Duration>,
}

/// Lets nothing pass between two clusters for a while: delay, never loss.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Partition {
    /// Sending side. Default `any`: drawn from the seed.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub from: String,
    /// Receiving side. Default `any`: drawn from the seed among the other clusters.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub to: String,
    /// Whether the other direction stays open. Default: both are cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_way: bool,
    /// How long.
    #[serde(rename = "for")]
    pub span: Duration,
}

/// Makes the writes of a node take longer.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SlowStorage {
    /// The node's cluster. Default `any`: every node of the federation is equally likely.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The node, by its number in the cluster. Default: drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The process by its name, instead of its cluster and number: `paris-1`, or one that stands outside every cluster,
    /// `storage-server`, `recovery-process` or `event-logger`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// What each write takes in addition.
    pub by: Duration,
    /// How long the storage is slow. Default: until the end.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Duration>,
}

/// Makes the storage of a node misbehave.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BadStorage {
    /// The node's cluster. Default `any`: every node of the federation is equally likely.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The node, by its number in the cluster. Default: drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The process by its name, instead of its cluster and number: `paris-1`, or one that stands outside every cluster,
    /// `storage-server`, `recovery-process` or `event-logger`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// How long. Default: until the end.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Duration>,
}

/// What becomes of the storage of a node that fails.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fate {
    /// The next life finds it as it was.
    #[default]
    Kept,
    /// It is gone.
    Lost,
}

impl From<Fate> for StorageFate {
    fn from(fate: Fate) -> StorageFate {
        match fate {
            Fate::Kept => StorageFate::Kept,
            Fate::Lost => StorageFate::Lost,
        }
    }
}

/// The trigger of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TriggerRef<'a> {
    /// See [`Fault::at`].
    At(Duration),
    /// See [`Fault::when`].
    When(&'a When),
    /// See [`Fault::mtbf`].
    Mtbf(&'a Mtbf),
}

/// The action of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ActionRef<'a> {
    /// See [`Fault::crash`].
    Crash(&'a Crash),
    /// See [`Fault::pause`].
    Pause(&'a Pause),
    /// See [`Fault::lose_cluster`].
    LoseCluster(&'a LoseCluster),
    /// See [`Fault::link`].
    Link(&'a LinkChange),
    /// See [`Fault::partition`].
    Partition(&'a Partition),
    /// See [`Fault::slow_storage`].
    SlowStorage(&'a SlowStorage),
    /// See [`Fault::full_storage`].
    FullStorage(&'a BadStorage),
    /// See [`Fault::corrupt_storage`].
    CorruptStorage(&'a BadStorage),
}

impl Fault {
    /// All triggers that are stated, with their names; a valid entry has one.
    pub fn triggers(&self) -> Vec<(&'static str, TriggerRef<'_>)> {
        let Fault { at, when, mtbf, .. } = self;
        [
            at.map(|it| ("at", TriggerRef::At(it))),
            when.as_ref().map(|it| ("when", TriggerRef::When(it))),
            mtbf.as_ref().map(|it| ("mtbf", TriggerRef::Mtbf(it))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// All actions that are stated, with their names; a valid entry has one.
    pub fn actions(&self) -> Vec<(&'static str, ActionRef<'_>)> {
        [
            self.crash.as_ref().map(|it| ("crash", ActionRef::Crash(it))),
            self.pause.as_ref().map(|it| ("pause", ActionRef::Pause(it))),
            self.lose_cluster.as_ref().map(|it| ("loseCluster", ActionRef::LoseCluster(it))),
            self.link.as_ref().map(|it| ("link", ActionRef::Link(it))),
            self.partition.as_ref().map(|it| ("partition", ActionRef::Partition(it))),
            self.slow_storage.as_ref().map(|it| ("slowStorage", ActionRef::SlowStorage(it))),
            self.full_storage.as_ref().map(|it| ("fullStorage", ActionRef::FullStorage(it))),
            self.corrupt_storage.as_ref().map(|it| ("corruptStorage", ActionRef::CorruptStorage(it))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Fault {
    /// The process that the action names, if it names one.
    pub fn process(&self) -> Option<&str> {
        let named = [
            self.crash.as_ref().map(|it| &it.process),
            self.pause.as_ref().map(|it| &it.process),
            self.slow_storage.as_ref().map(|it| &it.process),
            self.full_storage.as_ref().map(|it| &it.process),
            self.corrupt_storage.as_ref().map(|it| &it.process),
        ];
        named.into_iter().flatten().flatten().next().map(String::as_str)
    }
}

impl LinkChange {
    /// The properties that the change states.
    pub fn link(&self) -> Link {
        let LinkChange { preset, latency, jitter, bandwidth, loss, .. } = *self;
        Link { preset, latency, jitter, bandwidth, loss }
    }
}

fn any() -> String {
    ANY.into()
}

fn is_any(name: &String) -> bool {
    name == ANY
}

/// The words for what a process states.
fn facts_of_processes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "description": "What a process states.",
        "enum": &FactKind::OF_PROCESSES[..],
    })
}
