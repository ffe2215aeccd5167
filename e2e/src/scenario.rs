//! Runs scenarios one after the other, and says what came of them.

use std::env;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::FutureExt;

use crate::{Cluster, Room, Skipped};

/// Why a scenario failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

/// One fault, and what must come of it.
pub struct Scenario {
    /// Its name, which is its file's.
    pub name: &'static str,
    /// What happens.
    pub run: fn(Room) -> Outcome,
}

const LONGEST: Duration = Duration::from_secs(300);
const FAILED: &str = "FAILED";
/// The environment variable that names the kubeconfig of the cluster.
pub const KUBECONFIG: &str = "FAULTLINE_E2E_KUBECONFIG";

/// Runs those scenarios whose name contains an argument, all without one, in the cluster of the kubeconfig that
/// `FAULTLINE_E2E_KUBECONFIG` names. Without one they are skipped, loudly: no machine is obliged to have a cluster.
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
        eprintln!("!!! SKIPPED: {} scenarios on Kubernetes: {KUBECONFIG} names no kubeconfig", chosen.len());
        return ExitCode::SUCCESS;
    };
    if chosen.is_empty() {
        eprintln!("no scenario is called so: {}", wanted.join(", "));
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

/// The kubeconfig of the cluster that the scenarios are run on.
pub fn kubeconfig() -> Option<String> {
    env::var(KUBECONFIG).ok().filter(|it| !it.is_empty())
}

async fn run(scenarios: &[&Scenario], kubeconfig: &str) -> Result<bool, Failure> {
    let cluster = Cluster::connect(kubeconfig).await?;
    let mut summary = Vec::new();
    for scenario in scenarios {
        println!("==> {}", scenario.name);
        let begun = Instant::now();
        let how = match perform(scenario, &cluster).await {
            Ok(()) => "ok",
            Err(error) if error.is::<Skipped>() => {
                println!("!!! SKIPPED: {error}");
                "SKIPPED"
            }
            Err(error) => {
                println!("    {error}");
                FAILED
            }
        };
        summary.push((scenario.name, how, begun.elapsed().as_secs()));
    }
    println!("==> summary");
    for (name, how, seconds) in &summary {
        println!("{how:<7} {name:<28} {seconds:>4} s");
    }
    Ok(summary.iter().all(|it| it.1 != FAILED))
}

async fn perform(scenario: &Scenario, cluster: &Cluster) -> Result<(), Failure> {
    let room = cluster.room(scenario.name).await?;
    let run = AssertUnwindSafe((scenario.run)(room.clone())).catch_unwind();
    let result = match tokio::time::timeout(LONGEST, run).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err("it panicked".into()),
        Err(_) => Err(format!("it took more than {LONGEST:?}").into()),
    };
    if result.as_ref().is_err_and(|it| !it.is::<Skipped>()) {
        println!("{}", room.dump().await);
    }
    let left = room.leave().await;
    result.and(left)
}
