//! The API server is paused for half a minute. The run does not need it: faults are injected, the federation recovers
//! and finishes, and the status reports this afterwards.

use std::time::Duration;

use faultline_client::status::Phase;
use faultline_e2e::{Failure, Machine, QUICK_START, TestNamespace};
use tokio::time::sleep;

const FROZEN: Duration = Duration::from_secs(30);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let machine = Machine::of_control_plane(&ns.client).await?;
    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    machine.run("pkill -STOP -x kube-apiserver").await?;
    sleep(FROZEN).await;
    machine.run("pkill -CONT -x kube-apiserver").await?;
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    ns.delete(QUICK_START).await
}
