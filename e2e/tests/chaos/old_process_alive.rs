//! A process and its agent are paused on a machine whose kubelet has been stopped, so that nothing can end them. The
//! process begins a new life elsewhere, and then the old life resumes. It is never accepted again.

use std::time::Duration;

use faultline_api::resource::ApplicationSpec;
use faultline_client::status::FederationStatus;
use faultline_e2e::{Failure, Machine, QUICK_START, TestNamespace, restorable};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

const VICTIM: &str = "quickstart-paris-1";

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        spec.faults.clear();
        spec.deadline = "240s".parse().ok();
        if let ApplicationSpec::Heat(heat) = &mut spec.application {
            heat.steps = Some(1500); // 30 s of computation
        }
    })
    .await?;
    let has_checkpoints =
        |it: &FederationStatus| !it.clusters.is_empty() && it.clusters.iter().all(|it| it.checkpoints >= 2);
    ns.wait(QUICK_START, "two checkpoints", Duration::from_secs(120), has_checkpoints).await?;
    let pod = ns.api::<Pod>().get(VICTIM).await?;
    let uid = pod.uid().ok_or("the pod has no UID")?;
    let node = pod.spec.and_then(|it| it.node_name).ok_or("the pod is not on a node")?;
    let machine = Machine::find(&ns.client, &node).await?;
    let outcome = restorable(run_steps(&ns, &machine, &uid)).await;
    // Restore the machine even after a failure.
    machine.signal_pod(&uid, "CONT").await?;
    machine.run("systemctl start kubelet").await?;
    machine.admit(true).await?;
    outcome?;
    let told = ns.recovers(QUICK_START, "paris").await?;
    assert!(told.contains("DeclaredFailed") || told.contains("PlaceLost"), "{told:?}");
    ns.delete(QUICK_START).await
}

async fn run_steps(ns: &TestNamespace, machine: &Machine, uid: &str) -> Result<(), Failure> {
    machine.admit(false).await?;
    machine.run("systemctl stop kubelet").await?;
    machine.signal_pod(uid, "STOP").await?;
    // The supervisor requests the deletion of the pod, which the kubelet would have to confirm.
    let within = Duration::from_secs(60);
    let is_condemned = |it: Option<&Pod>| it.is_some_and(|it| it.metadata.deletion_timestamp.is_some());
    ns.until::<Pod>(VICTIM, "the pod is being deleted", within, is_condemned).await?;
    ns.kill_pod(VICTIM).await?;
    let runs_elsewhere = |it: Option<&Pod>| {
        let another = it.filter(|it| it.uid().as_deref() != Some(uid));
        another.and_then(|it| it.status.as_ref()?.phase.as_deref()).is_some_and(|it| it == "Running")
    };
    ns.until::<Pod>(VICTIM, "another pod runs", within, runs_elsewhere).await?;
    machine.signal_pod(uid, "CONT").await?;
    let is_over_it = |it: &FederationStatus| it.rollbacks.is_some_and(|it| it >= 1);
    ns.wait(QUICK_START, "the rollback", within, is_over_it).await.map(drop)
}
