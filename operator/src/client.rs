//! The client of the API server: counts its requests, and fails those that the API server does not answer.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::{Client, Config};
use tokio::time::timeout;
use tower::BoxError;
use tower::util::{MapFutureLayer, MapRequestLayer};

use crate::metrics::Metrics;

/// Time within which the response to a request must begin. The API server begins its response to a watch immediately,
/// too; kube limits the time between two events of a watch.
pub const RESPONSE: Duration = Duration::from_secs(20);

/// Creates a client that waits for the beginning of each response for at most `limit`.
///
/// [`Config::read_timeout`] cannot replace this limit: it would also end watches without events.
///
/// # Errors
///
/// Fails if the configuration is invalid.
pub fn build(config: Config, metrics: Arc<Metrics>, limit: Duration) -> kube::Result<Client> {
    let in_time = MapFutureLayer::new(move |response| within(limit, response));
    let count = MapRequestLayer::new(move |request: Request<Body>| {
        metrics.requested(request.method());
        request
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&in_time).with_layer(&count).build())
}

async fn within(
    limit: Duration,
    response: impl Future<Output = Result<Response<Box<DynBody>>, BoxError>>,
) -> Result<Response<Box<DynBody>>, BoxError> {
    let message = || format!("the API server did not respond within {limit:?}").into();
    timeout(limit, response).await.unwrap_or_else(|_| Err(message()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_request_fails_if_the_api_server_does_not_respond() {
        // Connections are established, but nothing reads the requests.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let config = Config::new(address.parse().unwrap());
        let client = build(config, Arc::default(), Duration::from_millis(100)).unwrap();
        let pods: Api<Pod> = Api::default_namespaced(client);
        let answer = timeout(Duration::from_secs(10), pods.get("any")).await.expect("it does not hang");
        let error = answer.expect_err("there is no response");
        assert!(error.to_string().contains("did not respond within 100ms"), "{error:?}");
    }
}
