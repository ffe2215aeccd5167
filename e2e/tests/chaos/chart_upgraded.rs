//! A user without cluster-wide permissions installs the operator with the chart in one namespace, and upgrades it while
//! a federation runs there. The run is not affected. `helm uninstall` removes everything that `helm` created.

use std::process::Stdio;

use faultline_client::status::Phase;
use faultline_e2e::{Failure, Operators, QUICK_START, Skipped, TestNamespace, kubeconfig, restorable};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use tokio::process::Command;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/faultline");
const RELEASE: &str = "faultline-e2e";
/// The user who installs the operator, and the name of the binding to the role `edit`.
const USER: &str = "faultline-e2e-user";

pub(crate) async fn run(ns: TestNamespace) -> Result<(), Failure> {
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["version", "--client"]);
    if helm(&ns, &["version"]).await.is_err() || run_command(kubectl).await.is_err() {
        return Err(Skipped("helm or kubectl is not installed".into()).into());
    }
    let operators = Operators::stop(&ns.client).await?;
    let went = restorable(upgraded(&ns)).await;
    let uninstalled = helm(&ns, &["uninstall", RELEASE, "--wait"]).await;
    operators.start().await?;
    went.and(uninstalled)?;
    permissions_of_operator(&ns, "delete").await?;
    ns.api::<RoleBinding>().delete(USER, &DeleteParams::default()).await?;
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
    let user: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": USER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER }],
    }))?;
    ns.api().create(&PostParams::default(), &user).await?;
    permissions_of_operator(ns, "apply --server-side").await?;
    // A deleted release has left this object.
    let left: ServiceAccount = serde_json::from_value(json!({ "metadata": {
        "name": "faultline-operator",
        "labels": { "app.kubernetes.io/managed-by": "Helm" },
        "annotations": { "meta.helm.sh/release-name": "old", "meta.helm.sh/release-namespace": "old" },
    } }))?;
    ns.api().create(&PostParams::default(), &left).await?;
    // The custom resource definition is already installed, for all namespaces.
    let values = "scope=namespace,crds.install=false,rbac.create=false,metrics.podMonitor=false";
    let values = ["--set", values, "--wait", "--timeout", "2m"];
    helm(ns, &[&["install", RELEASE, CHART, "--take-ownership"], &values[..]].concat()).await?;
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

/// Applies or deletes the operator's permissions, as an administrator.
async fn permissions_of_operator(ns: &TestNamespace, action: &str) -> Result<(), Failure> {
    let line = format!(
        "set -o pipefail; helm template {RELEASE} {CHART} --kube-version 1.33 --namespace {0} --set scope=namespace \
         --show-only templates/rights.yaml | kubectl {action} -f -",
        ns.namespace
    );
    let mut command = Command::new("bash");
    command.args(["-c", &line]);
    run_command(command).await
}

/// Runs a command of Helm as the user.
async fn helm(ns: &TestNamespace, arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("helm");
    command.args(arguments).args(["--namespace", &ns.namespace, "--kube-as-user", USER]);
    run_command(command).await
}

async fn run_command(mut command: Command) -> Result<(), Failure> {
    command.envs(kubeconfig().map(|it| ("KUBECONFIG", it))).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{:?}`: {}, {}", command.as_std(), output.status, said.trim()).into())
}
