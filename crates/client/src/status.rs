//! Status of a federation, written by the operator. Ignored in files.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// Maximum length of a message in a status, in characters.
pub const MAX_MESSAGE: usize = 1024;

/// Status of a federation.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FederationStatus {
    /// Generation of the resource that this status describes.
    pub observed_generation: Option<i64>,
    /// Current phase.
    #[serde(default)]
    pub phase: Phase,
    /// The latest event, in one sentence.
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Current conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// Name of the protocol.
    #[schemars(length(max = 40))]
    pub protocol: Option<String>,
    /// Clusters whose processes are all up, out of the total: `1/2`. A cluster that has not joined or has left does not
    /// count.
    #[schemars(length(max = 40))]
    pub clusters_ready: Option<String>,
    /// One entry per cluster, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub clusters: Vec<ClusterStatus>,
    /// Planned faults that were injected or had no effect, out of the total: `1/2`. An injected fault may still be in
    /// effect.
    #[schemars(length(max = 40))]
    pub faults_done: Option<String>,
    /// Longest time from the first to the last effect of one fault, by the clocks of its targets, in microseconds.
    pub worst_skew_micros: Option<i64>,
    /// Longest time from the due time of a fault to its last effect, in microseconds.
    pub worst_latency_micros: Option<i64>,
    /// Total number of rollbacks of clusters.
    pub rollbacks: Option<u32>,
    /// What emulates the links: `inNode` (delay lines in the nodes), `tc` (traffic control), or `tc+inNode` (traffic
    /// control, with delay lines for what the kernel does not support).
    #[schemars(extend("enum" = ["inNode", "tc", "tc+inNode"]))]
    pub shaping: Option<String>,
    /// Verdict of the run, once it has ended: `pass`, `fail` or `unknown`.
    #[schemars(extend("enum" = ["pass", "fail", "unknown"]))]
    pub verdict: Option<String>,
    /// Number of the newest event that the supervisor has reported.
    pub last_event: Option<i64>,
    /// Identifier of the supervisor that reported the event in `lastEvent`. A supervisor that restarts keeps the
    /// identifier only if it resumes the run from its journal.
    #[schemars(length(max = 40))]
    pub supervisor: Option<String>,
    /// UID of the pod that keeps the record of a completed run. Absent if a volume keeps it.
    #[schemars(length(max = 40))]
    pub record_in: Option<String>,
}

impl FederationStatus {
    /// Returns the condition of this kind (a constant in [`condition`]); `None` if it has not been set.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.kind == kind)
    }

    /// Returns why the run never began, if its pods could not start in time.
    pub fn why_not_started(&self) -> Option<&str> {
        let completed = self.condition(condition::COMPLETED).filter(|it| it.status == "True");
        completed.filter(|it| it.reason == condition::PODS_NOT_STARTED).map(|it| &*it.message)
    }

    /// Returns whether the condition of this kind (a constant in [`condition`]) is `True`.
    pub fn holds(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|it| it.status == "True")
    }
}

/// Phase of a federation.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing has been created yet.
    #[default]
    Pending,
    /// The federation cannot be run. The condition `Accepted` says why.
    Rejected,
    /// Pods are being created.
    Starting,
    /// All processes are ready, and the links are being measured.
    Linking,
    /// The application is running.
    Running,
    /// The federation is paused by `spec.pause`.
    Paused,
    /// The run has ended and has been judged.
    Completed,
    /// The federation is being deleted.
    Deleting,
}

/// State of one cluster.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Name of the cluster.
    #[schemars(length(max = 40))]
    pub name: String,
    /// Number of processes.
    pub nodes: u32,
    /// Number of running pods.
    pub pods: u32,
    /// Number of processes that are up, as far as the supervisor knows.
    pub up: u32,
    /// Current state of the cluster. `awaited`: the cluster has not joined, and its processes wait. `left`: the cluster
    /// has left, and its processes have ended.
    #[schemars(extend("enum" = ["starting", "awaited", "running", "failed", "finished", "unrecoverable", "left"]))]
    pub state: Option<String>,
    /// Number of committed checkpoints.
    pub checkpoints: u32,
    /// Number of forced checkpoints.
    pub forced: u32,
    /// Number of rollbacks.
    pub rollbacks: u32,
    /// Completed steps of the application, out of the total: `120/3000`.
    #[schemars(length(max = 80))]
    pub progress: Option<String>,
}

/// A condition, in the form that Kubernetes tools understand.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition, such as `Accepted` or `Completed`.
    #[serde(rename = "type")]
    #[schemars(length(max = 64))]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// Reason, in one word.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Reason, in one sentence.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Time of the last change of `status`.
    #[schemars(schema_with = "instant")]
    pub last_transition_time: Time,
    /// Generation of the resource that this condition describes.
    pub observed_generation: Option<i64>,
}

/// The conditions of a federation.
pub mod condition {
    /// The federation is valid and can be run in this Kubernetes cluster.
    pub const ACCEPTED: &str = "Accepted";
    /// All pods are running. Otherwise, the message says what is missing.
    pub const PODS_READY: &str = "PodsReady";
    /// Every measured link has the requested delay. The reason says what emulates the links.
    pub const LINKED: &str = "Linked";
    /// The application is running.
    pub const RUNNING: &str = "Running";
    /// The run is over. The reason is the verdict, `RunFailed` (the run could not be carried out), [`PODS_NOT_STARTED`], or
    /// `RecordLost`.
    pub const COMPLETED: &str = "Completed";
    /// Reason of [`COMPLETED`] if a pod of a system could not start in time, so the run never began and has no record.
    pub const PODS_NOT_STARTED: &str = "PodsNotStarted";
    /// The supervisor responds.
    pub const SUPERVISED: &str = "Supervised";
    /// The operator can reconcile the federation. Absent until the operator first fails to do so.
    pub const RECONCILED: &str = "Reconciled";
}

fn instant(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "format": "date-time",
        "maxLength": 64,
        "description": "Time of the last change of `status`.",
    })
}
