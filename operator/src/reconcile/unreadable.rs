//! Reconciles a federation whose spec this operator cannot read.
//!
//! The API server refuses most such specs, unless the custom resource definition was weakened, or belongs to another
//! version of the operator. It admits quantities beyond their limits, and custom parameters that are too large for the
//! operator.
//!
//! A run that has begun continues with the spec in the file from which its pods were created. A new federation is
//! rejected. If there is no usable file for a run, the operator only reports the problem. In any case, it deletes the
//! objects of a federation that is being deleted, which requires no spec.

use std::ops::ControlFlow;
use std::sync::Arc;

use faultline_api::Federation;
use faultline_api::resource::{Condition, FederationStatus, MAX_MESSAGE, condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use super::assess::{BasicSituation, shortened};
use super::made::{self, MadeError};
use super::update_status::update_unreadable;
use super::validate::Refusal;
use super::{KEPT, ReconcileError, SOON, after, apply, has_begun, reconcile_unless_refused};
use crate::cached_federation::CachedFederation;
use crate::controller::Context;
use crate::naming;

/// Field manager of this report. The rest of the status has another manager and stays unchanged.
const MANAGER: &str = "faultline-operator-unreadable";

/// Reconciles a federation that cannot be read because of `error`. Returns the action that triggers the next
/// reconciliation.
///
/// # Errors
///
/// Fails if a step fails. The controller then retries.
pub async fn unreadable(
    federation: &CachedFederation,
    error: &str,
    context: &Context,
) -> Result<Action, ReconcileError> {
    let refusal = Refusal { message: error.to_owned() };
    let with_file = timeout(context.deadline, with_file(federation, &refusal, context)).await;
    match with_file.unwrap_or(Err(ReconcileError::DeadlineExceeded(context.deadline)))? {
        ControlFlow::Continue(made) => reconcile_unless_refused(Arc::new(made), Some(refusal), context).await,
        ControlFlow::Break(action) => Ok(action),
    }
}

/// Returns the federation with the spec in its file. If there is no such spec, or if the federation is being deleted,
/// reconciles the federation without a spec instead.
async fn with_file(
    federation: &CachedFederation,
    refusal: &Refusal,
    context: &Context,
) -> Result<ControlFlow<Action, Federation>, ReconcileError> {
    if federation.meta().deletion_timestamp.is_some() {
        return delete(federation, context).await.map(ControlFlow::Break);
    }
    // Only a readable status says whether a run has begun.
    let Ok(status) = federation.status() else {
        report(federation, &refusal.message, context).await?;
        return Ok(ControlFlow::Break(Action::await_change()));
    };
    match made::spec(federation, status.as_ref(), context).await {
        Ok(Some(spec)) => {
            let metadata = federation.meta().clone();
            return Ok(ControlFlow::Continue(Federation { metadata, spec: (*spec).clone(), status }));
        }
        Ok(None) | Err(MadeError::Replaced(..)) => {}
        Err(error @ MadeError::Read(..)) => return Err(error.into()),
    }
    if has_begun(status.as_ref().map(|it| it.phase).unwrap_or_default()) {
        report(federation, &refusal.message, context).await?;
        // The operator does not watch files.
        return Ok(ControlFlow::Break(Action::requeue(KEPT)));
    }
    let rejected = BasicSituation::Rejected(refusal.clone());
    let unsaid = update_unreadable(federation, status.as_ref(), &rejected, context).await;
    Ok(ControlFlow::Break(after(unsaid.map_err(ReconcileError::UpdateStatus)?)))
}

async fn delete(federation: &CachedFederation, context: &Context) -> Result<Action, ReconcileError> {
    if !federation.finalizers().iter().any(|it| it == naming::FINALIZER) {
        return Ok(Action::await_change());
    }
    // Without a spec, only the pods of clusters and of the supervisor are known.
    let status = federation.status().ok().flatten().unwrap_or_default();
    let clusters = status.clusters.into_iter().map(|it| (naming::set(federation, &it.name), it.nodes));
    let sets = clusters.chain([(naming::supervisor(federation), 1)]);
    let pods = sets.flat_map(|(set, nodes)| (0..nodes).map(move |it| format!("{set}-{it}")));
    let left = apply::delete(federation, pods, context).await?;
    if left.is_empty() {
        context.forget(&federation.uid().unwrap_or_default());
        return Ok(Action::await_change());
    }
    // Without a readable status, the rest of the status is unknown and must stay.
    if let Ok(status) = federation.status() {
        let deleting = BasicSituation::Deleting { left };
        if let Err(error) = update_unreadable(federation, status.as_ref(), &deleting, context).await {
            context.warn(federation, "cannot report what a deletion waits for", &error);
        }
    }
    Ok(Action::requeue(SOON))
}

/// Reports that a federation cannot be read because of `error`, once per generation.
async fn report(federation: &CachedFederation, error: &str, context: &Context) -> Result<(), ReconcileError> {
    let uid = federation.uid().unwrap_or_default();
    let generation = federation.meta().generation.or(Some(0));
    if context.session(&uid, |it| it.unreadable) != generation {
        tracing::warn!(federation = federation.name_any(), error, "a federation cannot be read");
        write(federation, error, context).await.map_err(ReconcileError::UpdateStatus)?;
        context.session(&uid, |it| it.unreadable = generation);
    }
    Ok(())
}

async fn write(federation: &CachedFederation, error: &str, context: &Context) -> Result<(), kube::Error> {
    let message = format!(
        "the operator cannot read this federation, and leaves its objects unchanged: {error}; correct the federation, or, \
         if its definition is not that of this operator, install that definition"
    );
    let message = shortened(&message, MAX_MESSAGE);
    let condition = Condition {
        kind: condition::RECONCILED.into(),
        status: "False".into(),
        reason: "Unreadable".into(),
        message: message.clone(),
        last_transition_time: Time(Timestamp::now()),
        observed_generation: federation.meta().generation,
    };
    let status =
        FederationStatus { message: Some(message), conditions: vec![condition], ..Default::default() };
    let mut status = serde_json::to_value(status).expect("a status serialises");
    // The phase is not known.
    status.as_object_mut().expect("it is an object").remove("phase");
    let patch = json!({
        "apiVersion": Federation::api_version(&()),
        "kind": Federation::kind(&()),
        "status": status,
    });
    let namespace = federation.namespace().unwrap_or_default();
    let api: Api<CachedFederation> = Api::namespaced(context.client.clone(), &namespace);
    let parameters = PatchParams::apply(MANAGER).force();
    match api.patch_status(&federation.name_any(), &parameters, &Patch::Apply(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
