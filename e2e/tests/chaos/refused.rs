//! The namespace's quota allows too few pods. The federation reports this in the API server's words. The wait exceeds
//! the run's deadline, and the federation still runs once the quota is removed.

use std::time::Duration;

use faultline_client::status::{FederationStatus, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tokio::time::sleep;

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let quota: ResourceQuota = serde_json::from_value(
        json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "2" } } }),
    )?;
    ns.api().create(&PostParams::default(), &quota).await?;
    ns.apply(|spec| spec.deadline = "45s".parse().ok()).await?;
    let reason = |it: &FederationStatus| {
        let it = it.condition(condition::PODS_READY)?;
        Some((it.status.clone(), it.reason.clone(), it.message.clone()))
    };
    let is_refused = |it: &FederationStatus| reason(it).is_some_and(|it| it.1 == "Quota");
    let status = ns.wait(QUICK_START, "the quota is named", Duration::from_secs(60), is_refused).await?;
    assert!(reason(&status).is_some_and(|it| it.2.contains("exceeded quota: small")), "{status:#?}");
    sleep(Duration::from_secs(50)).await;
    ns.api::<ResourceQuota>().delete("small", &DeleteParams::default()).await?;
    let all_run = |it: &FederationStatus| reason(it).is_some_and(|it| it.0 == "True");
    ns.wait(QUICK_START, "all pods run", Duration::from_secs(240), all_run).await?;
    ns.passes(QUICK_START).await?;
    Ok(())
}
