//! What all pods of a federation have in common: their labels, and where they run.

use std::net::IpAddr;

use faultline_api::Federation;
use faultline_api::quantity::Size;
use faultline_api::resource::{Kubernetes, Placement, Volume};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::naming::{self, Component};
use crate::settings::Settings;

/// Most that a pod may keep on the disk of its Kubernetes node: its data, unless that is on a volume, and its logs.
pub(super) const MAX_DATA: &str = "4Gi";

/// The address of a pod that runs and is to go on.
pub(crate) fn address(pod: &Pod) -> Option<IpAddr> {
    if !runs(pod) {
        return None;
    }
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

/// Whether all of a pod's containers run, and are to go on.
pub(crate) fn is_complete(pod: &Pod) -> bool {
    let mut statuses = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
    runs(pod) && statuses.all(|it| it.state.as_ref().is_some_and(|it| it.running.is_some()))
}

/// Whether the container that matters runs, and is to go on.
fn runs(pod: &Pod) -> bool {
    let running = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        let state = statuses.iter().find(|it| it.name == naming::CONTAINER)?.state.as_ref()?;
        Some(state.running.is_some())
    };
    pod.metadata.deletion_timestamp.is_none() && running(pod).unwrap_or(false)
}

/// Labels of a pod; of one that stands in a group, with the group.
pub(super) fn labels(federation: &Federation, component: Component, group: Option<&str>) -> Value {
    let mut labels = naming::labels(federation);
    labels.insert(naming::COMPONENT.into(), component.as_str().into());
    if let Some(group) = group {
        labels.insert(naming::CLUSTER.into(), group.into());
    }
    json!(labels)
}

/// Annotations by which a Prometheus without an operator of its own finds a pod's metrics.
pub(super) fn scraped(port: u16) -> Value {
    json!({ "prometheus.io/scrape": "true", "prometheus.io/port": port.to_string(), "prometheus.io/path": "/metrics" })
}

/// Adds the secrets with which the image is pulled, and the priority, if there are any.
pub(super) fn complete(pod: &mut Value, kubernetes: &Kubernetes, settings: &Settings) {
    if let Some(class) = &kubernetes.priority_class {
        pod["priorityClassName"] = json!(class);
    }
    if !settings.node_pull_secrets.is_empty() {
        pod["imagePullSecrets"] = settings.node_pull_secrets.iter().map(|it| json!({ "name": it })).collect();
    }
}

/// Says on which Kubernetes nodes the pods of a group run.
pub(super) fn place(pod: &mut Value, federation: &Federation, group: &str, kubernetes: &Kubernetes) {
    if let Some(pool) = kubernetes.pools.get(group) {
        pod["nodeSelector"] = json!({ naming::POOL: pool });
    }
    if let Some(site) = kubernetes.sites.get(group) {
        for (label, value) in &site.node_selector {
            pod["nodeSelector"][label] = json!(value);
        }
        if !site.tolerations.is_empty() {
            pod["tolerations"] = json!(site.tolerations);
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

/// The template of a claim for the data volume.
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

/// A size as Kubernetes writes it: in the same units, of bytes without saying so.
pub(super) fn quantity(size: Size) -> String {
    size.to_string().trim_end_matches('B').to_owned()
}

/// Puts the data of a set of pods on volumes, or else on the disk of the Kubernetes node.
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
