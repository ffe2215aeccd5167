//! Properties of the pods of a federation. Only the Kubernetes backend reads them.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::rules;
use crate::quantity::{Cores, Size};

/// Properties of the pods of a federation: placement, resources and volumes.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// How pods are placed on Kubernetes nodes. Default `spread`.
    pub placement: Option<Placement>,
    /// Node pool of each cluster, by name. The pods of the cluster run only on Kubernetes nodes whose label
    /// `faultline.dev/pool` has this value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 256,
        "additionalProperties" = { "type": "string", "maxLength": 63, "description": "The node pool of the cluster." },
    ))]
    pub pools: BTreeMap<String, String>,
    /// Labels that the Kubernetes nodes of all pods must carry, including the supervisor's pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 16,
        "additionalProperties" = { "type": "string", "maxLength": 63, "description": "The value of a label." },
    ))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of the Kubernetes nodes that all pods tolerate, including the supervisor's pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
    /// Placement of the pods of individual clusters, by name, in addition to that of all pods. Each cluster can run at
    /// its own site.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub sites: BTreeMap<String, Site>,
    /// Priority class of all pods. Default: the default class of the Kubernetes cluster.
    #[schemars(length(min = 1, max = 253))]
    pub priority_class: Option<String>,
    /// Image with the commands of a system. Each pod runs them in a container of their own, which has no access to keys.
    /// The operator must permit the image.
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// Names of secrets with which the pods of a system pull its images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "pull_secrets")]
    pub image_pull_secrets: Vec<String>,
    /// ID of the user who runs the commands of a system. Default 65532.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub run_as: Option<u32>,
    /// Mechanism that emulates the links between pods. Default `inNode`.
    pub links: Option<Emulation>,
    /// Resources of each pod that runs a process.
    pub resources: Option<Resources>,
    /// Resources of the supervisor's pod, which also judges the record.
    pub supervisor: Option<Resources>,
    /// Stores the data of each node on its own volume. Default: on the disk of the Kubernetes node, where it is lost
    /// with the pod.
    pub volumes: Option<Volume>,
    /// Stores the record of the run on a volume. Default: in the supervisor's pod, until the pod is deleted.
    pub results: Option<Volume>,
    /// Seconds after the end of the run at which the operator deletes the federation, with its record unless a volume
    /// keeps it. Until then, `kubectl faultline run` leaves the federation in the cluster. Default: the operator never
    /// deletes the federation.
    pub ttl_seconds_after_finished: Option<u32>,
}

/// The Kubernetes nodes on which the pods of a cluster may run.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Site {
    /// Labels that the Kubernetes nodes must carry, such as `topology.kubernetes.io/zone: eu-west-1a`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 16,
        "additionalProperties" = { "type": "string", "maxLength": 63, "description": "The value of a label." },
    ))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of the Kubernetes nodes that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
    /// Image with the commands of the cluster's nodes. Default: the one of `kubernetes.image`.
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
}

impl Kubernetes {
    /// Returns the image with the commands of a cluster's nodes, if one is stated.
    pub fn image_of(&self, cluster: &str) -> Option<&str> {
        self.sites.get(cluster).and_then(|it| it.image.as_deref()).or(self.image.as_deref())
    }

    /// Returns all images, with their fields.
    pub fn images(&self) -> impl Iterator<Item = (String, &str)> {
        let of_sites = self.sites.iter().filter_map(|(cluster, it)| {
            Some((format!("spec.kubernetes.sites.{cluster}.image"), it.image.as_deref()?))
        });
        self.image.iter().map(|it| ("spec.kubernetes.image".to_owned(), &**it)).chain(of_sites)
    }
}

/// A taint that pods tolerate, in the form that Kubernetes uses.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Toleration {
    /// Key of the taint. Without it, every key matches; requires `operator: Exists`.
    #[schemars(length(max = 317))]
    pub key: Option<String>,
    /// How the value is compared. Default `Equal`.
    pub operator: Option<Comparison>,
    /// Value of the taint.
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Effect of the taint. Without it, every effect matches.
    pub effect: Option<TaintEffect>,
}

/// How the value of a taint is compared.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// The value is not compared.
    Exists,
    /// The value must equal that of the toleration.
    Equal,
}

/// Effect of a taint on pods that do not tolerate it.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaintEffect {
    /// No new pods are scheduled on the Kubernetes node.
    NoSchedule,
    /// New pods are scheduled on other Kubernetes nodes if possible.
    PreferNoSchedule,
    /// Running pods are evicted, and no new pods are scheduled on the Kubernetes node.
    NoExecute,
}

/// Mechanism that emulates the links between pods.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Emulation {
    /// A delay line in each process, before the socket. Requires no privileges.
    #[default]
    InNode,
    /// The kernel's traffic control, in the network namespace of each pod. Each pod gets a second container with the
    /// capability NET_ADMIN, which Pod Security allows only in namespaces with the `privileged` profile. A delay line
    /// emulates all properties that the kernel does not support.
    Tc,
}

/// How pods are placed on Kubernetes nodes.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// Spreads pods as evenly as possible over all Kubernetes nodes.
    #[default]
    Spread,
    /// Places all pods of a cluster on one Kubernetes node, and each cluster on a different Kubernetes node.
    ClusterPerNode,
}

/// Resource requests and limits of a pod.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(inline, extend("x-kubernetes-validations" = [rules::limit_covers_request()]))]
pub struct Resources {
    /// CPU cores requested for the pod, such as `100m` or `2`. The pod may use more cores, up to its limit, if they are
    /// free. Default `50m`, or `100m` for the supervisor; less if the limit is lower.
    pub cpu: Option<Cores>,
    /// Maximum number of CPU cores that the pod may use. Default: 2, or `cpu` if that is more. The container that shapes
    /// links (`links: tc`) has its own limit, which is the same, but at most 1.
    pub cpu_limit: Option<Cores>,
    /// Memory requested for the pod, which is also its limit. A pod that exceeds the limit is killed. Default 256MiB. The
    /// supervisor requests 128MiB by default, with a limit of 2GiB.
    pub memory: Option<Size>,
}

/// A volume that outlives its pod.
#[skip_serializing_none]
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Volume {
    /// Size of the volume.
    pub size: Size,
    /// Storage class of the volume. Default: the default class of the Kubernetes cluster.
    #[schemars(length(min = 1, max = 253))]
    pub storage_class: Option<String>,
    /// Keeps the volume when the federation is deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

/// Default CPU limit in millicores: a process computes on one core, and communicates on another.
const CPU_LIMIT_MILLIS: u32 = 2000;
/// Default CPU request of a process and of the supervisor, in millicores.
const CPU_MILLIS: (u32, u32) = (50, 100);

impl Resources {
    /// Returns [`cpu`](field@Resources::cpu), or its default for a process.
    pub fn cpu(&self) -> Cores {
        self.cpu_or(CPU_MILLIS.0)
    }

    /// Returns [`cpu`](field@Resources::cpu), or its default for the supervisor.
    pub fn cpu_of_supervisor(&self) -> Cores {
        self.cpu_or(CPU_MILLIS.1)
    }

    fn cpu_or(&self, millis: u32) -> Cores {
        let most = self.cpu_limit.map_or(millis, |it| it.millis);
        self.cpu.unwrap_or(Cores { millis: millis.min(most) })
    }

    /// Returns [`cpu_limit`](field@Resources::cpu_limit), or its default.
    pub fn cpu_limit(&self) -> Cores {
        let requested = self.cpu.map_or(0, |it| it.millis);
        self.cpu_limit.unwrap_or(Cores { millis: requested.max(CPU_LIMIT_MILLIS) })
    }

    /// Returns [`memory`](field@Resources::memory) in bytes, or its default for a process.
    pub fn memory(&self) -> u64 {
        self.memory.map_or(256 << 20, |it| it.0)
    }

    /// Returns the memory that the supervisor requests, and its limit, in bytes.
    pub fn memory_of_supervisor(&self) -> (u64, u64) {
        self.memory.map_or((128 << 20, 2 << 30), |it| (it.0, it.0))
    }
}

/// Maximum number of secrets with which pods pull images.
pub(crate) const MAX_PULL_SECRETS: usize = 16;

/// Returns the schema of the names of secrets.
fn pull_secrets(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": MAX_PULL_SECRETS,
        "items": { "type": "string", "description": "The name of a secret.", "minLength": 1, "maxLength": 253 },
    })
}
