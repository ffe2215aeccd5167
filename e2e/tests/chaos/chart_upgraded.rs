//! The operator is installed with the chart in one namespace, and upgraded while a federation runs there. The run is
//! not affected. `helm uninstall` removes everything that `helm` created.

use std::process::Stdio;

use faultline_api::resource::Phase;
use faultline_e2e::{Failure, Operators, QUICK_START, Skipped, TestNamespace, kubeconfig, restorable};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::ListParams;
use tokio::process::Command;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/faultline");
const RELEASE: &str = "faultline-e2e";

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    if helm(&ns, &["version"]).await.is_err() {
        return Err(Skipped("helm is not installed".into()).into());
    }
    let operators = Operators::stop(&ns.client).await?;
    let went = restorable(upgraded(&ns)).await;
    let uninstalled = helm(&ns, &["uninstall", RELEASE, "--wait"]).await;
    operators.start().await?;
    went.and(uninstalled)?;
    let all = &ListParams::default();
    let left = [
        ns.names::<Deployment>(all).await?,
        ns.names::<Role>(all).await?,
        ns.names::<RoleBinding>(all).await?,
        ns.names::<NetworkPolicy>(all).await?,
        ns.names::<Secret>(all).await?,
        ns.names::<Service>(all).await?,
        ns.names::<ServiceAccount>(all)
            .await?
            .into_iter()
            .filter(|it| it != "ServiceAccount default")
            .collect(),
    ];
    assert_eq!(left.concat(), [""; 0], "helm did not delete everything");
    Ok(())
}

async fn upgraded(ns: &TestNamespace) -> Result<(), Failure> {
    // The custom resource definition is already installed, for all namespaces.
    let values = ["--set", "scope=namespace", "--set", "crds.install=false", "--wait", "--timeout", "2m"];
    helm(ns, &[&["install", RELEASE, CHART], &values[..]].concat()).await?;
    ns.apply(|_| {}).await?;
    ns.reach(QUICK_START, Phase::Running).await?;
    let pods = async || -> Result<_, Failure> {
        let mut pods = ns.pods().await?;
        pods.retain(|name, _| name.starts_with(QUICK_START));
        Ok(pods)
    };
    let before = pods().await?;
    let operators = || ns.api::<Deployment>();
    let generation = operators().get("faultline-operator").await?.metadata.generation;
    let replaced = ["--set", "operator.log=debug", "--set", "node.image.tag=another"];
    helm(ns, &[&["upgrade", RELEASE, CHART], &values[..], &replaced].concat()).await?;
    let upgraded = operators().get("faultline-operator").await?.metadata.generation;
    assert!(upgraded > generation, "the upgrade changed the operator's deployment");
    assert_eq!(pods().await?, before, "no pod of the federation was replaced");
    let status = ns.passes(QUICK_START).await?;
    assert_eq!(status.faults_done.as_deref(), Some("2/2"));
    ns.delete(QUICK_START).await
}

async fn helm(ns: &TestNamespace, arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("helm");
    command.args(arguments).args(["--namespace", &ns.namespace]).stdin(Stdio::null()).kill_on_drop(true);
    command.envs(kubeconfig().map(|it| ("KUBECONFIG", it)));
    let output = command.output().await?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`helm {}`: {}, {}", arguments.join(" "), output.status, said.trim()).into())
}
