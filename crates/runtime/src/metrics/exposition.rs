//! Pages of metrics, as HTTP responses.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use faultline_callers::{SharedPage, UntrustedConnections, answer_all};
use prometheus_client::registry::Registry;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::page::{Page, Values};
use crate::control::ToSupervisor;

/// The content type of the Prometheus text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Time for which all callers receive the same page: anyone can read it, but a process writes it on the thread that runs
/// the application.
const FRESH: Duration = Duration::from_millis(500);

/// The metrics of a node, or of an entire run.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    page: Mutex<Page>,
}

impl Exposition {
    /// Updates the values of the page.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Page)) {
        change(&mut self.page.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the current values.
    pub(super) fn page(&self) -> Page {
        self.page.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a heartbeat that contains the current values.
    pub(crate) fn heartbeat(&self) -> ToSupervisor {
        let page = self.page();
        let Values { counts, gauges } = page.values.into_values().next().unwrap_or_default();
        ToSupervisor::Heartbeat(gauges, counts, page.delays)
    }

    /// Returns the application that serves `/metrics`. `process` labels the metrics of a single process; `None` means
    /// the sum over all processes.
    pub(crate) fn app(self: Arc<Self>, process: Option<String>) -> Router {
        let state = Arc::new((registry(self, process), SharedPage::new(FRESH)));
        Router::new().route("/metrics", get(page)).with_state(state)
    }
}

/// Serves the metrics of a run on a thread of its own, so that no reader delays the supervisor, until the result is
/// dropped.
pub(crate) fn serve(exposition: Arc<Exposition>, listener: TcpListener) -> io::Result<oneshot::Sender<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    listener.set_nonblocking(true)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let (stays, ended) = oneshot::channel();
    let serve = async move {
        tokio::select! {
            _ = ended => {}
            () = answer_all(listener, UntrustedConnections::besides(0), exposition.app(None)) => {}
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(move || runtime.block_on(serve))?;
    Ok(stays)
}

async fn page(State(state): State<Arc<(Registry, SharedPage)>>) -> impl IntoResponse {
    let (registry, shared) = &*state;
    ([(CONTENT_TYPE, PROMETHEUS)], shared.text(|| text(registry)))
}

/// Creates a registry that shows `exposition`. Every series of a run has the run's federation and protocol as
/// labels.
pub(crate) fn registry(exposition: Arc<Exposition>, process: Option<String>) -> Registry {
    let info = exposition.page().run.and_then(|it| it.info);
    let of_run = info.map(|it| [("federation", it.federation), ("protocol", it.protocol)]);
    let of_process = process.map(|process| ("process", process));
    let labels = of_run.into_iter().flatten().chain(of_process);
    let labels = labels.map(|(name, value)| (name.into(), value.into()));
    let mut registry = Registry::with_prefix_and_labels("faultline", labels);
    registry.register_collector(Box::new(exposition));
    registry
}

/// Returns all metrics of a registry as an HTTP response.
pub(crate) fn render(registry: &Registry) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, PROMETHEUS)], text(registry))
}

/// Returns all metrics of a registry as text.
pub(crate) fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("a string accepts every write");
    prometheus_text(&text)
}

/// Converts OpenMetrics to the older Prometheus text format, which all scrapers and `promtool` can read. That
/// format describes a counter under its full name, and marks neither units nor the end.
fn prometheus_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
            continue;
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let (_, help) = help.take().expect("HELP precedes TYPE");
            text += &format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
            continue;
        }
        text += line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use faultline_core::fault::LinkProperties;
    use faultline_core::{ClusterId, Span};

    use super::*;

    #[test]
    fn a_completed_run_keeps_its_counters_and_has_no_logs() {
        let sum = super::super::Sum::default();
        sum.0.update(|page| {
            let values = page.values.entry(ClusterId(0)).or_default();
            values.gauges.progress.total = 9;
            values.gauges.log_messages = 4;
            values.counts.lost = Span::from_secs(2);
            page.ask(ClusterId(0), ClusterId(1), LinkProperties::default());
            page.delays.insert((ClusterId(0), ClusterId(1)), (3, Span::from_secs(3)));
        });
        assert!(sum.text().contains("faultline_steps_wanted{cluster=\"c0\"} 9"));
        let asked =
            |text: &str| text.lines().filter(|it| it.starts_with("faultline_link_delay_requested")).count();
        assert_eq!(asked(&sum.text()), 1);
        sum.over();
        let text = sum.text();
        assert!(text.contains("faultline_steps_wanted{cluster=\"c0\"} 9"), "{text}");
        assert!(text.contains("faultline_log_messages{cluster=\"c0\"} 0"), "{text}");
        assert!(text.contains("faultline_run_phase{phase=\"Judging\"} 1"), "{text}");
        assert_eq!(asked(&text), 0, "an unused link is neither fast nor slow: {text}");
        assert!(text.contains("faultline_link_delay_seconds_total{from=\"c0\",to=\"c1\"} 3"), "{text}");
        assert!(
            text.lines().any(|it| it.starts_with("faultline_link_packets_total{") && it.ends_with(" 3")),
            "{text}"
        );
        assert!(text.contains("faultline_lost_work_seconds_total{cluster=\"c0\"} 2"), "{text}");
    }

    #[test]
    fn counters_are_described_by_their_full_name() {
        let open_metrics = "# HELP a_seconds What it is.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
            a_seconds_total{x=\"y\"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        let text = "# HELP a_seconds_total What it is.\n# TYPE a_seconds_total counter\n\
            a_seconds_total{x=\"y\"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n";
        assert_eq!(prometheus_text(open_metrics), text);
    }
}
