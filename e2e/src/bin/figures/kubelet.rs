//! Fake Kubernetes nodes: pods that are bound to them are reported as running, and removed once they are deleted.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use faultline_e2e::Failure;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::interval;

/// Capacity of a node, in pods.
const PODS: u32 = 250;
/// Interval between heartbeats of a node. A node without heartbeats for 40 s is declared lost.
const BEAT: Duration = Duration::from_secs(10);
/// Number of pods that are handled in parallel.
const AT_ONCE: usize = 16;
/// Namespace of the nodes' heartbeats.
const LEASES: &str = "kube-node-lease";
/// Prefix of the nodes' names.
const PREFIX: &str = "faultline-fake-";

/// Creates nodes for this many pods. Returns the names of the nodes.
pub(super) async fn make(client: &Client, pods: u32) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = (0..pods.div_ceil(PODS)).map(|it| format!("{PREFIX}{it}")).collect();
    let nodes: Api<Node> = Api::all(client.clone());
    for name in &names {
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        }))?;
        nodes.create(&PostParams::default(), &node).await?;
        let now = Timestamp::now().to_string();
        let room = json!({ "cpu": "1000", "memory": "1Ti", "pods": PODS.to_string() });
        let status = json!({ "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Fake", "message": "nothing runs here",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
        } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(names)
}

/// Deletes the nodes and their leases.
pub(super) async fn remove(client: &Client, names: &[String]) -> Result<(), Failure> {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    for name in names {
        unless_gone(leases.delete(name, &DeleteParams::default()).await)?;
        unless_gone(nodes.delete(name, &DeleteParams::default()).await)?;
    }
    Ok(())
}

/// Sends the nodes' heartbeats until the future is dropped.
pub(super) async fn beat(client: Client, names: Vec<String>) -> Result<(), Failure> {
    let leases: Api<Lease> = Api::namespaced(client, LEASES);
    let mut beat = interval(BEAT);
    loop {
        beat.tick().await;
        for name in &names {
            let now = format!("{:.6}", Timestamp::now());
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": { "name": name },
                "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now },
            });
            let parameters = PatchParams::apply("figures").force();
            leases.patch(name, &parameters, &Patch::Apply(lease)).await?;
        }
    }
}

/// Acts as the kubelet for the pods in a namespace that are bound to the fake nodes, until the future is dropped. Each
/// pod gets an address of this machine.
pub(super) async fn host(client: Client, namespace: String) -> Result<(), Failure> {
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let next = AtomicU32::new(0);
    let events = watcher(pods.clone(), watcher::Config::default()).default_backoff();
    let events = events.filter_map(async |event| match event {
        Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => Some(Ok(pod)),
        Ok(_) => None,
        Err(error) => Some(Err(Failure::from(error))),
    });
    events.try_for_each_concurrent(AT_ONCE, async |pod| tend(&pods, &pod, &next).await).await
}

async fn tend(pods: &Api<Pod>, pod: &Pod, next: &AtomicU32) -> Result<(), Failure> {
    let spec = pod.spec.as_ref();
    if !spec.and_then(|it| it.node_name.as_ref()).is_some_and(|it| it.starts_with(PREFIX)) {
        return Ok(());
    }
    let name = pod.name_any();
    let begun = pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"));
    if pod.metadata.deletion_timestamp.is_some() {
        return unless_gone(pods.delete(&name, &DeleteParams::default().grace_period(0)).await);
    }
    if begun {
        return Ok(());
    }
    let number = next.fetch_add(1, Ordering::Relaxed) + 1;
    // All of 127.0.0.0/8 is loopback; 127.0.*.* is left to other programs.
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + number);
    let now = Timestamp::now().to_string();
    let containers = spec.iter().flat_map(|it| &it.containers).map(|it| {
        json!({
            "name": it.name, "ready": true, "started": true, "restartCount": 0,
            "image": it.image, "imageID": it.image, "state": { "running": { "startedAt": now } },
        })
    });
    let ready = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|it| json!({ "type": it, "status": "True", "lastTransitionTime": now }));
    let status = json!({ "status": {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "startTime": now,
        "conditions": ready,
        "containerStatuses": containers.collect::<Vec<_>>(),
    } });
    unless_gone(pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await)
}

/// Treats a request as successful if its object is gone or has been replaced.
fn unless_gone<T>(answer: kube::Result<T>) -> Result<(), Failure> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Marks all nodes of the cluster that currently accept pods as unschedulable. Returns the names of these nodes.
pub(super) async fn reserve(client: &Client) -> Result<Vec<String>, Failure> {
    let all = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let takes = |it: &&Node| !it.spec.as_ref().and_then(|it| it.unschedulable).unwrap_or(false);
    let names: Vec<String> = all.iter().filter(takes).map(ResourceExt::name_any).collect();
    admit(client, &names, false).await?;
    Ok(names)
}

/// Sets whether these nodes accept pods.
pub(super) async fn admit(client: &Client, names: &[String], admitted: bool) -> Result<(), Failure> {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in names {
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": !admitted } }));
        nodes.patch(name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}
