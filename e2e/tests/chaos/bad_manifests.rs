//! An invalid federation is rejected at admission. Errors that admission cannot detect are reported in the status.

use std::time::Duration;

use faultline_api::resource::{FaultSpec, Kubernetes};
use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace, read_sample};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let refused = async |what: &str, change: fn(&mut faultline_api::FederationSpec)| match ns
        .apply(change)
        .await
    {
        Ok(_) => Err(Failure::from(format!(
            "a federation was admitted, although it should be rejected because of `{what}`"
        ))),
        Err(error) if error.to_string().contains(what) => Ok(()),
        Err(error) => Err(format!("a federation was rejected, but not because of `{what}`: {error}").into()),
    };
    refused("Too long", |spec| spec.clusters[0].name = "c".repeat(41)).await?;
    refused("Duplicate value", |spec| spec.clusters[1].name = "paris".into()).await?;
    refused("the federation has too many nodes", |spec| {
        for name in 'a'..='k' {
            spec.clusters.push(faultline_api::resource::ClusterSpec::new(&name.to_string(), 100_000));
        }
    })
    .await?;
    // Checks of `validate` that the API server repeats.
    let renamed = |spec: &mut faultline_api::FederationSpec| spec.clusters[1].name = "nancy".into();
    refused("there is no cluster `rennes` (found in `crash.cluster` of a fault)", renamed).await?;
    refused("there is no cluster `rennes` (found in `when.cluster` of a fault)", renamed).await?;
    refused("a cluster must not be named `supervisor`", |spec| spec.clusters[1].name = "supervisor".into())
        .await?;
    refused("cluster `paris` has no node with the number in `crash.node`", |spec| {
        spec.faults[0] = fault(json!({ "at": "4s", "crash": { "cluster": "paris", "node": 70 } }));
    })
    .await?;
    refused("the smallest cluster has no node with the number in `pause.node`", |spec| {
        spec.faults[0] = fault(json!({ "at": "4s", "pause": { "node": 70, "for": "1s" } }));
    })
    .await?;
    refused("there is no cluster `pari`", |spec| {
        spec.kubernetes = kubernetes(json!({ "pools": { "pari": "east" } }))
    })
    .await?;
    refused("there is no cluster `pari`", |spec| {
        spec.kubernetes = kubernetes(json!({ "sites": { "pari": {} } }))
    })
    .await?;
    match ns.apply_as("a.b", |_| {}).await {
        Err(error)
            if error.to_string().contains("`a.b` is not a valid name for a federation: use at most 40") => {}
        other => return Err(format!("the name `a.b` was not rejected as expected: {other:?}").into()),
    }

    // The operator compares the deadline with the computing time and with the times of faults; the API server does not.
    ns.apply(|spec| spec.deadline = "1ms".parse().ok()).await?;
    let rejected = |it: &FederationStatus| it.phase == Phase::Rejected;
    let status =
        ns.wait(QUICK_START, "the federation is rejected", Duration::from_secs(30), rejected).await?;
    assert!(status.message.as_ref().is_some_and(|it| it.contains("spec.deadline")), "{status:#?}");
    assert_eq!(ns.remains(QUICK_START).await?, [""; 0], "nothing was created");

    beyond_limits(&ns).await?;
    same_quantities(&ns).await?;
    // The status allows only known phases.
    let phase = Patch::Merge(json!({ "status": { "phase": "Sleeping" } }));
    match ns.api::<FederationObject>().patch_status(QUICK_START, &PatchParams::default(), &phase).await {
        Err(error) if error.to_string().contains("Unsupported value: \"Sleeping\"") => {}
        other => return Err(format!("the phase `Sleeping` was not rejected as expected: {other:?}").into()),
    }
    let patch = Patch::Merge(json!({ "spec": { "seed": 8 } }));
    match ns.api::<FederationObject>().patch(QUICK_START, &PatchParams::default(), &patch).await {
        Ok(_) => Err("a change to `seed` was admitted".into()),
        Err(error) if error.to_string().contains("cannot change") => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The API server does not know the limits of quantities, and the operator cannot read a quantity beyond its limit.
async fn beyond_limits(ns: &TestNamespace) -> Result<(), Failure> {
    const NAME: &str = "beyond-limits";
    let mut federation = serde_json::to_value(read_sample(QUICK_START)?)?;
    federation["metadata"] = json!({ "name": NAME });
    federation["spec"]["deadline"] = json!("100000h");
    let resource = ApiResource::erase::<FederationObject>(&());
    let objects: Api<DynamicObject> = Api::namespaced_with(ns.client.clone(), &ns.namespace, &resource);
    objects.create(&PostParams::default(), &serde_json::from_value(federation)?).await?;
    let refused = |it: &FederationStatus| {
        it.condition(condition::ACCEPTED).is_some_and(|it| {
            it.status == "False" && it.reason == "Invalid" && it.message.contains("100000h")
        })
    };
    let status = ns.wait(NAME, "the federation is rejected", Duration::from_secs(30), refused).await?;
    assert_eq!(status.phase, Phase::Rejected, "{status:#?}");
    assert_eq!(ns.remains(NAME).await?, [""; 0], "nothing was created");
    objects.delete(NAME, &DeleteParams::default()).await?;
    Ok(())
}

/// Quantities are accepted in the notation of Kubernetes, and an equal quantity in another notation is not a change.
async fn same_quantities(ns: &TestNamespace) -> Result<(), Failure> {
    const NAME: &str = "quantities";
    let resource = ApiResource::erase::<FederationObject>(&());
    let objects: Api<DynamicObject> = Api::namespaced_with(ns.client.clone(), &ns.namespace, &resource);
    let sample = faultline_api::samples::sample(QUICK_START).ok_or("the quick start is not a sample")?;
    let mut written = DynamicObject::new(NAME, &resource);
    let mut federation = serde_saphyr::from_str::<Value>(sample.text)?;
    let spec = &mut federation["spec"];
    // The federation must not start.
    spec["pause"] = json!(true);
    spec["kubernetes"] = json!({ "resources": { "cpu": "100m", "memory": "512Mi" } });
    written.data = json!({ "spec": spec });
    objects.create(&PostParams::default(), &written).await?;
    let patch = async |spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        objects.patch(NAME, &PatchParams::default(), &patch).await
    };
    patch(json!({ "deadline": "1m", "kubernetes": { "resources": { "cpu": "0.1", "memory": "512MiB" } } }))
        .await?;
    patch(json!({ "protocol": { "hc3i": { "checkpointEvery": "2000ms" } } })).await?;
    for (what, spec) in [
        ("`deadline` cannot change", json!({ "deadline": "61s" })),
        ("`kubernetes` cannot change", json!({ "kubernetes": { "resources": { "cpu": "101m" } } })),
        ("`protocol` cannot change", json!({ "protocol": { "hc3i": { "checkpointEvery": "3s" } } })),
        ("must be of type integer,string", json!({ "kubernetes": { "resources": { "cpu": 0.1 } } })),
    ] {
        match patch(spec).await {
            Err(error) if error.to_string().contains(what) => {}
            other => return Err(format!("a change was not rejected because of `{what}`: {other:?}").into()),
        }
    }
    objects.delete(NAME, &DeleteParams::default()).await?;
    Ok(())
}

fn fault(fault: Value) -> FaultSpec {
    serde_json::from_value(fault).expect("the JSON describes a fault")
}

fn kubernetes(kubernetes: Value) -> Option<Kubernetes> {
    Some(serde_json::from_value(kubernetes).expect("the JSON describes the settings of pods"))
}
