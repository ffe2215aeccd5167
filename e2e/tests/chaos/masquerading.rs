//! The network masquerades traffic between Kubernetes nodes, and so hides each pod's address from the pods on other
//! nodes. Traffic control shapes packets at the sender, by their destination, and therefore does not depend on the
//! apparent source.

use faultline_api::resource::{Emulation, Kubernetes};
use faultline_client::status::condition;
use faultline_e2e::{Failure, Machine, QUICK_START, TestNamespace, restorable};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let nodes = Api::<Node>::all(ns.client.clone()).list(&ListParams::default()).await?.items;
    let mut machines = Vec::new();
    for node in &nodes {
        let range = node
            .spec
            .as_ref()
            .and_then(|it| it.pod_cidr.clone())
            .ok_or("a Kubernetes node has no range of pod addresses")?;
        machines.push((Machine::find(&ns.client, &node.name_any()).await?, range));
    }
    let rule = |what: &str, range: &str| {
        // Packets to another node get this node's address as their source.
        format!("iptables -t nat -{what} POSTROUTING -s {range} -o eth0 -p tcp --dport 7401 -j MASQUERADE")
    };
    let went = restorable(async {
        for (machine, range) in &machines {
            machine.run(&rule("I", range)).await?;
        }
        shaped(&ns, &machines).await
    });
    let went = went.await;
    let mut restored = Ok(());
    for (machine, range) in &machines {
        restored = restored.and(machine.run(&rule("D", range)).await.map(drop));
    }
    went.and(restored)
}

async fn shaped(ns: &TestNamespace, machines: &[(Machine, String)]) -> Result<(), Failure> {
    ns.set_profile("privileged").await?;
    ns.apply(|spec| {
        spec.kubernetes = Some(Kubernetes { links: Some(Emulation::Tc), ..Kubernetes::default() });
    })
    .await?;
    let status = ns.passes(QUICK_START).await?;
    assert!(status.holds(condition::LINKED), "{status:?}");
    let mut hidden = 0;
    for (machine, _) in machines {
        let counted = machine.run("iptables -t nat -nvxL POSTROUTING | grep MASQUERADE | grep 7401").await?;
        hidden += counted.split_whitespace().next().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    }
    assert!(hidden > 0, "no connection between processes was masqueraded: the test has no effect");
    Ok(())
}
