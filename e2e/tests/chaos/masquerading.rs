//! The network hides the addresses of pods from each other, like a network that masquerades between Kubernetes nodes.
//! Traffic control shapes packets at the sender, by their destination, so that nothing depends on their apparent
//! source.

use faultline_api::resource::{Emulation, Kubernetes, condition};
use faultline_e2e::{Failure, Machine, QUICK_START, Room};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    let nodes = Api::<Node>::all(room.client.clone()).list(&ListParams::default()).await?.items;
    let mut machines = Vec::new();
    for node in &nodes {
        let range =
            node.spec.as_ref().and_then(|it| it.pod_cidr.clone()).ok_or("a node without a range of pods")?;
        machines.push((Machine::find(&room.client, &node.name_any()).await?, range));
    }
    let rule = |what: &str, range: &str| {
        // Packets to another node have this node's own address as their source.
        format!("iptables -t nat -{what} POSTROUTING -s {range} -o eth0 -p tcp --dport 7401 -j MASQUERADE")
    };
    for (machine, range) in &machines {
        machine.run(&rule("I", range)).await?;
    }
    let went = shaped(&room, &machines).await;
    for (machine, range) in &machines {
        machine.run(&rule("D", range)).await?;
    }
    went
}

async fn shaped(room: &Room, machines: &[(Machine, String)]) -> Result<(), Failure> {
    room.set_profile("privileged").await?;
    room.apply(|spec| {
        spec.kubernetes = Some(Kubernetes { links: Some(Emulation::Tc), ..Kubernetes::default() });
    })
    .await?;
    let status = room.passes(QUICK_START).await?;
    assert!(status.holds(condition::LINKED), "{status:?}");
    let mut hidden = 0;
    for (machine, _) in machines {
        let counted = machine.run("iptables -t nat -nvxL POSTROUTING | grep MASQUERADE | grep 7401").await?;
        hidden += counted.split_whitespace().next().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    }
    assert!(hidden > 0, "no connection between processes was masqueraded: nothing was tried");
    Ok(())
}
