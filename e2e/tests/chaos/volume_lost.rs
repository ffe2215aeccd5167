//! Processes keep their storage on volumes, and one volume is deleted with its pod. The process begins a new life on
//! an empty volume, and its cluster rolls back.

use std::time::Duration;

use faultline_api::resource::{FederationStatus, Kubernetes, Volume};
use faultline_e2e::{Failure, QUICK_START, Room};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;

const POD: &str = "quickstart-paris-1";
const CLAIM: &str = "data-quickstart-paris-1";

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply(|spec| {
        spec.faults.clear();
        let volume = Volume { size: "64MiB".parse().expect("a size"), keep: false, storage_class: None };
        spec.kubernetes = Some(Kubernetes { volumes: Some(volume), ..Kubernetes::default() });
    })
    .await?;
    let has_checkpoints =
        |it: &FederationStatus| it.clusters.iter().all(|it| it.checkpoints >= 2) && !it.clusters.is_empty();
    room.wait(QUICK_START, "two checkpoints", Duration::from_secs(120), has_checkpoints).await?;
    let claims = room.api::<PersistentVolumeClaim>();
    let (pod, claim) = (room.api::<Pod>().get(POD).await?.uid(), claims.get(CLAIM).await?.uid());
    claims.delete(CLAIM, &DeleteParams::default()).await?;
    room.api::<Pod>().delete(POD, &DeleteParams::default()).await?;
    let within = Duration::from_secs(60);
    let is_new = |it: Option<&Pod>| it.is_some_and(|it| it.uid() != pod);
    room.until::<Pod>(POD, "the pod is replaced", within, is_new).await?;
    let is_new = |it: Option<&PersistentVolumeClaim>| it.is_some_and(|it| it.uid() != claim);
    room.until::<PersistentVolumeClaim>(CLAIM, "the volume is replaced", within, is_new).await?;
    let told = room.outlives(QUICK_START, "paris").await?;
    assert!(told.contains("PlaceLost") || told.contains("StorageLost"), "{told:?}");
    room.delete(QUICK_START).await
}
