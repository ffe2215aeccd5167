//! The record of a run is kept when its federation is deleted. Another federation with the same name has its own run
//! and record, and does not start if its deletion would also delete the record that was kept.

use std::time::Duration;

use faultline_api::resource::{
    Crash, FaultSpec, FederationStatus, Kubernetes, ProtocolSpec, Volume, condition,
};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::DeleteParams;

const CLAIM: &str = "data-quickstart-supervisor-0";

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let volume = |keep| {
        let volume = Volume { size: "64MiB".parse().expect("a size"), keep, storage_class: None };
        Some(Kubernetes { results: Some(volume), ..Kubernetes::default() })
    };
    ns.apply(|spec| {
        spec.faults.clear();
        spec.kubernetes = volume(true);
    })
    .await?;
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("0/0"));
    ns.delete(QUICK_START).await?;
    let claims = ns.api::<PersistentVolumeClaim>();
    let kept = claims.get(CLAIM).await?.uid();

    ns.apply(|spec| spec.kubernetes = volume(false)).await?;
    let is_refused = |it: &FederationStatus| {
        it.condition(condition::ACCEPTED)
            .is_some_and(|it| it.reason == "NameTaken" && it.message.contains(CLAIM))
    };
    ns.wait(QUICK_START, "the volume is reported", Duration::from_secs(30), is_refused).await?;
    ns.delete(QUICK_START).await?;
    assert_eq!(claims.get(CLAIM).await?.uid(), kept, "the record is still there");

    ns.apply(|spec| {
        spec.seed = Some(8);
        spec.protocol = ProtocolSpec::Coordinated(Default::default());
        let crash =
            Crash { process: None, cluster: "paris".into(), node: Some(1), storage: None, returns: None };
        spec.faults = vec![FaultSpec { at: "4s".parse().ok(), crash: Some(crash), ..FaultSpec::default() }];
        spec.kubernetes = volume(true);
    })
    .await?;
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("1/1"), "it is another run: {status:#?}");
    ns.delete(QUICK_START).await?;
    claims.delete(CLAIM, &DeleteParams::default()).await?;
    Ok(())
}
