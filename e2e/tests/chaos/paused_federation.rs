//! A federation is paused from its start, begins, is paused again for longer than the time limit of failure
//! detection, and resumes. Neither pause has any cost.

use std::time::Duration;

use faultline_api::Federation;
use faultline_api::resource::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, QUICK_START, Room};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

/// Time limit of failure detection: long enough for a busy machine.
const DETECT_AFTER: &str = "2s";
/// Far longer than the time limit.
const STANDS: Duration = Duration::from_secs(6);

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    let pause = async |pause: bool| {
        let patch = Patch::Merge(json!({ "spec": { "pause": pause } }));
        room.api::<Federation>().patch(QUICK_START, &PatchParams::default(), &patch).await
    };
    let paused =
        |it: &FederationStatus| it.condition(condition::RUNNING).is_some_and(|it| it.reason == "Paused");
    let soon = Duration::from_secs(60);
    room.apply(|spec| {
        spec.pause = true;
        spec.faults = vec![];
        spec.failures.get_or_insert_default().detect_after = DETECT_AFTER.parse().ok();
    })
    .await?;
    let status = room.wait(QUICK_START, "it may not begin", soon, paused).await?;
    assert!(status.phase < Phase::Running, "{status:#?}");
    pause(false).await?;
    let computes = |it: &FederationStatus| {
        it.phase == Phase::Running
            && it.clusters.iter().all(|it| it.progress.as_ref().is_some_and(|it| !it.starts_with("0/")))
    };
    room.wait(QUICK_START, "it computes", soon, computes).await?;

    pause(true).await?;
    let stands = |it: &FederationStatus| it.phase == Phase::Paused && paused(it);
    room.wait(QUICK_START, "it is paused", soon, stands).await?;
    // Messages in transit at the time of the pause have been counted by then.
    sleep(Duration::from_secs(2)).await;
    let progress = async || -> Result<Vec<Option<String>>, Failure> {
        let federation: Federation = room.api().get(QUICK_START).await?;
        let status = federation.status.ok_or("a federation without a status")?;
        Ok(status.clusters.into_iter().map(|it| it.progress).collect())
    };
    let before = progress().await?;
    sleep(STANDS).await;
    assert_eq!(before, progress().await?, "no process computes during the pause");
    pause(false).await?;
    let status = room.passes(QUICK_START).await?;
    assert_eq!(status.rollbacks, Some(0), "{status:#?}");
    Ok(())
}
