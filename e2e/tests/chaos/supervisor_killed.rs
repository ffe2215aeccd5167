//! The supervisor's pod is deleted while the application runs. With a record on a volume, the next supervisor resumes
//! the run: the first fault is not repeated, and the second one is not lost. Without a volume, the record is lost,
//! and the status reports that.

use faultline_api::resource::{Kubernetes, Volume};
use faultline_client::status::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, Program, QUICK_START, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let supervisor = format!("{QUICK_START}-supervisor-0");
    ns.apply(|spec| {
        let results = Volume { size: "1GiB".parse().expect("a size"), keep: false, storage_class: None };
        spec.kubernetes = Some(Kubernetes { results: Some(results), ..Kubernetes::default() });
        // The second fault waits for a fact after the restart.
        spec.faults[1].at = None;
        spec.faults[1].when = spec.faults[0].when.clone();
        if let Some(when) = &mut spec.faults[1].when {
            when.cluster = "paris".into();
            when.occurrence = Some(5);
        }
    })
    .await?;
    // The next supervisor cannot know of a crash that no place has confirmed.
    let is_done =
        |it: &FederationStatus| it.faults_done.as_deref() == Some("1/2") && it.worst_latency_micros.is_some();
    ns.wait(QUICK_START, "the first fault", std::time::Duration::from_secs(180), is_done).await?;
    ns.kill_pod(&supervisor).await?;
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "faults are neither repeated nor lost");
    let before_and_after = status.rollbacks.is_some_and(|it| it >= 3);
    assert!(before_and_after, "both clusters rolled back once more: {status:#?}");
    let told = ns.event_reasons().await?;
    assert!(told.contains("SupervisorRestarted") && !told.contains("DeclaredFailed"), "{told:?}");
    ns.delete(QUICK_START).await?;

    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    ns.kill_pod(&supervisor).await?;
    let status = ns.verdict(QUICK_START).await?;
    let completed = status.condition(condition::COMPLETED).expect("the run has a verdict");
    assert_eq!(
        (status.verdict.as_deref(), &*completed.reason),
        (Some("unknown"), "RecordLost"),
        "{}",
        completed.message
    );
    let fetch = ["fetch", "federation/quickstart", "--namespace", &ns.namespace];
    let fetched = Program::built()?.run(&fetch).await?;
    assert_eq!(fetched.status, Some(2), "{}", fetched.stderr);
    assert!(fetched.stderr.contains("the record of `quickstart` was lost"), "{}", fetched.stderr);
    Ok(())
}
