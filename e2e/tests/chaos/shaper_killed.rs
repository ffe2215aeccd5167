//! Shapers are killed and replaced while the application runs. Their settings stay in effect, and the new
//! shapers apply later changes. NET_ADMIN is the only capability of a shaper that the profile `baseline`
//! forbids.

use std::time::Duration;

use faultline_api::resource::{ApplicationSpec, Crash, Emulation, FaultSpec, Kubernetes, LinkChange};
use faultline_client::status::{Phase, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::Pod;

use super::pod_security::only_net_admin;

const VICTIMS: [&str; 2] = ["quickstart-paris-0", "quickstart-rennes-1"];

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    ns.set_profile("privileged").await?;
    ns.apply(|spec| {
        spec.kubernetes = Some(Kubernetes { links: Some(Emulation::Tc), ..Kubernetes::default() });
        if let ApplicationSpec::Heat(heat) = &mut spec.application {
            heat.steps = Some(1500); // 30 s of computation
            // A checkpoint must not keep the slower link busy: in the kernel, measurements wait behind it.
            heat.state = "64KiB".parse().ok();
        }
        let change = LinkChange {
            from: "paris".into(),
            to: "rennes".into(),
            preset: None,
            latency: "8ms".parse().ok(),
            jitter: None,
            bandwidth: "50Mbit".parse().ok(),
            loss: None,
            span: None,
        };
        let crash = Crash::new("rennes", Some(1));
        spec.faults = vec![
            FaultSpec { at: "14s".parse().ok(), link: Some(change), ..FaultSpec::default() },
            FaultSpec { at: "16s".parse().ok(), crash: Some(crash), ..FaultSpec::default() },
        ];
    })
    .await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    only_net_admin(&ns, VICTIMS[0]).await?;
    for victim in VICTIMS {
        ns.restart_container(victim, "shaper").await?;
    }
    for victim in VICTIMS {
        let restarts = |pod: &Pod, name: &str| {
            let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
            let it = statuses.iter().find(|it| it.name == name)?;
            it.state.as_ref()?.running.as_ref()?;
            Some(it.restart_count)
        };
        let is_another = |it: Option<&Pod>| it.and_then(|it| restarts(it, "shaper")).is_some_and(|it| it > 0);
        let pod = ns.until::<Pod>(victim, "another shaper", Duration::from_secs(60), is_another).await?;
        let node = pod.as_ref().and_then(|it| restarts(it, "faultline"));
        assert_eq!(node, Some(0), "the other container does not restart");
    }
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    assert!(status.holds(condition::LINKED), "{status:?}");
    Ok(())
}
