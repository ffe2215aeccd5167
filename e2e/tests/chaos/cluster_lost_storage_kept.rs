//! All processes of a cluster are killed simultaneously. Their storage is kept, and they are restored from it.

use faultline_api::resource::{Fate, FaultSpec, LoseCluster};
use faultline_client::status::Phase;
use faultline_e2e::{Failure, QUICK_START, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        let lose = LoseCluster { storage: Some(Fate::Kept), ..LoseCluster::new("paris") };
        spec.faults = vec![FaultSpec { at: "6s".parse().ok(), ..lose.into() }];
    })
    .await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let status = ns.passes(QUICK_START).await?;
    assert!(status.clusters.iter().any(|it| it.name == "paris" && it.rollbacks >= 1), "{status:#?}");
    assert!(status.worst_skew_micros.is_some_and(|it| it < 50_000), "{:?}", status.worst_skew_micros);
    Ok(())
}
