//! An admission webhook that does not answer refuses the pods of a federation, and later everything that the operator
//! reports. The first is reported, in the API server's words. The second does not disturb the run, which is reported
//! once the webhook is gone.

use std::time::Duration;

use faultline_api::resource::{FederationStatus, Phase, condition};
use faultline_e2e::{Failure, QUICK_START, Room};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

const SILENT: Duration = Duration::from_secs(15);

pub(crate) async fn run(room: Room) -> Result<(), Failure> {
    let pods =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
    let reports = json!({
        "apiGroups": ["faultline.dev", "events.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
        "resources": ["federations/status", "events"],
    });
    let webhook = install(&room, &pods).await?;
    room.apply(|_| {}).await?;
    let refused = |it: &FederationStatus| {
        it.condition(condition::PODS_READY)
            .is_some_and(|it| it.status == "False" && it.message.contains("broken.example.com"))
    };
    let told = room.wait(QUICK_START, "the webhook is named", Duration::from_secs(60), refused).await;
    remove(&room, &webhook).await?;
    println!("    {}", told?.message.unwrap_or_default());
    // Sets whose pods were refused are retried with increasing delays.
    room.wait(QUICK_START, "it runs", Duration::from_secs(200), |it| it.phase >= Phase::Running).await?;

    let webhook = install(&room, &reports).await?;
    sleep(SILENT).await;
    remove(&room, &webhook).await?;
    let status = room.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "neither repeated nor forgotten");
    room.delete(QUICK_START).await
}

/// Installs a webhook for requests of this kind in the namespace of the scenario. Nothing listens at its address.
async fn install(room: &Room, rule: &Value) -> Result<String, Failure> {
    let webhook: ValidatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": { "name": room.namespace },
        "webhooks": [{
            "name": "broken.example.com",
            "clientConfig": { "url": "https://127.0.0.1:9/" },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": room.namespace } },
            "rules": [rule],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"],
        }],
    }))?;
    Api::<ValidatingWebhookConfiguration>::all(room.client.clone())
        .create(&PostParams::default(), &webhook)
        .await?;
    Ok(room.namespace.clone())
}

async fn remove(room: &Room, webhook: &str) -> Result<(), Failure> {
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(room.client.clone());
    webhooks.delete(webhook, &DeleteParams::default()).await?;
    Ok(())
}
