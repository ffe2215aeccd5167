//! A federation is deleted immediately after its creation, while its pods start, while its links are measured, while it
//! runs, and after the run. Each time, none of its objects remain.

use faultline_client::status::Phase;
use faultline_e2e::{Failure, QUICK_START, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    for phase in [Phase::Pending, Phase::Starting, Phase::Linking, Phase::Running, Phase::Completed] {
        ns.apply(|spec| {
            // A run without failures ends sooner.
            spec.faults.clear();
        })
        .await?;
        if phase > Phase::Pending {
            ns.reach(QUICK_START, phase).await?;
        }
        ns.delete(QUICK_START)
            .await
            .map_err(|it| format!("after a deletion in the phase {phase:?}: {it}"))?;
    }
    Ok(())
}
