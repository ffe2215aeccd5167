//! The operator is killed while a federation starts, and again while it runs. The run does not notice, and the status
//! ends as it would have.

use std::time::Duration;

use faultline_api::resource::{FederationStatus, Phase};
use faultline_e2e::{Failure, Room};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply("quickstart", |_| {}).await?;
    kill(&room).await?;
    let runs = |it: &FederationStatus| it.phase == Phase::Running;
    room.wait("quickstart", "the application runs", Duration::from_secs(120), runs).await?;
    kill(&room).await?;
    let status = room.verdict("quickstart").await?;
    assert_eq!(status.verdict.as_deref(), Some("pass"), "{status:#?}");
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "neither repeated nor forgotten");
    Ok(())
}

/// Without a warning.
async fn kill(room: &Room) -> Result<(), Failure> {
    let pods: Api<Pod> = Api::all(room.client.clone());
    let operators =
        ListParams::default().labels("app.kubernetes.io/name=faultline,app.kubernetes.io/component=operator");
    let operators = pods.list(&operators).await?;
    if operators.items.is_empty() {
        return Err("there is no operator to kill".into());
    }
    for pod in operators {
        let pods: Api<Pod> = Api::namespaced(room.client.clone(), &pod.namespace().unwrap_or_default());
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
    }
    Ok(())
}
