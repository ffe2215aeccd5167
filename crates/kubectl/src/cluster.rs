//! The cluster that the user's kubeconfig selects, and the federations on it.

use std::time::Duration;

use faultline_api::Federation;
use faultline_api::resource::FederationStatus;
use faultline_client::naming;
use faultline_console::command_error::CommandError;
use futures::AsyncBufRead;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ApiResource, DeleteParams, LogParams, PostParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::object::{NotUsed, Object};
use kube::{Api, Client, Config, ResourceExt};
use miette::miette;
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

/// A federation without its spec. The API server admits changes to the spec that this program cannot read.
pub(crate) type Outline = Object<NotUsed, FederationStatus>;

/// One namespace of a cluster.
pub(crate) struct KubernetesCluster {
    client: Client,
    namespace: String,
    /// Time limit of a request to the API server.
    api_deadline: Duration,
    /// Time limit of a request to a supervisor.
    supervisor_deadline: Duration,
}

impl KubernetesCluster {
    /// Connects in the same way as `kubectl`.
    pub(crate) async fn connect(arguments: &KubernetesArguments) -> Result<KubernetesCluster, CommandError> {
        const HELP: &str = "set the environment variable KUBECONFIG to the path of a kubeconfig, and choose one of its \
                            contexts with `--context`; check with `kubectl get federations`";
        // A test may already have installed the provider.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let unfit = |error: &dyn std::fmt::Display| {
            CommandError::input(miette!(help = HELP, "cannot find a Kubernetes cluster: {error}"))
        };
        let config = match &arguments.context {
            None => Config::infer().await.map_err(|it| unfit(&it))?,
            Some(context) => {
                let options = KubeConfigOptions { context: Some(context.clone()), ..Default::default() };
                let kubeconfig = Kubeconfig::read().map_err(|it| unfit(&it))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|it| unfit(&it))?
            }
        };
        let namespace = arguments.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|it| unfit(&it))?;
        Ok(KubernetesCluster {
            client,
            namespace,
            api_deadline: ANSWERED_WITHIN,
            supervisor_deadline: SUPERVISOR_WITHIN,
        })
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
            api_deadline: deadline,
            supervisor_deadline: deadline,
        }
    }

    /// Returns the federation with this name, which must exist.
    pub(crate) async fn federation(&self, name: &str) -> Result<Federation, CommandError> {
        self.find(name).await?.ok_or_else(|| {
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
        federation: &Federation,
        invocation: &str,
    ) -> Result<Federation, ClusterError> {
        let name = federation.name_any();
        let mut marked = federation.clone();
        marked.annotations_mut().insert(naming::INVOCATION.to_owned(), invocation.to_owned());
        match self.answered(self.federations().create(&PostParams::default(), &marked)).await {
            Ok(made) => Ok(made),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let is_ours = |it: &Federation| {
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

    /// Deletes exactly this federation, and waits until all its objects are deleted. Does not delete another
    /// federation with the same name.
    pub(crate) async fn delete(&self, federation: &Federation) -> Result<(), ClusterError> {
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
    pub(crate) fn deletion(&self, federation: &Federation) -> String {
        format!("kubectl delete federation {} --namespace {}", federation.name_any(), self.namespace)
    }

    /// Returns the supervisor of a federation, with the token for reading from its API.
    pub(crate) async fn supervisor(&self, federation: &Federation) -> Result<Supervisor, ClusterError> {
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
        let pod = format!("{}-0", naming::supervisor(federation));
        Ok(Supervisor::new(pods, pod, token, self.supervisor_deadline))
    }

    /// Returns the error for a federation whose reader's token is missing.
    fn no_token(&self, federation: &Federation, problem: &str) -> CommandError {
        let name = federation.name_any();
        let help = format!(
            "the operator creates this secret; check with `kubectl faultline doctor --namespace {}` whether an \
             operator of this version manages the namespace, and with `kubectl describe federation/{name}` whether it \
             reports a problem",
            self.namespace
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
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Federation>, ClusterError> {
        self.found(name, self.answered(self.federations().get(name)).await)
    }

    /// Returns a federation without its spec; `None` if it does not exist.
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
    async fn answered<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, kube::Error> {
        let limit = self.api_deadline;
        let late = |_| kube::Error::Service(format!("no response within {limit:?}").into());
        timeout(limit, request).await.map_err(late)?
    }

    fn federations(&self) -> Api<Federation> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn outlines(&self) -> Api<Outline> {
        let resource = ApiResource::erase::<Federation>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Returns the reason why an operation failed.
    fn denied(&self, verb: &str, what: &str, error: &kube::Error) -> ClusterError {
        let command_error = match error {
            kube::Error::Api(status) if status.is_forbidden() => {
                let help = format!(
                    "this requires permission to `{verb}` {what} in the namespace `{}`; docs/kubernetes.md contains \
                     a role with all required permissions",
                    self.namespace
                );
                CommandError::input(miette!(help = help, "{}", status.message))
            }
            // If the kind of resource is unknown, the answer is not a status, and has only a code.
            kube::Error::Api(status) if status.code == 404 => {
                let is_place = status.details.as_ref().is_some_and(|it| it.kind == "namespaces");
                let help =
                    if is_place { "specify an existing namespace with `--namespace`" } else { INSTALL };
                CommandError::input(miette!(
                    help = help,
                    "cannot {verb} {what}: {}",
                    status.message.trim_end()
                ))
            }
            error => CommandError::machine(format!("the API server failed to {verb} {what}: {error}")),
        };
        ClusterError { command_error, is_temporary: is_temporary(error) }
    }
}

/// Returns a random text that identifies this invocation.
pub(crate) fn invocation() -> Result<String, CommandError> {
    let number = getrandom::u64()
        .map_err(|error| CommandError::machine(format!("cannot generate random bytes: {error}")))?;
    Ok(format!("{number:016x}"))
}
