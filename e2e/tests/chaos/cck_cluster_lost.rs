//! A planned program of tasks runs under CCK. One process fails and returns, then a whole cluster is lost with its
//! storage and replaced. Only the failed processes roll back.

use faultline_e2e::{Failure, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply_over_slow_links("cck").await?;
    let status = ns.passes("cck").await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{status:#?}");
    assert!(status.worst_skew_micros.is_some_and(|it| it < 50_000), "{:?}", status.worst_skew_micros);
    assert!(status.clusters.iter().any(|it| it.name == "rennes" && it.rollbacks >= 1), "{status:#?}");
    ns.delete("cck").await
}
