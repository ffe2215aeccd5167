//! A Kubernetes node with processes of a federation stops, like a machine that loses power, and returns. Its
//! processes begin new lives there with their previous storage.

use faultline_client::status::Phase;
use faultline_e2e::{Failure, Machine, QUICK_START, Skipped, TestNamespace};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        spec.faults = vec![];
        // The node needs up to 15 s to return. Until then, its pods must not be replaced, because their storage would
        // be lost.
        spec.failures.get_or_insert_default().replace_after = "120s".parse().ok();
        spec.deadline = "240s".parse().ok();
    })
    .await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let pods = ns.api::<Pod>().list(&ListParams::default()).await?.items;
    let place = |pod: &Pod| pod.spec.as_ref().and_then(|it| it.node_name.clone());
    let supervisor = format!("{QUICK_START}-supervisor-0");
    let of_supervisor = pods.iter().find(|it| it.name_any() == supervisor).and_then(place);
    // Without a record on a volume, a run does not survive the loss of its supervisor's pod.
    let Some(victim) = pods.iter().filter_map(place).find(|it| Some(it) != of_supervisor.as_ref()) else {
        return Err(Skipped("all pods are on one Kubernetes node".into()).into());
    };
    let machine = Machine::find(&ns.client, &victim).await?;
    machine.stop().await?;
    machine.start().await?;
    let status = ns.passes(QUICK_START).await?;
    assert!(status.rollbacks.is_some_and(|it| it > 0), "{status:#?}");
    Ok(())
}
