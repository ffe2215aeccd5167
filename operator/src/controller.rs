//! Watches the objects of federations, and decides when a federation is reconciled.
//!
//! Sets and pods have watches of their own instead of `Controller::owns`, for three reasons. A pod is controlled by a
//! set, not by a federation, and `owns` finds only direct owners. Each reconciliation reads the sets and pods from
//! caches that must be complete before the first one, and `owns` passes on only the names of owners, so the caches
//! would need a second watch for the same objects. Finally, these watches trim objects before they are stored, because
//! there may be thousands of pods.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faultline_client::object::FederationObject;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::controller::{self, Action, Config, Controller};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::cached_federation::CachedFederation;
use crate::context::{CONCURRENCY, Context};
use crate::election::GRACE;
use crate::naming;
use crate::object_cache;
use crate::pages::PAGE;
use crate::reconcile::{ReconcileError, reconcile};

/// Changes within this time are handled together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Delay of a reconciliation whose federation has used up its [share](Shares).
const DEFERRED: Duration = Duration::from_millis(50);
/// Duration of a reconciliation from which a federation counts as slow.
const SLOW: Duration = Duration::from_secs(2);
/// How long a federation counts as slow after a slow reconciliation.
const REMEMBERED: Duration = Duration::from_secs(300);
/// Longest value of a label or an annotation that is kept.
const LONGEST_VALUE: usize = 64;
/// Maximum number of finalizers that are kept. They are only reported.
const MAX_FINALIZERS: usize = 8;
/// Delay before the next attempt after a failure: initial and maximum.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Reconciles the federations of a namespace, or of all namespaces, until `stop` resolves or a watch ends. Once `stop`
/// resolves, reconciliations in progress have [`GRACE`] to finish; after that, they are cancelled.
pub async fn run(
    context: Arc<Context>,
    namespace: Option<&str>,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let stop = stop.shared();
    let too_late = {
        let stop = stop.clone();
        async move {
            stop.await;
            tokio::time::sleep(GRACE).await;
        }
    };
    let (touched, triggers) = unbounded();
    // Objects are trimmed only once their page has been decoded.
    let of_ours = watcher::Config::default().page_size(PAGE).labels(&naming::selector());
    let sets = follow(scoped(&context.client, namespace), of_ours.clone(), touched.clone(), {
        let context = Arc::clone(&context);
        move |event| context.sets.follow(event.modify(trim_set), object_cache::owner_of_set)
    });
    let pods = follow(scoped(&context.client, namespace), of_ours, touched, {
        let context = Arc::clone(&context);
        move |event| {
            let owner = |it: &Pod| object_cache::owner_of_pod(it, &context.sets);
            context.pods.follow(event.modify(trim_pod), owner)
        }
    });
    // Nothing is reconciled before the existing objects are known: a set that is not known yet would be created
    // again.
    let (sets_known, sets) = sets;
    let (pods_known, pods) = pods;
    let controller = async {
        if sets_known.await.is_err() || pods_known.await.is_err() {
            return;
        }
        let federations: Api<CachedFederation> = scoped(&context.client, namespace);
        let triggers = triggers.map(|it: ObjectRef<FederationObject>| {
            let name = ObjectRef::new(&it.name);
            it.namespace.iter().fold(name, |name, namespace| name.within(namespace))
        });
        let config = Config::default().debounce(DEBOUNCE).concurrency(CONCURRENCY);
        let (known, writer) = reflector::store();
        let changes = watcher(federations, watcher::Config::default().page_size(PAGE))
            .default_backoff()
            .reflect(writer)
            .applied_objects();
        Controller::for_stream(changes, known)
            .with_config(config)
            .reconcile_on(triggers)
            .graceful_shutdown_on(stop)
            .run(reconcile_cached, retry, Arc::clone(&context))
            .for_each(|done| async {
                match done {
                    Err(controller::Error::QueueError(error)) => {
                        tracing::warn!(%error, "the watch on federations failed; restarting it");
                    }
                    Err(controller::Error::ObjectNotFound(gone)) => {
                        let namespace = gone.namespace.as_deref().unwrap_or_default();
                        context.forget_others(&format!("{namespace}/{}", gone.name), None);
                    }
                    // Failed attempts have been reported by `reconcile_cached`.
                    _ => {}
                }
            })
            .await;
    };
    futures::select! {
        () = controller.fuse() => {}
        () = sets.fuse() => {}
        () = pods.fuse() => {}
        () = too_late.fuse() => tracing::warn!("cancelling reconciliations that did not finish within {GRACE:?}"),
    }
}

fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Removes the unused metadata of an object. Labels and annotations may occupy more than 1 MiB, and any user who may
/// create an object in some namespace can set all of them.
fn trim(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    for (values, used) in
        [(&mut metadata.labels, naming::CLUSTER), (&mut metadata.annotations, naming::APPLIED)]
    {
        if let Some(values) = values {
            values.retain(|key, value| key == used && value.len() <= LONGEST_VALUE);
        }
    }
    if let Some(owners) = &mut metadata.owner_references {
        owners.retain(|it| it.controller == Some(true));
    }
    if let Some(finalizers) = &mut metadata.finalizers {
        finalizers.truncate(MAX_FINALIZERS);
    }
}

/// Removes the unused fields of a pod, which make up most of its size, because there may be thousands of pods.
fn trim_pod(pod: &mut Pod) {
    trim(&mut pod.metadata);
    if let Some(spec) = &mut pod.spec {
        *spec = PodSpec { node_name: spec.node_name.take(), ..PodSpec::default() };
    }
}

/// Removes the fields of a stateful set that are not needed, because sets are compared by their hash annotations.
fn trim_set(set: &mut StatefulSet) {
    trim(&mut set.metadata);
    if let Some(spec) = &mut set.spec {
        *spec = StatefulSetSpec { replicas: spec.replicas, ..StatefulSetSpec::default() };
    }
}

/// Returns a receiver that resolves when the cache is first complete, and a future that keeps the cache up to date.
fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    touched: UnboundedSender<ObjectRef<FederationObject>>,
    cache: impl Fn(watcher::Event<K>) -> Vec<ObjectRef<FederationObject>>,
) -> (futures::channel::oneshot::Receiver<()>, impl Future<Output = ()>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (complete, known) = futures::channel::oneshot::channel();
    let keep_up = async move {
        let mut complete = Some(complete);
        let mut events = watcher(api, config).default_backoff().boxed();
        loop {
            match events.try_next().await {
                Ok(Some(event)) => {
                    let is_complete = matches!(event, watcher::Event::InitDone);
                    for federation in cache(event) {
                        // The receiver has been dropped only if the controller has ended.
                        let _ = touched.unbounded_send(federation);
                    }
                    if let Some(complete) = complete.take_if(|_| is_complete) {
                        let _ = complete.send(());
                    }
                }
                Ok(None) => return,
                Err(error) => tracing::warn!(%error, kind = %K::kind(&()), "a watch failed; restarting it"),
            }
        }
    };
    (known, keep_up)
}

async fn reconcile_cached(
    federation: Arc<CachedFederation>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let namespace = federation.namespace().unwrap_or_default();
    let uid = federation.uid().unwrap_or_default();
    let is_slow = context.session(&uid, |it| it.slow.is_some_and(|it| it.elapsed() < REMEMBERED));
    let Some(_permit) = context.shares.admit(&namespace, is_slow) else {
        return Ok(Action::requeue(DEFERRED));
    };
    let begun = Instant::now();
    let name = format!("{namespace}/{}", federation.name_any());
    context.forget_others(&name, Some(&uid));
    let result = reconcile(&federation, &context).await;
    context.metrics.reconciled(begun.elapsed(), result.is_ok());
    // The reconciliation may have completed the deletion.
    context.update_session(&uid, |it| {
        it.failures = if result.is_ok() { 0 } else { it.failures + 1 };
        it.slow = Some(Instant::now()).filter(|_| begun.elapsed() >= SLOW).or(it.slow);
    });
    if let Err(error) = &result {
        tracing::warn!(federation = name, %error, "a reconciliation failed");
    }
    result
}

fn retry(federation: Arc<CachedFederation>, _: &ReconcileError, context: Arc<Context>) -> Action {
    let failures = context.session(&federation.uid().unwrap_or_default(), |it| it.failures);
    Action::requeue(pause_after(failures))
}

/// Doubles the delay after each failure, up to the maximum.
fn pause_after(failures: u32) -> Duration {
    let (first, most) = RETRY;
    (first * 2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(most)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The metadata of a cached object cannot exhaust the operator's memory.
    #[test]
    fn a_cached_object_keeps_only_the_metadata_that_is_used() {
        let long = "x".repeat(200_000);
        let owner = |controller| serde_json::json!({ "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b", "controller": controller });
        let foreign: BTreeMap<String, String> =
            (0..20_000).map(|it| (format!("l{it}"), "v".into())).collect();
        let mut set: StatefulSet = serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "s",
                "labels": { "a": "b", naming::CLUSTER: "paris" },
                "annotations": { "a": long, naming::APPLIED: "hash" },
                "ownerReferences": [owner(false), owner(true)],
                "finalizers": vec!["a/b"; 10_000],
            },
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": foreign },
                "serviceName": "s",
                "template": { "metadata": { "labels": foreign } },
            },
        }))
        .expect("a set");
        trim_set(&mut set);
        assert!(serde_json::to_vec(&set).unwrap().len() < 1_000, "{set:?}");
        assert_eq!(set.spec.as_ref().and_then(|it| it.replicas), Some(2));
        assert_eq!(set.labels().get(naming::CLUSTER).map(String::as_str), Some("paris"));
        assert_eq!(set.annotations().get(naming::APPLIED).map(String::as_str), Some("hash"));
        assert_eq!((set.owner_references().len(), set.finalizers().len()), (1, MAX_FINALIZERS));
        set.annotations_mut().insert(naming::APPLIED.into(), long);
        trim_set(&mut set);
        assert!(set.annotations().is_empty());
    }

    #[test]
    fn failures_are_retried_with_increasing_delays() {
        let pauses: Vec<u128> = [0, 1, 2, 3, 7, 100].map(|it| pause_after(it).as_millis()).into();
        assert_eq!(pauses, [500, 500, 1000, 2000, 30_000, 30_000]);
    }
}
