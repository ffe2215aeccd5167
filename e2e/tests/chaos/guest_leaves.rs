//! A cluster joins a federation under HC3I, fails, recovers and leaves. The supervisor's pod is deleted before the
//! cluster joins: the next supervisor still lets it join and leave.

use std::time::Duration;

use faultline_api::resource::{ApplicationSpec, Kubernetes, Synthetic, Traffic, Volume};
use faultline_client::status::FederationStatus;
use faultline_e2e::{Failure, TestNamespace};

const NAME: &str = "guest";
const SOON: Duration = Duration::from_secs(120);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.apply_sample(NAME, |federation| {
        let spec = &mut federation.spec;
        let between = spec.links.as_mut().and_then(|it| it.between.as_mut()).expect("they have a latency");
        between.latency = "50ms".parse().ok();
        // Leaves time to replace the supervisor before `nancy` joins, and between the faults.
        spec.clusters[2].joins_after = "15s".parse().ok();
        spec.clusters[2].leaves_after = "22s".parse().ok();
        let ApplicationSpec::Synthetic(Synthetic { traffic: Traffic::Exact(traffic), .. }) =
            &mut spec.application
        else {
            panic!("the sample sends an exact number of messages");
        };
        traffic.duration = "50s".parse().expect("a duration");
        spec.faults[0].at = "25s".parse().ok();
        spec.faults[1].at = "36s".parse().ok();
        spec.deadline = "150s".parse().ok();
        let results = Volume { size: "1GiB".parse().expect("a size"), keep: false, storage_class: None };
        spec.kubernetes = Some(Kubernetes { results: Some(results), ..Kubernetes::default() });
    })
    .await?;
    let is = |it: &FederationStatus, state: &str| {
        it.clusters.iter().any(|it| it.name == "nancy" && it.state.as_deref() == Some(state))
    };
    ns.wait(NAME, "nancy is awaited", SOON, |it| is(it, "awaited")).await?;
    ns.kill_pod("guest-supervisor-0").await?;
    ns.wait(NAME, "nancy has joined", SOON, |it| is(it, "running")).await?;
    ns.wait(NAME, "nancy has left", SOON, |it| is(it, "left")).await?;
    let status = ns.passes(NAME).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{status:#?}");
    assert!(is(&status, "left"), "{status:#?}");
    let told = ns.event_reasons().await?;
    assert!(told.contains("SupervisorRestarted") && told.contains("Left"), "{told:?}");
    Ok(())
}
