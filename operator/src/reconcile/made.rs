//! The federation as it was when its pods were created.
//!
//! The rules of the custom resource definition let only some fields change. If a custom resource definition without
//! these rules is installed, any field can change, but the pods of a run must not.

use std::sync::Arc;

use faultline_api::{Federation, FederationSpec, live};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use thiserror::Error;

use super::build::FILE;
use super::validate::{Refusal, described};
use crate::controller::Context;
use crate::{naming, object_cache};

/// Error for a federation file that could not be read from its ConfigMap.
#[derive(Debug, Error)]
#[error("cannot read the ConfigMap {0}, which contains the federation as it was applied: {1}")]
pub struct MadeError(String, #[source] kube::Error);

/// If a field that must not change has changed, returns the federation from which the pods were created, and
/// the reason for refusing the current spec. Otherwise, or if the federation has no file, returns the
/// federation as it is.
///
/// # Errors
///
/// Fails if the file cannot be read. A missing file is not an error.
pub async fn made(
    federation: &Arc<Federation>,
    context: &Context,
) -> Result<(Arc<Federation>, Option<Refusal>), MadeError> {
    // Most federations never change.
    if federation.metadata.generation.is_none_or(|it| it <= 1) {
        return Ok((Arc::clone(federation), None));
    }
    let Some(spec) = spec(federation, context).await? else { return Ok((Arc::clone(federation), None)) };
    let problems = live::changes_of_fixed_fields(&spec, &federation.spec);
    if problems.is_empty() {
        return Ok((Arc::clone(federation), None));
    }
    let made = Federation { spec: (*spec).clone(), ..(**federation).clone() };
    Ok((Arc::new(made), Some(Refusal { message: described(&problems) })))
}

async fn spec(federation: &Federation, context: &Context) -> Result<Option<Arc<FederationSpec>>, MadeError> {
    let uid = federation.uid().unwrap_or_default();
    let known = context.session(&uid, |it| it.made.clone());
    if known.is_some() {
        return Ok(known);
    }
    let name = naming::file(federation);
    let files: Api<ConfigMap> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
    let file = files.get_opt(&name).await.map_err(|it| MadeError(name, it))?;
    let text = file.filter(|it| object_cache::belongs(it, federation)).and_then(|it| it.data?.remove(FILE));
    let made = text.and_then(|it| serde_json::from_str::<Federation>(&it).ok()).map(|it| Arc::new(it.spec));
    context.session(&uid, |it| it.made.clone_from(&made));
    Ok(made)
}
