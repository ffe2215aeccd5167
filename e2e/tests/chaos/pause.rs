//! A process is paused briefly, and resumes. Later, it is paused for longer than the time limit of failure detection:
//! this life never resumes, and the next one starts in the same pod.

use faultline_api::resource::{FaultSpec, Pause};
use faultline_client::status::Phase;
use faultline_e2e::{Failure, QUICK_START, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        let pause = |span: &str| {
            Some(Pause {
                process: None,
                cluster: "rennes".into(),
                node: Some(2),
                span: Some(span.parse().expect("a duration")),
                reported: None,
            })
        };
        spec.faults = vec![
            FaultSpec { at: "2s".parse().ok(), pause: pause("100ms"), ..FaultSpec::default() },
            FaultSpec { at: "4s".parse().ok(), pause: pause("3s"), ..FaultSpec::default() },
        ];
    })
    .await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let before = ns.pods().await?;
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    assert!(status.clusters.iter().any(|it| it.name == "rennes" && it.rollbacks >= 1), "{status:#?}");
    let supervisor = format!("{QUICK_START}-supervisor-0");
    assert_eq!(
        ns.pods().await?.get(&supervisor),
        before.get(&supervisor),
        "the supervisor's pod is unchanged"
    );
    Ok(())
}
