//! A program of tasks runs under TIC. One process fails and returns. Then a whole cluster is lost with its storage
//! and never returns, and the others take over its tasks.

use faultline_e2e::{Failure, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply_over_slow_links("tic").await?;
    let status = ns.passes("tic").await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{status:#?}");
    assert!(status.worst_skew_micros.is_some_and(|it| it < 50_000), "{:?}", status.worst_skew_micros);
    ns.delete("tic").await
}
