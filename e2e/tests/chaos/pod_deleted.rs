//! A user deletes a pod. Its process begins a new life in another pod, without its storage, and the cluster rolls
//! back.

use std::time::Duration;

use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;

const VICTIM: &str = "quickstart-paris-1";

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| spec.faults.clear()).await?;
    let has_checkpoints = |it: &faultline_client::status::FederationStatus| {
        it.clusters.iter().all(|it| it.checkpoints >= 2) && !it.clusters.is_empty()
    };
    ns.wait(QUICK_START, "two checkpoints", Duration::from_secs(120), has_checkpoints).await?;
    let uid = ns.api::<Pod>().get(VICTIM).await?.uid();
    ns.api::<Pod>().delete(VICTIM, &DeleteParams::default()).await?;
    let is_replaced = |it: Option<&Pod>| it.is_some_and(|it| it.uid() != uid);
    ns.until::<Pod>(VICTIM, "the pod is replaced", Duration::from_secs(60), is_replaced).await?;
    let told = ns.recovers(QUICK_START, "paris").await?;
    assert!(told.contains("PlaceLost"), "{told:?}");
    // On a busy machine, another process may be silent for too long.
    let silent = ns.event_messages("DeclaredFailed").await?;
    assert!(!silent.iter().any(|it| it.contains("paris-1")), "{silent:?}");
    Ok(())
}
