//! The record of a run is kept when its federation is deleted. Another federation with the same name has its own run
//! and record, and does not start if its deletion would also delete the record that was kept.

use std::path::Path;
use std::time::Duration;

use faultline_api::resource::{Crash, FaultSpec, Kubernetes, ProtocolSpec, Volume};
use faultline_client::status::{FederationStatus, condition};
use faultline_e2e::{Failure, Machine, Program, QUICK_START, Skipped, TestNamespace};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};

const CLAIM: &str = "data-quickstart-supervisor-0";

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let volume = |keep| {
        let volume = Volume { size: "64MiB".parse().expect("a size"), keep, storage_class: None };
        Some(Kubernetes { results: Some(volume), ..Kubernetes::default() })
    };
    let first = ns
        .apply(|spec| {
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

    let crash = Crash::new("paris", Some(1));
    let second = ns
        .apply(|spec| {
            spec.seed = Some(8);
            spec.protocol = ProtocolSpec::Coordinated(Default::default());
            let crash = FaultSpec { at: "4s".parse().ok(), crash: Some(crash), ..FaultSpec::default() };
            spec.faults = vec![crash];
            spec.kubernetes = volume(true);
        })
        .await?;
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("1/1"), "it is another run: {status:#?}");
    ns.delete(QUICK_START).await?;

    let records = tempfile::tempdir()?;
    copy_volume(&ns, records.path()).await?;
    for federation in [first, second] {
        let record = records.path().join(federation.uid().ok_or("the federation has no UID")?);
        let checked = Program::built()?.run(&["check", &record.display().to_string()]).await?;
        assert_eq!(checked.status, Some(0), "{}\n{}", checked.out, checked.stderr);
    }
    claims.delete(CLAIM, &DeleteParams::default()).await?;
    Ok(())
}

/// Copies the content of the kept volume, which must be a directory of a Kubernetes node on this machine.
async fn copy_volume(ns: &TestNamespace, to: &Path) -> Result<(), Failure> {
    let claim = ns.api::<PersistentVolumeClaim>().get(CLAIM).await?;
    let name = claim.spec.and_then(|it| it.volume_name).ok_or("the claim has no volume")?;
    let volume = Api::<PersistentVolume>::all(ns.client.clone()).get(&name).await?;
    let spec = volume.spec.unwrap_or_default();
    let directory = spec.host_path.map(|it| it.path).or(spec.local.map(|it| it.path));
    let terms = spec.node_affinity.and_then(|it| it.required).map(|it| it.node_selector_terms);
    let mut expressions = terms.into_iter().flatten().flat_map(|it| it.match_expressions.unwrap_or_default());
    let node = expressions.find_map(|it| it.values?.into_iter().next());
    let (Some(directory), Some(node)) = (directory, node) else {
        return Err(Skipped(format!("the volume {name} is not a directory of a Kubernetes node")).into());
    };
    Machine::find(&ns.client, &node).await?.copy(&directory, to).await
}
