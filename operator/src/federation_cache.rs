//! What the operator remembers about a federation between two reconciliations.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use faultline_api::supervision::Places;
use serde_json::value::RawValue;

use crate::limits::{EventAllowance, Pace, UnreportedEvents};

/// Minimum time between two equal warnings about a federation.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Cached state of a federation, which saves requests to the API server and the supervisor. All of it can be
/// reconstructed.
#[derive(Clone, Default)]
pub struct FederationCache {
    /// Namespace and name of the federation.
    pub name: String,
    /// The federation's key.
    pub key: Option<KnownKey>,
    /// The places that were last sent to the supervisor.
    pub pushed: Option<Places>,
    /// Limits how often the status of the federation is written.
    pub statuses: Pace,
    /// Limits how many events of the federation are reported.
    pub events: EventAllowance,
    /// Events that the API server has refused so far.
    pub unreported: UnreportedEvents,
    /// Time of the last query for the reason why pods are missing, and the reason if it is known.
    pub refused: Option<(Instant, Option<String>)>,
    /// Time at which the operator last looked for pods that have the names of missing ones, or first found that pods are
    /// missing, and what it found.
    pub misplaced: Option<(Instant, Vec<Misplaced>)>,
    /// Time at which the operator first found that a pod of a system cannot start; `None` if all can.
    pub stuck: Option<Instant>,
    /// The reason of the end of the run that was last counted.
    pub ended: Option<String>,
    /// Time at which the operator last checked for deleted objects, or first found that pods are missing.
    pub restored: Option<Instant>,
    /// Whether this operator has created or changed the federation's network policy.
    pub has_policy: bool,
    /// The text of the frozen spec. Values would need many times more memory.
    pub frozen: Option<Box<RawValue>>,
    /// The generation of the resource that was last compared with the frozen spec, and whether its spec pauses the
    /// federation, or the reason why it is refused.
    pub followed: Option<(i64, Result<bool, String>)>,
    /// Number of consecutive failures.
    pub failures: u32,
    /// Warnings that were logged, with the time of the last one.
    warned: BTreeMap<&'static str, Instant>,
    /// End of the last slow reconciliation.
    pub slow: Option<Instant>,
}

impl FederationCache {
    /// Returns whether to log a warning now, which is logged at most once per [`WARN_EVERY`].
    pub fn may_warn(&mut self, warning: &'static str, now: Instant) -> bool {
        let is_due =
            self.warned.get(warning).is_none_or(|it| now.saturating_duration_since(*it) >= WARN_EVERY);
        if is_due {
            self.warned.insert(warning, now);
        }
        is_due
    }
}

/// A federation's key, as it was last read.
#[derive(Clone, Debug)]
pub struct KnownKey {
    /// The key.
    pub key: String,
    /// Time at which the key was read; `None` if the key must be read again.
    pub at: Option<Instant>,
}

impl KnownKey {
    /// Requires the key to be read again before it is used.
    pub fn invalidate(&mut self) {
        self.at = None;
    }
}

/// A pod that has the name of a federation's pod, but is not known as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub uid: String,
    /// Where the pod comes from.
    pub origin: Origin,
    /// Whether the pod is being deleted.
    pub is_ending: bool,
}

/// Where a misplaced pod comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The federation: its StatefulSet created the pod, whose labels were changed later.
    Federation,
    /// Another owner, with its kind and name, if there is one.
    Elsewhere(Option<String>),
}

impl Misplaced {
    /// Returns whether the federation has created the pod.
    pub fn is_ours(&self) -> bool {
        self.origin == Origin::Federation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_logged_once_per_minute() {
        let (mut session, begun) = (FederationCache::default(), Instant::now());
        let mut may_warn = |warning, seconds| session.may_warn(warning, begun + Duration::from_secs(seconds));
        assert!(may_warn("a", 0) && may_warn("b", 0));
        assert!(!may_warn("a", 59) && may_warn("a", 60) && !may_warn("a", 61));
    }
}
