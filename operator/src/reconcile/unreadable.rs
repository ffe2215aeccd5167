//! Reports a federation that this operator cannot read, and deletes its objects once it is being deleted.
//!
//! The API server refuses most such objects, unless the custom resource definition was weakened, or belongs to another
//! version of the operator. It admits custom parameters that are too large for the operator.

use faultline_api::Federation;
use faultline_api::resource::{Condition, FederationStatus, MAX_MESSAGE, condition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::assess::shortened;
use super::{ReconcileError, SOON, apply};
use crate::cached_federation::CachedFederation;
use crate::controller::Context;
use crate::naming;

/// Field manager of this report. The rest of the status has another manager and stays unchanged.
const MANAGER: &str = "faultline-operator-unreadable";

/// Reports that a federation cannot be read because of `error`, once per generation. If the federation is being
/// deleted, deletes its objects instead.
///
/// # Errors
///
/// Fails if a request to the API server fails.
pub async fn unreadable(
    federation: &CachedFederation,
    error: &str,
    context: &Context,
) -> Result<Action, ReconcileError> {
    let uid = federation.uid().unwrap_or_default();
    if federation.meta().deletion_timestamp.is_some() {
        if !federation.finalizers().iter().any(|it| it == naming::FINALIZER) {
            return Ok(Action::await_change());
        }
        if !apply::delete(federation, context).await?.is_empty() {
            return Ok(Action::requeue(SOON));
        }
        context.forget(&uid);
        return Ok(Action::await_change());
    }
    let generation = federation.meta().generation;
    if context.session(&uid, |it| it.unreadable) != generation.or(Some(0)) {
        tracing::warn!(federation = federation.name_any(), error, "a federation cannot be read");
        write(federation, error, context).await.map_err(ReconcileError::UpdateStatus)?;
        context.session(&uid, |it| it.unreadable = generation.or(Some(0)));
    }
    Ok(Action::await_change())
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
