//! Writes the status of a federation, at most once per second on average, and reports its events to Kubernetes.
//!
//! A write costs the API server far more than a reconciliation costs the operator. Changes that no user waits
//! for are therefore written less often.
//!
//! Events are less important than the status: an event that cannot be created is logged, and created later if possible.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use faultline_api::Federation;
use faultline_api::resource::{FederationStatus, condition};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use super::assess::{self, BasicSituation, NewEvent, Situation};
use super::dereference::{Observed, RECORD_LOST};
use crate::cached_federation::CachedFederation;
use crate::controller::Context;
use crate::naming;

/// Minimum mean time between two writes of one federation's status.
const PAUSE: Duration = Duration::from_secs(1);
/// Minimum time from a write to a later write that only updates the progress.
const PROGRESS: Duration = Duration::from_secs(2);
/// Time added to [`PROGRESS`] for each federation. Each write takes the API server tens of milliseconds of processor
/// time, and other requests need time as well.
const SHARE: Duration = Duration::from_millis(50);
/// How much earlier a write may happen if a user may be waiting for it: the few steps of a startup follow in
/// quick succession.
const CREDIT: Duration = Duration::from_secs(3);
/// Maximum number of events of a federation that are reported in each [`PERIOD`]. A run has at most a third of this
/// number, unless a foreign program runs in the supervisor's pod.
const MAX_EVENTS_PER_PERIOD: usize = 1000;
/// See [`MAX_EVENTS_PER_PERIOD`]. By default, the API server keeps events for this time.
const PERIOD: Duration = Duration::from_secs(3600);
/// Time limit of creating events, so that enough time remains for the status.
const EVENTS_WITHIN: Duration = Duration::from_secs(3);
/// Time after a failure to create an event until the next attempt.
const EVENTS_AGAIN: Duration = Duration::from_secs(30);
/// Maximum number of events of a federation that are kept for the next attempt. If there are more, the oldest are
/// dropped.
const MAX_UNREPORTED: usize = 50;

/// Writes the status, unless the resource already contains it, and reports events. Returns how long to wait if it is too
/// early to write, or if events could not be created; `None` once nothing is left to do.
///
/// # Errors
///
/// Fails if the API server rejects the status.
pub async fn update_status(
    observed: &Observed,
    situation: &Situation,
    context: &Context,
) -> Result<Option<Duration>, kube::Error> {
    let federation = &*observed.federation;
    let now = Timestamp::now();
    let assessed = assess::assess(observed, situation, Time(now));
    publish(federation, federation.status.as_ref(), assessed, now, context).await
}

/// Does the same for a federation whose spec cannot be read. `before` is its last status.
///
/// # Errors
///
/// Fails if the API server rejects the status.
pub async fn update_unreadable(
    federation: &CachedFederation,
    before: Option<&FederationStatus>,
    situation: &BasicSituation,
    context: &Context,
) -> Result<Option<Duration>, kube::Error> {
    let now = Timestamp::now();
    let assessed = assess::assess_unreadable(federation.meta(), before, situation, Time(now));
    publish(federation, before, assessed, now, context).await
}

async fn publish<F: Resource<DynamicType = ()>>(
    federation: &F,
    before: Option<&FederationStatus>,
    (status, new_events): (FederationStatus, Vec<NewEvent>),
    now: Timestamp,
    context: &Context,
) -> Result<Option<Duration>, kube::Error> {
    let uid = federation.uid().unwrap_or_default();
    context.metrics.show(federation, &status);
    let again = report_again(federation, context).await;
    if new_events.is_empty() && before == Some(&status) {
        return Ok(again);
    }
    let is_awaited = !new_events.is_empty() || is_awaited(before, &status);
    let progress = PROGRESS + SHARE * context.federations();
    let wait = context.session(&uid, |it| it.statuses.wait(is_awaited, progress, Instant::now()));
    if wait > Duration::ZERO {
        return Ok(Some(again.map_or(wait, |it| it.min(wait))));
    }
    // Readers order events by their times.
    let events = new_events.iter().zip(0..);
    let mut events: VecDeque<Event> = events
        .map(|(it, place)| {
            let at = it.at.unwrap_or(now) + Duration::from_micros(place);
            event(federation, it, at, context)
        })
        .collect();
    let count = events.len();
    // Events come first: the status records which of them have been reported, and an event that is reported
    // twice has the same name.
    if again.is_none() {
        report(federation, &mut events, context).await;
    }
    write(federation, &status, context).await?;
    count_end(&uid, before, &status, context);
    Ok(context.session(&uid, |it| {
        let now = Instant::now();
        it.statuses.written(now);
        it.events.spend(count, now);
        it.unreported.keep(events, now);
        it.unreported.wait(now)
    }))
}

/// Counts the end of a run, and the loss of its record, once each.
fn count_end(uid: &str, before: Option<&FederationStatus>, after: &FederationStatus, context: &Context) {
    let end = |of: &FederationStatus| {
        of.condition(condition::COMPLETED).filter(|it| it.status == "True").map(|it| it.reason.clone())
    };
    let Some(reason) = end(after) else { return };
    // The cache may not contain the status that was written last.
    let counted = context.session(uid, |it| it.ended.replace(reason.clone()));
    let earlier = counted.or(before.and_then(end));
    if earlier.is_none() {
        context.metrics.ended(after.verdict.as_deref().unwrap_or_default(), &reason);
    }
    if reason == RECORD_LOST && earlier.as_deref() != Some(RECORD_LOST) {
        context.metrics.record_lost();
    }
}

/// Events that could not be created yet. They are lost if the operator stops.
#[derive(Clone, Debug, Default)]
pub struct UnreportedEvents {
    events: VecDeque<Event>,
    /// Time of the next attempt, if there are events.
    pub due: Option<Instant>,
}

impl UnreportedEvents {
    /// Adds events for the next attempt.
    fn keep(&mut self, events: VecDeque<Event>, now: Instant) {
        self.events.extend(events);
        let excess = self.events.len().saturating_sub(MAX_UNREPORTED);
        self.events.drain(..excess);
        self.due = self.due.or(Some(now + EVENTS_AGAIN)).filter(|_| !self.events.is_empty());
    }

    /// Removes and returns the events if it is time for the next attempt.
    fn take_due(&mut self, now: Instant) -> VecDeque<Event> {
        if self.due.take_if(|due| *due <= now).is_some() {
            std::mem::take(&mut self.events)
        } else {
            VecDeque::new()
        }
    }

    /// Returns the time until the next attempt; `None` if there are no events.
    fn wait(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }
}

/// Reports the events that could not be created earlier, if it is time for the next attempt. Returns the time until the
/// next attempt if events are left.
async fn report_again<F: Resource<DynamicType = ()>>(federation: &F, context: &Context) -> Option<Duration> {
    let uid = federation.uid().unwrap_or_default();
    let mut events = context.session(&uid, |it| it.unreported.take_due(Instant::now()));
    let horizon = Timestamp::now() - PERIOD;
    events.retain(|it| it.event_time.as_ref().is_some_and(|it| it.0 > horizon));
    report(federation, &mut events, context).await;
    context.session(&uid, |it| {
        it.unreported.keep(events, Instant::now());
        it.unreported.wait(Instant::now())
    })
}

/// Creates events until one cannot be created, or until this takes too long. Removes those that have been created.
async fn report<F: Resource<DynamicType = ()>>(
    federation: &F,
    events: &mut VecDeque<Event>,
    context: &Context,
) {
    let reported = async {
        while let Some(event) = events.front() {
            create(event, context).await?;
            events.pop_front();
        }
        Ok::<_, kube::Error>(())
    };
    let problem = match timeout(EVENTS_WITHIN, reported).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("the API server did not respond within {EVENTS_WITHIN:?}"),
    };
    context.warn(federation, "cannot create an event", &problem);
}

/// Limits how many events of a federation are reported, because a supervisor's pod may run a foreign program.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventAllowance {
    /// Beginning of the current period.
    since: Option<Instant>,
    /// Number of events reported in the current period.
    spent: usize,
}

impl EventAllowance {
    /// Returns how many more events may be reported.
    pub fn left(self, now: Instant) -> usize {
        let is_over = self.since.is_none_or(|it| now.saturating_duration_since(it) >= PERIOD);
        if is_over { MAX_EVENTS_PER_PERIOD } else { MAX_EVENTS_PER_PERIOD.saturating_sub(self.spent) }
    }

    fn spend(&mut self, events: usize, now: Instant) {
        if events > 0 && self.left(now) == MAX_EVENTS_PER_PERIOD {
            *self = EventAllowance { since: Some(now), spent: 0 };
        }
        self.spent += events;
    }
}

/// Limits how often the status of a federation is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Time at which the status was last written.
    last: Option<Instant>,
    /// Earliest time at which a write would not exceed the mean rate.
    due: Option<Instant>,
}

impl Pace {
    /// Returns how long a write has to wait. A write that no user waits for happens at least `progress` after the
    /// previous one.
    fn wait(self, is_awaited: bool, progress: Duration, now: Instant) -> Duration {
        let until = |it: Option<Instant>| it.map_or(Duration::ZERO, |it| it.saturating_duration_since(now));
        if is_awaited {
            until(self.due).saturating_sub(CREDIT)
        } else {
            until(self.due.max(self.last.map(|it| it + progress)))
        }
    }

    fn written(&mut self, now: Instant) {
        self.last = Some(now);
        self.due = Some(self.due.map_or(now, |due| due.max(now)) + PAUSE);
    }
}

/// Returns whether a user may be waiting for the change: `kubectl wait` waits for the status of a condition,
/// users for a phase.
fn is_awaited(before: Option<&FederationStatus>, after: &FederationStatus) -> bool {
    fn conditions(of: &FederationStatus) -> impl Iterator<Item = (&str, &str)> {
        of.conditions.iter().map(|it| (it.kind.as_str(), it.status.as_str()))
    }
    before.is_none_or(|before| before.phase != after.phase || conditions(before).ne(conditions(after)))
}

async fn write<F: Resource<DynamicType = ()>>(
    federation: &F,
    status: &FederationStatus,
    context: &Context,
) -> Result<(), kube::Error> {
    // The answer contains the current spec, which the operator may be unable to read.
    let api: Api<CachedFederation> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
    let patch = json!({
        "apiVersion": Federation::api_version(&()),
        "kind": Federation::kind(&()),
        "status": status,
    });
    let parameters = PatchParams::apply(naming::FIELD_MANAGER).force();
    match api.patch_status(&federation.name_any(), &parameters, &Patch::Apply(patch)).await {
        Ok(_) => Ok(()),
        // The status of a federation that is gone is not needed.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

fn event<F: Resource<DynamicType = ()>>(
    federation: &F,
    new: &NewEvent,
    at: Timestamp,
    context: &Context,
) -> Event {
    Event {
        metadata: kube::core::ObjectMeta {
            name: Some(format!("{}.{}", federation.name_any(), new.name)),
            namespace: federation.namespace(),
            ..Default::default()
        },
        action: Some(new.reason.clone()),
        reason: Some(new.reason.clone()),
        note: Some(new.note.clone()),
        type_: Some(if new.warning { "Warning" } else { "Normal" }.into()),
        event_time: Some(MicroTime(at)),
        regarding: Some(federation.object_ref(&())),
        reporting_controller: Some("faultline.dev/operator".into()),
        reporting_instance: Some(context.identity.clone()),
        ..Event::default()
    }
}

async fn create(event: &Event, context: &Context) -> Result<(), kube::Error> {
    let namespace = event.namespace().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(context.client.clone(), &namespace);
    match events.create(&PostParams::default(), event).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() || is_ending(&status) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns whether a request was refused because its namespace is being deleted, which makes the report
/// unnecessary.
fn is_ending(refusal: &Status) -> bool {
    let mut causes = refusal.details.iter().flat_map(|it| &it.causes);
    causes.any(|it| it.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awaited_changes_are_written_immediately_at_the_mean_rate() {
        let begun = Instant::now();
        let expected: [fn(u64) -> u64; 2] = [|it| it.saturating_sub(3), |it| 5 * it];
        for (is_awaited, expected) in [true, false].into_iter().zip(expected) {
            let mut pace = Pace::default();
            let (mut now, mut times) = (begun, Vec::new());
            for _ in 0..100 {
                now += pace.wait(is_awaited, PAUSE * 5, now);
                pace.written(now);
                times.push((now - begun).as_secs());
            }
            assert_eq!(times, (0..100).map(expected).collect::<Vec<_>>(), "{is_awaited}");
        }
    }

    #[test]
    fn unused_credit_does_not_accumulate() {
        let begun = Instant::now();
        let mut pace = Pace::default();
        pace.written(begun);
        let later = begun + PAUSE * 100;
        assert_eq!(pace.wait(false, PAUSE * 5, later), Duration::ZERO);
        pace.written(later);
        assert_eq!(pace.wait(false, PAUSE * 5, later), PAUSE * 5);
        assert_eq!(pace.wait(true, PAUSE * 5, later), Duration::ZERO);
    }

    #[test]
    fn the_number_of_events_is_limited_in_each_period() {
        let begun = Instant::now();
        let mut allowance = EventAllowance::default();
        assert_eq!(allowance.left(begun), MAX_EVENTS_PER_PERIOD);
        allowance.spend(MAX_EVENTS_PER_PERIOD - 1, begun);
        assert_eq!(allowance.left(begun + PERIOD / 2), 1);
        allowance.spend(20, begun + PERIOD / 2);
        assert_eq!(allowance.left(begun + PERIOD / 2), 0);
        assert_eq!(allowance.left(begun + PERIOD), MAX_EVENTS_PER_PERIOD);
        allowance.spend(1, begun + PERIOD);
        assert_eq!(allowance.left(begun + PERIOD), MAX_EVENTS_PER_PERIOD - 1);
    }

    #[test]
    fn a_limited_number_of_events_waits_for_the_next_attempt() {
        let begun = Instant::now();
        let events = |numbers: std::ops::Range<u64>| {
            numbers
                .map(|it| Event { note: Some(it.to_string()), ..Event::default() })
                .collect::<VecDeque<_>>()
        };
        let mut unreported = UnreportedEvents::default();
        unreported.keep(events(0..0), begun);
        assert_eq!(unreported.wait(begun), None);
        unreported.keep(events(0..1), begun);
        let later = begun + EVENTS_AGAIN / 2;
        unreported.keep(events(1..60), later);
        assert_eq!(unreported.wait(later), Some(EVENTS_AGAIN / 2), "new events do not delay the attempt");
        assert_eq!(unreported.take_due(later), events(0..0));
        assert_eq!(unreported.take_due(begun + EVENTS_AGAIN), events(10..60), "the oldest are dropped");
        assert_eq!(unreported.wait(later), None);
    }
}
