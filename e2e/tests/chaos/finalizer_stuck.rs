//! A pod of a federation has a finalizer of another program, and that program does not remove it. The deletion of the
//! federation waits, and the status names the pod. Once the finalizer is removed, nothing remains.

use std::time::Duration;

use faultline_client::object::FederationObject;
use faultline_client::status::Phase;
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

const POD: &str = "quickstart-paris-1";
const TOLD_WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    finalizers(&ns, &["example.com/stuck"]).await?;
    ns.api::<FederationObject>().delete(QUICK_START, &DeleteParams::default()).await?;
    let status = ns.wait(QUICK_START, "the deletion names the pod", TOLD_WITHIN, |it| {
        it.phase == Phase::Deleting && it.message.as_ref().is_some_and(|it| it.contains(POD))
    });
    let status = status.await;
    // Otherwise, the namespace could not be deleted.
    finalizers(&ns, &[]).await?;
    println!("    {}", status?.message.unwrap_or_default());
    let is_gone = |it: Option<&FederationObject>| it.is_none();
    ns.until::<FederationObject>(QUICK_START, "the federation is gone", TOLD_WITHIN, is_gone).await?;
    let left = ns.remains(QUICK_START).await?;
    let left: Vec<&String> =
        left.iter().filter(|it| it.starts_with("Pod") || it.starts_with("StatefulSet")).collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

async fn finalizers(ns: &TestNamespace, finalizers: &[&str]) -> Result<(), Failure> {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    ns.api::<Pod>().patch(POD, &PatchParams::default(), &patch).await?;
    Ok(())
}
