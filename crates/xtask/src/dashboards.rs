//! Generates the Grafana dashboard of a run from a table, and tries its queries on a real Prometheus.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Repository;

/// Addresses of the scraped run and of Prometheus while the queries are tried.
const METRICS: &str = "127.0.0.1:19465";
const PROMETHEUS: &str = "127.0.0.1:19466";
/// Interval between scrapes during this.
const SCRAPE_SECONDS: u64 = 1;
/// Value for Grafana's variable of the same name: here, enough scrapes for a rate in a run that takes seconds.
const RATE_INTERVAL: &str = "10s";
/// Time limit of a run with faults.
const PATIENCE: Duration = Duration::from_secs(60);

const COLUMNS: usize = 3;
const WIDTH: usize = 24 / COLUMNS;
const HEIGHT: usize = 7;

/// A graph over time.
struct Panel {
    title: &'static str,
    description: &'static str,
    /// Grafana's name for the unit.
    unit: &'static str,
    /// Queries, each with a legend. `RUN` stands for the selected runs, `INTERVAL` for a few scrapes.
    queries: &'static [(&'static str, &'static str)],
}

const ROWS: &[(&str, &[Panel])] = &[
    (
        "Run",
        &[
            Panel {
                title: "Progress",
                description: "Share of the application's steps that are complete. Rollbacks undo steps.",
                unit: "percentunit",
                queries: &[("faultline_steps_done{RUN} / faultline_steps_wanted{RUN}", "done")],
            },
            Panel {
                title: "Application messages",
                description: "By event. A message that a rollback undid is sent or suppressed again.",
                unit: "ops",
                queries: &[("sum by (event) (rate(faultline_messages_total{RUN}[INTERVAL]))", "{{event}}")],
            },
            Panel {
                title: "Messages due to recovery",
                description: "Messages re-sent from logs, suppressed, or dropped because a rollback undid them.",
                unit: "short",
                queries: &[(
                    "sum by (event) (faultline_messages_total{RUN, event=~\"resent|dropped|suppressed\"})",
                    "{{event}}",
                )],
            },
        ],
    ),
    (
        "Checkpoints",
        &[
            Panel {
                title: "Committed",
                description: "By kind: taken by the timer, or forced by a message.",
                unit: "short",
                queries: &[("sum by (kind) (faultline_checkpoints_total{RUN})", "{{kind}}")],
            },
            Panel {
                title: "Discarded",
                description: "Checkpoints interrupted by a failure or a rollback.",
                unit: "short",
                queries: &[("sum(faultline_checkpoints_aborted_total{RUN})", "discarded")],
            },
            Panel {
                title: "Freeze",
                description: "Share of time during which applications are frozen for checkpoints, summed over processes.",
                unit: "percentunit",
                queries: &[("sum(rate(faultline_checkpoint_frozen_seconds_total{RUN}[INTERVAL]))", "frozen")],
            },
            Panel {
                title: "Parts written to storage",
                description: "Parts passed to the storage, and parts reported durable. The difference is being written.",
                unit: "short",
                queries: &[
                    ("sum(faultline_images_saved_total{RUN})", "saved"),
                    ("sum(faultline_images_durable_total{RUN})", "durable"),
                ],
            },
            Panel {
                title: "Stored",
                description: "Checkpoints that can be restored. Garbage collections remove those that no recovery needs.",
                unit: "short",
                queries: &[
                    ("sum(faultline_checkpoints_kept{RUN})", "stored"),
                    ("sum(faultline_collections_total{RUN})", "collections"),
                ],
            },
            Panel {
                title: "Sender logs",
                description: "Payload of messages kept for re-sending.",
                unit: "bytes",
                queries: &[("sum(faultline_log_bytes{RUN})", "payload")],
            },
        ],
    ),
    (
        "Recovery",
        &[
            Panel {
                title: "Rollbacks",
                description: "Rollbacks of processes, rollback alerts from other clusters, and recovery rounds.",
                unit: "short",
                queries: &[
                    ("sum(faultline_rollbacks_total{RUN})", "rollbacks"),
                    ("sum(faultline_alerts_total{RUN})", "alerts"),
                    ("sum(faultline_recoveries_total{RUN})", "recoveries"),
                ],
            },
            Panel {
                title: "Lost work",
                description: "Time between a checkpoint and the rollback to it, summed over processes.",
                unit: "s",
                queries: &[("sum(faultline_lost_work_seconds_total{RUN})", "lost")],
            },
            Panel {
                title: "Logged messages",
                description: "Messages kept for re-sending.",
                unit: "short",
                queries: &[("sum(faultline_log_messages{RUN})", "messages")],
            },
        ],
    ),
    (
        "Links",
        &[
            Panel {
                title: "Delay",
                description: "Mean delay since the start of the run, and the requested latency. Queueing on a slow link adds to the delay.",
                unit: "s",
                queries: &[
                    ("max by (from, to) (faultline_link_delay_seen_seconds{RUN})", "{{from}} to {{to}}"),
                    (
                        "max by (from, to) (faultline_link_delay_requested_seconds{RUN})",
                        "{{from}} to {{to}}, requested",
                    ),
                ],
            },
            Panel {
                title: "Packets",
                description: "Packets that arrived over a link.",
                unit: "pps",
                queries: &[(
                    "sum by (from, to) (rate(faultline_link_packets_total{RUN}[INTERVAL]))",
                    "{{from}} to {{to}}",
                )],
            },
        ],
    ),
];

/// Returns the dashboard as JSON for Grafana.
pub(crate) fn dashboard() -> String {
    let mut panels = Vec::new();
    let mut y = 0;
    for (title, row) in ROWS {
        panels.push(json!({
            "id": panels.len() + 1, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": { "x": 0, "y": y, "w": 24, "h": 1 },
        }));
        y += 1;
        for (index, panel) in row.iter().enumerate() {
            let (x, y) = (index % COLUMNS * WIDTH, y + index / COLUMNS * HEIGHT);
            panels.push(panel.json(panels.len() + 1, x, y));
        }
        y += row.len().div_ceil(COLUMNS) * HEIGHT;
    }
    let dashboard = json!({
        "uid": "faultline-run",
        "title": "Faultline: a run",
        "description": "Generated by `cargo xtask generate` from crates/xtask/src/dashboards.rs; do not edit.",
        "tags": ["faultline"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "5s",
        "time": { "from": "now-15m", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus" },
            {
                "name": "run", "type": "query", "label": "Run", "includeAll": true, "multi": true, "allValue": ".*",
                "datasource": { "type": "prometheus", "uid": "${datasource}" },
                "query": "label_values(faultline_steps_wanted, instance)", "refresh": 2,
            },
        ] },
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

/// Runs the quick start, using the program that `cargo build --release` builds, together with a Prometheus that
/// scrapes it, and checks that every query of the dashboard has an answer.
#[expect(
    clippy::disallowed_methods,
    reason = "a Prometheus scrapes in real time, and nothing says that it has"
)]
pub(crate) fn query(repository: &Repository) -> Result<(), Box<dyn Error>> {
    let dir = repository.metadata.target_directory.join("dashboards").into_std_path_buf();
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let rules = repository.root.join("dashboards/alerts.yaml");
    let config = json!({
        "global": { "scrape_interval": format!("{SCRAPE_SECONDS}s"), "evaluation_interval": "1s" },
        "rule_files": [rules],
        "scrape_configs": [{ "job_name": "faultline", "static_configs": [{ "targets": [METRICS] }] }],
    });
    let config_file = dir.join("prometheus.json");
    fs::write(&config_file, config.to_string())?;
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", config_file.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address={PROMETHEUS}"));
    let program = repository.metadata.target_directory.join("release/faultline");
    if !program.exists() {
        return Err(format!("there is no {program}: run `cargo build --release` first").into());
    }
    let mut run = Command::new(program);
    run.args(["run", "--quiet", "--metrics", METRICS, "--out"]).arg(dir.join("record"));
    let _prometheus = Background::start(&mut prometheus, &dir.join("prometheus.log"))?;
    let _run = Background::start(&mut run, &dir.join("run.log"))?;
    let mut unanswered: BTreeSet<String> = queries().collect();
    let all = unanswered.len();
    let begun = Instant::now();
    while !unanswered.is_empty() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_secs(SCRAPE_SECONDS));
        unanswered.retain(|query| !is_answered(query));
    }
    if unanswered.is_empty() {
        println!("Prometheus has data for all {all} queries of the dashboard");
        return Ok(());
    }
    let left: Vec<_> = unanswered.into_iter().collect();
    Err(format!("no data after {PATIENCE:?} for:\n{}\nlogs are in {}", left.join("\n"), dir.display()).into())
}

/// Iterates over all queries, in the form that Grafana sends if all runs are selected.
fn queries() -> impl Iterator<Item = String> {
    let panels = ROWS.iter().flat_map(|(_, row)| row.iter());
    panels.flat_map(|panel| panel.queries).map(|(query, _)| fill(query, ".*", RATE_INTERVAL))
}

fn fill(query: &str, run: &str, interval: &str) -> String {
    query.replace("RUN", &format!("instance=~\"{run}\"")).replace("INTERVAL", interval)
}

/// Returns whether Prometheus has data for a query.
fn is_answered(query: &str) -> bool {
    let mut promtool = Command::new("promtool");
    let output = promtool.args(["query", "instant", &format!("http://{PROMETHEUS}"), query]).output();
    output.is_ok_and(|it| it.status.success() && it.stdout.iter().any(|byte| !byte.is_ascii_whitespace()))
}

impl Panel {
    fn json(&self, id: usize, x: usize, y: usize) -> Value {
        let Panel { title, description, unit, queries } = self;
        let target = |(index, (query, legend)): (usize, &(&str, &str))| {
            let name = char::from(b'A' + index as u8).to_string();
            json!({ "refId": name, "expr": fill(query, "$run", "$__rate_interval"), "legendFormat": legend })
        };
        json!({
            "id": id, "type": "timeseries", "title": title, "description": description,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "gridPos": { "x": x, "y": y, "w": WIDTH, "h": HEIGHT },
            "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
            "targets": queries.iter().enumerate().map(target).collect::<Vec<_>>(),
        })
    }
}

/// A child process that is killed together with this program.
struct Background(Child);

impl Background {
    fn start(command: &mut Command, log: &Path) -> Result<Background, Box<dyn Error>> {
        let log = fs::File::create(log)?;
        let program = PathBuf::from(command.get_program());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child =
            command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        Ok(Background(child))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("a program is left running: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_selects_runs_and_names_no_placeholder() {
        for query in queries() {
            assert!(query.contains("instance=~\".*\""), "{query}");
            assert!(!query.contains("RUN") && !query.contains("INTERVAL"), "{query}");
        }
    }

    #[test]
    fn panels_have_places_of_their_own() {
        let dashboard: Value = serde_json::from_str(&dashboard()).unwrap();
        let mut places = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let place = &panel["gridPos"];
            assert!(places.insert((place["x"].as_u64(), place["y"].as_u64())), "{panel}");
            assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        }
    }
}
