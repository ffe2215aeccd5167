//! Pods in another namespace have all the labels and the names of a run's pods, and foreign pods in the same namespace
//! have all the labels. The operator does not query, inform or wait for any of them.

use std::time::Duration;

use faultline_api::Federation;
use faultline_api::resource::Phase;
use faultline_e2e::{Failure, QUICK_START, TestNamespace};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

const WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let neighbour = ns.another("neighbour").await?;
    let outcome = run_steps(&ns, &neighbour).await;
    neighbour.remove().await?;
    outcome
}

async fn run_steps(ns: &TestNamespace, neighbour: &TestNamespace) -> Result<(), Failure> {
    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let mut pods = Vec::new();
    for name in ["supervisor-0", "paris-1"].map(|it| format!("{QUICK_START}-{it}")) {
        pods.push((ns.api::<Pod>().get(&name).await?, name));
    }
    let mut forged = Vec::new();
    for (pod, name) in pods {
        forged.push((neighbour, forge(neighbour, &pod, &name).await?));
        forged.push((ns, forge(ns, &pod, &format!("{name}-bystander")).await?));
    }
    let policy = ns.api::<NetworkPolicy>().get(&format!("{QUICK_START}-pods")).await?;
    assert!(
        policy.spec.and_then(|it| it.ingress).is_some_and(|it| !it.is_empty()),
        "some traffic is allowed"
    );

    let status = ns.passes(QUICK_START).await?;
    assert_eq!(
        status.faults_done.as_deref(),
        Some("2/2"),
        "only the planned faults were injected: {status:#?}"
    );
    let told = ns.event_reasons().await?;
    assert!(!told.contains("SupervisorSilent"), "another program was queried: {told:?}");

    ns.api::<Federation>().delete(QUICK_START, &DeleteParams::default()).await?;
    let is_gone = |it: Option<&Federation>| it.is_none();
    ns.until::<Federation>(
        QUICK_START,
        "the federation is deleted, although foreign pods remain",
        WITHIN,
        is_gone,
    )
    .await?;
    for (ns, name) in forged {
        let pod = ns.api::<Pod>().get(&name).await?;
        assert!(pod.metadata.deletion_timestamp.is_none(), "{}/{name} was touched", ns.namespace);
    }
    Ok(())
}

/// Creates a running pod with the image and labels of another one, and a secret and an unused claim with the same
/// labels.
async fn forge(ns: &TestNamespace, like: &Pod, name: &str) -> Result<String, Failure> {
    let container = like.spec.as_ref().and_then(|it| it.containers.first());
    let image = container.and_then(|it| it.image.clone()).ok_or("the pod has no image")?;
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": like.metadata.labels },
        "stringData": { "key": "0".repeat(64) },
    }))?;
    ns.api::<Secret>().create(&PostParams::default(), &secret).await?;
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": like.metadata.labels },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } },
    }))?;
    ns.api::<PersistentVolumeClaim>().create(&PostParams::default(), &claim).await?;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": like.metadata.labels },
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "faultline",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                // Listens on the port of a supervisor's API.
                "args": ["agent", "--listen", "0.0.0.0:7301", "--key-file", "/key/key", "--data", "/data"],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                "volumeMounts": [
                    { "name": "key", "mountPath": "/key" }, { "name": "data", "mountPath": "/data" },
                ],
            }],
            "volumes": [
                { "name": "key", "secret": { "secretName": name } }, { "name": "data", "emptyDir": {} },
            ],
        },
    }))?;
    ns.api::<Pod>().create(&PostParams::default(), &pod).await?;
    let runs = |it: Option<&Pod>| {
        it.and_then(|it| it.status.as_ref()?.phase.as_deref()).is_some_and(|it| it == "Running")
    };
    ns.until::<Pod>(name, "the forged pod runs", WITHIN, runs).await?;
    Ok(name.to_owned())
}
