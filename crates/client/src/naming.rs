//! Names and labels of a federation's objects.
//!
//! Labels are for selectors and for people. The operator itself identifies a federation's objects by their
//! controllers.

use std::collections::BTreeMap;

use faultline_api::names::{PODS, object};
use kube::ResourceExt;

use crate::object::FederationObject;

/// Label of a federation's objects: the federation's UID.
pub const UID: &str = "faultline.dev/uid";
/// Label of a federation's objects: the federation's name.
pub const FEDERATION: &str = "faultline.dev/federation";
/// Label of a group's stateful set and pods: the name of the cluster, or of the process outside all clusters. Absent
/// from all other objects.
pub const CLUSTER: &str = "faultline.dev/cluster";
/// Label of a pod: its purpose, usually a [`Component`].
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Label of a Kubernetes node: the pool to which it belongs.
pub const POOL: &str = "faultline.dev/pool";
/// Label of namespaces whose pods may read the metrics of federations, if network policies are enforced.
pub const SCRAPES: &str = "faultline.dev/scrapes";
/// Annotation of a stateful set: the hash of the set as last applied, so that the operator applies it again only after
/// a change. After the run, a constant.
pub const APPLIED: &str = "faultline.dev/applied";
/// Annotation of a stateful set: the time at which the operator last asked Kubernetes to create its missing pods.
pub const WOKEN: &str = "faultline.dev/woken";
/// Finalizer of federations that the operator must still clean up.
pub const FINALIZER: &str = "faultline.dev/cleanup";
/// Annotation of a federation, and label of a probing pod: a random text that identifies the invocation of the command
/// that created the object.
pub const INVOCATION: &str = "faultline.dev/invocation";
/// Field manager under which the operator applies objects.
pub const FIELD_MANAGER: &str = "faultline-operator";
/// Entry of the [`reader`] secret: the
/// [`reader_token`](faultline_api::supervision::reader_token) of the federation's key.
pub const READER_TOKEN: &str = "token";
/// Environment variable of a federation's pods: the federation's UID.
pub const MARK: &str = "FAULTLINE_FEDERATION";
/// The container that runs a node or the supervisor.
pub const CONTAINER: &str = "faultline";
/// The container that configures the kernel's traffic control for a node.
pub const SHAPER: &str = "shaper";
/// The container with a system's own image, which runs the commands of a node.
pub const SYSTEM: &str = "system";
/// The volume that holds a node's storage or the record of a run.
pub const DATA: &str = "data";

/// The default image for the process and supervisor containers, tagged with this program's version.
pub const NODE_IMAGE: &str = concat!("faultline-node:", env!("CARGO_PKG_VERSION"));

/// Purpose of a pod of a federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// Hosts a process.
    Node,
    /// Supervises all processes.
    Supervisor,
}

impl Component {
    /// Returns the value of the label [`COMPONENT`].
    pub fn as_str(self) -> &'static str {
        match self {
            Component::Node => "node",
            Component::Supervisor => "supervisor",
        }
    }
}

/// Returns the name of the stateful set for the pods of a cluster, or of a process outside all clusters.
pub fn set(federation: &impl ResourceExt, group: &str) -> String {
    object(&federation.name_any(), group)
}

/// Returns the name of the stateful set for the supervisor's pod.
pub fn supervisor(federation: &impl ResourceExt) -> String {
    set(federation, Component::Supervisor.as_str())
}

/// Returns the name of the supervisor's pod.
pub fn supervisor_pod(federation: &impl ResourceExt) -> String {
    format!("{}-0", supervisor(federation))
}

/// Returns the name of the secret with the keys of the processes, by pod.
pub fn process_keys(federation: &FederationObject) -> String {
    set(federation, "process-keys")
}

/// Returns the name of the network policy that restricts access to the pods, and of the service that gives the pods of a
/// system their domain names.
pub fn pods(federation: &FederationObject) -> String {
    set(federation, PODS)
}

/// Returns the name of the secret with the federation's key, which the supervisor's pod mounts.
pub fn key(federation: &FederationObject) -> String {
    set(federation, "key")
}

/// Returns the name of the secret with the token that grants read access to the supervisor's API
/// ([`READER_TOKEN`]). The only secret that `kubectl faultline` reads.
pub fn reader(federation: &impl ResourceExt) -> String {
    set(federation, "reader")
}

/// Returns the name of the config map with the federation's file.
pub fn file(federation: &impl ResourceExt) -> String {
    set(federation, "federation")
}

/// Returns the name of the claim for a pod's volume.
pub fn claim(pod: &str) -> String {
    format!("{DATA}-{pod}")
}

/// Returns the labels of all objects of a federation.
pub fn labels(federation: &FederationObject) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "faultline"),
        ("app.kubernetes.io/managed-by", FIELD_MANAGER),
        (FEDERATION, &federation.name_any()),
        (UID, &federation.uid().unwrap_or_default()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Returns the selector with which to watch all objects that the operator creates.
pub fn selector() -> String {
    format!("app.kubernetes.io/managed-by={FIELD_MANAGER},{UID}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use faultline_api::Names;
    use faultline_api::resource::{ProtocolSpec, ReplicateTo};

    use super::*;

    /// Every name is a DNS label, as required of a pod's name, and no two sets have the same name.
    #[test]
    fn every_group_has_a_set_of_its_own() {
        let sample = faultline_api::samples::sample("cck").expect("the sample exists");
        let mut federation =
            faultline_api::parse("cck", sample.text.as_bytes()).expect("the sample is valid");
        let ProtocolSpec::Cck(cck) = &mut federation.spec.protocol else { panic!("the sample uses CCK") };
        (cck.replicate_to, cck.servers) = (Some(ReplicateTo::SharedStorage), Some(3));
        assert_eq!(faultline_api::validate(&federation), []);
        let federation = FederationObject::from(federation);
        let names = Names::of(&federation.spec);
        let clusters = federation.spec.clusters.iter().map(|it| &it.name);
        let groups: Vec<&String> = clusters.chain(names.extra()).collect();
        let sets: BTreeSet<String> = groups.iter().map(|it| set(&federation, it)).collect();
        assert_eq!(sets.len(), groups.len());
        assert!(sets.contains("cck-storage-server") && sets.contains("cck-storage-server-2"), "{sets:?}");
        let is_allowed = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
        assert!(sets.iter().all(|it| it.chars().all(is_allowed)), "{sets:?}");
    }
}
