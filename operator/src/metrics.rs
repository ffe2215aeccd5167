//! Metrics of the operator, and the HTTP endpoint that serves them.

mod federations;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use faultline_callers::{SharedPage, UntrustedConnections};
use faultline_client::status::FederationStatus;
use faultline_client::status::condition::PODS_NOT_STARTED;
use federations::Federations;
use kube::ResourceExt;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::net::TcpListener;

/// Time for which a page is served without counting anew. Slow callers then share one page, which may be large.
const FRESH: Duration = Duration::from_secs(1);

/// Metrics of the operator, and of the federations that it manages.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconciles: Family<ReconcileLabels, Counter>,
    duration: Histogram,
    requests: Family<RequestLabels, Counter>,
    leader: Gauge,
    runs: Family<RunLabels, Counter>,
    records_lost: Counter,
    federations: Federations,
}

/// The ways in which a run can end: the verdict, and the reason of the condition `Completed`.
const ENDS: [(&str, &str); 7] = [
    ("pass", "Pass"),
    ("fail", "Fail"),
    ("unknown", "Unknown"),
    ("unknown", "DeadlineExceeded"),
    ("unknown", "RecordLost"),
    ("unknown", "RunFailed"),
    ("unknown", PODS_NOT_STARTED),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    verdict: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Outcome {
    Done,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut root = Registry::with_prefix("faultline");
        let federations = Federations::default();
        root.register_collector(Box::new(federations.clone()));
        let registry = root.sub_registry_with_prefix("operator");
        let reconciles = Family::default();
        registry.register("reconciles", "Reconciliations of federations", reconciles.clone());
        let duration = Histogram::new(exponential_buckets(0.001, 4.0, 8));
        registry.register_with_unit(
            "reconcile_duration",
            "Duration of a reconciliation",
            Unit::Seconds,
            duration.clone(),
        );
        let requests = Family::default();
        registry.register("api_requests", "Requests to the API server", requests.clone());
        let leader = Gauge::default();
        registry.register("leader", "1 if this operator holds the lease, otherwise 0", leader.clone());
        let runs = Family::<RunLabels, Counter>::default();
        // A counter that does not start at 0 hides its first increase.
        for (verdict, reason) in ENDS {
            drop(runs.get_or_create(&RunLabels { verdict, reason }));
        }
        registry.register("runs", "Runs that have ended", runs.clone());
        let records_lost = Counter::default();
        let help = "Runs whose record was lost, before or after the verdict";
        registry.register("records_lost", help, records_lost.clone());
        Metrics { registry: root, reconciles, duration, requests, leader, runs, records_lost, federations }
    }
}

impl Metrics {
    /// Counts a reconciliation with its duration and outcome.
    pub fn reconciled(&self, duration: Duration, done: bool) {
        let outcome = if done { Outcome::Done } else { Outcome::Failed };
        self.reconciles.get_or_create(&ReconcileLabels { outcome }).inc();
        self.duration.observe(duration.as_secs_f64());
    }

    /// Counts a request to the API server.
    pub fn requested(&self, method: &http::Method) {
        self.requests.get_or_create(&RequestLabels { method: method.as_str().to_owned() }).inc();
    }

    /// Counts the end of a run. A combination that is not known counts as `unknown` without a more precise reason.
    pub fn ended(&self, verdict: &str, reason: &str) {
        let known = ENDS.into_iter().find(|it| *it == (verdict, reason)).unwrap_or(ENDS[2]);
        self.runs.get_or_create(&RunLabels { verdict: known.0, reason: known.1 }).inc();
    }

    /// Counts the loss of a run's record.
    pub fn record_lost(&self) {
        self.records_lost.inc();
    }

    /// Exports the current status of a federation.
    pub fn show(&self, federation: &impl ResourceExt, status: &FederationStatus) {
        self.federations.show(federation, status);
    }

    /// Removes the federation with this UID.
    pub fn forget(&self, uid: &str) {
        self.federations.forget(uid);
    }

    /// Returns all series as text.
    ///
    /// # Panics
    ///
    /// Panics if a string cannot be written to, which never happens.
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string never fails");
        text
    }

    /// Records whether this operator is active or waiting for the lease.
    pub fn lead(&self, leads: bool) {
        self.leader.set(leads.into());
    }
}

/// Serves `/metrics` and `/healthz` until the future is dropped. With the address `[::]`, also accepts connections over
/// IPv4, and only those if the kernel does not support IPv6.
///
/// # Errors
///
/// Fails if the address cannot be used.
pub async fn serve(address: SocketAddr, metrics: Arc<Metrics>) -> io::Result<()> {
    let bound = match TcpListener::bind(address).await {
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    serve_on(bound?, metrics).await;
    Ok(())
}

/// Serves the same pages on an existing listener.
pub async fn serve_on(listener: TcpListener, metrics: Arc<Metrics>) {
    let page = Arc::new(Page { metrics, shared: SharedPage::new(FRESH) });
    let app = Router::new()
        .route("/metrics", get(async |State(page): State<Arc<Page>>| page.response()))
        .route("/healthz", get(async || "ok\n"))
        .with_state(page);
    faultline_callers::answer_all(listener, UntrustedConnections::besides(0), app).await;
}

/// The page with the metrics.
struct Page {
    metrics: Arc<Metrics>,
    shared: SharedPage,
}

impl Page {
    fn response(&self) -> impl IntoResponse + use<> {
        ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], self.text())
    }

    fn text(&self) -> Bytes {
        self.shared.text(|| self.metrics.text())
    }
}

#[cfg(test)]
mod tests {
    use faultline_client::status::Phase;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};
    use tokio::time::timeout;

    use super::*;

    const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n";

    /// Serves the pages, and returns their address.
    async fn served() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_on(listener, Arc::new(Metrics::default())));
        address
    }

    /// Connects from the address 127.0.0.`number`, and sends `text`.
    async fn say(number: u8, text: &[u8], to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, number), 0))).unwrap();
        let mut stream = socket.connect(to).await.unwrap();
        // The operator may close the connection, or read only a part.
        let _ = timeout(Duration::from_millis(10), stream.write_all(text)).await;
        stream
    }

    /// Returns what the operator answers before it closes a connection.
    async fn answer(mut stream: TcpStream) -> String {
        let mut answer = Vec::new();
        // The operator closes a connection without reading the rest of a large request.
        let end = timeout(Duration::from_secs(8), stream.read_to_end(&mut answer)).await;
        let _ = end.expect("the operator closes the connection");
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn silent_callers_lose_their_connections_to_others() {
        let address = served().await;
        let mut silent = Vec::new();
        for number in 0..80 {
            silent.push(say(2 + number % 4, b"GET /metrics HTTP/1.1\r\nx: ", address).await);
        }
        assert!(answer(say(9, REQUEST, address).await).await.contains("ok"));
        // 64 connections may be open.
        for closed in silent.into_iter().take(16) {
            assert_eq!(answer(closed).await, "");
        }
    }

    #[tokio::test]
    async fn a_request_with_a_large_head_is_not_read_to_its_end() {
        let address = served().await;
        let mut head = b"GET /metrics HTTP/1.1\r\nx: ".to_vec();
        head.resize(20 << 10, b'a');
        assert!(!answer(say(2, &head, address).await).await.contains("200 OK"));
    }

    #[tokio::test]
    async fn a_connection_serves_one_request() {
        let address = served().await;
        assert_eq!(answer(say(2, &REQUEST.repeat(2), address).await).await.matches("200 OK").count(), 1);
    }

    #[tokio::test]
    async fn the_pages_are_served_over_ipv4_too() {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        tokio::spawn(serve((Ipv6Addr::UNSPECIFIED, port).into(), Arc::new(Metrics::default())));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let connected = async {
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(8), connected).await.expect("the operator listens");
        assert!(answer(say(2, REQUEST, address).await).await.contains("ok"));
    }

    #[test]
    fn the_page_shows_what_was_counted() {
        let metrics = Metrics::default();
        metrics.reconciled(Duration::from_millis(3), true);
        metrics.reconciled(Duration::from_millis(3), false);
        metrics.requested(&http::Method::PATCH);
        metrics.lead(true);
        metrics.ended("unknown", "DeadlineExceeded");
        metrics.ended("from a foreign program", "anything");
        metrics.record_lost();
        let mut federation = crate::reconcile::build::tests::quickstart();
        federation.metadata.uid = Some("1".into());
        let protocol = federation.spec.protocol.name();
        let status = FederationStatus {
            phase: Phase::Running,
            protocol: Some(protocol.to_owned()),
            ..FederationStatus::default()
        };
        metrics.show(&federation, &status);
        let info = format!(
            "faultline_federation_info{{namespace=\"experiments\",federation=\"quickstart\",protocol=\"{protocol}\"}} 1"
        );
        let text = metrics.text();
        for line in [
            "faultline_operator_reconciles_total{outcome=\"Done\"} 1",
            "faultline_operator_reconciles_total{outcome=\"Failed\"} 1",
            "faultline_operator_reconcile_duration_seconds_count 2",
            "faultline_operator_api_requests_total{method=\"PATCH\"} 1",
            "faultline_operator_leader 1",
            "faultline_operator_runs_total{verdict=\"unknown\",reason=\"DeadlineExceeded\"} 1",
            "faultline_operator_runs_total{verdict=\"unknown\",reason=\"Unknown\"} 1",
            "faultline_operator_runs_total{verdict=\"fail\",reason=\"Fail\"} 0",
            "faultline_operator_records_lost_total 1",
            &info,
            "faultline_federation_phase{namespace=\"experiments\",federation=\"quickstart\",phase=\"Running\"} 1",
            "faultline_federation_phase{namespace=\"experiments\",federation=\"quickstart\",phase=\"Pending\"} 0",
            "faultline_federation_verdict{namespace=\"experiments\",federation=\"quickstart\",verdict=\"pass\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        metrics.forget("1");
        let text = metrics.text();
        assert!(!text.contains("faultline_federation"), "a federation that is gone is not shown: {text}");
    }
}
