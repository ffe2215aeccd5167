//! The supervisor of a federation, reached through the API server by port forwarding to its pod.

use std::io;
use std::path::Path;

use bytes::Bytes;
use faultline_api::supervision::{self, BUNDLE, RunStatus, STATUS};
use faultline_client::ports;
use faultline_client::supervisor::{HttpRequest, HttpResponse, SupervisorError};
use futures::stream;
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::Portforwarder;
use thiserror::Error;
use tokio_util::io::{StreamReader, SyncIoBridge};

/// The supervisor of a federation.
pub(crate) struct Supervisor {
    pods: Api<Pod>,
    pod: String,
    token: String,
}

/// The reason why a request to a supervisor failed.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    /// The port could not be forwarded.
    #[error("cannot forward a port to the pod {pod}: {source}")]
    Forward {
        /// Name of the pod.
        pod: String,
        /// Cause of the failure.
        source: kube::Error,
    },
    /// The supervisor does not answer, or refuses the request.
    #[error("the request to the supervisor in the pod {pod} failed: {source}")]
    Supervisor {
        /// Name of the pod.
        pod: String,
        /// Cause of the failure.
        source: SupervisorError,
    },
    /// The answer cannot be parsed.
    #[error(
        "cannot parse the supervisor's answer: {0}; use the version of this program that matches the node image"
    )]
    Parse(#[from] serde_json::Error),
    /// The record could not be unpacked.
    #[error("cannot unpack the record: {0}")]
    Unpack(io::Error),
}

/// An answer, with the forwarded port that must stay open until the answer has been read.
struct Forwarded {
    answer: HttpResponse,
    _port: Portforwarder,
}

impl RequestError {
    /// Returns whether the user lacks permission for the request.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, RequestError::Forward { source, .. } if match source {
            kube::Error::Api(status) => status.is_forbidden(),
            // The handshake of a forwarded port reports only the status.
            kube::Error::UpgradeConnection(kube::client::UpgradeConnectionError::ProtocolSwitch(status)) => status.as_u16() == 403,
            _ => false,
        })
    }

    /// Returns whether the supervisor has no complete record yet.
    pub(crate) fn is_too_early(&self) -> bool {
        matches!(
            self,
            RequestError::Supervisor { source: SupervisorError::Refused(StatusCode::CONFLICT, _), .. }
        )
    }
}

impl Supervisor {
    pub(crate) fn new(pods: Api<Pod>, pod: String, token: String) -> Supervisor {
        Supervisor { pods, pod, token }
    }

    /// Returns the status of the federation, with the events after number `after`.
    pub(crate) async fn status(&self, after: u64) -> Result<RunStatus, RequestError> {
        let Forwarded { answer, _port } = self.ask(&format!("{STATUS}?after={after}")).await?;
        let said = answer.whole().await.map_err(|it| self.silent(it))?;
        Ok(serde_json::from_slice(&said)?)
    }

    /// Unpacks the record of the run into `dir`.
    pub(crate) async fn fetch(&self, dir: &Path) -> Result<(), RequestError> {
        let Forwarded { answer, _port } = self.ask(BUNDLE).await?;
        let pieces = stream::unfold(answer, async |mut answer| {
            let piece = answer.piece().await?.map_err(io::Error::other);
            Some((piece, answer))
        });
        let record = SyncIoBridge::new(StreamReader::new(Box::pin(pieces)));
        let dir = dir.to_owned();
        let unpacked = tokio::task::spawn_blocking(move || tar::Archive::new(record).unpack(dir));
        unpacked.await.map_err(io::Error::other).flatten().map_err(RequestError::Unpack)
    }

    async fn ask(&self, path: &str) -> Result<Forwarded, RequestError> {
        let forward = |source| RequestError::Forward { pod: self.pod.clone(), source };
        let mut port = self.pods.portforward(&self.pod, &[ports::SUPERVISOR_API]).await.map_err(forward)?;
        let stream = port
            .take_stream(ports::SUPERVISOR_API)
            .expect("the port was requested, and its stream is taken only here");
        let question = HttpRequest {
            host: "localhost",
            token: &self.token,
            method: Method::GET,
            path,
            body: Bytes::new(),
        };
        let answer = question.ask(stream).await.map_err(|it| self.silent(it))?;
        Ok(Forwarded { answer, _port: port })
    }

    fn silent(&self, source: SupervisorError) -> RequestError {
        RequestError::Supervisor { pod: self.pod.clone(), source }
    }
}

/// Returns whether the run has been judged or has failed.
pub(crate) fn is_over(status: &RunStatus) -> bool {
    matches!(status.phase, supervision::RunPhase::Completed | supervision::RunPhase::Failed)
}
