//! Runs scenarios one at a time, and reports their outcomes.

use std::env;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::FutureExt;
use thiserror::Error;

use crate::{KubernetesCluster, ServiceNetwork, Skipped, TestNamespace};

/// The reason why a scenario failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

/// One fault, and its required effect.
pub struct Scenario {
    /// Name of the scenario: the name of its file.
    pub name: &'static str,
    /// The steps of the scenario.
    pub run: fn(TestNamespace) -> Outcome,
}

/// Error of a scenario that found no defect, but whose machine was too busy for a verdict.
#[derive(Debug, Error)]
#[error("the machine is too busy: {0}")]
pub struct Busy(String);

impl Busy {
    /// Returns this error if a verdict is `unknown` only because of a busy machine.
    pub fn found(verdict: Option<&str>, reasons: &str) -> Option<Busy> {
        (verdict == Some("unknown") && is_of_busy_machine(reasons)).then(|| Busy(reasons.to_owned()))
    }
}

const LONGEST: Duration = Duration::from_secs(300);
/// Maximum number of attempts if the machine is too busy for a scenario, or kube-proxy loses services.
const ATTEMPTS: u32 = 3;
const FAILED: &str = "FAILED";
/// Outcome of a scenario if none of its attempts could be judged.
const BUSY: &str = "BUSY";
/// Environment variable with the path of the cluster's kubeconfig.
pub const KUBECONFIG: &str = "FAULTLINE_E2E_KUBECONFIG";

/// Runs the scenarios whose names contain an argument, or all of them, on the cluster of the kubeconfig in
/// `FAULTLINE_E2E_KUBECONFIG`. Skips them with a message if that variable is not set, because not every developer has
/// a cluster.
pub fn main(scenarios: &[Scenario]) -> ExitCode {
    let wanted: Vec<String> = env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let chosen: Vec<&Scenario> = scenarios
        .iter()
        .filter(|it| wanted.is_empty() || wanted.iter().any(|wanted| it.name.contains(wanted.as_str())))
        .collect();
    if env::args().any(|it| it == "--list") {
        chosen.iter().for_each(|it| println!("{}: test", it.name));
        return ExitCode::SUCCESS;
    }
    let Some(kubeconfig) = kubeconfig() else {
        eprintln!("!!! SKIPPED: {} scenarios on Kubernetes: {KUBECONFIG} is not set", chosen.len());
        return ExitCode::SUCCESS;
    };
    if chosen.is_empty() {
        eprintln!("no scenario has a name that contains: {}", wanted.join(", "));
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime.map_err(Failure::from).and_then(|it| it.block_on(run(&chosen, &kubeconfig)));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("no scenario was run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the kubeconfig of the cluster for the scenarios.
pub fn kubeconfig() -> Option<String> {
    env::var(KUBECONFIG).ok().filter(|it| !it.is_empty())
}

async fn run(scenarios: &[&Scenario], kubeconfig: &str) -> Result<bool, Failure> {
    let cluster = KubernetesCluster::connect(kubeconfig).await?;
    let mut services = ServiceNetwork::new(cluster.client.clone());
    let mut summary = Vec::new();
    for scenario in scenarios {
        println!("==> {}", scenario.name);
        let begun = Instant::now();
        let mut attempt = 1;
        let performed = loop {
            if let Err(error) = services.repair().await {
                break Err(error);
            }
            let performed = perform(scenario, &cluster).await;
            match performed {
                Err(error) if error.is::<Busy>() && attempt < ATTEMPTS => {
                    println!("!!! BUSY: {error}; retrying");
                }
                Err(error) if !error.is::<Skipped>() && attempt < ATTEMPTS => {
                    // The scenario's error matters more than the reason why the network cannot be repaired.
                    if !services.repair().await.unwrap_or_default() {
                        break Err(error);
                    }
                    println!("!!! CLUSTER: {error}; kube-proxy had lost services, retrying");
                }
                other => break other,
            }
            attempt += 1;
        };
        let how = match performed {
            Ok(()) => "ok",
            Err(error) if error.is::<Skipped>() => {
                println!("!!! SKIPPED: {error}");
                "SKIPPED"
            }
            Err(error) => {
                println!("    {error}");
                if error.is::<Busy>() { BUSY } else { FAILED }
            }
        };
        summary.push((scenario.name, how, begun.elapsed().as_secs()));
    }
    println!("==> summary");
    for (name, how, seconds) in &summary {
        println!("{how:<7} {name:<28} {seconds:>4} s");
    }
    if let Some(lost) = services.summary() {
        println!("kube-proxy lost services of the cluster ({lost})");
    }
    Ok(summary.iter().all(|it| ![FAILED, BUSY].contains(&it.1)))
}

async fn perform(scenario: &Scenario, cluster: &KubernetesCluster) -> Result<(), Failure> {
    let ns = cluster.create_namespace(scenario.name).await?;
    let run = AssertUnwindSafe((scenario.run)(ns.clone())).catch_unwind();
    let result = match tokio::time::timeout(LONGEST, run).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err("the scenario panicked".into()),
        Err(_) => Err(format!("the scenario took more than {LONGEST:?}").into()),
    };
    if result.as_ref().is_err_and(|it| !it.is::<Skipped>()) {
        println!("{}", ns.dump().await);
    }
    let left = ns.remove().await;
    result.and(left)
}

/// Returns whether a verdict is `unknown` for these reasons only because the machine was slow: links or faults took
/// effect late.
fn is_of_busy_machine(reasons: &str) -> bool {
    let is_late = |it: &str| {
        it.contains("the delay of the link")
            || it.contains(" has a latency of ")
            || it.contains(" ended the ") && it.contains(", not within ")
    };
    !reasons.is_empty() && reasons.split("; ").all(is_late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_late_events_are_blamed_on_the_machine() {
        let link = "for 23 % of the time, the delay of the link paris to rennes was off by more than 1.20 ms: 6.25 \
            ms on average instead of 5.00 ms";
        let deaths = "fault 3 ended the 2 processes of nancy within 335 ms, not within 50.0 ms";
        assert!(is_of_busy_machine(link));
        assert!(is_of_busy_machine(&format!("{link}; {deaths}")));
        assert!(!is_of_busy_machine(&format!(
            "{link}; the deadline was exceeded before all ranks had finished"
        )));
        assert!(!is_of_busy_machine("the facts of paris-0, life 4 may be incomplete"));
        assert!(!is_of_busy_machine(""));
    }
}
