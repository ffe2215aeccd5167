//! The metrics page of an agent: its own counters, and those of its shaper.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use faultline_core::ClusterId;
use faultline_tc::Counts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::sync;
use tracing::warn;

use crate::metrics::ClusterNames;
use crate::metrics::exposition::render;
use crate::remote::messages::Killed;
use crate::shaper::Shaper;

/// Label for the cluster that receives the packets.
type To = [(&'static str, String); 1];

/// The counters of an agent.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Lives started at this place.
    pub(super) launched: Counter,
    /// Lives killed by the agent.
    pub(super) killed: Counter,
    exits: Exits,
    /// Lives that ended unexpectedly.
    pub(super) collapsed: Counter,
    /// Bytes of facts sent to the supervisor.
    pub(super) facts: Counter,
    /// 1 if a supervisor is connected, otherwise 0.
    pub(super) connected: Gauge<i64, AtomicI64>,
    shaped: Option<Shaped>,
}

/// Times from the stop of a killed life until it had exited.
#[derive(Clone, Debug)]
struct Exits(Histogram);

impl Default for Exits {
    fn default() -> Exits {
        Exits(Histogram::new(exponential_buckets(0.0005, 2.0, 12)))
    }
}

/// Time for which the agent does not request the shaper's counters again.
const FRESH: Duration = Duration::from_millis(500);

/// Traffic-control counters, which the agent requests from the shaper when the page is read.
#[derive(Clone, Debug)]
struct Shaped {
    shaper: Shaper,
    /// Time of the last request. Anyone can read the page, but the shaper answers one request at a time, and those that
    /// change links must not wait.
    requested: Arc<sync::Mutex<Option<Instant>>>,
    /// Address of this place, once a supervisor has connected.
    here: Arc<Mutex<Option<IpAddr>>>,
    clusters: Arc<Mutex<ClusterNames>>,
    packets: Family<To, Counter>,
    bytes: Family<To, Counter>,
    drops: Family<To, Counter>,
}

struct Page {
    registry: Registry,
    shaped: Option<Shaped>,
}

impl Counters {
    /// Creates the counters of a place, with the socket of its shaper if it has one.
    pub(super) fn new(shaper: Option<&Path>) -> Counters {
        let shaped = |socket| Shaped {
            shaper: Shaper::at(socket),
            requested: Arc::default(),
            here: Arc::default(),
            clusters: Arc::default(),
            packets: Family::default(),
            bytes: Family::default(),
            drops: Family::default(),
        };
        Counters { shaped: shaper.map(shaped), ..Counters::default() }
    }

    /// Counts a life that was killed.
    pub(super) fn killed(&self, Killed { stopped, exited }: Killed) {
        self.killed.inc();
        self.exits.0.observe(Duration::from_nanos(exited.saturating_sub(stopped)).as_secs_f64());
    }

    /// Sets the address at which this place is reached.
    pub(super) fn at(&self, here: Option<IpAddr>) {
        if let Some(shaped) = &self.shaped {
            *shaped.here.lock().unwrap_or_else(PoisonError::into_inner) = here;
        }
    }

    /// Sets the names of the clusters.
    pub(super) fn call(&self, clusters: ClusterNames) {
        if let Some(shaped) = &self.shaped {
            *shaped.clusters.lock().unwrap_or_else(PoisonError::into_inner) = clusters;
        }
    }

    /// Returns the application that serves `/metrics` and `/healthz`.
    pub(super) fn app(&self) -> Router {
        let mut registry = Registry::with_prefix("faultline_agent");
        let mut counter = |name: &str, help: &str, it: &Counter| registry.register(name, help, it.clone());
        counter("lives_launched", "Lives started at this place", &self.launched);
        counter("lives_killed", "Lives killed by the agent", &self.killed);
        counter("lives_collapsed", "Lives that ended unexpectedly", &self.collapsed);
        counter("facts_sent_bytes", "Bytes of facts sent to the supervisor", &self.facts);
        let help =
            "Time from the stop of a killed life, after which it executed nothing, until it had exited";
        registry.register_with_unit("exit", help, Unit::Seconds, self.exits.0.clone());
        registry.register(
            "supervisor_connected",
            "1 if a supervisor is connected, otherwise 0",
            self.connected.clone(),
        );
        if let Some(Shaped { packets, bytes, drops, .. }) = &self.shaped {
            let help = "Packets sent through traffic control, by receiving cluster";
            registry.register("shaped_packets", help, packets.clone());
            let help = "Bytes sent through traffic control, with headers";
            registry.register_with_unit("shaped", help, Unit::Bytes, bytes.clone());
            let help = "Packets dropped by traffic control, intentionally or because of a full queue";
            registry.register("shaped_drops", help, drops.clone());
        }
        let page = Page { registry, shaped: self.shaped.clone() };
        Router::new()
            .route("/metrics", get(show))
            .route("/healthz", get(async || "ok\n"))
            .with_state(Arc::new(page))
    }
}

async fn show(State(page): State<Arc<Page>>) -> impl IntoResponse {
    if let Some(shaped) = &page.shaped {
        shaped.refresh().await;
    }
    render(&page.registry)
}

impl Shaped {
    /// Asks the shaper for its counts, unless they are fresh. If the shaper does not respond, the previous counts remain.
    async fn refresh(&self) {
        let mut requested = self.requested.lock().await;
        if requested.is_some_and(|it| it.elapsed() < FRESH) {
            return;
        }
        *requested = Some(Instant::now());
        let here = *self.here.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(IpAddr::V4(address)) = here else { return };
        match self.shaper.passed(address).await {
            Ok(passed) => passed.leaving.iter().for_each(|(&to, counts)| self.note(to, counts)),
            Err(error) => warn!(%error, "cannot read the counters of traffic control"),
        }
    }

    /// Records the counts of one class. As with any counter, they may restart at zero: the kernel resets them when the
    /// class is recreated.
    fn note(&self, to: ClusterId, counts: &Counts) {
        let to = self.clusters.lock().unwrap_or_else(PoisonError::into_inner).of(to);
        let set = |family: &Family<To, Counter<u64, AtomicU64>>, value| {
            family.get_or_create(&[("to", to.clone())]).inner().store(value, Ordering::Relaxed);
        };
        set(&self.packets, counts.packets);
        set(&self.bytes, counts.bytes);
        set(&self.drops, counts.drops);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use faultline_tc::TrafficCounts;
    use tokio::runtime::{Builder, LocalOptions};

    use super::*;
    use crate::shaper::{Answer, answer_all, listen};

    /// Anyone can read the page, but the shaper answers one request at a time.
    #[test]
    fn callers_who_read_the_page_together_cause_one_request_to_the_shaper() {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("shaper");
            let counters = Counters::new(Some(&socket));
            counters.at(Some(Ipv4Addr::LOCALHOST.into()));
            let shaped = counters.shaped.unwrap();
            let listener = listen(&socket).unwrap();
            let asked = Cell::new(0);
            let serve = answer_all(&listener, |_| {
                asked.set(asked.get() + 1);
                Answer::TrafficCounts(TrafficCounts::default())
            });
            let callers: Vec<_> = (0..200)
                .map(|_| {
                    let shaped = shaped.clone();
                    tokio::task::spawn_local(async move { shaped.refresh().await })
                })
                .collect();
            let all = async {
                for caller in callers {
                    caller.await.unwrap();
                }
            };
            tokio::select! {
                Err(error) = serve => panic!("{error}"),
                () = all => {}
            }
            assert_eq!(asked.get(), 1);
        });
    }
}
