//! Names and labels of what belongs to a federation.
//!
//! Labels are for selectors and for people. The operator tells what belongs to a federation by its controllers.

use std::collections::BTreeMap;

use faultline_api::Federation;
use kube::ResourceExt;

/// The federation's UID.
pub const UID: &str = "faultline.dev/uid";
/// The federation's name.
pub const FEDERATION: &str = "faultline.dev/federation";
/// The cluster's name; absent from what stands in no cluster.
pub const CLUSTER: &str = "faultline.dev/cluster";
/// What a pod is: [`Component`].
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Of a Kubernetes node: its pool.
pub const POOL: &str = "faultline.dev/pool";
/// Of a namespace: whether its pods may read the metrics of federations where policies of the network are enforced.
pub const SCRAPES: &str = "faultline.dev/scrapes";
/// What the operator made last, as a hash, so that it is made again only when it changes.
pub const APPLIED: &str = "faultline.dev/applied";
/// Held by the operator while it has something to clean up.
pub const FINALIZER: &str = "faultline.dev/cleanup";
/// Who applies.
pub const FIELD_MANAGER: &str = "faultline-operator";
/// The container that runs a node or the supervisor.
pub const CONTAINER: &str = "faultline";
/// The container that tells the kernel what to do with a node's packets.
pub const SHAPER: &str = "shaper";
/// The volume of a node's storage, or of the record of a run.
pub const DATA: &str = "data";

/// The image of the processes of this version, and of their supervisor.
pub const NODE_IMAGE: &str = concat!("faultline-node:", env!("CARGO_PKG_VERSION"));

/// What a pod of a federation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// Hosts a process.
    Node,
    /// Supervises all of them.
    Supervisor,
}

impl Component {
    /// As the label says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Component::Node => "node",
            Component::Supervisor => "supervisor",
        }
    }
}

/// The set of pods of a cluster, or of a process that stands in none.
pub fn set(federation: &Federation, group: &str) -> String {
    format!("{}-{group}", federation.name_any())
}

/// The set of the supervisor's pod.
pub fn supervisor(federation: &Federation) -> String {
    set(federation, Component::Supervisor.as_str())
}

/// The secret with the keys of the processes, by pod.
pub fn process_keys(federation: &Federation) -> String {
    set(federation, "process-keys")
}

/// The policy that says who may reach the pods.
pub fn policy(federation: &Federation) -> String {
    set(federation, "pods")
}

/// The secret with the federation's key, which the supervisor's pod has.
pub fn key(federation: &Federation) -> String {
    set(federation, "key")
}

/// The config map with the federation's file.
pub fn file(federation: &Federation) -> String {
    set(federation, "federation")
}

/// The claim of a pod's volume.
pub fn claim(pod: &str) -> String {
    format!("{DATA}-{pod}")
}

/// What everything of a federation carries.
pub fn labels(federation: &Federation) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "faultline"),
        ("app.kubernetes.io/managed-by", FIELD_MANAGER),
        (FEDERATION, &federation.name_any()),
        (UID, &federation.uid().unwrap_or_default()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// What is watched: everything that the operator made.
pub fn selector() -> String {
    format!("app.kubernetes.io/managed-by={FIELD_MANAGER},{UID}")
}
