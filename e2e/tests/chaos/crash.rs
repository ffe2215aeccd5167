//! A process is killed in its pod, which survives: the next life starts in the same pod.

use std::time::Duration;

use faultline_api::resource::{Crash, FaultSpec};
use faultline_client::status::{FederationStatus, Phase};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        let crash = Crash::new("paris", Some(1));
        spec.faults = vec![FaultSpec { at: "4s".parse().ok(), ..crash.into() }];
    })
    .await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let before = ns.pods().await?;
    let is_done = |it: &FederationStatus| it.faults_done.as_deref() == Some("1/1");
    ns.wait(QUICK_START, "the crash", Duration::from_secs(60), is_done).await?;
    assert_eq!(ns.pods().await?, before, "a crash costs no pod and restarts no container");
    let status = ns.passes(QUICK_START).await?;
    assert!(status.rollbacks.is_some_and(|it| it >= 1), "{status:#?}");
    Ok(())
}
