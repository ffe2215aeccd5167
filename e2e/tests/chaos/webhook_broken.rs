//! An unresponsive admission webhook blocks the pods of a federation at first, and later all reports from the
//! operator. The federation reports the blocked pods in the API server's words. The blocked reports do not
//! affect the run, which is reported once the webhook is removed.

use std::time::Duration;

use faultline_client::status::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

const SILENT: Duration = Duration::from_secs(15);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let pods =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
    let reports = json!({
        "apiGroups": ["faultline.dev", "events.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
        "resources": ["federations/status", "events"],
    });
    let webhook = install(&ns, &pods).await?;
    ns.apply(|_| {}).await?;
    let refused = |it: &FederationStatus| {
        it.condition(condition::PODS_READY)
            .is_some_and(|it| it.status == "False" && it.message.contains("broken.example.com"))
    };
    let told = ns.wait(QUICK_START, "the webhook is named", Duration::from_secs(60), refused).await;
    remove(&ns, &webhook).await?;
    println!("    {}", told?.message.unwrap_or_default());
    // Sets whose pods were rejected are retried with increasing delays.
    ns.wait(QUICK_START, "the application runs", Duration::from_secs(200), |it| it.phase >= Phase::Running)
        .await?;

    let webhook = install(&ns, &reports).await?;
    // The API server takes a moment to notice a new webhook.
    let is_blocked = ns.is_unchanged(QUICK_START, (SILENT / 3, SILENT)).await;
    remove(&ns, &webhook).await?;
    assert!(is_blocked?, "a report was written despite the webhook");
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "faults are neither repeated nor lost");
    ns.delete(QUICK_START).await
}

/// Installs a webhook for these requests in the namespace of the scenario. No program listens at its address.
async fn install(ns: &TestNamespace, rule: &Value) -> Result<String, Failure> {
    let webhook: ValidatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": { "name": ns.namespace },
        "webhooks": [{
            "name": "broken.example.com",
            "clientConfig": { "url": "https://127.0.0.1:9/" },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": ns.namespace } },
            "rules": [rule],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"],
        }],
    }))?;
    Api::<ValidatingWebhookConfiguration>::all(ns.client.clone())
        .create(&PostParams::default(), &webhook)
        .await?;
    Ok(ns.namespace.clone())
}

async fn remove(ns: &TestNamespace, webhook: &str) -> Result<(), Failure> {
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(ns.client.clone());
    webhooks.delete(webhook, &DeleteParams::default()).await?;
    Ok(())
}
