//! Names of the metrics, and the page that shows them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::serve::Listener;
use faultline_core::fault::LinkProperties;
use faultline_core::{ClusterId, FactKind, FaultNo, Gauges, Span};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::{ClusterNames, Counts, Delays};
use crate::control::ToSupervisor;

/// Bounds of the buckets for skew and latency of faults, in seconds.
const BUCKETS: [f64; 10] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.2, 1.0];

/// Current values of the page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) clusters: ClusterNames,
    pub(crate) counts: Counts,
    pub(crate) gauges: Gauges,
    /// Requested properties of the links.
    pub(crate) requested: Vec<((ClusterId, ClusterId), LinkProperties)>,
    /// Observed delays of the links.
    pub(crate) delays: Delays,
    /// Skew and latency of faults, as far as they are known.
    pub(crate) effects: BTreeMap<FaultNo, (Option<Span>, Option<Span>)>,
    /// Whether the run is over. Requested and observed properties of links are then omitted.
    pub(crate) over: bool,
}

impl Page {
    /// Changes the requested properties of a link.
    pub(crate) fn ask(&mut self, from: ClusterId, to: ClusterId, properties: LinkProperties) {
        self.requested.retain(|(pair, _)| *pair != (from, to));
        self.requested.push(((from, to), properties));
        self.requested.sort_by_key(|&(pair, _)| pair);
    }
}

/// The metrics of a node, or of a whole run.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    page: Mutex<Page>,
}

type Labels = Vec<(&'static str, String)>;

impl Exposition {
    /// Changes the values of the page.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Page)) {
        change(&mut self.page.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the values that a heartbeat contains.
    pub(crate) fn heartbeat(&self) -> ToSupervisor {
        let page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        ToSupervisor::Heartbeat(page.gauges, page.counts.clone(), page.delays.clone())
    }

    /// Serves `/metrics` until the future is dropped. `process` labels the metrics of a single process; `None` means
    /// the sum of all.
    pub(crate) async fn serve<L: Listener>(self: Arc<Self>, listener: L, process: Option<String>)
    where
        L::Addr: fmt::Debug,
    {
        let registry = registry(self, process);
        let app = Router::new().route("/metrics", get(page)).with_state(Arc::new(registry));
        if let Err(error) = axum::serve(listener, app).await {
            tracing::warn!(%error, "metrics are no longer served");
        }
    }
}

/// Callers of a node's port that are not nodes.
pub(crate) struct Visitors {
    pub(crate) streams: mpsc::UnboundedReceiver<TcpStream>,
    pub(crate) address: SocketAddr,
}

impl Listener for Visitors {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match self.streams.recv().await {
            Some(stream) => (stream, self.address),
            // The node is about to end.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Page { clusters, counts, gauges, requested, delays, effects, over } =
            self.page.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let seconds = Some(Unit::Seconds);
        let number = |value: u64| ConstCounter::new(value);
        let span = |value: Span| ConstCounter::new(value.as_secs_f64());
        let encoder = &mut encoder;

        let messages = [
            ("sent", FactKind::Sent),
            ("transmitted", FactKind::Transmitted),
            ("suppressed", FactKind::Suppressed),
            ("delivered", FactKind::Delivered),
            ("dropped", FactKind::DroppedStale),
            ("resent", FactKind::Resent),
        ];
        let messages =
            messages.map(|(what, kind)| (vec![("event", what.to_owned())], number(counts.of(kind))));
        family(encoder, "messages", "Application messages by event", None, messages)?;

        let committed = counts.of(FactKind::CheckpointCommitted);
        let checkpoints = [("forced", counts.forced), ("timer", committed.saturating_sub(counts.forced))];
        let checkpoints = checkpoints.map(|(kind, count)| (vec![("kind", kind.to_owned())], number(count)));
        family(
            encoder,
            "checkpoints",
            "Committed checkpoints by kind: forced by a message, or taken by the timer",
            None,
            checkpoints,
        )?;

        let plain = [
            ("checkpoints_aborted", "Discarded checkpoints", FactKind::CheckpointAborted),
            ("rollbacks", "Rollbacks", FactKind::RolledBack),
            ("recoveries", "Recovery rounds in which the processes took part", FactKind::RecoveryStarted),
            ("alerts", "Rollback alerts received from other clusters", FactKind::Alerted),
            ("collections", "Garbage collections", FactKind::Collected),
            ("images_saved", "Parts of checkpoints passed to the storage", FactKind::Saved),
            ("images_durable", "Parts of checkpoints that the storage reported durable", FactKind::Durable),
        ];
        for (name, help, kind) in plain {
            family(encoder, name, help, None, [(vec![], number(counts.of(kind)))])?;
        }
        let frozen = "Time during which applications were frozen for checkpoints";
        family(encoder, "checkpoint_frozen", frozen, seconds.as_ref(), [(vec![], span(counts.frozen))])?;
        let lost = "Time between a checkpoint and the rollback to it, if the same life took the checkpoint";
        family(encoder, "lost_work", lost, seconds.as_ref(), [(vec![], span(counts.lost))])?;

        let shown = [
            ("log_messages", "Messages in the sender logs", None, gauges.log_messages),
            ("log", "Payload in the sender logs", Some(Unit::Bytes), gauges.log_bytes),
            (
                "log_spilled",
                "Payload of the sender logs that is only on stable storage",
                Some(Unit::Bytes),
                gauges.log_bytes_spilled,
            ),
            ("checkpoints_kept", "Checkpoints that can be restored", None, gauges.checkpoints.into()),
            ("steps_done", "Completed steps of the application", None, gauges.progress.done),
            ("steps_wanted", "Total steps of the application", None, gauges.progress.total),
        ];
        for (name, help, unit, value) in shown {
            family(encoder, name, help, unit.as_ref(), [(vec![], ConstGauge::new(value))])?;
        }

        let of_faults = [
            (
                "fault_skew",
                "From the first to the last effect of a fault with several targets",
                effects.values().filter_map(|it| it.0).collect::<Vec<_>>(),
            ),
            (
                "fault_latency",
                "From when a fault was due to its last effect",
                effects.values().filter_map(|it| it.1).collect(),
            ),
        ];
        for (name, help, spans) in of_faults {
            if !spans.is_empty() {
                let histogram = Histogram::new(BUCKETS);
                spans.iter().for_each(|it| histogram.observe(it.as_secs_f64()));
                family(encoder, name, help, seconds.as_ref(), [(vec![], histogram)])?;
            }
        }

        let link_labels = |(from, to): (ClusterId, ClusterId)| -> Labels {
            vec![("from", clusters.of(from)), ("to", clusters.of(to))]
        };
        let asked =
            requested.iter().filter(|_| !over).map(|&(pair, link)| (link_labels(pair), gauge(link.latency)));
        family(encoder, "link_delay_requested", "Requested latency of a link", seconds.as_ref(), asked)?;
        let seen = delays.iter().filter(|_| !over).map(|(&pair, &(packets, sum))| {
            (link_labels(pair), gauge(Span(sum.0.checked_div(packets).unwrap_or(0))))
        });
        family(encoder, "link_delay_seen", "Mean delay of packets over a link", seconds.as_ref(), seen)?;
        let packets = delays.iter().map(|(&pair, &(packets, _))| (link_labels(pair), number(packets)));
        family(encoder, "link_packets", "Packets that arrived over a link", None, packets)
    }
}

async fn page(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    render(&registry)
}

/// Creates a registry that shows `exposition`.
pub(crate) fn registry(exposition: Arc<Exposition>, process: Option<String>) -> Registry {
    let labels = process.map(|process| ("process".into(), process.into()));
    let mut registry = Registry::with_prefix_and_labels("faultline", labels.into_iter());
    registry.register_collector(Box::new(exposition));
    registry
}

/// Returns all metrics of a registry as an HTTP response.
pub(crate) fn render(registry: &Registry) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text(registry))
}

/// Returns all metrics of a registry as text.
pub(crate) fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("a string takes everything");
    prometheus_text(&text)
}

/// Converts OpenMetrics to the older Prometheus text format, which all scrapers and `promtool` can read. In that
/// format, the description of a counter uses its full name, and neither units nor the end are marked.
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
            let (_, help) = help.take().expect("a metric is described before it is typed");
            text += &format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
            continue;
        }
        text += line;
        text.push('\n');
    }
    text
}

/// Encodes one metric with its labelled values; nothing if there are none.
fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    values: impl IntoIterator<Item = (Labels, M)>,
) -> fmt::Result {
    let mut values = values.into_iter().peekable();
    let Some((_, first)) = values.peek() else { return Ok(()) };
    let mut family = encoder.encode_descriptor(name, help, unit, first.metric_type())?;
    for (labels, value) in values {
        if labels.is_empty() {
            return value.encode(family);
        }
        value.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauge(span: Span) -> ConstGauge<f64> {
    ConstGauge::new(span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_over_wants_no_more_steps_and_keeps_what_was_counted() {
        let sum = super::super::Sum::default();
        sum.0.update(|page| {
            page.gauges.progress.total = 9;
            page.counts.lost = Span::from_secs(2);
            page.ask(ClusterId(0), ClusterId(1), LinkProperties::default());
            page.delays.insert((ClusterId(0), ClusterId(1)), (3, Span::from_secs(3)));
        });
        assert!(sum.text().contains("faultline_steps_wanted 9"));
        let delays = |text: &str| text.lines().filter(|it| it.starts_with("faultline_link_delay")).count();
        assert_eq!(delays(&sum.text()), 2);
        sum.over();
        let text = sum.text();
        assert!(text.contains("faultline_steps_wanted 0"), "{text}");
        assert_eq!(delays(&text), 0, "a link that nobody uses is neither fast nor slow: {text}");
        assert!(
            text.lines().any(|it| it.starts_with("faultline_link_packets_total{") && it.ends_with(" 3")),
            "{text}"
        );
        assert!(text.contains("faultline_lost_work_seconds_total 2"), "{text}");
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
