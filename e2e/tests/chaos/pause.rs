//! A process is paused for longer than the time limit of failure detection. It is replaced in its pod, and never
//! resumes.

use faultline_api::resource::{Fault, Pause, Phase};
use faultline_e2e::{Failure, QUICK_START, Room};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    room.apply(|spec| {
        let pause = |span: &str| {
            Some(Pause {
                process: None,
                cluster: "rennes".into(),
                node: Some(2),
                span: span.parse().expect("a duration"),
            })
        };
        spec.faults = vec![
            Fault { at: "2s".parse().ok(), pause: pause("100ms"), ..Fault::default() },
            Fault { at: "4s".parse().ok(), pause: pause("3s"), ..Fault::default() },
        ];
    })
    .await?;
    room.reach(QUICK_START, Phase::Running).await?;
    let before = room.pods().await?;
    let status = room.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    assert!(status.clusters.iter().any(|it| it.name == "rennes" && it.rollbacks >= 1), "{status:#?}");
    let supervisor = format!("{QUICK_START}-supervisor-0");
    assert_eq!(room.pods().await?.get(&supervisor), before.get(&supervisor), "nothing happened to it");
    Ok(())
}
