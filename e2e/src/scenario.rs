//! Runs scenarios, several at a time if they do not disturb each other, and reports their outcomes.

use std::env;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::future::Either;
use futures::lock::Mutex;
use futures::{FutureExt, StreamExt, stream};
use thiserror::Error;
use tokio::sync::RwLock;

use crate::{KubernetesCluster, ServiceNetwork, Skipped, TestNamespace};

/// The reason why a scenario failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

/// One fault, and its required effect.
pub struct Scenario {
    /// Name of the scenario: the name of its file.
    pub name: &'static str,
    /// Whether the scenario disturbs the operator, the API server or the cluster's machines, or loads them heavily, so
    /// that no other scenario can run at the same time.
    pub exclusive: bool,
    /// The steps of the scenario.
    pub run: fn(TestNamespace) -> Outcome,
}

/// The machine was too busy for a verdict; the scenario found no defect.
#[derive(Debug, Error)]
#[error("the machine is too busy: {0}")]
pub struct Busy(pub(crate) String);

impl Busy {
    /// Returns this error if a verdict is `unknown` only because of a busy machine.
    pub fn found(verdict: Option<&str>, reasons: &str) -> Option<Busy> {
        (verdict == Some("unknown") && is_of_busy_machine(reasons)).then(|| Busy(reasons.to_owned()))
    }
}

const LONGEST: Duration = Duration::from_secs(300);
/// Time that a scenario has to restore what it changed for the whole cluster.
const RESTORED_WITHIN: Duration = Duration::from_secs(90);
/// Maximum number of attempts if the machine is too busy for a scenario, or if kube-proxy loses services.
const ATTEMPTS: u32 = 3;
/// Environment variable with the path of the cluster's kubeconfig.
pub const KUBECONFIG: &str = "FAULTLINE_E2E_KUBECONFIG";
/// Environment variable with the number of scenarios that may run at the same time. Default: 1.
const JOBS: &str = "FAULTLINE_E2E_JOBS";
/// Environment variable with the number of times that all selected scenarios run. Default: 1.
const ROUNDS: &str = "FAULTLINE_E2E_ROUNDS";

/// How a scenario ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Ok,
    Skipped,
    /// The machine was too busy in every attempt.
    Busy,
    Failed,
}

/// The outcome of a scenario in one round.
struct Report {
    name: &'static str,
    ending: Ending,
    /// Number of attempts that ended because the machine was busy, not counting the last attempt.
    busy: u32,
    /// Number of attempts that ended because kube-proxy had lost services, not counting the last attempt.
    cluster: u32,
    took: Duration,
}

/// Runs scenarios on the cluster whose kubeconfig is named by `FAULTLINE_E2E_KUBECONFIG`: those whose names contain one
/// of the arguments, or all scenarios if there are no arguments. Skips them with a message if that variable is not set,
/// because not every developer has a cluster.
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
        eprintln!("!!! SKIPPED: scenarios on Kubernetes ({}): {KUBECONFIG} is not set", chosen.len());
        return ExitCode::SUCCESS;
    };
    if chosen.is_empty() {
        eprintln!("no scenario has a name that contains any of: {}", wanted.join(", "));
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

/// Returns the path of the kubeconfig for the scenarios' cluster; `None` if the variable [`KUBECONFIG`] is not set.
pub fn kubeconfig() -> Option<String> {
    env::var(KUBECONFIG).ok().filter(|it| !it.is_empty())
}

/// Runs all rounds, and returns whether every scenario succeeded or was skipped.
async fn run(scenarios: &[&Scenario], kubeconfig: &str) -> Result<bool, Failure> {
    let (jobs, rounds) = (count(JOBS)?, count(ROUNDS)?);
    let cluster = KubernetesCluster::connect(kubeconfig).await?;
    let services = Mutex::new(ServiceNetwork::new(cluster.client.clone()));
    let mut reports = Vec::new();
    for round in 1..=rounds {
        if rounds > 1 {
            println!("==> round {round} of {rounds}");
        }
        let (exclusive, shared): (Vec<&Scenario>, Vec<&Scenario>) =
            scenarios.iter().partition(|it| it.exclusive);
        let machine = RwLock::default();
        let attempts = shared.into_iter().map(|it| attempt(it, &cluster, &services, &machine));
        let mut of_round: Vec<Report> =
            stream::iter(attempts).buffer_unordered(jobs as usize).collect().await;
        for scenario in exclusive {
            of_round.push(attempt(scenario, &cluster, &services, &machine).await);
        }
        println!("==> summary");
        of_round.iter().for_each(|it| println!("{it}"));
        reports.extend(of_round);
    }
    if rounds > 1 {
        println!("==> summary of {rounds} rounds");
        scenarios.iter().for_each(|it| println!("{}", in_all_rounds(it.name, &reports)));
    }
    if let Some(lost) = services.into_inner().summary() {
        println!("kube-proxy lost services of the cluster ({lost})");
    }
    Ok(reports.iter().all(|it| matches!(it.ending, Ending::Ok | Ending::Skipped)))
}

/// Returns the positive number in an environment variable, or 1 if the variable is not set.
fn count(variable: &str) -> Result<u32, Failure> {
    let Some(text) = env::var(variable).ok().filter(|it| !it.is_empty()) else { return Ok(1) };
    let number = text.parse().ok().filter(|&it| it > 0);
    number.ok_or_else(|| format!("{variable} must be a positive number (found `{text}`)").into())
}

/// Runs a scenario, at most [`ATTEMPTS`] times. If the machine was too busy, the next attempt has the machine to itself.
async fn attempt(
    scenario: &Scenario,
    cluster: &KubernetesCluster,
    services: &Mutex<ServiceNetwork>,
    machine: &RwLock<()>,
) -> Report {
    let name = scenario.name;
    println!("==> {name}");
    let mut took = Duration::ZERO;
    let (mut busy, mut lost) = (0, 0);
    let performed = loop {
        let is_alone = scenario.exclusive || busy > 0;
        let _turn = match is_alone {
            true => Either::Left(machine.write().await),
            false => Either::Right(machine.read().await),
        };
        let begun = Instant::now();
        let repairs = match repair(services).await {
            Ok(repairs) => repairs,
            Err(error) => break Err(error),
        };
        let performed = perform(scenario, cluster).await;
        took += begun.elapsed();
        let may_repeat = busy + lost + 1 < ATTEMPTS;
        match performed {
            Err(error) if error.is::<Busy>() && may_repeat => {
                println!("!!! BUSY: {name}: {error}; retrying alone");
                busy += 1;
            }
            Err(error) if !error.is::<Skipped>() && may_repeat => {
                // The scenario's error matters more than the reason why the network cannot be repaired.
                if repair(services).await.unwrap_or(repairs) == repairs {
                    break Err(error);
                }
                println!("!!! CLUSTER: {name}: {error}; kube-proxy had lost services, retrying");
                lost += 1;
            }
            other => break other,
        }
    };
    let ending = match performed {
        Ok(()) => Ending::Ok,
        Err(error) if error.is::<Skipped>() => {
            println!("!!! SKIPPED: {name}: {error}");
            Ending::Skipped
        }
        Err(error) => {
            println!("!!! FAILED: {name}: {error}");
            if error.is::<Busy>() { Ending::Busy } else { Ending::Failed }
        }
    };
    Report { name, ending, busy, cluster: lost, took }
}

/// Repairs the network of services. Returns the number of repairs so far.
async fn repair(services: &Mutex<ServiceNetwork>) -> Result<u32, Failure> {
    let mut services = services.lock().await;
    services.repair().await?;
    Ok(services.repairs())
}

/// Returns a line with the outcomes of a scenario in all rounds.
fn in_all_rounds(name: &str, reports: &[Report]) -> String {
    let of_name: Vec<&Report> = reports.iter().filter(|it| it.name == name).collect();
    let ended = |how: Ending| of_name.iter().filter(|it| it.ending == how).count();
    let sum = |number: fn(&Report) -> u32| of_name.iter().map(|&it| number(it)).sum::<u32>();
    let longest = of_name.iter().map(|it| it.took.as_secs()).max().unwrap_or_default();
    format!(
        "{name:<28} {:>3} ok {:>3} failed {:>3} busy {:>3} skipped; repeated {} times because the machine was busy, {} \
         times because of kube-proxy; at most {longest} s",
        ended(Ending::Ok),
        ended(Ending::Failed),
        ended(Ending::Busy),
        ended(Ending::Skipped),
        sum(|it| it.busy),
        sum(|it| it.cluster),
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = match self.ending {
            Ending::Ok => "ok",
            Ending::Skipped => "SKIPPED",
            Ending::Busy => "BUSY",
            Ending::Failed => "FAILED",
        };
        write!(f, "{ending:<7} {:<28} {:>4} s", self.name, self.took.as_secs())
    }
}

async fn perform(scenario: &Scenario, cluster: &KubernetesCluster) -> Result<(), Failure> {
    let ns = cluster.create_namespace(scenario.name).await?;
    let result = concluded((scenario.run)(ns.clone()), LONGEST + RESTORED_WITHIN).await;
    if result.as_ref().is_err_and(|it| !it.is::<Skipped>()) {
        println!("{}", ns.dump().await);
    }
    let left = ns.remove().await;
    result.and(left)
}

/// Performs steps that change the whole cluster. Also returns if they panic or take too long, so that the caller can
/// restore the cluster for other scenarios.
///
/// # Errors
///
/// Fails if the steps fail, panic or take too long.
pub async fn restorable(steps: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    concluded(steps, LONGEST).await
}

async fn concluded(
    steps: impl Future<Output = Result<(), Failure>>,
    within: Duration,
) -> Result<(), Failure> {
    match tokio::time::timeout(within, AssertUnwindSafe(steps).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err("the scenario panicked".into()),
        Err(_) => Err(format!("the scenario took more than {within:?}").into()),
    }
}

/// Returns whether all these reasons for the verdict `unknown` are due to a slow machine: the delay of a link was
/// wrong, or a fault did not end its processes within the time limit. Each reason is followed by its remedy.
fn is_of_busy_machine(reasons: &str) -> bool {
    let is_late = |it: &str| {
        it.contains("the delay of the link")
            || it.contains(" has a latency of ")
            || it.contains(" ended the ") && it.contains(", not within ")
            || it.contains(" busy: repeat the run ")
    };
    !reasons.is_empty() && reasons.split("; ").all(is_late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_cluster_is_restored_even_after_a_panic() {
        let steps = async { panic!("an assertion failed") };
        assert_eq!(restorable(steps).await.unwrap_err().to_string(), "the scenario panicked");
        let late = concluded(std::future::pending(), Duration::from_millis(10)).await.unwrap_err();
        assert_eq!(late.to_string(), "the scenario took more than 10ms");
    }

    #[test]
    fn the_outcomes_of_all_rounds_are_counted_by_scenario() {
        let report = |name, ending, busy, seconds| {
            let took = Duration::from_secs(seconds);
            Report { name, ending, busy, cluster: 0, took }
        };
        let reports = [
            report("crash", Ending::Ok, 2, 30),
            report("pause", Ending::Failed, 0, 99),
            report("crash", Ending::Busy, 2, 40),
        ];
        assert_eq!(
            in_all_rounds("crash", &reports),
            "crash                          1 ok   0 failed   1 busy   0 skipped; repeated 4 times because the machine \
             was busy, 0 times because of kube-proxy; at most 40 s"
        );
    }

    #[test]
    fn only_late_events_are_blamed_on_the_machine() {
        let remedy = "the machines were busy: repeat the run on idle ones, or use `--backend simulate`";
        let link = format!(
            "for 23 % of the echoes during the run, the delay of the link from paris to rennes was off by more than 1.20 ms: \
             6.25 ms on average instead of 5.00 ms; {remedy}"
        );
        let deaths =
            format!("fault 3 ended the 2 processes of nancy within 335 ms, not within 50.0 ms; {remedy}");
        assert!(is_of_busy_machine(&link));
        assert!(is_of_busy_machine(&format!("{link}; {deaths}")));
        assert!(!is_of_busy_machine(&format!(
            "{link}; the deadline was exceeded before all ranks had finished"
        )));
        assert!(!is_of_busy_machine("the facts of paris-0, life 4 may be incomplete"));
        assert!(!is_of_busy_machine(""));
    }
}
