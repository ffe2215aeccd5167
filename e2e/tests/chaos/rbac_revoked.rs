//! The operator's permissions are revoked while a federation runs, and restored before it ends. The run does not need
//! the permissions: its faults are injected, and the run is reported once the operator may write again.

use std::time::Duration;

use faultline_client::status::Phase;
use faultline_e2e::{Failure, QUICK_START, Skipped, TestNamespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

/// Name of the role with the operator's permissions, if it manages all namespaces.
const ROLE: &str = "faultline-operator";
const REVOKED: Duration = Duration::from_secs(20);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let roles: Api<ClusterRole> = Api::all(ns.client.clone());
    let role = roles.get_opt(ROLE).await?;
    let role = role.ok_or_else(|| Skipped(format!("there is no ClusterRole {ROLE}")))?;
    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    set_rules(&ns.client, &json!([])).await?;
    let is_blocked = ns.is_unchanged(QUICK_START, (REVOKED / 2, REVOKED / 2)).await;
    set_rules(&ns.client, &json!(role.rules)).await?;
    assert!(is_blocked?, "the operator wrote a status without permission");
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    ns.delete(QUICK_START).await
}

async fn set_rules(client: &Client, rules: &serde_json::Value) -> Result<(), Failure> {
    let patch = Patch::Merge(json!({ "rules": rules }));
    Api::<ClusterRole>::all(client.clone()).patch(ROLE, &PatchParams::default(), &patch).await?;
    Ok(())
}
