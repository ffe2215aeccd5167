//! The supervisor of a federation, reached through the API server by a forwarded port of its pod.

use std::io;
use std::path::Path;

use bytes::Bytes;
use faultline_api::supervision::{self, BUNDLE, STATUS, Status};
use faultline_client::ports;
use faultline_client::supervisor::{Answer, Question, SupervisorError};
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

/// Why a request to a supervisor failed.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    /// The port could not be forwarded.
    #[error("cannot forward the port of the pod {pod}: {source}")]
    Forward {
        /// Name of the pod.
        pod: String,
        /// Cause of the failure.
        source: kube::Error,
    },
    /// The supervisor does not answer, or refuses.
    #[error("the supervisor in the pod {pod}: {source}")]
    Supervisor {
        /// Name of the pod.
        pod: String,
        /// Cause of the failure.
        source: SupervisorError,
    },
    /// The answer cannot be parsed.
    #[error("this version does not understand the supervisor's answer: {0}")]
    Understand(#[from] serde_json::Error),
    /// The record could not be unpacked.
    #[error("cannot unpack the record: {0}")]
    Unpack(io::Error),
}

/// An answer over a port that stays forwarded until the answer has been read.
struct Forwarded {
    answer: Answer,
    _port: Portforwarder,
}

impl AskError {
    /// Returns whether the user lacks the right to do this.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, AskError::Forward { source, .. } if match source {
            kube::Error::Api(status) => status.is_forbidden(),
            // The handshake of a forwarded port reports only the status.
            kube::Error::UpgradeConnection(kube::client::UpgradeConnectionError::ProtocolSwitch(status)) => status.as_u16() == 403,
            _ => false,
        })
    }

    /// Returns whether the supervisor has no complete record yet.
    pub(crate) fn is_too_early(&self) -> bool {
        matches!(self, AskError::Supervisor { source: SupervisorError::Refused(StatusCode::CONFLICT, _), .. })
    }
}

impl Supervisor {
    pub(crate) fn new(pods: Api<Pod>, pod: String, token: String) -> Supervisor {
        Supervisor { pods, pod, token }
    }

    /// Returns the status of the federation, with the events after number `after`.
    pub(crate) async fn status(&self, after: u64) -> Result<Status, AskError> {
        let Forwarded { answer, _port } = self.ask(&format!("{STATUS}?after={after}")).await?;
        let said = answer.whole().await.map_err(|it| self.silent(it))?;
        Ok(serde_json::from_slice(&said)?)
    }

    /// Unpacks the record of the run into `dir`.
    pub(crate) async fn fetch(&self, dir: &Path) -> Result<(), AskError> {
        let Forwarded { answer, _port } = self.ask(BUNDLE).await?;
        let pieces = stream::unfold(answer, async |mut answer| {
            let piece = answer.piece().await?.map_err(io::Error::other);
            Some((piece, answer))
        });
        let record = SyncIoBridge::new(StreamReader::new(Box::pin(pieces)));
        let dir = dir.to_owned();
        let unpacked = tokio::task::spawn_blocking(move || tar::Archive::new(record).unpack(dir));
        unpacked.await.map_err(io::Error::other).flatten().map_err(AskError::Unpack)
    }

    async fn ask(&self, path: &str) -> Result<Forwarded, AskError> {
        let forward = |source| AskError::Forward { pod: self.pod.clone(), source };
        let mut port = self.pods.portforward(&self.pod, &[ports::SUPERVISOR_API]).await.map_err(forward)?;
        let stream =
            port.take_stream(ports::SUPERVISOR_API).expect("it was requested, and is taken only here");
        let question =
            Question { host: "localhost", token: &self.token, method: Method::GET, path, body: Bytes::new() };
        let answer = question.ask(stream).await.map_err(|it| self.silent(it))?;
        Ok(Forwarded { answer, _port: port })
    }

    fn silent(&self, source: SupervisorError) -> AskError {
        AskError::Supervisor { pod: self.pod.clone(), source }
    }
}

/// Returns whether the supervisor has nothing further to report about the run.
pub(crate) fn is_over(status: &Status) -> bool {
    matches!(status.phase, supervision::Phase::Completed | supervision::Phase::Failed)
}
