//! A Kubernetes node with all processes of a cluster stops and is declared lost: its pods are recreated on another
//! node. Then the node returns. The cluster is restored from replicas in the other cluster, and messages from the old
//! node are rejected.

use std::collections::BTreeMap;
use std::time::Duration;

use faultline_api::resource::{ApplicationSpec, Kubernetes};
use faultline_client::status::FederationStatus;
use faultline_e2e::{Failure, Machine, QUICK_START, Skipped, TestNamespace, restorable};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

const POOL: &str = "faultline.dev/pool";
const CLUSTERS: [&str; 2] = ["paris", "rennes"];
/// Time limit for a node to be declared lost, or ready.
const DETECTED: Duration = Duration::from_secs(120);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let nodes = Api::<Node>::all(ns.client.clone()).list(&ListParams::default()).await?;
    let tainted =
        |it: &&Node| it.spec.as_ref().and_then(|it| it.taints.as_ref()).is_some_and(|it| !it.is_empty());
    let workers: Vec<String> = nodes.iter().filter(|it| !tainted(it)).map(ResourceExt::name_any).collect();
    let [first, second, ..] = &workers[..] else {
        return Err(Skipped("the cluster has only one suitable Kubernetes node".into()).into());
    };
    let machines = [Machine::find(&ns.client, first).await?, Machine::find(&ns.client, second).await?];
    let workers = [first.clone(), second.clone()];
    for (worker, cluster) in workers.iter().zip(CLUSTERS) {
        pool(&ns, worker, Some(cluster)).await?;
    }
    let outcome = restorable(run_steps(&ns, &workers, &machines)).await;
    // Restore the machines even after a failure.
    for (worker, machine) in workers.iter().zip(&machines) {
        machine.start().await?;
        pool(&ns, worker, None).await?;
        becomes(&ns, worker, true).await?;
    }
    outcome
}

async fn run_steps(
    ns: &TestNamespace,
    workers: &[String; 2],
    machines: &[Machine; 2],
) -> Result<(), Failure> {
    ns.apply(|spec| {
        spec.faults.clear();
        spec.deadline = "280s".parse().ok();
        if let ApplicationSpec::Heat(heat) = &mut spec.application {
            heat.steps = Some(1500); // 30 s of computation
        }
        let pools: BTreeMap<String, String> = CLUSTERS.map(|it| (it.to_owned(), it.to_owned())).into();
        spec.kubernetes = Some(Kubernetes { pools, ..Kubernetes::default() });
    })
    .await?;
    let has_checkpoints =
        |it: &FederationStatus| !it.clusters.is_empty() && it.clusters.iter().all(|it| it.checkpoints >= 2);
    ns.wait(QUICK_START, "two checkpoints", DETECTED, has_checkpoints).await?;
    let place = |it: &Pod| it.spec.as_ref().and_then(|it| it.node_name.clone());
    let supervisor = ns.api::<Pod>().get(&format!("{QUICK_START}-supervisor-0")).await?;
    // Stop the node that does not run the supervisor.
    let victim = usize::from(place(&supervisor).as_ref() == Some(&workers[0]));
    let pods: Vec<String> = (0..3).map(|it| format!("{QUICK_START}-{}-{it}", CLUSTERS[victim])).collect();
    let before = ns.pods().await?;

    machines[victim].stop().await?;
    // Until the node is declared lost, the successors of its pods could be scheduled on it again.
    becomes(ns, &workers[victim], false).await?;
    pool(ns, &workers[1 - victim], Some(CLUSTERS[victim])).await?;
    for pod in &pods {
        match ns.kill_pod(pod).await {
            Err(error) if !error.to_string().contains("not found") => return Err(error),
            _ => {}
        }
    }
    for name in &pods {
        let old = before.get(name).and_then(|it| it.0.clone());
        let moved = |it: Option<&Pod>| {
            it.is_some_and(|it| {
                it.uid() != old && it.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"))
            })
        };
        let pod = ns.until::<Pod>(name, "its pod runs on another node", DETECTED, moved).await?;
        assert_eq!(pod.as_ref().and_then(place).as_ref(), Some(&workers[1 - victim]));
    }
    machines[victim].start().await?;
    becomes(ns, &workers[victim], true).await?;

    let told = ns.recovers(QUICK_START, CLUSTERS[victim]).await?;
    assert!(told.contains("PlaceLost") || told.contains("DeclaredFailed"), "{told:?}");
    let status = ns.verdict(QUICK_START).await?;
    assert!(status.clusters.iter().all(|it| it.state.as_deref() == Some("finished")), "{status:#?}");
    ns.delete(QUICK_START).await
}

/// Puts a node into a pool, or removes it from its pool.
async fn pool(ns: &TestNamespace, node: &str, pool: Option<&str>) -> Result<(), Failure> {
    let patch = Patch::Merge(json!({ "metadata": { "labels": { POOL: pool } } }));
    Api::<Node>::all(ns.client.clone()).patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until a node is ready, or is declared lost.
async fn becomes(ns: &TestNamespace, node: &str, ready: bool) -> Result<(), Failure> {
    let is_so = |it: Option<&Node>| {
        let conditions = it.and_then(|it| it.status.as_ref()?.conditions.as_ref());
        let is_ready =
            |it: &k8s_openapi::api::core::v1::NodeCondition| it.type_ == "Ready" && it.status == "True";
        conditions.is_some_and(|it| it.iter().any(is_ready) == ready)
    };
    let nodes = Api::<Node>::all(ns.client.clone());
    timeout(DETECTED, await_condition(nodes, node, is_so)).await.map_err(|_| {
        let state = if ready { "become ready" } else { "lose its state `Ready`" };
        format!("the Kubernetes node {node} did not {state} within {DETECTED:?}")
    })??;
    Ok(())
}
