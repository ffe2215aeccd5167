//! Time from `apply` until all pods run and all links are emulated, compared with as many pods in plain sets: a
//! federation should take no longer than its pods.

use std::time::{Duration, Instant};

use clap::Args;
use faultline_api::Federation;
use faultline_api::resource::{Emulation, FederationStatus, Kubernetes, Resources, condition};
use faultline_e2e::{Cluster, Failure, QUICK_START, Room};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::median;

/// Time limit for all pods to run.
const STARTS: Duration = Duration::from_secs(300);
/// Time between two checks of what cannot be watched.
const LOOK: Duration = Duration::from_millis(500);
/// Name of a plain set of pods that belongs to no federation, and of its key.
const PLAIN: &str = "plain";

#[derive(Args)]
pub(super) struct Startup {
    /// How many processes. The supervisor's pod comes on top, and the plain sets have as many pods.
    #[arg(long, value_delimiter = ',', default_values_t = [20, 60])]
    pods: Vec<u32>,
    /// How often each way is tried; they take turns.
    #[arg(long, default_value_t = 5)]
    runs: u32,
}

/// The ways that are compared.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Federation,
    /// A stateful set with the same template.
    Identical,
    /// A stateful set with only the agent's container.
    OneContainer,
}

/// Seconds, one entry per run.
#[derive(Default)]
struct Times {
    pods: Vec<f64>,
    links: Vec<f64>,
    identical: Vec<f64>,
    one_container: Vec<f64>,
}

impl Startup {
    pub(super) async fn take(self, cluster: &Cluster) -> Result<(), Failure> {
        let room = cluster.room("startup").await?;
        let taken = self.compare(&room).await;
        if taken.is_err() {
            println!("{}", room.dump().await);
        }
        let left = room.leave().await;
        taken.and(left)
    }

    async fn compare(&self, room: &Room) -> Result<(), Failure> {
        room.set_profile("privileged").await?;
        let mut table = vec![
            "| processes | federation: pods run | and links measured | identical set | ratio (goal 0.9) \
             | with links | one container | ratio (goal 0.7) |"
                .to_owned(),
            "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |".to_owned(),
        ];
        for &processes in &self.pods {
            // The first run is not counted: it provides the template, and loads everything that is loaded once.
            federation(room, processes).await?;
            let template = template(room).await?;
            remove(room, Way::Federation).await?;
            let mut times = Times::default();
            for run in 0..self.runs {
                let ways = [Way::Federation, Way::Identical, Way::OneContainer];
                for way in ways.into_iter().cycle().skip(run as usize).take(ways.len()) {
                    match way {
                        Way::Federation => {
                            let (pods, links) = federation(room, processes).await?;
                            times.pods.push(pods.as_secs_f64());
                            times.links.push(links.as_secs_f64());
                        }
                        Way::Identical => {
                            times.identical.push(plain(room, &template, processes).await?.as_secs_f64());
                        }
                        Way::OneContainer => {
                            let template = with_one_container(&template);
                            times.one_container.push(plain(room, &template, processes).await?.as_secs_f64());
                        }
                    }
                    remove(room, way).await?;
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

    /// Returns medians, including those of the ratios of consecutive measurements.
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

/// Applies a federation. Returns the time until all its pods ran, and the time until its links were measured.
async fn federation(room: &Room, processes: u32) -> Result<(Duration, Duration), Failure> {
    let begun = Instant::now();
    room.apply(|spec| {
        spec.clusters[0].nodes = processes / 2;
        spec.clusters[1].nodes = processes - processes / 2;
        spec.faults.clear();
        // The measured part is over before the application begins.
        spec.pause = true;
        let resources = Resources { cpu: "10m".parse().ok(), memory: "64MiB".parse().ok() };
        spec.kubernetes = Some(Kubernetes {
            links: Some(Emulation::Tc),
            resources: Some(resources),
            ..Kubernetes::default()
        });
    })
    .await?;
    let all_run = |it: &FederationStatus| it.holds(condition::PODS_READY);
    room.wait(QUICK_START, "all pods run", STARTS, all_run).await?;
    let pods = begun.elapsed();
    let measured =
        |it: &FederationStatus| it.condition(condition::LINKED).is_some_and(|it| it.status != "Unknown");
    room.wait(QUICK_START, "all links are measured", STARTS, measured).await?;
    Ok((pods, begun.elapsed()))
}

/// Returns the template of a federation's pods, with a key that outlives the federation.
async fn template(room: &Room) -> Result<Value, Failure> {
    let set = room.api::<StatefulSet>().get(&format!("{QUICK_START}-paris")).await?;
    let key = room.api::<Secret>().get(&format!("{QUICK_START}-process-keys")).await?;
    let mut secret = Secret { data: key.data, ..Secret::default() };
    secret.metadata.name = Some(PLAIN.into());
    room.api::<Secret>().delete(PLAIN, &DeleteParams::default()).await.map(drop).or_else(|it| match it {
        kube::Error::Api(status) if status.is_not_found() => Ok(()),
        error => Err(error),
    })?;
    room.api::<Secret>().create(&PostParams::default(), &secret).await?;
    let mut template: PodTemplateSpec = set.spec.ok_or("a set without a spec")?.template;
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    // From the operator's point of view, they belong to no federation.
    labels.insert("app.kubernetes.io/managed-by".into(), "figures".into());
    for volume in template.spec.iter_mut().flat_map(|it| it.volumes.iter_mut().flatten()) {
        if let Some(secret) = &mut volume.secret {
            secret.secret_name = Some(PLAIN.into());
        }
    }
    // Pods with other names use the key of an existing one.
    let containers = template.spec.iter_mut().flat_map(|it| &mut it.containers);
    for mount in containers.flat_map(|it| it.volume_mounts.iter_mut().flatten()) {
        if mount.sub_path_expr.take().is_some() {
            mount.sub_path = Some(format!("{QUICK_START}-paris-0"));
        }
    }
    Ok(serde_json::to_value(template)?)
}

/// Returns the same template without the shaper.
fn with_one_container(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(containers) = template["spec"]["containers"].as_array_mut() {
        containers.truncate(1);
        for container in containers {
            // The agent would wait for the shaper before it does anything.
            if let Some(args) = container["args"].as_array_mut() {
                let shaper = args.iter().position(|it| it == "--shaper").unwrap_or(args.len());
                args.truncate(shaper);
            }
        }
    }
    template
}

/// Creates a plain set with as many pods of this template as the federation has, including its supervisor's. Returns
/// the time until all of them ran.
async fn plain(room: &Room, template: &Value, processes: u32) -> Result<Duration, Failure> {
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
    room.api::<StatefulSet>().create(&PostParams::default(), &set).await?;
    let all_run = |it: Option<&StatefulSet>| {
        let ready = it.and_then(|it| it.status.as_ref()?.ready_replicas);
        ready.is_some_and(|it| it.unsigned_abs() == pods)
    };
    room.until::<StatefulSet>(PLAIN, "all pods run", STARTS, all_run).await?;
    Ok(begun.elapsed())
}

/// Deletes what was created, and waits until all pods are gone, so that the next run does not wait for their end.
async fn remove(room: &Room, way: Way) -> Result<(), Failure> {
    match way {
        Way::Federation => {
            drop(room.api::<Federation>().delete(QUICK_START, &DeleteParams::default()).await?)
        }
        _ => drop(room.api::<StatefulSet>().delete(PLAIN, &DeleteParams::background()).await?),
    }
    let begun = Instant::now();
    while begun.elapsed() < STARTS {
        let pods = room.api::<Pod>().list_metadata(&ListParams::default()).await?.items;
        let sets = room.api::<StatefulSet>().list_metadata(&ListParams::default()).await?.items;
        let federations = room.api::<Federation>().list_metadata(&ListParams::default()).await?.items;
        if pods.is_empty() && sets.is_empty() && federations.is_empty() {
            return Ok(());
        }
        sleep(LOOK).await;
    }
    let left = room.api::<Pod>().list_metadata(&ListParams::default()).await?.items;
    Err(format!("still there: {}", left.iter().map(|it| it.name_any()).collect::<Vec<_>>().join(", ")).into())
}
