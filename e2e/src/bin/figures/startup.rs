//! Measures the time from `apply` until all pods are running and all links are emulated, and compares it with
//! the time that plain sets with the same number of pods take. The operator should add almost nothing to the
//! time that the pods themselves take.

use std::time::{Duration, Instant};

use clap::Args;
use faultline_api::resource::{Emulation, Kubernetes, Resources};
use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, condition};
use faultline_e2e::{Failure, KubernetesCluster, QUICK_START, TestNamespace};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::median;

/// Time limit for each step: until all pods are running, all links are measured, or all pods are gone.
const STARTS: Duration = Duration::from_secs(300);
/// Time between two checks of a state that cannot be watched.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// Name of the plain set of pods, which belongs to no federation, and of the secret with its key.
const PLAIN: &str = "plain";

#[derive(Args)]
pub(super) struct Startup {
    /// Measure federations with these numbers of processes, in addition to the supervisor's pod. The plain sets have
    /// the same number of pods.
    #[arg(long, value_delimiter = ',', default_values_t = [20, 60])]
    pods: Vec<u32>,
    /// Run each variant N times, in rotating order.
    #[arg(long, default_value_t = 5, value_name = "N")]
    runs: u32,
}

/// The variants that are compared.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Federation,
    /// A stateful set with the same template.
    Identical,
    /// A stateful set with only the agent's container.
    OneContainer,
}

/// Times in seconds, one per run.
#[derive(Default)]
struct Times {
    pods: Vec<f64>,
    links: Vec<f64>,
    identical: Vec<f64>,
    one_container: Vec<f64>,
}

impl Startup {
    pub(super) async fn take(self, cluster: &KubernetesCluster) -> Result<(), Failure> {
        let ns = cluster.create_namespace("startup").await?;
        let taken = self.compare(&ns).await;
        if taken.is_err() {
            println!("{}", ns.dump().await);
        }
        let left = ns.remove().await;
        taken.and(left)
    }

    async fn compare(&self, ns: &TestNamespace) -> Result<(), Failure> {
        ns.set_profile("privileged").await?;
        let mut table = vec![
            "| processes | federation: pods run | links measured | identical set | ratio (goal 0.9) \
             | with links | one container | ratio (goal 0.7) |"
                .to_owned(),
            "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |".to_owned(),
        ];
        for &processes in &self.pods {
            // The first run does not count: it provides the template, loads images, and fills caches.
            federation(ns, processes).await?;
            let template = template(ns).await?;
            remove(ns, Way::Federation).await?;
            let mut times = Times::default();
            for run in 0..self.runs {
                let ways = [Way::Federation, Way::Identical, Way::OneContainer];
                for way in ways.into_iter().cycle().skip(run as usize).take(ways.len()) {
                    match way {
                        Way::Federation => {
                            let (pods, links) = federation(ns, processes).await?;
                            times.pods.push(pods.as_secs_f64());
                            times.links.push(links.as_secs_f64());
                        }
                        Way::Identical => {
                            times.identical.push(plain(ns, &template, processes).await?.as_secs_f64());
                        }
                        Way::OneContainer => {
                            let template = with_one_container(&template);
                            times.one_container.push(plain(ns, &template, processes).await?.as_secs_f64());
                        }
                    }
                    remove(ns, way).await?;
                }
                println!("{processes} processes, run {}: {}", run + 1, times.last());
            }
            table.push(times.row(processes));
        }
        println!("{}", table.join("\n"));
        Ok(())
    }
}

impl Times {
    fn last(&self) -> String {
        let show = |name: &str, times: &[f64]| times.last().map(|it| format!("{name} {it:.2} s"));
        let all = [
            show("pods", &self.pods),
            show("links", &self.links),
            show("identical", &self.identical),
            show("one container", &self.one_container),
        ];
        all.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Formats the row of the table for this number of processes: the medians, over all runs, of the times and of their
    /// ratios.
    fn row(&self, processes: u32) -> String {
        let ratio =
            |plain: &[f64], own: &[f64]| median(plain.iter().zip(own).map(|(it, own)| it / own).collect());
        format!(
            "| {processes} | {:.2} s | {:.2} s | {:.2} s | {:.2} | {:.2} | {:.2} s | {:.2} |",
            median(self.pods.clone()),
            median(self.links.clone()),
            median(self.identical.clone()),
            ratio(&self.identical, &self.pods),
            ratio(&self.identical, &self.links),
            median(self.one_container.clone()),
            ratio(&self.one_container, &self.pods),
        )
    }
}

/// Applies a federation. Returns the time until all its pods were running, and the time until its links were measured.
async fn federation(ns: &TestNamespace, processes: u32) -> Result<(Duration, Duration), Failure> {
    let begun = Instant::now();
    ns.apply(|spec| {
        spec.clusters[0].nodes = processes / 2;
        spec.clusters[1].nodes = processes - processes / 2;
        spec.faults.clear();
        // Only the time before the start of the application is measured.
        spec.pause = true;
        let (cpu, memory) = ("10m".parse().ok(), "64MiB".parse().ok());
        let resources = Resources { cpu, memory, ..Resources::default() };
        spec.kubernetes = Some(Kubernetes {
            links: Some(Emulation::Tc),
            resources: Some(resources),
            ..Kubernetes::default()
        });
    })
    .await?;
    let all_run = |it: &FederationStatus| it.holds(condition::PODS_READY);
    ns.wait(QUICK_START, "all pods run", STARTS, all_run).await?;
    let pods = begun.elapsed();
    let measured =
        |it: &FederationStatus| it.condition(condition::LINKED).is_some_and(|it| it.status != "Unknown");
    ns.wait(QUICK_START, "all links are measured", STARTS, measured).await?;
    Ok((pods, begun.elapsed()))
}

/// Returns the template of a federation's pods, with a key that outlives the federation.
async fn template(ns: &TestNamespace) -> Result<Value, Failure> {
    let set = ns.api::<StatefulSet>().get(&format!("{QUICK_START}-paris")).await?;
    let key = ns.api::<Secret>().get(&format!("{QUICK_START}-process-keys")).await?;
    let mut secret = Secret { data: key.data, ..Secret::default() };
    secret.metadata.name = Some(PLAIN.into());
    ns.api::<Secret>().delete(PLAIN, &DeleteParams::default()).await.map(drop).or_else(|it| match it {
        kube::Error::Api(status) if status.is_not_found() => Ok(()),
        error => Err(error),
    })?;
    ns.api::<Secret>().create(&PostParams::default(), &secret).await?;
    let mut template: PodTemplateSpec = set.spec.ok_or("the StatefulSet has no spec")?.template;
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    // The operator must not regard these pods as those of a federation.
    labels.insert("app.kubernetes.io/managed-by".into(), "figures".into());
    for volume in template.spec.iter_mut().flat_map(|it| it.volumes.iter_mut().flatten()) {
        if let Some(secret) = &mut volume.secret {
            secret.secret_name = Some(PLAIN.into());
        }
    }
    // The secret has no keys for the names of the plain pods, so all of them use the key of one process.
    let containers = template.spec.iter_mut().flat_map(|it| &mut it.containers);
    for mount in containers.flat_map(|it| it.volume_mounts.iter_mut().flatten()) {
        if mount.sub_path_expr.take().is_some() {
            mount.sub_path = Some(format!("{QUICK_START}-paris-0"));
        }
    }
    Ok(serde_json::to_value(template)?)
}

/// Returns a copy of the template without the shaper.
fn with_one_container(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(containers) = template["spec"]["containers"].as_array_mut() {
        containers.truncate(1);
        for container in containers {
            // With this argument, the agent would wait for the shaper before it starts.
            if let Some(args) = container["args"].as_array_mut() {
                let shaper = args.iter().position(|it| it == "--shaper").unwrap_or(args.len());
                args.truncate(shaper);
            }
        }
    }
    template
}

/// Creates a plain set with this template and as many pods as the federation has, including the supervisor's. Returns
/// the time until all of them were running.
async fn plain(ns: &TestNamespace, template: &Value, processes: u32) -> Result<Duration, Failure> {
    let pods = processes + 1;
    let set: StatefulSet = serde_json::from_value(json!({
        "metadata": { "name": PLAIN },
        "spec": {
            "replicas": pods,
            "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": template["metadata"]["labels"] },
            "template": template,
        },
    }))?;
    let begun = Instant::now();
    ns.api::<StatefulSet>().create(&PostParams::default(), &set).await?;
    let all_run = |it: Option<&StatefulSet>| {
        let ready = it.and_then(|it| it.status.as_ref()?.ready_replicas);
        ready.is_some_and(|it| it.unsigned_abs() == pods)
    };
    ns.until::<StatefulSet>(PLAIN, "all pods run", STARTS, all_run).await?;
    Ok(begun.elapsed())
}

/// Deletes the created objects, and waits until all pods are gone, so that the next run does not have to wait for them.
async fn remove(ns: &TestNamespace, way: Way) -> Result<(), Failure> {
    match way {
        Way::Federation => {
            drop(ns.api::<FederationObject>().delete(QUICK_START, &DeleteParams::default()).await?)
        }
        _ => drop(ns.api::<StatefulSet>().delete(PLAIN, &DeleteParams::background()).await?),
    }
    let begun = Instant::now();
    while begun.elapsed() < STARTS {
        let pods = ns.api::<Pod>().list_metadata(&ListParams::default()).await?.items;
        let sets = ns.api::<StatefulSet>().list_metadata(&ListParams::default()).await?.items;
        let federations = ns.api::<FederationObject>().list_metadata(&ListParams::default()).await?.items;
        if pods.is_empty() && sets.is_empty() && federations.is_empty() {
            return Ok(());
        }
        sleep(CHECK_EVERY).await;
    }
    let left = ns.api::<Pod>().list_metadata(&ListParams::default()).await?.items;
    Err(format!("these pods remain: {}", left.iter().map(|it| it.name_any()).collect::<Vec<_>>().join(", "))
        .into())
}
