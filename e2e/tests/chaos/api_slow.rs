//! The API server works only a fifth of the time while a federation starts and runs. Everything takes longer, and nothing
//! else changes.

use faultline_e2e::{Failure, Machine, QUICK_START, Room};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

/// Forty seconds in which the API server stands for four fifths of every second.
const SLOW: &str = "for _ in $(seq 40); do pkill -STOP -x kube-apiserver; sleep 0.8; \
    pkill -CONT -x kube-apiserver; sleep 0.2; done";

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    let of_control = ListParams::default().labels("node-role.kubernetes.io/control-plane");
    let nodes = Api::<Node>::all(room.client.clone()).list(&of_control).await?;
    let node = nodes.iter().next().ok_or("there is no node of the control plane")?;
    let machine = Machine::find(&room.client, &node.name_any()).await?;
    room.apply(|_| {}).await?;
    let slowed = machine.run(SLOW).await;
    // Should the loop have been interrupted.
    machine.run("pkill -CONT -x kube-apiserver").await?;
    slowed?;
    let status = room.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    room.delete(QUICK_START).await
}
