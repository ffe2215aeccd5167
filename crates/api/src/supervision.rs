//! What is said over HTTP between the supervisor of a federation and whoever provides the places of its processes (the
//! operator, or a test).
//!
//! | request | body | answer |
//! | --- | --- | --- |
//! | `PUT /v1/places` | [`Places`] | 200; 409 with a [`Refusal`] when a newer generation is known, 422 when a process is |
//! | `PUT /v1/spec` | [`Amended`] | 200 when the run does as it says, at once or once it is as far; 422 with a [`Refusal`] |
//! | `GET /v1/status?after=N` | | [`Status`], with the events after number `N` (all without it) |
//! | `POST /v1/requests/{id}/done` | | 204; 404 when there is no such request, also when it needs no answer any more |
//! | `GET /v1/bundle` | | the record as a tar stream; 409 while the run goes on |
//! | `GET /metrics`, `GET /healthz` | | for everyone |
//!
//! Everything below `/v1` wants `Authorization: Bearer` with [`token`] of the federation's key; 401 without it. Only the
//! supervisor and who asks it have that key; each process has a [`process_key`], which opens nothing here.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::resource::FederationSpec;

/// Path of the places.
pub const PLACES: &str = "/v1/places";
/// Path of what the federation is to be like now.
pub const SPEC: &str = "/v1/spec";
/// Path of the status.
pub const STATUS: &str = "/v1/status";
/// Path of the record.
pub const BUNDLE: &str = "/v1/bundle";

/// Hexadecimal digits of a federation's key.
pub const KEY_DIGITS: usize = 64;

/// Path at which a request is said to be done.
pub fn done(request: u64) -> String {
    format!("/v1/requests/{request}/done")
}

/// A key is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a key is {KEY_DIGITS} hexadecimal digits")]
pub struct KeyError;

/// What opens the supervisor's API, drawn from the federation's key without giving it away. `key` is the content of the
/// key's file: [`KEY_DIGITS`] hexadecimal digits; space around them does not matter.
pub fn token(key: &str) -> Result<String, KeyError> {
    derive("faultline 2026 token of the supervisor's API", &[], key)
}

/// The key of one process, drawn from the federation's key: the only one that its pod has. It gives away neither the
/// federation's key, nor the key of another process, nor the [`token`].
pub fn process_key(key: &str, process: &str) -> Result<String, KeyError> {
    derive("faultline 2026 key of a process", process.as_bytes(), key)
}

fn derive(purpose: &str, of: &[u8], key: &str) -> Result<String, KeyError> {
    let key = key.trim();
    if key.len() != KEY_DIGITS || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(KeyError);
    }
    let key = key.to_ascii_lowercase();
    let mut hasher = blake3::Hasher::new_derive_key(purpose);
    hasher.update(key.as_bytes()).update(of);
    Ok(hasher.finalize().to_string())
}

/// Where the processes of a federation are. Replaces what was said before: a process that is not named has no place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Places {
    /// Grows with every change. What comes with a smaller one than the last is refused.
    pub generation: u64,
    /// One for each process that has a place now.
    pub places: Vec<Place>,
}

/// Where one process is: an agent that starts it.
///
/// Two places are the same when `uid` and `address` are. Another place for a process means another life, which begins
/// once the one before is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The process by name, `paris-0`: node 0 of cluster `paris`.
    pub process: String,
    /// What tells it from its predecessors: the UID of the pod.
    pub uid: String,
    /// Where its agent listens, as `IP:PORT`.
    pub address: String,
}

/// What the federation is to be like now. Saying it again changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Amended {
    /// Of the resource; grows with every change of its spec.
    pub generation: i64,
    /// The whole spec. See [`crate::live`] for what of it may be another than before.
    pub spec: FederationSpec,
}

/// What a supervisor has made of the spec that it was told last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Amendment {
    /// Of the resource.
    pub generation: i64,
    /// Why it goes on as before; absent when it does as the spec says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// How a federation fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Which supervisor says this: another one after each start of the program. Its events are numbered anew.
    pub supervisor: String,
    /// How far the run is.
    pub phase: Phase,
    /// Of the places that are known; 0 before the first.
    pub generation: u64,
    /// The spec that it was told last, if it was told any beside that in its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amendment: Option<Amendment>,
    /// Seconds since the application began; absent before that, and the run's duration after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_seconds: Option<f64>,
    /// Processes that are wanted and that no agent hosts yet, by name.
    pub missing: Vec<String>,
    /// In the order of the federation.
    pub clusters: Vec<Cluster>,
    /// The plan of faults, in numbers.
    pub faults: Faults,
    /// Every ordered pair of clusters.
    pub links: Vec<Link>,
    /// What traffic control can do for them; absent where no place has a shaper, and delay lines in the nodes do all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shaping: Option<Shaping>,
    /// How many times a cluster rolled back.
    pub rollbacks: u32,
    /// Once the record is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why the verdict is not `pass`.
    pub reasons: Vec<String>,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// What only the API server can do, and has not said to be done.
    pub requests: Vec<Request>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Not every process has been started.
    #[default]
    Gathering,
    /// Everyone is there; the links are being measured.
    Measuring,
    /// The application runs.
    Running,
    /// It stands still, because the spec says so.
    Paused,
    /// The run is over, and its record is being judged.
    Judging,
    /// There is a verdict. The record can be fetched.
    Completed,
    /// The run could not be carried out; the reasons say why.
    Failed,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: ClusterState,
    /// Its processes.
    pub processes: u32,
    /// Those that are up, as far as is known.
    pub up: u32,
    /// Committed checkpoints.
    pub checkpoints: u32,
    /// How many of them a message forced.
    pub forced: u32,
    /// How many times it rolled back.
    pub rollbacks: u32,
    /// Steps done by all its ranks together, as last heard.
    pub steps_done: u64,
    /// Steps in all.
    pub steps: u64,
}

/// What a cluster does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClusterState {
    /// Its application has not begun.
    #[default]
    Starting,
    /// It computes.
    Running,
    /// A process of it is dead, and it has not gone back yet.
    Failed,
    /// Every rank has finished.
    Finished,
    /// No checkpoint of it can be restored.
    Unrecoverable,
}

/// The plan of faults in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Faults {
    /// All.
    pub planned: u32,
    /// Injected.
    pub done: u32,
    /// Due, but there was nothing left to hit.
    pub without_effect: u32,
    /// The largest time between the first and the last death of one fault, by the victims' own clocks, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_skew_micros: Option<u64>,
}

/// A link from one cluster to another, or within one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The sending cluster.
    pub from: String,
    /// The receiving cluster.
    pub to: String,
    /// Latency as asked for.
    pub requested_micros: u64,
    /// Latency as measured; absent before that, and where a cluster of one process has no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_micros: Option<u64>,
    /// Whether the one is the other, within what is tolerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_asked: Option<bool>,
}

/// What kernels can do for links, at the places that have a shaper. What they cannot do, the nodes there do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shaping {
    /// Places that have one.
    pub places: u32,
    /// Those where the kernel limits bandwidth.
    pub rates: u32,
    /// Those where it delays and loses packets, too.
    pub delays: u32,
    /// What some kernel lacks, with its words.
    pub lacks: Vec<String>,
}

/// As the record was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Everything that should hold was judged, and holds.
    Pass,
    /// Nothing wrong was seen, but something could not be judged.
    Unknown,
    /// Something that must not happen was seen.
    Fail,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// From 1, without gaps.
    pub number: u64,
    /// Seconds since the application began; absent before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_seconds: Option<f64>,
    /// What kind of thing, in one word: `Begun`, `FaultInjected`, `RolledBack`.
    pub reason: String,
    /// Whether it is a trouble.
    pub warning: bool,
    /// A plain sentence.
    pub text: String,
}

/// What the supervisor asks of whoever provides the places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Names it; never used again.
    pub id: u64,
    /// What is to be done.
    pub action: Action,
    /// Whose place, by name.
    pub process: String,
    /// Of that place. A place with another UID is not meant.
    pub uid: String,
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// The pod is to be deleted: its agent does not answer, and its process may still run. Done once it is gone.
    DeletePod,
    /// The pod's volume is to be deleted, and the pod with it. Done once both are gone.
    DeleteVolume,
}

/// Why something was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// A plain sentence.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_keys_apart_and_does_not_hold_them() {
        let key = "0123456789abcdef".repeat(4);
        let of_key = token(&key).unwrap();
        assert_eq!(of_key.len(), 64);
        assert_eq!(token(&format!("  {}\n", key.to_uppercase())), Ok(of_key.clone()));
        assert_ne!(token(&"0".repeat(64)).unwrap(), of_key);
        assert!(!of_key.contains(&key[..16]));
        assert_eq!(token(&key[1..]), Err(KeyError));
        assert_eq!(token(&key.replace('0', "x")), Err(KeyError));
        let of_process = process_key(&key, "paris-1").unwrap();
        assert_eq!(of_process.len(), KEY_DIGITS);
        assert_ne!(of_process, process_key(&key, "paris-11").unwrap());
        assert_ne!(of_process, of_key);
        assert_ne!(process_key(&key, "").unwrap(), of_key, "no process has the key that opens the API");
    }

    #[test]
    fn a_status_is_read_as_it_was_written_and_may_lack_what_is_not_known() {
        let status = Status {
            phase: Phase::Running,
            verdict: Some(Verdict::Pass),
            requests: vec![Request {
                id: 3,
                action: Action::DeletePod,
                process: "paris-0".into(),
                uid: "u".into(),
            }],
            ..Status::default()
        };
        let json = serde_json::to_string(&status).unwrap();
        assert!(json.contains(r#""action":"deletePod","process":"paris-0","uid":"u""#), "{json}");
        assert!(!json.contains("elapsedSeconds"), "{json}");
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
    }
}
