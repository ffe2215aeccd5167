//! Measures how soon processes are declared failed, and their failures announced, after the Kubernetes node on which
//! they run has stopped responding.

use std::fs;
use std::time::Duration;

use clap::Args;
use faultline_client::object::FederationObject;
use faultline_client::status::Phase;
use faultline_e2e::{
    Failure, KubernetesCluster, Machine, Program, QUICK_START, Skipped, TestNamespace, read_sample,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::load;

/// The cluster whose Kubernetes node stops responding.
const SILENT: &str = "paris";
/// A taint that keeps all other pods off that Kubernetes node.
const TAINT: &str = "faultline.dev/silent";
/// `failures.detectAfter` of the quick start, in seconds.
const DETECT_AFTER: f64 = 2.0;
/// Time for which the Kubernetes node does not respond. It must exceed `detectAfter`, but not the time after which
/// Kubernetes evicts pods.
const SILENCE: Duration = Duration::from_secs(8);

#[derive(Args)]
pub(super) struct Silence {
    /// Measure one run for each of these numbers of silent processes.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 40])]
    processes: Vec<u32>,
}

/// Times of the failures of a run, in seconds after the last heartbeat of the process that was declared failed first.
/// That heartbeat is assumed to precede the declaration by [`DETECT_AFTER`].
struct Failures {
    declared: Vec<f64>,
    announced: Vec<f64>,
}

impl Silence {
    pub(super) async fn take(self, cluster: &KubernetesCluster) -> Result<(), Failure> {
        let ns = cluster.create_namespace("silence").await?;
        let node = worker(&ns.client).await?;
        let machine = Machine::find(&ns.client, &node).await?;
        machine.taint(TAINT).await?;
        let measured = self.measure(&ns, &machine, &node).await;
        let untainted = machine.untaint(TAINT).await;
        let left = ns.remove().await;
        measured.and(untainted).and(left)
    }

    async fn measure(&self, ns: &TestNamespace, machine: &Machine, node: &str) -> Result<(), Failure> {
        println!("| silent processes | load | declared failed after | failure announced after |");
        println!("| ---: | ---: | ---: | ---: |");
        for &number in &self.processes {
            ns.api().create(&PostParams::default(), &federation(number, node)?).await?;
            ns.reach(QUICK_START, Phase::Running).await?;
            let misplaced = other_pods(ns, node).await?;
            if !misplaced.is_empty() {
                return Err(format!("these pods also run on {node}: {}", misplaced.join(", ")).into());
            }
            // After this delay, the clusters have checkpoints to which they can roll back.
            sleep(Duration::from_secs(5)).await;
            machine.pause().await?;
            sleep(SILENCE).await;
            let load = load()?;
            machine.resume().await?;
            ns.verdict(QUICK_START).await?;
            let Failures { declared, announced } = failures(ns).await?;
            println!("| {} | {load} | {} | {} |", declared.len(), range(&declared), range(&announced));
            ns.delete(QUICK_START).await?;
        }
        Ok(())
    }
}

/// Returns a Kubernetes node that is not part of the control plane.
async fn worker(client: &Client) -> Result<String, Failure> {
    let workers = ListParams::default().labels("!node-role.kubernetes.io/control-plane");
    let nodes = Api::<Node>::all(client.clone()).list(&workers).await?.items;
    match &nodes[..] {
        [first, _, ..] => Ok(first.name_any()),
        _ => Err(Skipped("this needs two Kubernetes nodes besides the control plane".into()).into()),
    }
}

fn federation(silent: u32, node: &str) -> Result<FederationObject, Failure> {
    let mut federation = serde_json::to_value(read_sample(QUICK_START)?)?;
    let spec = &mut federation["spec"];
    spec["clusters"] = json!([{ "name": SILENT, "nodes": silent }, { "name": "rennes", "nodes": 2 }]);
    spec["application"]["heat"]["steps"] = 1000.into(); // 20 s of computation
    spec["application"]["heat"]["state"] = "4KiB".into();
    spec["faults"] = json!([]);
    spec["deadline"] = "120s".into();
    spec["kubernetes"] = json!({
        "resources": { "cpu": "10m", "memory": "64MiB" },
        "sites": { (SILENT): {
            "nodeSelector": { "kubernetes.io/hostname": node },
            "tolerations": [{ "key": TAINT, "operator": "Exists" }],
        } },
    });
    Ok(serde_json::from_value(federation)?)
}

/// Returns the names of the pods on the Kubernetes node that do not belong to the silent cluster.
async fn other_pods(ns: &TestNamespace, node: &str) -> Result<Vec<String>, Failure> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let names = ns.api::<Pod>().list_metadata(&on_node).await?.items.into_iter().map(|it| it.name_any());
    Ok(names.filter(|it| !it.starts_with(&format!("{QUICK_START}-{SILENT}-"))).collect())
}

/// Fetches the record of the run, and returns its failures.
async fn failures(ns: &TestNamespace) -> Result<Failures, Failure> {
    let record = std::env::temp_dir().join(&ns.namespace);
    let path = record.display().to_string();
    let program = Program::built()?;
    let of_run = format!("federation/{QUICK_START}");
    let fetched = program.run(&["fetch", &of_run, "--out", &path, "--namespace", &ns.namespace]).await?;
    if fetched.status != Some(0) {
        return Err(fetched.stderr.into());
    }
    let exported = program.run(&["export", &path, "--format", "jsonl"]).await?;
    fs::remove_dir_all(&record)?;
    let facts: Vec<Value> = exported.out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let times = |kind: &str| -> Vec<f64> {
        let of_kind = facts.iter().filter(|it| it["fact"] == kind && it["process"] == "supervisor");
        of_kind.filter_map(|it| Some(it["time_ns"].as_f64()? / 1e9)).collect()
    };
    let (declared, announced) = (times("failed"), times("detected"));
    let first = declared.iter().copied().reduce(f64::min).ok_or("no process was declared failed")?;
    let since = |times: Vec<f64>| times.into_iter().map(|it| it - first + DETECT_AFTER).collect();
    Ok(Failures { declared: since(declared), announced: since(announced) })
}

fn range(times: &[f64]) -> String {
    let least = times.iter().copied().fold(f64::NAN, f64::min);
    let most = times.iter().copied().fold(f64::NAN, f64::max);
    format!("{least:.2} to {most:.2} s")
}
