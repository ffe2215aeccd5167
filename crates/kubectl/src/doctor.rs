//! `kubectl faultline doctor`: checks whether a cluster can run federations in a namespace, and which features of link
//! emulation the kernels of its Kubernetes nodes support.

mod quota;

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use faultline_client::api_error::described;
use faultline_client::naming::{INVOCATION, NODE_IMAGE};
use faultline_client::probe;
use faultline_console::command_error::{CommandError, Exit};
use faultline_console::examination::{CheckState, Examination, Finding, PlannedRun, can};
use faultline_console::interrupt;
use faultline_console::output::note;
use faultline_tc::probe::{Ability, Probe};
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use kube::{Api, Client, ResourceExt};
use miette::miette;
use tokio::time::{sleep, timeout};

use crate::arguments::DoctorArguments;
use crate::cluster::{INSTALL, KubernetesCluster, NO_DEFINITION, invocation, may};
use crate::waiting::until_interrupted;

/// Oldest minor version of Kubernetes 1 that supports the definition's rules.
const OLDEST: u32 = 33;
/// Rights that `run` and `fetch` need in the namespace of a federation: group, resource, subresource, verbs. Of the
/// secrets, they read only those with the tokens of readers, whose names depend on the federation.
const RIGHTS: [(&str, &str, &str, &[&str]); 3] = [
    ("faultline.dev", "federations", "", &["get", "create", "delete"]),
    ("", "secrets", "", &["get"]),
    ("", "pods", "portforward", &["get", "create"]),
];
/// Rights that campaigns need in their namespace, in the same form.
const CAMPAIGN_RIGHTS: [(&str, &str, &str, &[&str]); 5] = [
    ("batch", "jobs", "", &["get", "list", "create", "delete"]),
    ("", "configmaps", "", &["get", "create"]),
    ("", "pods", "", &["list", "delete"]),
    ("", "pods", "log", &["get"]),
    ("", "events", "", &["list"]),
];
/// Time limit for a probe.
const PROBED_WITHIN: Duration = Duration::from_secs(60);
/// Time limit for all checks before a run.
const CHECKED_WITHIN: Duration = Duration::from_secs(20);
/// Number of probes that run in parallel.
const AT_A_TIME: usize = 16;
/// Time between two checks of a probe.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// Label selector of the operators' deployments.
const OPERATORS: &str = "app.kubernetes.io/name=faultline,app.kubernetes.io/component=operator";

/// Executes `kubectl faultline doctor`.
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<Exit, CommandError> {
    examine(arguments)?.print(PlannedRun::of(arguments.nodes), arguments.tc, arguments.format)
}

/// Examines whether a cluster can run federations and, on request, which features of link emulation its kernels
/// support.
fn examine(arguments: &DoctorArguments) -> Result<Examination, CommandError> {
    crate::block_on(async {
        let cluster = KubernetesCluster::connect(&arguments.cluster).await?;
        let examiner = Examiner::of(&cluster)?;
        let namespace = examiner.namespace.clone();
        let version = examiner.client.apiserver_version().await;
        let version = version.map_err(|error| {
            CommandError::machine(format!("cannot read the version of the API server: {}", described(&error)))
        })?;
        let mut findings = vec![version_finding(&version.major, &version.minor)];
        findings.push(examiner.definition().await);
        findings.push(examiner.operator().await);
        findings.push(examiner.rights().await?);
        findings.push(examiner.campaign_rights().await?);
        let planned = PlannedRun::of(arguments.nodes);
        let (hosts, found) = examiner.hosts(planned).await;
        findings.push(found);
        findings.push(examiner.quotas(planned).await);
        let (mut traffic_control, mut kernel_delays) = (None, None);
        if arguments.tc {
            let interrupted = interrupt::quiet_flag();
            let (able, found) = tokio::select! {
                found = examiner.kernels(&hosts, &arguments.image) => found,
                () = until_interrupted(&interrupted) => return Err(examiner.interrupted().await),
            };
            traffic_control = Some(able);
            let lacks_netem = |it: &Finding| it.name == Ability::Netem.module() && it.state != CheckState::Ok;
            kernel_delays = Some(able && !found.iter().any(lacks_netem));
            findings.extend(found);
        } else {
            let detail = "not checked: requires a temporary pod on each Kubernetes node".to_owned();
            findings.push(missing(KERNELS, detail, "add `--tc`"));
        }
        let subject = format!("In the namespace `{namespace}`, this cluster");
        let by = "`spec.kubernetes.links: tc`";
        Ok(Examination { subject, by, traffic_control, kernel_delays, findings })
    })
}

/// Checks before a run what [`doctor`] checks. Only notes what may change during the run: the version of the definition,
/// and the room for pods.
///
/// # Errors
///
/// Fails, with the remedy, if the definition or the operator is missing, if the operator is not ready, or if the user lacks
/// a permission. What the user is not permitted to check is not checked.
pub(crate) async fn check_before_run(
    cluster: &KubernetesCluster,
    planned: PlannedRun,
) -> Result<(), CommandError> {
    let examiner = Examiner::of(cluster)?;
    let checked = async || {
        let definition = examiner.definition().await;
        if definition.state == CheckState::Missing {
            note_finding(&definition);
        }
        refuse(definition)?;
        refuse(examiner.operator().await)?;
        examiner.rights().await.map_or(Ok(()), refuse)?;
        let (_, room) = examiner.hosts(planned).await;
        let room = [room, examiner.quotas(planned).await];
        room.iter().filter(|it| it.state == CheckState::Fail).for_each(note_finding);
        Ok(())
    };
    // These questions must not keep a run from starting.
    timeout(CHECKED_WITHIN, checked()).await.unwrap_or(Ok(()))
}

/// Returns why no operator will report the end of a run, with the remedy; `None` if one will, or if this cannot be checked.
pub(crate) async fn without_operator(cluster: &KubernetesCluster) -> Option<(String, String)> {
    let found = timeout(CHECKED_WITHIN, Examiner::of(cluster).ok()?.operator()).await.ok()?;
    (found.state == CheckState::Fail).then_some((found.detail, found.remedy.unwrap_or_default()))
}

fn refuse(finding: Finding) -> Result<(), CommandError> {
    match finding {
        Finding { state: CheckState::Fail, detail, remedy, .. } => Err(CommandError::input(miette!(
            help = remedy.unwrap_or_default(),
            "the cluster cannot run federations: {detail}"
        ))),
        _ => Ok(()),
    }
}

fn note_finding(Finding { name, detail, remedy, .. }: &Finding) {
    let remedy = remedy.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
    note(format_args!("{name}: {detail}{remedy}"));
}

/// Name of the finding about kernels that could not be probed.
const KERNELS: &str = "kernels";

struct Examiner {
    client: Client,
    namespace: String,
    /// Identifies the probes of this examination.
    invocation: String,
}

impl Examiner {
    fn of(cluster: &KubernetesCluster) -> Result<Examiner, CommandError> {
        let namespace = cluster.namespace().to_owned();
        Ok(Examiner { client: cluster.client(), namespace, invocation: invocation()? })
    }

    /// Checks whether the cluster has the same definition of federations as this program.
    async fn definition(&self) -> Finding {
        const NAME: &str = "definition";
        let ours = faultline_client::object::definition();
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        match definitions.get(&ours.name_any()).await {
            Ok(theirs) if same_schema(&theirs, &ours) => {
                ok(NAME, format!("{}, the same as in this program", ours.name_any()))
            }
            Ok(_) => missing(
                NAME,
                format!(
                    "{} differs from the definition in this program (version {})",
                    ours.name_any(),
                    env!("CARGO_PKG_VERSION")
                ),
                "install the same version of the definition, the operator and this program",
            ),
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                // Every user may list the groups of resources.
                match self.client.list_api_groups().await {
                    Ok(known) if !known.groups.iter().any(|it| it.name == ours.spec.group) => no_definition(),
                    Ok(_) => ok(NAME, "exists, but you have no permission to read it".to_owned()),
                    Err(error) => missing(
                        NAME,
                        format!("not checked: {}", described(&error)),
                        "ask your administrator whether it exists",
                    ),
                }
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => no_definition(),
            Err(error) => fail(NAME, format!("cannot check the definition: {}", described(&error)), INSTALL),
        }
    }

    /// Finds the operator that watches the namespace. Any user can create a Deployment with the labels of an operator, so
    /// this program does not run the image that one names.
    async fn operator(&self) -> Finding {
        const NAME: &str = "operator";
        let chosen = ListParams::default().labels(OPERATORS);
        let mut operators = Api::<Deployment>::all(self.client.clone()).list(&chosen).await;
        let sees_only_this_namespace = operators.as_ref().is_err_and(is_forbidden);
        if sees_only_this_namespace {
            operators =
                Api::<Deployment>::namespaced(self.client.clone(), &self.namespace).list(&chosen).await;
        }
        let unchecked = |why: String| {
            let remedy = "ask your administrator whether the operator manages this namespace";
            missing(NAME, format!("not checked: {why}"), remedy)
        };
        let operators = match operators {
            Ok(operators) => operators.items,
            Err(error) => return unchecked(described(&error)),
        };
        let concerned: Vec<&Deployment> = operators.iter().filter(|it| self.is_managed(it)).collect();
        match concerned.as_slice() {
            [] if sees_only_this_namespace => {
                let why = format!(
                    "you have no permission to list Deployments outside the namespace `{}`, which has no operator",
                    self.namespace
                );
                unchecked(why)
            }
            [] => {
                let detail = format!("no visible operator manages the namespace `{}`", self.namespace);
                fail(NAME, detail, INSTALL)
            }
            [operator] => {
                let name = format!("{}/{}", operator.namespace().unwrap_or_default(), operator.name_any());
                let ready = operator.status.as_ref().and_then(|it| it.ready_replicas).unwrap_or(0);
                let runs = setting(operator, "FAULTLINE_NODE_IMAGE").unwrap_or_else(|| NODE_IMAGE.to_owned());
                if ready > 0 {
                    ok(NAME, format!("{name}, {ready} ready; processes run {runs}"))
                } else {
                    let remedy = format!(
                        "see `kubectl describe pods --namespace {} --selector {OPERATORS}`",
                        operator.namespace().unwrap_or_default()
                    );
                    fail(NAME, format!("{name} is not ready"), &remedy)
                }
            }
            many => {
                let names = many.iter().map(|it| it.namespace().unwrap_or_default()).collect::<Vec<_>>();
                let detail =
                    format!("{} operators, in {}, manage this namespace", many.len(), names.join(" and "));
                fail(NAME, detail, "remove all but yours: several would interfere with each other")
            }
        }
    }

    fn is_managed(&self, operator: &Deployment) -> bool {
        setting(operator, "FAULTLINE_NAMESPACE").is_none_or(|it| it == self.namespace)
    }

    /// Checks the user's permissions for federations.
    async fn rights(&self) -> Result<Finding, CommandError> {
        const NAME: &str = "permissions";
        let (denied, namespace) = (self.denied(&RIGHTS).await?, &self.namespace);
        Ok(if denied.is_empty() {
            ok(NAME, format!("all that `run --backend kubernetes` and `fetch` require in `{namespace}`"))
        } else {
            let detail = format!("not allowed in `{namespace}`: {denied}");
            let remedy = "docs/kubernetes.md contains a role with all required permissions; of the secrets, only \
                          `NAME-reader` of the federation NAME is read";
            fail(NAME, detail, remedy)
        })
    }

    /// Checks the user's permissions for campaigns, which federations do not need.
    async fn campaign_rights(&self) -> Result<Finding, CommandError> {
        const NAME: &str = "campaigns";
        let (denied, namespace) = (self.denied(&CAMPAIGN_RIGHTS).await?, &self.namespace);
        Ok(if denied.is_empty() {
            ok(NAME, format!("all that `sweep --backend kubernetes` requires in `{namespace}`"))
        } else {
            let detail = format!("not allowed in `{namespace}`: {denied}");
            missing(NAME, detail, "docs/campaigns.md contains a role with all required permissions")
        })
    }

    /// Returns those of the rights that the user lacks, as a list; empty if there are none.
    async fn denied(&self, rights: &[(&str, &str, &str, &[&str])]) -> Result<String, CommandError> {
        let mut denied = Vec::new();
        for &(group, resource, part, verbs) in rights {
            for verb in verbs {
                let is_permitted = may(&self.client, &self.namespace, (group, resource, part), verb).await;
                let is_permitted = is_permitted.map_err(|error| {
                    CommandError::machine(format!("cannot check permissions: {}", described(&error)))
                })?;
                if !is_permitted {
                    let part = if part.is_empty() { String::new() } else { format!("/{part}") };
                    denied.push(format!("`{verb}` {resource}{part}"));
                }
            }
        }
        Ok(denied.join(", "))
    }

    /// Finds the Kubernetes nodes that accept pods.
    async fn hosts(&self, planned: PlannedRun) -> (Vec<Node>, Finding) {
        const NAME: &str = "nodes";
        let nodes = match Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await {
            Ok(nodes) => nodes.items,
            Err(error) => {
                let remedy = "run this command with permission to list nodes";
                return (Vec::new(), missing(NAME, format!("not checked: {}", described(&error)), remedy));
            }
        };
        let all = nodes.len();
        let hosts: Vec<Node> = nodes.into_iter().filter(is_schedulable).collect();
        let room: u64 = hosts.iter().map(pods_at_most).sum();
        let detail = format!("{} of {all} accept pods, at most {room} in total", hosts.len());
        let finding = if room >= pods(planned) {
            ok(NAME, detail)
        } else {
            let detail = format!("{detail}; to run {planned} requires {} pods", pods(planned));
            fail(NAME, detail, "use fewer nodes, or add Kubernetes nodes")
        };
        (hosts, finding)
    }

    /// Checks whether the ResourceQuotas of the namespace permit the pods of the planned run.
    async fn quotas(&self, planned: PlannedRun) -> Finding {
        let quotas: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &self.namespace);
        match quotas.list(&ListParams::default()).await {
            Ok(quotas) => quota::finding(&quotas.items, planned),
            Err(error) => {
                let remedy = "run this command with permission to list resourcequotas";
                missing(quota::NAME, format!("not checked: {}", described(&error)), remedy)
            }
        }
    }

    /// Checks whether all kernels can limit rates, and reports which of them support each feature of link emulation.
    async fn kernels(&self, hosts: &[Node], image: &str) -> (bool, Vec<Finding>) {
        let probed = stream::iter(hosts).map(async |host| {
            let name = host.name_any();
            (self.probe(&name, image).await, name)
        });
        let mut findings = Vec::new();
        let mut probes = BTreeMap::new();
        let mut probed = pin!(probed.buffer_unordered(AT_A_TIME));
        while let Some((probed, name)) = probed.next().await {
            match probed {
                Ok(probe) => drop(probes.insert(name, probe)),
                Err((why, remedy)) => findings.push(missing(KERNELS, format!("{name}: {why}"), &remedy)),
            }
        }
        let able =
            !hosts.is_empty() && probes.len() == hosts.len() && probes.values().all(|it| it.kernel().htb);
        findings.extend(abilities(&probes));
        (able, findings)
    }

    /// Probes the kernel of a Kubernetes node. The error contains the reason and the remedy.
    async fn probe(&self, node: &str, image: &str) -> Result<Probe, (String, String)> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let pod = pods.create(&PostParams::default(), &probe::pod(node, image, &self.invocation)).await;
        let name = pod.map_err(|error| self.no_pod(&error))?.name_any();
        let said = said(&pods, &name).await;
        // If the deletion fails, the pod terminates on its own.
        let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
        said
    }

    /// Deletes the probes in progress.
    async fn interrupted(&self) -> CommandError {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let ours = ListParams::default().labels(&format!("{}={}", INVOCATION, self.invocation));
        // The API server may still create a pod that was requested before the interruption.
        for pause in [Duration::ZERO, CHECK_EVERY] {
            sleep(pause).await;
            let left = pods.list(&ours).await;
            for pod in left.map(|it| it.items).unwrap_or_default() {
                let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            }
        }
        CommandError::machine("interrupted; the deletion of the temporary pods was requested")
    }

    /// Returns the reason why a pod could not be created, and the remedy.
    fn no_pod(&self, error: &kube::Error) -> (String, String) {
        let namespace = &self.namespace;
        match error {
            kube::Error::Api(status) if status.message.contains("PodSecurity") => (
                format!(
                    "the Pod Security level of namespace `{namespace}` does not allow pods with NET_ADMIN"
                ),
                format!(
                    "`kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce=privileged`"
                ),
            ),
            error if is_forbidden(error) => {
                let remedy = "run this command with permission to create, get, list and delete pods and to get pods/log";
                (described(error), remedy.to_owned())
            }
            error => (described(error), "make sure that pods can be created".to_owned()),
        }
    }
}

/// Waits for a probe to end and returns its result; if there is none, returns the reason and the remedy.
async fn said(pods: &Api<Pod>, name: &str) -> Result<Probe, (String, String)> {
    let begun = Instant::now();
    let command_error = |error: String| {
        let remedy =
            "make sure that pods with the node image can run on this node; `--image` selects the image";
        (error, remedy.to_owned())
    };
    loop {
        let pod = pods.get(name).await.map_err(|it| command_error(described(&it)))?;
        let status = pod.status.unwrap_or_default();
        match status.phase.as_deref() {
            Some("Succeeded") => break,
            Some("Failed") => {
                let why = status.message.or(status.reason);
                let log = pods.logs(name, &LogParams::default()).await.ok().filter(|it| !it.is_empty());
                let why = why.or(log).unwrap_or_else(|| "the probe failed".to_owned());
                return Err(command_error(why.trim_end().to_owned()));
            }
            _ => {}
        }
        if begun.elapsed() > PROBED_WITHIN {
            let container = status.container_statuses.unwrap_or_default().into_iter().next();
            let waiting = container.and_then(|it| it.state?.waiting);
            let why = waiting.and_then(|it| it.message.or(it.reason)).map(|it| format!(": {it}"));
            let why = why.unwrap_or_default();
            return Err(command_error(format!("the probe did not finish within {PROBED_WITHIN:?}{why}")));
        }
        sleep(CHECK_EVERY).await;
    }
    let log = pods.logs(name, &LogParams::default()).await.map_err(|it| command_error(described(&it)))?;
    let line = log.lines().last().unwrap_or_default();
    serde_json::from_str(line).map_err(|_| {
        let remedy = "use `--image` with a node image of this program's version".to_owned();
        (format!("the probe printed `{line}`, which this program cannot parse"), remedy)
    })
}

/// Reports each feature of link emulation as available, or names the Kubernetes nodes whose kernels lack it.
fn abilities(probes: &BTreeMap<String, Probe>) -> Vec<Finding> {
    let findings = Ability::OF_LINKS.into_iter().filter(|_| !probes.is_empty()).map(|ability| {
        let lacking: Vec<(&str, &str)> = probes
            .iter()
            .flat_map(|(node, probe)| {
                probe.lacks(&[ability]).into_iter().map(|(_, why)| (node.as_str(), why))
            })
            .collect();
        match lacking.first() {
            None => can(ability, Ok(format!("{}, on each Kubernetes node", ability.purpose()))),
            Some((_, why)) => {
                let nodes: Vec<&str> = lacking.iter().map(|(node, _)| *node).collect();
                can(ability, Err(&format!("{why} (on {})", nodes.join(", "))))
            }
        }
    });
    findings.collect()
}

fn version_finding(major: &str, minor: &str) -> Finding {
    const NAME: &str = "API server";
    // Some providers write `33+`.
    let number: u32 = minor.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let detail = format!("Kubernetes {major}.{minor}");
    if major == "1" && number < OLDEST {
        fail(NAME, detail, &format!("upgrade to Kubernetes 1.{OLDEST} or newer"))
    } else {
        ok(NAME, detail)
    }
}

fn same_schema(one: &CustomResourceDefinition, other: &CustomResourceDefinition) -> bool {
    let schemas = |of: &CustomResourceDefinition| {
        of.spec.versions.iter().map(|it| (it.name.clone(), it.schema.clone())).collect::<Vec<_>>()
    };
    schemas(one) == schemas(other)
}

fn no_definition() -> Finding {
    fail("definition", NO_DEFINITION.to_owned(), INSTALL)
}

/// Returns the value of an environment variable of an operator.
fn setting(operator: &Deployment, name: &str) -> Option<String> {
    let pod = operator.spec.as_ref()?.template.spec.as_ref()?;
    let set = pod.containers.first()?.env.as_ref()?.iter().find(|it| it.name == name)?;
    set.value.clone()
}

fn is_schedulable(node: &Node) -> bool {
    let spec = node.spec.clone().unwrap_or_default();
    let is_ready = node
        .status
        .iter()
        .flat_map(|it| it.conditions.iter().flatten())
        .any(|it| it.type_ == "Ready" && it.status == "True");
    let repels = spec.taints.unwrap_or_default().iter().any(|it| it.effect != "PreferNoSchedule");
    is_ready && !repels && spec.unschedulable != Some(true)
}

/// Returns the number of pods of a run, including the supervisor's.
fn pods(planned: PlannedRun) -> u64 {
    planned.nodes() + 1
}

fn pods_at_most(node: &Node) -> u64 {
    let allocatable = node.status.as_ref().and_then(|it| it.allocatable.as_ref());
    allocatable.and_then(|it| it.get("pods")?.0.parse().ok()).unwrap_or(0)
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

fn ok(name: &'static str, detail: String) -> Finding {
    Finding { name, state: CheckState::Ok, detail, remedy: None }
}

fn missing(name: &'static str, detail: String, remedy: &str) -> Finding {
    Finding { name, state: CheckState::Missing, detail, remedy: Some(remedy.to_owned()) }
}

fn fail(name: &'static str, detail: String, remedy: &str) -> Finding {
    Finding { name, state: CheckState::Fail, detail, remedy: Some(remedy.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::fetch::fetch_from;
    use crate::run::tests::{Answer, resource, serve_uris};
    use serde_json::{Value, json};

    /// Returns a cluster with this definition and these operators, on which the user may do everything but `denied`.
    fn installed(definition: Option<Value>, operators: Value, denied: &'static str) -> KubernetesCluster {
        serve_uris(move |_, uri, mut body| {
            let list = |items: &Value| Answer::Object(json!({ "metadata": {}, "items": items }));
            match uri.path().rsplit('/').next().unwrap_or_default() {
                "federations.faultline.dev" => match &definition {
                    Some(definition) => Answer::Object(definition.clone()),
                    None => Answer::Error(404, "NotFound"),
                },
                "deployments" => list(&operators),
                "selfsubjectaccessreviews" => {
                    let asked = body["spec"]["resourceAttributes"]["resource"].clone();
                    body["status"] = json!({ "allowed": asked != denied });
                    Answer::Object(body)
                }
                "quickstart" => Answer::Object(resource(json!({ "phase": "Running" }))),
                _ => list(&json!([])),
            }
        })
    }

    fn operator(ready: u32) -> Value {
        json!([{
            "metadata": { "name": "operator", "namespace": "faultline-system" },
            "status": { "readyReplicas": ready },
        }])
    }

    #[tokio::test]
    async fn a_run_is_refused_at_once_without_a_definition_an_operator_or_a_permission() {
        let ours = || Some(json!(faultline_client::object::definition()));
        let refused = async |definition, operators, denied| {
            let cluster = installed(definition, operators, denied);
            let error = check_before_run(&cluster, PlannedRun::of(None)).await.err()?;
            assert_eq!(error.exit, Exit::BadInput);
            Some(format!("{}; {}", error.report, error.report.help().expect("a remedy")))
        };
        assert_eq!(refused(ours(), operator(1), "").await, None);
        let told = refused(None, operator(1), "").await.expect("there is no definition");
        assert!(told.contains(NO_DEFINITION) && told.ends_with(INSTALL), "{told}");
        let told = refused(ours(), json!([]), "").await.expect("there is no operator");
        assert!(told.contains("no visible operator manages") && told.ends_with(INSTALL), "{told}");
        let told = refused(ours(), operator(0), "").await.expect("it is not ready");
        let remedy = "see `kubectl describe pods --namespace faultline-system";
        assert!(told.contains("faultline-system/operator is not ready") && told.contains(remedy), "{told}");
        let told = refused(ours(), operator(1), "secrets").await.expect("a permission is missing");
        assert!(told.contains("`get` secrets") && told.contains("docs/kubernetes.md"), "{told}");
    }

    /// `kubectl wait` would never end.
    #[tokio::test]
    async fn without_an_operator_nobody_is_advised_to_wait_for_the_end_of_a_run() {
        for (operators, advice) in [(operator(1), "kubectl wait"), (json!([]), INSTALL)] {
            let cluster = installed(None, operators, "");
            let error = fetch_from(&cluster, "quickstart", None, &AtomicBool::new(false)).await.unwrap_err();
            let help = error.report.help().expect("a remedy").to_string();
            assert!(help.contains(advice), "{help}");
            assert_eq!(error.report.to_string().contains("no visible operator"), advice == INSTALL);
        }
    }

    fn node(spec: Value, ready: &str) -> Node {
        serde_json::from_value(json!({
            "spec": spec,
            "status": { "conditions": [{ "type": "Ready", "status": ready }], "allocatable": { "pods": "110" } },
        }))
        .unwrap()
    }

    #[test]
    fn tainted_and_unready_nodes_do_not_accept_pods() {
        assert!(is_schedulable(&node(json!({}), "True")));
        assert!(is_schedulable(&node(
            json!({ "taints": [{ "key": "a", "effect": "PreferNoSchedule" }] }),
            "True"
        )));
        assert!(!is_schedulable(&node(
            json!({ "taints": [{ "key": "a", "effect": "NoSchedule" }] }),
            "True"
        )));
        assert!(!is_schedulable(&node(json!({ "unschedulable": true }), "True")));
        assert!(!is_schedulable(&node(json!({}), "Unknown")));
        assert_eq!(pods_at_most(&node(json!({}), "True")), 110);
    }

    #[test]
    fn old_clusters_are_unsupported() {
        assert_eq!(version_finding("1", "33").state, CheckState::Ok);
        assert_eq!(version_finding("1", "34+").state, CheckState::Ok);
        assert_eq!(version_finding("1", "32").state, CheckState::Fail);
    }

    #[test]
    fn a_finding_names_the_nodes_whose_kernels_lack_a_feature() {
        let probe = |netem: Result<(), String>| Probe {
            findings: vec![(Ability::Htb, Ok(())), (Ability::Netem, netem)],
        };
        let probes = BTreeMap::from([
            ("east".to_owned(), probe(Ok(()))),
            ("west".to_owned(), probe(Err("no such thing".to_owned()))),
        ]);
        let found = abilities(&probes);
        let of = |ability: Ability| found.iter().find(|it| it.name == ability.module()).unwrap();
        assert_eq!(of(Ability::Htb).state, CheckState::Ok);
        let netem = of(Ability::Netem);
        assert_eq!(netem.state, CheckState::Missing);
        assert!(netem.detail.ends_with("not available: no such thing (on west)"), "{}", netem.detail);
        assert!(netem.remedy.as_ref().unwrap().contains("sch_netem"));
    }
}
