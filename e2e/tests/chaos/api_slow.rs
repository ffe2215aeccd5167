//! The API server runs for only a fifth of the time while a federation starts and runs. Everything takes longer, but
//! nothing else changes.

use faultline_e2e::{Failure, Machine, QUICK_START, TestNamespace};

/// A command that, for forty seconds, pauses the API server for four fifths of every second.
const SLOW: &str = "for _ in $(seq 40); do pkill -STOP -x kube-apiserver; sleep 0.8; \
    pkill -CONT -x kube-apiserver; sleep 0.2; done";

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let machine = Machine::of_control_plane(&ns.client).await?;
    ns.apply(|_| {}).await?;
    let slowed = machine.run(SLOW).await;
    // In case the loop was interrupted.
    machine.run("pkill -CONT -x kube-apiserver").await?;
    slowed?;
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    ns.delete(QUICK_START).await
}
