//! The pod of a federation's supervisor, which also records the facts and judges the run.

use faultline_api::Federation;
use faultline_client::{confined, ports};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{owned, pod};
use crate::naming::{self, Component};
use crate::settings::Settings;

/// Grace period in seconds, sufficient to sync the record.
const GRACE_SECONDS: u32 = 10;

pub(super) fn set(federation: &Federation, settings: &Settings) -> StatefulSet {
    let kubernetes = federation.spec.kubernetes.clone().unwrap_or_default();
    let labels = pod::labels(federation, Component::Supervisor, None);
    let mut pod = confined::pod(vec![container(federation, settings)], volumes(federation), GRACE_SECONDS);
    pod::complete(&mut pod, &kubernetes, settings);
    let mut spec = json!({
        "replicas": 1,
        // Otherwise, Kubernetes would not replace a pod whose image cannot be pulled after the image has been corrected.
        "podManagementPolicy": "Parallel",
        "selector": { "matchLabels": {
            naming::UID: labels[naming::UID],
            naming::COMPONENT: labels[naming::COMPONENT],
        } },
        "template": {
            "metadata": { "labels": labels, "annotations": pod::scraped(ports::SUPERVISOR_API) },
            "spec": pod,
        },
    });
    pod::keep_data(&mut spec, kubernetes.results.as_ref());
    let mut set: StatefulSet = owned(federation, naming::supervisor(federation));
    set.spec =
        Some(serde_json::from_value::<StatefulSetSpec>(spec).expect("the spec is that of a StatefulSet"));
    set
}

fn container(federation: &Federation, settings: &Settings) -> Value {
    json!({
        "name": naming::CONTAINER,
        "image": settings.node_image,
        "imagePullPolicy": settings.node_pull_policy,
        "args": [
            "supervise",
            "--federation", "/etc/faultline/federation.yaml",
            "--key-file", "/etc/faultline/key",
            // A volume that is kept may contain the record of another federation of this name.
            "--out", format!("/results/{}", federation.uid().unwrap_or_default()),
            "--listen", format!("0.0.0.0:{}", ports::SUPERVISOR),
            "--api", format!("0.0.0.0:{}", ports::SUPERVISOR_API),
        ],
        "ports": [
            { "name": "faultline", "containerPort": ports::SUPERVISOR },
            { "name": "api", "containerPort": ports::SUPERVISOR_API },
        ],
        // Memory use grows with the record, which is judged as a whole.
        "resources": {
            "requests": { "cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi" },
            "limits": { "cpu": "2", "memory": "2Gi", "ephemeral-storage": pod::MAX_DATA },
        },
        "securityContext": confined::container(),
        "volumeMounts": [
            { "name": "federation", "mountPath": "/etc/faultline", "readOnly": true },
            { "name": naming::DATA, "mountPath": "/results" },
        ],
    })
}

/// Returns the volumes: the key and the federation file, in one directory.
fn volumes(federation: &Federation) -> Value {
    json!([{ "name": "federation", "projected": { "defaultMode": 0o440, "sources": [
        { "secret": { "name": naming::key(federation) } },
        { "configMap": { "name": naming::file(federation) } },
    ] } }])
}
