//! Measures how soon faults take effect in pods: their latency, from the time at which a fault is due until
//! its last effect, and their skew, from its first effect until its last.

use std::collections::BTreeMap;
use std::fs;

use clap::Args;
use faultline_client::object::FederationObject;
use faultline_e2e::{Failure, KubernetesCluster, Program, QUICK_START, read_sample};
use serde_json::{Value, json};

use super::{load, median};

/// Time between two faults, in seconds: long enough for a recovery.
const APART: u32 = 4;
/// Duration of a fault that ends by itself.
const SPAN: &str = "500ms";

/// The measured kinds of faults, by their fields in the resource.
const KINDS: [&str; 6] = ["crash", "pause", "loseCluster", "link", "partition", "slowStorage"];

#[derive(Args)]
pub(super) struct Faults {
    /// Inject N faults of each kind.
    #[arg(long, default_value_t = 6, value_name = "N")]
    each: u32,
    /// Give each of the two clusters N processes.
    #[arg(long, default_value_t = 4, value_name = "N")]
    nodes: u32,
    /// Inject only faults of this kind. Default: all kinds.
    #[arg(long, value_parser = KINDS)]
    kind: Option<String>,
}

/// Latencies and skews of all faults of one kind, in milliseconds.
#[derive(Default)]
struct Effects {
    latencies: Vec<f64>,
    skews: Vec<f64>,
}

impl Faults {
    pub(super) async fn take(self, cluster: &KubernetesCluster) -> Result<(), Failure> {
        let ns = cluster.create_namespace("faults").await?;
        let taken = self.measure(&ns.namespace).await;
        let left = ns.remove().await;
        taken.and(left)
    }

    async fn measure(&self, namespace: &str) -> Result<(), Failure> {
        let dir = std::env::temp_dir().join(namespace);
        fs::create_dir_all(&dir)?;
        let (file, out) = (dir.join("federation.json"), dir.join("record"));
        fs::write(&file, serde_json::to_vec(&self.federation()?)?)?;
        let (file, out) = (file.display().to_string(), out.display().to_string());
        let before = load()?;
        let run = [
            "run",
            &file,
            "--backend",
            "kubernetes",
            "--out",
            &out,
            "--format",
            "json",
            "--namespace",
            namespace,
        ];
        let ran = Program::built()?.run(&run).await?;
        let summary = ran.json().map_err(|it| format!("{it}: {}", ran.stderr))?;
        fs::remove_dir_all(&dir)?;
        println!("verdict {}; load {before} before the run, {} at its end", summary["verdict"], load()?);
        println!("{}", table(&effects(&summary, &self.kinds())).join("\n"));
        Ok(())
    }

    fn federation(&self) -> Result<FederationObject, Failure> {
        let mut federation = serde_json::to_value(read_sample(QUICK_START)?)?;
        let kinds = self.kinds();
        let number = self.each * kinds.len() as u32;
        let fault = |no: u32| {
            let kind = kinds[no as usize % kinds.len()];
            json!({ "at": format!("{}s", APART * (no + 1)), kind: parameters(kind) })
        };
        let spec = &mut federation["spec"];
        for cluster in [0, 1] {
            spec["clusters"][cluster]["nodes"] = self.nodes.into();
        }
        // A step takes 20 ms. The application ends after the last fault.
        spec["application"]["heat"]["steps"] = (50 * APART * (number + 2)).into();
        spec["application"]["heat"]["state"] = "64KiB".into();
        spec["faults"] = (0..number).map(fault).collect();
        spec["deadline"] = format!("{}s", 3 * APART * (number + 10)).into();
        Ok(serde_json::from_value(federation)?)
    }

    /// Returns the kinds of the faults, which are injected in turn.
    fn kinds(&self) -> Vec<&'static str> {
        KINDS.into_iter().filter(|kind| self.kind.as_deref().is_none_or(|it| it == *kind)).collect()
    }
}

fn parameters(kind: &str) -> Value {
    match kind {
        "crash" => json!({ "cluster": "paris", "node": 1 }),
        "pause" => json!({ "cluster": "rennes", "node": 1, "for": SPAN }),
        "loseCluster" => json!({ "cluster": "paris", "storage": "kept" }),
        "link" => json!({ "from": "paris", "to": "rennes", "latency": "10ms", "for": SPAN }),
        "partition" => json!({ "from": "paris", "to": "rennes", "for": SPAN }),
        _ => json!({ "cluster": "rennes", "node": 0, "by": "10ms", "for": SPAN }),
    }
}

/// Returns the effects by kind of fault.
fn effects(summary: &Value, kinds: &[&'static str]) -> BTreeMap<&'static str, Effects> {
    let mut effects: BTreeMap<&str, Effects> = BTreeMap::new();
    for fault in summary["faults"].as_array().into_iter().flatten() {
        let Some(no) = fault["no"].as_u64() else { continue };
        let of_kind = effects.entry(kinds[no as usize % kinds.len()]).or_default();
        let millis = |field: &str| fault[field].as_f64().map(|seconds| seconds * 1000.0);
        of_kind.latencies.extend(millis("latencySeconds"));
        of_kind.skews.extend(millis("skewSeconds"));
    }
    effects
}

fn table(effects: &BTreeMap<&'static str, Effects>) -> Vec<String> {
    let columns = |values: &[f64]| match values {
        [] => " | | ".to_owned(),
        values => {
            let most = percentile(values, 100);
            format!("{:.2} ms | {:.2} ms | {most:.2} ms", median(values.to_vec()), percentile(values, 99))
        }
    };
    let row = |(kind, it): (&&str, &Effects)| {
        format!("| `{kind}` | {} | {} |", columns(&it.latencies), columns(&it.skews))
    };
    let head = [
        "| fault | latency, median | p99 | maximum | skew, median | p99 | maximum |".to_owned(),
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |".to_owned(),
    ];
    head.into_iter().chain(effects.iter().map(row)).collect()
}

/// Returns the smallest value that at least `percent` of the values do not exceed. Expects at least one value.
fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent).div_ceil(100).saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!([1, 50, 99, 100].map(|it| percentile(&values, it)), [2.0, 100.0, 198.0, 200.0]);
        assert_eq!([1, 99, 100].map(|it| percentile(&[7.0], it)), [7.0; 3]);
    }
}
