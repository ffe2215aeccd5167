//! The supervisor's pod is deleted while the application runs. A run does not survive its supervisor, and says so: without
//! a volume for the record that nobody knows any more, with one that it ended there.

use faultline_api::resource::{FederationStatus, Kubernetes, Phase, Volume};
use faultline_e2e::{Failure, QUICK_START, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    let supervisor = format!("{QUICK_START}-supervisor-0");
    let completed = |it: &FederationStatus| {
        it.conditions
            .iter()
            .find(|it| it.kind == "Completed")
            .map(|it| (it.reason.clone(), it.message.clone()))
    };

    room.apply(|_| {}).await?;
    room.reach(QUICK_START, Phase::Running).await?;
    room.kill_pod(&supervisor).await?;
    let status = room.verdict(QUICK_START).await?;
    let (reason, message) = completed(&status).expect("it has a verdict");
    assert_eq!((status.verdict.as_deref(), &*reason), (Some("unknown"), "RecordLost"), "{message}");
    room.delete(QUICK_START).await?;

    room.apply(|spec| {
        let results = Volume { size: "1GiB".parse().expect("a size"), keep: false, storage_class: None };
        spec.kubernetes = Some(Kubernetes { results: Some(results), ..Kubernetes::default() });
    })
    .await?;
    room.reach(QUICK_START, Phase::Running).await?;
    room.kill_pod(&supervisor).await?;
    let status = room.verdict(QUICK_START).await?;
    let (reason, message) = completed(&status).expect("it has a verdict");
    assert_eq!((status.verdict.as_deref(), &*reason), (Some("unknown"), "Unknown"), "{message}");
    // The first is its word for having been told to end; the second that of a successor, when there was no time for it.
    let known = ["the run was interrupted", "the supervisor was restarted"];
    assert!(known.iter().any(|it| message.contains(it)), "{message}");
    Ok(())
}
