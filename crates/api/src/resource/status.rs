//! What the operator says of a federation. Written by it alone; a file needs none of this.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Longest text in a status.
pub const MAX_MESSAGE: usize = 1024;

/// What has become of a federation.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FederationStatus {
    /// The generation of the resource that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How far it is.
    #[serde(default)]
    pub phase: Phase,
    /// The newest news, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// What holds and what does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
    /// The protocol's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub protocol: Option<String>,
    /// Clusters all of whose processes are up, of all: `1/2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub clusters_ready: Option<String>,
    /// One entry for each cluster, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub clusters: Vec<ClusterState>,
    /// Faults of the plan that were injected or came to nothing, of all: `1/2`. One that was injected may still be in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub faults_done: Option<String>,
    /// The largest time between the first and the last death of one fault, by the victims' own clocks, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_skew_micros: Option<i64>,
    /// How often a cluster has gone back to a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollbacks: Option<u32>,
    /// What emulates the links: `inNode`, a delay line in the nodes themselves; `tc`, traffic control; or both, `tc+inNode`,
    /// where the kernel does what it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub shaping: Option<String>,
    /// The judgement of the run, once it has ended: `pass`, `fail` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub verdict: Option<String>,
    /// The number of the supervisor's newest event that is also a Kubernetes event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_event: Option<i64>,
    /// Which supervisor told that event: another one after each start of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub supervisor: Option<String>,
}

impl FederationStatus {
    /// What is said about one of [`condition`]; `None` as long as nothing is.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.kind == kind)
    }

    /// Whether one of [`condition`] is `True`.
    pub fn holds(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|it| it.status == "True")
    }
}

/// How far a federation is.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing has been made yet.
    #[default]
    Pending,
    /// It cannot be run; the condition `Accepted` says why.
    Rejected,
    /// Its pods are being made.
    Starting,
    /// Its processes are there, and its links are being measured.
    Linking,
    /// The application runs.
    Running,
    /// It stands still, because `spec.pause` says so.
    Paused,
    /// The run is over and has been judged.
    Completed,
    /// It is being deleted.
    Deleting,
}

/// The state of one cluster.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterState {
    /// Its name.
    #[schemars(length(max = 40))]
    pub name: String,
    /// How many processes it has.
    pub nodes: u32,
    /// How many of their pods run.
    pub pods: u32,
    /// How many of its processes are up, as far as the supervisor knows.
    pub up: u32,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 40))]
    pub state: Option<String>,
    /// Checkpoints that it has committed.
    pub checkpoints: u32,
    /// How many of them a message forced.
    pub forced: u32,
    /// How often it has gone back to one.
    pub rollbacks: u32,
    /// Steps of the application that are done, of all: `120/3000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 80))]
    pub progress: Option<String>,
}

/// Something that holds or does not, in the form that Kubernetes' tools know.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about: see [`condition`].
    #[serde(rename = "type")]
    #[schemars(length(max = 64))]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(length(max = 16))]
    pub status: String,
    /// Why, in one word.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Why, in a sentence.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Since when it is so.
    #[schemars(schema_with = "instant")]
    pub last_transition_time: Time,
    /// The generation of the resource that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The conditions of a federation.
pub mod condition {
    /// The resource makes sense, and can be run here.
    pub const ACCEPTED: &str = "Accepted";
    /// All pods run. What keeps one from it is the message.
    pub const PODS_READY: &str = "PodsReady";
    /// The processes are connected and the links are emulated as asked; by what is the reason.
    pub const LINKED: &str = "Linked";
    /// The application runs.
    pub const RUNNING: &str = "Running";
    /// The run is over and judged; the verdict is the reason.
    pub const COMPLETED: &str = "Completed";
    /// The supervisor answers.
    pub const SUPERVISED: &str = "Supervised";
    /// The operator can look at the federation. Said once a look has failed.
    pub const RECONCILED: &str = "Reconciled";
}

fn instant(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "format": "date-time",
        "maxLength": 64,
        "description": "Since when it is so.",
    })
}
