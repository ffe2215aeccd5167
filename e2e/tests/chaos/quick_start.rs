//! The quick start, as new users run it.

use std::collections::BTreeSet;

use faultline_api::resource::{FederationStatus, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|_| {}).await?;
    let is_running = |it: &FederationStatus| it.holds(condition::PODS_READY);
    ns.wait(QUICK_START, "all pods run", std::time::Duration::from_secs(120), is_running).await?;
    let pods = ns.api::<Pod>().list(&ListParams::default()).await?;
    let hosts: BTreeSet<String> = pods.iter().filter_map(|it| it.spec.as_ref()?.node_name.clone()).collect();
    let nodes = Api::<Node>::all(ns.client.clone()).list(&ListParams::default()).await?;
    let tainted =
        |it: &&Node| it.spec.as_ref().and_then(|it| it.taints.as_ref()).is_some_and(|it| !it.is_empty());
    let workers = nodes.iter().filter(|it| !tainted(it)).count();
    if hosts.len() < workers.min(2) {
        return Err(
            format!("all pods are on {hosts:?}, although the cluster has {workers} worker nodes").into()
        );
    }

    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    assert!(status.rollbacks.is_some_and(|it| it >= 2), "both clusters rolled back");
    assert!(
        status.worst_skew_micros.is_some_and(|it| it < 50_000),
        "the processes of a cluster are killed simultaneously"
    );
    Ok(())
}
