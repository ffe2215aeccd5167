//! The supervisor's events, which become events of the federation.

use faultline_api::supervision::{RunEvent, RunPhase, RunStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Resource;

use super::{MAX_NOTE, NewEvent, Report};
use crate::reconcile::dereference::is_known;
use crate::shortened::shortened;

/// Number of events, from the start of each run, that become Kubernetes events. If a run has more events, the last
/// [`LAST_EVENTS`] are reported as well.
pub(super) const MAX_EVENTS: u64 = 300;
/// Number of events reported at the end of each run.
pub(super) const LAST_EVENTS: u64 = 3;
/// Maximum number of a supervisor's events that are reported in one reconciliation. The rest is reported in the next.
pub(super) const EVENTS_AT_ONCE: usize = 20;
/// Maximum length of an event's reason, in bytes.
const MAX_REASON: usize = 128;

impl Report<'_> {
    /// Reports the supervisor's events that have not been reported yet, up to [`EVENTS_AT_ONCE`]. Skips those beyond
    /// `allowance`. Returns whether more events remain to be reported, or to be requested from the supervisor.
    pub(super) fn report_events(&mut self, said: &RunStatus, allowance: usize) -> bool {
        let same = is_known(self.federation.status().ok().flatten(), &said.supervisor);
        if !same {
            self.status.last_event = None;
        }
        let told = self.status.last_event.unwrap_or(0).unsigned_abs();
        self.status.supervisor = Some(said.supervisor.clone());
        let Some(last) = said.events.last() else { return false };
        let newest = said.newest_event.max(last.number);
        let over = matches!(said.phase, RunPhase::Completed | RunPhase::Failed);
        let is_last = |number: u64| over && number.saturating_add(LAST_EVENTS) > newest;
        let untold = |it: &&RunEvent| it.number > told && (it.number <= MAX_EVENTS || is_last(it.number));
        let untold: Vec<&RunEvent> = said.events.iter().filter(untold).take(allowance).collect();
        let seen = if untold.len() > EVENTS_AT_ONCE {
            untold[EVENTS_AT_ONCE - 1].number
        } else if last.number < MAX_EVENTS {
            last.number
        } else {
            // The events up to the last ones are not reported.
            last.number.max(newest.saturating_sub(LAST_EVENTS))
        };
        for event in untold.into_iter().take(EVENTS_AT_ONCE) {
            let at = event.at_seconds.map(|it| format!("At {it:.2} s: ")).unwrap_or_default();
            self.new_events.push(NewEvent {
                name: self.event_name(&format!("event {} of {}", event.number, said.supervisor)),
                reason: shortened(&event.reason, MAX_REASON),
                note: shortened(&format!("{at}{}", event.text), MAX_NOTE),
                warning: event.warning,
                at: self.occurred(event),
            });
        }
        self.status.last_event = Some(i64::try_from(seen).unwrap_or(i64::MAX));
        self.set_message(&last.text);
        seen < newest
    }

    /// Returns the time at which a supervisor's event occurred, if the supervisor says so.
    fn occurred(&self, event: &RunEvent) -> Option<Timestamp> {
        let age = SignedDuration::from_micros(i64::try_from(event.age_micros?).ok()?);
        let at = self.now.0.checked_sub(age).ok()?;
        let created = self.federation.meta().creation_timestamp.as_ref().map(|it| it.0);
        Some(created.map_or(at, |it| at.max(it)))
    }
}
