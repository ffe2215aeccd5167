//! Measures the operator and the injection of faults on the cluster whose kubeconfig is named by
//! `FAULTLINE_E2E_KUBECONFIG`. Prints some measurements with their goals, but never fails because the machine is slow.
//!
//! ```text
//! cargo run -p faultline-e2e --bin figures -- startup    from `apply` until all pods run, next to plain sets of pods
//! cargo run -p faultline-e2e --bin figures -- faults     how soon faults take effect, and how simultaneously
//! cargo run -p faultline-e2e --bin figures -- silence    how soon silent processes are declared failed
//! cargo run -p faultline-e2e --bin figures -- scale      hundreds of federations, with pods only in the API server
//! ```

mod faults;
mod kubelet;
mod operator;
mod scale;
mod silence;
mod startup;
mod supervisors;

use std::fs;
use std::process::ExitCode;

use clap::Parser;
use faultline_e2e::{Failure, KUBECONFIG, KubernetesCluster, kubeconfig};

/// Measure the operator and the injection of faults.
#[derive(Parser)]
#[command(name = "figures")]
enum Figures {
    /// Measure the time from `apply` until all pods are running and all links are emulated, compared with plain sets
    /// of the same number of pods. The operator must be installed on the cluster.
    Startup(startup::Startup),
    /// Measure how soon faults of each kind take effect in pods, and the skew of faults that affect several processes.
    /// The operator must be installed on the cluster.
    Faults(faults::Faults),
    /// Measure how soon the processes on a Kubernetes node that stops responding are declared failed. The operator must
    /// be installed on the cluster, whose nodes must be containers on this machine.
    Silence(silence::Silence),
    /// Measure what many federations cost an operator, which this program starts. Their pods do not run: this program
    /// acts as the kubelets and the supervisors, so the cluster must be on this machine. Meanwhile, it stops the
    /// operator that is installed there and keeps other pods from being scheduled.
    Scale(scale::Scale),
}

fn main() -> ExitCode {
    let figures = Figures::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(Failure::from).and_then(|it| it.block_on(take(figures))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn take(figures: Figures) -> Result<(), Failure> {
    let kubeconfig =
        kubeconfig().ok_or_else(|| format!("{KUBECONFIG} is not set; set it to the path of a kubeconfig"))?;
    let cluster = KubernetesCluster::connect(&kubeconfig).await?;
    match figures {
        Figures::Startup(it) => it.take(&cluster).await,
        Figures::Faults(it) => it.take(&cluster).await,
        Figures::Silence(it) => it.take(&cluster).await,
        Figures::Scale(it) => it.take(&cluster).await,
    }
}

/// Returns the machine's load average over the last minute.
fn load() -> Result<String, Failure> {
    let all = fs::read_to_string("/proc/loadavg")?;
    Ok(all.split(' ').next().unwrap_or_default().to_owned())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 if values.is_empty() => f64::NAN,
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
