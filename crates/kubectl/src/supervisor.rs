//! The supervisor of a federation, reached through the API server by port forwarding to its pod.

use std::io::{self, Read};
use std::path::{Component, Path};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use faultline_api::supervision::{self, BUNDLE, FACTS, HeldFacts, RunStatus, STATUS};
use faultline_client::ports;
use faultline_client::supervisor::{HttpRequest, HttpResponse, SupervisorError};
use faultline_trace::Bundle;
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::Portforwarder;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinError;
use tokio::time::timeout;
use tokio_util::io::SyncIoBridge;

/// Time within which the next piece of a record must arrive.
const PIECE_WITHIN: Duration = Duration::from_secs(30);
/// Size in bytes of the buffer between receiving and unpacking a record.
const PIPE: usize = 256 << 10;
/// Maximum size in bytes of the data after the end of an archive.
const MAX_SURPLUS: usize = 1 << 20;

/// The supervisor of a federation.
pub(crate) struct Supervisor {
    pods: Api<Pod>,
    pod: String,
    token: String,
    /// Time within which the status, or the beginning of the record, must arrive.
    deadline: Duration,
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
    /// The supervisor, or the API server on the way to it, does not respond in time.
    #[error("the supervisor in the pod {pod} did not respond within {waited:?}")]
    Late {
        /// Name of the pod.
        pod: String,
        /// Time limit.
        waited: Duration,
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

/// Waits, when it is dropped, until the sender of this channel is dropped.
struct UntilEnded(mpsc::Receiver<()>);

impl Drop for UntilEnded {
    fn drop(&mut self) {
        let _ = self.0.recv();
    }
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

    /// Returns whether a later attempt may succeed without any action by the user.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            RequestError::Forward { .. } => !self.is_forbidden(),
            RequestError::Late { .. } => true,
            // A supervisor that has restarted judges its record again before it sends the record.
            RequestError::Supervisor { source: SupervisorError::Refused(status, _), .. } => {
                status.is_server_error() || *status == StatusCode::CONFLICT
            }
            RequestError::Supervisor { .. } => true,
            RequestError::Parse(_) | RequestError::Unpack(_) => false,
        }
    }

    /// Returns whether the supervisor has nothing at this path.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(
            self,
            RequestError::Supervisor { source: SupervisorError::Refused(StatusCode::NOT_FOUND, _), .. }
        )
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
    pub(crate) fn new(pods: Api<Pod>, pod: String, token: String, deadline: Duration) -> Supervisor {
        Supervisor { pods, pod, token, deadline }
    }

    /// Returns the status of the federation, with the events after number `after`.
    pub(crate) async fn status(&self, after: u64) -> Result<RunStatus, RequestError> {
        self.in_time(self.deadline, async {
            let Forwarded { answer, _port } =
                self.ask(Method::GET, &format!("{STATUS}?after={after}"), Bytes::new()).await?;
            let said = answer.whole().await.map_err(|it| self.silent(it))?;
            Ok(serde_json::from_slice(&said)?)
        })
        .await
    }

    /// Returns what was added to the record since.
    pub(crate) async fn facts(&self, held: &HeldFacts) -> Result<Bytes, RequestError> {
        let held = serde_json::to_vec(held)?;
        self.in_time(self.deadline, async {
            let Forwarded { answer, _port } = self.ask(Method::POST, FACTS, held.into()).await?;
            answer.whole().await.map_err(|it| self.silent(it))
        })
        .await
    }

    /// Unpacks the record of the run into `dir`.
    pub(crate) async fn fetch(&self, dir: &Path) -> Result<(), RequestError> {
        let Forwarded { answer, _port } =
            self.in_time(self.deadline, self.ask(Method::GET, BUNDLE, Bytes::new())).await?;
        self.unpack(answer, dir, PIECE_WITHIN).await
    }

    /// Unpacks a record of which each piece arrives within `piece_within` after the previous one.
    async fn unpack(
        &self,
        mut answer: HttpResponse,
        dir: &Path,
        piece_within: Duration,
    ) -> Result<(), RequestError> {
        let (mut near, far) = tokio::io::duplex(PIPE);
        let (record, dir) = (SyncIoBridge::new(far), dir.to_owned());
        let (running, ended) = mpsc::channel();
        let mut unpacked = tokio::task::spawn_blocking(move || {
            let _running = running;
            unpack(record, &dir)
        });
        // Even after an interrupt, which drops this future, nothing must be written later. `received` is dropped first
        // and closes the pipe, so this takes no longer than unpacking the pipe's content.
        let _until_ended = UntilEnded(ended);
        let finished = |unpacked: Result<_, JoinError>| {
            unpacked.map_err(io::Error::other).flatten().map_err(RequestError::Unpack)
        };
        let received = async move {
            let next = async |answer: &mut HttpResponse| {
                answer.piece().await.transpose().map_err(|it| self.silent(it))
            };
            // Only the end of the answer shows that the supervisor could read the whole record.
            let mut surplus = 0;
            while let Some(piece) = self.in_time(piece_within, next(&mut answer)).await? {
                if near.write_all(&piece).await.is_err() {
                    // The archive is complete, or cannot be unpacked.
                    surplus += piece.len();
                }
                if surplus > MAX_SURPLUS {
                    let message = "data follows the end of the archive";
                    return Err(RequestError::Unpack(io::Error::new(io::ErrorKind::InvalidData, message)));
                }
            }
            Ok(())
        };
        tokio::pin!(received);
        tokio::select! {
            received = &mut received => {
                // Even after a failure, nothing must be written later.
                let unpacked = finished(unpacked.await);
                received.and(unpacked)
            }
            done = &mut unpacked => {
                finished(done)?;
                received.await
            }
        }
    }

    /// Returns the result of a request, or an error if it takes too long.
    async fn in_time<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        let late = |_| RequestError::Late { pod: self.pod.clone(), waited: limit };
        timeout(limit, request).await.map_err(late)?
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Forwarded, RequestError> {
        let forward = |source| RequestError::Forward { pod: self.pod.clone(), source };
        let mut port = self.pods.portforward(&self.pod, &[ports::SUPERVISOR_API]).await.map_err(forward)?;
        let stream = port
            .take_stream(ports::SUPERVISOR_API)
            .expect("the port was requested, and its stream is taken only here");
        let question = HttpRequest { host: "localhost", token: &self.token, method, path, body };
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

/// Returns whether a supervisor with this status has no record of a run that has ended: it does not even judge one.
pub(crate) fn has_no_record(status: &RunStatus) -> bool {
    !is_over(status) && status.phase != supervision::RunPhase::Judging
}

/// Unpacks the parts of a record into `dir`. Refuses any other file: the pod might run another program. Long names are
/// entries of their own, which `tar` would read into memory, whatever their size; the parts of a record have none.
fn unpack(record: impl Read, dir: &Path) -> io::Result<()> {
    for entry in tar::Archive::new(record).entries()?.raw(true) {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let is_below = path.components().all(|it| matches!(it, Component::Normal(_)));
        let is_part = is_below && Bundle::PARTS.iter().chain([&Bundle::LOGS]).any(|it| path.starts_with(it));
        let kind = entry.header().entry_type();
        if !is_part || !(kind.is_file() || kind.is_dir()) {
            let message = format!("the archive contains {path:?}, which is not part of a record");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        entry.unpack_in(dir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use kube::client::Body;
    use tar::EntryType;
    use tokio::io::{AsyncReadExt, DuplexStream};
    use tower::service_fn;

    use super::*;

    const WITHIN: Duration = Duration::from_millis(100);

    fn supervisor() -> Supervisor {
        let unused = service_fn(async |_: http::Request<Body>| {
            Err::<http::Response<Body>, _>(ErrorKind::Other.into())
        });
        let unused = tower::ServiceBuilder::new().map_err(|it: io::Error| it).service(unused);
        let pods = Api::namespaced(kube::Client::new(unused, "default"), "default");
        Supervisor::new(pods, "quickstart-supervisor-0".to_owned(), "00ff".to_owned(), WITHIN)
    }

    /// Returns a response whose body consists of these bytes, and the other end of its connection.
    async fn response(body: &[u8]) -> (HttpResponse, DuplexStream) {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let question = HttpRequest {
            host: "localhost",
            token: "00ff",
            method: Method::GET,
            path: BUNDLE,
            body: Bytes::new(),
        };
        let serve = async {
            far.read_exact(&mut [0; 16]).await.unwrap();
            far.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
            far.write_all(format!("{:x}\r\n", body.len()).as_bytes()).await.unwrap();
            far.write_all(&[body, b"\r\n"].concat()).await.unwrap();
            far
        };
        let (answer, far) = tokio::join!(question.ask(near), serve);
        (answer.unwrap(), far)
    }

    fn record() -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        tar.append_data(&mut header, "manifest.json", &b"{ }"[..]).unwrap();
        tar.into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_record_is_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let (answer, mut far) = response(&record()).await;
        far.write_all(b"0\r\n\r\n").await.unwrap();
        supervisor().unpack(answer, dir.path(), WITHIN).await.unwrap();
        assert_eq!(std::fs::read(dir.path().join("manifest.json")).unwrap(), b"{ }");
    }

    #[test]
    fn only_the_parts_of_a_record_are_unpacked() {
        let unpacked = |path: &str, kind| {
            let mut tar = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.set_size(0);
            header.set_mode(0o644);
            header.set_entry_type(kind);
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            tar.append(&header, io::empty()).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let result = unpack(&tar.into_inner().unwrap()[..], dir.path());
            (result, std::fs::read_dir(dir.path()).unwrap().count())
        };
        for (path, kind) in [
            ("manifest.json", EntryType::Regular),
            ("facts/", EntryType::Directory),
            ("facts/p0-1.facts", EntryType::Regular),
        ] {
            let (unpacked, files) = unpacked(path, kind);
            assert!(unpacked.is_ok() && files == 1, "{path}: {unpacked:?}");
        }
        for (path, kind) in [
            (".envrc", EntryType::Regular),
            ("/facts/p0-1.facts", EntryType::Regular),
            ("facts/../.envrc", EntryType::Regular),
            ("facts", EntryType::Symlink),
            ("facts/p0-1.facts", EntryType::Link),
            ("facts/p0-1.facts", EntryType::GNULongName),
            ("facts/p0-1.facts", EntryType::XHeader),
            ("\u{1b}[2J", EntryType::Regular),
        ] {
            let (told, files) = unpacked(path, kind);
            let told = told.expect_err(path).to_string();
            assert!(files == 0 && !told.contains(char::is_control), "{told:?}");
        }
    }

    #[tokio::test]
    async fn a_transfer_that_stalls_or_breaks_can_be_repeated() {
        // Up to here, the record looks complete.
        let part = &record()[..1024];
        let dir = tempfile::tempdir().unwrap();
        let (answer, _stalled) = response(part).await;
        let error = supervisor().unpack(answer, dir.path(), WITHIN).await.unwrap_err();
        assert!(matches!(error, RequestError::Late { .. }) && error.is_temporary(), "{error}");
        let (answer, broken) = response(part).await;
        drop(broken);
        let error = supervisor().unpack(answer, dir.path(), WITHIN).await.unwrap_err();
        assert!(matches!(error, RequestError::Supervisor { .. }) && error.is_temporary(), "{error}");
        // The supervisor fails after the end of the archive, which does not contain all facts.
        let (answer, broken) = response(&record()).await;
        drop(broken);
        let error = supervisor().unpack(answer, dir.path(), WITHIN).await.unwrap_err();
        assert!(matches!(error, RequestError::Supervisor { .. }) && error.is_temporary(), "{error}");
    }

    #[test]
    fn nothing_is_written_after_an_interrupt() {
        let mut tar = tar::Builder::new(Vec::new());
        for life in 0..500 {
            let mut header = tar::Header::new_gnu();
            header.set_size(0);
            header.set_mode(0o644);
            tar.append_data(&mut header, format!("facts/p0-{life}.facts"), io::empty()).unwrap();
        }
        let archive = tar.into_inner().unwrap();
        let part = &archive[..archive.len() - 1024];
        let dir = tempfile::tempdir().unwrap();
        let facts = dir.path().join("facts");
        let count = || std::fs::read_dir(&facts).map_or(0, Iterator::count);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let written = runtime.block_on(async {
            let (answer, _far) = response(part).await;
            let supervisor = supervisor();
            let interrupt = async {
                while count() == 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                _ = supervisor.unpack(answer, dir.path(), PIECE_WITHIN) => panic!("the record is incomplete"),
                () = interrupt => count(),
            }
        });
        // Waits for the threads.
        drop(runtime);
        assert_eq!(count(), written);
    }

    /// After a restart, a supervisor judges its record again, and refuses to send it until then.
    #[test]
    fn only_a_supervisor_that_judges_no_record_has_lost_it() {
        use supervision::RunPhase::{Completed, Failed, Gathering, Judging, Measuring, Paused, Running};
        let source = SupervisorError::Refused(StatusCode::CONFLICT, "the run has not ended".to_owned());
        let refusal = RequestError::Supervisor { pod: "quickstart-supervisor-0".to_owned(), source };
        assert!(refusal.is_too_early() && refusal.is_temporary());
        let is_lost = |phase| has_no_record(&RunStatus { phase, ..RunStatus::default() });
        assert!([Gathering, Measuring, Running, Paused].into_iter().all(is_lost));
        assert!(![Judging, Completed, Failed].into_iter().any(is_lost));
    }

    #[tokio::test]
    async fn a_record_is_not_followed_by_endless_data() {
        let dir = tempfile::tempdir().unwrap();
        let (answer, mut far) = response(&record()).await;
        let supervisor = supervisor();
        let endless = async {
            let piece = [&b"10000\r\n"[..], &[0; 0x10000], b"\r\n"].concat();
            while far.write_all(&piece).await.is_ok() {}
            panic!("the answer is read until unpacking it has failed");
        };
        let error = tokio::select! {
            unpacked = supervisor.unpack(answer, dir.path(), WITHIN) => unpacked.unwrap_err(),
            () = endless => unreachable!(),
        };
        assert!(matches!(error, RequestError::Unpack(_)) && !error.is_temporary(), "{error}");
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_written_is_not_requested_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let (answer, _far) = response(&record()).await;
        let error = supervisor().unpack(answer, &file, WITHIN).await.unwrap_err();
        assert!(matches!(error, RequestError::Unpack(_)) && !error.is_temporary(), "{error}");
    }
}
