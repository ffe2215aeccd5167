//! Derives the status of a federation, and the new events to report, without side effects. Each condition, or pair of
//! conditions, has its own file.

mod accepted;
mod events;
mod linked;
mod pods;
mod run;
mod supervised;

use faultline_api::resource::FederationSpec;
use faultline_api::supervision::RunVerdict;
use faultline_client::status::{Condition, FederationStatus, MAX_MESSAGE, Phase, condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;

use super::apply::Applied;
use super::dereference::{Observed, Supervision};
use super::follow::Followed;
use super::freeze::Frozen;
use super::objects::Obstacle;
use crate::cached_federation::CachedFederation;
use crate::shortened::shortened;
use accepted::CHANGE_REFUSED;
pub(super) use pods::has_stuck_pod;

/// Maximum length of an event's note, in bytes.
const MAX_NOTE: usize = 1024;

/// The situation of a federation.
#[derive(Clone, Debug)]
pub enum Situation {
    /// The federation can be run.
    Accepted(Box<Progress>),
    /// The federation cannot be run, for this reason.
    Rejected(Obstacle),
    /// The reconciliation failed.
    Failed {
        /// Reason in one word.
        reason: &'static str,
        /// Reason in a sentence.
        message: String,
    },
    /// The federation is being deleted.
    Deleting {
        /// Objects that still exist.
        left: Vec<String>,
    },
}

/// The outcomes of all steps.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The frozen federation.
    pub frozen: Frozen,
    /// The state before the changes.
    pub observed: Observed,
    /// The outcome of applying the desired state.
    pub applied: Applied,
    /// What became of changes to the resource.
    pub followed: Followed,
}

/// Message for a run that is ready but paused by the user.
const READY_BUT_PAUSED: &str = "the application starts once `spec.pause` is false";

/// An event to be reported once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Unique name of the event, independent of the operator that reports it.
    pub name: String,
    /// Reason in one word.
    pub reason: String,
    /// Description in a sentence.
    pub note: String,
    /// Whether the event is a warning.
    pub warning: bool,
    /// Time at which the event occurred; `None` if it was found only now.
    pub at: Option<Timestamp>,
}

/// Returns the status, and the events to report.
pub fn assess(
    federation: &CachedFederation,
    situation: &Situation,
    now: Time,
) -> (FederationStatus, Vec<NewEvent>) {
    let status = federation.status().ok().flatten().cloned().unwrap_or_default();
    let mut report = Report { federation, status, new_events: Vec::new(), now };
    if !matches!(situation, Situation::Failed { .. }) {
        report.reconciled();
    }
    match situation {
        Situation::Accepted(progress) => report.accepted(progress),
        Situation::Rejected(refusal) => report.rejected(refusal),
        Situation::Failed { reason, message } => report.failed(reason, message),
        Situation::Deleting { left } => report.deleting(left),
    }
    (report.status, report.new_events)
}

struct Report<'a> {
    /// The federation with its last status.
    federation: &'a CachedFederation,
    /// The new status.
    status: FederationStatus,
    new_events: Vec<NewEvent>,
    now: Time,
}

/// Returns the name of a federation's protocol. A system has none.
fn protocol(spec: &FederationSpec) -> String {
    spec.application.system().map_or(spec.protocol.name(), |_| "system").to_owned()
}

impl Report<'_> {
    /// Reports a failed reconciliation. The rest of the status stays as it was after the last successful
    /// reconciliation.
    fn failed(&mut self, reason: &str, message: &str) {
        self.set_message(message);
        self.warn(condition::RECONCILED, "False", reason, message);
    }

    /// Reports that the status describes the current spec, and that an earlier problem is resolved. If there was none,
    /// adds no condition.
    fn reconciled(&mut self) {
        self.status.observed_generation = self.federation.meta().generation;
        if self.status.condition(condition::RECONCILED).is_some() {
            self.condition(
                condition::RECONCILED,
                "True",
                "Reconciled",
                "the operator can reconcile the federation",
            );
        }
    }

    fn rejected(&mut self, Obstacle { reason, message }: &Obstacle) {
        self.status.phase = Phase::Rejected;
        self.status.protocol = self.federation.spec().ok().map(|it| protocol(&it));
        self.set_message(message);
        if self.condition(condition::ACCEPTED, "False", reason, message) {
            self.add_event(condition::ACCEPTED, "Rejected", message, true);
        }
    }

    fn deleting(&mut self, left: &[String]) {
        self.status.phase = Phase::Deleting;
        for kind in [condition::PODS_READY, condition::SUPERVISED, condition::RUNNING] {
            if self.status.condition(kind).is_some_and(|it| it.status != "False") {
                self.condition(kind, "False", "Deleting", "the federation is being deleted");
            }
        }
        self.set_message(&match left {
            [] => "waiting for the deletion of all objects".to_owned(),
            [only] => format!("waiting for the deletion of {only}"),
            [first, ..] => format!("waiting for the deletion of {} objects, including {first}", left.len()),
        });
    }

    fn accepted(&mut self, Progress { frozen, observed, applied, followed }: &Progress) {
        self.status.protocol = Some(protocol(&frozen.federation.spec));
        self.repaired(applied);
        // A change to a completed federation has no effect.
        if self.status.phase == Phase::Completed {
            if observed.has_lost_kept_record() {
                self.record_lost();
            }
            return self.over(applied);
        }
        self.validity(observed, applied, followed);
        if observed.has_lost_record() {
            self.status.verdict = Some(word(&RunVerdict::Unknown));
            self.record_lost();
            return self.over(applied);
        }
        self.pods(frozen, observed, applied);
        self.supervision(frozen, observed, followed.is_to_pause);
        if self.status.phase == Phase::Completed {
            self.record_kept(frozen, observed);
            self.over(applied);
        } else if let Some(why) = pods::why_never_ready(frozen, observed) {
            self.not_started(&why);
            return self.over(applied);
        }
        self.headline(observed, applied, followed.is_to_pause);
    }

    /// Sets the status message to what matters most to the user, such as an obstacle or a refused change.
    fn headline(&mut self, observed: &Observed, applied: &Applied, is_to_pause: bool) {
        if let Some(obstacle) = &applied.obstacle {
            self.set_message(&obstacle.message);
            return;
        }
        let refused = self.status.condition(condition::ACCEPTED).filter(|it| it.reason == CHANGE_REFUSED);
        if let Some(why) = refused.filter(|_| self.status.phase < Phase::Completed) {
            let why = why.message.clone();
            self.set_message(&why);
            return;
        }
        if self.status.phase == Phase::Linking && is_to_pause {
            self.set_message(READY_BUT_PAUSED);
        }
        let lacks_pods = self.status.condition(condition::PODS_READY);
        let lacks_pods = lacks_pods.is_some_and(|it| it.status == "False" && it.reason != "Starting");
        let is_starting = self.status.phase < Phase::Linking;
        let is_unsupervised = !matches!(observed.supervision, Supervision::Known(_));
        if is_starting || is_unsupervised || lacks_pods && self.status.phase < Phase::Completed {
            let kind = match observed.supervision {
                Supervision::Silent(_) => condition::SUPERVISED,
                _ if self.status.holds(condition::PODS_READY) => condition::RUNNING,
                _ => condition::PODS_READY,
            };
            if let Some(it) = self.status.condition(kind) {
                let message = it.message.clone();
                self.set_message(&message);
            }
        }
    }

    fn set_message(&mut self, message: &str) {
        self.status.message = Some(shortened(message, MAX_MESSAGE));
    }

    /// Sets a condition. Returns whether its status or reason has changed.
    fn condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) -> bool {
        let new = Condition {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message: shortened(message, MAX_MESSAGE),
            last_transition_time: self.now.clone(),
            observed_generation: self.federation.meta().generation,
        };
        let Some(old) = self.status.conditions.iter_mut().find(|it| it.kind == kind) else {
            self.status.conditions.push(new);
            return true;
        };
        let changed = (&old.status, &old.reason) != (&new.status, &new.reason);
        let since =
            if old.status == new.status { old.last_transition_time.clone() } else { self.now.clone() };
        *old = Condition { last_transition_time: since, ..new };
        changed
    }

    /// Adds an event about a condition. The same change always gets the same name, so that it is not reported again
    /// if writing the status failed.
    fn add_event(&mut self, kind: &str, reason: &str, note: &str, warning: bool) {
        let before = self.federation.status().ok().flatten().and_then(|it| it.condition(kind));
        let since = before.map(|it| format!("{} {} {}", it.status, it.reason, it.last_transition_time.0));
        self.new_events.push(NewEvent {
            name: self.event_name(&format!("{kind} {reason} after {since:?}")),
            reason: reason.into(),
            note: shortened(note, MAX_NOTE),
            warning,
            at: None,
        });
    }

    /// Sets a condition, and adds a warning if its status or reason has changed.
    fn warn(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        if self.condition(kind, status, reason, message) {
            self.add_event(kind, reason, message, true);
        }
    }

    /// Adds a warning that is not about a condition. `what` identifies it.
    fn add_warning(&mut self, what: &str, reason: &str, note: &str) {
        self.new_events.push(NewEvent {
            name: self.event_name(what),
            reason: reason.into(),
            note: shortened(note, MAX_NOTE),
            warning: true,
            at: None,
        });
    }

    fn event_name(&self, what: &str) -> String {
        let uid = self.federation.meta().uid.as_deref().unwrap_or_default();
        blake3::hash(format!("{uid} {what}").as_bytes()).to_hex()[..16].to_owned()
    }
}

/// Returns the value as it appears in the API.
fn word(it: &impl serde::Serialize) -> String {
    match serde_json::to_value(it) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("a word, not {other:?}"),
    }
}

#[cfg(test)]
mod tests;
