//! A cluster that the user's kubeconfig leads to, and the federations on it.

use std::time::Duration;

use faultline_api::Federation;
use faultline_client::naming;
use faultline_console::trouble::Trouble;
use futures::AsyncBufRead;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, LogParams, PostParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use miette::miette;

use crate::arguments::KubernetesArguments;
use crate::supervisor::Supervisor;

/// Between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(500);
pub(crate) const INSTALL: &str = "see docs/kubernetes.md for how to install Faultline on a cluster";

/// Why something could not be done on a cluster.
#[derive(Debug)]
pub(crate) struct Denied {
    /// What to tell.
    pub(crate) trouble: Trouble,
    /// The API server cannot be reached, or is in trouble itself: the same may be done later.
    pub(crate) passes: bool,
}

impl From<Denied> for Trouble {
    fn from(denied: Denied) -> Trouble {
        denied.trouble
    }
}

impl From<Trouble> for Denied {
    fn from(trouble: Trouble) -> Denied {
        Denied { trouble, passes: false }
    }
}

/// Whether a later try may succeed though nobody does anything.
fn passes(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// One namespace of a cluster.
pub(crate) struct Cluster {
    client: Client,
    namespace: String,
}

impl Cluster {
    /// Connects as `kubectl` would.
    pub(crate) async fn connect(arguments: &KubernetesArguments) -> Result<Cluster, Trouble> {
        const HELP: &str = "name a kubeconfig in the environment variable KUBECONFIG, and a context of it with \
                            `--context`; `kubectl get federations` has to work, too";
        // A test may have connected already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let unfit = |error: &dyn std::fmt::Display| {
            Trouble::input(miette!(help = HELP, "no Kubernetes cluster is known: {error}"))
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
        Ok(Cluster { client, namespace })
    }

    /// For what concerns no federation.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Its name.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A namespace of a cluster that is reached so.
    #[cfg(test)]
    pub(crate) fn at(client: Client, namespace: &str) -> Cluster {
        Cluster { client, namespace: namespace.to_owned() }
    }

    /// A federation that has to be there.
    pub(crate) async fn federation(&self, name: &str) -> Result<Federation, Trouble> {
        self.find(name).await?.ok_or_else(|| {
            let help = "`kubectl get federations --all-namespaces` shows those that there are; name a namespace with \
                        `--namespace`";
            Trouble::input(miette!(
                help = help,
                "there is no federation `{name}` in the namespace `{}`",
                self.namespace
            ))
        })
    }

    /// Makes a federation.
    pub(crate) async fn create(&self, federation: &Federation) -> Result<Federation, Trouble> {
        let name = federation.name_any();
        match self.federations().create(&PostParams::default(), federation).await {
            Ok(made) => Ok(made),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let help =
                    format!("when you have what you want of it, delete it: `{}`", self.deletion(federation));
                Err(Trouble::input(miette!(help = help, "there is a federation `{name}` already")))
            }
            Err(kube::Error::Api(status)) if status.is_invalid() => {
                let help = "change the file; `faultline samples` shows whole federations";
                Err(Trouble::input(miette!(help = help, "the API server refuses it: {}", status.message)))
            }
            Err(error) => Err(self.denied("create", "federations", &error).trouble),
        }
    }

    /// Deletes this very federation, and waits until nothing is left of it. Another one of its name stays.
    pub(crate) async fn delete(&self, federation: &Federation) -> Result<(), Denied> {
        let name = federation.name_any();
        let this_very_one = DeleteParams {
            preconditions: Some(Preconditions { uid: federation.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        match self.federations().delete(&name, &this_very_one).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => return Ok(()),
            Err(error) => return Err(self.denied("delete", "federations", &error)),
        }
        while self.find(&name).await?.is_some_and(|it| it.uid() == federation.uid()) {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// How somebody deletes a federation by hand.
    pub(crate) fn deletion(&self, federation: &Federation) -> String {
        format!("kubectl delete federation {} --namespace {}", federation.name_any(), self.namespace)
    }

    /// The supervisor of a federation, with the key that opens its API.
    pub(crate) async fn supervisor(&self, federation: &Federation) -> Result<Supervisor, Denied> {
        let name = naming::key(federation);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets.get(&name).await.map_err(|it| self.denied("get", "secrets", &it))?;
        let key = secret.data.unwrap_or_default().remove("key").map(|it| it.0).unwrap_or_default();
        let token = faultline_api::supervision::token(&String::from_utf8_lossy(&key))
            .map_err(|error| Trouble::machine(format!("the secret {name} holds no key: {error}")))?;
        let pods = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(Supervisor::new(pods, format!("{}-0", naming::supervisor(federation)), token))
    }

    /// What a pod logs.
    pub(crate) async fn log(
        &self,
        pod: &str,
        parameters: &LogParams,
    ) -> Result<impl AsyncBufRead + use<>, Denied> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        pods.log_stream(pod, parameters).await.map_err(|it| self.denied("get", "pods/log", &it))
    }

    /// A federation, if it is there.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Federation>, Denied> {
        match self.federations().get(name).await {
            Ok(federation) => Ok(Some(federation)),
            // The name is in the details when the kind is known, and nothing but the name is missing.
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let kind_is_known = status.details.as_ref().is_some_and(|it| it.name == name);
                if kind_is_known {
                    return Ok(None);
                }
                Err(Trouble::input(miette!(help = INSTALL, "the cluster knows no federations")).into())
            }
            Err(error) => Err(self.denied("get", "federations", &error)),
        }
    }

    fn federations(&self) -> Api<Federation> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Why something could not be done.
    fn denied(&self, verb: &str, what: &str, error: &kube::Error) -> Denied {
        let trouble = match error {
            kube::Error::Api(status) if status.is_forbidden() => {
                let help = format!(
                    "it takes the right to `{verb}` {what} in the namespace `{}`; docs/kubernetes.md has a role with \
                     all rights that this program needs",
                    self.namespace
                );
                Trouble::input(miette!(help = help, "{}", status.message))
            }
            // What is missing may be the whole kind of resource: that answer is no status, and has a code only.
            kube::Error::Api(status) if status.code == 404 => {
                let is_place = status.details.as_ref().is_some_and(|it| it.kind == "namespaces");
                let help = if is_place { "name a namespace that exists with `--namespace`" } else { INSTALL };
                Trouble::input(miette!(
                    help = help,
                    "the cluster cannot {verb} {what}: {}",
                    status.message.trim_end()
                ))
            }
            error => Trouble::machine(format!("the API server does not {verb} {what}: {error}")),
        };
        Denied { trouble, passes: passes(error) }
    }
}
