//! While the application runs, a link is changed and a fault is added: both are applied, reported and recorded. Other
//! changes are rejected or refused, even if the operator cannot read them.

use std::time::Duration;

use faultline_api::resource::ApplicationSpec;
use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let patch = async |spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        ns.api::<FederationObject>().patch(QUICK_START, &PatchParams::default(), &patch).await
    };
    let made = ns.apply(|spec| {
        spec.faults.truncate(1);
        if let ApplicationSpec::Heat(heat) = &mut spec.application {
            heat.steps = Some(800); // 16 s of computation
        }
    });
    let made = made.await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let before = ns.pods().await?;

    let slower = json!({ "between": { "latency": "15ms", "jitter": "0s", "bandwidth": "100Mbit" } });
    patch(json!({ "links": slower })).await?;
    let mut faults = serde_json::to_value(&made.spec.faults)?;
    let added = json!({ "at": "6s", "crash": { "cluster": "paris", "node": 0 } });
    faults.as_array_mut().ok_or("the faults are not a list")?.push(added);
    patch(json!({ "faults": faults })).await?;
    // If several changes arrive together, only the last one counts, and the last one here will be refused.
    let is_planned = |it: &FederationStatus| it.faults_done.as_ref().is_some_and(|it| it.ends_with("/2"));
    ns.wait(QUICK_START, "the fault is planned", Duration::from_secs(20), is_planned).await?;
    let another = json!([{ "at": "50s", "crash": { "cluster": "paris", "node": 0 } }]);
    for (what, spec) in [
        ("`deadline` cannot change", json!({ "deadline": "100s" })),
        ("the faults of a running federation cannot change", json!({ "faults": another })),
    ] {
        match patch(spec).await {
            Err(error) if error.to_string().contains(what) => {}
            other => {
                return Err(
                    format!("the change should have been rejected with `{what}`; found {other:?}").into()
                );
            }
        }
    }
    let accepted = |wanted: &'static str| {
        move |it: &FederationStatus| it.condition(condition::ACCEPTED).is_some_and(|it| it.status == wanted)
    };
    let soon = Duration::from_secs(20);
    // Admission knows neither the names of processes nor which faults the run has accepted.
    let no_such_process = json!({ "at": "9s", "crash": { "process": "paris-70" } });
    let mut more = faults.clone();
    more.as_array_mut().ok_or("the faults are not a list")?.push(no_such_process);
    patch(json!({ "faults": more })).await?;
    let status = ns.wait(QUICK_START, "the change is refused", soon, accepted("False")).await?;
    assert!(status.phase >= Phase::Running && status.phase <= Phase::Completed, "{status:#?}");
    patch(json!({ "faults": faults })).await?;
    ns.wait(QUICK_START, "the refused change is withdrawn", soon, accepted("True")).await?;
    // Admission does not know the limits of quantities, and the operator cannot read a quantity beyond its limit.
    let loss = async |loss: Value| {
        let patch = Patch::Merge(json!({ "spec": { "links": { "between": { "loss": loss } } } }));
        ns.outlines().patch(QUICK_START, &PatchParams::default(), &patch).await
    };
    loss(json!("60%")).await?;
    let refused = |it: &FederationStatus| {
        it.condition(condition::ACCEPTED)
            .is_some_and(|it| it.reason == "ChangeRefused" && it.message.contains("60%"))
    };
    let status = ns.wait(QUICK_START, "the unreadable change is refused", soon, refused).await?;
    assert_eq!(status.phase, Phase::Running, "{status:#?}");
    loss(Value::Null).await?;
    ns.wait(QUICK_START, "the unreadable change is withdrawn", soon, accepted("True")).await?;
    patch(json!({ "faults": [] })).await?;
    ns.wait(QUICK_START, "the removal of the faults is refused", soon, accepted("False")).await?;

    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{status:#?}");
    let events = ns.api::<Event>().list(&ListParams::default()).await?;
    let told = |reason: &str, text: &str| {
        events.iter().any(|it| {
            it.reason.as_deref() == Some(reason) && it.message.as_ref().is_some_and(|it| it.contains(text))
        })
    };
    for (reason, text) in [
        ("LinkChanged", "15.0 ms"),
        ("LinksMeasured", ""),
        ("FaultAdded", "paris-0"),
        ("ChangeRefused", "70"),
    ] {
        assert!(told(reason, text), "no event {reason} with `{text}`");
    }
    let after = ns.pods().await?;
    let supervisor = format!("{QUICK_START}-supervisor-0");
    assert_eq!(before.get(&supervisor), after.get(&supervisor), "no pod was replaced because of a change");
    let federation: FederationObject = ns.api().get(QUICK_START).await?;
    assert_eq!(federation.name_any(), QUICK_START);
    Ok(())
}
