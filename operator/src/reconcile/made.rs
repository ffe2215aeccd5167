//! The federation as it was when its pods were created.
//!
//! The rules of the custom resource definition let only some fields change. If a custom resource definition without
//! these rules is installed, any field can change, but the pods of a run must not.

use std::sync::Arc;

use faultline_api::resource::FederationStatus;
use faultline_api::{Federation, FederationSpec, live};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Resource, ResourceExt};
use thiserror::Error;

use super::build::FILE;
use super::validate::{Refusal, described};
use crate::cached_federation::read_spec;
use crate::controller::Context;
use crate::{naming, object_cache};

/// Error for the ConfigMap with the federation's file.
#[derive(Debug, Error)]
pub enum MadeError {
    /// The API server did not return it.
    #[error("cannot read the ConfigMap {0}, which contains the federation as it was applied: {1}")]
    Read(String, #[source] kube::Error),
    /// It does not contain the federation from which the pods were created.
    #[error(
        "the ConfigMap {0} was replaced, and does not contain the federation as it was applied: {1}; restore the \
         ConfigMap, or delete the federation and apply it again"
    )]
    Replaced(String, String),
}

/// If a field that must not change has changed, returns the federation from which the pods were created, and
/// the reason for refusing the current spec. Otherwise, or if the federation has no file, returns the
/// federation as it is.
///
/// # Errors
///
/// Fails if the file cannot be read or was replaced, as users of the namespace can do. A missing file is not an error.
pub async fn made(
    federation: &Arc<Federation>,
    context: &Context,
) -> Result<(Arc<Federation>, Option<Refusal>), MadeError> {
    // Most federations never change.
    if federation.metadata.generation.is_none_or(|it| it <= 1) {
        return Ok((Arc::clone(federation), None));
    }
    let Some(spec) = spec(&**federation, federation.status.as_ref(), context).await? else {
        return Ok((Arc::clone(federation), None));
    };
    let problems = live::changes_of_fixed_fields(&spec, &federation.spec);
    if problems.is_empty() {
        return Ok((Arc::clone(federation), None));
    }
    let made = Federation { spec: (*spec).clone(), ..(**federation).clone() };
    Ok((Arc::new(made), Some(Refusal { message: described(&problems) })))
}

/// Returns the spec in the file of a federation, from which the federation's pods were created; `None` if there is no
/// file. The federation's current spec is not needed.
///
/// # Errors
///
/// Fails if the file cannot be read or was replaced.
pub async fn spec<F: Resource<DynamicType = ()>>(
    federation: &F,
    status: Option<&FederationStatus>,
    context: &Context,
) -> Result<Option<Arc<FederationSpec>>, MadeError> {
    let uid = federation.uid().unwrap_or_default();
    let known = context.session(&uid, |it| it.made.clone());
    if known.is_some() {
        return Ok(known);
    }
    let name = naming::file(federation);
    let files: Api<ConfigMap> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
    let file = files.get_opt(&name).await.map_err(|it| MadeError::Read(name.clone(), it))?;
    let text = file.filter(|it| object_cache::belongs(it, federation)).and_then(|it| it.data?.remove(FILE));
    let made = text.map(|it| authentic(status, &it)).transpose();
    let made = made.map_err(|it| MadeError::Replaced(name, it))?.map(Arc::new);
    context.session(&uid, |it| it.made.clone_from(&made));
    Ok(made)
}

/// Reads the spec in the file of a federation with this status. Returns the reason if the federation's pods were not
/// created from it.
fn authentic(status: Option<&FederationStatus>, file: &str) -> Result<FederationSpec, String> {
    let spec = read_spec(file)?;
    // Users of the namespace cannot write the status.
    let known = status.iter().flat_map(|it| &it.clusters).map(|it| (&it.name, it.nodes));
    let known: Vec<_> = known.collect();
    let stated: Vec<_> = spec.clusters.iter().map(|it| (&it.name, it.nodes)).collect();
    if !known.is_empty() && known != stated {
        return Err("its clusters are not those of the run".to_owned());
    }
    Ok(spec)
}
