//! The operator is killed after a federation has been created, while the federation starts, while its links are
//! measured, while it runs, and after the run. Neither the run nor the final status is affected.

use faultline_api::resource::Phase;
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|_| {}).await?;
    for phase in [Phase::Pending, Phase::Starting, Phase::Linking, Phase::Running] {
        if phase > Phase::Pending {
            ns.reach(QUICK_START, phase).await?;
        }
        kill(&ns).await?;
    }
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "faults are neither repeated nor lost");
    kill(&ns).await?;
    ns.delete(QUICK_START).await
}

/// Kills the operator without a grace period.
async fn kill(ns: &TestNamespace) -> Result<(), Failure> {
    let pods: Api<Pod> = Api::all(ns.client.clone());
    let operators =
        ListParams::default().labels("app.kubernetes.io/name=faultline,app.kubernetes.io/component=operator");
    let operators = pods.list(&operators).await?;
    if operators.items.is_empty() {
        return Err("there is no operator".into());
    }
    for pod in operators {
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &pod.namespace().unwrap_or_default());
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
    }
    Ok(())
}
