//! Runs the operator's reconciliation against an in-memory API server, and serves its metrics at the address
//! that it prints. Needs no cluster. `cargo xtask dashboards` scrapes it.

#[expect(dead_code, reason = "the tests use all of it")]
#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::ApiServer;
use faultline_api::samples::SAMPLES;
use faultline_operator::cached_federation::CachedFederation;
use faultline_operator::metrics::{self, Metrics};
use faultline_operator::reconcile::reconcile;
use faultline_operator::{Context, Settings};
use serde_json::json;

/// Number of samples that are applied as federations.
const FEDERATIONS: usize = 4;
const NAMESPACE: &str = "experiments";
/// Time until the metrics show that this operator holds the lease.
const LEASE: Duration = Duration::from_secs(15);
/// Interval between two reconciliations of a federation.
const EVERY: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::default();
    let mut paths = Vec::new();
    for (sample, number) in SAMPLES.iter().take(FEDERATIONS).zip(0..) {
        let parsed =
            faultline_api::parse(sample.name, sample.text.as_bytes()).map_err(|it| it.to_string())?;
        let mut federation = serde_json::to_value(parsed)?;
        federation["metadata"]["namespace"] = json!(NAMESPACE);
        federation["metadata"]["uid"] = json!(format!("uid-{number}"));
        federation["metadata"]["generation"] = json!(1);
        let path = format!("/apis/faultline.dev/v1alpha1/namespaces/{NAMESPACE}/federations/{}", sample.name);
        server.put(&path, federation);
        paths.push(path);
    }
    let metrics = Arc::new(Metrics::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    tokio::spawn(metrics::serve_on(listener, Arc::clone(&metrics)));
    // During this time, the metrics are those of an operator that waits for the lease.
    tokio::time::sleep(LEASE).await;
    metrics.lead(true);
    let settings = Settings::default();
    let context = Context::new(server.client(), settings, "in-memory".to_owned(), Arc::clone(&metrics));
    loop {
        for path in &paths {
            let stored = server.get(path).ok_or("a federation is gone")?;
            let federation: CachedFederation = serde_json::from_value(stored)?;
            let begun = Instant::now();
            let result = reconcile(&federation, &context).await;
            metrics.reconciled(begun.elapsed(), result.is_ok());
        }
        for write in server.writes() {
            let method = write.split(' ').next().unwrap_or_default();
            metrics.requested(&method.parse()?);
        }
        tokio::time::sleep(EVERY).await;
    }
}
