//! Pods that have the name of a federation's pod, but are not among the pods that the operator watches: those of other
//! owners, and the federation's own after a change to their labels.
//!
//! Either keeps a StatefulSet from creating its pod, which Kubernetes does not report as an event. A StatefulSet also
//! gives up a pod whose labels no longer match: the pod has no owner afterwards, so it would outlive the federation.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use faultline_client::naming;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::dereference::Observed;
use super::freeze::Frozen;
use super::objects::find_by_name;
use crate::context::Context;
use crate::federation_cache::{Misplaced, Origin};
use crate::object_cache::{controller, is_controlled};
use crate::pod_state;

/// Minimum time between two searches. Usually, pods are missing only because they have not been created yet.
const SEARCHED_EVERY: Duration = Duration::from_secs(3);
/// Maximum number of missing pods that a search during a run considers.
const AT_ONCE: usize = 8;
/// Number of parallel requests of a search.
const IN_PARALLEL: usize = 16;

/// Returns the pod as misplaced, unless the operator's watch will show it. `set` is the UID of the StatefulSet that
/// creates a pod with this name, and `federation` that of the federation.
fn misplaced(pod: &Pod, set: Option<&str>, federation: &str) -> Option<Misplaced> {
    let is_watched = || {
        let manager = pod.labels().get("app.kubernetes.io/managed-by");
        manager.is_some_and(|it| it == naming::FIELD_MANAGER) && pod.labels().contains_key(naming::UID)
    };
    let origin = match controller(pod) {
        Some(_) if is_controlled(pod, set) && is_watched() => return None,
        Some(_) if is_controlled(pod, set) => Origin::Federation,
        None if pod_state::is_marked(pod, federation) => Origin::Federation,
        owner => Origin::Elsewhere(owner.map(|it| format!("the {} {}", it.kind, it.name))),
    };
    Some(Misplaced {
        pod: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        origin,
        is_ending: pod.metadata.deletion_timestamp.is_some(),
    })
}

/// The result of a search for misplaced pods.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Pods that have the names of missing ones.
    pub found: Vec<Misplaced>,
    /// StatefulSets that can create a pod which a misplaced one prevented until now. They may wait for minutes before
    /// their next attempt, unless they change.
    pub unblocked: BTreeSet<String>,
}

/// Looks for pods with the names of missing ones, at most once per [`SEARCHED_EVERY`].
///
/// # Errors
///
/// Fails if the API server does not list pods.
pub async fn in_place_of_missing(
    observed: &Observed,
    frozen: &Frozen,
    context: &Context,
) -> Result<Search, kube::Error> {
    let federation = &*frozen.federation;
    let missing = frozen.pod_names().filter_map(|(set, pod)| {
        let set = observed.sets.get(&set).filter(|_| !observed.pods.contains_key(&pod))?;
        Some((pod, set.uid()))
    });
    let missing: Vec<(String, Option<String>)> = missing.take(AT_ONCE).collect();
    if missing.is_empty() {
        context.cache(federation, |it| it.misplaced = None);
        return Ok(Search::default());
    }
    let known = context
        .cache(federation, |it| it.misplaced.get_or_insert_with(|| (Instant::now(), Vec::new())).clone());
    if known.0.elapsed() < SEARCHED_EVERY {
        return Ok(Search { found: known.1, ..Search::default() });
    }
    let found = with_names(federation, missing.clone(), context).await?;
    let was_in_place = |pod: &str| known.1.iter().any(|it| it.pod == pod);
    let is_in_place = |pod: &str| found.iter().any(|it| it.pod == pod);
    let unblocked = missing.iter().filter(|(pod, _)| was_in_place(pod) && !is_in_place(pod));
    let unblocked =
        unblocked.filter_map(|(pod, _)| pod.rsplit_once('-')).map(|(set, _)| set.to_owned()).collect();
    context.cache(federation, |it| it.misplaced = Some((Instant::now(), found.clone())));
    Ok(Search { found, unblocked })
}

/// Remembers that these pods are being deleted.
pub fn deleted(
    federation: &faultline_client::object::FederationObject,
    pods: &[Misplaced],
    context: &Context,
) {
    context.cache(federation, |it| {
        let known = it.misplaced.iter_mut().flat_map(|it| &mut it.1);
        known.filter(|known| pods.contains(known)).for_each(|it| it.is_ending = true);
    });
}

/// Returns the misplaced pods with these names. Each name comes with the UID of the StatefulSet that creates a pod of
/// this name.
///
/// # Errors
///
/// Fails if the API server does not list pods.
pub async fn with_names<F: ResourceExt>(
    federation: &F,
    names: Vec<(String, Option<String>)>,
    context: &Context,
) -> Result<Vec<Misplaced>, kube::Error> {
    let uid = federation.meta().uid.as_deref().unwrap_or_default();
    let pods = context.api::<Pod>(federation);
    let found = stream::iter(names).map(|(name, set)| {
        let pods = pods.clone();
        async move {
            let pod = find_by_name(&pods, &name).await?;
            Ok(pod.and_then(|it| misplaced(&it, set.as_deref(), uid)))
        }
    });
    found.buffer_unordered(IN_PARALLEL).try_filter_map(async |it| Ok(it)).try_collect().await
}
