//! Requests that create, change, find and delete the objects of federations.

use std::fmt::Debug;

use faultline_client::api_error::described;
use faultline_client::object::FederationObject;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::keys::KeyError;
use crate::context::Context;
use crate::{naming, object_cache, pages};

/// The reason why the desired state could not be applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The finalizer could not be changed.
    #[error("cannot change the finalizer: {}", described(.0))]
    Finalizer(#[source] kube::Error),
    /// An object could not be read, created or changed.
    #[error("cannot create or change {0}: {why}", why = described(.1))]
    Make(String, #[source] kube::Error),
    /// An object could not be deleted.
    #[error("cannot delete {0}: {why}", why = described(.1))]
    Delete(String, #[source] kube::Error),
    /// The volume to be deleted belongs to another owner.
    #[error(
        "the volume claim {0} does not belong to this federation, although its pod uses it; delete the claim, and then \
         the pod"
    )]
    ForeignClaim(String),
    /// Objects of a federation could not be listed.
    #[error("cannot list the federation's objects: {}", described(.0))]
    List(#[source] kube::Error),
    /// The key could not be read or created.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// An object that another client deleted and the operator recreated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Kind and name.
    pub object: String,
    /// UID of the new object.
    pub uid: String,
}

/// The reason, as reported to users, why an object cannot be created or a pod cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Reason in one word.
    pub reason: &'static str,
    /// Reason in a sentence.
    pub message: String,
}

/// An object that belongs to a federation, in the federation's namespace.
pub(super) trait Owned:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}
impl<K> Owned for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

/// Returns the metadata of the existing object with this object's name, if there is one.
async fn find_object<K: Owned>(
    federation: &FederationObject,
    object: &K,
    context: &Context,
) -> Result<Option<PartialObjectMeta<K>>, ApplyError> {
    let name = object.name_any();
    let found = context.api::<K>(federation).get_metadata_opt(&name).await;
    found.map_err(|it| ApplyError::Make(name, it))
}

/// Creates or changes an object, regardless of its owner.
pub(super) async fn write_object<K: Owned>(
    federation: &FederationObject,
    object: &K,
    context: &Context,
) -> kube::Result<K> {
    let parameters = PatchParams::apply(naming::FIELD_MANAGER).force();
    context.api(federation).patch(&object.name_any(), &parameters, &Patch::Apply(object)).await
}

/// Creates or changes an object, unless it belongs to another owner.
pub(super) async fn make_object<K: Owned>(
    federation: &FederationObject,
    object: &K,
    context: &Context,
) -> Result<Option<Obstacle>, ApplyError> {
    let there = find_object(federation, object, context).await?;
    if let Some(obstacle) = there.and_then(|it| taken(federation, &it)) {
        return Ok(Some(obstacle));
    }
    match write_object(federation, object, context).await {
        Ok(_) => Ok(None),
        Err(error) => refused(object.name_any(), error),
    }
}

/// Creates an object if there is none with its name.
pub(super) async fn restore_object<K: Owned>(
    federation: &FederationObject,
    object: &K,
    context: &Context,
) -> Result<Option<Restored>, ApplyError> {
    let name = object.name_any();
    if find_object(federation, object, context).await?.is_some() {
        return Ok(None);
    }
    let created = write_object(federation, object, context).await;
    let created = created.map_err(|it| ApplyError::Make(name.clone(), it))?;
    let object = format!("the {} {name}", K::kind(&()));
    tracing::warn!(federation = federation.name_any(), object, "restored an object that was deleted");
    Ok(Some(Restored { object, uid: created.uid().unwrap_or_default() }))
}

/// Passes the metadata of all volume claims with these labels in the namespace of a federation to `see`.
pub(super) async fn each_claim<F: Resource<DynamicType = ()>>(
    labels: &str,
    federation: &F,
    context: &Context,
    see: impl FnMut(PartialObjectMeta<PersistentVolumeClaim>),
) -> Result<(), ApplyError> {
    let claims = context.api::<PersistentVolumeClaim>(federation);
    let parameters = ListParams::default().labels(labels);
    pages::each(
        parameters,
        |page| {
            let claims = &claims;
            async move { claims.list_metadata(&page).await }
        },
        see,
    )
    .await
    .map_err(ApplyError::List)
}

/// Returns an obstacle if an object with the desired name belongs to another owner.
pub(super) fn taken<K: Resource<DynamicType = ()>>(
    federation: &FederationObject,
    there: &kube::core::PartialObjectMeta<K>,
) -> Option<Obstacle> {
    let kind = K::kind(&());
    (!object_cache::belongs(there, federation)).then(|| Obstacle {
        reason: "NameTaken",
        message: format!(
            "the {kind} {} already exists, but does not belong to this federation: it {}; delete it, or rename the \
             federation",
            there.name_any(),
            object_cache::controller(there).map_or_else(
                || "has no owner".to_owned(),
                |it| format!("belongs to the {} {}", it.kind, it.name)
            )
        ),
    })
}

/// Returns a refusal by the API server as an obstacle, which a user must remove. Any other error may be temporary.
pub(super) fn refused(name: String, error: kube::Error) -> Result<Option<Obstacle>, ApplyError> {
    match error {
        kube::Error::Api(status) if status.is_forbidden() || status.is_invalid() => {
            let message = format!("{name}: {}", status.message);
            Ok(Some(if exceeds_quota(&message) {
                let remedy = "raise the ResourceQuota, or delete objects that are no longer needed";
                Obstacle { reason: "Quota", message: format!("{remedy}; {message}") }
            } else {
                Obstacle { reason: "Refused", message }
            }))
        }
        error => Err(ApplyError::Make(name, error)),
    }
}

/// Returns whether the API server refused an object because of a ResourceQuota.
pub(super) fn exceeds_quota(message: &str) -> bool {
    message.contains("exceeded quota") || message.contains("failed quota")
}

/// Deletes a pod. If `claim` is given, deletes that claim first: Kubernetes keeps it until the pod is gone,
/// and the next pod gets a new claim. Does nothing if the pod is already gone or has been replaced.
pub(super) async fn delete_pod(
    federation: &FederationObject,
    pod: &str,
    uid: &str,
    claim: Option<&str>,
    context: &Context,
) -> Result<(), ApplyError> {
    let pods = context.api::<Pod>(federation);
    if let Some(claim) = claim {
        // The cache may lag behind. The claim would then be that of the pod's successor.
        let there = find_by_name(&pods, pod)
            .await
            .map_err(ApplyError::List)?
            .filter(|it| it.uid().as_deref() == Some(uid));
        let Some(there) = there else { return Ok(()) };
        delete_claim(federation, &there, claim, context).await?;
    }
    ignore_missing(pods.delete(pod, &exactly(Some(uid.to_owned()))).await)
        .map_err(|it| ApplyError::Delete(pod.to_owned(), it))
}

/// Deletes the claim of a pod's volume.
async fn delete_claim(
    federation: &FederationObject,
    pod: &Pod,
    claim: &str,
    context: &Context,
) -> Result<(), ApplyError> {
    let claims = context.api::<PersistentVolumeClaim>(federation);
    let Some(there) = find_by_name(&claims, claim).await.map_err(ApplyError::List)? else { return Ok(()) };
    if !object_cache::is_claim_of(&there, pod) {
        return Err(ApplyError::ForeignClaim(claim.to_owned()));
    }
    ignore_missing(claims.delete(claim, &exactly(there.uid())).await)
        .map_err(|it| ApplyError::Delete(claim.to_owned(), it))
}

/// Returns the object with this name as it is now, not as it is in a cache. The operator may list pods and claims, but
/// not get them.
pub(super) async fn find_by_name<K>(api: &Api<K>, name: &str) -> kube::Result<Option<K>>
where
    K: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()>,
{
    let with_name = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = api.list(&with_name).await?;
    Ok(found.items.into_iter().find(|it| it.name_any() == name))
}

/// Returns the parameters that delete only the object with this UID, and none that has replaced it.
pub(super) fn exactly(uid: Option<String>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default()
    }
}

/// Treats the failure of a request as a success if the object is gone, or has been replaced or changed.
pub(super) fn ignore_missing<T>(answer: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
