//! A Kubernetes cluster, and the namespace of a scenario on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write as _};
use std::time::{Duration, Instant};

use faultline_api::resource::FederationSpec;
use faultline_api::samples::sample;
use faultline_api::{Federation, quantity};
use faultline_client::object::FederationObject;
use faultline_client::outline::{self, Outline};
use faultline_client::status::{FederationStatus, Phase, condition};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::scenario::{Busy, Failure};

/// Default name of a federation, and the sample from which federations are made.
pub const QUICK_START: &str = "quickstart";
/// Environment variable with the latency between the clusters of the quick start, for busy machines: a
/// deviation that exceeds the tolerance for the usual 5 ms may be within the tolerance for 50 ms.
const LATENCY: &str = "FAULTLINE_E2E_LATENCY";
/// Time limit for an application to start.
const STARTS: Duration = Duration::from_secs(120);
/// Time limit for a run to end and be judged.
const JUDGED: Duration = Duration::from_secs(240);
/// Time between two checks of a state that cannot be watched.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// Time limit for deleting a federation or a namespace.
const CLEANED_UP: Duration = Duration::from_secs(120);

/// A connection to a Kubernetes cluster.
#[derive(Clone)]
pub struct KubernetesCluster {
    pub(crate) client: Client,
}

/// A namespace for one scenario.
#[derive(Clone)]
pub struct TestNamespace {
    /// Client of the cluster.
    pub client: Client,
    /// Name of the namespace.
    pub namespace: String,
}

impl KubernetesCluster {
    /// Connects to a cluster with the kubeconfig at this path.
    pub async fn connect(kubeconfig: &str) -> Result<KubernetesCluster, Failure> {
        // The test may have connected to another cluster before.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let version = client.apiserver_version().await?;
        println!("Kubernetes {}.{}", version.major, version.minor);
        Api::<FederationObject>::all(client.clone()).list(&ListParams::default()).await.map_err(|it| {
            format!(
                "cannot list federations ({it}): install Faultline on the cluster (see docs/kubernetes.md)"
            )
        })?;
        Ok(KubernetesCluster { client })
    }

    /// Creates a namespace for a scenario, with a random suffix in its name.
    pub async fn create_namespace(&self, scenario: &str) -> Result<TestNamespace, Failure> {
        let mut random = [0; 4];
        getrandom::fill(&mut random)?;
        let suffix: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let namespace = format!("faultline-e2e-{}-{suffix}", scenario.replace('_', "-"));
        let object: Namespace = serde_json::from_value(json!({ "metadata": {
            "name": namespace,
            "labels": { "pod-security.kubernetes.io/enforce": "restricted" },
        } }))?;
        Api::all(self.client.clone()).create(&PostParams::default(), &object).await?;
        Ok(TestNamespace { client: self.client.clone(), namespace })
    }
}

/// Returns the federation of a sample.
pub fn read_sample(name: &str) -> Result<Federation, Failure> {
    let text = sample(name).ok_or_else(|| format!("there is no sample `{name}`"))?.text;
    Ok(faultline_api::parse(name, text.as_bytes()).map_err(|it| it.to_string())?)
}

impl TestNamespace {
    /// Creates another namespace on the same cluster.
    pub async fn another(&self, name: &str) -> Result<TestNamespace, Failure> {
        KubernetesCluster { client: self.client.clone() }.create_namespace(name).await
    }

    /// Sets the Pod Security profile that is enforced in this namespace.
    pub async fn set_profile(&self, profile: &str) -> Result<(), Failure> {
        let patch = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": profile } } });
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.patch(&self.namespace, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Restarts a container of a pod by referring to its image under another name: a kubelet restarts a container
    /// whose image has changed.
    pub async fn restart_container(&self, pod: &str, container: &str) -> Result<(), Failure> {
        let pods = self.api::<Pod>();
        let spec = pods.get(pod).await?.spec.ok_or("the pod has no spec")?;
        let it = spec.containers.iter().find(|it| it.name == container);
        let image = it
            .and_then(|it| it.image.clone())
            .ok_or_else(|| format!("{pod} has no container {container}"))?;
        if image.contains('/') {
            return Err(format!("the image {image} has no other known name").into());
        }
        let image = format!("docker.io/library/{image}");
        let patch = json!({ "spec": { "containers": [{ "name": container, "image": image }] } });
        pods.patch(pod, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(())
    }

    /// Returns the API for objects of one kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Returns the API for federations whose specs this program may be unable to read.
    pub fn outlines(&self) -> Api<Outline> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &outline::resource())
    }

    /// Applies the quick start with changes, and returns it as stored by the API server.
    pub async fn apply(&self, change: impl FnOnce(&mut FederationSpec)) -> Result<FederationObject, Failure> {
        self.apply_as(QUICK_START, change).await
    }

    /// Applies the quick start under another name, with changes.
    pub async fn apply_as(
        &self,
        name: &str,
        change: impl FnOnce(&mut FederationSpec),
    ) -> Result<FederationObject, Failure> {
        let latency = std::env::var(LATENCY).ok().map(|it| it.parse::<quantity::Duration>());
        let latency = latency.transpose().map_err(|it| format!("{LATENCY}: {it}"))?;
        self.apply_sample(QUICK_START, |federation| {
            federation.metadata.name = Some(name.to_owned());
            if let (Some(latency), Some(links)) = (latency, &mut federation.spec.links) {
                links.between.iter_mut().for_each(|it| it.latency = Some(latency));
            }
            change(&mut federation.spec);
        })
        .await
    }

    /// Applies a sample with changes, and returns it as stored by the API server.
    pub async fn apply_sample(
        &self,
        name: &str,
        change: impl FnOnce(&mut Federation),
    ) -> Result<FederationObject, Failure> {
        let mut federation = read_sample(name)?;
        change(&mut federation);
        Ok(self.api().create(&PostParams::default(), &FederationObject::from(federation)).await?)
    }

    /// Applies a sample with a long latency between clusters, for scenarios that do not test the precision of links
    /// and must work on a busy machine.
    pub async fn apply_over_slow_links(&self, name: &str) -> Result<FederationObject, Failure> {
        self.apply_sample(name, |federation| {
            let links = federation.spec.links.as_mut();
            let between = links.and_then(|it| it.between.as_mut()).expect("the sample sets these links");
            between.latency = "50ms".parse().ok();
        })
        .await
    }

    /// Waits until a federation's status satisfies a condition, and returns the status.
    pub async fn wait(
        &self,
        name: &str,
        what: &str,
        within: Duration,
        wanted: impl Fn(&FederationStatus) -> bool,
    ) -> Result<FederationStatus, Failure> {
        let is_so = |it: Option<&Outline>| it.and_then(|it| it.status.as_ref()).is_some_and(&wanted);
        let federation = await_until(self.outlines(), name, what, within, is_so).await?;
        federation.and_then(|it| it.status).ok_or_else(|| format!("{name} was deleted").into())
    }

    /// Returns the reasons of all events of federations in this namespace.
    pub async fn event_reasons(&self) -> Result<BTreeSet<String>, Failure> {
        let events = self.api::<Event>().list(&ListParams::default()).await?.items;
        let told = events.into_iter().filter(|it| it.involved_object.kind.as_deref() == Some("Federation"));
        Ok(told.filter_map(|it| it.reason).collect())
    }

    /// Returns the messages of all federation events with this reason.
    pub async fn event_messages(&self, reason: &str) -> Result<Vec<String>, Failure> {
        let events = self.api::<Event>().list(&ListParams::default()).await?.items;
        let told = events.into_iter().filter(|it| it.involved_object.kind.as_deref() == Some("Federation"));
        let told = told.filter(|it| it.reason.as_deref() == Some(reason));
        Ok(told.filter_map(|it| it.message).collect())
    }

    /// Checks that every process that was declared failed was the target of a planned fault.
    ///
    /// # Errors
    ///
    /// [`Busy`] if a process was declared failed without a planned fault: the machine was too busy for its heartbeats.
    pub async fn heartbeats_were_on_time(&self) -> Result<(), Failure> {
        let declared = self.event_messages("DeclaredFailed").await?;
        match declared.into_iter().find(|it| it.contains("without a planned fault")) {
            Some(message) => Err(Busy(message).into()),
            None => Ok(()),
        }
    }

    /// Waits for the first of these times, and returns whether a federation stays unchanged for the second one.
    pub async fn is_unchanged(
        &self,
        name: &str,
        (from, during): (Duration, Duration),
    ) -> Result<bool, Failure> {
        let version =
            async || Ok::<_, Failure>(self.api::<FederationObject>().get(name).await?.resource_version());
        sleep(from).await;
        let before = version().await?;
        sleep(during).await;
        Ok(version().await? == before)
    }

    /// Waits until a federation has reached a phase.
    pub async fn reach(&self, name: &str, phase: Phase) -> Result<FederationStatus, Failure> {
        self.wait(name, &format!("the phase {phase:?}"), STARTS, |it| it.phase >= phase).await
    }

    /// Waits until an object, or its absence, satisfies a condition.
    pub async fn until<K>(
        &self,
        name: &str,
        what: &str,
        within: Duration,
        wanted: impl Condition<K>,
    ) -> Result<Option<K>, Failure>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
    {
        await_until(self.api::<K>(), name, what, within, wanted).await
    }

    /// Waits for the verdict of a run.
    pub async fn verdict(&self, name: &str) -> Result<FederationStatus, Failure> {
        let is_over = |it: &FederationStatus| it.holds(condition::COMPLETED);
        self.wait(name, "a verdict", JUDGED, is_over).await
    }

    /// Waits for the verdict of a run, which must be `pass`.
    pub async fn passes(&self, name: &str) -> Result<FederationStatus, Failure> {
        let status = self.verdict(name).await?;
        let how: Vec<&str> = status.conditions.iter().map(|it| it.message.as_str()).collect();
        let why = status.condition(condition::COMPLETED).map_or("", |it| it.message.as_str());
        if status.verdict.as_deref() == Some("pass") {
            Ok(status)
        } else if let Some(busy) = Busy::found(status.verdict.as_deref(), why) {
            Err(busy.into())
        } else {
            let verdict = status.verdict.as_deref().unwrap_or("missing");
            Err(format!("the verdict is {verdict}: {}", how.join("; ")).into())
        }
    }

    /// Waits for the verdict of a run in which lives of this cluster were lost together with their places. Returns
    /// the reasons of all events.
    ///
    /// # Errors
    ///
    /// Fails if the cluster has not rolled back, or if the verdict is neither `pass` nor an `unknown` that is due only
    /// to the facts that were lost with these lives.
    pub async fn recovers(&self, name: &str, cluster: &str) -> Result<BTreeSet<String>, Failure> {
        let status = self.verdict(name).await?;
        let completed =
            status.condition(condition::COMPLETED).ok_or("the condition `Completed` is missing")?;
        let verdict = status.verdict.as_deref();
        let said = (verdict, completed.reason.as_str());
        let is_expected = match said {
            (Some("pass"), "Pass") => true,
            (Some("unknown"), "Unknown") => is_of_lost_facts(&completed.message, cluster),
            _ => false,
        };
        if !is_expected {
            let verdict = verdict.unwrap_or("missing");
            let why = format!("{}: {}", completed.reason, completed.message);
            return Err(Busy::found(Some(verdict), &completed.message).map_or_else(
                || format!("the verdict is {verdict}, with the reason {why}").into(),
                Failure::from,
            ));
        }
        let rollbacks = status.clusters.iter().find(|it| it.name == cluster).map(|it| it.rollbacks);
        match rollbacks {
            None => return Err(format!("the status does not contain the cluster {cluster}").into()),
            Some(0) => return Err(format!("{cluster} has not rolled back").into()),
            Some(_) => {}
        }
        self.event_reasons().await
    }

    /// Deletes a federation, and waits until none of its objects [remain](TestNamespace::remains).
    pub async fn delete(&self, name: &str) -> Result<(), Failure> {
        self.api::<FederationObject>().delete(name, &DeleteParams::default()).await?;
        let is_gone = |it: Option<&FederationObject>| it.is_none();
        self.until::<FederationObject>(name, &format!("{name} is gone"), CLEANED_UP, is_gone).await?;
        // Kubernetes' garbage collector deletes the other objects, such as the secret with the key, afterwards.
        let begun = Instant::now();
        loop {
            let left = self.remains(name).await?;
            if left.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > CLEANED_UP {
                return Err(
                    format!("{name} was deleted, but these objects remain: {}", left.join(", ")).into()
                );
            }
            sleep(CHECK_EVERY).await;
        }
    }

    /// Deletes a pod without a grace period, as if its machine had failed.
    pub async fn kill_pod(&self, name: &str) -> Result<(), Failure> {
        self.api::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Returns the UID and the restart count of every pod, by name.
    pub async fn pods(&self) -> Result<BTreeMap<String, (Option<String>, i32)>, Failure> {
        let restarts = |pod: &Pod| {
            let statuses =
                pod.status.as_ref().and_then(|it| it.container_statuses.clone()).unwrap_or_default();
            statuses.iter().map(|it| it.restart_count).sum()
        };
        let pods = self.api::<Pod>().list(&ListParams::default()).await?;
        Ok(pods.iter().map(|it| (it.name_any(), (it.uid(), restarts(it)))).collect())
    }

    /// Returns the kinds and names of all objects of one kind that a list with these parameters contains.
    pub async fn names<K>(&self, of: &ListParams) -> Result<Vec<String>, Failure>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let kind = K::kind(&());
        let all = self.api::<K>().list_metadata(of).await?;
        Ok(all.iter().map(|it| format!("{kind} {}", it.name_any())).collect())
    }

    /// Returns the kinds and names of the sets, pods, secrets, config maps, claims and network policies that remain of
    /// a federation.
    pub async fn remains(&self, name: &str) -> Result<Vec<String>, Failure> {
        let labels =
            format!("app.kubernetes.io/managed-by=faultline-operator,faultline.dev/federation={name}");
        let of_it = &ListParams::default().labels(&labels);
        let mut left = self.names::<StatefulSet>(of_it).await?;
        left.extend(self.names::<Pod>(of_it).await?);
        left.extend(self.names::<Secret>(of_it).await?);
        left.extend(self.names::<ConfigMap>(of_it).await?);
        left.extend(self.names::<PersistentVolumeClaim>(of_it).await?);
        left.extend(self.names::<NetworkPolicy>(of_it).await?);
        Ok(left)
    }

    /// Describes the objects in the namespace, to find out why a scenario failed.
    pub async fn dump(&self) -> String {
        let mut text = String::new();
        match self.api::<FederationObject>().list(&ListParams::default()).await {
            Ok(federations) => {
                for mut it in federations {
                    it.metadata.managed_fields = None;
                    let yaml = serde_saphyr::to_string(&it).unwrap_or_else(|error| error.to_string());
                    let _ = writeln!(text, "--- federation {}\n{yaml}", it.name_any());
                }
            }
            Err(error) => text += &format!("--- no federations: {error}\n"),
        }
        match self.api::<Pod>().list(&ListParams::default()).await {
            Ok(pods) => {
                for pod in pods {
                    let status = serde_json::to_string(&pod.status).unwrap_or_else(|error| error.to_string());
                    let _ = writeln!(text, "--- pod {}: {status}", pod.name_any());
                }
            }
            Err(error) => text += &format!("--- no pods: {error}\n"),
        }
        match self.api::<Event>().list(&ListParams::default()).await {
            Ok(events) => {
                for it in events {
                    let about = it.involved_object.name.unwrap_or_default();
                    let _ = writeln!(
                        text,
                        "--- event of {about}: {}: {}",
                        it.reason.unwrap_or_default(),
                        it.message.unwrap_or_default()
                    );
                }
            }
            Err(error) => text += &format!("--- no events: {error}\n"),
        }
        text
    }

    /// Deletes the namespace, and waits until it is gone. Fails if an object in it blocks the deletion.
    pub async fn remove(self) -> Result<(), Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::background()).await?;
        let is_gone = await_condition(namespaces, &self.namespace, |it: Option<&Namespace>| it.is_none());
        match timeout(CLEANED_UP, is_gone).await {
            Ok(gone) => Ok(gone.map(drop)?),
            Err(_) => Err(format!("the namespace {} was not deleted in time", self.namespace).into()),
        }
    }
}

async fn await_until<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    within: Duration,
    wanted: impl Condition<K>,
) -> Result<Option<K>, Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    match timeout(within, await_condition(api, name, wanted)).await {
        Ok(object) => Ok(object?),
        Err(_) => Err(format!("timed out after {within:?}, waiting for: {what}").into()),
    }
}

/// Returns whether all reasons for a verdict are facts that were lost with processes of this cluster, or consequences of
/// such a loss: only the facts of its sender tell which checkpoint a message must force. Each reason is followed by its
/// remedy.
fn is_of_lost_facts(reasons: &str, cluster: &str) -> bool {
    let of_cluster = format!("the facts of {cluster}-");
    let is_lost = |it: &str| it.starts_with(&of_cluster) && it.contains("may be incomplete");
    let is_unstated = |it: &str| {
        let message =
            it.strip_prefix("the checkpoint that message ").filter(|it| it.ends_with(" is unknown"));
        message.is_some_and(|it| it.contains(&format!(" from {cluster}-")))
    };
    let is_remedy = |it: &str| it.starts_with("restore the files of the record ");
    let parts = || reasons.split("; ");
    parts().any(is_lost) && parts().all(|it| is_lost(it) || is_unstated(it) || is_remedy(it))
}

#[cfg(test)]
mod tests {
    use faultline_core::{Life, ProcessId};
    use faultline_trace::{Flaw, FlawKind};

    use super::is_of_lost_facts;

    #[test]
    fn only_facts_that_were_lost_with_the_cluster_are_excused() {
        let flaw =
            |kind| Flaw { stream: Some((ProcessId(3), Life(1))), kind }.describe(|_| "rennes-0".to_owned());
        let lost = flaw(FlawKind::Incomplete(668));
        assert!(is_of_lost_facts(&format!("{lost}; {lost}"), "rennes"), "{lost}");
        assert!(!is_of_lost_facts(&lost, "paris"), "{lost}");
        assert!(!is_of_lost_facts(&format!("{lost}; {}", flaw(FlawKind::Absent)), "rennes"));
        assert!(!is_of_lost_facts("", "rennes"));
        let unstated =
            "the checkpoint that message 118 from rennes-2 to paris-0 forced at paris-0 is unknown";
        let remedy = "restore the files of the record from a complete copy, or repeat the run";
        assert!(is_of_lost_facts(&format!("{lost}; {remedy}; {unstated}; {remedy}"), "rennes"));
        assert!(!is_of_lost_facts(unstated, "rennes"), "no facts were lost");
        assert!(!is_of_lost_facts(
            &format!("{lost}; {}", unstated.replace("from rennes", "from nancy")),
            "rennes"
        ));
    }
}
