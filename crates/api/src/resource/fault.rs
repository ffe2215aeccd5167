//! Faults: each entry has one trigger (`at`, `when`, `mtbf`, `trace`) and one action (`crash`, `pause`, …).
//! The types of the triggers are in `trigger.rs`.
//!
//! Triggers and actions are optional fields of one flat struct rather than enums, so that an entry fits on one line and
//! an API server can validate it. [`FaultSpec::triggers`] and [`FaultSpec::actions`] return them as enums.

use faultline_core::fault::{self, FlipTarget, Impairment, StorageFault};
use faultline_core::{Span, StorageFate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::rules::Rule;
use super::{ANY, Link, Mtbf, Preset, TraceTrigger, When, program};
use crate::quantity::{Bandwidth, Duration, Loss};

/// One fault: exactly one trigger and exactly one action.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(inline, extend("x-kubernetes-validations" = [
    Rule::new("[has(self.at), has(self.when), has(self.mtbf), has(self.trace)].filter(x, x).size() == 1")
        .message("a fault must have exactly one trigger: at, when, mtbf or trace"),
    Rule::new(
        "has(self.trace) || (!has(self.pause) || has(self.pause.__for__)) \
         && (!has(self.partition) || has(self.partition.__for__))"
    ).message("only a `trace` supplies a duration: add `for`"),
    Rule::new(
        "[has(self.crash), has(self.stop), has(self.restart), has(self.pause), has(self.loseCluster), has(self.loseRack), \
         has(self.link), has(self.partition), has(self.slow), has(self.flip), has(self.slowStorage), has(self.fullStorage), has(self.corruptStorage)].filter(x, x).size() == 1"
    ).message("a fault must have exactly one action: crash, stop, restart, pause, loseCluster, loseRack, link, partition, slow, flip, slowStorage, fullStorage or corruptStorage"),
]))]
pub struct FaultSpec {
    /// Trigger: at this time, counted from the start of the application.
    pub at: Option<Duration>,
    /// Trigger: when a process reports a given fact.
    pub when: Option<When>,
    /// Trigger: repeatedly until the deadline, at intervals drawn from the seed. All entries of a federation together may
    /// draw at most 10,000 faults.
    pub mtbf: Option<Mtbf>,
    /// Trigger: whenever a node fails in a failure trace. All entries with `mtbf` or `trace` together may cause at most
    /// 10,000 faults.
    pub trace: Option<TraceTrigger>,

    /// Number of the random stream from which times and targets are drawn. Default: the place of the entry in the list,
    /// from 0. `faultline compare` states it if it leaves out an earlier entry, so that the draws remain the same.
    pub stream: Option<u32>,

    /// Action: kill a process. By default, the supervisor then starts its next life.
    pub crash: Option<Crash>,
    /// Action: in a system, stop the command of a node, which then starts again as after a crash.
    pub stop: Option<Stop>,
    /// Action: in a system, stop the commands of all nodes of a cluster, which then start again: at once, or one after the
    /// other.
    pub restart: Option<Restart>,
    /// Action: pause a process for a while. It resumes unless it has been declared failed in the meantime.
    pub pause: Option<Pause>,
    /// Action: kill all processes of a cluster at once.
    pub lose_cluster: Option<LoseCluster>,
    /// Action: kill all processes of a rack at once.
    pub lose_rack: Option<LoseRack>,
    /// Action: change the properties of a link.
    pub link: Option<LinkChange>,
    /// Action: cut the network between two clusters, or isolate one, for a while.
    pub partition: Option<Partition>,
    /// Action: slow a node down for a while.
    pub slow: Option<Slow>,
    /// Action: flip a bit of the next state that a node stores, of the next message that its application receives, or of
    /// its application's state. Only a stored state is protected, by `storage.verify`.
    pub flip: Option<Flip>,
    /// Action: delay the writes of a node.
    pub slow_storage: Option<SlowStorage>,
    /// Action: make the writes of a node fail.
    pub full_storage: Option<BadStorage>,
    /// Action: corrupt the data that a node reads back. The data fails its checksum, and counts as absent.
    pub corrupt_storage: Option<BadStorage>,
}

/// Kills a process.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Crash {
    /// The cluster of the process. Default `any`: drawn from the seed, so that every node of the federation is equally
    /// likely or, if `node` is set, every cluster.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The number of the process in its cluster, from 0. Default: drawn from the seed.
    pub node: Option<u32>,
    /// The name of the process, instead of `cluster` and `node`: `paris-1`, or a process outside the clusters, such as
    /// `storage-server`, `recovery-process` or `event-logger`.
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// In a system, instead of `cluster` and `node`: the name of a watch. The fault strikes the node that last logged a line for it,
    /// in any of its lives; if none has, it has no effect.
    #[schemars(length(max = 40))]
    pub reported: Option<String>,
    /// Whether the storage of the process survives. Default `kept`.
    pub storage: Option<Fate>,
    /// Whether the process is restarted. Default true. With `false`, it never returns. Only task-based programs support
    /// `false`: their other processes take over its work.
    pub returns: Option<bool>,
    /// How long the node is unavailable. In the meantime, the process starts on a spare node (`failures.spares`) or, if
    /// there is none, waits. Default: not at all or, with `trace`, for as long as the recorded failure.
    pub repair: Option<Duration>,
}

impl Crash {
    /// Returns the crash of a node that restarts with its storage. Without a number, the node is drawn from the seed.
    pub fn new(cluster: impl Into<String>, node: Option<u32>) -> Crash {
        Crash {
            cluster: cluster.into(),
            node,
            process: None,
            reported: None,
            storage: None,
            returns: None,
            repair: None,
        }
    }

    /// Returns the crash of the process with this name, which restarts with its storage.
    pub fn of_process(name: String) -> Crash {
        Crash { process: Some(name), ..Crash::new(ANY, None) }
    }
}

impl From<Crash> for FaultSpec {
    fn from(crash: Crash) -> FaultSpec {
        FaultSpec { crash: Some(crash), ..FaultSpec::default() }
    }
}

/// Stops the command of a node of a system with SIGTERM. What remains of it after a while is killed. The node then starts
/// again as after a crash.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stop {
    /// The cluster of the node. Default `any`: drawn from the seed, so that every node of the federation is equally likely
    /// or, if `node` is set, every cluster.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The number of the node in its cluster, from 0. Default: drawn from the seed.
    pub node: Option<u32>,
    /// The name of the node, such as `paris-1`, instead of `cluster` and `node`.
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// The name of a watch, instead of `cluster` and `node`. The fault strikes the node that last logged a line for it, in
    /// any of its lives; if none has, it has no effect.
    #[schemars(length(max = 40))]
    pub reported: Option<String>,
    /// Time within which the command must end after SIGTERM. Then, what remains of it is killed. Default 10s.
    pub within: Option<Duration>,
    /// Whether the data of the node survive. Default `kept`.
    pub storage: Option<Fate>,
    /// How long the node is unavailable once its command has ended. Default: not at all or, with `trace`, for as long as the
    /// recorded failure.
    pub repair: Option<Duration>,
}

/// Stops the commands of all nodes of a cluster of a system, as [`Stop`] does. The nodes then start again.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restart {
    /// The cluster. Default `any`: drawn from the seed.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// Whether the nodes are restarted one after the other, each once the one before is ready again. Default: all at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turn: bool,
    /// Time within which each command must end after SIGTERM. Then, what remains of it is killed. Default 10s.
    pub within: Option<Duration>,
    /// The command line of all later lives of the nodes, as templates. Default: the same as before.
    #[serde(default)]
    #[schemars(schema_with = "program::command")]
    pub command: Option<Vec<String>>,
}

/// Time within which a command must end after SIGTERM, unless the fault states it.
pub(crate) const STOPS_WITHIN: Span = Span::from_secs(10);

/// Pauses a process for a while.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pause {
    /// The cluster of the process. Default `any`: drawn from the seed, so that every node of the federation is equally
    /// likely or, if `node` is set, every cluster.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The number of the process in its cluster, from 0. Default: drawn from the seed.
    pub node: Option<u32>,
    /// The name of the process, instead of `cluster` and `node`: `paris-1`, or a process outside the clusters, such as
    /// `storage-server`, `recovery-process` or `event-logger`.
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// In a system, instead of `cluster` and `node`: the name of a watch. The fault strikes the node that last logged a line for it,
    /// in any of its lives; if none has, it has no effect.
    #[schemars(length(max = 40))]
    pub reported: Option<String>,
    /// Duration of the pause. A process that is paused for longer than `failures.detectAfter` is declared failed and
    /// restarted. Required unless a `trace` supplies it.
    #[serde(rename = "for")]
    pub span: Option<Duration>,
}

/// Kills all processes of a cluster at once.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoseCluster {
    /// The cluster. Default `any`: drawn from the seed.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// In a system, instead of `cluster`: the name of a watch. The fault strikes the cluster of the node that last logged a line for it,
    /// in any of its lives; if none has, it has no effect.
    #[schemars(length(max = 40))]
    pub reported: Option<String>,
    /// Whether the storage of its nodes survives. Default `kept`.
    pub storage: Option<Fate>,
    /// Whether the processes are restarted. Default true. With `false`, they never return. Only task-based programs
    /// support `false`: their other processes take over the work.
    pub returns: Option<bool>,
    /// How long the nodes are unavailable. In the meantime, processes start on spare nodes (`failures.spares`) or, if
    /// there are none, wait. Default: not at all or, with `trace`, for as long as the recorded failure.
    pub repair: Option<Duration>,
}

impl LoseCluster {
    /// Returns the loss of a cluster whose processes restart with their storage.
    pub fn new(cluster: impl Into<String>) -> LoseCluster {
        LoseCluster { cluster: cluster.into(), reported: None, storage: None, returns: None, repair: None }
    }
}

impl From<LoseCluster> for FaultSpec {
    fn from(loss: LoseCluster) -> FaultSpec {
        FaultSpec { lose_cluster: Some(loss), ..FaultSpec::default() }
    }
}

/// Kills all processes of a rack at once.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoseRack {
    /// The cluster, which must have racks. Default `any`: drawn from the seed, so that every node of the federation is
    /// equally likely or, if `rack` is set, every cluster.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The number of the rack in its cluster, from 0. Default: drawn from the seed.
    pub rack: Option<u32>,
    /// Whether the storage of its nodes survives. Default `kept`.
    pub storage: Option<Fate>,
    /// Whether the processes are restarted. Default true. With `false`, they never return. Only task-based programs
    /// support `false`: their other processes take over the work.
    pub returns: Option<bool>,
    /// How long the nodes are unavailable. In the meantime, processes start on spare nodes (`failures.spares`) or, if
    /// there are none, wait. Default: not at all or, with `trace`, for as long as the recorded failure.
    pub repair: Option<Duration>,
}

/// Changes the properties of a link in one direction. Properties that are not set come from the preset; without a
/// preset, from `spec.links`.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkChange {
    /// The sending cluster. Default `any`: drawn from the seed.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub from: String,
    /// The receiving cluster. Default `any`: drawn from the seed among the other clusters.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub to: String,
    /// Predefined properties of a kind of network.
    pub preset: Option<Preset>,
    /// One-way delay.
    pub latency: Option<Duration>,
    /// Half-width of the uniform distribution of the delay. At most the latency.
    pub jitter: Option<Duration>,
    /// Bandwidth, as an amount of data per second.
    pub bandwidth: Option<Bandwidth>,
    /// Share of packets lost. The transport retransmits them, so losses appear as delays.
    pub loss: Option<Loss>,
    /// Duration of the fault. Default: until the end of the run.
    #[serde(rename = "for")]
    pub span: Option<Duration>,
}

/// Cuts the network between two clusters, or isolates one, for a while. Messages are delayed, never lost.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Partition {
    /// The sending cluster. Default `any`: drawn from the seed.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub from: String,
    /// The receiving cluster. Default `any`: drawn from the seed among the other clusters.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub to: String,
    /// The cluster to cut off from all others, instead of `from` and `to`.
    #[schemars(length(max = 40))]
    pub isolate: Option<String>,
    /// In a system, instead of `isolate`: the name of a watch. The fault isolates the cluster of the node that last logged a line
    /// for it, in any of its lives; if none has, it has no effect.
    #[schemars(length(max = 40))]
    pub reported: Option<String>,
    /// In a system, the cluster within which some nodes are cut off from the others, instead of `from` and `to`. Links with
    /// other clusters are not affected.
    #[schemars(length(max = 40))]
    pub within: Option<String>,
    /// The numbers of the nodes that are cut off from the others `within` their cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "nodes_cut_off")]
    pub nodes: Vec<u32>,
    /// The clusters from which an isolated cluster is not cut off, such as that of the clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "not_cut_off")]
    pub except: Vec<String>,
    /// Cuts only the direction from `from` to `to`. Default: both directions are cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_way: bool,
    /// Duration of the fault. Required unless a `trace` supplies it.
    #[serde(rename = "for")]
    pub span: Option<Duration>,
}

/// Maximum number of clusters from which an isolated cluster is not cut off.
pub(crate) const MAX_EXCEPT: usize = 32;

/// Maximum number of nodes that are cut off within a cluster.
pub(crate) const MAX_CUT_OFF: usize = 250;

fn nodes_cut_off(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "The numbers of the nodes that are cut off from the others `within` their cluster.",
        "maxItems": MAX_CUT_OFF,
        "items": {
            "type": "integer", "format": "uint32", "minimum": 0, "maximum": u32::MAX, "description": "The number of a node.",
        },
    })
}

fn not_cut_off(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "The clusters from which an isolated cluster is not cut off, such as that of the clients.",
        "maxItems": MAX_EXCEPT,
        "items": { "type": "string", "maxLength": 40, "description": "The name of a cluster." },
    })
}

impl Partition {
    /// Returns a partition between two clusters, in both directions.
    pub fn between(from: impl Into<String>, to: impl Into<String>, span: Option<Duration>) -> Partition {
        let (from, to) = (from.into(), to.into());
        let (isolate, reported, within, nodes, except) = Default::default();
        Partition { from, to, isolate, reported, within, nodes, except, one_way: false, span }
    }

    /// Returns whether the partition isolates a cluster.
    pub fn isolates(&self) -> bool {
        self.isolate.is_some() || self.reported.is_some()
    }
}

/// Slows a node down for a while.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Slow {
    /// The cluster of the node. Default `any`: drawn from the seed, so that every node of the federation is equally
    /// likely or, if `node` is set, every cluster.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The number of the node in its cluster, from 0. Default: drawn from the seed.
    pub node: Option<u32>,
    /// The name of the process, instead of `cluster` and `node`: `paris-1`, or a process outside the clusters, such as
    /// `storage-server`, `recovery-process` or `event-logger`.
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// The factor by which the node's computations take longer, with at most two decimals. A computation that has begun
    /// is not affected. In a system, the commands of the node run for this part of the time: with 4, for a quarter of it.
    #[schemars(range(min = 1.01, max = 1000.0))]
    pub by: f64,
    /// Duration of the fault. Default: until the end of the run or, with `trace`, as long as the recorded failure.
    #[serde(rename = "for")]
    pub span: Option<Duration>,
}

/// Flips a bit, once.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flip {
    /// The cluster of the node. Default `any`: drawn from the seed, so that every node of the federation is equally
    /// likely or, if `node` is set, every cluster.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The number of the node in its cluster, from 0. Default: drawn from the seed.
    pub node: Option<u32>,
    /// The name of the process, instead of `cluster` and `node`: `paris-1`, or a process outside the clusters, such as
    /// `storage-server`.
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// What contains the bit. Default `copy`.
    #[serde(rename = "in", default, skip_serializing_if = "is_copy")]
    pub target: FlipIn,
}

/// What contains a bit that a fault flips.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FlipIn {
    /// The next message with content that the node's application receives. What the sender and the logs have remains
    /// intact, so a replay delivers the right message.
    Message,
    /// The state in the next part of a checkpoint that the node stores, whether it is the node's own state or a replica,
    /// before its checksum is computed.
    #[default]
    Copy,
    /// The state of the node's application, as soon as no computation is running.
    State,
}

impl From<FlipIn> for FlipTarget {
    fn from(it: FlipIn) -> FlipTarget {
        match it {
            FlipIn::Message => FlipTarget::Message,
            FlipIn::Copy => FlipTarget::Copy,
            FlipIn::State => FlipTarget::State,
        }
    }
}

fn is_copy(it: &FlipIn) -> bool {
    *it == FlipIn::Copy
}

/// Delays the writes of a node.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SlowStorage {
    /// The cluster of the node. Default `any`: drawn from the seed, so that every node of the federation is equally
    /// likely or, if `node` is set, every cluster.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The number of the node in its cluster, from 0. Default: drawn from the seed.
    pub node: Option<u32>,
    /// The name of the process, instead of `cluster` and `node`: `paris-1`, or a process outside the clusters, such as
    /// `storage-server`, `recovery-process` or `event-logger`.
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// Additional time per write.
    pub by: Duration,
    /// Duration of the fault. Default: until the end of the run.
    #[serde(rename = "for")]
    pub span: Option<Duration>,
}

/// Makes the writes of a node fail, or corrupts the data that it reads back.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BadStorage {
    /// The cluster of the node. Default `any`: drawn from the seed, so that every node of the federation is equally
    /// likely or, if `node` is set, every cluster.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The number of the node in its cluster, from 0. Default: drawn from the seed.
    pub node: Option<u32>,
    /// The name of the process, instead of `cluster` and `node`: `paris-1`, or a process outside the clusters, such as
    /// `storage-server`, `recovery-process` or `event-logger`.
    #[schemars(length(max = 60))]
    pub process: Option<String>,
    /// Duration of the fault. Default: until the end of the run.
    #[serde(rename = "for")]
    pub span: Option<Duration>,
}

/// Whether the storage of a failed process survives.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fate {
    /// The storage survives. The next life finds it unchanged.
    #[default]
    Kept,
    /// The storage is lost with the process.
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
    /// See [`FaultSpec::at`].
    At(Duration),
    /// See [`FaultSpec::when`].
    When(&'a When),
    /// See [`FaultSpec::mtbf`].
    Mtbf(&'a Mtbf),
    /// See [`FaultSpec::trace`].
    Trace(&'a TraceTrigger),
}

/// The action of an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ActionRef<'a> {
    /// See [`FaultSpec::crash`].
    Crash(&'a Crash),
    /// See [`FaultSpec::stop`].
    Stop(&'a Stop),
    /// See [`FaultSpec::restart`].
    Restart(&'a Restart),
    /// See [`FaultSpec::lose_cluster`].
    LoseCluster(&'a LoseCluster),
    /// See [`FaultSpec::lose_rack`].
    LoseRack(&'a LoseRack),
    /// See [`FaultSpec::link`].
    Link(&'a LinkChange),
    /// See [`FaultSpec::partition`].
    Partition(&'a Partition),
    /// An action on one node that continues to work, or on its process.
    Impair(ImpairRef<'a>),
}

/// An action on one node that continues to work, or on its process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImpairRef<'a> {
    /// What the action does.
    pub how: Impairment,
    /// See [`Slow::process`](field@Slow::process).
    pub process: &'a Option<String>,
    /// See [`Slow::cluster`](field@Slow::cluster).
    pub cluster: &'a str,
    /// See [`Slow::node`](field@Slow::node).
    pub node: Option<u32>,
    /// See [`Slow::span`](field@Slow::span).
    pub span: Option<Duration>,
    /// See [`Slow::by`](field@Slow::by).
    pub factor: Option<f64>,
}

/// Returns an optional action as an [`ActionRef::Impair`].
macro_rules! impair {
    ($action:expr, $name:literal, $how:expr) => {
        $action.as_ref().map(|it| {
            let how = $how(it);
            let (process, cluster) = (&it.process, &*it.cluster);
            let (node, span) = (it.node, it.span);
            ($name, ActionRef::Impair(ImpairRef { how, process, cluster, node, span, factor: None }))
        })
    };
}

impl FaultSpec {
    /// Returns all triggers that the entry has, with their names. A valid entry has one.
    pub fn triggers(&self) -> Vec<(&'static str, TriggerRef<'_>)> {
        let FaultSpec { at, when, mtbf, trace, .. } = self;
        [
            at.map(|it| ("at", TriggerRef::At(it))),
            when.as_ref().map(|it| ("when", TriggerRef::When(it))),
            mtbf.as_ref().map(|it| ("mtbf", TriggerRef::Mtbf(it))),
            trace.as_ref().map(|it| ("trace", TriggerRef::Trace(it))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns all actions that the entry has, with their names. A valid entry has one.
    pub fn actions(&self) -> Vec<(&'static str, ActionRef<'_>)> {
        [
            self.crash.as_ref().map(|it| ("crash", ActionRef::Crash(it))),
            self.stop.as_ref().map(|it| ("stop", ActionRef::Stop(it))),
            self.restart.as_ref().map(|it| ("restart", ActionRef::Restart(it))),
            impair!(self.pause, "pause", |_| Impairment::Paused),
            self.lose_cluster.as_ref().map(|it| ("loseCluster", ActionRef::LoseCluster(it))),
            self.lose_rack.as_ref().map(|it| ("loseRack", ActionRef::LoseRack(it))),
            self.link.as_ref().map(|it| ("link", ActionRef::Link(it))),
            self.partition.as_ref().map(|it| ("partition", ActionRef::Partition(it))),
            self.slow.as_ref().map(|it| {
                let Slow { process, cluster, node, by, span } = it;
                let how = Impairment::Slow { percent: it.percent() };
                let (node, span, factor) = (*node, *span, Some(*by));
                ("slow", ActionRef::Impair(ImpairRef { how, process, cluster, node, span, factor }))
            }),
            self.flip.as_ref().map(|it| {
                let Flip { process, cluster, node, target } = it;
                let how = Impairment::Flip(fault::Flip { target: (*target).into(), bit: 0 });
                let (node, span, factor) = (*node, None, None);
                ("flip", ActionRef::Impair(ImpairRef { how, process, cluster, node, span, factor }))
            }),
            impair!(self.slow_storage, "slowStorage", |it: &SlowStorage| {
                Impairment::Storage(StorageFault::Slow(it.by.0))
            }),
            impair!(self.full_storage, "fullStorage", |_| Impairment::Storage(StorageFault::Full)),
            impair!(self.corrupt_storage, "corruptStorage", |_| Impairment::Storage(StorageFault::Corrupt)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl FaultSpec {
    /// Returns the name of the trigger if its times are counted from the start of the application and the entry may cause
    /// any number of faults.
    pub fn repeated(&self) -> Option<&'static str> {
        self.triggers().into_iter().map(|it| it.0).find(|it| ["mtbf", "trace"].contains(it))
    }

    /// Returns whether the processes that this fault kills never return.
    pub fn never_returns(&self) -> bool {
        let crash = self.crash.as_ref().and_then(|it| it.returns);
        let cluster = self.lose_cluster.as_ref().and_then(|it| it.returns);
        let rack = self.lose_rack.as_ref().and_then(|it| it.returns);
        crash.or(cluster).or(rack) == Some(false)
    }

    /// Returns how long the nodes of the processes that this fault kills are unavailable, if the fault states it.
    pub fn repair(&self) -> Option<Duration> {
        let crash = self.crash.as_ref().and_then(|it| it.repair);
        let stop = self.stop.as_ref().and_then(|it| it.repair);
        let cluster = self.lose_cluster.as_ref().and_then(|it| it.repair);
        crash.or(stop).or(cluster).or(self.lose_rack.as_ref().and_then(|it| it.repair))
    }

    /// Returns the watch whose newest line names the target, if the action states one.
    pub fn reported(&self) -> Option<&str> {
        let crash = self.crash.as_ref().and_then(|it| it.reported.as_deref());
        let pause = self.pause.as_ref().and_then(|it| it.reported.as_deref());
        let partition = self.partition.as_ref().and_then(|it| it.reported.as_deref());
        let stop = self.stop.as_ref().and_then(|it| it.reported.as_deref());
        crash
            .or(stop)
            .or(pause)
            .or(partition)
            .or(self.lose_cluster.as_ref().and_then(|it| it.reported.as_deref()))
    }

    /// Returns the name in the action's `process` field, if it has one.
    pub fn process(&self) -> Option<&str> {
        let named = self.actions().into_iter().find_map(|(_, action)| match action {
            ActionRef::Crash(it) => it.process.as_ref(),
            ActionRef::Stop(it) => it.process.as_ref(),
            ActionRef::Impair(it) => it.process.as_ref(),
            _ => None,
        });
        named.map(String::as_str)
    }

    /// Returns the clusters that the trigger and the action name, including `any`.
    pub fn clusters(&self) -> Vec<&str> {
        let of_trigger = self.when.iter().map(|it| &*it.cluster);
        let of_action = self.actions().into_iter().flat_map(|(_, action)| match action {
            ActionRef::Crash(it) => vec![&*it.cluster],
            ActionRef::Stop(it) => vec![&*it.cluster],
            ActionRef::Restart(it) => vec![&*it.cluster],
            ActionRef::LoseCluster(it) => vec![&*it.cluster],
            ActionRef::LoseRack(it) => vec![&*it.cluster],
            ActionRef::Link(it) => vec![&*it.from, &*it.to],
            ActionRef::Partition(it) if it.within.is_some() => it.within.iter().map(String::as_str).collect(),
            ActionRef::Partition(it) if it.isolates() => {
                it.isolate.iter().chain(&it.except).map(String::as_str).collect()
            }
            ActionRef::Partition(it) => vec![&*it.from, &*it.to],
            ActionRef::Impair(it) => vec![it.cluster],
        });
        of_trigger.chain(of_action).collect()
    }

    /// Returns the cluster and the node that each action on a node names.
    pub fn nodes_mut(&mut self) -> impl Iterator<Item = (&str, &mut Option<u32>)> {
        let all = [
            self.crash.as_mut().map(|it| (&*it.cluster, &mut it.node)),
            self.stop.as_mut().map(|it| (&*it.cluster, &mut it.node)),
            self.pause.as_mut().map(|it| (&*it.cluster, &mut it.node)),
            self.slow.as_mut().map(|it| (&*it.cluster, &mut it.node)),
            self.flip.as_mut().map(|it| (&*it.cluster, &mut it.node)),
            self.slow_storage.as_mut().map(|it| (&*it.cluster, &mut it.node)),
            self.full_storage.as_mut().map(|it| (&*it.cluster, &mut it.node)),
            self.corrupt_storage.as_mut().map(|it| (&*it.cluster, &mut it.node)),
        ];
        all.into_iter().flatten()
    }
}

impl Slow {
    /// Returns [`by`](field@Slow::by) as a percentage.
    pub fn percent(&self) -> u32 {
        (self.by * 100.0).round() as u32
    }
}

impl LinkChange {
    /// Returns the properties that the change sets.
    pub fn link(&self) -> Link {
        let LinkChange { preset, latency, jitter, bandwidth, loss, .. } = *self;
        Link { preset, latency, jitter, bandwidth, loss }
    }
}

pub(super) fn any() -> String {
    ANY.into()
}

pub(super) fn is_any(name: &String) -> bool {
    name == ANY
}
