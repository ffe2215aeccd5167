//! A Prometheus server that scrapes the programs of the test runs, and answers queries.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::json;

use super::SCRAPE_SECONDS;
use crate::Repository;

const ADDRESS: &str = "127.0.0.1:19466";

/// A Prometheus server that reads its targets from a file.
pub(super) struct Prometheus {
    targets: PathBuf,
    _program: Background,
}

/// A page to scrape, with the labels that Prometheus adds to its metrics, as with a PodMonitor.
pub(super) struct Target {
    pub(super) address: String,
    pub(super) labels: Vec<(&'static str, String)>,
}

/// One series in the result of a query.
#[derive(Deserialize)]
struct Series {
    /// Times in seconds since the Unix epoch, and values as text.
    values: Vec<(f64, String)>,
}

/// A child process that is killed when this value is dropped.
pub(super) struct Background(pub(super) Child);

impl Prometheus {
    /// Starts a Prometheus server that keeps its data in `dir`, and evaluates the alerts.
    pub(super) fn start(repository: &Repository, dir: &Path) -> Result<Prometheus, Box<dyn Error>> {
        let targets = dir.join("targets.json");
        fs::write(&targets, "[]")?;
        let config = json!({
            "global": { "scrape_interval": format!("{SCRAPE_SECONDS}s"), "evaluation_interval": "1s" },
            "rule_files": [repository.root.join("dashboards/alerts.yaml")],
            "scrape_configs": [{
                "job_name": "faultline",
                // As in the chart: the operator's metrics have the namespaces of federations as labels.
                "honor_labels": true,
                "file_sd_configs": [{ "files": [targets], "refresh_interval": "1s" }],
            }],
        });
        let config_file = dir.join("prometheus.json");
        fs::write(&config_file, config.to_string())?;
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={ADDRESS}"));
        let program = Background::start(&mut command, &dir.join("prometheus.log"))?;
        Ok(Prometheus { targets, _program: program })
    }

    /// Makes Prometheus scrape these pages, and no others.
    pub(super) fn scrape(&self, targets: &[Target]) -> Result<(), Box<dyn Error>> {
        let targets = targets.iter().map(|it| {
            let labels: BTreeMap<_, _> = it.labels.iter().cloned().collect();
            json!({ "targets": [it.address], "labels": labels })
        });
        let new = self.targets.with_extension("new");
        fs::write(&new, serde_json::to_vec(&targets.collect::<Vec<_>>())?)?;
        // Prometheus must not read a partially written file.
        Ok(fs::rename(new, &self.targets)?)
    }

    /// Returns whether a query returns a finite number for any time since `begun`.
    pub(super) fn has_answered(&self, query: &str, begun: f64) -> bool {
        self.query(query, begun).is_ok_and(|series| {
            let mut values = series.iter().flat_map(|it| &it.values);
            values.any(|(_, value)| value.parse().is_ok_and(|it: f64| it.is_finite()))
        })
    }

    /// Returns the values of a query at each scrape since `begun`.
    fn query(&self, query: &str, begun: f64) -> Result<Vec<Series>, Box<dyn Error>> {
        let mut promtool = Command::new("promtool");
        promtool.args(["query", "range", "--format=json"]);
        promtool.args([format!("--start={begun:.3}"), format!("--end={:.3}", now()?)]);
        promtool.arg(format!("--step={SCRAPE_SECONDS}s"));
        let output = promtool.args([&format!("http://{ADDRESS}"), query]).output()?;
        if !output.status.success() {
            return Err(format!("{query}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Returns the time in seconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "Prometheus uses the machine's clock")]
pub(super) fn now() -> Result<f64, Box<dyn Error>> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

impl Background {
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Background, Box<dyn Error>> {
        let log = fs::File::create(log)?;
        command.stdout(log.try_clone()?);
        Background::start_with(command, log)
    }

    /// Starts a program whose standard output the caller has set.
    pub(super) fn start_with(command: &mut Command, log: fs::File) -> Result<Background, Box<dyn Error>> {
        let program = PathBuf::from(command.get_program());
        command.stdin(Stdio::null()).stderr(log);
        let child =
            command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        Ok(Background(child))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("cannot stop a program: {error}");
        }
    }
}
