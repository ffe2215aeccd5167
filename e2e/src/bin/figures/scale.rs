//! Measures what many federations cost an operator (requests, memory, and status writes), and how much the operator
//! delays them (the time until all pods are running, compared with the time that plain sets of pods take).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, Phase};
use faultline_e2e::{Failure, KubernetesCluster, Operators, TestNamespace};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::kubelet;
use super::operator::{Operator, Used};
use super::supervisors::Supervisors;

/// Maximum number of requests that this program makes in parallel.
const AT_ONCE: usize = 8;
/// Time between two checks.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Time limit for each step.
const LONGEST: Duration = Duration::from_secs(1800);
/// Time for which the statuses of running federations are watched.
const WATCHED: Duration = Duration::from_secs(20);

#[derive(Args)]
pub(super) struct Scale {
    /// Measure three batches of federations: a quarter of N, half of N, and N.
    #[arg(long, default_value_t = 200, value_name = "N")]
    federations: u32,
    /// Give each federation N processes, in addition to the supervisor's pod.
    #[arg(long, default_value_t = 25, value_name = "N")]
    processes: u32,
    /// Run the operator in FILE. Default: the one in the directory of this program.
    #[arg(long, value_name = "FILE")]
    operator: Option<PathBuf>,
}

/// Measurements of one batch of federations.
struct Batch {
    federations: u32,
    pods: u32,
    /// Time from the first `apply` until all federations are running.
    converged: Duration,
    /// Resources used from the first `apply` until all federations are running.
    starting: Used,
    /// Resources used from the first `apply` until everything is deleted.
    whole: Used,
    /// Highest rate of writes to a single status while all federations were running, in writes per second.
    writes: f64,
}

impl Scale {
    pub(super) async fn take(self, cluster: &KubernetesCluster) -> Result<(), Failure> {
        let program = match &self.operator {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("faultline-operator"),
        };
        if !program.exists() {
            let it = program.display();
            return Err(format!("there is no {it}: build it with `cargo build -p faultline-operator`").into());
        }
        let ns = cluster.create_namespace("scale").await?;
        let client = ns.client.clone();
        let sent = Operators::stop(&client).await?;
        let reserved = kubelet::reserve(&client).await?;
        let nodes = kubelet::make(&client, self.federations * (self.processes + 1)).await?;
        let taken = tokio::select! {
            taken = self.measure(&ns, &program, &nodes) => taken,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        };
        // Restore the cluster even after an error, beginning with the nodes, which the operators need.
        let freed = kubelet::admit(&client, &reserved, true).await;
        let removed = kubelet::remove(&client, &nodes).await;
        let back = sent.start().await;
        let left = ns.remove().await;
        taken.and(freed).and(removed).and(back).and(left)
    }

    async fn measure(&self, ns: &TestNamespace, program: &PathBuf, nodes: &[String]) -> Result<(), Failure> {
        let mut kubelets = JoinSet::new();
        kubelets.spawn(kubelet::beat(ns.client.clone(), nodes.to_vec()));
        kubelets.spawn(kubelet::host(ns.client.clone(), ns.namespace.clone()));
        tokio::select! {
            taken = self.compare(ns, program) => taken,
            Some(ended) = kubelets.join_next() => Err(format!("a fake kubelet stopped: {ended:?}").into()),
        }
    }

    async fn compare(&self, ns: &TestNamespace, program: &PathBuf) -> Result<(), Failure> {
        let clusters =
            vec![("paris".to_owned(), self.processes / 2), ("rennes".to_owned(), self.processes.div_ceil(2))];
        let supervisors = Supervisors::start(clusters).await?;
        let alone = self.without_operator(ns).await?;
        println!(
            "without an operator: {} sets with a total of {} pods, all running after {:.1} s",
            self.federations * 3,
            self.federations * (self.processes + 1),
            alone.as_secs_f64()
        );
        let operator = Operator::start(program).await?;
        let mut batches = Vec::new();
        for share in [4, 2, 1] {
            let batch = self.batch(ns, &operator, &supervisors, self.federations.div_ceil(share)).await?;
            println!("{}", batch.row());
            batches.push(batch);
        }
        let Some(last) = batches.last() else { return Ok(()) };
        println!("\n{}", Batch::HEAD);
        batches.iter().for_each(|it| println!("{}", it.row()));
        println!(
            "\n{} federations: {:.1} s; the same sets of pods without an operator: {:.1} s; ratio {:.2}",
            last.federations,
            last.converged.as_secs_f64(),
            alone.as_secs_f64(),
            alone.as_secs_f64() / last.converged.as_secs_f64()
        );
        let requests = |used: &Used| {
            used.requests
                .iter()
                .map(|(method, count)| format!("{method} {count}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        println!(
            "requests until all were running: {}; in total: {}",
            requests(&last.starting),
            requests(&last.whole)
        );
        println!("peak memory of the operator: {:.1} MB (goal: 100)", last.whole.memory / 1e6);
        Ok(())
    }

    /// Creates plain sets with the same numbers of pods as the federations' sets. Returns the time until all pods were
    /// running.
    async fn without_operator(&self, ns: &TestNamespace) -> Result<Duration, Failure> {
        let sets = self.sets(ns)?;
        let begun = Instant::now();
        each(&sets, async |set| Ok(ns.api().create(&PostParams::default(), set).await.map(drop)?)).await?;
        let all_run = async || {
            let sets = ns.api::<StatefulSet>().list(&ListParams::default()).await?;
            let ready = sets.iter().filter_map(|it| it.status.as_ref()?.ready_replicas).sum::<i32>();
            Ok(ready.unsigned_abs() == self.federations * (self.processes + 1))
        };
        until("all pods run", all_run).await?;
        let took = begun.elapsed();
        let names: Vec<String> = sets.iter().map(ResourceExt::name_any).collect();
        let api = ns.api::<StatefulSet>();
        each(&names, async |it| Ok(api.delete(it, &DeleteParams::background()).await.map(drop)?)).await?;
        until("no pods remain", async || no_pods_left(ns).await).await?;
        Ok(took)
    }

    fn sets(&self, ns: &TestNamespace) -> Result<Vec<StatefulSet>, Failure> {
        let sizes = [self.processes / 2, self.processes.div_ceil(2), 1];
        let mut sets = Vec::new();
        for federation in 0..self.federations {
            for (number, pods) in sizes.into_iter().enumerate() {
                let name = format!("plain-{federation}-{number}");
                sets.push(serde_json::from_value(json!({
                    "metadata": { "name": name, "namespace": ns.namespace },
                    "spec": {
                        "replicas": pods,
                        "podManagementPolicy": "Parallel",
                        "selector": { "matchLabels": { "set": name } },
                        "template": {
                            "metadata": { "labels": { "set": name } },
                            "spec": confined(),
                        },
                    },
                }))?);
            }
        }
        Ok(sets)
    }

    /// Runs `federations` federations in parallel, from `apply` to their deletion.
    async fn batch(
        &self,
        ns: &TestNamespace,
        operator: &Operator,
        supervisors: &Supervisors,
        federations: u32,
    ) -> Result<Batch, Failure> {
        let before = operator.used().await?;
        let begun = Instant::now();
        let names: Vec<String> = (0..federations).map(|it| format!("f{federations}-{it}")).collect();
        let apply = async |name: &String| {
            let applied = ns.apply_as(name, |spec| {
                spec.clusters[0].nodes = self.processes / 2;
                spec.clusters[1].nodes = self.processes.div_ceil(2);
                spec.faults.clear();
            });
            applied.await.map(drop)
        };
        each(&names, apply).await?;
        let reached = async |wanted: fn(&FederationStatus) -> bool| {
            let all = ns.api::<FederationObject>().list(&ListParams::default()).await?;
            Ok(all.iter().all(|it| it.status.as_ref().is_some_and(wanted)))
        };
        until("all run", async || reached(|it| it.phase == Phase::Running).await).await?;
        let (converged, starting) = (begun.elapsed(), operator.used().await?.since(&before));
        let writes = self.writes(ns).await?;
        supervisors.complete();
        until("all runs have ended", async || reached(|it| it.phase == Phase::Completed).await).await?;
        let api = ns.api::<FederationObject>();
        each(&names, async |it| Ok(api.delete(it, &DeleteParams::default()).await.map(drop)?)).await?;
        let gone = async || {
            let left =
                ns.api::<FederationObject>().list_metadata(&ListParams::default().limit(1)).await?.items;
            Ok(left.is_empty() && no_pods_left(ns).await?)
        };
        until("all federations are deleted", gone).await?;
        let whole = operator.used().await?.since(&before);
        let pods = federations * (self.processes + 1);
        Ok(Batch { federations, pods, converged, starting, whole, writes })
    }

    /// Returns the number of writes per second to the most frequently written status.
    async fn writes(&self, ns: &TestNamespace) -> Result<f64, Failure> {
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let events = watcher(ns.api::<FederationObject>(), watcher::Config::default()).default_backoff();
        let begun = Instant::now();
        let mut events = Box::pin(events.take_until(sleep(WATCHED)));
        while let Some(event) = events.next().await {
            if let watcher::Event::Apply(federation) = event? {
                *seen.entry(federation.name_any()).or_default() += 1;
            }
        }
        let most = seen.into_values().max().unwrap_or(0);
        Ok(f64::from(most) / begun.elapsed().as_secs_f64())
    }
}

impl Batch {
    const HEAD: &str = "| federations | pods | all running after | requests per pod until then | in total \
                        | CPU time until then | peak rate of status writes |\n\
                        | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

    fn row(&self) -> String {
        let pods = f64::from(self.pods);
        format!(
            "| {} | {} | {:.1} s | {:.2} | {:.2} | {:.1} s | {:.2} /s |",
            self.federations,
            self.pods,
            self.converged.as_secs_f64(),
            self.starting.calls() / pods,
            self.whole.calls() / pods,
            self.starting.seconds,
            self.writes
        )
    }
}

/// Returns a pod spec that the `restricted` Pod Security profile permits.
fn confined() -> serde_json::Value {
    json!({
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 2,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{
            "name": "nothing",
            "image": "nothing:0",
            "resources": { "requests": { "cpu": "50m", "memory": "64Mi" } },
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
        }],
    })
}

/// Calls `act` for each element, with several calls in parallel.
async fn each<T>(all: &[T], act: impl AsyncFn(&T) -> Result<(), Failure>) -> Result<(), Failure> {
    stream::iter(all).map(Ok).try_for_each_concurrent(AT_ONCE, async |it| act(it).await).await
}

async fn until(what: &str, is_so: impl AsyncFn() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begun = Instant::now();
    while !is_so().await? {
        if begun.elapsed() > LONGEST {
            return Err(format!("timed out after {LONGEST:?} while waiting until {what}").into());
        }
        sleep(CHECK_EVERY).await;
    }
    Ok(())
}

async fn no_pods_left(ns: &TestNamespace) -> Result<bool, Failure> {
    Ok(ns.api::<Pod>().list_metadata(&ListParams::default().limit(1)).await?.items.is_empty())
}
