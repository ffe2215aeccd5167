//! What an agent counts, and the page that shows it.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tracing::warn;

use crate::metrics::exposition::{Visitors, render};

/// The numbers.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Lives that were started here.
    pub(super) launched: Counter,
    /// Lives that were killed by order.
    pub(super) killed: Counter,
    /// Lives that ended by themselves.
    pub(super) collapsed: Counter,
    /// Bytes of facts sent to the supervisor.
    pub(super) facts: Counter,
    /// 1 while a supervisor is connected.
    pub(super) connected: Gauge<i64, AtomicI64>,
}

impl Counters {
    /// Answers at `/metrics` and `/healthz`, for ever.
    pub(super) fn serve(&self, visitors: Visitors) -> impl Future<Output = ()> + use<> {
        let mut registry = Registry::with_prefix("faultline_agent");
        let mut counter = |name: &str, help: &str, it: &Counter| registry.register(name, help, it.clone());
        counter("lives_launched", "Lives started at this place", &self.launched);
        counter("lives_killed", "Lives killed by order", &self.killed);
        counter("lives_collapsed", "Lives that ended by themselves", &self.collapsed);
        counter("facts_sent_bytes", "Facts sent to the supervisor", &self.facts);
        registry.register(
            "supervisor_connected",
            "Whether a supervisor is connected",
            self.connected.clone(),
        );
        let app = Router::new()
            .route("/metrics", get(async |State(registry): State<Arc<Registry>>| render(&registry)))
            .route("/healthz", get(async || "ok\n"))
            .with_state(Arc::new(registry));
        async {
            if let Err(error) = axum::serve(visitors, app).await {
                warn!(%error, "metrics are no longer served");
            }
        }
    }
}
