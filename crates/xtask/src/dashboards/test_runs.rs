//! The programs that Prometheus scrapes while the queries are tested: supervisors and agents of runs with faults,
//! connected as in pods, and an operator with an API server in memory.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use faultline_api::names::Names;
use faultline_api::supervision::{Place, Places, RunPhase, process_key};
use faultline_client::supervisor::Supervisor;

use super::SCRAPE_SECONDS;
use super::prometheus::{Background, Prometheus, Target};
use crate::Repository;

/// The key of all federations of these runs. Their programs listen only on this machine.
const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// The namespace label of all federations of these runs.
const NAMESPACE: &str = "experiments";
/// Faults in addition to those of the quick start.
const FAULTS: &str = "  faults:
    - at: 2500ms
      pause: { cluster: paris, node: 1, for: 300ms }
    - at: 4s
      link: { from: paris, to: rennes, latency: 40ms, for: 1s }
";
/// Protocols under which the quick start runs.
const PROTOCOLS: [&str; 3] = ["hc3i", "hydee", "coordinated"];
/// Maximum number of clusters in a run.
const MOST_CLUSTERS: usize = 8;
/// The time limit of a run.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A program that prints its address.
struct Program {
    address: SocketAddr,
    _program: Background,
}

/// Running programs, which stop when this value is dropped, and the pages to scrape.
#[derive(Default)]
pub(super) struct Programs {
    programs: Vec<Program>,
    targets: Vec<Target>,
}

/// Compiles the programs.
pub(super) fn build(repository: &Repository) -> Result<(), Box<dyn Error>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--workspace", "--bin", "faultline-node", "--example", "in_memory"]);
    match cargo.current_dir(&repository.root).status()?.success() {
        true => Ok(()),
        false => Err("cannot build the programs to scrape".into()),
    }
}

/// Carries out runs one at a time. Their programs and the operator keep running.
pub(super) fn perform(
    repository: &Repository,
    dir: &Path,
    prometheus: &Prometheus,
) -> Result<Programs, Box<dyn Error>> {
    let target = repository.metadata.target_directory.join("debug").into_std_path_buf();
    let mut programs = Programs::default();
    let operator =
        Program::start(&mut Command::new(target.join("examples/in_memory")), &dir.join("operator.log"))?;
    programs.add(operator, vec![("pod", "faultline-operator-0".to_owned())]);
    let sample = &faultline_api::samples::SAMPLES[0];
    let text = sample.text.replace("  faults:\n", FAULTS);
    let base = faultline_api::parse(sample.name, text.as_bytes()).map_err(|it| it.to_string())?;
    for name in PROTOCOLS {
        let mut federation = base.clone();
        federation.spec.protocol =
            base.spec.protocol.or_instead(name).ok_or(format!("no protocol {name}"))?;
        federation.metadata.name = Some(format!("quickstart-{name}"));
        let dir = dir.join(name);
        fs::create_dir_all(&dir)?;
        programs.run(&target.join("faultline-node"), &federation, &dir, prometheus)?;
    }
    Ok(programs)
}

impl Programs {
    fn add(&mut self, program: Program, labels: Vec<(&'static str, String)>) {
        self.targets.push(Target { address: program.address.to_string(), labels });
        self.programs.push(program);
    }

    /// Carries out one run.
    fn run(
        &mut self,
        node: &Path,
        federation: &faultline_api::Federation,
        dir: &Path,
        prometheus: &Prometheus,
    ) -> Result<(), Box<dyn Error>> {
        let name = federation.metadata.name.clone().expect("its name was set");
        let (file, key) = (dir.join("federation.yaml"), dir.join("key"));
        fs::write(&file, serde_saphyr::to_string(federation)?)?;
        fs::write(&key, KEY)?;
        let mut supervise = Command::new(node);
        supervise.args(["supervise", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"]);
        supervise
            .arg("--federation")
            .arg(&file)
            .arg("--key-file")
            .arg(&key)
            .arg("--out")
            .arg(dir.join("out"));
        let supervisor = Program::start(&mut supervise, &dir.join("supervisor.log"))?;
        let api = Supervisor::new(supervisor.address.ip(), supervisor.address.port(), KEY)?;
        self.add(supervisor, in_pod(format!("{name}-supervisor-0")));
        let mut places = Vec::new();
        for process in Names::of(&federation.spec).processes() {
            let key = dir.join(format!("key-of-{process}"));
            fs::write(&key, process_key(KEY, &process)?)?;
            let mut agent = Command::new(node);
            agent.args(["agent", "--listen", "127.0.0.1:0", "--data"]).arg(dir.join(&process));
            let agent =
                Program::start(agent.arg("--key-file").arg(key), &dir.join(format!("{process}.log")))?;
            let address = agent.address.to_string();
            self.add(agent, in_pod(format!("{name}-{process}")));
            places.push(Place { uid: format!("pod-{process}"), process, address });
        }
        prometheus.scrape(&self.targets)?;
        // As on Kubernetes, metrics are scraped before the run has started.
        let begun = super::prometheus::now()?;
        while !prometheus.has_answered(&format!("faultline_run_info{{federation=\"{name}\"}}"), begun) {
            if super::prometheus::now()? - begun > TIMEOUT.as_secs_f64() {
                return Err(format!("Prometheus did not scrape {name} in time").into());
            }
            pause();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(api.places(&Places { generation: 1, places }))?;
        judged(&runtime, &api, &dir.join("supervisor.log"))?;
        pause();
        pause();
        Ok(())
    }
}

/// Waits until a run has been judged.
#[expect(clippy::disallowed_methods, reason = "the runs are real processes, in real time")]
fn judged(runtime: &tokio::runtime::Runtime, api: &Supervisor, log: &Path) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    while begun.elapsed() < TIMEOUT {
        let status = runtime.block_on(api.status(u64::MAX, MOST_CLUSTERS))?;
        match status.phase {
            RunPhase::Completed => return Ok(()),
            RunPhase::Failed => {
                return Err(
                    format!("a run failed: {}; see {}", status.reasons.join("; "), log.display()).into()
                );
            }
            _ => pause(),
        }
    }
    Err(format!("a run took longer than {TIMEOUT:?}; see {}", log.display()).into())
}

#[expect(clippy::disallowed_methods, reason = "Prometheus scrapes in real time and cannot be awaited")]
fn pause() {
    std::thread::sleep(Duration::from_secs(SCRAPE_SECONDS));
}

fn in_pod(pod: String) -> Vec<(&'static str, String)> {
    vec![("namespace", NAMESPACE.to_owned()), ("pod", pod)]
}

impl Program {
    /// Starts a program and waits for its address.
    fn start(command: &mut Command, log: &Path) -> Result<Program, Box<dyn Error>> {
        let program = PathBuf::from(command.get_program());
        command.stdout(Stdio::piped());
        let mut background = Background::start_with(command, fs::File::create(log)?)?;
        let mut line = String::new();
        BufReader::new(background.0.stdout.take().expect("it is piped")).read_line(&mut line)?;
        let address = line.trim().parse().map_err(|_| {
            format!(
                "{} did not print its address (found `{}`); see {}",
                program.display(),
                line.trim(),
                log.display()
            )
        })?;
        Ok(Program { address, _program: background })
    }
}
