//! The quick start, as new users run it.

use std::collections::BTreeSet;
use std::time::Duration;

use faultline_client::status::{FederationStatus, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|_| {}).await?;
    let is_running = |it: &FederationStatus| it.holds(condition::PODS_READY);
    ns.wait(QUICK_START, "all pods run", 2 * SOON, is_running).await?;
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
    only_the_record_is_kept(&ns).await
}

/// After the run, only the supervisor's pod stays, even if another client scales a set.
async fn only_the_record_is_kept(ns: &TestNamespace) -> Result<(), Failure> {
    let pods_are_deleted = async || {
        for cluster in ["paris", "rennes"] {
            for node in 0..3 {
                let is_gone = |it: Option<&Pod>| it.is_none();
                let pod = format!("{QUICK_START}-{cluster}-{node}");
                ns.until(&pod, "the pods of the processes are deleted", SOON, is_gone).await?;
            }
        }
        let left: Vec<String> = ns.pods().await?.into_keys().collect();
        assert_eq!(left, [format!("{QUICK_START}-supervisor-0")]);
        Ok::<_, Failure>(())
    };
    pods_are_deleted().await?;
    let set = format!("{QUICK_START}-paris");
    let scaled = Patch::Merge(json!({ "spec": { "replicas": 3 } }));
    ns.api::<StatefulSet>().patch(&set, &PatchParams::default(), &scaled).await?;
    let has_no_pods = |it: Option<&StatefulSet>| {
        it.and_then(|it| it.spec.as_ref()).is_some_and(|it| it.replicas == Some(0))
    };
    ns.until(&set, "the set is scaled down again", SOON, has_no_pods).await?;
    pods_are_deleted().await
}
