//! The operators that are installed on a cluster.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::Failure;

const SELECTOR: &str = "app.kubernetes.io/name=faultline,app.kubernetes.io/component=operator";
/// Time limit for stopping the operators, and for restarting each of them.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Installed operators that have been stopped, so that another one can be active.
pub struct Operators {
    client: Client,
    /// The operators' deployments, with their numbers of replicas.
    installed: Vec<(Deployment, i32)>,
}

impl Operators {
    /// Stops all operators, and waits until none is running.
    pub async fn stop(client: &Client) -> Result<Operators, Failure> {
        let found = Api::<Deployment>::all(client.clone()).list(&of_operators()).await?;
        let replicas = |it: &Deployment| it.spec.as_ref().and_then(|it| it.replicas).unwrap_or(1);
        let installed = found.into_iter().map(|it| (it.clone(), replicas(&it))).collect();
        let operators = Operators { client: client.clone(), installed };
        for (it, _) in &operators.installed {
            operators.scale(it, 0).await?;
        }
        let pods = Api::<Pod>::all(client.clone());
        let gone = async {
            while !pods.list_metadata(&of_operators()).await?.items.is_empty() {
                sleep(CHECK_EVERY).await;
            }
            Ok::<_, Failure>(())
        };
        timeout(TIMEOUT, gone)
            .await
            .map_err(|_| format!("an operator did not stop within {TIMEOUT:?}"))??;
        Ok(operators)
    }

    /// Restarts the operators.
    pub async fn start(self) -> Result<(), Failure> {
        for (it, replicas) in &self.installed {
            self.scale(it, *replicas).await?;
            let api: Api<Deployment> = self.api(it);
            let works = async {
                let ready =
                    |it: &Deployment| it.status.as_ref().and_then(|it| it.ready_replicas).unwrap_or(0);
                while ready(&api.get(&it.name_any()).await?) < *replicas {
                    sleep(CHECK_EVERY).await;
                }
                Ok::<_, Failure>(())
            };
            timeout(TIMEOUT, works)
                .await
                .map_err(|_| format!("an operator did not restart within {TIMEOUT:?}"))??;
        }
        Ok(())
    }

    async fn scale(&self, it: &Deployment, replicas: i32) -> Result<(), Failure> {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        self.api(it).patch(&it.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    fn api(&self, it: &Deployment) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &it.namespace().unwrap_or_default())
    }
}

fn of_operators() -> ListParams {
    ListParams::default().labels(SELECTOR)
}
