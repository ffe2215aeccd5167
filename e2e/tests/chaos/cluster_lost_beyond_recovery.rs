//! All processes of a cluster are killed simultaneously. Their storage, which contained all replicas of their
//! checkpoints, is lost. The protocol is correct, but the run has no result: its verdict is `unknown`, and the status
//! gives the reason.

use faultline_api::resource::{Fate, FaultSpec, LoseCluster, ProtocolSpec, ReplicateTo};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply(|spec| {
        let ProtocolSpec::Hc3i(hc3i) = &mut spec.protocol else { panic!("the quick start runs HC3I") };
        hc3i.replicate_to = Some(ReplicateTo::SameCluster);
        let lose = LoseCluster { storage: Some(Fate::Lost), ..LoseCluster::new("rennes") };
        spec.faults = vec![FaultSpec { at: "6s".parse().ok(), ..lose.into() }];
    })
    .await?;
    let status = ns.verdict(QUICK_START).await?;
    assert_eq!(status.verdict.as_deref(), Some("unknown"), "{status:#?}");
    let rennes = status.clusters.iter().find(|it| it.name == "rennes").expect("the status lists the cluster");
    assert_eq!(rennes.state.as_deref(), Some("unrecoverable"), "{status:#?}");
    Ok(())
}
