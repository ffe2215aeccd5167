//! Triggers of faults: the facts, the distributions and the failure traces that determine when a fault is injected.

use faultline_core::FactKind;
use faultline_failures::Format;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::fault::{any, is_any};
use crate::failure_trace::MOST_TRACE_BYTES;
use crate::quantity::Duration;

/// Triggers a fault when a process reports a fact. The process is halted at the fact until the fault is in effect.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct When {
    /// The kind of fact, such as `checkpointRequested`.
    #[schemars(schema_with = "facts_of_processes")]
    pub fact: FactKind,
    /// In a system: the watch (`logged`), the probe (`probeSucceeded`, `probeFailed`) or the history (`invoked`,
    /// `concluded`) that the fact is about. Default: any.
    #[schemars(length(max = 40))]
    pub of: Option<String>,
    /// The cluster of the process. Default `any`: every cluster.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    #[schemars(length(max = 40))]
    pub cluster: String,
    /// The number of the process in its cluster, from 0. Requires `cluster`. Default: every process.
    pub node: Option<u32>,
    /// Which occurrence of the fact triggers the fault, counted from 1. Default 1. Each process reports its own facts,
    /// so a cluster with three processes reports three `checkpointCommitted` facts per checkpoint, but only one
    /// `checkpointRequested`.
    #[schemars(range(min = 1))]
    pub occurrence: Option<u32>,
}

/// Distribution of the times between failures in the whole federation.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mtbf {
    /// Exponential distribution with this mean. The failure rate is constant.
    Exponential(Duration),
    /// Weibull distribution.
    Weibull(Weibull),
    /// Uniform distribution.
    Uniform(Uniform),
    /// Exponential distribution in which each node fails with this mean. The mean of the federation is this mean, divided
    /// by the number of nodes.
    PerNode(Duration),
    /// Published failure rate of a large cluster.
    Preset(FailureRate),
}

impl Mtbf {
    /// Returns the mean of an exponential distribution for a federation with `ranks` nodes, in seconds.
    pub(crate) fn exponential_mean(&self, ranks: u32) -> Option<f64> {
        let (per_node, nodes) = match self {
            Mtbf::Exponential(mean) => (mean.0.as_secs_f64(), 1.0),
            Mtbf::Weibull(_) | Mtbf::Uniform(_) => return None,
            Mtbf::PerNode(mean) => (mean.0.as_secs_f64(), f64::from(ranks)),
            Mtbf::Preset(it) => {
                (it.name.days_per_node() * 86_400.0 / it.speed.unwrap_or(1.0), f64::from(ranks))
            }
        };
        Some(per_node / nodes)
    }
}

/// Published failure rate of a large cluster: exponential, with the same mean for every node.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailureRate {
    /// The name of the cluster.
    pub name: FailureRateName,
    /// Divides the time between failures. Default 1.
    #[schemars(range(min = 0.001, max = 1e9))]
    pub speed: Option<f64>,
}

/// The clusters whose failure rates are known.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureRateName {
    /// Training of Llama 3: 419 unexpected interruptions in 54 days on 2,048 nodes (arXiv 2407.21783).
    Llama3,
    /// The research cluster RSC-1: 6.50 failures per 1,000 days of a node (arXiv 2410.21680).
    Rsc1,
}

impl FailureRateName {
    fn days_per_node(self) -> f64 {
        match self {
            FailureRateName::Llama3 => 54.0 * 2048.0 / 419.0,
            FailureRateName::Rsc1 => 1000.0 / 6.5,
        }
    }
}

/// Parameters of a Weibull distribution.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Weibull {
    /// Scale parameter. About 63% of the times between failures are shorter than this.
    pub scale: Duration,
    /// Shape parameter. Below 1, failures come in bursts; above 1, they are more regular. Values observed on clusters:
    /// 0.7 to 0.8.
    #[schemars(range(min = 0.1, max = 10.0))]
    pub shape: f64,
}

/// Bounds of a uniform distribution.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Uniform {
    /// The shortest time between two failures.
    pub least: Duration,
    /// The longest time between two failures.
    pub most: Duration,
}

/// Takes times, processes and durations of faults from a failure trace, a file of recorded failures of a real system.
/// Exactly one of `file` and `data` must be set.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceTrigger {
    /// Path of the failure trace, relative to the federation's file. `faultline` reads the file and records its text with
    /// the run. A federation that is applied to Kubernetes needs the text itself, in `data`.
    #[schemars(length(min = 1, max = 4096))]
    pub file: Option<String>,
    /// Text of the failure trace, at most 512 KiB.
    #[schemars(length(max = MOST_TRACE_BYTES))]
    pub data: Option<String>,
    /// Format of the failure trace. Default: recognised by the content.
    #[serde(rename = "as")]
    pub as_format: Option<TraceFormat>,
    /// The system to read, if a `lanl` file has several.
    pub system: Option<u32>,
    /// The causes of the failures to take. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "causes")]
    pub causes: Vec<String>,
    /// Which process a node of the trace stands for. Default `sample`.
    pub nodes: Option<NodeChoice>,
    /// Number of nodes that were observed, including those that never failed. Default: the nodes in the trace.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub of: Option<u32>,
    /// Divides all times of the trace, durations included unless `repairSpeed` is set. Default 1.
    #[schemars(range(min = 0.001, max = 1e9))]
    pub speed: Option<f64>,
    /// Divides the durations of the failures instead of `speed`. Default: `speed`.
    #[schemars(range(min = 0.001, max = 1e9))]
    pub repair_speed: Option<f64>,
    /// The time in the trace at which the application starts. After its last event, the trace continues with the failures
    /// before this time. Default: drawn from the seed.
    pub begin: Option<Duration>,
}

impl TraceTrigger {
    /// Returns [`speed`](field@TraceTrigger::speed), or its default.
    pub fn speed(&self) -> f64 {
        self.speed.unwrap_or(1.0)
    }
}

/// The format of a failure trace.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceFormat {
    /// Events of the InfiniteHBD trace, as JSON.
    InfiniteHbd,
    /// Failure records of Los Alamos National Laboratory.
    Lanl,
    /// Numbers of available spot instances, as JSON.
    Spot,
    /// Separated values with the columns `start`, `end`, `node` and `cause`.
    Csv,
}

impl From<TraceFormat> for Format {
    fn from(format: TraceFormat) -> Format {
        match format {
            TraceFormat::InfiniteHbd => Format::InfiniteHbd,
            TraceFormat::Lanl => Format::Lanl,
            TraceFormat::Spot => Format::Spot,
            TraceFormat::Csv => Format::Csv,
        }
    }
}

/// Which process of the federation a node of a failure trace stands for.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeChoice {
    /// Each process is one of the observed nodes, drawn from the seed. The failures of all other nodes hit no process.
    #[default]
    Sample,
    /// Node i is process i modulo the number of processes, so every failure hits a process.
    Fold,
}

/// Maximum number of causes of a trace.
pub(crate) const MAX_CAUSES: usize = 64;
/// Maximum length of a cause, in characters.
pub(crate) const MAX_CAUSE: usize = 256;

/// Returns the schema of the causes of a trace.
fn causes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": MAX_CAUSES,
        "items": { "type": "string", "description": "A cause, as in the trace.", "maxLength": MAX_CAUSE },
    })
}

/// The kinds of facts that processes report, but for which no fault can wait.
pub(crate) const NOT_TRIGGERING: [FactKind; 4] =
    [FactKind::Ready, FactKind::LinesLeftOut, FactKind::Stopped, FactKind::Checked];

/// Returns the kinds of facts for which a fault can wait.
pub(crate) fn triggering() -> impl Iterator<Item = FactKind> {
    FactKind::OF_PROCESSES.into_iter().filter(|it| !NOT_TRIGGERING.contains(it))
}

/// Returns the schema of the kinds of facts for which a fault can wait.
fn facts_of_processes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "description": "The kind of fact that the process reports.",
        "enum": triggering().collect::<Vec<_>>(),
    })
}
