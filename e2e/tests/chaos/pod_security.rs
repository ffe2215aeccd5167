//! Links by traffic control in a namespace of the profile `restricted`: the pods are refused, and the federation says what
//! to do about it. When somebody has, it runs. NET_ADMIN is all that stands in the way.

use std::time::Duration;

use faultline_api::resource::{Condition, Emulation, FederationStatus, Kubernetes};
use faultline_e2e::{Failure, QUICK_START, Room};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, sleep};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply(|spec| {
        spec.kubernetes = Some(Kubernetes { links: Some(Emulation::Tc), ..Kubernetes::default() });
    })
    .await?;
    let ready = |it: &FederationStatus| it.conditions.iter().find(|it| it.kind == "PodsReady").cloned();
    let is_refused = |it: &FederationStatus| ready(it).is_some_and(|it| it.reason == "PodSecurity");
    let within = Duration::from_secs(60);
    let status = room.wait(QUICK_START, "Pod Security is named", within, is_refused).await?;
    let Condition { message, .. } = ready(&status).expect("waited for");
    let remedy = format!("namespace {} pod-security.kubernetes.io/enforce=privileged", room.namespace);
    assert!(message.contains(&remedy), "{message}");

    room.set_profile("privileged").await?;
    let status = room.passes(QUICK_START).await?;
    assert!(status.shaping.is_some_and(|it| it.starts_with("tc")), "traffic control has a part in it");
    Ok(())
}

/// Under the profile `baseline`, the API server names all that it has against a pod.
pub(crate) async fn only_net_admin(room: &Room, pod: &str) -> Result<(), Failure> {
    let mut pod = room.api::<Pod>().get(pod).await?;
    pod.metadata = kube::core::ObjectMeta { name: Some("again".into()), ..Default::default() };
    pod.status = None;
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    room.set_profile("baseline").await?;
    let pods: Api<Pod> = room.api();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    // The admission plugin learns of a namespace's labels from a watch.
    let until = Instant::now() + Duration::from_secs(10);
    let why = loop {
        match pods.create(&dry_run, &pod).await {
            Err(refused) => break refused.to_string(),
            Ok(_) if Instant::now() > until => {
                return Err("a pod with NET_ADMIN is allowed under the profile baseline".into());
            }
            Ok(_) => sleep(Duration::from_millis(100)).await,
        }
    };
    let named = r#"violates PodSecurity "baseline:latest": non-default capabilities (container "shaper" must not include "NET_ADMIN" in securityContext.capabilities.add)"#;
    assert!(why.contains(named), "{why}");
    room.set_profile("privileged").await
}
