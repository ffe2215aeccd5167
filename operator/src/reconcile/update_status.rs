//! Says in the resource what has become of it, at most once a second, and tells the story in Kubernetes events.

use std::time::{Duration, Instant};

use faultline_api::Federation;
use faultline_api::resource::FederationStatus;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use thiserror::Error;

use super::assess::{self, News, Situation};
use super::dereference::Observed;
use crate::controller::Context;
use crate::naming;

/// Between two writes of a status.
const PAUSE: Duration = Duration::from_secs(1);

/// What could not be written.
#[derive(Debug, Error)]
pub enum UpdateStatusError {
    /// An event.
    #[error("an event cannot be written: {0}")]
    Event(#[source] kube::Error),
    /// The status.
    #[error("the status cannot be written: {0}")]
    Status(#[source] kube::Error),
}

/// Writes what is to be said, unless it has been said. Returns whether the resource says it now; if not, it is too soon.
pub async fn update_status(
    observed: &Observed,
    situation: &Situation,
    context: &Context,
) -> Result<bool, UpdateStatusError> {
    let federation = &*observed.federation;
    let uid = federation.uid().unwrap_or_default();
    let now = Timestamp::now();
    let (status, news) = assess::assess(observed, situation, Time(now));
    if federation.status.as_ref() == Some(&status) {
        return Ok(true);
    }
    let written = context.session(&uid, |it| it.status_written);
    if written.is_some_and(|it| it.elapsed() < PAUSE) {
        return Ok(false);
    }
    // The events first: which have been told stands in the status, and one that is told twice has the same name.
    for it in &news {
        publish(federation, it, now, context).await.map_err(UpdateStatusError::Event)?;
    }
    write(federation, &status, context).await.map_err(UpdateStatusError::Status)?;
    context.session(&uid, |it| it.status_written = Some(Instant::now()));
    Ok(true)
}

async fn write(
    federation: &Federation,
    status: &FederationStatus,
    context: &Context,
) -> Result<(), kube::Error> {
    let api: Api<Federation> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
    let patch = json!({
        "apiVersion": Federation::api_version(&()),
        "kind": Federation::kind(&()),
        "status": status,
    });
    let parameters = PatchParams::apply(naming::FIELD_MANAGER).force();
    match api.patch_status(&federation.name_any(), &parameters, &Patch::Apply(patch)).await {
        // A status of a federation that is gone interests nobody.
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

async fn publish(
    federation: &Federation,
    news: &News,
    now: Timestamp,
    context: &Context,
) -> Result<(), kube::Error> {
    let namespace = federation.namespace().unwrap_or_default();
    let event = Event {
        metadata: kube::core::ObjectMeta {
            name: Some(format!("{}.{}", federation.name_any(), news.name)),
            namespace: Some(namespace.clone()),
            ..Default::default()
        },
        action: Some(news.reason.clone()),
        reason: Some(news.reason.clone()),
        note: Some(news.note.clone()),
        type_: Some(if news.warning { "Warning" } else { "Normal" }.into()),
        event_time: Some(MicroTime(now)),
        regarding: Some(federation.object_ref(&())),
        reporting_controller: Some("faultline.dev/operator".into()),
        reporting_instance: Some(context.identity.clone()),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(context.client.clone(), &namespace);
    match events.create(&PostParams::default(), &event).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}
