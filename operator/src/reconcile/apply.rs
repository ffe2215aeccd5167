//! Creates and changes objects until they match the desired state. The operator may stop after any write: the next
//! reconciliation determines what remains to be done.

use std::time::{Duration, Instant};

use faultline_client::object::FederationObject;
use faultline_client::status::Phase;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use serde_json::json;

use super::build::{self, Desired, Drift};
use super::dereference::Observed;
use super::freeze::{self, Frozen};
use super::keys::{self, KeyError};
use super::misplaced;
use super::objects::{
    ApplyError, Obstacle, Restored, delete_pod, each_claim, ignore_missing, make_object, refused,
    restore_object,
};
use crate::context::Context;
use crate::federation_cache::Misplaced;
use crate::naming;
use crate::pod_state;

/// Time between two checks for deleted objects while pods are missing.
const RESTORED_EVERY: Duration = Duration::from_secs(20);

/// The outcome of applying the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The reason why an object could not be created, if a user must act.
    pub obstacle: Option<Obstacle>,
    /// Changes by other clients that the operator has reverted.
    pub repaired: Vec<Drift>,
    /// Pods of the federation that the operator deleted because another client changed their labels.
    pub removed: Vec<Misplaced>,
    /// Objects that the operator recreated after another client deleted them.
    pub restored: Vec<Restored>,
}

/// Creates and changes objects as desired.
///
/// # Errors
///
/// Fails if a request to the API server fails, or if the federation's key is lost, replaced or invalid. A refusal that
/// prevents the creation of an object is an obstacle, not an error.
pub async fn apply(
    frozen: &Frozen,
    observed: &Observed,
    desired: Desired,
    context: &Context,
) -> Result<Applied, ApplyError> {
    let federation = &*frozen.federation;
    if frozen.obstacle.is_some() {
        return Ok(Applied { obstacle: frozen.obstacle.clone(), ..Applied::default() });
    }
    let mut obstacle = None;
    let mut restored = Vec::new();
    if !desired.sets.is_empty() {
        obstacle = make(frozen, observed, &desired, context).await?;
    } else if observed.phase() != Phase::Completed {
        if lacks_pods(frozen, observed) {
            restored = restore(frozen, &desired, context).await?;
        }
        // The policy admits only operators of one namespace, but an operator may move to another.
        if !context.cache(federation, |it| it.has_policy) {
            obstacle = make_policy(federation, &desired, context).await?;
        }
    }
    if desired.drifted.iter().any(|it| it.is_end_of_run) {
        // Nothing waits for this object.
        make_object(federation, &desired.budget, context).await?;
    }
    for drift in &desired.drifted {
        scale(federation, drift, context).await?;
    }
    for set in &observed.misplaced.unblocked {
        wake(federation, set, context).await?;
    }
    let mut removed = observed.misplaced.found.clone();
    removed.retain(|it| it.is_ours() && !it.is_ending);
    for Misplaced { pod, uid, .. } in &removed {
        delete_pod(federation, pod, uid, None, context).await?;
    }
    misplaced::deleted(federation, &removed, context);
    if observed.keeps_record() && !observed.has_lost_kept_record() {
        // Users need this secret to read the record.
        let key = keys::find(federation, true, context).await?;
        restored.extend(restore_object(federation, &keys::of_reader(federation, &key)?, context).await?);
    }
    let repaired = desired.drifted.into_iter().filter(|it| !it.is_end_of_run).collect();
    Ok(Applied { obstacle, repaired, removed, restored })
}

/// Returns whether pods of a federation are missing or not running.
fn lacks_pods(frozen: &Frozen, observed: &Observed) -> bool {
    let running = observed.pods.values().filter(|it| pod_state::is_complete(it)).count();
    running <= frozen.nodes() as usize
}

/// Creates the objects that new pods need, if other clients have deleted them. Checks this at most once per
/// [`RESTORED_EVERY`].
async fn restore(frozen: &Frozen, desired: &Desired, context: &Context) -> Result<Vec<Restored>, ApplyError> {
    let federation = &*frozen.federation;
    let is_due = context.cache(federation, |it| {
        // Usually, pods are missing only because they have not started yet.
        let since = it.restored.get_or_insert_with(Instant::now);
        let is_due = since.elapsed() >= RESTORED_EVERY;
        if is_due {
            *since = Instant::now();
        }
        is_due
    });
    if !is_due {
        return Ok(Vec::new());
    }
    let key = keys::find(federation, true, context).await?;
    let mut restored = Vec::new();
    for secret in [keys::of_processes(frozen, &key)?, keys::of_reader(federation, &key)?] {
        restored.extend(restore_object(federation, &secret, context).await?);
    }
    restored.extend(restore_object(federation, &desired.policy, context).await?);
    restored.extend(restore_object(federation, &desired.budget, context).await?);
    if let Some(service) = &desired.service {
        restored.extend(restore_object(federation, service, context).await?);
    }
    // The file contains the federation as it was initially, so the file cannot be restored once the federation has
    // changed.
    if federation.metadata.generation.is_some_and(|it| it <= 1) {
        restored.extend(restore_object(federation, &freeze::file(federation), context).await?);
    }
    Ok(restored)
}

/// Creates the objects that are missing, and changes those that differ from the desired state.
async fn make(
    frozen: &Frozen,
    observed: &Observed,
    desired: &Desired,
    context: &Context,
) -> Result<Option<Obstacle>, ApplyError> {
    let federation = &*frozen.federation;
    if let Some(obstacle) = kept_volume(federation, observed, &desired.sets, context).await? {
        return Ok(Some(obstacle));
    }
    // After a run, the key is restored with the other objects that reading the record requires.
    if observed.phase() != Phase::Completed {
        let key = match keys::find(federation, !observed.sets.is_empty(), context).await {
            Ok(key) => key,
            Err(error @ KeyError::Foreign(_)) => {
                return Ok(Some(Obstacle { reason: error.reason(), message: error.to_string() }));
            }
            Err(KeyError::Make(name, error)) => return refused(name, error),
            Err(error) => return Err(error.into()),
        };
        for secret in [keys::of_processes(frozen, &key)?, keys::of_reader(federation, &key)?] {
            if let Some(obstacle) = make_object(federation, &secret, context).await? {
                return Ok(Some(obstacle));
            }
        }
    }
    if let Some(obstacle) = make_policy(federation, desired, context).await? {
        return Ok(Some(obstacle));
    }
    if let Some(obstacle) = make_object(federation, &desired.budget, context).await? {
        return Ok(Some(obstacle));
    }
    if let Some(service) = &desired.service
        && let Some(obstacle) = make_object(federation, service, context).await?
    {
        return Ok(Some(obstacle));
    }
    for set in &desired.sets {
        if let Some(obstacle) = make_object(federation, set, context).await? {
            return Ok(Some(obstacle));
        }
    }
    Ok(None)
}

/// Returns an obstacle if a new set would delete, together with its own volumes, one that was kept from an earlier
/// federation with this name: the set would become the owner of a claim that has none.
async fn kept_volume(
    federation: &FederationObject,
    observed: &Observed,
    sets: &[StatefulSet],
    context: &Context,
) -> Result<Option<Obstacle>, ApplyError> {
    let prefixes: Vec<String> = sets
        .iter()
        .filter(|set| !observed.sets.contains_key(&set.name_any()) && deletes_volumes(set))
        .map(|set| naming::claim(&format!("{}-", set.name_any())))
        .collect();
    if prefixes.is_empty() {
        return Ok(None);
    }
    let is_of_a_set = |name: &str| {
        let numbers = prefixes.iter().filter_map(|prefix| name.strip_prefix(prefix.as_str()));
        { numbers }.any(|number| number.parse::<u32>().is_ok())
    };
    // The garbage collector also removes the owner of a claim whose set was deleted without its pods.
    let is_of_another = |it: &PartialObjectMeta<PersistentVolumeClaim>| {
        it.owner_references().is_empty() && it.labels().get(naming::UID) != federation.uid().as_ref()
    };
    let mut kept = None;
    each_claim(naming::UID, federation, context, |claim| {
        let name = claim.name_any();
        if kept.is_none() && is_of_another(&claim) && is_of_a_set(&name) {
            kept = Some(name);
        }
    })
    .await?;
    Ok(kept.map(|claim| Obstacle {
        reason: "NameTaken",
        message: format!(
            "the volume claim {claim}, which was kept from an earlier federation with this name, would be deleted with \
             this one; delete the claim, or delete this federation and apply it again with `keep: true` or another name"
        ),
    }))
}

/// Returns whether the volumes of a set's pods are deleted with the set.
fn deletes_volumes(set: &StatefulSet) -> bool {
    let policy = set.spec.as_ref().and_then(|it| it.persistent_volume_claim_retention_policy.as_ref());
    policy.is_some_and(|it| it.when_deleted.as_deref() == Some("Delete"))
}

/// Creates or changes the network policy, and remembers that this operator has done so.
async fn make_policy(
    federation: &FederationObject,
    desired: &Desired,
    context: &Context,
) -> Result<Option<Obstacle>, ApplyError> {
    let obstacle = make_object(federation, &desired.policy, context).await?;
    context.cache(federation, |it| it.has_policy = obstacle.is_none());
    Ok(obstacle)
}

/// Sets the number of pods of a set, and records the end of the run. Leaves everything else unchanged.
async fn scale(federation: &FederationObject, drift: &Drift, context: &Context) -> Result<(), ApplyError> {
    let sets = context.api::<StatefulSet>(federation);
    let mut patch = json!({ "spec": { "replicas": drift.wanted } });
    if drift.is_end_of_run {
        // A later change by another client is then recognised as such.
        patch["metadata"] = json!({ "annotations": { naming::APPLIED: build::ENDED } });
    }
    let parameters =
        PatchParams { field_manager: Some(naming::FIELD_MANAGER.into()), ..PatchParams::default() };
    let scaled = sets.patch(&drift.set, &parameters, &Patch::Merge(patch)).await;
    ignore_missing(scaled).map_err(|it| ApplyError::Make(drift.set.clone(), it))
}

/// Changes a set, so that Kubernetes creates its missing pods now. After many failures, its next attempt could be
/// minutes away.
async fn wake(federation: &FederationObject, set: &str, context: &Context) -> Result<(), ApplyError> {
    let sets = context.api::<StatefulSet>(federation);
    let now = Timestamp::now().to_string();
    let patch = json!({ "metadata": { "annotations": { naming::WOKEN: now } } });
    let parameters =
        PatchParams { field_manager: Some(naming::FIELD_MANAGER.into()), ..PatchParams::default() };
    let woken = sets.patch(set, &parameters, &Patch::Merge(patch)).await;
    ignore_missing(woken).map_err(|it| ApplyError::Make(set.to_owned(), it))
}
