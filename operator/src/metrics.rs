//! Metrics of the operator, and the HTTP endpoint that serves them.

mod federations;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use faultline_api::Federation;
use faultline_api::resource::FederationStatus;
use federations::Federations;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::net::TcpListener;

/// Metrics of the operator, and of the federations that it manages.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconciles: Family<ReconcileLabels, Counter>,
    duration: Histogram,
    requests: Family<RequestLabels, Counter>,
    leader: Gauge,
    federations: Federations,
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
        Metrics { registry: root, reconciles, duration, requests, leader, federations }
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

    /// Exports the current status of a federation.
    pub fn show(&self, federation: &Federation, status: &FederationStatus) {
        self.federations.show(federation, status);
    }

    /// Removes the federation with this UID.
    pub fn forget(&self, uid: &str) {
        self.federations.forget(uid);
    }

    /// Records whether this operator is active or waiting for the lease.
    pub fn lead(&self, leads: bool) {
        self.leader.set(leads.into());
    }
}

/// Serves `/metrics` and `/healthz` until the future is dropped.
///
/// # Errors
///
/// Fails if the address cannot be used, or if the listener fails.
pub async fn serve(address: SocketAddr, metrics: Arc<Metrics>) -> std::io::Result<()> {
    serve_on(TcpListener::bind(address).await?, metrics).await
}

/// Serves the same pages on an existing listener.
///
/// # Errors
///
/// Fails if the listener does.
pub async fn serve_on(listener: TcpListener, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let app = Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(async || "ok\n"))
        .with_state(metrics);
    axum::serve(listener, app).await
}

async fn page(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    let mut text = String::new();
    encode(&mut text, &metrics.registry).expect("writing to a string never fails");
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

#[cfg(test)]
mod tests {
    use faultline_api::resource::Phase;

    use super::*;

    #[test]
    fn the_page_shows_what_was_counted() {
        let metrics = Metrics::default();
        metrics.reconciled(Duration::from_millis(3), true);
        metrics.reconciled(Duration::from_millis(3), false);
        metrics.requested(&http::Method::PATCH);
        metrics.lead(true);
        let mut federation = crate::reconcile::build::tests::quickstart();
        federation.metadata.uid = Some("1".into());
        let status = FederationStatus { phase: Phase::Running, ..FederationStatus::default() };
        metrics.show(&federation, &status);
        let protocol = federation.spec.protocol.name();
        let info = format!(
            "faultline_federation_info{{namespace=\"experiments\",federation=\"quickstart\",protocol=\"{protocol}\"}} 1"
        );
        let mut text = String::new();
        encode(&mut text, &metrics.registry).expect("writing to a string never fails");
        for line in [
            "faultline_operator_reconciles_total{outcome=\"Done\"} 1",
            "faultline_operator_reconciles_total{outcome=\"Failed\"} 1",
            "faultline_operator_reconcile_duration_seconds_count 2",
            "faultline_operator_api_requests_total{method=\"PATCH\"} 1",
            "faultline_operator_leader 1",
            &info,
            "faultline_federation_phase{namespace=\"experiments\",federation=\"quickstart\",phase=\"Running\"} 1",
            "faultline_federation_phase{namespace=\"experiments\",federation=\"quickstart\",phase=\"Pending\"} 0",
            "faultline_federation_verdict{namespace=\"experiments\",federation=\"quickstart\",verdict=\"pass\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        metrics.forget("1");
        text.clear();
        encode(&mut text, &metrics.registry).expect("writing to a string never fails");
        assert!(!text.contains("faultline_federation"), "a federation that is gone is not shown: {text}");
    }
}
