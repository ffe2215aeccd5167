//! A process is killed in its pod, which survives: the next life begins in the same pod.

use std::time::Duration;

use faultline_api::resource::{Crash, Fault, FederationStatus, Phase};
use faultline_e2e::{Failure, QUICK_START, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply(|spec| {
        let crash =
            Crash { process: None, cluster: "paris".into(), node: Some(1), storage: None, returns: None };
        spec.faults = vec![Fault { at: "4s".parse().ok(), crash: Some(crash), ..Fault::default() }];
    })
    .await?;
    room.reach(QUICK_START, Phase::Running).await?;
    let before = room.pods().await?;
    let is_done = |it: &FederationStatus| it.faults_done.as_deref() == Some("1/1");
    room.wait(QUICK_START, "the crash", Duration::from_secs(60), is_done).await?;
    assert_eq!(room.pods().await?, before, "a crash costs no pod and restarts no container");
    let status = room.passes(QUICK_START).await?;
    assert!(status.rollbacks.is_some_and(|it| it >= 1), "{status:#?}");
    Ok(())
}
