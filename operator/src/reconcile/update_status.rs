//! Writes the status of a federation, at most once per second on average, and reports its events to Kubernetes.
//!
//! A write costs the API server far more than a reconciliation costs the operator. Changes that no user waits
//! for are therefore written less often.
//!
//! Events are less important than the status: an event that cannot be created is logged, and created later if possible.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use faultline_client::object::FederationObject;
use faultline_client::status::{FederationStatus, condition};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use super::assess::{self, NewEvent, Situation};
use super::dereference::RECORD_LOST;
use crate::cached_federation::CachedFederation;
use crate::context::Context;
use crate::limits::PERIOD;
use crate::naming;

/// Minimum time from a write to a later write that only updates the progress.
const PROGRESS: Duration = Duration::from_secs(2);
/// Time added to [`PROGRESS`] for each federation. Each write takes the API server tens of milliseconds of processor
/// time, and other requests need time as well.
const SHARE: Duration = Duration::from_millis(50);
/// Time limit of creating events, so that enough time remains for the status.
const EVENTS_WITHIN: Duration = Duration::from_secs(3);

/// Writes the status, unless the resource already contains it, and reports events. Returns how long to wait if it is too
/// early to write, or if events could not be created; `None` once nothing is left to do.
///
/// # Errors
///
/// Fails if the API server rejects the status.
pub async fn update_status(
    federation: &CachedFederation,
    situation: &Situation,
    context: &Context,
) -> Result<Option<Duration>, kube::Error> {
    let now = Timestamp::now();
    let before = federation.status().ok().flatten();
    let (status, new_events) = assess::assess(federation, situation, Time(now));
    context.metrics.show(federation, &status);
    let again = report_again(federation, context).await;
    if new_events.is_empty() && before == Some(&status) {
        return Ok(again);
    }
    let is_awaited = !new_events.is_empty() || is_awaited(before, &status);
    let progress = PROGRESS + SHARE * context.federations();
    let wait = context.cache(federation, |it| it.statuses.wait(is_awaited, progress, Instant::now()));
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
    count_end(federation, before, &status, context);
    Ok(context.cache(federation, |it| {
        let now = Instant::now();
        it.statuses.written(now);
        it.events.spend(count, now);
        it.unreported.keep(events, now);
        it.unreported.wait(now)
    }))
}

/// Counts the end of a run, and the loss of its record, once each.
fn count_end(
    federation: &CachedFederation,
    before: Option<&FederationStatus>,
    after: &FederationStatus,
    context: &Context,
) {
    let end = |of: &FederationStatus| {
        of.condition(condition::COMPLETED).filter(|it| it.status == "True").map(|it| it.reason.clone())
    };
    let Some(reason) = end(after) else { return };
    // The cache may not contain the status that was written last.
    let counted = context.cache(federation, |it| it.ended.replace(reason.clone()));
    let earlier = counted.or(before.and_then(end));
    if earlier.is_none() {
        context.metrics.ended(after.verdict.as_deref().unwrap_or_default(), &reason);
    }
    if reason == RECORD_LOST && earlier.as_deref() != Some(RECORD_LOST) {
        context.metrics.record_lost();
    }
}

/// Reports the events that could not be created earlier, if it is time for the next attempt. Returns the time until the
/// next attempt if events are left.
async fn report_again(federation: &CachedFederation, context: &Context) -> Option<Duration> {
    let mut events = context.cache(federation, |it| it.unreported.take_due(Instant::now()));
    let horizon = Timestamp::now() - PERIOD;
    events.retain(|it| it.event_time.as_ref().is_some_and(|it| it.0 > horizon));
    report(federation, &mut events, context).await;
    context.cache(federation, |it| {
        it.unreported.keep(events, Instant::now());
        it.unreported.wait(Instant::now())
    })
}

/// Creates events until one cannot be created, or until this takes too long. Removes those that have been created.
async fn report(federation: &CachedFederation, events: &mut VecDeque<Event>, context: &Context) {
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

/// Returns whether a user may be waiting for the change: `kubectl wait` waits for the status of a condition,
/// users for a phase.
fn is_awaited(before: Option<&FederationStatus>, after: &FederationStatus) -> bool {
    fn conditions(of: &FederationStatus) -> impl Iterator<Item = (&str, &str)> {
        of.conditions.iter().map(|it| (it.kind.as_str(), it.status.as_str()))
    }
    before.is_none_or(|before| before.phase != after.phase || conditions(before).ne(conditions(after)))
}

async fn write(
    federation: &CachedFederation,
    status: &FederationStatus,
    context: &Context,
) -> Result<(), kube::Error> {
    // The answer contains the current spec, which the operator may be unable to read.
    let api = context.api::<CachedFederation>(federation);
    let patch = json!({
        "apiVersion": FederationObject::api_version(&()),
        "kind": FederationObject::kind(&()),
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

fn event(federation: &CachedFederation, new: &NewEvent, at: Timestamp, context: &Context) -> Event {
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
    match context.api::<Event>(event).create(&PostParams::default(), event).await {
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
