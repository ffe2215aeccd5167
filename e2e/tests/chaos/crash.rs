//! A process is killed in its pod, which goes on: the next life begins in the same pod.

use std::collections::BTreeMap;

use faultline_api::resource::{Crash, Fault};
use faultline_e2e::{Failure, Room};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply("quickstart", |spec| {
        let crash = Crash { process: None, cluster: "paris".into(), node: Some(1), storage: None };
        spec.faults = vec![Fault { at: "4s".parse().ok(), crash: Some(crash), ..Fault::default() }];
    })
    .await?;
    let is_running = |it: &faultline_api::resource::FederationStatus| {
        it.conditions.iter().any(|it| it.kind == "Running" && it.status == "True")
    };
    room.wait("quickstart", "the application runs", std::time::Duration::from_secs(120), is_running).await?;
    let before = pods(&room).await?;
    let fault_is_over =
        |it: &faultline_api::resource::FederationStatus| it.faults_done.as_deref() == Some("1/1");
    room.wait("quickstart", "the crash", std::time::Duration::from_secs(60), fault_is_over).await?;
    assert_eq!(pods(&room).await?, before, "a crash costs no pod and restarts no container");
    let status = room.verdict("quickstart").await?;
    assert_eq!(status.verdict.as_deref(), Some("pass"), "{status:#?}");
    assert!(status.rollbacks.is_some_and(|it| it >= 1));
    Ok(())
}

/// UID and restarts of every pod.
async fn pods(room: &Room) -> Result<BTreeMap<String, (Option<String>, i32)>, Failure> {
    let restarts = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|it| it.container_statuses.clone()).unwrap_or_default();
        statuses.iter().map(|it| it.restart_count).sum()
    };
    let pods = room.api::<Pod>().list(&ListParams::default()).await?;
    Ok(pods.iter().map(|it| (it.name_any(), (it.uid(), restarts(it)))).collect())
}
