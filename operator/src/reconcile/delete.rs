//! Deletes the objects of a federation, and the federation itself once none is left.

use faultline_client::object::FederationObject;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::json;

use super::misplaced;
use super::objects::{ApplyError, each_claim, exactly, ignore_missing};
use crate::cached_federation::CachedFederation;
use crate::context::Context;
use crate::federation_cache::Misplaced;
use crate::naming;
use crate::object_cache::{self, OwnedObjects};

/// Maximum number of volumes that a status names.
const MAX_LEFT: usize = 100;

/// Adds the finalizer, which delays the deletion of the federation until its objects are deleted.
///
/// # Errors
///
/// Fails if the API server rejects the change.
pub async fn add_finalizer(federation: &CachedFederation, context: &Context) -> Result<(), ApplyError> {
    let mut finalizers = federation.finalizers().to_vec();
    finalizers.push(naming::FINALIZER.into());
    change_finalizers(federation, finalizers, context).await
}

/// Deletes a federation, unless it has been replaced.
///
/// # Errors
///
/// Fails if the API server refuses the deletion.
pub async fn delete_federation(federation: &CachedFederation, context: &Context) -> Result<(), ApplyError> {
    let federations = context.api::<FederationObject>(federation);
    let name = federation.name_any();
    let deleted = federations.delete(&name, &exactly(federation.uid())).await;
    ignore_missing(deleted).map_err(|it| ApplyError::Delete(name, it))
}

/// Deletes the objects of a federation that is being deleted. Returns those that still exist; once there are none,
/// the federation is deleted as well. `pods` are the names of its pods, as far as they are known.
///
/// A set is deleted in the foreground: it stays until its pods are gone, so that a remaining pod always has a chain
/// of controllers.
///
/// # Errors
///
/// Fails if a request to the API server fails.
pub async fn delete(
    federation: &CachedFederation,
    pods: Vec<String>,
    context: &Context,
) -> Result<Vec<String>, ApplyError> {
    let uid = federation.uid().unwrap_or_default();
    let sets = context.api::<StatefulSet>(federation);
    let owned_objects = OwnedObjects::by_owner(federation, &context.sets, &context.pods);
    let mut left = Vec::new();
    for (name, set) in &owned_objects.sets {
        if set.metadata.deletion_timestamp.is_none() {
            let after_pods = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Foreground),
                ..exactly(set.uid())
            };
            ignore_missing(sets.delete(name, &after_pods).await)
                .map_err(|it| ApplyError::Delete(name.clone(), it))?;
        }
        left.push(format!("the StatefulSet {name}"));
    }
    // Pods that block all other deletions come first.
    let (stuck, others): (Vec<_>, Vec<_>) = owned_objects.pods.iter().partition(|(_, pod)| is_stuck(pod));
    let stuck = stuck.into_iter().map(|(name, pod)| {
        let finalizers = pod.finalizers();
        let plural = if finalizers.len() == 1 { "" } else { "s" };
        format!("the pod {name}, which has the finalizer{plural} {}", finalizers.join(", "))
    });
    left.splice(..0, stuck);
    left.extend(others.into_iter().map(|(name, _)| format!("the pod {name}")));
    // Volumes are deleted after the sets that own them.
    if left.is_empty() {
        each_claim(&format!("{}={uid}", naming::UID), federation, context, |claim| {
            if object_cache::is_deleted_with_set(&claim, federation) && left.len() < MAX_LEFT {
                left.push(format!("the volume {}", claim.name_any()));
            }
        })
        .await?;
    }
    // Pods whose labels were changed have no owner that is deleted with them.
    if left.is_empty() {
        let names = pods.into_iter().map(|it| (it, None)).collect();
        let found = misplaced::with_names(federation, names, context).await.map_err(ApplyError::List)?;
        let pods = context.api::<Pod>(federation);
        for Misplaced { pod, uid, is_ending, .. } in found.into_iter().filter(Misplaced::is_ours) {
            if !is_ending {
                ignore_missing(pods.delete(&pod, &exactly(Some(uid))).await)
                    .map_err(|it| ApplyError::Delete(pod.clone(), it))?;
            }
            left.push(format!("the pod {pod}"));
        }
    }
    if left.is_empty() {
        let finalizers =
            federation.finalizers().iter().filter(|it| *it != naming::FINALIZER).cloned().collect();
        change_finalizers(federation, finalizers, context).await?;
    }
    Ok(left)
}

/// Returns whether a pod is being deleted but waits for another program to remove its finalizers.
fn is_stuck(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && !pod.finalizers().is_empty()
}

/// Changes the finalizers, unless the object was changed in the meantime: that change triggers another reconciliation.
async fn change_finalizers(
    federation: &CachedFederation,
    finalizers: Vec<String>,
    context: &Context,
) -> Result<(), ApplyError> {
    let federations = context.api::<FederationObject>(federation);
    let patch = json!({ "metadata": {
        "resourceVersion": federation.resource_version(),
        "finalizers": finalizers,
    } });
    let written = federations
        .patch_metadata(&federation.name_any(), &PatchParams::default(), &Patch::Merge(patch))
        .await;
    ignore_missing(written.map(drop)).map_err(ApplyError::Finalizer)
}
