//! A user deletes a pod. Its process begins a new life in another pod, without its storage, and the cluster rolls
//! back.

use std::time::Duration;

use faultline_e2e::{Failure, QUICK_START, Room};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;

const VICTIM: &str = "quickstart-paris-1";

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply(|spec| spec.faults.clear()).await?;
    let has_checkpoints = |it: &faultline_api::resource::FederationStatus| {
        it.clusters.iter().all(|it| it.checkpoints >= 2) && !it.clusters.is_empty()
    };
    room.wait(QUICK_START, "two checkpoints", Duration::from_secs(120), has_checkpoints).await?;
    let uid = room.api::<Pod>().get(VICTIM).await?.uid();
    room.api::<Pod>().delete(VICTIM, &DeleteParams::default()).await?;
    let is_replaced = |it: Option<&Pod>| it.is_some_and(|it| it.uid() != uid);
    room.until::<Pod>(VICTIM, "the pod is replaced", Duration::from_secs(60), is_replaced).await?;
    let told = room.outlives(QUICK_START, "paris").await?;
    assert!(told.contains("PlaceLost"), "{told:?}");
    // On a busy machine, another process may be silent for too long.
    let silent = room.told_of("TakenForDead").await?;
    assert!(!silent.iter().any(|it| it.contains("paris-1")), "{silent:?}");
    Ok(())
}
