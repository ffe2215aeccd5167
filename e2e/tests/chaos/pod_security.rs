//! A federation in a namespace with the profile `restricted` requests that links be emulated with traffic control: its
//! pods are rejected, and its status reports the remedy. Once a user applies the remedy, the federation runs.

use std::time::Duration;

use faultline_api::resource::{Emulation, Kubernetes};
use faultline_client::status::{Condition, FederationStatus, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, sleep};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        spec.kubernetes = Some(Kubernetes { links: Some(Emulation::Tc), ..Kubernetes::default() });
    })
    .await?;
    let ready = |it: &FederationStatus| it.condition(condition::PODS_READY).cloned();
    let is_refused = |it: &FederationStatus| ready(it).is_some_and(|it| it.reason == "PodSecurity");
    let within = Duration::from_secs(60);
    let status = ns.wait(QUICK_START, "Pod Security is named", within, is_refused).await?;
    let Condition { message, .. } = ready(&status).expect("the condition is set");
    let remedy = format!("namespace {} pod-security.kubernetes.io/enforce=privileged", ns.namespace);
    assert!(message.contains(&remedy), "{message}");

    ns.set_profile("privileged").await?;
    let status = ns.passes(QUICK_START).await?;
    assert!(status.shaping.is_some_and(|it| it.starts_with("tc")), "traffic control is used");
    Ok(())
}

/// Checks that the API server names NET_ADMIN as a pod's only violation of the profile `baseline`.
pub(crate) async fn only_net_admin(ns: &TestNamespace, pod: &str) -> Result<(), Failure> {
    let mut pod = ns.api::<Pod>().get(pod).await?;
    pod.metadata = kube::core::ObjectMeta { name: Some("again".into()), ..Default::default() };
    pod.status = None;
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    let pods: Api<Pod> = ns.api();
    ns.set_profile("baseline").await?;
    let why = refusal(&pods, &pod, true)
        .await?
        .ok_or("a pod with NET_ADMIN is allowed under the profile baseline")?;
    let named = r#"violates PodSecurity "baseline:latest": non-default capabilities (container "shaper" must not include "NET_ADMIN" in securityContext.capabilities.add)"#;
    assert!(why.contains(named), "{why}");
    ns.set_profile("privileged").await?;
    match refusal(&pods, &pod, false).await? {
        None => Ok(()),
        Some(why) => Err(format!("the profile privileged is not in effect: {why}").into()),
    }
}

/// Returns the reason why the API server would reject a pod. The API server learns of a changed profile through a
/// watch, so the query is repeated until the response is as expected, for at most ten seconds.
async fn refusal(pods: &Api<Pod>, pod: &Pod, expected: bool) -> Result<Option<String>, Failure> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let refusal = match pods.create(&dry_run, pod).await {
            Ok(_) => None,
            Err(kube::Error::Api(refused)) if refused.is_forbidden() => Some(refused.message),
            Err(other) => return Err(other.into()),
        };
        if refusal.is_some() == expected || Instant::now() > until {
            return Ok(refusal);
        }
        sleep(Duration::from_millis(100)).await;
    }
}
