//! The processes of all clusters are killed simultaneously. Their storage is kept, and they are restored from it.

use faultline_api::resource::{Fate, FaultSpec, LoseCluster};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        let lose = |cluster: &str| FaultSpec {
            at: "6s".parse().ok(),
            ..LoseCluster { storage: Some(Fate::Kept), ..LoseCluster::new(cluster) }.into()
        };
        spec.faults = vec![lose("paris"), lose("rennes")];
    })
    .await?;
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    assert!(status.clusters.iter().all(|it| it.rollbacks >= 1), "{status:#?}");
    Ok(())
}
