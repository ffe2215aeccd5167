//! A process is killed. As soon as its cluster starts to recover, another process of the cluster is killed:
//! the fault waits for a fact of the protocol.

use faultline_api::resource::{Crash, FaultSpec, When};
use faultline_core::FactKind;
use faultline_e2e::{Failure, QUICK_START, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        let crash = |node| Crash::new("paris", Some(node)).into();
        let recovers = When {
            of: None,
            fact: FactKind::RecoveryStarted,
            cluster: "paris".into(),
            node: None,
            occurrence: Some(1),
        };
        spec.faults = vec![
            FaultSpec { at: "4s".parse().ok(), ..crash(1) },
            FaultSpec { when: Some(recovers), ..crash(2) },
        ];
    })
    .await?;
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    assert!(status.clusters.iter().any(|it| it.name == "paris" && it.rollbacks >= 1), "{status:#?}");
    Ok(())
}
