//! While a federation runs, all packets between the operator and the API server are dropped silently for a while, in
//! both directions. The run needs neither the operator nor the API server, and the status reports the run once the
//! operator is connected again.

use std::net::IpAddr;
use std::time::Duration;

use faultline_client::status::Phase;
use faultline_e2e::{Failure, Machine, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use tokio::time::sleep;

const PARTITIONED: Duration = Duration::from_secs(30);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let of_operator =
        ListParams::default().labels("app.kubernetes.io/name=faultline,app.kubernetes.io/component=operator");
    let operator = Api::<Pod>::all(ns.client.clone()).list(&of_operator).await?.items;
    let operator = operator.first().ok_or("there is no operator")?;
    let node =
        operator.spec.as_ref().and_then(|it| it.node_name.clone()).ok_or("the operator is not on a node")?;
    let address =
        operator.status.as_ref().and_then(|it| it.pod_ip.as_ref()).ok_or("the operator has no address")?;
    let address: IpAddr = address.parse()?;
    let machine = Machine::find(&ns.client, &node).await?;

    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    for rule in rules(address) {
        machine.run(&format!("iptables -I {rule}")).await?;
    }
    sleep(PARTITIONED).await;
    let counted = dropped(&machine, address).await;
    let mut removed = Ok(());
    for rule in rules(address) {
        removed = removed.and(machine.run(&format!("iptables -D {rule}")).await.map(drop));
    }
    removed?;
    assert!(counted? > 0, "no packet was dropped: the test has no effect");
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "faults are neither repeated nor lost");
    ns.delete(QUICK_START).await
}

/// Returns the rules that drop packets between the operator at this address and the API server, including
/// packets of existing connections.
fn rules(operator: IpAddr) -> [String; 2] {
    [
        format!("FORWARD -s {operator} -p tcp --dport 6443 -j DROP"),
        format!("FORWARD -d {operator} -p tcp --sport 6443 -j DROP"),
    ]
}

/// Returns the number of packets that the rules have dropped.
async fn dropped(machine: &Machine, operator: IpAddr) -> Result<u64, Failure> {
    let shown = machine.run(&format!("iptables -nvxL FORWARD | grep -w DROP | grep -w {operator}")).await?;
    Ok(shown.lines().filter_map(|it| it.split_whitespace().next()?.parse::<u64>().ok()).sum())
}
