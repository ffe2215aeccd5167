//! The operator is killed after the creation of a federation, while it starts, while its links are measured, while it
//! runs, and once it is over. The run is not affected, and neither is the final status.

use faultline_api::resource::Phase;
use faultline_e2e::{Failure, QUICK_START, Room};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply(|_| {}).await?;
    for phase in [Phase::Pending, Phase::Starting, Phase::Linking, Phase::Running] {
        if phase > Phase::Pending {
            room.reach(QUICK_START, phase).await?;
        }
        kill(&room).await?;
    }
    let status = room.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "neither repeated nor forgotten");
    kill(&room).await?;
    room.delete(QUICK_START).await
}

/// Kills the operator without a grace period.
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
