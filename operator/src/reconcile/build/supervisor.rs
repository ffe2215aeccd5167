//! The pod of a federation's supervisor, which also records the facts and judges the run.

use faultline_api::quantity::Size;
use faultline_client::object::FederationObject;
use faultline_client::{confined, ports};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::pod;
use crate::naming::{self, Component};
use crate::owned::owned;
use crate::settings::Settings;

/// Grace period in seconds, sufficient to sync the record.
const GRACE_SECONDS: u32 = 10;

pub(super) fn set(federation: &FederationObject, settings: &Settings) -> StatefulSet {
    let kubernetes = federation.spec.kubernetes.clone().unwrap_or_default();
    let labels = pod::labels(federation, Component::Supervisor, None);
    let mut pod = confined::pod(vec![container(federation, settings)], volumes(federation), GRACE_SECONDS);
    pod::complete(&mut pod, &kubernetes, settings);
    let mut spec = json!({
        "replicas": 1,
        // Otherwise, Kubernetes would not replace a pod whose image cannot be pulled after the image has been corrected.
        "podManagementPolicy": "Parallel",
        "selector": selector(&labels),
        "template": {
            "metadata": { "labels": labels, "annotations": pod::annotations(ports::SUPERVISOR_API) },
            "spec": pod,
        },
    });
    pod::keep_data(&mut spec, kubernetes.results.as_ref());
    let mut set: StatefulSet = owned(federation, naming::supervisor(federation));
    set.spec =
        Some(serde_json::from_value::<StatefulSetSpec>(spec).expect("the spec is that of a StatefulSet"));
    set
}

/// Returns the budget of the supervisor's pod. During the run, the pod must not be evicted. Afterwards, it must not keep
/// a Kubernetes node from being drained.
pub(super) fn budget(federation: &FederationObject, over: bool) -> PodDisruptionBudget {
    let labels = pod::labels(federation, Component::Supervisor, None);
    let spec = json!({
        "maxUnavailable": u8::from(over),
        "selector": selector(&labels),
    });
    let mut budget: PodDisruptionBudget = owned(federation, naming::supervisor(federation));
    let spec = serde_json::from_value::<PodDisruptionBudgetSpec>(spec);
    budget.spec = Some(spec.expect("the spec is that of a PodDisruptionBudget"));
    budget
}

/// Returns the selector of the supervisor's pod.
fn selector(labels: &Value) -> Value {
    json!({ "matchLabels": {
        naming::UID: labels[naming::UID],
        naming::COMPONENT: labels[naming::COMPONENT],
    } })
}

fn container(federation: &FederationObject, settings: &Settings) -> Value {
    let kubernetes = federation.spec.kubernetes.clone().unwrap_or_default();
    let resources = kubernetes.supervisor.unwrap_or_default();
    let memory = resources.memory_of_supervisor();
    let probe = |every: u32, failures: u32| {
        json!({
            "httpGet": { "path": "/healthz", "port": "api" },
            "periodSeconds": every, "timeoutSeconds": 10, "failureThreshold": failures,
        })
    };
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
            "requests": {
                "cpu": resources.cpu_of_supervisor().to_string(),
                "memory": pod::quantity(Size(memory.0)),
                "ephemeral-storage": "64Mi",
            },
            "limits": {
                "cpu": resources.cpu_limit().to_string(),
                "memory": pod::quantity(Size(memory.1)),
                "ephemeral-storage": pod::MAX_DATA,
            },
        },
        // A supervisor that resumes a run first reads the run's journal.
        "startupProbe": probe(1, 300),
        "readinessProbe": probe(5, 3),
        // A restart costs the run a rollback, so a busy machine must not cause one.
        "livenessProbe": probe(10, 12),
        "env": [pod::mark(federation)],
        "securityContext": confined::container(),
        "volumeMounts": [
            { "name": "federation", "mountPath": "/etc/faultline", "readOnly": true },
            { "name": naming::DATA, "mountPath": "/results" },
        ],
    })
}

/// Returns the volumes: the key and the federation file, in one directory.
fn volumes(federation: &FederationObject) -> Value {
    json!([{ "name": "federation", "projected": { "defaultMode": 0o440, "sources": [
        { "secret": { "name": naming::key(federation) } },
        { "configMap": { "name": naming::file(federation) } },
    ] } }])
}
