//! The pods of a cluster: one set, whose pods are made at the same time and have no order.

use faultline_api::Federation;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use serde_json::{Value, json};

use super::{owned, pod};
use crate::naming::{self, Component};
use crate::reconcile::validate::Group;
use crate::settings::{AGENT_PORT, Settings};

/// What a node that is deleted has to end: as good as nothing, but not nothing, which would let its successor begin
/// while it still runs.
const GRACE_SECONDS: u32 = 2;

/// The set of a group; empty when the run is over.
pub(super) fn set(federation: &Federation, group: &Group, over: bool, settings: &Settings) -> StatefulSet {
    let kubernetes = federation.spec.kubernetes.clone().unwrap_or_default();
    let labels = pod::labels(federation, Component::Node, Some(&group.name));
    let mut pod = pod::spec(
        container(&kubernetes.resources.unwrap_or_default(), settings),
        volumes(federation),
        GRACE_SECONDS,
    );
    pod::place(&mut pod, federation, &group.name, &kubernetes);
    let mut spec = json!({
        "replicas": if over { 0 } else { group.nodes },
        "podManagementPolicy": "Parallel",
        "selector": { "matchLabels": { naming::UID: labels[naming::UID], naming::CLUSTER: group.name } },
        "template": {
            "metadata": { "labels": labels, "annotations": pod::scraped(AGENT_PORT) },
            "spec": pod,
        },
    });
    pod::keep_data(&mut spec, kubernetes.volumes.as_ref());
    let mut set: StatefulSet = owned(federation, naming::set(federation, &group.name));
    set.metadata.labels.get_or_insert_default().insert(naming::CLUSTER.into(), group.name.clone());
    set.spec = Some(serde_json::from_value::<StatefulSetSpec>(spec).expect("a set of pods"));
    set
}

fn container(resources: &faultline_api::resource::Resources, settings: &Settings) -> Value {
    json!({
        "name": naming::CONTAINER,
        "image": settings.node_image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "agent",
            "--listen", format!("0.0.0.0:{AGENT_PORT}"),
            "--key-file", "/etc/faultline/key",
            "--data", "/var/lib/faultline",
        ],
        "ports": [{ "name": "faultline", "containerPort": AGENT_PORT }],
        "resources": {
            "requests": { "cpu": format!("{}m", (resources.cpu() * 1000.0).ceil()), "memory": resources.memory().to_string() },
            "limits": { "memory": resources.memory().to_string() },
        },
        "securityContext": pod::confined(),
        "volumeMounts": [
            { "name": "key", "mountPath": "/etc/faultline", "readOnly": true },
            { "name": naming::DATA, "mountPath": "/var/lib/faultline" },
        ],
    })
}

fn volumes(federation: &Federation) -> Value {
    json!([{ "name": "key", "secret": { "secretName": naming::key(federation), "defaultMode": 0o440 } }])
}
