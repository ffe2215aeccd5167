//! Creates and changes objects until they match the desired state. The operator may stop after any write: the next
//! reconciliation determines what remains to be done.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use faultline_api::Federation;
use faultline_api::resource::Phase;
use http::StatusCode;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use thiserror::Error;

use super::build::{Desired, Drift, SupervisorRequest};
use super::dereference::{Observed, find_supervisor};
use super::keys::{self, KeyError};
use super::misplaced::{self, Misplaced};
use super::validate::Validated;
use crate::controller::Context;
use crate::object_cache::{self, OwnedObjects};
use crate::reconcile::build;
use crate::supervisor::SupervisorError;
use crate::{naming, pages};

/// Time between two checks for deleted objects while pods are missing.
const RESTORED_EVERY: Duration = Duration::from_secs(20);

/// Maximum number of volumes that a status names.
const MAX_LEFT: usize = 100;

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
    /// The reason why the supervisor cannot read the changed spec, if it cannot.
    pub unread_change: Option<String>,
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

/// The reason why the desired state could not be applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The finalizer could not be changed.
    #[error("cannot change the finalizer: {0}")]
    Finalizer(#[source] kube::Error),
    /// An object could not be read, created or changed.
    #[error("cannot create or change {0}: {1}")]
    Make(String, #[source] kube::Error),
    /// An object could not be deleted.
    #[error("cannot delete {0}: {1}")]
    Delete(String, #[source] kube::Error),
    /// The volume to be deleted belongs to another owner.
    #[error(
        "the volume claim {0} does not belong to this federation, although its pod uses it; delete the claim, and then \
         the pod"
    )]
    ForeignClaim(String),
    /// Objects of a federation could not be listed.
    #[error("cannot list the federation's objects: {0}")]
    List(#[source] kube::Error),
    /// The key could not be read or created.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Creates and changes objects as desired, and updates the supervisor.
///
/// # Errors
///
/// Fails if a request to the API server fails, or if the federation's key is lost, replaced or invalid. A refusal that
/// prevents the creation of an object is an obstacle, not an error. A supervisor that does not respond is not an error
/// either: the next reconciliation repeats the request.
pub async fn apply(
    validated: &Validated,
    observed: &Observed,
    desired: Desired,
    context: &Context,
) -> Result<Applied, ApplyError> {
    let federation = &validated.federation;
    let mut obstacle = None;
    let mut restored = Vec::new();
    if !desired.sets.is_empty() {
        obstacle = make(federation, observed, &desired, context).await?;
    } else if observed.phase() != Phase::Completed {
        if lacks_pods(validated, observed) {
            restored = restore(federation, &desired, context).await?;
        }
        // The policy admits only operators of one namespace, but an operator may move to another.
        let uid = federation.uid().unwrap_or_default();
        if !context.session(&uid, |it| it.has_policy) {
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
    let unread_change = update_supervisor(federation, observed, &desired, context).await?;
    let repaired = desired.drifted.into_iter().filter(|it| !it.is_end_of_run).collect();
    Ok(Applied { obstacle, repaired, removed, restored, unread_change })
}

/// Returns whether pods of a federation are missing or not running.
fn lacks_pods(validated: &Validated, observed: &Observed) -> bool {
    let running = observed.pods.values().filter(|it| build::is_complete(it)).count();
    running <= validated.nodes() as usize
}

/// Creates the objects that new pods need, if other clients have deleted them. Checks this at most once per
/// [`RESTORED_EVERY`].
async fn restore(
    federation: &Federation,
    desired: &Desired,
    context: &Context,
) -> Result<Vec<Restored>, ApplyError> {
    let uid = federation.uid().unwrap_or_default();
    let is_due = context.session(&uid, |it| {
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
    for secret in [keys::of_processes(federation, &key)?, keys::of_reader(federation, &key)?] {
        restored.extend(restore_object(federation, &secret, context).await?);
    }
    restored.extend(restore_object(federation, &desired.policy, context).await?);
    restored.extend(restore_object(federation, &desired.budget, context).await?);
    // The file contains the federation as it was initially, so the file cannot be restored once the federation has
    // changed.
    if federation.metadata.generation.is_some_and(|it| it <= 1) {
        restored.extend(restore_object(federation, &desired.file, context).await?);
    }
    Ok(restored)
}

/// Creates the secrets for reading the record of a completed federation, if other clients have deleted them.
///
/// # Errors
///
/// Fails if a request to the API server fails, or if there is no usable key.
pub async fn restore_access(federation: &Federation, context: &Context) -> Result<Vec<Restored>, ApplyError> {
    let key = keys::find(federation, true, context).await?;
    let restored = restore_object(federation, &keys::of_reader(federation, &key)?, context).await?;
    Ok(restored.into_iter().collect())
}

/// Creates an object if there is none with its name.
async fn restore_object<K: Owned>(
    federation: &Federation,
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

/// Adds the finalizer, which delays the deletion of the federation until its objects are deleted.
///
/// # Errors
///
/// Fails if the API server rejects the change.
pub async fn add_finalizer(federation: &Federation, context: &Context) -> Result<(), ApplyError> {
    let mut finalizers = federation.finalizers().to_vec();
    finalizers.push(naming::FINALIZER.into());
    change_finalizers(federation, finalizers, context).await
}

/// Deletes a federation, unless it has been replaced.
///
/// # Errors
///
/// Fails if the API server refuses the deletion.
pub async fn delete_federation(federation: &Federation, context: &Context) -> Result<(), ApplyError> {
    let federations: Api<Federation> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
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
pub async fn delete<F>(
    federation: &F,
    pods: impl Iterator<Item = String>,
    context: &Context,
) -> Result<Vec<String>, ApplyError>
where
    F: Resource<DynamicType = ()>,
{
    let uid = federation.uid().unwrap_or_default();
    let namespace = federation.namespace().unwrap_or_default();
    let sets: Api<StatefulSet> = Api::namespaced(context.client.clone(), &namespace);
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
        let names = pods.map(|it| (it, None)).collect();
        let found = misplaced::with_names(federation, names, context).await.map_err(ApplyError::List)?;
        let pods: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
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
async fn change_finalizers<F>(
    federation: &F,
    finalizers: Vec<String>,
    context: &Context,
) -> Result<(), ApplyError>
where
    F: Resource<DynamicType = ()>,
{
    let federations: Api<Federation> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
    let patch = json!({ "metadata": {
        "resourceVersion": federation.resource_version(),
        "finalizers": finalizers,
    } });
    let written = federations
        .patch_metadata(&federation.name_any(), &PatchParams::default(), &Patch::Merge(patch))
        .await;
    ignore_missing(written.map(drop)).map_err(ApplyError::Finalizer)
}

/// Creates the objects that are missing, and changes those that differ from the desired state.
async fn make(
    federation: &Federation,
    observed: &Observed,
    desired: &Desired,
    context: &Context,
) -> Result<Option<Obstacle>, ApplyError> {
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
        for secret in [keys::of_processes(federation, &key)?, keys::of_reader(federation, &key)?] {
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
    if let Some(obstacle) = make_file(federation, &desired.file, context).await? {
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
    federation: &Federation,
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

/// Passes the metadata of all volume claims with these labels in the namespace of a federation to `see`.
async fn each_claim<F: Resource<DynamicType = ()>>(
    labels: &str,
    federation: &F,
    context: &Context,
    see: impl FnMut(PartialObjectMeta<PersistentVolumeClaim>),
) -> Result<(), ApplyError> {
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(context.client.clone(), &federation.meta().namespace.clone().unwrap_or_default());
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

/// Returns whether the volumes of a set's pods are deleted with the set.
fn deletes_volumes(set: &StatefulSet) -> bool {
    let policy = set.spec.as_ref().and_then(|it| it.persistent_volume_claim_retention_policy.as_ref());
    policy.is_some_and(|it| it.when_deleted.as_deref() == Some("Delete"))
}

/// Creates or changes the network policy, and remembers that this operator has done so.
async fn make_policy(
    federation: &Federation,
    desired: &Desired,
    context: &Context,
) -> Result<Option<Obstacle>, ApplyError> {
    let obstacle = make_object(federation, &desired.policy, context).await?;
    let uid = federation.uid().unwrap_or_default();
    context.session(&uid, |it| it.has_policy = obstacle.is_none());
    Ok(obstacle)
}

/// Creates the file unless it already exists, because it must keep the federation as it was first applied.
async fn make_file(
    federation: &Federation,
    file: &ConfigMap,
    context: &Context,
) -> Result<Option<Obstacle>, ApplyError> {
    match find_object(federation, file, context).await? {
        Some(there) => Ok(taken(federation, &there)),
        None => make_object(federation, file, context).await,
    }
}

/// Creates or changes an object, unless it belongs to another owner.
async fn make_object<K: Owned>(
    federation: &Federation,
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

/// An object that belongs to a federation, in the federation's namespace.
trait Owned:
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

fn objects<K: Owned>(federation: &Federation, context: &Context) -> Api<K> {
    Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default())
}

/// Returns the metadata of the existing object with this object's name, if there is one.
async fn find_object<K: Owned>(
    federation: &Federation,
    object: &K,
    context: &Context,
) -> Result<Option<PartialObjectMeta<K>>, ApplyError> {
    let name = object.name_any();
    let found = objects::<K>(federation, context).get_metadata_opt(&name).await;
    found.map_err(|it| ApplyError::Make(name, it))
}

/// Creates or changes an object, regardless of its owner.
async fn write_object<K: Owned>(federation: &Federation, object: &K, context: &Context) -> kube::Result<K> {
    let parameters = PatchParams::apply(naming::FIELD_MANAGER).force();
    objects(federation, context).patch(&object.name_any(), &parameters, &Patch::Apply(object)).await
}

/// Sets the number of pods of a set, and records the end of the run. Leaves everything else unchanged.
async fn scale(federation: &Federation, drift: &Drift, context: &Context) -> Result<(), ApplyError> {
    let sets: Api<StatefulSet> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
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
async fn wake(federation: &Federation, set: &str, context: &Context) -> Result<(), ApplyError> {
    let sets: Api<StatefulSet> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
    let now = Timestamp::now().to_string();
    let patch = json!({ "metadata": { "annotations": { naming::WOKEN: now } } });
    let parameters =
        PatchParams { field_manager: Some(naming::FIELD_MANAGER.into()), ..PatchParams::default() };
    let woken = sets.patch(set, &parameters, &Patch::Merge(patch)).await;
    ignore_missing(woken).map_err(|it| ApplyError::Make(set.to_owned(), it))
}

/// Returns an obstacle if an object with the desired name belongs to another owner.
fn taken<K: Resource<DynamicType = ()>>(
    federation: &Federation,
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
fn refused(name: String, error: kube::Error) -> Result<Option<Obstacle>, ApplyError> {
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

/// Sends the places of the processes and the changed spec to the supervisor, and carries out its requests. Data that
/// the supervisor does not receive is sent again at the next reconciliation. Returns the reason if the supervisor cannot
/// read the changed spec.
async fn update_supervisor(
    federation: &Federation,
    observed: &Observed,
    desired: &Desired,
    context: &Context,
) -> Result<Option<String>, ApplyError> {
    if desired.places.is_none() && desired.amended.is_none() && desired.orders.is_empty() {
        return Ok(None);
    }
    let Some(address) = observed.supervisor().and_then(|pod| build::address(pod)) else { return Ok(None) };
    let supervisor = find_supervisor(federation, address, context).await?;
    if let Some(places) = &desired.places {
        match supervisor.places(places).await {
            Ok(()) => {
                let uid = federation.uid().unwrap_or_default();
                context.session(&uid, |it| it.pushed = Some(places.clone()));
            }
            Err(error) => context.warn(federation, "cannot send places to the supervisor", &error),
        }
    }
    let mut unread_change = None;
    if let Some(amended) = &desired.amended
        && let Err(error) = supervisor.amend(amended).await
    {
        context.warn(federation, "the supervisor did not accept the changed spec", &error);
        // The supervisor reports any other refusal in its next status.
        unread_change = is_unread(&error).then(|| format!("the supervisor cannot read it: {error}"));
    }
    let mut accepts_answers = true;
    // A request that cannot be carried out does not hold up those for other processes.
    let mut carried_out = Ok(());
    for order in &desired.orders {
        match order {
            SupervisorRequest::Delete { pod, uid, claim } => {
                let deleted = delete_pod(federation, pod, uid, claim.as_deref(), context).await;
                carried_out = carried_out.and(deleted);
            }
            // If the supervisor hangs, waiting for it once is enough.
            SupervisorRequest::Done { request } if accepts_answers => {
                if let Err(error) = supervisor.done(*request).await {
                    accepts_answers = false;
                    context.warn(federation, "cannot report a request as done", &error);
                }
            }
            SupervisorRequest::Done { .. } => {}
        }
    }
    carried_out.map(|()| unread_change)
}

/// Returns whether a supervisor cannot read a spec, as one of another version or with a smaller limit.
fn is_unread(error: &SupervisorError) -> bool {
    use SupervisorError::Refused;
    matches!(
        error,
        Refused(StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::PAYLOAD_TOO_LARGE, _)
    )
}

/// Deletes a pod. If `claim` is given, deletes that claim first: Kubernetes keeps it until the pod is gone,
/// and the next pod gets a new claim. Does nothing if the pod is already gone or has been replaced.
async fn delete_pod(
    federation: &Federation,
    pod: &str,
    uid: &str,
    claim: Option<&str>,
    context: &Context,
) -> Result<(), ApplyError> {
    let namespace = federation.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
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
    federation: &Federation,
    pod: &Pod,
    claim: &str,
    context: &Context,
) -> Result<(), ApplyError> {
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(context.client.clone(), &federation.namespace().unwrap_or_default());
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
fn exactly(uid: Option<String>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default()
    }
}

/// Treats the failure of a request as a success if the object is gone, or has been replaced or changed.
fn ignore_missing<T>(answer: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
