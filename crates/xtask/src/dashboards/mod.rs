//! Generates the Grafana dashboards from tables, and runs their queries against a real Prometheus server.

mod compare;
mod grafana;
mod lint;
mod operator;
mod prometheus;
mod run;
mod table;
mod test_runs;

use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

use crate::{Problems, Repository};
use prometheus::Prometheus;
use table::Dashboard;

const DASHBOARDS: [&Dashboard; 3] = [&run::RUN, &operator::OPERATOR, &compare::COMPARE];
/// The interval between scrapes while the queries are tried.
const SCRAPE_SECONDS: u64 = 1;
/// The value of Grafana's variable `$__rate_interval`: long enough to cover several scrapes, but short enough for runs
/// that take only seconds.
const RATE_INTERVAL: &str = "5s";
/// The maximum time to wait for the last scrapes after the runs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the dashboards as JSON for Grafana, with the names of their files.
pub(crate) fn files() -> impl Iterator<Item = (String, String)> {
    DASHBOARDS.iter().map(|it| (format!("{}.json", it.file), grafana::json(it)))
}

/// Checks the tables.
pub(crate) fn check(_: &Repository) -> Result<Problems, Box<dyn Error>> {
    Ok(DASHBOARDS.iter().flat_map(|it| lint::problems(it)).collect())
}

/// Carries out runs with faults under several protocols while a Prometheus server scrapes them, and checks that every
/// query of every dashboard returns data, unless the query needs traffic control.
#[expect(clippy::disallowed_methods, reason = "Prometheus scrapes in real time and cannot be awaited")]
pub(crate) fn try_queries(repository: &Repository) -> Result<(), Box<dyn Error>> {
    let dir = repository.metadata.target_directory.join("dashboards").into_std_path_buf();
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    test_runs::build(repository)?;
    let prometheus = Prometheus::start(repository, &dir)?;
    let begun = prometheus::now()?;
    let _programs = test_runs::perform(repository, &dir, &prometheus)?;
    let ended = Instant::now();
    let mut unanswered: Vec<(&str, String)> =
        queries().filter(|(_, it)| !prometheus.has_answered(it, begun)).collect();
    while !unanswered.is_empty() && ended.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_secs(SCRAPE_SECONDS));
        unanswered.retain(|(_, it)| !prometheus.has_answered(it, begun));
    }
    if !unanswered.is_empty() {
        let left: Vec<_> = unanswered.iter().map(|(of, query)| format!("{of}: {query}")).collect();
        return Err(format!("no data for:\n{}\nlogs are in {}", left.join("\n"), dir.display()).into());
    }
    println!("Prometheus has data for all {} queries of {} dashboards", queries().count(), DASHBOARDS.len());
    for (dashboard, panel) in DASHBOARDS.iter().flat_map(|it| it.panels().map(move |panel| (it, panel))) {
        if panel.needs_traffic_control {
            println!(
                "not tested, because no link uses traffic control: {}, {}",
                dashboard.title, panel.title
            );
        }
    }
    Ok(())
}

/// Iterates over all queries of panels and annotations that do not need traffic control. Each query has the
/// form that Grafana sends if everything is selected, and comes with the title of its panel or annotation.
fn queries() -> impl Iterator<Item = (&'static str, String)> {
    DASHBOARDS.into_iter().flat_map(|dashboard| {
        let panels = dashboard.panels().filter(|it| !it.needs_traffic_control);
        let of_panels = panels.flat_map(|it| it.queries.iter().map(move |(query, _)| (it.title, *query)));
        let annotations = dashboard.annotations.iter().map(|it| (it.name, it.query));
        of_panels.chain(annotations).map(|(title, query)| (title, table::fill(query, Some(RATE_INTERVAL))))
    })
}
