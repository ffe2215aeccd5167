//! A planned task-based program runs under CCK while one cluster joins and another leaves. A pod of the joining
//! cluster is killed before the cluster joins, and a pod of the leaving one after that cluster has left. Both
//! pods are replaced, and neither kill counts as a failure.

use std::time::Duration;

use faultline_api::resource::ApplicationSpec;
use faultline_client::status::{FederationStatus, condition};
use faultline_e2e::{Failure, Program, TestNamespace};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

const NAME: &str = "cck-elastic";
const SOON: Duration = Duration::from_secs(120);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply_sample(NAME, |federation| {
        let spec = &mut federation.spec;
        let between = spec.links.as_mut().and_then(|it| it.between.as_mut()).expect("they have a latency");
        between.latency = "50ms".parse().ok();
        // Leaves time to kill a pod before `nancy` joins, and for the crash between joining and leaving.
        spec.clusters[3].joins_after = "10s".parse().ok();
        spec.faults[0].at = "16s".parse().ok();
        spec.clusters[2].leaves_after = "22s".parse().ok();
        let ApplicationSpec::Jacobi(jacobi) = &mut spec.application else {
            panic!("the sample runs `jacobi`");
        };
        jacobi.iterations = Some(1000);
        spec.deadline = "150s".parse().ok();
    })
    .await?;
    let state = |it: &FederationStatus, of: &str, state: &str| {
        it.clusters.iter().any(|it| it.name == of && it.state.as_deref() == Some(state))
    };
    let is_awaited = |it: &FederationStatus| state(it, "nancy", "awaited") && ready(it) == Some("3/3");
    let status = ns.wait(NAME, "nancy is awaited", SOON, is_awaited).await?;
    assert!(status.holds(condition::PODS_READY), "its pods run: {status:#?}");
    replaced(&ns, "cck-elastic-nancy-2").await?;

    let has_joined = |it: &FederationStatus| state(it, "nancy", "running") && ready(it) == Some("4/4");
    let status = ns.wait(NAME, "nancy has joined", SOON, has_joined).await?;
    assert!(status.holds(condition::PODS_READY), "{status:#?}");

    ns.wait(NAME, "rennes has left", SOON, |it| state(it, "rennes", "left")).await?;
    replaced(&ns, "cck-elastic-rennes-0").await?;
    let are_all_ready = |it: &FederationStatus| {
        it.holds(condition::PODS_READY) && ready(it) == Some("3/3") && state(it, "rennes", "left")
    };
    ns.wait(NAME, "the pod of rennes runs again", SOON, are_all_ready).await?;

    let status = ns.passes(NAME).await?;
    assert_eq!(status.faults_done.as_deref(), Some("1/1"), "{status:#?}");
    let told = ns.event_reasons().await?;
    for reason in ["Joined", "Leaving", "Left"] {
        assert!(told.contains(reason), "{reason} in {told:?}");
    }
    assert!(!told.contains("FaultWithoutEffect"), "nancy had joined: {told:?}");

    let program = Program::built()?;
    let dir = tempfile::tempdir()?;
    let record = dir.path().join("record").display().to_string();
    let fetch = ["fetch", "federation/cck-elastic", "--out", &record, "--namespace", &ns.namespace];
    let fetched = program.run(&fetch).await?;
    assert_eq!(fetched.status, Some(0), "{}", fetched.stderr);
    let summary = program.run(&["check", &record, "--format", "json"]).await?.json()?;
    let properties = summary["properties"].as_array().ok_or("there are no properties")?;
    // Partitions moved with the clusters, and each had one host at a time.
    let found = properties.iter().find(|it| it["property"] == "oneHost").ok_or("it is not judged")?;
    assert!(found["verdict"] == "pass" && found["instances"].as_u64() > Some(0), "{found:#}");
    ns.delete(NAME).await
}

fn ready(status: &FederationStatus) -> Option<&str> {
    status.clusters_ready.as_deref()
}

/// Kills a pod, and waits until another has replaced it.
async fn replaced(ns: &TestNamespace, pod: &str) -> Result<(), Failure> {
    let uid = ns.api::<Pod>().get(pod).await?.uid();
    ns.kill_pod(pod).await?;
    let is_replaced = |it: Option<&Pod>| it.is_some_and(|it| it.uid() != uid);
    ns.until::<Pod>(pod, &format!("{pod} is replaced"), SOON, is_replaced).await?;
    Ok(())
}
