//! The supervisor of a federation, reached through the API server: a forwarded port of its pod.

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

/// Why a supervisor could not be asked.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    /// Its port is not forwarded.
    #[error("the port of the pod {pod} cannot be forwarded: {source}")]
    Forward {
        /// Which pod.
        pod: String,
        /// Why.
        source: kube::Error,
    },
    /// It does not answer, or refuses.
    #[error("the supervisor in the pod {pod}: {source}")]
    Supervisor {
        /// Which pod.
        pod: String,
        /// Why.
        source: SupervisorError,
    },
    /// What it says is not understood.
    #[error("the supervisor says something that this version does not understand: {0}")]
    Understand(#[from] serde_json::Error),
    /// The record could not be unpacked.
    #[error("the record cannot be unpacked: {0}")]
    Unpack(io::Error),
}

/// An answer over a port that is forwarded until it has been read.
struct Forwarded {
    answer: Answer,
    _port: Portforwarder,
}

impl AskError {
    /// Whether the user may not do this.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, AskError::Forward { source, .. } if match source {
            kube::Error::Api(status) => status.is_forbidden(),
            // The handshake of a forwarded port says no more than the status.
            kube::Error::UpgradeConnection(kube::client::UpgradeConnectionError::ProtocolSwitch(status)) => status.as_u16() == 403,
            _ => false,
        })
    }

    /// Whether the supervisor has no whole record yet.
    pub(crate) fn is_too_early(&self) -> bool {
        matches!(self, AskError::Supervisor { source: SupervisorError::Refused(StatusCode::CONFLICT, _), .. })
    }
}

impl Supervisor {
    pub(crate) fn new(pods: Api<Pod>, pod: String, token: String) -> Supervisor {
        Supervisor { pods, pod, token }
    }

    /// How the federation fares, with the events after number `after`.
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
        let stream = port.take_stream(ports::SUPERVISOR_API).expect("it was asked for, and nobody took it");
        let question =
            Question { host: "localhost", token: &self.token, method: Method::GET, path, body: Bytes::new() };
        let answer = question.ask(stream).await.map_err(|it| self.silent(it))?;
        Ok(Forwarded { answer, _port: port })
    }

    fn silent(&self, source: SupervisorError) -> AskError {
        AskError::Supervisor { pod: self.pod.clone(), source }
    }
}

/// Whether the supervisor has nothing more to say about the run.
pub(crate) fn is_over(status: &Status) -> bool {
    matches!(status.phase, supervision::Phase::Completed | supervision::Phase::Failed)
}
