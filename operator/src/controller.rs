//! What is watched, and when a federation is looked at.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use faultline_api::Federation;
use faultline_api::supervision::Places;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::metrics::Metrics;
use crate::mirror::{self, Mirror};
use crate::naming;
use crate::reconcile::keys::Known;
use crate::reconcile::update_status::Pace;
use crate::reconcile::validate::Refusal;
use crate::reconcile::{ReconcileError, reconcile};
use crate::settings::Settings;

/// Changes that come within this time are looked at together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// Federations looked at at the same time.
const CONCURRENCY: u16 = 32;
/// When to look again after a failure, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What a look at a federation needs.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// See [`Settings`].
    pub settings: Settings,
    /// Which of several operators this is.
    pub identity: String,
    /// The sets of pods.
    pub sets: Mirror<StatefulSet>,
    /// The pods.
    pub pods: Mirror<Pod>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    sessions: Mutex<HashMap<String, Session>>,
}

/// What is remembered of a federation to spare the API server and the supervisor; all of it can be found again.
#[derive(Clone, Default)]
pub struct Session {
    /// The federation's key.
    pub key: Option<Known>,
    /// The places that the supervisor was told last.
    pub pushed: Option<Places>,
    /// When its status may be written.
    pub statuses: Pace,
    /// UIDs of its sets, once it is being deleted: volumes that these own are gone after them.
    pub ending: BTreeSet<String>,
    /// When it was asked last why there are no pods, and what was found.
    pub refused: Option<(Instant, Option<String>)>,
    /// The generation that was checked last, and whether it can be run.
    pub checked: Option<(i64, Result<(), Refusal>)>,
    /// Failures in a row.
    pub failures: u32,
}

impl Context {
    /// A context that knows nothing yet.
    pub fn new(client: Client, settings: Settings, identity: String, metrics: Arc<Metrics>) -> Context {
        Context {
            client,
            settings,
            identity,
            sets: Mirror::default(),
            pods: Mirror::default(),
            metrics,
            sessions: Mutex::default(),
        }
    }

    /// Reads or changes what is remembered of the federation with this UID.
    pub fn session<T>(&self, uid: &str, look: impl FnOnce(&mut Session) -> T) -> T {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        look(sessions.entry(uid.to_owned()).or_default())
    }

    /// How many federations there are.
    pub fn federations(&self) -> u32 {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).len() as u32
    }

    /// Forgets the federation with this UID.
    pub fn forget(&self, uid: &str) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

/// Looks after the federations of a namespace, or of all, until `stop` resolves.
pub async fn run(
    context: Arc<Context>,
    namespace: Option<&str>,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let (touched, triggers) = unbounded();
    let of_ours = watcher::Config::default().labels(&naming::selector());
    let sets = follow(scoped(&context.client, namespace), of_ours.clone(), touched.clone(), {
        let context = Arc::clone(&context);
        move |event| context.sets.follow(event.modify(trim_set), mirror::owner_of_set)
    });
    let pods = follow(scoped(&context.client, namespace), of_ours, touched, {
        let context = Arc::clone(&context);
        move |event| {
            let owner = |it: &Pod| mirror::owner_of_pod(it, &context.sets);
            context.pods.follow(event.modify(trim_pod), owner)
        }
    });
    // Nothing is looked at before it is known what there is: a set that is not known yet would be made again.
    let (sets_known, sets) = sets;
    let (pods_known, pods) = pods;
    let controller = async {
        if sets_known.await.is_err() || pods_known.await.is_err() {
            return;
        }
        let federations: Api<Federation> = scoped(&context.client, namespace);
        let config = Config::default().debounce(DEBOUNCE).concurrency(CONCURRENCY);
        Controller::new(federations, watcher::Config::default())
            .with_config(config)
            .reconcile_on(triggers)
            .graceful_shutdown_on(stop)
            .run(look, retry, Arc::clone(&context))
            .for_each(|done| async {
                // Failed looks have been reported by `look`.
                if let Err(kube::runtime::controller::Error::QueueError(error)) = done {
                    tracing::warn!(%error, "the watch of the federations broke and begins anew");
                }
            })
            .await;
    };
    futures::select! {
        () = controller.fuse() => {}
        () = sets.fuse() => {}
        () = pods.fuse() => {}
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

/// Leaves out of a pod what nobody looks at, which is most of it: there may be thousands.
fn trim_pod(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    pod.spec = None;
}

/// Leaves out of a set what its hash says in short.
fn trim_set(set: &mut StatefulSet) {
    set.metadata.managed_fields = None;
    if let Some(spec) = &mut set.spec {
        spec.template = PodTemplateSpec::default();
        spec.volume_claim_templates = None;
    }
}

/// Keeps a mirror up. Returns what resolves when it is first complete, and what keeps it up.
fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    touched: UnboundedSender<ObjectRef<Federation>>,
    mirror: impl Fn(watcher::Event<K>) -> Vec<ObjectRef<Federation>>,
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
                    for federation in mirror(event) {
                        // The controller has ended when nobody listens.
                        let _ = touched.unbounded_send(federation);
                    }
                    if let Some(complete) = complete.take_if(|_| is_complete) {
                        let _ = complete.send(());
                    }
                }
                Ok(None) => return,
                Err(error) => tracing::warn!(%error, kind = %K::kind(&()), "a watch broke and begins anew"),
            }
        }
    };
    (known, keep_up)
}

async fn look(federation: Arc<Federation>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let begun = Instant::now();
    let name = format!("{}/{}", federation.namespace().unwrap_or_default(), federation.name_any());
    let uid = federation.uid().unwrap_or_default();
    let result = reconcile(federation, Arc::clone(&context)).await;
    context.metrics.looked(begun.elapsed(), result.is_ok());
    match &result {
        Ok(_) => context.session(&uid, |it| it.failures = 0),
        Err(error) => {
            context.session(&uid, |it| it.failures += 1);
            tracing::warn!(federation = name, %error, "a look failed");
        }
    }
    result
}

fn retry(federation: Arc<Federation>, _: &ReconcileError, context: Arc<Context>) -> Action {
    let failures = context.session(&federation.uid().unwrap_or_default(), |it| it.failures);
    Action::requeue(pause_after(failures))
}

/// Twice as long after each failure.
fn pause_after(failures: u32) -> Duration {
    let (first, most) = RETRY;
    (first * 2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_retried_ever_more_patiently() {
        let pauses: Vec<u128> = [0, 1, 2, 3, 7, 100].map(|it| pause_after(it).as_millis()).into();
        assert_eq!(pauses, [500, 500, 1000, 2000, 30_000, 30_000]);
    }
}
