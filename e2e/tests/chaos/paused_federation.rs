//! A federation is created paused, starts once the pause ends, is paused again for longer than the time limit
//! of failure detection, and resumes. Neither pause affects the run.

use std::time::Duration;

use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

/// Time limit of failure detection: long enough for a busy machine.
const DETECT_AFTER: &str = "2s";
/// Duration of the pause, far longer than the time limit.
const PAUSED: Duration = Duration::from_secs(6);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let pause = async |pause: bool| {
        let patch = Patch::Merge(json!({ "spec": { "pause": pause } }));
        ns.api::<FederationObject>().patch(QUICK_START, &PatchParams::default(), &patch).await
    };
    let paused =
        |it: &FederationStatus| it.condition(condition::RUNNING).is_some_and(|it| it.reason == "Paused");
    let soon = Duration::from_secs(60);
    ns.apply(|spec| {
        spec.pause = true;
        spec.faults = vec![];
        spec.failures.get_or_insert_default().detect_after = DETECT_AFTER.parse().ok();
    })
    .await?;
    let status =
        ns.wait(QUICK_START, "the federation is paused before the application starts", soon, paused).await?;
    assert!(status.phase < Phase::Running, "{status:#?}");
    pause(false).await?;
    let computes = |it: &FederationStatus| {
        it.phase == Phase::Running
            && it.clusters.iter().all(|it| it.progress.as_ref().is_some_and(|it| !it.starts_with("0/")))
    };
    ns.wait(QUICK_START, "the application computes", soon, computes).await?;

    pause(true).await?;
    let stands = |it: &FederationStatus| it.phase == Phase::Paused && paused(it);
    ns.wait(QUICK_START, "the federation is paused", soon, stands).await?;
    // After this delay, messages that were in transit at the time of the pause have been counted.
    sleep(Duration::from_secs(2)).await;
    let progress = async || -> Result<Vec<Option<String>>, Failure> {
        let federation: FederationObject = ns.api().get(QUICK_START).await?;
        let status = federation.status.ok_or("the federation has no status")?;
        Ok(status.clusters.into_iter().map(|it| it.progress).collect())
    };
    let before = progress().await?;
    sleep(PAUSED).await;
    assert_eq!(before, progress().await?, "no process computes during the pause");
    pause(false).await?;
    let status = ns.passes(QUICK_START).await?;
    ns.heartbeats_were_on_time().await?;
    assert_eq!(status.rollbacks, Some(0), "{status:#?}");
    Ok(())
}
