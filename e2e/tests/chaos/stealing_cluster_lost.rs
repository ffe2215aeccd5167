//! Task-based programs run under TIC, SEL and Satin, with work stealing. One process fails and returns. Then a whole
//! cluster is lost with its storage and never returns, and the others take over its tasks.

use faultline_e2e::{Failure, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    for name in ["tic", "sel", "satin"] {
        ns.apply_over_slow_links(name).await?;
        println!("    {name}");
        let status = ns.passes(name).await?;
        assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{name}: {status:#?}");
        assert!(
            status.worst_skew_micros.is_some_and(|it| it < 50_000),
            "{name}: {:?}",
            status.worst_skew_micros
        );
        ns.delete(name).await?;
    }
    Ok(())
}
