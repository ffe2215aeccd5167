//! The HTTP API between the supervisor of a federation and the client that provides the places of the processes (the
//! operator, or a test).
//!
//! | request | body | answer |
//! | --- | --- | --- |
//! | `PUT /v1/places` | [`Places`] | 200; a [`Refusal`] with 409 for an outdated generation, 422 for an invalid entry |
//! | `PUT /v1/spec` | [`Amended`] | 200 once the run has accepted it, even if it takes effect later; 422 with a [`Refusal`] |
//! | `GET /v1/status?after=N` | | [`RunStatus`], with the first events after number `N` (0 if `after` is omitted), at most [`EVENTS_PER_STATUS`] |
//! | `POST /v1/requests/{id}/done` | | 204; 404 if there is no such request, or if it no longer needs an answer |
//! | `GET /v1/bundle` | | the record as a tar stream; 409 until the record is complete |
//! | `POST /v1/facts` | [`HeldFacts`] | what was added to the record since: [`FactsHead`], a line break, and for each piece a [`PieceHead`] and its content, together at most [`FACTS_PER_ANSWER`] bytes; 404 until there is a record; 429 if there are too many such requests at the same time |
//! | `GET /metrics`, `GET /healthz` | | no authorization needed |
//!
//! All paths under `/v1` require `Authorization: Bearer` with the [`token`] of the federation's key, and answer 401
//! without it. The [`reader_token`] allows only `GET /v1/status`, `GET /v1/bundle` and `POST /v1/facts`; any other request with it is
//! answered with 403. If a request for one of these paths comes from another machine, its connection must be encrypted
//! with TLS 1.3; the handshake proves that the supervisor has the [`tls_key`]. Without encryption, the answer is 426,
//! even if the token is valid. Only the supervisor and its client have the federation's key. Programs that fetch the
//! record have the [`reader_token`], and each process has a [`process_key`], which gives no access to this API.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with_macros::skip_serializing_none;
use thiserror::Error;

use crate::resource::{FederationSpec, MAX_CLUSTERS};

/// Path of the places.
pub const PLACES: &str = "/v1/places";
/// Path of the current spec.
pub const SPEC: &str = "/v1/spec";
/// Path of the status.
pub const STATUS: &str = "/v1/status";
/// Path of the record.
pub const BUNDLE: &str = "/v1/bundle";
/// Path of the facts so far.
pub const FACTS: &str = "/v1/facts";

/// Maximum size of the pieces in an answer to a request for facts, in bytes.
pub const FACTS_PER_ANSWER: usize = 4 << 20;

/// Maximum number of events in a status. A client finds the others in the next ones.
pub const EVENTS_PER_STATUS: usize = 1000;
/// Maximum number of processes in a status that are missing, or that a request concerns.
pub const MAX_PROCESSES: usize = 10_000;
/// Maximum number of reasons in a status, of each kind.
const MAX_REASONS: usize = 1000;
/// Maximum number of links in a status.
const MAX_LINKS: usize = MAX_CLUSTERS * MAX_CLUSTERS;

/// Length of a federation's key in hexadecimal digits.
pub const KEY_DIGITS: usize = 64;

/// Returns the path for marking a request as done.
pub fn done(request: u64) -> String {
    format!("/v1/requests/{request}/done")
}

/// Error for a string that is not a valid federation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a key must have exactly {KEY_DIGITS} hexadecimal digits")]
pub struct InvalidKey;

/// Derives the token of the supervisor's API from the federation's key. The token does not reveal the key. `key` is the
/// content of the key's file: [`KEY_DIGITS`] hexadecimal digits. Whitespace around them is ignored.
///
/// # Errors
///
/// Fails if `key` is not a valid key.
pub fn token(key: &str) -> Result<String, InvalidKey> {
    derive("faultline 2026 token of the supervisor's API", &[], key)
}

/// Derives the token with which programs read the status and the record. It reveals neither the federation's key nor
/// the [`token`].
///
/// # Errors
///
/// Fails if `key` is not a valid key.
pub fn reader_token(key: &str) -> Result<String, InvalidKey> {
    derive("faultline 2026 token of readers of the supervisor's API", &[], key)
}

/// Derives the key of one process from the federation's key. The pod of the process contains no other key. The key of a
/// process reveals neither the federation's key, nor the key of another process, nor the [`token`].
///
/// # Errors
///
/// Fails if `key` is not a valid key.
pub fn process_key(key: &str, process: &str) -> Result<String, InvalidKey> {
    derive("faultline 2026 key of a process", process.as_bytes(), key)
}

/// Derives the private key that authenticates the supervisor on encrypted connections to its API. It reveals neither
/// the federation's key nor the [`token`].
///
/// # Errors
///
/// Fails if `key` is not a valid key.
pub fn tls_key(key: &str) -> Result<[u8; 32], InvalidKey> {
    digest("faultline 2026 private key of the supervisor", &[], key).map(Into::into)
}

fn derive(purpose: &str, of: &[u8], key: &str) -> Result<String, InvalidKey> {
    digest(purpose, of, key).map(|it| it.to_string())
}

fn digest(purpose: &str, of: &[u8], key: &str) -> Result<blake3::Hash, InvalidKey> {
    let key = key.trim();
    if key.len() != KEY_DIGITS || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(InvalidKey);
    }
    let key = key.to_ascii_lowercase();
    let mut hasher = blake3::Hasher::new_derive_key(purpose);
    hasher.update(key.as_bytes()).update(of);
    Ok(hasher.finalize())
}

/// Returns whether an API connection to or from this address must be encrypted. Connections within a machine need no
/// encryption. They include connections through a forwarded port of a pod, which arrive from the pod itself.
pub fn needs_encryption(address: IpAddr) -> bool {
    !address.to_canonical().is_loopback()
}

/// Places of the processes of a federation. Replaces all earlier places: a process that is not listed has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Places {
    /// Increases with every change. A generation smaller than the last one is rejected.
    pub generation: u64,
    /// One entry for each process that has a place.
    pub places: Vec<Place>,
}

/// Place of one process: the agent that starts it.
///
/// Two places are the same if their `uid` and `address` are equal. A process that moves to another place begins a new
/// life, once the previous one is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Name of the process: `paris-0` is node 0 of cluster `paris`.
    pub process: String,
    /// Distinguishes the place from its predecessors: the UID of the pod.
    pub uid: String,
    /// Address of the agent, as `IP:PORT`.
    pub address: String,
}

/// The desired spec of the federation. Sending it again changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Amended {
    /// Generation of the resource. Increases with every change to its spec.
    pub generation: i64,
    /// The whole spec. [`crate::live`] defines which fields may change.
    pub spec: FederationSpec,
}

/// The supervisor's answer to the last spec.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Amendment {
    /// Generation of the resource.
    pub generation: i64,
    /// The reason why the spec was rejected; absent if it was accepted.
    pub refused: Option<String>,
}

/// What a client has received of the record of a run in progress.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldFacts {
    /// Digest of the description that it has; absent if it has none.
    pub description: Option<String>,
    /// For each file of facts: the process, the life, and the number of bytes.
    pub facts: Vec<(u32, u32, u64)>,
}

/// The beginning of an answer to a request for facts.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FactsHead {
    /// Digest of the description.
    pub digest: String,
    /// The manifest and the federation file; absent if the client has them.
    pub description: Option<[String; 2]>,
}

/// The beginning of a piece of a file of facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceHead {
    /// The process.
    pub process: u32,
    /// The life.
    pub life: u32,
    /// The place of the piece in the file, in bytes.
    pub offset: u64,
    /// The length of the piece, in bytes.
    pub length: u32,
}

impl PieceHead {
    /// The length of its bytes.
    pub const LENGTH: usize = 20;

    /// Returns its bytes.
    pub fn bytes(&self) -> [u8; PieceHead::LENGTH] {
        let mut bytes = [0; PieceHead::LENGTH];
        bytes[..4].copy_from_slice(&self.process.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.life.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_be_bytes());
        bytes[16..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Splits the first piece off an answer: its head, its content, and the rest. `None` if it is incomplete.
    pub fn split(bytes: &[u8]) -> Option<(PieceHead, &[u8], &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<{ PieceHead::LENGTH }>()?;
        let number = |at: usize| head[at..].first_chunk().map(|it| u32::from_be_bytes(*it));
        let offset = u64::from_be_bytes(*head[8..].first_chunk()?);
        let head = PieceHead { process: number(0)?, life: number(4)?, offset, length: number(16)? };
        let (content, rest) = rest.split_at_checked(head.length as usize)?;
        Some((head, content, rest))
    }
}

/// Status of a federation.
///
/// Deserialising skips the elements of a list that are beyond its limit. Otherwise, a list of empty elements from a
/// foreign program would occupy many times the memory of its text.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// Identifier of the supervisor. Whenever a supervisor starts a run, the identifier changes and the numbering of
    /// events restarts. A supervisor that resumes the run from a journal keeps both.
    pub supervisor: String,
    /// Phase of the run.
    pub phase: RunPhase,
    /// Generation of the known places; 0 if none are known yet.
    pub generation: u64,
    /// Answer to the last spec; absent if no spec has been sent since the supervisor started.
    pub amendment: Option<Amendment>,
    /// Seconds since the application started; absent before that. After the end, the duration of the run.
    pub elapsed_seconds: Option<f64>,
    /// Names of the processes whose agents are not ready.
    #[serde(deserialize_with = "first::<MAX_PROCESSES, _, _>")]
    pub missing: Vec<String>,
    /// One entry per cluster, in the order of the federation.
    #[serde(deserialize_with = "first::<MAX_CLUSTERS, _, _>")]
    pub clusters: Vec<ClusterReport>,
    /// Counts of faults.
    pub faults: Faults,
    /// One entry for each link within a cluster of several processes, and for each direction of each link between
    /// clusters.
    #[serde(deserialize_with = "first::<MAX_LINKS, _, _>")]
    pub links: Vec<LinkReport>,
    /// Features that traffic control supports; absent if no place has a shaper, in which case delay lines in the nodes
    /// emulate all links.
    pub shaping: Option<Shaping>,
    /// Total number of rollbacks in all clusters.
    pub rollbacks: u32,
    /// Verdict, once the record has been judged.
    pub verdict: Option<RunVerdict>,
    /// Whether the run exceeded its deadline.
    #[serde(default)]
    pub exceeded_deadline: bool,
    /// Reasons why the verdict is not `pass`.
    #[serde(deserialize_with = "first::<MAX_REASONS, _, _>")]
    pub reasons: Vec<String>,
    /// Events in order, beginning with the oldest one that was requested.
    #[serde(deserialize_with = "first::<EVENTS_PER_STATUS, _, _>")]
    pub events: Vec<RunEvent>,
    /// Number of the newest event, which `events` may not contain; 0 if there is none, or if the supervisor always sends
    /// all events.
    #[serde(default)]
    pub newest_event: u64,
    /// Pending requests, which only the client can carry out.
    #[serde(deserialize_with = "first::<MAX_PROCESSES, _, _>")]
    pub requests: Vec<Request>,
}

/// Phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunPhase {
    /// The agents of some processes are not ready yet.
    #[default]
    Gathering,
    /// All agents are ready, and the links are being measured.
    Measuring,
    /// The application is running.
    Running,
    /// The run is paused by the spec.
    Paused,
    /// The run has ended, and its record is being judged.
    Judging,
    /// The verdict is known, and the record can be fetched.
    Completed,
    /// The run could not be carried out. The reasons say why.
    Failed,
}

/// Status of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// Name of the cluster.
    pub name: String,
    /// Current state of the cluster.
    pub state: ClusterState,
    /// Number of processes.
    pub processes: u32,
    /// Number of processes that are up, as far as is known.
    pub up: u32,
    /// Number of committed checkpoints.
    pub checkpoints: u32,
    /// Number of forced checkpoints.
    pub forced: u32,
    /// Number of rollbacks.
    pub rollbacks: u32,
    /// Steps completed by all ranks together, as last reported.
    pub steps_done: u64,
    /// Total number of steps.
    pub steps: u64,
}

/// State of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClusterState {
    /// The application has not started.
    #[default]
    Starting,
    /// The cluster has not joined. Its processes wait.
    Awaited,
    /// The application is running.
    Running,
    /// A process has failed, and the cluster has not rolled back yet.
    Failed,
    /// All ranks have finished.
    Finished,
    /// No checkpoint of the cluster can be restored.
    Unrecoverable,
    /// The cluster has left. Its processes have ended.
    Left,
}

/// Counts of faults.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Faults {
    /// Planned faults.
    pub planned: u32,
    /// Injected faults.
    pub done: u32,
    /// Faults that were due, but had no effect.
    pub without_effect: u32,
    /// The longest time from the first to the last effect of one fault, by the clocks of its targets, in microseconds.
    pub worst_skew_micros: Option<u64>,
    /// The longest time between the due time of a fault and its last effect, in microseconds.
    pub worst_latency_micros: Option<u64>,
}

/// A link from one cluster to another, or within a cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkReport {
    /// The sending cluster.
    pub from: String,
    /// The receiving cluster.
    pub to: String,
    /// Requested latency, in microseconds.
    pub requested_micros: u64,
    /// Measured latency, in microseconds; absent before the measurement.
    pub measured_micros: Option<u64>,
    /// Whether the measured latency equals the requested one, within the tolerance; absent before the measurement, and
    /// for a link of a user's own system of which nothing is requested.
    pub as_requested: Option<bool>,
}

/// Features of traffic control that the kernels support at the places with a shaper. Delay lines in the nodes
/// emulate the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shaping {
    /// Number of places with a shaper.
    pub places: u32,
    /// Number of places where the kernel limits bandwidth.
    pub rates: u32,
    /// Number of places where the kernel also delays and drops packets.
    pub delays: u32,
    /// Features that are not available at some place, each with the reason.
    #[serde(deserialize_with = "first::<MAX_REASONS, _, _>")]
    pub lacks: Vec<String>,
}

/// Verdict of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunVerdict {
    /// All required properties were judged, and hold.
    Pass,
    /// No property is violated, but some could not be judged.
    Unknown,
    /// A property is violated.
    Fail,
}

/// An event of the run.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    /// Number of the event. Events are numbered from 1, without gaps.
    pub number: u64,
    /// Seconds since the application started; absent before that.
    pub at_seconds: Option<f64>,
    /// Kind of the event, in one word, such as `Started`, `FaultInjected` or `RolledBack`.
    pub reason: String,
    /// Whether the event is a warning.
    pub warning: bool,
    /// Description, in one sentence.
    pub text: String,
    /// Microseconds since the event occurred, when the status was sent. Clocks of different machines need not agree.
    /// Absent in statuses of older supervisors.
    pub age_micros: Option<u64>,
}

/// A request from the supervisor to its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Identifier, never reused.
    pub id: u64,
    /// Requested action.
    pub action: RequestedAction,
    /// Name of the process at the place that the request concerns.
    pub process: String,
    /// UID of the place that the request concerns. A place with another UID must not be touched.
    pub uid: String,
}

/// Action that the supervisor can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestedAction {
    /// Delete the pod: its agent does not respond, and its process may still be running. Done once the pod is gone.
    DeletePod,
    /// Delete the pod's volume, and the pod with it. Done once both are gone.
    DeleteVolume,
}

/// Deserialises the first `N` elements of a list, and skips the others.
fn first<'de, const N: usize, T, D>(list: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct First<const N: usize, T>(PhantomData<T>);

    impl<'de, const N: usize, T: Deserialize<'de>> Visitor<'de> for First<N, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while kept.len() < N {
                match elements.next_element()? {
                    Some(it) => kept.push(it),
                    None => return Ok(kept),
                }
            }
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            Ok(kept)
        }
    }

    list.deserialize_seq(First::<N, T>(PhantomData))
}

/// The reason why a request was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Description, in one sentence.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_depends_on_the_key_and_does_not_reveal_it() {
        let key = "0123456789abcdef".repeat(4);
        let of_key = token(&key).unwrap();
        assert_eq!(of_key.len(), 64);
        assert_eq!(token(&format!("  {}\n", key.to_uppercase())), Ok(of_key.clone()));
        assert_ne!(token(&"0".repeat(64)).unwrap(), of_key);
        assert!(!of_key.contains(&key[..16]));
        assert_eq!(token(&key[1..]), Err(InvalidKey));
        assert_eq!(token(&key.replace('0', "x")), Err(InvalidKey));
        let of_process = process_key(&key, "paris-1").unwrap();
        assert_eq!(of_process.len(), KEY_DIGITS);
        assert_ne!(of_process, process_key(&key, "paris-11").unwrap());
        assert_ne!(of_process, of_key);
        assert_ne!(process_key(&key, "").unwrap(), of_key, "no process has the key that opens the API");
        let of_tls = tls_key(&key).unwrap();
        assert_ne!(of_tls, tls_key(&"0".repeat(64)).unwrap());
        let of_tls: String = of_tls.iter().map(|it| format!("{it:02x}")).collect();
        assert!(of_tls != of_key && of_tls != process_key(&key, "").unwrap());
        let of_reader = reader_token(&key).unwrap();
        assert!(![of_key, of_tls, of_process, process_key(&key, "").unwrap()].contains(&of_reader));
        assert_ne!(of_reader, reader_token(&"0".repeat(64)).unwrap());
        assert_eq!(reader_token(&key[1..]), Err(InvalidKey));
    }

    #[test]
    fn connections_that_leave_the_machine_are_encrypted() {
        for (address, needs) in [
            ("127.0.0.1", false),
            ("127.8.7.6", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("10.244.1.7", true),
            ("fd00::7", true),
            ("::ffff:10.0.0.1", true),
        ] {
            assert_eq!(needs_encryption(address.parse().unwrap()), needs, "{address}");
        }
    }

    #[test]
    fn a_status_survives_serialisation_and_omits_unknown_values() {
        let status = RunStatus {
            phase: RunPhase::Running,
            verdict: Some(RunVerdict::Pass),
            requests: vec![Request {
                id: 3,
                action: RequestedAction::DeletePod,
                process: "paris-0".into(),
                uid: "u".into(),
            }],
            ..RunStatus::default()
        };
        let json = serde_json::to_string(&status).unwrap();
        assert!(json.contains(r#""action":"deletePod","process":"paris-0","uid":"u""#), "{json}");
        assert!(!json.contains("elapsedSeconds"), "{json}");
        assert_eq!(serde_json::from_str::<RunStatus>(&json).unwrap(), status);
    }

    #[test]
    fn a_list_in_a_status_keeps_its_first_elements_up_to_a_limit() {
        let event = |number| RunEvent {
            number,
            at_seconds: None,
            reason: String::new(),
            warning: false,
            text: String::new(),
            age_micros: None,
        };
        let status = RunStatus {
            missing: vec![String::new(); 2 * MAX_PROCESSES],
            reasons: vec!["reason".into(); MAX_REASONS],
            events: (1..=EVENTS_PER_STATUS as u64 + 1).map(event).collect(),
            ..RunStatus::default()
        };
        let json = serde_json::to_string(&status).unwrap();
        let read: RunStatus = serde_json::from_str(&json).unwrap();
        assert_eq!((read.missing.len(), read.reasons.len()), (MAX_PROCESSES, MAX_REASONS));
        assert_eq!(read.events, status.events[..EVENTS_PER_STATUS]);
    }

    #[test]
    fn a_piece_is_split_off_an_answer() {
        let head = PieceHead { process: u32::MAX, life: 2, offset: 1 << 40, length: 3 };
        let answer = [&head.bytes()[..], b"abcd"].concat();
        assert_eq!(PieceHead::split(&answer), Some((head, &b"abc"[..], &b"d"[..])));
        assert_eq!(PieceHead::split(&answer[..22]), None);
        assert_eq!(PieceHead::split(b""), None);
    }

    #[test]
    fn a_status_may_omit_the_number_of_the_newest_event() {
        let mut json = serde_json::to_value(RunStatus::default()).unwrap();
        json.as_object_mut().unwrap().remove("newestEvent").expect("newer supervisors send it");
        assert_eq!(serde_json::from_value::<RunStatus>(json).unwrap(), RunStatus::default());
    }
}
