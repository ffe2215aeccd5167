//! While a federation runs, the custom resource definition is replaced with one that checks nothing. A federation that
//! cannot be read is rejected, and does not block the others. A change that no rule rejects does not affect the run.
//! Both federations are deleted without leaving anything behind.

use std::time::Duration;

use faultline_api::Federation;
use faultline_api::resource::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace, restorable};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Resource};
use serde_json::{Value, json};
use tokio::time::sleep;

const DEFINITION: &str = "federations.faultline.dev";
const UNREADABLE: &str = "unreadable";
const WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let definitions: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let definition = serde_json::to_value(definitions.get(DEFINITION).await?.spec)?;
    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let mut weak = definition.clone();
    weak["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    weak["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = Value::Null;
    let outcome = restorable(async {
        replace(&definitions, &weak).await?;
        run_steps(&ns).await
    });
    let outcome = outcome.await;
    // Other scenarios need the original custom resource definition.
    replace(&definitions, &definition).await?;
    outcome?;
    let left = ns.remains(QUICK_START).await?;
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

async fn run_steps(ns: &TestNamespace) -> Result<(), Failure> {
    let objects: Api<DynamicObject> = Api::namespaced_with(
        ns.client.clone(),
        &ns.namespace,
        &kube::api::ApiResource::erase::<Federation>(&()),
    );
    let mut broken = DynamicObject::new(UNREADABLE, &kube::api::ApiResource::erase::<Federation>(&()));
    broken.data = json!({ "spec": { "clusters": "none", "unknown": 7 } });
    // API servers take a moment to use a new custom resource definition.
    let mut attempts = 20;
    while let Err(error) = objects.create(&PostParams::default(), &broken).await {
        attempts -= 1;
        if attempts == 0 {
            return Err(error.into());
        }
        sleep(Duration::from_millis(500)).await;
    }
    let before = ns.pods().await?;
    let fewer = json!({ "spec": {
        "seed": 99, "clusters": [{ "name": "paris", "nodes": 1 }, { "name": "nancy", "nodes": 3 }],
    } });
    let federations = ns.api::<Federation>();
    federations.patch(QUICK_START, &PatchParams::default(), &Patch::Merge(fewer)).await?;
    let refused = |it: &FederationStatus| {
        it.condition(condition::ACCEPTED)
            .is_some_and(|it| it.reason == "ChangeRefused" && it.message.contains("clusters"))
    };
    ns.wait(QUICK_START, "the change is refused", WITHIN, refused).await?;

    let told = async {
        loop {
            let it = objects.get(UNREADABLE).await?;
            let conditions = it.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if let Some(it) = conditions.into_iter().find(|it| it["reason"] == "Invalid") {
                return Ok::<_, Failure>(it);
            }
            sleep(Duration::from_millis(500)).await;
        }
    };
    let told = tokio::time::timeout(WITHIN, told)
        .await
        .map_err(|_| "the status does not report that the federation is rejected")??;
    println!("    {}", told["message"].as_str().unwrap_or_default());
    let pods = ns.pods().await?;
    let created: Vec<_> = pods.keys().filter(|it| !before.contains_key(*it)).collect();
    assert!(created.is_empty(), "pods were created for the refused change: {created:?}");

    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "{status:#?}");
    objects.delete(UNREADABLE, &DeleteParams::default()).await?;
    ns.delete(QUICK_START).await
}

/// Replaces the spec of the custom resource definition.
async fn replace(definitions: &Api<CustomResourceDefinition>, spec: &Value) -> Result<(), Failure> {
    let mut definition = definitions.get(DEFINITION).await?;
    definition.spec = serde_json::from_value(spec.clone())?;
    definition.meta_mut().managed_fields = None;
    definitions.replace(DEFINITION, &PostParams::default(), &definition).await?;
    Ok(())
}
