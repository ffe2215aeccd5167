//! The samples of three protocols that need a process outside the clusters run in pods. Under HydEE, a process fails,
//! then a whole cluster, then two clusters together with the recovery process. The verdict of each run requires that
//! only failed groups roll back: clusters under HydEE, and single processes under the other two protocols.

use faultline_e2e::{Failure, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    for name in ["hydee", "full-logging", "pessimistic-logging"] {
        let faults = ns.apply_over_slow_links(name).await?.spec.faults.len();
        println!("    {name}");
        let status = ns.passes(name).await?;
        assert_eq!(status.faults_done, Some(format!("{faults}/{faults}")), "{name}");
        assert!(status.rollbacks.is_some_and(|it| it >= 1), "{name}: {status:#?}");
        ns.delete(name).await?;
    }
    Ok(())
}
