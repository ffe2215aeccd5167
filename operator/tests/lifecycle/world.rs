//! An API server, a supervisor whose status the test sets, and an operator between them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post, put};
use faultline_api::supervision::{
    self, Amended, Amendment, EVENTS_PER_STATUS, Places, Request, RequestedAction, RunEvent, RunStatus,
    RunVerdict,
};
use faultline_client::object::FederationObject;
use faultline_client::status::FederationStatus;
use faultline_operator::cached_federation::CachedFederation;
use faultline_operator::limits::Pace;
use faultline_operator::metrics::Metrics;
use faultline_operator::object_cache::{self, ObjectCache};
use faultline_operator::reconcile::{ReconcileError, reconcile};
use faultline_operator::{Context, Settings};
use kube::Resource;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::common::ApiServer;

pub(crate) const UID: &str = "11111111-2222-3333-4444-555555555555";
pub(crate) const FEDERATION: &str =
    "/apis/faultline.dev/v1alpha1/namespaces/experiments/federations/quickstart";
pub(crate) const SETS: &str = "/apis/apps/v1/namespaces/experiments/statefulsets";
pub(crate) const PODS: &str = "/api/v1/namespaces/experiments/pods";
pub(crate) const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/experiments/events";
pub(crate) const CLAIMS: &str = "/api/v1/namespaces/experiments/persistentvolumeclaims";
pub(crate) const KEY: &str = "/api/v1/namespaces/experiments/secrets/quickstart-key";
pub(crate) const BUDGET: &str =
    "/apis/policy/v1/namespaces/experiments/poddisruptionbudgets/quickstart-supervisor";
pub(crate) const FILE: &str = "/api/v1/namespaces/experiments/configmaps/quickstart-federation";
pub(crate) const READER: &str = "/api/v1/namespaces/experiments/secrets/quickstart-reader";

/// A supervisor with a status that the test sets.
#[derive(Clone, Default)]
pub(crate) struct Supervisor {
    pub(crate) says: Arc<Mutex<RunStatus>>,
    pub(crate) places: Arc<Mutex<Vec<Places>>>,
    pub(crate) done: Arc<Mutex<Vec<u64>>>,
    /// Number of requests to mark a request as done, whether or not the supervisor answers them.
    pub(crate) told: Arc<AtomicUsize>,
    pub(crate) refuses_done: Arc<AtomicBool>,
    /// Whether the supervisor cannot read changed specs.
    pub(crate) refuses_specs: Arc<AtomicBool>,
    /// Whether the last spec pauses the run.
    pub(crate) paused: Arc<AtomicBool>,
    pub(crate) tokens: Arc<Mutex<BTreeSet<String>>>,
}

impl Supervisor {
    pub(crate) async fn start(&self) -> SocketAddr {
        self.serve_at("127.0.0.1:0").await
    }

    pub(crate) async fn serve_at(&self, address: &str) -> SocketAddr {
        let app = Router::new()
            .route(supervision::STATUS, get(status))
            .route(supervision::PLACES, put(places))
            .route(supervision::SPEC, put(spec))
            .route("/v1/requests/{id}/done", post(done))
            .with_state(self.clone());
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async { axum::serve(listener, app).await });
        address
    }

    pub(crate) fn say(&self, change: impl FnOnce(&mut RunStatus)) {
        change(&mut self.says.lock().unwrap());
    }
}

pub(crate) async fn status(
    State(it): State<Supervisor>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Vec<u8> {
    it.tokens.lock().unwrap().insert(headers["authorization"].to_str().unwrap().to_owned());
    let after: u64 = query.unwrap().strip_prefix("after=").unwrap().parse().unwrap();
    let mut said = it.says.lock().unwrap().clone();
    said.newest_event = said.events.last().map_or(0, |it| it.number);
    said.events.retain(|it| it.number > after);
    said.events.truncate(EVENTS_PER_STATUS);
    serde_json::to_vec(&said).unwrap()
}

pub(crate) async fn places(State(it): State<Supervisor>, body: axum::body::Bytes) {
    let places: Places = serde_json::from_slice(&body).unwrap();
    it.say(|it| it.generation = places.generation);
    it.places.lock().unwrap().push(places);
}

pub(crate) async fn spec(State(it): State<Supervisor>, body: axum::body::Bytes) -> StatusCode {
    if it.refuses_specs.load(Relaxed) {
        return StatusCode::BAD_REQUEST;
    }
    let amended: Amended = serde_json::from_slice(&body).unwrap();
    it.paused.store(amended.spec.pause, Relaxed);
    it.say(|it| it.amendment = Some(Amendment { generation: amended.generation, refused: None }));
    StatusCode::OK
}

pub(crate) async fn done(State(it): State<Supervisor>, Path(id): Path<u64>) -> StatusCode {
    it.told.fetch_add(1, Relaxed);
    if it.refuses_done.load(Relaxed) {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    it.done.lock().unwrap().push(id);
    it.say(|it| it.requests.retain(|it| it.id != id));
    StatusCode::NO_CONTENT
}

pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) supervisor: Supervisor,
    pub(crate) context: Arc<Context>,
    pub(crate) port: u16,
}

impl World {
    pub(crate) async fn new() -> World {
        World::of("quickstart").await
    }

    /// Creates a world with a sample under the name of the quick start.
    pub(crate) async fn of(sample: &str) -> World {
        let (server, supervisor) = (ApiServer::default(), Supervisor::default());
        let of_system = || faultline_api::samples::SYSTEMS.iter().find(|it| it.name == sample);
        let text = faultline_api::samples::sample(sample).or_else(of_system).expect("it is a sample").text;
        let parsed = faultline_api::parse(sample, text.as_bytes()).unwrap();
        let mut federation = serde_json::to_value(parsed).unwrap();
        let metadata = json!({
            "name": "quickstart", "namespace": "experiments", "uid": UID, "generation": 1, "resourceVersion": "1",
        });
        for (name, value) in metadata.as_object().unwrap() {
            federation["metadata"][name] = value.clone();
        }
        server.put(FEDERATION, federation);
        let port = supervisor.start().await.port();
        let context = context(&server, port);
        World { server, supervisor, context, port }
    }

    /// Replaces the operator with a new one that has no state.
    pub(crate) fn restart(&mut self) {
        self.context = context(&self.server, self.port);
    }

    pub(crate) fn federation(&self) -> FederationObject {
        serde_json::from_value(self.server.get(FEDERATION).expect("it is there")).unwrap()
    }

    /// Returns the status, even if the spec cannot be read.
    pub(crate) fn status(&self) -> FederationStatus {
        let status = self.server.get(FEDERATION).expect("it is there")["status"].clone();
        serde_json::from_value(status).expect("it has a status")
    }

    pub(crate) fn condition(&self, kind: &str) -> String {
        let status = self.status();
        let it = status.condition(kind).expect("the condition exists");
        format!("{} {}", it.status, it.reason)
    }

    /// Updates the caches as watches would, then reconciles once.
    pub(crate) async fn look(&self) -> Result<(), ReconcileError> {
        self.look_for_next().await.map(drop)
    }

    /// Does the same, and returns what triggers the next reconciliation.
    pub(crate) async fn look_for_next(&self) -> Result<Action, ReconcileError> {
        self.update_caches();
        self.reconcile().await
    }

    pub(crate) fn update_caches(&self) {
        self.watch(&self.context.sets, "/statefulsets/", object_cache::owner_of_set);
        self.watch(&self.context.pods, "/pods/", |it| object_cache::owner_of_pod(it, &self.context.sets));
    }

    /// Reconciles with the caches as they are.
    pub(crate) async fn reconcile(&self) -> Result<Action, ReconcileError> {
        // A status is written at most once per second, and a failed attempt to create events is repeated after half a
        // minute, but a test must not wait that long.
        self.context.session(UID, |it| {
            it.statuses = Pace::default();
            it.unreported.due = it.unreported.due.map(|_| Instant::now());
        });
        self.reconcile_now().await
    }

    /// Does the same, but not earlier than the limits on writes permit.
    pub(crate) async fn reconcile_now(&self) -> Result<Action, ReconcileError> {
        let federation = self.server.get(FEDERATION).expect("it is there");
        let federation: CachedFederation = serde_json::from_value(federation).unwrap();
        reconcile(&federation, &self.context).await
    }

    /// Creates a world in which the objects of the federation have been created, except its pods.
    pub(crate) async fn created() -> World {
        let world = World::new().await;
        world.look().await.unwrap();
        world.look().await.unwrap();
        world
    }

    /// Creates a world in which the operator has seen all pods of the federation.
    pub(crate) async fn started() -> World {
        let world = World::created().await;
        world.make_pods();
        world.look().await.unwrap();
        world
    }

    /// Creates a world whose run has ended with a verdict.
    pub(crate) async fn judged() -> World {
        let mut world = World::new().await;
        run_to_the_verdict(&mut world, async |world| world.look().await.unwrap()).await;
        world
    }

    /// Creates a world in which the federation has started, with these options for its pods.
    pub(crate) async fn running(kubernetes: Value) -> World {
        let world = World::new().await;
        let mut federation = world.server.get(FEDERATION).unwrap();
        federation["spec"]["kubernetes"] = kubernetes;
        world.server.put(FEDERATION, federation);
        world.look().await.unwrap();
        world.look().await.unwrap();
        world.make_pods();
        world.supervisor.say(|it| it.phase = supervision::RunPhase::Running);
        world.look().await.unwrap();
        world
    }

    pub(crate) fn uid_of(&self, path: &str) -> String {
        self.server.get(path).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Creates the claim of a pod's volume, as the StatefulSet controller would, with these owners.
    pub(crate) fn make_claim(&self, pod: &str, owners: Value) -> String {
        let path = format!("{CLAIMS}/data-{pod}");
        let metadata = json!({
            "name": format!("data-{pod}"), "namespace": "experiments", "uid": format!("claim of {pod}"),
            "labels": { "faultline.dev/uid": UID }, "ownerReferences": owners,
        });
        self.server.put(&path, json!({ "metadata": metadata }));
        path
    }

    /// Returns the reference with which a set owns the claims of its pods.
    pub(crate) fn owner(&self, set: &str) -> Value {
        let uid = self.uid_of(&format!("{SETS}/{set}"));
        json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": uid }])
    }

    /// Has the supervisor request the deletion of a process's pod and its volume.
    pub(crate) fn request_volume(&self, process: &str, uid: &str) {
        let action = RequestedAction::DeleteVolume;
        let request = Request { id: 1, action, process: process.into(), uid: uid.into() };
        self.supervisor.say(|it| it.requests = vec![request]);
    }

    /// Fills a cache with the existing objects of every namespace.
    pub(crate) fn watch<K>(
        &self,
        cache: &ObjectCache<K>,
        kind: &str,
        owner: impl Fn(&K) -> Option<ObjectRef<FederationObject>>,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
    {
        cache.follow(Event::Init, &owner);
        for path in self.server.paths("/").iter().filter(|it| it.contains(kind)) {
            let object: K = serde_json::from_value(self.server.get(path).unwrap()).unwrap();
            cache.follow(Event::InitApply(object), &owner);
        }
        cache.follow(Event::InitDone, owner);
    }

    /// Deletes the federation, as a user would.
    pub(crate) fn delete_federation(&self) {
        let mut federation = self.server.get(FEDERATION).unwrap();
        federation["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.server.put(FEDERATION, federation);
    }

    /// Acts as the garbage collector: removes the pods of sets that are being deleted, then the sets.
    pub(crate) fn collect_garbage(&self) {
        for path in self.server.paths(&format!("{SETS}/")) {
            let set = self.server.get(&path).unwrap();
            if set["metadata"]["deletionTimestamp"].is_string() {
                let is_of_set =
                    |it: &Value| it["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"];
                let pods = self.server.paths(&format!("{PODS}/")).into_iter();
                pods.filter(|it| is_of_set(&self.server.get(it).unwrap()))
                    .for_each(|it| self.server.remove(&it));
                self.server.remove(&path);
            }
        }
    }

    /// Acts as the StatefulSet controller: creates the missing pods of every set.
    pub(crate) fn make_pods(&self) {
        for path in self.server.paths(&format!("{SETS}/")) {
            let set = self.server.get(&path).unwrap();
            let replicas = set["spec"]["replicas"].as_u64().unwrap();
            for number in 0..replicas {
                let name = format!("{}-{number}", set["metadata"]["name"].as_str().unwrap());
                let path = format!("{PODS}/{name}");
                if self.server.get(&path).is_none() {
                    self.server.put(&path, pod(&name, &set));
                }
            }
        }
    }

    /// Returns the paths of all objects except events, which are compared by their notes.
    pub(crate) fn made(&self) -> Vec<String> {
        self.server.paths("/").into_iter().filter(|it| !it.starts_with(EVENTS)).collect()
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let events = self.server.paths(&format!("{EVENTS}/"));
        let note = |it: &String| self.server.get(it).unwrap()["note"].as_str().unwrap().to_owned();
        let mut notes: Vec<String> = events.iter().map(note).collect();
        notes.sort();
        notes
    }
}

pub(crate) fn context(server: &ApiServer, port: u16) -> Arc<Context> {
    let allow_images = vec!["pages:1".to_owned()];
    let settings = Settings { supervisor_api_port: port, allow_images, ..Settings::default() };
    Arc::new(Context::new(server.client(), settings, "test".into(), Arc::new(Metrics::default())))
}

pub(crate) fn pod(name: &str, set: &Value) -> Value {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "controller": true,
        "name": set["metadata"]["name"], "uid": set["metadata"]["uid"],
    });
    json!({
        "metadata": {
            "name": name, "namespace": "experiments", "uid": format!("pod {number}"),
            "labels": set["spec"]["template"]["metadata"]["labels"], "ownerReferences": [owner],
        },
        "spec": set["spec"]["template"]["spec"],
        "status": { "podIP": "127.0.0.1", "containerStatuses": [{
            "name": "faultline", "state": { "running": {} },
            "ready": true, "restartCount": 0, "image": "", "imageID": "",
        }] },
    })
}

pub(crate) fn supervisor_event(number: u64, reason: &str, text: &str) -> RunEvent {
    RunEvent {
        number,
        at_seconds: None,
        reason: reason.into(),
        warning: false,
        text: text.into(),
        age_micros: None,
    }
}

/// Runs a federation from `kubectl apply` to the verdict, with one or two reconciliations for each step.
pub(crate) async fn run_to_the_verdict(world: &mut World, mut look: impl AsyncFnMut(&mut World)) {
    look(world).await;
    look(world).await;
    world.make_pods();
    look(world).await;
    look(world).await;
    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Running;
        it.events = vec![supervisor_event(1, "Started", "The application has begun.")];
    });
    look(world).await;
    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Completed;
        it.verdict = Some(RunVerdict::Pass);
        it.events.push(supervisor_event(2, "Completed", "The verdict is pass."));
    });
    look(world).await;
    look(world).await;
}

/// Applies a changed spec.
pub(crate) fn change(world: &World, generation: u64, change: impl Fn(&mut Value)) {
    let mut federation = world.server.get(FEDERATION).unwrap();
    change(&mut federation["spec"]);
    federation["metadata"]["generation"] = json!(generation);
    world.server.put(FEDERATION, federation);
}

/// Creates an object as another user could.
pub(crate) fn forge(world: &World, kind: &str, namespace: &str, name: &str, mut object: Value) {
    let path = match kind {
        "statefulsets" => format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}"),
        kind => format!("/api/v1/namespaces/{namespace}/{kind}/{name}"),
    };
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["uid"] = json!(format!("forged {namespace} {name}"));
    world.server.put(&path, object);
}
