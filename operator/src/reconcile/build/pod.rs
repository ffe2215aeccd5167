//! Properties that the pods of a federation have in common, such as labels and volumes, and the placement of clusters.

use std::net::{IpAddr, Ipv4Addr};

use faultline_api::Federation;
use faultline_api::quantity::Size;
use faultline_api::resource::{Kubernetes, Placement, Volume};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::naming::{self, Component};
use crate::settings::Settings;

/// Size limit of a pod's data on the disk of its Kubernetes node: logs, and the process's data unless it is on a
/// volume.
pub(super) const MAX_DATA: &str = "4Gi";

/// Returns the address of a pod that runs and is not being deleted. The programs in the pods use only IPv4.
pub(crate) fn address(pod: &Pod) -> Option<IpAddr> {
    let addresses = || addresses(pod).find_map(|it| it.parse::<Ipv4Addr>().ok());
    runs(pod).then(addresses)?.map(IpAddr::V4)
}

/// Returns whether all containers of a pod are running and can be reached, the Kubernetes node of the pod responds, and
/// the pod is not being deleted.
pub(crate) fn is_complete(pod: &Pod) -> bool {
    let mut statuses = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
    address(pod).is_some()
        && !has_lost_node(pod)
        && statuses.all(|it| it.state.as_ref().is_some_and(|it| it.running.is_some()))
}

/// Returns whether the Kubernetes node on which a pod was running does not respond. Kubernetes then marks the pod as not ready, but
/// cannot update the state of the pod's containers, which stay ready.
pub(crate) fn has_lost_node(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let mut conditions = status.conditions.iter().flatten();
    let mut containers = status.container_statuses.iter().flatten();
    let is_marked = conditions.any(|it| it.type_ == "Ready" && it.status == "False");
    is_marked && containers.next().is_some_and(|it| it.ready) && containers.all(|it| it.ready)
}

/// Returns whether a pod runs, but has only IPv6 addresses.
pub(crate) fn lacks_ipv4(pod: &Pod) -> bool {
    runs(pod) && address(pod).is_none() && addresses(pod).next().is_some()
}

fn addresses(pod: &Pod) -> impl Iterator<Item = &String> {
    let status = pod.status.iter();
    status.flat_map(|it| it.pod_ip.iter().chain(it.pod_ips.iter().flatten().map(|it| &it.ip)))
}

/// Returns whether the main container is running and the pod is not being deleted.
fn runs(pod: &Pod) -> bool {
    let running = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        let state = statuses.iter().find(|it| it.name == naming::CONTAINER)?.state.as_ref()?;
        Some(state.running.is_some())
    };
    pod.metadata.deletion_timestamp.is_none() && running(pod).unwrap_or(false)
}

/// Returns the labels of a pod, including its group if it has one.
pub(super) fn labels(federation: &Federation, component: Component, group: Option<&str>) -> Value {
    let mut labels = naming::labels(federation);
    labels.insert(naming::COMPONENT.into(), component.as_str().into());
    if let Some(group) = group {
        labels.insert(naming::CLUSTER.into(), group.into());
    }
    json!(labels)
}

/// Returns the annotations of a pod. They let Prometheus find the pod's metrics if the Prometheus operator is not
/// installed, and keep the cluster autoscaler from evicting the pod, which would be an unplanned failure.
pub(super) fn annotations(port: u16) -> Value {
    json!({
        "prometheus.io/scrape": "true",
        "prometheus.io/port": port.to_string(),
        "prometheus.io/path": "/metrics",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    })
}

/// Returns the variable that marks a pod as one of this federation. Unlike labels and owners, it cannot change.
pub(super) fn mark(federation: &Federation) -> Value {
    json!({ "name": naming::MARK, "value": federation.uid().unwrap_or_default() })
}

/// Returns whether a pod has the [mark] of the federation with this UID.
pub(crate) fn is_marked(pod: &Pod, uid: &str) -> bool {
    let containers = pod.spec.iter().flat_map(|it| &it.containers);
    let mut variables = containers.flat_map(|it| it.env.iter().flatten());
    variables.any(|it| it.name == naming::MARK && it.value.as_deref() == Some(uid))
}

/// Adds the secrets for pulling the image, the priority class, and the requirements on the Kubernetes nodes of all pods,
/// if there are any.
pub(super) fn complete(pod: &mut Value, kubernetes: &Kubernetes, settings: &Settings) {
    if let Some(class) = &kubernetes.priority_class {
        pod["priorityClassName"] = json!(class);
    }
    if !kubernetes.node_selector.is_empty() {
        pod["nodeSelector"] = json!(kubernetes.node_selector);
    }
    if !kubernetes.tolerations.is_empty() {
        pod["tolerations"] = json!(kubernetes.tolerations);
    }
    if !settings.node_pull_secrets.is_empty() {
        pod["imagePullSecrets"] = settings.node_pull_secrets.iter().map(|it| json!({ "name": it })).collect();
    }
}

/// Restricts the Kubernetes nodes on which the pods of a group may run further than [`complete`].
pub(super) fn place(pod: &mut Value, federation: &Federation, group: &str, kubernetes: &Kubernetes) {
    if let Some(pool) = kubernetes.pools.get(group) {
        pod["nodeSelector"][naming::POOL] = json!(pool);
    }
    if let Some(site) = kubernetes.sites.get(group) {
        for (label, value) in &site.node_selector {
            pod["nodeSelector"][label] = json!(value);
        }
        if !site.tolerations.is_empty() {
            pod["tolerations"] =
                kubernetes.tolerations.iter().chain(&site.tolerations).map(|it| json!(it)).collect();
        }
    }
    let uid = &naming::labels(federation)[naming::UID];
    let group_of_this = json!({ "matchLabels": { naming::UID: uid, naming::CLUSTER: group } });
    match kubernetes.placement.unwrap_or_default() {
        Placement::Spread => {
            pod["topologySpreadConstraints"] = json!([{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": group_of_this,
            }]);
        }
        Placement::ClusterPerNode => {
            let others = json!({
                "matchLabels": { naming::UID: uid },
                "matchExpressions": [
                    { "key": naming::CLUSTER, "operator": "Exists" },
                    { "key": naming::CLUSTER, "operator": "NotIn", "values": [group] },
                ],
            });
            let term =
                |selector| json!([{ "topologyKey": "kubernetes.io/hostname", "labelSelector": selector }]);
            pod["affinity"] = json!({
                "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term(group_of_this) },
                "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term(others) },
            });
        }
    }
}

/// Returns the template of a claim for the data volume.
pub(super) fn claim_template(volume: &Volume) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": quantity(volume.size) } },
    });
    if let Some(class) = &volume.storage_class {
        spec["storageClassName"] = json!(class);
    }
    json!({ "metadata": { "name": naming::DATA }, "spec": spec })
}

/// Returns a size in Kubernetes' notation: the same units, without the `B` for bytes.
pub(super) fn quantity(size: Size) -> String {
    size.to_string().trim_end_matches('B').to_owned()
}

/// Stores the data of a set's pods on volumes, or on the disk of the Kubernetes node if there are none.
pub(super) fn keep_data(set: &mut Value, volume: Option<&Volume>) {
    match volume {
        Some(volume) => {
            set["volumeClaimTemplates"] = json!([claim_template(volume)]);
            set["persistentVolumeClaimRetentionPolicy"] = json!({
                "whenDeleted": if volume.keep { "Retain" } else { "Delete" },
                "whenScaled": "Retain",
            });
        }
        None => {
            let volumes = set["template"]["spec"]["volumes"].as_array_mut().expect("a pod has volumes");
            volumes.push(json!({ "name": naming::DATA, "emptyDir": { "sizeLimit": MAX_DATA } }));
        }
    }
}
