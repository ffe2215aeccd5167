//! A pod of another owner has the name of a federation's pod. The status names the pod, which stays. Once it is
//! deleted, the federation runs.

use std::time::Duration;

use faultline_client::status::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

const POD: &str = "quickstart-paris-1";
const TOLD_WITHIN: Duration = Duration::from_secs(120);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    // No Kubernetes node has this label, so the pod never starts.
    let foreign: Pod = serde_json::from_value(json!({
        "metadata": { "name": POD },
        "spec": {
            "nodeSelector": { "faultline.dev/none": "none" },
            "containers": [{
                "name": "nothing",
                "image": "nothing:0",
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "capabilities": { "drop": ["ALL"] },
                    "runAsNonRoot": true,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
            }],
        },
    }))?;
    let uid = ns.api().create(&PostParams::default(), &foreign).await?.uid();
    ns.apply(|spec| spec.faults.clear()).await?;
    let is_told = |it: &FederationStatus| {
        it.condition(condition::PODS_READY).is_some_and(|it| it.reason == "NameTaken")
    };
    let status = ns.wait(QUICK_START, "the status names the pod", TOLD_WITHIN, is_told).await?;
    let told = status.condition(condition::PODS_READY).map(|it| it.message.clone()).unwrap_or_default();
    assert!(
        told.contains(&format!("the pod {POD} already exists")) && told.contains("has no owner"),
        "{told}"
    );
    assert_eq!(ns.api::<Pod>().get(POD).await?.uid(), uid, "the operator leaves the pod alone");
    ns.api::<Pod>().delete(POD, &DeleteParams::default()).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    Ok(())
}
