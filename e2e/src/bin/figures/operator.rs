//! An operator that runs on this machine, and its resource usage as measured from outside.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use faultline_e2e::{Failure, kubeconfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// Address of the operator's metrics.
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 17380);
/// Time limit for the operator to become active.
const WORKS: Duration = Duration::from_secs(60);
/// Clock ticks per second. Linux reports the same number to programs on every machine.
const TICKS: f64 = 100.0;

/// The operator. Killed when this value is dropped.
pub(super) struct Operator(Child);

/// Resources that the operator has used.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    /// Number of requests to the API server, by method.
    pub(super) requests: BTreeMap<String, f64>,
    /// Processor time in seconds.
    pub(super) seconds: f64,
    /// Peak memory in bytes.
    pub(super) memory: f64,
}

impl Operator {
    /// Starts the program, and waits until it is active.
    pub(super) async fn start(program: &PathBuf) -> Result<Operator, Failure> {
        let mut command = Command::new(program);
        command.args(["--metrics", &METRICS.to_string()]).stdin(Stdio::null()).kill_on_drop(true);
        command.env("FAULTLINE_LOG", "error").envs(kubeconfig().map(|it| ("KUBECONFIG", it)));
        let child = command.spawn().map_err(|it| format!("cannot start {}: {it}", program.display()))?;
        let operator = Operator(child);
        for _ in 0..WORKS.as_secs() {
            sleep(Duration::from_secs(1)).await;
            if page().await.is_ok_and(|it| it.lines().any(|it| it == "faultline_operator_leader 1")) {
                return Ok(operator);
            }
        }
        Err("the operator did not become active".into())
    }

    pub(super) async fn used(&self) -> Result<Used, Failure> {
        let process = self.0.id().ok_or("the operator has ended")?;
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let peak =
            status.lines().find_map(|it| it.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        // After the name, which is in parentheses, the 12th and 13th fields are the ticks spent in the program and in
        // the kernel.
        let (_, rest) = stat.rsplit_once(')').ok_or_else(|| format!("cannot parse /proc/{process}/stat"))?;
        let ticks: Vec<f64> =
            rest.split_whitespace().skip(11).take(2).filter_map(|it| it.parse().ok()).collect();
        let requests = page().await?;
        let requests = requests.lines().filter_map(|line| {
            let rest = line.strip_prefix("faultline_operator_api_requests_total{method=\"")?;
            let (method, count) = rest.split_once("\"} ")?;
            Some((method.to_owned(), count.parse().ok()?))
        });
        Ok(Used {
            requests: requests.collect(),
            seconds: ticks.iter().sum::<f64>() / TICKS,
            memory: peak.unwrap_or(f64::NAN) * 1024.0,
        })
    }
}

impl Used {
    /// Returns the resources used since `before`, and the peak memory since the start.
    pub(super) fn since(&self, before: &Used) -> Used {
        let of = |method: &String| before.requests.get(method).copied().unwrap_or(0.0);
        Used {
            requests: self
                .requests
                .iter()
                .map(|(method, count)| (method.clone(), count - of(method)))
                .collect(),
            seconds: self.seconds - before.seconds,
            memory: self.memory,
        }
    }

    /// Returns the total number of requests.
    pub(super) fn calls(&self) -> f64 {
        self.requests.values().sum()
    }
}

async fn page() -> Result<String, Failure> {
    let mut stream = TcpStream::connect(METRICS).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}
