//! The operator is killed after a federation has been created, while the federation starts, while its links are
//! measured, while it runs, and after the run. Neither the run nor the final status is affected. There is also a
//! federation that the operator cannot read. Each new operator lists it together with the others, and reports it.

use faultline_client::object::FederationObject;
use faultline_client::status::Phase;
use faultline_e2e::{Failure, QUICK_START, TestNamespace, read_sample};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, GetParams, ListParams, PostParams};
use kube::core::Request;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

const UNREADABLE: &str = "unreadable";
/// Number of lists in each other: too many for most parsers, but not for the API server.
const DEPTH: usize = 1_000;

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    create_unreadable(&ns).await?;
    ns.apply(|_| {}).await?;
    for phase in [Phase::Pending, Phase::Starting, Phase::Linking, Phase::Running] {
        if phase > Phase::Pending {
            ns.reach(QUICK_START, phase).await?;
        }
        kill(&ns).await?;
    }
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"), "faults are neither repeated nor lost");
    kill(&ns).await?;
    let get = federations(&ns).get(UNREADABLE, &GetParams::default())?;
    let unreadable = ns.client.request_text(get).await?;
    assert!(unreadable.contains("\"Rejected\"") && unreadable.contains("nests"), "{unreadable}");
    ns.delete(QUICK_START).await
}

fn federations(ns: &TestNamespace) -> Request {
    Request::new(FederationObject::url_path(&(), Some(&ns.namespace)))
}

async fn create_unreadable(ns: &TestNamespace) -> Result<(), Failure> {
    let mut federation = serde_json::to_value(read_sample(QUICK_START)?)?;
    federation["metadata"] = json!({ "name": UNREADABLE });
    federation["spec"]["application"] = json!({ "custom": { "name": "theirs", "parameter": "HERE" } });
    let nested = "[".repeat(DEPTH) + &"]".repeat(DEPTH);
    let text = federation.to_string().replace("\"HERE\"", &nested);
    let create = federations(ns).create(&PostParams::default(), text.into_bytes())?;
    ns.client.request_text(create).await?;
    Ok(())
}

/// Kills the operator without a grace period.
async fn kill(ns: &TestNamespace) -> Result<(), Failure> {
    let pods: Api<Pod> = Api::all(ns.client.clone());
    let operators =
        ListParams::default().labels("app.kubernetes.io/name=faultline,app.kubernetes.io/component=operator");
    let operators = pods.list(&operators).await?;
    if operators.items.is_empty() {
        return Err("there is no operator".into());
    }
    for pod in operators {
        let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &pod.namespace().unwrap_or_default());
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
    }
    Ok(())
}
