//! The pods of a group: one stateful set, whose pods are created in parallel and in no particular order.

use faultline_api::quantity::Size;
use faultline_api::resource::{Emulation, Kubernetes, Resources};
use faultline_client::object::FederationObject;
use faultline_client::{confined, ports};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::pod;
use crate::naming::{self, Component};
use crate::owned::owned;
use crate::reconcile::freeze::Group;
use crate::settings::Settings;

/// Grace period of a deleted node in seconds. With zero, the node's successor could start while the node still runs.
const GRACE_SECONDS: u32 = 2;

/// Greatest CPU limit of a shaper in millicores.
const SHAPER_CPU_MILLIS: u32 = 1000;
/// Path of the file with the process's key.
const KEY: &str = "/etc/faultline/key";
/// Directory shared by a shaper and its agent.
const SHAPER_DIRECTORY: &str = "/run/faultline";
/// Directory of an agent that it shares with its executor.
const EXECUTOR_DIRECTORY: &str = "/run/executor";
/// Directory and path of the program that a container with an image of the user's executes.
const PROGRAM_DIRECTORY: &str = "/faultline/bin";
const PROGRAM: &str = "/faultline/bin/faultline-node";
/// Size limit of this program.
const MAX_PROGRAM: &str = "512Mi";

/// Returns the stateful set of a group.
pub(super) fn set(federation: &FederationObject, group: &Group, settings: &Settings) -> StatefulSet {
    let kubernetes = federation.spec.kubernetes.clone().unwrap_or_default();
    let labels = pod::labels(federation, Component::Node, Some(&group.name));
    let resources = kubernetes.resources.unwrap_or_default();
    let mut containers = vec![container(federation, &resources, settings)];
    let mut volumes = volumes(federation);
    if kubernetes.links == Some(Emulation::Tc) {
        add_shaper(&mut containers, &mut volumes, &resources, settings);
    }
    let image = kubernetes.image_of(&group.name).filter(|_| federation.spec.application.system().is_some());
    if let Some(image) = image {
        add_system(&mut containers, &mut volumes, image, federation, &kubernetes);
    }
    let mut pod = confined::pod(containers, json!(volumes), GRACE_SECONDS);
    pod::complete(&mut pod, &kubernetes, settings);
    if image.is_some() {
        pod["initContainers"] = json!([installer(settings)]);
        let of_operator = pod["imagePullSecrets"].as_array().cloned().unwrap_or_default();
        let own = kubernetes.image_pull_secrets.iter().map(|it| json!({ "name": it }));
        let all: Vec<Value> = of_operator.into_iter().chain(own).collect();
        if !all.is_empty() {
            pod["imagePullSecrets"] = json!(all);
        }
    }
    pod::place(&mut pod, federation, &group.name, &kubernetes);
    let mut spec = json!({
        "replicas": group.nodes,
        "podManagementPolicy": "Parallel",
        "selector": { "matchLabels": { naming::UID: labels[naming::UID], naming::CLUSTER: group.name } },
        "template": {
            "metadata": { "labels": labels, "annotations": pod::annotations(ports::AGENT) },
            "spec": pod,
        },
    });
    if image.is_some() {
        spec["serviceName"] = json!(naming::pods(federation));
    }
    pod::keep_data(&mut spec, kubernetes.volumes.as_ref());
    let mut set: StatefulSet = owned(federation, naming::set(federation, &group.name));
    set.metadata.labels.get_or_insert_default().insert(naming::CLUSTER.into(), group.name.clone());
    set.spec =
        Some(serde_json::from_value::<StatefulSetSpec>(spec).expect("the spec is that of a StatefulSet"));
    set
}

fn container(federation: &FederationObject, resources: &Resources, settings: &Settings) -> Value {
    let memory = pod::quantity(Size(resources.memory()));
    json!({
        "name": naming::CONTAINER,
        "image": settings.node_image,
        "imagePullPolicy": settings.node_pull_policy,
        "args": [
            "agent",
            "--listen", format!("0.0.0.0:{}", ports::AGENT),
            "--key-file", KEY,
            "--data", "/var/lib/faultline",
            "--node-port", ports::NODE.to_string(),
            // A supervisor that still expects another pod at this address must not mistake this one for it.
            "--uid", "$(POD_UID)",
        ],
        "ports": [
            { "name": "faultline", "containerPort": ports::AGENT },
            { "name": "node", "containerPort": ports::NODE },
        ],
        "resources": {
            "requests": {
                "cpu": format!("{}m", resources.cpu().millis),
                "memory": memory,
                "ephemeral-storage": "64Mi",
            },
            "limits": {
                "cpu": format!("{}m", resources.cpu_limit().millis),
                "memory": memory,
                "ephemeral-storage": pod::MAX_DATA,
            },
        },
        "securityContext": confined::container(),
        "env": [
            { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            { "name": "POD_UID", "valueFrom": { "fieldRef": { "fieldPath": "metadata.uid" } } },
            pod::mark(federation),
        ],
        "volumeMounts": [
            // The volume contains the keys of all processes; the container sees only that of its pod.
            { "name": "key", "mountPath": KEY, "subPathExpr": "$(POD_NAME)", "readOnly": true },
            { "name": naming::DATA, "mountPath": "/var/lib/faultline" },
        ],
    })
}

fn volumes(federation: &FederationObject) -> Vec<Value> {
    vec![
        json!({ "name": "key", "secret": { "secretName": naming::process_keys(federation), "defaultMode": 0o440 } }),
    ]
}

/// Lets an agent use the socket of another container of its pod, in a directory that only the two share.
fn connect_agent(agent: &mut Value, option: &str, socket: &str, directory: &Value) {
    let mut extend = |field: &str, more: &[Value]| {
        agent[field].as_array_mut().expect("an agent has arguments and volumes").extend_from_slice(more);
    };
    extend("args", &[json!(option), json!(socket)]);
    extend("volumeMounts", std::slice::from_ref(directory));
}

/// Adds the container with the image of the user's, which runs the commands of a system. It gets no key and no privilege,
/// and shares no processes with the other containers.
fn add_system(
    containers: &mut Vec<Value>,
    volumes: &mut Vec<Value>,
    image: &str,
    federation: &FederationObject,
    kubernetes: &Kubernetes,
) {
    let directory = |path: &str| json!({ "name": "executor", "mountPath": path });
    connect_agent(
        &mut containers[0],
        "--executor",
        &format!("{EXECUTOR_DIRECTORY}/socket"),
        &directory(EXECUTOR_DIRECTORY),
    );
    containers.push(json!({
        "name": naming::SYSTEM,
        "image": image,
        "command": [PROGRAM],
        "args": [
            "execute",
            "--socket", "/faultline/run/socket",
            "--data", "/faultline/data",
            "--namespace", federation.namespace().unwrap_or_default(),
            "--address", "$(FAULTLINE_BIND)",
        ],
        "env": [
            { "name": "FAULTLINE_BIND", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
        ],
        "resources": containers[0]["resources"],
        "securityContext": confined::system(kubernetes.run_as),
        "volumeMounts": [
            { "name": "program", "mountPath": PROGRAM_DIRECTORY, "readOnly": true },
            directory("/faultline/run"),
            { "name": naming::DATA, "mountPath": "/faultline/data", "subPath": naming::SYSTEM },
        ],
    }));
    volumes.extend([
        json!({ "name": "program", "emptyDir": { "sizeLimit": MAX_PROGRAM } }),
        json!({ "name": "executor", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } }),
    ]);
}

/// Returns the container that copies the program of this image for the container with the user's image.
fn installer(settings: &Settings) -> Value {
    json!({
        "name": "install",
        "image": settings.node_image,
        "imagePullPolicy": settings.node_pull_policy,
        "args": ["install", "--to", PROGRAM],
        "resources": {
            "requests": { "cpu": "10m", "memory": "16Mi", "ephemeral-storage": "64Mi" },
            "limits": { "cpu": "1", "memory": "128Mi", "ephemeral-storage": MAX_PROGRAM },
        },
        "securityContext": confined::container(),
        "volumeMounts": [{ "name": "program", "mountPath": PROGRAM_DIRECTORY }],
    })
}

/// Adds the shaper's container. The agent reaches the shaper through a socket in a directory that only the two share.
/// The shaper does not get the key.
fn add_shaper(
    containers: &mut Vec<Value>,
    volumes: &mut Vec<Value>,
    resources: &Resources,
    settings: &Settings,
) {
    let limit = resources.cpu_limit().millis.min(SHAPER_CPU_MILLIS);
    let directory = json!({ "name": naming::SHAPER, "mountPath": SHAPER_DIRECTORY });
    let socket = format!("{SHAPER_DIRECTORY}/shaper");
    connect_agent(&mut containers[0], "--shaper", &socket, &directory);
    containers.push(json!({
        "name": naming::SHAPER,
        "image": settings.node_image,
        "imagePullPolicy": settings.node_pull_policy,
        "args": ["shape", "--socket", socket],
        "resources": {
            "requests": {
                "cpu": format!("{}m", limit.min(10)), "memory": "16Mi", "ephemeral-storage": "16Mi",
            },
            "limits": { "cpu": format!("{limit}m"), "memory": "64Mi", "ephemeral-storage": "64Mi" },
        },
        "securityContext": confined::shaper(),
        "volumeMounts": [directory],
    }));
    volumes.push(json!({ "name": naming::SHAPER, "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } }));
}
