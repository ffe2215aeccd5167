//! The cluster that the user's kubeconfig selects, and the federations on it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use faultline_api::FederationSpec;
use faultline_client::api_error::described;
use faultline_client::naming;
use faultline_client::object::FederationObject;
use faultline_client::outline::{self, Outline};
use faultline_console::command_error::{CommandError, Exit};
use faultline_trace::shell_word;
use futures::AsyncBufRead;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, LogParams, Patch, PatchParams, PostParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Status;
use kube::{Api, Client, Config, ResourceExt};
use miette::miette;
use serde_json::Value;
use tokio::time::timeout;

use crate::arguments::KubernetesArguments;
use crate::supervisor::Supervisor;

/// Time between two checks while waiting.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// Time within which the API server must answer a request.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// Time within which a supervisor must answer a request.
const SUPERVISOR_WITHIN: Duration = Duration::from_secs(10);
/// What is wrong with a cluster on which Faultline is not installed.
pub(crate) const NO_DEFINITION: &str =
    "the cluster does not have the custom resource definition of federations";
pub(crate) const INSTALL: &str = "see docs/kubernetes.md for how to install Faultline on a cluster";

/// The reason why an operation on a cluster failed.
#[derive(Debug)]
pub(crate) struct ClusterError {
    /// The error to print.
    pub(crate) command_error: CommandError,
    /// Whether the API server is unreachable or has a temporary problem, so a later attempt may succeed.
    pub(crate) is_temporary: bool,
}

impl From<ClusterError> for CommandError {
    fn from(denied: ClusterError) -> CommandError {
        denied.command_error
    }
}

impl From<CommandError> for ClusterError {
    fn from(command_error: CommandError) -> ClusterError {
        ClusterError { command_error, is_temporary: false }
    }
}

/// Returns whether a later attempt may succeed without any action by the user.
fn is_temporary(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Returns the first cause of an error, such as `Connection refused (os error 111)`.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// A namespace of a cluster, as the user has chosen it. It stays the same even if the user changes the kubeconfig.
#[derive(Clone, Debug)]
pub(crate) struct ChosenCluster {
    config: Config,
    namespace: String,
    /// The arguments that choose the same cluster and namespace.
    arguments: String,
}

/// One namespace of a cluster.
pub(crate) struct KubernetesCluster {
    client: Client,
    namespace: String,
    /// The arguments of `kubectl` that choose this cluster and namespace.
    arguments: String,
    /// Time limit of a request to the API server.
    api_deadline: Duration,
    /// Time limit of a request to a supervisor.
    supervisor_deadline: Duration,
}

const CHOOSE: &str = "set the environment variable KUBECONFIG to the path of a kubeconfig, and choose one of its \
                      contexts with `--context`; check with `kubectl version`";

impl ChosenCluster {
    /// Chooses a cluster and a namespace in the same way as `kubectl`.
    pub(crate) async fn of(arguments: &KubernetesArguments) -> Result<ChosenCluster, CommandError> {
        // A test may already have installed the provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let unfit = |error: &dyn std::fmt::Display| {
            CommandError::input(miette!(help = CHOOSE, "cannot find a Kubernetes cluster: {error}"))
        };
        let mut config = match &arguments.context {
            None => Config::infer().await.map_err(|it| unfit(&it))?,
            Some(context) => {
                let options = KubeConfigOptions { context: Some(context.clone()), ..Default::default() };
                let kubeconfig = Kubeconfig::read().map_err(|it| unfit(&it))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|it| unfit(&it))?
            }
        };
        let variables = ["HTTPS_PROXY", "https_proxy"].map(|it| std::env::var(it).ok());
        config.proxy_url = proxy(&config, &variables, &Matcher::from_env());
        let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let context = arguments.context.as_ref().map(|it| format!("--context {} ", shell_word(it)));
        let chosen = format!("{}--namespace {}", context.unwrap_or_default(), shell_word(&namespace));
        Ok(ChosenCluster { config, namespace, arguments: chosen })
    }

    /// Connects to the cluster, and makes a first request, to which any answer will do.
    pub(crate) async fn reach(&self) -> Result<KubernetesCluster, CommandError> {
        let cluster = self.connect()?;
        let why = match timeout(ANSWERED_WITHIN, cluster.client.apiserver_version()).await {
            Ok(Err(error @ (kube::Error::HyperError(_) | kube::Error::Service(_)))) => root_cause(&error),
            Ok(_) => return Ok(cluster),
            Err(_) => format!("no response within {}s", ANSWERED_WITHIN.as_secs()),
        };
        Err(CommandError::machine_with(
            format!("cannot reach the API server {}: {why}", self.config.cluster_url),
            "start the cluster, or choose another one with KUBECONFIG or `--context`; check with `kubectl version`",
        ))
    }

    /// Connects to the cluster.
    pub(crate) fn connect(&self) -> Result<KubernetesCluster, CommandError> {
        let client = Client::try_from(self.config.clone()).map_err(|error| {
            let help = if self.config.proxy_url.is_some() {
                "check `proxy-url` in the kubeconfig, and the environment variables HTTPS_PROXY and NO_PROXY"
            } else {
                CHOOSE
            };
            CommandError::input(miette!(help = help, "cannot connect to the Kubernetes cluster: {error}"))
        })?;
        Ok(KubernetesCluster {
            client,
            namespace: self.namespace.clone(),
            arguments: self.arguments.clone(),
            api_deadline: ANSWERED_WITHIN,
            supervisor_deadline: SUPERVISOR_WITHIN,
        })
    }
}

/// Returns the proxy through which to reach a cluster. As with `kubectl`, that is the one in the kubeconfig, or else the
/// one that the environment specifies for the cluster's address, but none for an address of this machine. `variables`
/// are the environment variables from which `config` may have its proxy.
fn proxy(config: &Config, variables: &[Option<String>], environment: &Matcher) -> Option<Uri> {
    let given = config.proxy_url.clone();
    let is_from_environment = |it: &Uri| {
        variables.iter().flatten().filter_map(|it| it.parse::<Uri>().ok()).any(|variable| variable == *it)
    };
    if given.as_ref().is_some_and(|it| !is_from_environment(it)) {
        return given;
    }
    let host = config.cluster_url.host().unwrap_or_default();
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    if host == "localhost" || address.is_some_and(|it| it.is_loopback()) {
        return None;
    }
    let proxy = environment.intercept(&config.cluster_url)?;
    // Only the original contains a password.
    Some(given.filter(|it| it.scheme().is_some()).unwrap_or_else(|| proxy.uri().clone()))
}

impl KubernetesCluster {
    /// Connects in the same way as `kubectl`.
    pub(crate) async fn connect(arguments: &KubernetesArguments) -> Result<KubernetesCluster, CommandError> {
        ChosenCluster::of(arguments).await?.reach().await
    }

    /// Returns the client, for requests that do not concern a federation.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the name of the namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Creates a view of a namespace on a cluster with an existing client and this time limit of each request.
    #[cfg(test)]
    pub(crate) fn at(client: Client, namespace: &str, deadline: Duration) -> KubernetesCluster {
        KubernetesCluster {
            client,
            namespace: namespace.to_owned(),
            arguments: format!("--context here --namespace {namespace}"),
            api_deadline: deadline,
            supervisor_deadline: deadline,
        }
    }

    /// Returns the federation with this name, which must exist. Its spec may be unreadable.
    pub(crate) async fn outline(&self, name: &str) -> Result<Outline, CommandError> {
        self.find_outline(name).await?.ok_or_else(|| {
            let help = "list federations with `kubectl get federations --all-namespaces`, or specify a namespace with \
                `--namespace`";
            CommandError::input(miette!(
                help = help,
                "there is no federation `{name}` in the namespace `{}`",
                self.namespace
            ))
        })
    }

    /// Creates a federation. If an earlier attempt with the same `invocation` created it, although the answer was lost,
    /// returns that federation.
    pub(crate) async fn create(
        &self,
        federation: &FederationObject,
        invocation: &str,
    ) -> Result<FederationObject, ClusterError> {
        let name = federation.name_any();
        let mut marked = federation.clone();
        marked.annotations_mut().insert(naming::INVOCATION.to_owned(), invocation.to_owned());
        match self.answered(self.federations().create(&PostParams::default(), &marked)).await {
            Ok(made) if made.spec == federation.spec => Ok(made),
            Ok(made) => {
                self.delete(&made).await?;
                let help = "`kubectl faultline doctor` compares the definition of federations on the cluster with that \
                    in this program; install the same version of both";
                Err(CommandError::input(miette!(
                    help = help,
                    "the cluster stored a different federation, which was deleted again: the definition of federations, \
                     or an admission webhook, changed {}",
                    changed_fields(&federation.spec, &made.spec)
                ))
                .into())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let is_ours = |it: &FederationObject| {
                    it.annotations().get(naming::INVOCATION).is_some_and(|it| it == invocation)
                };
                if let Some(ours) = self.find(&name).await?.filter(is_ours) {
                    return Ok(ours);
                }
                let help = format!("delete it once you no longer need it: `{}`", self.deletion(federation));
                Err(CommandError::input(miette!(help = help, "the federation `{name}` already exists"))
                    .into())
            }
            Err(kube::Error::Api(status)) if status.is_invalid() => {
                let help = "change the file; `faultline samples` prints complete examples";
                Err(CommandError::input(miette!(
                    help = help,
                    "the API server rejected the federation: {}",
                    status.message
                ))
                .into())
            }
            Err(error) => Err(self.denied("create", "federations", &error)),
        }
    }

    /// Changes a federation.
    pub(crate) async fn patch(&self, name: &str, patch: &Patch<Value>) -> Result<(), ClusterError> {
        let (federations, parameters) = (self.outlines(), PatchParams::default());
        match self.answered(federations.patch(name, &parameters, patch)).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.denied("patch", "federations", &error)),
        }
    }

    /// Deletes exactly this federation, and waits until all its objects are deleted. Does not delete another
    /// federation with the same name.
    pub(crate) async fn delete(&self, federation: &FederationObject) -> Result<(), ClusterError> {
        let name = federation.name_any();
        let only_this = DeleteParams {
            preconditions: Some(Preconditions { uid: federation.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        match self.answered(self.outlines().delete(&name, &only_this)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => return Ok(()),
            Err(error) => return Err(self.denied("delete", "federations", &error)),
        }
        while self.find_outline(&name).await?.is_some_and(|it| it.uid() == federation.uid()) {
            tokio::time::sleep(CHECK_EVERY).await;
        }
        Ok(())
    }

    /// Returns the `kubectl` command that deletes a federation.
    pub(crate) fn deletion(&self, federation: &FederationObject) -> String {
        format!("kubectl delete federation {} {}", federation.name_any(), self.arguments)
    }

    /// Returns the command that fetches the record of a federation.
    pub(crate) fn fetching(&self, federation: &FederationObject) -> String {
        format!("kubectl faultline fetch federation/{} {}", federation.name_any(), self.arguments)
    }

    /// Returns the command that cancels a campaign.
    pub(crate) fn cancellation(&self, campaign: &str) -> String {
        format!("kubectl faultline campaign cancel {campaign} {}", self.arguments)
    }

    /// Returns the `kubectl` command that describes an object.
    pub(crate) fn description(&self, object: &str) -> String {
        format!("kubectl describe {object} {}", self.arguments)
    }

    /// Returns the `kubectl` command that waits for the end of a run.
    pub(crate) fn waiting(&self, name: &str) -> String {
        format!("kubectl wait federation/{name} {} --for=condition=Completed", self.arguments)
    }

    /// Returns the supervisor of a federation, with the token for reading from its API.
    pub(crate) async fn supervisor(&self, federation: &impl ResourceExt) -> Result<Supervisor, ClusterError> {
        let name = naming::reader(federation);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = match self.answered(secrets.get(&name)).await {
            Ok(secret) => secret,
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                return Err(self.no_token(federation, "does not exist").into());
            }
            Err(error) => return Err(self.denied("get", "secrets", &error)),
        };
        let token = secret.data.unwrap_or_default().remove(naming::READER_TOKEN).unwrap_or_default();
        let token = String::from_utf8(token.0).unwrap_or_default().trim().to_owned();
        if token.is_empty() || !token.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(self.no_token(federation, "does not contain a token").into());
        }
        let pods = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(Supervisor::new(pods, naming::supervisor_pod(federation), token, self.supervisor_deadline))
    }

    /// Returns the error for a federation whose reader's token is missing.
    fn no_token(&self, federation: &impl ResourceExt, problem: &str) -> CommandError {
        let name = federation.name_any();
        let help = format!(
            "the operator creates this secret; check with `kubectl faultline doctor {}` whether an operator of this \
             version manages the namespace, and with `{}` whether it reports a problem",
            self.arguments,
            self.description(&format!("federation/{name}"))
        );
        CommandError::input(miette!(
            help = help,
            "cannot read the record of the federation `{name}`: its secret `{}` {problem} in the namespace `{}`",
            naming::reader(federation),
            self.namespace
        ))
    }

    /// Returns the log of a pod.
    pub(crate) async fn log(
        &self,
        pod: &str,
        parameters: &LogParams,
    ) -> Result<impl AsyncBufRead + use<>, ClusterError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        pods.log_stream(pod, parameters).await.map_err(|it| self.denied("get", "pods/log", &it))
    }

    /// Returns a federation; `None` if it does not exist.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<FederationObject>, ClusterError> {
        self.found(name, self.answered(self.federations().get(name)).await)
    }

    /// Returns a federation whose spec may be unreadable; `None` if it does not exist.
    pub(crate) async fn find_outline(&self, name: &str) -> Result<Option<Outline>, ClusterError> {
        self.found(name, self.answered(self.outlines().get(name)).await)
    }

    fn found<T>(&self, name: &str, answer: Result<T, kube::Error>) -> Result<Option<T>, ClusterError> {
        match answer {
            Ok(federation) => Ok(Some(federation)),
            // The details of the answer contain the name only if the kind is known and the object itself is missing.
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let kind_is_known = status.details.as_ref().is_some_and(|it| it.name == name);
                if kind_is_known {
                    return Ok(None);
                }
                Err(CommandError::input(miette!(help = INSTALL, "{NO_DEFINITION}")).into())
            }
            Err(error) => Err(self.denied("get", "federations", &error)),
        }
    }

    /// Returns the API server's answer, or an error if it takes too long.
    pub(crate) async fn answered<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, kube::Error> {
        let limit = self.api_deadline;
        let late = |_| kube::Error::Service(format!("no response within {limit:?}").into());
        timeout(limit, request).await.map_err(late)?
    }

    fn federations(&self) -> Api<FederationObject> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn outlines(&self) -> Api<Outline> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &outline::resource())
    }

    /// Returns the reason why an operation failed.
    pub(crate) fn denied(&self, verb: &str, what: &str, error: &kube::Error) -> ClusterError {
        let command_error = match error {
            kube::Error::Api(status) if status.is_forbidden() && is_full_or_ending(&status.message) => {
                CommandError::input(miette!("cannot {verb} {what}: {}", status.message))
            }
            kube::Error::Api(status) if status.is_forbidden() => {
                let is_of_campaign = matches!(what, "jobs" | "configmaps" | "pods" | "events");
                let help = format!(
                    "this requires permission to `{verb}` {what} in the namespace `{}`; {} contains a role with all \
                     required permissions",
                    self.namespace,
                    if is_of_campaign { "docs/campaigns.md" } else { "docs/kubernetes.md" }
                );
                CommandError::input(miette!(help = help, "{}", status.message))
            }
            kube::Error::Api(status) if let Some(outdated) = outdated(what, status) => outdated,
            kube::Error::Api(status) if status.code == 404 => {
                let help = match status.details.as_ref().map(|it| it.kind.as_str()) {
                    Some("namespaces") => "specify an existing namespace with `--namespace`",
                    Some("pods") => "the operator deletes the processes' pods when the run ends",
                    _ => INSTALL,
                };
                CommandError::input(miette!(
                    help = help,
                    "cannot {verb} {what}: {}",
                    status.message.trim_end()
                ))
            }
            error => {
                CommandError::machine(format!("the API server failed to {verb} {what}: {}", described(error)))
            }
        };
        // An API server rejects fields that it does not know with the code of an internal error.
        let is_temporary = is_temporary(error) && command_error.exit != Exit::BadInput;
        ClusterError { command_error, is_temporary }
    }
}

/// Returns the error for a cluster whose definition of federations is missing, or is older than this program.
fn outdated(what: &str, status: &Status) -> Option<CommandError> {
    // If the kind of resource is unknown, the answer is not a status, and has only a code.
    if what == "federations" && status.code == 404 && status.details.is_none() {
        return Some(CommandError::input(miette!(help = INSTALL, "{NO_DEFINITION}")));
    }
    ["field not declared in schema", "unknown field"].iter().any(|it| status.message.contains(it)).then(|| {
        CommandError::input(miette!(
            help = "install this version of Faultline on the cluster (docs/kubernetes.md); `kubectl faultline doctor` shows \
                    which part is older",
            "the cluster's definition of federations does not have a field of the file, because it is older than this \
             program: {}",
            status.message.trim_end()
        ))
    })
}

/// Returns whether the API server refused to create an object because of a quota, or because its namespace is being
/// deleted. It then answers as if a permission were missing.
fn is_full_or_ending(message: &str) -> bool {
    message.contains("exceeded quota") || message.contains("being terminated")
}

/// Returns the names of the fields in which two specs differ.
fn changed_fields(ours: &FederationSpec, theirs: &FederationSpec) -> String {
    let [ours, theirs] =
        [ours, theirs].map(|it| serde_json::to_value(it).expect("every spec can be written as JSON"));
    let fields =
        |it: &Value| it.as_object().into_iter().flat_map(|it| it.keys().cloned()).collect::<Vec<_>>();
    let names: BTreeSet<String> = fields(&ours).into_iter().chain(fields(&theirs)).collect();
    let changed = names.into_iter().filter(|it| ours.get(it) != theirs.get(it));
    changed.map(|it| format!("`spec.{it}`")).collect::<Vec<_>>().join(", ")
}

/// Returns whether the user may do something in a namespace: `verb` on a resource, given as its group, its name and its
/// subresource.
pub(crate) async fn may(
    client: &Client,
    namespace: &str,
    (group, resource, part): (&str, &str, &str),
    verb: &str,
) -> Result<bool, kube::Error> {
    let asked = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: Some(part.to_owned()).filter(|it| !it.is_empty()),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(asked),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|it| it.allowed))
}

/// Returns a random text that identifies this invocation.
pub(crate) fn invocation() -> Result<String, CommandError> {
    let number = getrandom::u64()
        .map_err(|error| CommandError::machine(format!("cannot generate random bytes: {error}")))?;
    Ok(format!("{number:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::{Answer, serve};

    fn with_proxy(cluster: &str, given: Option<&str>) -> Config {
        let mut config = Config::new(cluster.parse().expect("a URI"));
        config.proxy_url = given.map(|it| it.parse().expect("a URI"));
        config
    }

    #[tokio::test]
    async fn a_definition_that_is_missing_or_too_old_is_named() {
        let error = |what: &str, code, message: &str| {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            outdated(what, &status).map(|it| it.report.to_string())
        };
        assert_eq!(error("federations", 404, "404 page not found\n").as_deref(), Some(NO_DEFINITION));
        assert_eq!(error("pods", 404, "404 page not found\n"), None);
        let message = "failed to create typed patch object: .spec.expect: field not declared in schema";
        let told = error("federations", 500, message).expect("it is too old");
        assert!(told.contains("older than this program") && told.ends_with(message), "{told}");
        assert_eq!(error("federations", 409, "already exists"), None);
        // Otherwise, the same request would be repeated for a minute.
        let answer = Status { code: 500, message: message.to_owned(), ..Status::default() };
        let cluster = serve(|_, _, _| Answer::Never);
        assert!(!cluster.denied("create", "federations", &kube::Error::Api(Box::new(answer))).is_temporary);
        let answer = Status { code: 500, message: "etcd timed out".to_owned(), ..Status::default() };
        assert!(cluster.denied("create", "federations", &kube::Error::Api(Box::new(answer))).is_temporary);
    }

    #[tokio::test]
    async fn a_proxy_of_the_environment_is_used_unless_the_cluster_is_excluded() {
        let (local, near, far) =
            ("https://127.0.0.1:6443", "https://10.1.2.3:6443", "https://k8s.example:6443");
        let variable = "http://user:password@proxy:3128";
        let environment = || Matcher::builder().https(variable).no("10.0.0.0/8,.internal").build();
        let chosen = |cluster, given| {
            let config = with_proxy(cluster, given);
            proxy(&config, &[Some(variable.to_owned()), None], &environment()).map(|it| it.to_string())
        };
        for excluded in [local, "https://localhost:6443", "https://[::1]:6443", near, "https://a.internal"] {
            assert_eq!(chosen(excluded, Some(variable)), None, "{excluded}");
        }
        assert_eq!(chosen(far, Some(variable)).as_deref(), Some("http://user:password@proxy:3128/"));
        let kubeconfig = "socks5://proxy:1080";
        assert_eq!(
            chosen(local, Some(kubeconfig)).as_deref(),
            Some("socks5://proxy:1080/"),
            "it was chosen for it"
        );
        for given in [variable, kubeconfig] {
            let chosen = ChosenCluster {
                config: with_proxy(far, Some(given)),
                namespace: "default".into(),
                arguments: String::new(),
            };
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            assert!(chosen.connect().is_ok(), "{given}");
        }
    }

    #[test]
    fn changed_fields_are_named() {
        let sample = faultline_api::samples::sample("quickstart").unwrap();
        let ours = faultline_api::parse("quickstart", sample.text.as_bytes()).unwrap().spec;
        let mut theirs = ours.clone();
        theirs.faults.clear();
        theirs.seed = None;
        assert_eq!(changed_fields(&ours, &theirs), "`spec.faults`, `spec.seed`");
    }
}
