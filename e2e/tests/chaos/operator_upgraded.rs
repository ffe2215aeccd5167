//! While a federation runs, a new operator takes over, one that would create the pods from another image. The pods of
//! the run stay unchanged. After the run, the pod with its record stays unchanged, too.

use std::time::Duration;

use faultline_client::status::Phase;
use faultline_e2e::{Failure, QUICK_START, TestNamespace, restorable};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

const IMAGE: &str = "FAULTLINE_NODE_IMAGE";

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let of_operator =
        ListParams::default().labels("app.kubernetes.io/name=faultline,app.kubernetes.io/component=operator");
    let all = Api::<Deployment>::all(ns.client.clone()).list(&of_operator).await?;
    let operator = all.items.first().ok_or("there is no operator")?;
    let own = Api::namespaced(ns.client.clone(), &operator.namespace().unwrap_or_default());
    let spec = operator.spec.as_ref().and_then(|it| it.template.spec.as_ref());
    let variables = spec.iter().flat_map(|it| &it.containers).flat_map(|it| it.env.iter().flatten());
    let image = variables.filter(|it| it.name == IMAGE).find_map(|it| it.value.clone());
    let image = image.ok_or("the operator has no image for pods")?;

    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let supervisor = format!("{QUICK_START}-supervisor-0");
    let before = ns.pods().await?;
    let went_on = restorable(async {
        upgrade(&own, &operator.name_any(), &format!("{image}-next")).await?;
        assert_eq!(ns.pods().await?, before, "no pod was replaced");
        let status = ns.passes(QUICK_START).await?;
        assert_eq!(status.faults_done.as_deref(), Some("2/2"));
        assert_eq!(ns.pods().await?.get(&supervisor), before.get(&supervisor), "the record is kept");
        ns.delete(QUICK_START).await
    });
    let went_on = went_on.await;
    upgrade(&own, &operator.name_any(), &image).await?;
    went_on
}

/// Makes the operator create pods with this image, and waits until the new operator is ready.
async fn upgrade(operators: &Api<Deployment>, name: &str, image: &str) -> Result<(), Failure> {
    let patch = json!({ "spec": { "template": { "spec": { "containers": [
        { "name": "operator", "env": [{ "name": IMAGE, "value": image }] },
    ] } } } });
    let patched = operators.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    let generation = patched.metadata.generation;
    let is_rolled_out = |it: Option<&Deployment>| {
        let status = it.and_then(|it| it.status.as_ref());
        status.is_some_and(|it| {
            it.observed_generation >= generation
                && it.updated_replicas == it.replicas
                && it.available_replicas == it.replicas
        })
    };
    let rolled_out = await_condition(operators.clone(), name, is_rolled_out);
    timeout(Duration::from_secs(60), rolled_out)
        .await
        .map_err(|_| "the upgraded operator did not become ready within 60 s")??;
    Ok(())
}
