//! Processes keep their storage on volumes, and one volume is deleted with its pod. The process begins a new life on
//! an empty volume, and its cluster rolls back.

use std::time::Duration;

use faultline_api::resource::{Kubernetes, Volume};
use faultline_client::status::FederationStatus;
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;

const POD: &str = "quickstart-paris-1";
const CLAIM: &str = "data-quickstart-paris-1";

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        spec.faults.clear();
        let volume = Volume { size: "64MiB".parse().expect("a size"), keep: false, storage_class: None };
        spec.kubernetes = Some(Kubernetes { volumes: Some(volume), ..Kubernetes::default() });
    })
    .await?;
    let has_checkpoints =
        |it: &FederationStatus| it.clusters.iter().all(|it| it.checkpoints >= 2) && !it.clusters.is_empty();
    ns.wait(QUICK_START, "two checkpoints", Duration::from_secs(120), has_checkpoints).await?;
    let claims = ns.api::<PersistentVolumeClaim>();
    let (pod, claim) = (ns.api::<Pod>().get(POD).await?.uid(), claims.get(CLAIM).await?.uid());
    claims.delete(CLAIM, &DeleteParams::default()).await?;
    ns.api::<Pod>().delete(POD, &DeleteParams::default()).await?;
    let within = Duration::from_secs(60);
    let is_new = |it: Option<&Pod>| it.is_some_and(|it| it.uid() != pod);
    ns.until::<Pod>(POD, "the pod is replaced", within, is_new).await?;
    let is_new = |it: Option<&PersistentVolumeClaim>| it.is_some_and(|it| it.uid() != claim);
    ns.until::<PersistentVolumeClaim>(CLAIM, "the volume is replaced", within, is_new).await?;
    let told = ns.recovers(QUICK_START, "paris").await?;
    assert!(told.contains("PlaceLost") || told.contains("StorageLost"), "{told:?}");
    ns.delete(QUICK_START).await
}
