//! How a federation's pods are made. Only the Kubernetes backend looks at this.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Size;

/// How the pods of a federation are made: where they run, what they may use, what keeps their data.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// On which Kubernetes nodes the pods of a cluster run. Default `spread`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Pins clusters to node pools: the pods of a cluster run only on Kubernetes nodes that carry the label
    /// `faultline.dev/pool` with this value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 256,
        "additionalProperties" = { "type": "string", "maxLength": 63, "description": "The pool of a cluster." },
    ))]
    pub pools: BTreeMap<String, String>,
    /// What emulates the links between pods. Default `inNode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<Emulation>,
    /// What every node pod may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Keeps the storage of every node on a volume of its own. Default: on the Kubernetes node's disk, so that it is
    /// lost with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Volume>,
    /// Keeps the record of the run on a volume. Default: in the supervisor's pod, until that is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Volume>,
}

/// What emulates the links between pods.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Emulation {
    /// A delay line in each process, before the socket. Needs no privilege.
    #[default]
    InNode,
    /// The kernel's traffic control, in the network namespace of each pod. Every pod has a second container for it, with
    /// the capability NET_ADMIN, which Pod Security allows in namespaces of the profile `privileged` only. What the kernel
    /// lacks a delay line does.
    Tc,
}

/// On which Kubernetes nodes the pods of a cluster run.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// As evenly as possible on all of them.
    #[default]
    Spread,
    /// All on one, and no two clusters on the same one.
    ClusterPerNode,
}

/// What a pod asks for, and is held to.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// Processor cores that are set aside for it; it may use more when there are. Default 0.05.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.001, max = 1024.0))]
    pub cpu: Option<f64>,
    /// Memory that is set aside for it; with more it is ended. Default 256MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
}

/// A volume that outlives its pod.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Volume {
    /// How large it is.
    pub size: Size,
    /// Its storage class. Default: the one of the Kubernetes cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class: Option<String>,
    /// Whether it outlives the federation, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

impl Resources {
    /// Cores; see [`Resources::cpu`].
    pub fn cpu(&self) -> f64 {
        self.cpu.unwrap_or(0.05)
    }

    /// Bytes; see [`Resources::memory`].
    pub fn memory(&self) -> u64 {
        self.memory.map_or(256 << 20, |it| it.0)
    }
}
