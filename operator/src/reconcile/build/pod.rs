//! Properties that the pods of a federation have in common, such as labels and volumes, and the placement of clusters.

use faultline_api::quantity::Size;
use faultline_api::resource::{Kubernetes, Placement, Volume};
use faultline_client::object::FederationObject;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::naming::{self, Component};
use crate::settings::Settings;

/// Size limit of a pod's data on the disk of its Kubernetes node: logs, and the process's data unless it is on a
/// volume.
pub(super) const MAX_DATA: &str = "4Gi";

/// Returns the labels of a pod, including its group if it has one.
pub(super) fn labels(federation: &FederationObject, component: Component, group: Option<&str>) -> Value {
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
pub(super) fn mark(federation: &FederationObject) -> Value {
    json!({ "name": naming::MARK, "value": federation.uid().unwrap_or_default() })
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
pub(super) fn place(pod: &mut Value, federation: &FederationObject, group: &str, kubernetes: &Kubernetes) {
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
