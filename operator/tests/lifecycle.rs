//! The whole lifecycle of a federation, with an in-memory API server and a supervisor whose status the test sets: the
//! order of writes, restarts of the operator at any point, and the permissions used.

mod common;
#[path = "lifecycle/election.rs"]
mod election;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post, put};
use faultline_api::Federation;
use faultline_api::resource::{FederationStatus, Phase};
use faultline_api::supervision::{
    self, Amended, Amendment, ClusterReport, ClusterState, EVENTS_PER_STATUS, Places, Request,
    RequestedAction, RunEvent, RunStatus, RunVerdict,
};
use faultline_operator::cached_federation::CachedFederation;
use faultline_operator::election::GRACE;
use faultline_operator::install::{RULES, SECRET_RULES};
use faultline_operator::limits::Pace;
use faultline_operator::metrics::Metrics;
use faultline_operator::object_cache::{self, ObjectCache};
use faultline_operator::reconcile::{ReconcileError, reconcile};
use faultline_operator::{Context, Settings, controller};
use kube::Resource;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use common::{ApiServer, Right};

const UID: &str = "11111111-2222-3333-4444-555555555555";
const FEDERATION: &str = "/apis/faultline.dev/v1alpha1/namespaces/experiments/federations/quickstart";
const SETS: &str = "/apis/apps/v1/namespaces/experiments/statefulsets";
const PODS: &str = "/api/v1/namespaces/experiments/pods";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/experiments/events";
const CLAIMS: &str = "/api/v1/namespaces/experiments/persistentvolumeclaims";
const KEY: &str = "/api/v1/namespaces/experiments/secrets/quickstart-key";
const BUDGET: &str = "/apis/policy/v1/namespaces/experiments/poddisruptionbudgets/quickstart-supervisor";
const FILE: &str = "/api/v1/namespaces/experiments/configmaps/quickstart-federation";
const READER: &str = "/api/v1/namespaces/experiments/secrets/quickstart-reader";

/// A supervisor with a status that the test sets.
#[derive(Clone, Default)]
struct Supervisor {
    says: Arc<Mutex<RunStatus>>,
    places: Arc<Mutex<Vec<Places>>>,
    done: Arc<Mutex<Vec<u64>>>,
    /// Number of requests to mark a request as done, whether or not the supervisor answers them.
    told: Arc<AtomicUsize>,
    refuses_done: Arc<AtomicBool>,
    /// Whether the supervisor cannot read changed specs.
    refuses_specs: Arc<AtomicBool>,
    /// Whether the last spec pauses the run.
    paused: Arc<AtomicBool>,
    tokens: Arc<Mutex<BTreeSet<String>>>,
}

impl Supervisor {
    async fn start(&self) -> SocketAddr {
        self.serve_at("127.0.0.1:0").await
    }

    async fn serve_at(&self, address: &str) -> SocketAddr {
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

    fn say(&self, change: impl FnOnce(&mut RunStatus)) {
        change(&mut self.says.lock().unwrap());
    }
}

async fn status(State(it): State<Supervisor>, RawQuery(query): RawQuery, headers: HeaderMap) -> Vec<u8> {
    it.tokens.lock().unwrap().insert(headers["authorization"].to_str().unwrap().to_owned());
    let after: u64 = query.unwrap().strip_prefix("after=").unwrap().parse().unwrap();
    let mut said = it.says.lock().unwrap().clone();
    said.newest_event = said.events.last().map_or(0, |it| it.number);
    said.events.retain(|it| it.number > after);
    said.events.truncate(EVENTS_PER_STATUS);
    serde_json::to_vec(&said).unwrap()
}

async fn places(State(it): State<Supervisor>, body: axum::body::Bytes) {
    let places: Places = serde_json::from_slice(&body).unwrap();
    it.say(|it| it.generation = places.generation);
    it.places.lock().unwrap().push(places);
}

async fn spec(State(it): State<Supervisor>, body: axum::body::Bytes) -> StatusCode {
    if it.refuses_specs.load(Relaxed) {
        return StatusCode::BAD_REQUEST;
    }
    let amended: Amended = serde_json::from_slice(&body).unwrap();
    it.paused.store(amended.spec.pause, Relaxed);
    it.say(|it| it.amendment = Some(Amendment { generation: amended.generation, refused: None }));
    StatusCode::OK
}

async fn done(State(it): State<Supervisor>, Path(id): Path<u64>) -> StatusCode {
    it.told.fetch_add(1, Relaxed);
    if it.refuses_done.load(Relaxed) {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    it.done.lock().unwrap().push(id);
    it.say(|it| it.requests.retain(|it| it.id != id));
    StatusCode::NO_CONTENT
}

struct World {
    server: ApiServer,
    supervisor: Supervisor,
    context: Arc<Context>,
    port: u16,
}

impl World {
    async fn new() -> World {
        World::of("quickstart").await
    }

    /// Creates a world with a sample under the name of the quick start.
    async fn of(sample: &str) -> World {
        let (server, supervisor) = (ApiServer::default(), Supervisor::default());
        let text = faultline_api::samples::sample(sample).expect("it is a sample").text;
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
    fn restart(&mut self) {
        self.context = context(&self.server, self.port);
    }

    fn federation(&self) -> Federation {
        serde_json::from_value(self.server.get(FEDERATION).expect("it is there")).unwrap()
    }

    /// Returns the status, even if the spec cannot be read.
    fn status(&self) -> FederationStatus {
        let status = self.server.get(FEDERATION).expect("it is there")["status"].clone();
        serde_json::from_value(status).expect("it has a status")
    }

    fn condition(&self, kind: &str) -> String {
        let status = self.status();
        let it = status.condition(kind).expect("the condition exists");
        format!("{} {}", it.status, it.reason)
    }

    /// Updates the caches as watches would, then reconciles once.
    async fn look(&self) -> Result<(), ReconcileError> {
        self.look_for_next().await.map(drop)
    }

    /// Does the same, and returns what triggers the next reconciliation.
    async fn look_for_next(&self) -> Result<Action, ReconcileError> {
        self.update_caches();
        self.reconcile().await
    }

    fn update_caches(&self) {
        self.watch(&self.context.sets, "/statefulsets/", object_cache::owner_of_set);
        self.watch(&self.context.pods, "/pods/", |it| object_cache::owner_of_pod(it, &self.context.sets));
    }

    /// Reconciles with the caches as they are.
    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        // A status is written at most once per second, and a failed attempt to create events is repeated after half a
        // minute, but a test must not wait that long.
        self.context.session(UID, |it| {
            it.statuses = Pace::default();
            it.unreported.due = it.unreported.due.map(|_| Instant::now());
        });
        self.reconcile_now().await
    }

    /// Does the same, but not earlier than the limits on writes permit.
    async fn reconcile_now(&self) -> Result<Action, ReconcileError> {
        let federation = self.server.get(FEDERATION).expect("it is there");
        let federation: CachedFederation = serde_json::from_value(federation).unwrap();
        reconcile(&federation, &self.context).await
    }

    /// Creates a world whose run has ended with a verdict.
    async fn judged() -> World {
        let mut world = World::new().await;
        run_to_the_verdict(&mut world, async |world| world.look().await.unwrap()).await;
        world
    }

    /// Creates a world in which the federation has started, with these options for its pods.
    async fn running(kubernetes: Value) -> World {
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

    fn uid_of(&self, path: &str) -> String {
        self.server.get(path).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Creates the claim of a pod's volume, as the StatefulSet controller would, with these owners.
    fn make_claim(&self, pod: &str, owners: Value) -> String {
        let path = format!("{CLAIMS}/data-{pod}");
        let metadata = json!({
            "name": format!("data-{pod}"), "namespace": "experiments", "uid": format!("claim of {pod}"),
            "labels": { "faultline.dev/uid": UID }, "ownerReferences": owners,
        });
        self.server.put(&path, json!({ "metadata": metadata }));
        path
    }

    /// Returns the reference with which a set owns the claims of its pods.
    fn owner(&self, set: &str) -> Value {
        let uid = self.uid_of(&format!("{SETS}/{set}"));
        json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": uid }])
    }

    /// Has the supervisor request the deletion of a process's pod and its volume.
    fn request_volume(&self, process: &str, uid: &str) {
        let action = RequestedAction::DeleteVolume;
        let request = Request { id: 1, action, process: process.into(), uid: uid.into() };
        self.supervisor.say(|it| it.requests = vec![request]);
    }

    /// Fills a cache with the existing objects of every namespace.
    fn watch<K>(
        &self,
        cache: &ObjectCache<K>,
        kind: &str,
        owner: impl Fn(&K) -> Option<ObjectRef<Federation>>,
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
    fn delete_federation(&self) {
        let mut federation = self.server.get(FEDERATION).unwrap();
        federation["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self.server.put(FEDERATION, federation);
    }

    /// Acts as the garbage collector: removes the pods of sets that are being deleted, then the sets.
    fn collect_garbage(&self) {
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
    fn make_pods(&self) {
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
    fn made(&self) -> Vec<String> {
        self.server.paths("/").into_iter().filter(|it| !it.starts_with(EVENTS)).collect()
    }

    fn notes(&self) -> Vec<String> {
        let events = self.server.paths(&format!("{EVENTS}/"));
        let note = |it: &String| self.server.get(it).unwrap()["note"].as_str().unwrap().to_owned();
        let mut notes: Vec<String> = events.iter().map(note).collect();
        notes.sort();
        notes
    }
}

fn context(server: &ApiServer, port: u16) -> Arc<Context> {
    let settings = Settings { supervisor_api_port: port, ..Settings::default() };
    Arc::new(Context::new(server.client(), settings, "test".into(), Arc::new(Metrics::default())))
}

fn pod(name: &str, set: &Value) -> Value {
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

fn supervisor_event(number: u64, reason: &str, text: &str) -> RunEvent {
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
async fn run_to_the_verdict(world: &mut World, mut look: impl AsyncFnMut(&mut World)) {
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

#[tokio::test]
async fn a_federation_is_created_followed_and_cleaned_up() {
    let world = World::new().await;

    world.look().await.unwrap();
    assert_eq!(
        world.server.writes(),
        [format!("PATCH {FEDERATION}")],
        "the finalizer comes before anything else"
    );
    assert_eq!(world.federation().metadata.finalizers.unwrap(), ["faultline.dev/cleanup"]);

    world.look().await.unwrap();
    let sets = ["quickstart-supervisor", "quickstart-paris", "quickstart-rennes"];
    let mut expected = vec![
        format!("PATCH {FILE}"),
        "POST /api/v1/namespaces/experiments/secrets".to_owned(),
        "PATCH /api/v1/namespaces/experiments/secrets/quickstart-process-keys".to_owned(),
        format!("PATCH {READER}"),
        "PATCH /apis/networking.k8s.io/v1/namespaces/experiments/networkpolicies/quickstart-pods".to_owned(),
        format!("PATCH {BUDGET}"),
    ];
    expected.extend(sets.map(|it| format!("PATCH {SETS}/{it}")));
    expected.push(format!("PATCH {FEDERATION}/status"));
    assert_eq!(world.server.writes(), expected);
    for set in sets {
        let owner = &world.server.get(&format!("{SETS}/{set}")).unwrap()["metadata"]["ownerReferences"][0];
        assert_eq!((owner["uid"].as_str(), owner["controller"].as_bool()), (Some(UID), Some(true)));
    }

    world.make_pods();
    world.look().await.unwrap();
    assert_eq!(world.condition("PodsReady"), "True AllRunning");
    let places = world.supervisor.places.lock().unwrap().clone();
    assert_eq!((places.len(), places[0].generation, places[0].places.len()), (1, 1, 6));
    let tokens = world.supervisor.tokens.lock().unwrap().clone();
    assert_eq!(tokens.len(), 1);
    assert!(tokens.first().is_some_and(|it| it.starts_with("Bearer ") && it.len() == 7 + 64));

    world.server.writes();
    world.look().await.unwrap();
    assert_eq!(world.server.writes(), [""; 0], "nothing is written without a change");
    assert_eq!(world.supervisor.places.lock().unwrap().len(), 1);

    // The supervisor requests the deletion of a pod. The request is reported as done only once the pod is gone.
    let path = format!("{PODS}/quickstart-paris-1");
    let uid = world.server.get(&path).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let request = Request { id: 7, action: RequestedAction::DeletePod, process: "paris-1".into(), uid };
    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Running;
        it.requests = vec![request];
    });
    world.look().await.unwrap();
    assert!(world.server.get(&path).is_none());
    assert_eq!(*world.supervisor.done.lock().unwrap(), [0; 0]);
    world.look().await.unwrap();
    assert_eq!(*world.supervisor.done.lock().unwrap(), [7]);
    assert_eq!(world.supervisor.places.lock().unwrap().last().unwrap().places.len(), 5);
    world.make_pods();
    world.look().await.unwrap();
    assert_eq!(world.supervisor.places.lock().unwrap().last().unwrap().places.len(), 6);

    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Completed;
        it.verdict = Some(RunVerdict::Pass);
    });
    world.look().await.unwrap();
    assert_eq!((world.status().phase, world.condition("Completed")), (Phase::Completed, "True Pass".into()));
    world.look().await.unwrap();
    assert_eq!(world.server.get(&format!("{SETS}/quickstart-paris")).unwrap()["spec"]["replicas"], 0);
    assert_eq!(world.server.get(&format!("{SETS}/quickstart-supervisor")).unwrap()["spec"]["replicas"], 1);

    // Deleted: the finalizer is removed last.
    world.delete_federation();
    world.server.put(
        &format!("{CLAIMS}/kept"),
        json!({ "metadata": { "name": "kept", "labels": { "faultline.dev/uid": UID } } }),
    );
    world.look().await.unwrap();
    for path in world.server.paths(SETS) {
        let set = world.server.get(&path).unwrap();
        assert!(set["metadata"]["deletionTimestamp"].is_string(), "{path} must be deleted after its pods");
    }
    world.look().await.unwrap();
    assert_eq!(world.status().phase, Phase::Deleting);
    assert!(world.federation().metadata.finalizers.is_some_and(|it| !it.is_empty()), "pods are left");
    world.collect_garbage();
    world.look().await.unwrap();
    assert_eq!(
        world.federation().metadata.finalizers,
        Some(vec![]),
        "a volume that is to be kept delays nothing"
    );
}

#[tokio::test]
async fn the_next_operator_continues_after_a_stop_at_any_write() {
    let look = async |world: &mut World| world.look().await.unwrap();
    let mut undisturbed = World::new().await;
    run_to_the_verdict(&mut undisturbed, look).await;
    let writes = undisturbed.server.writes().len() as u32;
    assert!(writes > 10, "{writes}");
    for survived in 0..writes {
        let mut world = World::new().await;
        world.server.fail_after(survived);
        let mut failures = 0;
        let look = async |world: &mut World| {
            while world.look().await.is_err() {
                failures += 1;
                world.restart();
            }
        };
        run_to_the_verdict(&mut world, look).await;
        // A failure to create an event does not stop the operator.
        assert!(failures <= 1, "after {survived} writes");
        assert_eq!(world.made(), undisturbed.made(), "after {survived} writes");
        assert_eq!(world.notes(), undisturbed.notes(), "after {survived} writes");
        assert_eq!(world.status().phase, Phase::Completed);
        let tokens = world.supervisor.tokens.lock().unwrap().len();
        assert_eq!(tokens, 1, "the key was made once, after {survived} writes");
    }
}

#[tokio::test]
async fn objects_of_others_are_not_touched() {
    for path in [FILE, KEY, &format!("{SETS}/quickstart-paris")] {
        let world = World::new().await;
        let foreign = json!({ "metadata": { "name": path.rsplit('/').next(), "uid": "other" }, "data": {} });
        world.server.put(path, foreign.clone());
        // Not even cached, since it lacks the operator's labels.
        world.reconcile_now().await.unwrap();
        world.reconcile_now().await.unwrap();
        assert_eq!(world.server.get(path), Some(foreign));
        assert_eq!(world.condition("Accepted"), "False NameTaken");
    }
}

/// Applies a changed spec.
fn change(world: &World, generation: u64, change: impl Fn(&mut Value)) {
    let mut federation = world.server.get(FEDERATION).unwrap();
    change(&mut federation["spec"]);
    federation["metadata"]["generation"] = json!(generation);
    world.server.put(FEDERATION, federation);
}

/// The claim of a set that deletes its volumes would be deleted with the set, even if an earlier federation kept it.
#[tokio::test]
async fn a_volume_kept_from_an_earlier_federation_is_not_deleted_with_a_later_one() {
    for (keep, is_refused) in [(true, false), (false, true)] {
        let world = World::new().await;
        change(&world, 1, |spec| {
            spec["kubernetes"] = json!({ "results": { "size": "1GiB", "keep": keep } });
        });
        let claim = |pod: &str, uid: &str| {
            let path = world.make_claim(pod, json!([]));
            let mut claim = world.server.get(&path).unwrap();
            claim["metadata"]["labels"]["faultline.dev/uid"] = json!(uid);
            world.server.put(&path, claim);
            path
        };
        // A claim with another name; a claim of this federation whose set was deleted without its pods; and a kept one.
        claim("quickstart-supervisor-0-b-0", "earlier");
        claim("quickstart-supervisor-1", UID);
        let kept = claim("quickstart-supervisor-0", "earlier");
        world.look().await.unwrap();
        world.look().await.unwrap();
        assert_eq!(world.server.paths(SETS).is_empty(), is_refused, "keep: {keep}");
        if is_refused {
            assert_eq!(world.condition("Accepted"), "False NameTaken");
            let message = world.status().message.unwrap();
            assert!(message.contains("data-quickstart-supervisor-0, which was kept"), "{message}");
            world.server.remove(&kept);
            world.look().await.unwrap();
            assert!(!world.server.paths(SETS).is_empty());
        }
    }
}

/// A user of the namespace can create a set that the federation controls.
#[tokio::test]
async fn a_planted_set_does_not_evade_the_limits() {
    for nodes in [600, 1_000_000] {
        let world = World::new().await;
        let owner = json!({
            "apiVersion": "faultline.dev/v1alpha1", "kind": "Federation", "name": "quickstart", "uid": UID,
            "controller": true,
        });
        for name in ["quickstart-supervisor", "quickstart-paris"] {
            let labels =
                json!({ "app.kubernetes.io/managed-by": "faultline-operator", "faultline.dev/uid": UID });
            let metadata = json!({ "labels": labels, "ownerReferences": [owner] });
            let set = json!({ "metadata": metadata, "spec": { "replicas": 0 } });
            forge(&world, "statefulsets", "experiments", name, set);
        }
        change(&world, 1, |spec| spec["clusters"][0]["nodes"] = json!(nodes));
        world.look().await.unwrap();
        world.look().await.unwrap();
        assert_eq!(world.condition("Accepted"), "False Invalid");
        let message = world.status().message.unwrap();
        assert!(message.contains("at most 500 per federation"), "{message}");
        assert_eq!(world.server.get(KEY), None);
    }
}

/// A user of the namespace can create the ConfigMap with the federation's file before the operator does.
#[tokio::test]
async fn a_planted_file_does_not_evade_the_limits() {
    let world = World::new().await;
    world.look().await.unwrap();
    let mut federation = world.server.get(FEDERATION).unwrap();
    federation["spec"]["clusters"][0]["nodes"] = json!(600);
    let owner = json!({ "kind": "Federation", "name": "quickstart", "uid": UID, "controller": true });
    world.server.put(
        FILE,
        json!({
            "metadata": { "namespace": "experiments", "ownerReferences": [owner] },
            "data": { "federation.yaml": federation.to_string() },
        }),
    );
    world.look().await.unwrap();
    assert_eq!(world.condition("Accepted"), "False Invalid");
    assert!(world.server.paths(SETS).is_empty() && world.server.get(KEY).is_none());
}

/// A user of the namespace can delete the ConfigMap with the federation's file, and create another one.
#[tokio::test]
async fn a_replaced_file_is_reported_and_pods_are_not_created_from_it() {
    for nodes in [u32::MAX, 4_000, 0] {
        let mut world = World::running(json!({})).await;
        let made = world.made();
        let mut file = world.server.get(FILE).unwrap();
        let entry = file["data"].as_object_mut().unwrap().values_mut().next().unwrap();
        let mut federation: Value = serde_json::from_str(entry.as_str().unwrap()).unwrap();
        federation["spec"]["clusters"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "name": "ghost", "nodes": nodes }));
        *entry = json!(federation.to_string());
        world.server.put(FILE, file);
        change(&world, 2, |spec| spec["pause"] = json!(true));
        world.restart();
        let error = world.look().await.unwrap_err().to_string();
        assert!(error.contains("quickstart-federation was replaced"), "{error}");
        assert_eq!(world.condition("Reconciled"), "False CannotRead");
        assert_eq!(world.made(), made);
    }
}

/// Creates an object as another user could.
fn forge(world: &World, kind: &str, namespace: &str, name: &str, mut object: Value) {
    let path = match kind {
        "statefulsets" => format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}"),
        kind => format!("/api/v1/namespaces/{namespace}/{kind}/{name}"),
    };
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["uid"] = json!(format!("forged {namespace} {name}"));
    world.server.put(&path, object);
}

#[tokio::test]
async fn a_neighbour_with_every_label_is_ignored() {
    let mut world = World::new().await;
    // The forger claims that the run is over and has passed.
    let forger = Supervisor::default();
    let port = forger.serve_at("127.0.0.2:0").await.port();
    forger.say(|it| {
        it.phase = supervision::RunPhase::Completed;
        it.verdict = Some(RunVerdict::Pass);
    });
    world.supervisor = Supervisor::default();
    world.supervisor.serve_at(&format!("127.0.0.1:{port}")).await;
    world.port = port;
    world.restart();
    world.look().await.unwrap();
    world.look().await.unwrap();
    let supervisor = world.server.get(&format!("{SETS}/quickstart-supervisor")).unwrap();
    let mut forged = pod("quickstart-supervisor-0", &supervisor);
    forged["status"]["podIP"] = json!("127.0.0.2");
    let mut ownerless = forged.clone();
    ownerless["metadata"]["ownerReferences"] = json!([]);
    let elsewhere = ("neighbour", "quickstart-supervisor-0");
    for (object, (namespace, name)) in [
        (&forged, elsewhere),
        (&ownerless, elsewhere),
        (&ownerless, ("experiments", "quickstart-supervisor-0")),
        (&ownerless, ("experiments", "quickstart-paris-1")),
    ] {
        forge(&world, "pods", namespace, name, object.clone());
        world.look().await.unwrap();
        assert!(forger.tokens.lock().unwrap().is_empty(), "{namespace}/{name} was sent the token");
        assert_ne!(world.status().phase, Phase::Completed);
    }
    // The real pods start, and the operator queries the real supervisor.
    world.server.remove(&format!("{PODS}/quickstart-supervisor-0"));
    world.server.remove(&format!("{PODS}/quickstart-paris-1"));
    world.make_pods();
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.condition("PodsReady"), "True AllRunning");
    assert!(!world.supervisor.tokens.lock().unwrap().is_empty(), "the real supervisor is asked");
    assert!(forger.tokens.lock().unwrap().is_empty());
    // Foreign objects do not delay the deletion.
    let labels = supervisor["spec"]["template"]["metadata"]["labels"].clone();
    for (kind, namespace) in [
        ("pods", "neighbour"),
        ("pods", "experiments"),
        ("statefulsets", "neighbour"),
        ("persistentvolumeclaims", "experiments"),
    ] {
        let owner =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "controller": true });
        let object = json!({ "metadata": { "labels": labels, "ownerReferences": [owner] } });
        forge(&world, kind, namespace, "bystander", object);
    }
    world.delete_federation();
    world.look().await.unwrap();
    world.collect_garbage();
    world.look().await.unwrap();
    assert_eq!(world.federation().metadata.finalizers, Some(vec![]));
    assert!(world.server.get(&format!("{PODS}/bystander")).is_some(), "foreign pods are not touched");
}

#[tokio::test]
async fn a_refusal_sets_a_condition_until_its_cause_is_removed() {
    let world = World::new().await;
    world.look().await.unwrap();
    for (message, condition) in
        [("exceeded quota: small", "False Quota"), ("admission webhook denied the request", "False Refused")]
    {
        world.server.forbid("statefulsets", message, None);
        world.look().await.unwrap();
        assert_eq!(world.condition("PodsReady"), condition);
        assert!(world.notes().iter().any(|it| it.contains(message)), "{:?}", world.notes());
        let has_remedy = world.status().message.unwrap().contains("raise the ResourceQuota");
        assert_eq!(has_remedy, condition.contains("Quota"));
    }
    world.server.allow();
    world.look().await.unwrap();
    world.make_pods();
    world.look().await.unwrap();
    assert_eq!(world.condition("PodsReady"), "True AllRunning");
}

#[tokio::test]
async fn a_deleted_key_is_restored_if_known_and_never_replaced() {
    let mut world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.make_pods();
    world.look().await.unwrap();
    let key = world.server.get(KEY).unwrap();

    world.server.remove(KEY);
    world.context.session(UID, |it| it.key.as_mut().unwrap().invalidate());
    world.look().await.unwrap();
    assert_eq!(world.server.get(KEY).unwrap()["data"], key["data"], "the key is restored");

    // A restarted operator does not know the lost key. It creates neither another key nor the missing sets.
    world.server.remove(KEY);
    world.restart();
    for set in ["quickstart-paris", "quickstart-supervisor"] {
        world.server.remove(&format!("{SETS}/{set}"));
        assert!(world.look().await.is_err());
        assert_eq!(world.server.get(KEY), None);
        assert_eq!(world.condition("Reconciled"), "False KeyGone");
    }
    let told =
        world.notes().into_iter().filter(|it| it.contains("secret quickstart-key, which the pods")).count();
    assert_eq!(told, 1, "once");
    assert!(world.status().message.is_some_and(|it| it.contains("restore it unchanged")), "with the remedy");

    // A secret of another owner does not count.
    let mut foreign = key.clone();
    foreign["metadata"]["ownerReferences"] = json!([]);
    world.server.put(KEY, foreign);
    world.look().await.unwrap();
    assert_eq!(world.condition("Accepted"), "False NameTaken");
    world.server.put(KEY, key);
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.condition("Reconciled"), "True Reconciled");
    assert_eq!(world.condition("Accepted"), "True Valid");
}

#[tokio::test]
async fn a_lost_key_of_a_completed_federation_is_restored_or_reported() {
    let mut world = World::judged().await;
    let key = world.server.get(KEY).unwrap();
    world.server.remove(KEY);
    world.context.session(UID, |it| it.key.as_mut().unwrap().invalidate());
    let next = world.look_for_next().await.unwrap();
    assert_eq!(world.server.get(KEY).unwrap()["data"], key["data"], "the key is restored");
    assert_ne!(next, Action::await_change(), "deleting the key triggers nothing");
    let token = world.server.get(READER).unwrap()["data"].clone();
    world.server.remove(READER);
    world.look().await.unwrap();
    assert_eq!(world.server.get(READER).unwrap()["data"], token, "the reader's token is restored");
    assert!(world.notes().iter().any(|it| it.starts_with("the Secret quickstart-reader was deleted")));

    // A restarted operator does not know the lost key.
    world.server.remove(KEY);
    world.restart();
    for _ in 0..2 {
        assert!(world.look().await.is_err());
        assert_eq!(world.server.get(KEY), None, "the pod keeps the old key");
        assert_eq!(world.condition("Reconciled"), "False KeyGone");
        assert_eq!(world.condition("Completed"), "True Pass");
    }
    let told = world.notes().into_iter().filter(|it| it.contains("secret quickstart-key")).count();
    assert_eq!(told, 1, "once");
    world.server.put(KEY, key);
    world.look().await.unwrap();
    assert_eq!(world.condition("Reconciled"), "True Reconciled");
}

#[tokio::test]
async fn pods_are_deleted_after_a_run_even_if_the_key_is_lost() {
    let mut world = World::new().await;
    run_to_the_verdict(&mut world, async |world| {
        let is_over = world.federation().status.is_some_and(|it| it.phase == Phase::Completed);
        if is_over {
            world.server.remove(KEY);
            world.restart();
        }
        assert_eq!(world.look().await.is_err(), is_over);
    })
    .await;
    assert_eq!(world.server.get(&format!("{SETS}/quickstart-paris")).unwrap()["spec"]["replicas"], 0);
}

#[tokio::test]
async fn a_record_that_is_lost_after_the_verdict_is_reported_unless_it_is_on_a_volume() {
    for (kubernetes, completed) in
        [(json!({}), "True RecordLost"), (json!({ "results": { "size": "1GiB" } }), "True Pass")]
    {
        let mut world = World::running(kubernetes).await;
        world.supervisor.say(|it| {
            it.phase = supervision::RunPhase::Completed;
            it.verdict = Some(RunVerdict::Pass);
        });
        for _ in 0..3 {
            world.look().await.unwrap();
            assert_eq!(world.condition("Completed"), "True Pass");
        }
        let pod = format!("{PODS}/quickstart-supervisor-0");
        world.restart();
        world.server.remove(&pod);
        world.look().await.unwrap();
        world.make_pods();
        world.supervisor.say(|it| *it = RunStatus { supervisor: "another".into(), ..RunStatus::default() });
        let loses_record = completed.ends_with("RecordLost");
        for _ in 0..2 {
            world.look().await.unwrap();
            assert_eq!(world.condition("Completed"), completed);
            assert_eq!(world.status().verdict.as_deref(), Some("pass"), "the verdict stands");
            assert_eq!(world.condition("Supervised").starts_with("False"), loses_record);
        }
        let told = world.notes().iter().filter(|it| it.contains("record")).count();
        assert_eq!(told, usize::from(loses_record), "once: {:?}", world.notes());
        // No client needs the key of a lost record.
        world.server.remove(KEY);
        world.restart();
        assert_eq!(world.look().await.is_ok(), loses_record);
    }
}

#[tokio::test]
async fn a_quota_that_blocks_a_replacement_pod_is_reported_and_an_outdated_event_is_not() {
    let world = World::running(json!({})).await;
    let path = format!("{SETS}/quickstart-paris");
    let happened = |reason: &str, message: &str, second: u32| {
        let event = json!({
            "metadata": { "name": reason, "namespace": "experiments" },
            "involvedObject": { "uid": world.uid_of(&path) }, "reason": reason, "message": message,
            "lastTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        });
        world.server.put(&format!("/api/v1/namespaces/experiments/events/{reason}"), event);
    };
    // The quota was too small at first.
    happened("FailedCreate", "exceeded quota: small", 1);
    happened("SuccessfulCreate", "create Pod quickstart-paris-0", 2);
    world.server.remove(&format!("{PODS}/quickstart-paris-0"));
    let mut set = world.server.get(&path).unwrap();
    set["status"] = json!({ "replicas": 2 });
    world.server.put(&path, set);
    world.look().await.unwrap();
    assert_eq!(world.condition("PodsReady"), "False Starting");
    assert_eq!(world.status().phase, Phase::Running);

    // Kubernetes has dropped the event that a pod was created later.
    world.server.remove("/api/v1/namespaces/experiments/events/SuccessfulCreate");
    let of_other = format!("{PODS}/quickstart-paris-1");
    let mut pod = world.server.get(&of_other).unwrap();
    pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:03Z");
    world.server.put(&of_other, pod);
    world.context.session(UID, |it| it.refused = None);
    world.look().await.unwrap();
    assert_eq!(world.condition("PodsReady"), "False Starting");

    happened("FailedCreate", "exceeded quota: small", 30);
    world.context.session(UID, |it| it.refused = None);
    world.look().await.unwrap();
    assert_eq!(world.condition("PodsReady"), "False Quota");
    let message = world.status().condition("PodsReady").unwrap().message.clone();
    assert!(message.contains("raise the ResourceQuota"), "{message}");
    assert_eq!(world.status().phase, Phase::Running);
}

#[tokio::test]
async fn only_one_request_for_each_process_counts() {
    let world = World::running(json!({})).await;
    let request = |id, process: &str, uid: &str| Request {
        id,
        action: RequestedAction::DeletePod,
        process: process.into(),
        uid: uid.into(),
    };
    let mut requests: Vec<Request> = (0..1000).map(|it| request(it, "paris-0", "unknown")).collect();
    requests.extend((1000..2000).map(|it| request(it, &format!("paris-{it}"), "unknown")));
    requests.push(request(2000, "paris-1", &world.uid_of(&format!("{PODS}/quickstart-paris-1"))));
    world.supervisor.say(|it| it.requests = requests);
    for looks in 1..=3 {
        world.look().await.unwrap();
        let done = world.supervisor.done.lock().unwrap().clone();
        assert!(done.len() <= 2 * looks && !done.contains(&1000), "{done:?}");
        assert_eq!(world.condition("Supervised"), "True RequestsIgnored");
    }
    assert!(world.server.get(&format!("{PODS}/quickstart-paris-1")).is_none(), "this request counts");
    let told = world.notes().iter().filter(|it| it.contains("ignores")).count();
    assert_eq!(told, 1, "{:?}", world.notes());

    // Once the supervisor fails to accept an answer, it gets no other in this reconciliation.
    world.supervisor.refuses_done.store(true, Relaxed);
    world.supervisor.say(|it| {
        it.requests = (0..3).map(|it| request(it, &format!("rennes-{it}"), "gone")).collect();
    });
    world.supervisor.told.store(0, Relaxed);
    world.look().await.unwrap();
    assert_eq!(world.supervisor.told.load(Relaxed), 1);
    assert_eq!(world.condition("Supervised"), "True Responding");
}

#[tokio::test]
async fn a_volume_is_deleted_only_for_the_pod_in_the_request_and_only_if_its_set_owns_it() {
    let volumes = json!({ "volumes": { "size": "1GiB" } });
    let world = World::running(volumes.clone()).await;
    let path = format!("{PODS}/quickstart-rennes-2");
    let uid = world.uid_of(&path);
    let claim = world.make_claim("quickstart-rennes-2", world.owner("quickstart-rennes"));
    // The pod has been replaced, but the cache does not show this yet.
    world.request_volume("rennes-2", &uid);
    let former = world.server.get(&path).unwrap();
    let mut successor = former.clone();
    successor["metadata"]["uid"] = json!("successor");
    world.server.put(&path, successor);
    world.reconcile().await.unwrap();
    assert!(world.server.get(&claim).is_some() && world.server.get(&path).is_some());

    world.server.put(&path, former);
    world.reconcile().await.unwrap();
    assert!(world.server.get(&claim).is_none() && world.server.get(&path).is_none());

    // A kept volume has no owner, only the labels of the set that created it, maybe for an earlier federation.
    let label = |claim: &str, label: Value| {
        let mut changed = world.server.get(claim).unwrap();
        changed["metadata"]["labels"]["faultline.dev/uid"] = label;
        world.server.put(claim, changed);
    };
    for of in [UID, "an earlier federation"] {
        world.make_pods();
        let claim = world.make_claim("quickstart-rennes-2", json!([]));
        label(&claim, json!(of));
        world.request_volume("rennes-2", &world.uid_of(&path));
        world.look().await.unwrap();
        assert!(world.server.get(&claim).is_none(), "{of}");
    }

    world.make_pods();
    for (owners, of) in [(world.owner("quickstart-paris"), json!(UID)), (json!([]), Value::Null)] {
        let claim = world.make_claim("quickstart-rennes-2", owners);
        label(&claim, of);
        world.request_volume("rennes-2", &world.uid_of(&path));
        assert!(world.look().await.is_err());
        assert!(world.server.get(&claim).is_some() && world.server.get(&path).is_some());
        assert_eq!(world.condition("Reconciled"), "False NameTaken");
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_carried_out_does_not_hold_up_others() {
    let world = World::running(json!({ "volumes": { "size": "1GiB" } })).await;
    // An administrator has provided this volume.
    world.make_claim("quickstart-paris-0", world.owner("quickstart-rennes"));
    world.make_claim("quickstart-rennes-2", world.owner("quickstart-rennes"));
    let paths = ["quickstart-paris-0", "quickstart-rennes-2"].map(|it| format!("{PODS}/{it}"));
    let requests = [("paris-0", &paths[0]), ("rennes-2", &paths[1])].map(|(process, path)| Request {
        id: 1,
        action: RequestedAction::DeleteVolume,
        process: process.into(),
        uid: world.uid_of(path),
    });
    world.supervisor.say(|it| it.requests = requests.to_vec());
    assert!(world.look().await.is_err());
    assert_eq!(world.condition("Reconciled"), "False NameTaken");
    assert!(world.server.get(&paths[0]).is_some());
    assert!(world.server.get(&paths[1]).is_none(), "its volume belongs to its set");
}

#[tokio::test]
async fn a_restarted_operator_waits_for_the_volumes_of_a_deleted_federation() {
    let mut world = World::running(json!({ "volumes": { "size": "1GiB" } })).await;
    let claim = world.make_claim("quickstart-rennes-2", world.owner("quickstart-rennes"));
    let kept = world.make_claim("quickstart-paris-0", json!([]));
    let foreign =
        json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "other", "uid": "other" }]);
    let foreign = world.make_claim("quickstart-paris-1", foreign);
    world.delete_federation();
    world.look().await.unwrap();
    world.collect_garbage();
    for _ in 0..2 {
        world.restart();
        world.look().await.unwrap();
        assert_eq!(world.federation().metadata.finalizers.unwrap().len(), 1);
        let message = world.status().message.unwrap();
        assert!(message.contains("the volume data-quickstart-rennes-2"), "{message}");
    }
    world.server.remove(&claim);
    world.look().await.unwrap();
    assert_eq!(world.federation().metadata.finalizers, Some(vec![]));
    assert!(world.server.get(&kept).is_some() && world.server.get(&foreign).is_some());
}

#[tokio::test]
async fn a_stopped_controller_does_not_wait_for_an_api_server_that_does_not_respond() {
    let world = World::new().await;
    world.server.freeze("/federations/");
    let (stop, stopped) = futures::channel::oneshot::channel::<()>();
    let running = tokio::spawn(controller::run(Arc::clone(&world.context), None, async {
        let _ = stopped.await;
    }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.send(()).unwrap();
    let begun = Instant::now();
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("it stops").unwrap();
    assert!(begun.elapsed() >= GRACE, "reconciliations have some time to finish");
    assert!(begun.elapsed() < GRACE + Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_reconciliation_that_takes_too_long_is_reported_as_a_failure() {
    let mut world = World::running(json!({})).await;
    let mut context = Context::new(world.server.client(), Settings::default(), "test".into(), Arc::default());
    context.deadline = Duration::from_millis(50);
    world.context = Arc::new(context);
    world.context.session(UID, |it| it.failures = 1);
    world.server.freeze("/secrets/");
    let error = world.look().await.unwrap_err();
    assert!(error.to_string().contains("did not finish within 50ms"), "{error}");
    assert_eq!(world.condition("Reconciled"), "False DeadlineExceeded");
}

#[tokio::test]
async fn a_deleted_federation_leaves_no_state_in_the_controller() {
    let world = World::new().await;
    world.look().await.unwrap();
    let mut federation = world.server.get(FEDERATION).unwrap();
    federation["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.server.put(FEDERATION, federation);
    let (server, context) = (world.server.clone(), Arc::clone(&world.context));
    let gone = async move {
        let has_finalizer =
            |it: Option<Value>| it.is_some_and(|it| it["metadata"]["finalizers"] != json!([]));
        while has_finalizer(server.get(FEDERATION)) || context.federations() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let run = controller::run(Arc::clone(&world.context), None, gone);
    tokio::time::timeout(Duration::from_secs(20), run).await.expect("the federation is forgotten");
    assert_eq!(world.context.federations(), 0);
}

#[tokio::test]
async fn one_namespace_does_not_occupy_the_whole_controller() {
    let world = World::new().await;
    let mut federation = world.server.get(FEDERATION).unwrap();
    federation["metadata"]["namespace"] = json!("crowded");
    for number in 0..100 {
        let name = format!("a{number}");
        federation["metadata"]["name"] = json!(name);
        federation["metadata"]["uid"] = json!(name);
        let path = format!("/apis/faultline.dev/v1alpha1/namespaces/crowded/federations/{name}");
        world.server.put(&path, federation.clone());
    }
    world.server.freeze("/crowded/");
    let server = world.server.clone();
    let made = async move {
        while server.get(FEDERATION).unwrap()["metadata"]["finalizers"].is_null() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let run = controller::run(Arc::clone(&world.context), None, made);
    tokio::time::timeout(Duration::from_secs(20), run).await.expect("the other namespace has its share");
}

#[tokio::test]
async fn objects_that_new_pods_need_are_restored_and_reported() {
    let world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.make_pods();
    world.look().await.unwrap();
    let deleted =
        ["secrets/quickstart-process-keys", "secrets/quickstart-reader", "configmaps/quickstart-federation"]
            .map(|it| format!("/api/v1/namespaces/experiments/{it}"));
    let before: Vec<Value> = deleted.iter().map(|it| world.server.get(it).unwrap()["data"].clone()).collect();
    deleted.iter().for_each(|it| world.server.remove(it));
    world.server.remove(&format!("{PODS}/quickstart-paris-1"));
    world.look().await.unwrap();
    assert!(world.server.get(&deleted[0]).is_none(), "pods are usually missing for another reason");
    let earlier = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    world.context.session(UID, |it| it.restored = Some(earlier));
    world.look().await.unwrap();
    let after: Vec<Value> = deleted.iter().map(|it| world.server.get(it).unwrap()["data"].clone()).collect();
    assert_eq!(before, after);
    let notes = world.notes();
    for object in [
        "the Secret quickstart-process-keys",
        "the Secret quickstart-reader",
        "the ConfigMap quickstart-federation",
    ] {
        let told = notes.iter().filter(|it| it.starts_with(&format!("{object} was deleted"))).count();
        assert_eq!(told, 1, "{object} in {notes:?}");
    }
}

impl World {
    /// Looks again, after enough time for another search for misplaced pods.
    async fn search(&self) {
        let earlier = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        self.context.session(UID, |it| it.misplaced = Some((earlier, Vec::new())));
        self.look().await.unwrap();
    }
}

/// A StatefulSet that cannot create a pod because of its name reports nothing.
#[tokio::test]
async fn a_pod_of_another_owner_is_named_with_its_owner_and_not_deleted() {
    let world = World::running(json!({})).await;
    let path = format!("{PODS}/quickstart-paris-0");
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": true });
    for (owners, told) in
        [(json!([owner]), "it belongs to the ReplicaSet web;"), (json!([]), "it has no owner;")]
    {
        let foreign = json!({ "metadata": {
            "name": "quickstart-paris-0", "namespace": "experiments", "uid": "foreign", "ownerReferences": owners,
        } });
        world.server.put(&path, foreign.clone());
        world.look().await.unwrap();
        world.search().await;
        assert_eq!(world.condition("PodsReady"), "False NameTaken");
        let message = world.status().condition("PodsReady").unwrap().message.clone();
        assert!(
            message.starts_with("6 of 7 pods are running; the pod quickstart-paris-0 already"),
            "{message}"
        );
        assert!(message.contains(told), "{message}");
        assert_eq!(world.status().message, Some(message));
        assert_eq!(world.server.get(&path), Some(foreign));
    }
    // Kubernetes would repeat its attempt only later, unless the set changes.
    world.server.remove(&path);
    let set = format!("{SETS}/quickstart-paris");
    let woken = |world: &World| {
        world.server.get(&set).unwrap()["metadata"]["annotations"]["faultline.dev/woken"].clone()
    };
    let seen = world.context.session(UID, |it| it.misplaced.clone()).unwrap().1;
    let earlier = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    world.context.session(UID, |it| it.misplaced = Some((earlier, seen)));
    assert!(woken(&world).is_null());
    world.look().await.unwrap();
    assert!(woken(&world).is_string());
    world.make_pods();
    world.look().await.unwrap();
    assert_eq!(world.condition("PodsReady"), "True AllRunning");
}

/// Changes the labels of a pod of the federation. Its StatefulSet then gives up the pod, unless it ignores this label.
fn relabel(world: &World, pod: &str, label: &str, value: Option<&str>) {
    let path = format!("{PODS}/{pod}");
    let mut changed = world.server.get(&path).unwrap();
    let labels = changed["metadata"]["labels"].as_object_mut().unwrap();
    labels.remove(label);
    labels.extend(value.map(|it| (label.to_owned(), json!(it))));
    if ["faultline.dev/uid", "faultline.dev/cluster"].contains(&label) {
        changed["metadata"]["ownerReferences"] = json!([]);
    }
    world.server.put(&path, changed);
}

#[tokio::test]
async fn a_pod_with_changed_labels_is_replaced() {
    let changes = [
        ("faultline.dev/uid", Some("another")),
        ("faultline.dev/cluster", Some("another")),
        ("app.kubernetes.io/managed-by", None),
    ];
    for (label, value) in changes {
        let world = World::running(json!({})).await;
        let path = format!("{PODS}/quickstart-paris-1");
        relabel(&world, "quickstart-paris-1", label, value);
        if label == "app.kubernetes.io/managed-by" {
            // The watch does not show the pod any more.
            let hidden = world.server.get(&path).unwrap();
            world.server.remove(&path);
            world.update_caches();
            world.server.put(&path, hidden);
            world.reconcile().await.unwrap();
        } else {
            world.look().await.unwrap();
        }
        assert!(world.server.get(&path).is_some(), "the pod may only be new");
        let earlier = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        world.context.session(UID, |it| it.misplaced = Some((earlier, Vec::new())));
        world.reconcile().await.unwrap();
        assert_eq!(world.server.get(&path), None, "{label}");
        let notes = world.notes();
        let told =
            notes.iter().filter(|it| it.starts_with("the labels of the pod quickstart-paris-1 were changed"));
        assert_eq!(told.count(), 1, "{notes:?}");
        world.make_pods();
        world.look().await.unwrap();
        assert_eq!(world.condition("PodsReady"), "True AllRunning");
    }
}

#[tokio::test]
async fn a_pod_with_changed_labels_does_not_outlive_the_federation() {
    for is_readable in [true, false] {
        let world = World::running(json!({})).await;
        relabel(&world, "quickstart-paris-1", "faultline.dev/uid", Some("another"));
        let foreign = format!("{PODS}/quickstart-rennes-0");
        world
            .server
            .put(&foreign, json!({ "metadata": { "name": "quickstart-rennes-0", "uid": "foreign" } }));
        world.delete_federation();
        if !is_readable {
            change(&world, 2, |spec| spec["clusters"] = json!("none"));
        }
        world.look().await.unwrap();
        world.collect_garbage();
        world.look().await.unwrap();
        let finalizers = || world.server.get(FEDERATION).unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers(), json!(["faultline.dev/cleanup"]), "it waits for the pod");
        assert_eq!(
            world.status().message.as_deref(),
            Some("waiting for the deletion of the pod quickstart-paris-1")
        );
        assert_eq!(world.server.paths(PODS), [foreign]);
        world.look().await.unwrap();
        assert_eq!(finalizers(), json!([]));
    }
}

#[tokio::test]
async fn a_supervisor_may_be_evicted_only_after_the_run() {
    let mut world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    let allowed = |world: &World| world.server.get(BUDGET).unwrap()["spec"]["maxUnavailable"].clone();
    assert_eq!(allowed(&world), 0);
    run_to_the_verdict(&mut world, async |world| world.look().await.unwrap()).await;
    assert_eq!(allowed(&world), 1);
}

#[tokio::test]
async fn the_ends_of_runs_are_counted_once_by_verdict_and_reason() {
    let count = |world: &World, line: &str| world.context.metrics.text().lines().any(|it| it == line);
    let mut world = World::judged().await;
    let passed = "faultline_operator_runs_total{verdict=\"pass\",reason=\"Pass\"} 1";
    assert!(count(&world, passed) && count(&world, "faultline_operator_records_lost_total 0"));
    world.look().await.unwrap();
    assert!(count(&world, passed));
    // The next operator does not count the run again, but counts the loss of its record.
    world.restart();
    let supervisor = format!("{PODS}/quickstart-supervisor-0");
    world.server.remove(&supervisor);
    world.make_pods();
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.condition("Completed"), "True RecordLost");
    // The cache may still contain an earlier status.
    let mut federation = world.server.get(FEDERATION).unwrap();
    let conditions = federation["status"]["conditions"].as_array_mut().unwrap();
    conditions.iter_mut().find(|it| it["type"] == "Completed").unwrap()["reason"] = json!("Pass");
    world.server.put(FEDERATION, federation);
    world.look().await.unwrap();
    assert!(count(&world, &passed.replace("} 1", "} 0")));
    assert!(count(&world, "faultline_operator_records_lost_total 1"));

    let world = World::running(json!({})).await;
    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Completed;
        it.verdict = Some(RunVerdict::Unknown);
        it.exceeded_deadline = true;
    });
    world.look().await.unwrap();
    assert_eq!(world.condition("Completed"), "True DeadlineExceeded");
    assert!(count(
        &world,
        "faultline_operator_runs_total{verdict=\"unknown\",reason=\"DeadlineExceeded\"} 1"
    ));
}

#[tokio::test]
async fn a_federation_expires_some_time_after_its_run() {
    let world = World::running(json!({ "ttlSecondsAfterFinished": 3600 })).await;
    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Completed;
        it.verdict = Some(RunVerdict::Pass);
    });
    world.look().await.unwrap();
    world.server.writes();
    assert_eq!(world.look_for_next().await.unwrap(), Action::requeue(Duration::from_secs(60)));
    let mut federation = world.server.get(FEDERATION).unwrap();
    let conditions = federation["status"]["conditions"].as_array_mut().unwrap();
    let completed = conditions.iter_mut().find(|it| it["type"] == "Completed").unwrap();
    completed["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
    world.server.put(FEDERATION, federation);
    world.server.writes();
    world.look().await.unwrap();
    assert_eq!(world.server.writes(), [format!("DELETE {FEDERATION}")]);
}

#[tokio::test]
async fn a_federation_that_is_gone_without_its_finalizer_leaves_no_state() {
    let world = World::new().await;
    world.look().await.unwrap();
    let name = "experiments/quickstart";
    world.context.forget_others(name, Some(UID));
    assert_eq!(world.context.federations(), 1);
    world.context.forget_others("experiments/other", None);
    assert_eq!(world.context.federations(), 1);
    // Another federation of the same name was applied.
    world.context.forget_others(name, Some("another UID"));
    assert_eq!(world.context.federations(), 1);
    world.context.forget_others(name, None);
    assert_eq!(world.context.federations(), 0);
}

#[tokio::test]
async fn a_set_scaled_by_others_is_restored_and_reported() {
    let world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    let path = format!("{SETS}/quickstart-paris");
    let mut set = world.server.get(&path).unwrap();
    set["spec"]["replicas"] = json!(0);
    world.server.put(&path, set);
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.server.get(&path).unwrap()["spec"]["replicas"], 3);
    let told = world
        .notes()
        .into_iter()
        .filter(|it| it.contains("replicas of quickstart-paris were changed to 0"))
        .count();
    assert_eq!(told, 1, "{:?}", world.notes());
}

#[tokio::test]
async fn a_set_scaled_after_the_run_is_scaled_down_again_and_reported() {
    let mut world = World::judged().await;
    let path = format!("{SETS}/quickstart-paris");
    let replicas = |world: &World| world.server.get(&path).unwrap()["spec"]["replicas"].clone();
    world.look().await.unwrap();
    world.look().await.unwrap();
    let notes = |world: &World| world.notes().iter().filter(|it| it.contains("were changed to")).count();
    assert_eq!((replicas(&world), notes(&world)), (json!(0), 0), "{:?}", world.notes());
    // The new operator knows the end of the run only from the API server.
    world.restart();
    let mut set = world.server.get(&path).unwrap();
    set["spec"]["replicas"] = json!(3);
    world.server.put(&path, set);
    world.look().await.unwrap();
    assert_eq!((replicas(&world), notes(&world)), (json!(0), 1), "{:?}", world.notes());
    let told = |it: &String| it.contains("restored them to 0, because the run is over");
    assert!(world.notes().iter().any(told), "{:?}", world.notes());
}

#[tokio::test]
async fn a_change_that_the_supervisor_cannot_read_is_refused() {
    let world = World::running(json!({})).await;
    world.supervisor.refuses_specs.store(true, Relaxed);
    change(&world, 2, |spec| spec["pause"] = json!(true));
    world.look().await.unwrap();
    assert_eq!(world.condition("Accepted"), "False ChangeRefused");
    let message = world.status().message.unwrap();
    assert!(message.contains("the supervisor cannot read it: the supervisor answered 400"), "{message}");
    world.supervisor.refuses_specs.store(false, Relaxed);
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.condition("Accepted"), "True Valid");
}

#[tokio::test]
async fn the_pods_of_clusters_that_join_and_leave_exist_throughout_the_run() {
    let world = World::of("cck-elastic").await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.make_pods();
    assert_eq!(
        world.server.paths(&format!("{PODS}/")).len(),
        14,
        "with those of the supervisor and the recovery process"
    );
    world.look().await.unwrap();
    let cluster = |name: &str, state, up| ClusterReport {
        name: name.into(),
        state,
        processes: 3,
        up,
        ..ClusterReport::default()
    };
    let say = |rennes, nancy| {
        let of = |state| if state == ClusterState::Running { 3 } else { 0 };
        world.supervisor.say(|it| {
            it.phase = supervision::RunPhase::Running;
            it.clusters = vec![
                cluster("paris", ClusterState::Running, 3),
                cluster("delft", ClusterState::Running, 3),
                cluster("rennes", rennes, of(rennes)),
                cluster("nancy", nancy, of(nancy)),
            ];
        });
    };
    let replicas = || {
        ["rennes", "nancy"].map(|it| {
            world.server.get(&format!("{SETS}/quickstart-{it}")).unwrap()["spec"]["replicas"].clone()
        })
    };
    for (rennes, nancy, ready) in [
        (ClusterState::Running, ClusterState::Awaited, "3/3"),
        (ClusterState::Running, ClusterState::Running, "4/4"),
        (ClusterState::Left, ClusterState::Running, "3/3"),
    ] {
        say(rennes, nancy);
        world.look().await.unwrap();
        assert_eq!(world.status().clusters_ready.as_deref(), Some(ready));
        assert_eq!(world.condition("PodsReady"), "True AllRunning");
        // A lost pod of an absent cluster is no obstacle, and its successor becomes a place.
        world.server.remove(&format!("{PODS}/quickstart-rennes-0"));
        world.server.remove(&format!("{PODS}/quickstart-nancy-0"));
        world.look().await.unwrap();
        assert_eq!(world.condition("PodsReady"), "False Starting");
        assert_eq!(world.condition("Running"), "True Running");
        world.make_pods();
        world.look().await.unwrap();
        assert_eq!(world.condition("PodsReady"), "True AllRunning");
        assert_eq!(world.supervisor.places.lock().unwrap().last().unwrap().places.len(), 13);
    }
    let path = format!("{SETS}/quickstart-rennes");
    let mut set = world.server.get(&path).unwrap();
    set["spec"]["replicas"] = json!(0);
    world.server.put(&path, set);
    world.look().await.unwrap();
    assert_eq!(replicas(), [3, 3], "the pods stay although the cluster has left");
}

#[tokio::test]
async fn repeated_failures_to_reconcile_are_reported() {
    let world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.server.remove(&format!("{SETS}/quickstart-paris"));
    world.server.fail_writes_to("statefulsets");
    assert!(world.look().await.is_err());
    assert!(world.status().condition("Reconciled").is_none(), "a single failure is not reported");
    // The controller would have counted this failure.
    world.context.session(UID, |it| it.failures = 1);
    assert!(world.look().await.is_err());
    assert_eq!(world.condition("Reconciled"), "False CannotWrite");
    world.server.allow();
    world.look().await.unwrap();
    assert_eq!(world.condition("Reconciled"), "True Reconciled");
}

#[tokio::test]
async fn a_run_that_ends_while_the_operator_has_no_rights_is_reported_once_it_has_them() {
    let world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.make_pods();
    world.look().await.unwrap();
    world.supervisor.say(|it| it.phase = supervision::RunPhase::Running);
    world.look().await.unwrap();
    let made = world.made();
    world.server.forbid("federations", "the operator may not do this", None);
    world.supervisor.say(|it| it.events = vec![supervisor_event(1, "Started", "The application has begun.")]);
    world.look().await.unwrap_err();
    assert_eq!(world.made(), made, "nothing is deleted or made while the status cannot be written");
    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Completed;
        it.verdict = Some(RunVerdict::Pass);
        it.events.push(supervisor_event(2, "Completed", "The verdict is pass."));
    });
    world.look().await.unwrap_err();
    world.server.allow();
    world.look().await.unwrap();
    assert_eq!((world.status().phase, world.condition("Completed")), (Phase::Completed, "True Pass".into()));
    let begun = world.notes().iter().filter(|it| it.contains("has begun")).count();
    assert_eq!(begun, 1, "what happened in the meantime is reported once: {:?}", world.notes());
}

#[tokio::test]
async fn events_that_cannot_be_created_do_not_keep_a_run_from_ending() {
    let world = World::running(json!({})).await;
    world.server.writes();
    let attempts = || world.server.writes().iter().filter(|it| it.starts_with("POST")).count();
    world.server.forbid("events", "exceeded quota: count/events.events.k8s.io", None);
    world.supervisor.say(|it| {
        let numbers = 1..=5;
        it.events = numbers.map(|it| supervisor_event(it, "RolledBack", &format!("Event {it}."))).collect();
    });
    world.look().await.unwrap();
    assert_eq!((world.status().phase, world.status().last_event), (Phase::Running, Some(5)));
    assert_eq!(attempts(), 1, "the others would fail, too");
    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Completed;
        it.verdict = Some(RunVerdict::Pass);
        it.events.push(supervisor_event(6, "Judged", "The verdict is pass."));
    });
    let next = world.look_for_next().await.unwrap();
    assert_eq!((world.status().phase, world.condition("Completed")), (Phase::Completed, "True Pass".into()));
    world.look().await.unwrap();
    assert_eq!(world.server.get(&format!("{SETS}/quickstart-paris")).unwrap()["spec"]["replicas"], 0);
    attempts();
    // The next attempt is not due yet.
    world.context.session(UID, |it| it.unreported.due = Some(Instant::now() + Duration::from_secs(30)));
    world.reconcile_now().await.unwrap();
    assert_eq!(attempts(), 0);
    assert!(!world.notes().iter().any(|it| it.contains("verdict")), "{:?}", world.notes());
    assert_ne!(next, Action::await_change(), "there will be another attempt");
    world.server.allow();
    world.look().await.unwrap();
    let told = ["Event 1.", "Event 5.", "The verdict is pass."];
    let count = |text: &str| world.notes().iter().filter(|it| *it == text).count();
    assert_eq!(told.map(count), [1, 1, 1], "{:?}", world.notes());
}

#[tokio::test]
async fn the_status_is_written_even_if_the_api_server_never_answers_requests_for_events() {
    let world = World::running(json!({})).await;
    world.server.freeze("events.k8s.io");
    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Completed;
        it.verdict = Some(RunVerdict::Pass);
        it.events = vec![supervisor_event(1, "Judged", "The verdict is pass.")];
    });
    world.look().await.unwrap();
    assert_eq!((world.status().phase, world.condition("Completed")), (Phase::Completed, "True Pass".into()));
}

#[tokio::test]
async fn a_run_with_many_events_is_completed_after_an_outage_of_the_operator() {
    let mut world = World::running(json!({})).await;
    world.restart();
    let text = "x".repeat(500);
    world.supervisor.say(|it| {
        it.phase = supervision::RunPhase::Completed;
        it.verdict = Some(RunVerdict::Pass);
        it.events = (1..=5000).map(|it| supervisor_event(it, "RolledBack", &text)).collect();
    });
    for _ in 0..20 {
        world.look().await.unwrap();
        assert_eq!(world.condition("Supervised"), "True Responding");
    }
    assert_eq!((world.status().phase, world.condition("Completed")), (Phase::Completed, "True Pass".into()));
    assert_eq!(world.status().last_event, Some(5000));
}

#[tokio::test]
async fn large_statuses_are_read_one_at_a_time() {
    let world = World::running(json!({})).await;
    let turn = world.context.large_status.lock().await;
    world.look().await.expect("the status of a federation with two clusters is small");
    let mut federation = world.server.get(FEDERATION).unwrap();
    let clusters: Vec<Value> = (0..65).map(|it| json!({ "name": format!("c{it}"), "nodes": 1 })).collect();
    federation["spec"]["clusters"] = json!(clusters);
    let federation: Federation = serde_json::from_value(federation).unwrap();
    world.context.session(UID, |it| it.frozen = Some(Arc::new(federation.spec)));
    world.supervisor.tokens.lock().unwrap().clear();
    let mut look = std::pin::pin!(world.reconcile());
    let early = tokio::time::timeout(Duration::from_millis(100), &mut look).await;
    assert!(early.is_err() && world.supervisor.tokens.lock().unwrap().is_empty());
    drop(turn);
    look.await.unwrap();
    assert!(!world.supervisor.tokens.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_of_a_foreign_supervisor_is_not_stored_as_a_whole() {
    let world = World::running(json!({})).await;
    let long = "x".repeat(100_000);
    world.supervisor.say(|it| {
        it.supervisor.clone_from(&long);
        it.missing = vec![long.clone()];
        it.reasons = vec![long.clone()];
        it.events = vec![supervisor_event(1, &long, &long)];
        it.phase = supervision::RunPhase::Judging;
    });
    world.look().await.unwrap();
    assert!(serde_json::to_vec(&world.status()).unwrap().len() < 20_000);
    let supervisor = world.status().supervisor.unwrap();
    assert!((1..=40).contains(&supervisor.len()), "the API server admits no more: {}", supervisor.len());
}

#[tokio::test]
async fn a_pod_with_a_stuck_finalizer_holds_the_federation_and_is_named() {
    let world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.make_pods();
    world.look().await.unwrap();
    world.delete_federation();
    world.look().await.unwrap();
    // The garbage collector deletes everything else.
    let stuck = format!("{PODS}/quickstart-paris-1");
    let mut pod = world.server.get(&stuck).unwrap();
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod["metadata"]["finalizers"] = json!(["example.com/stuck"]);
    let set = world.server.get(&format!("{SETS}/quickstart-paris")).unwrap();
    world.collect_garbage();
    world.server.put(&stuck, pod);
    world.server.put(&format!("{SETS}/quickstart-paris"), set);
    for _ in 0..3 {
        world.look().await.unwrap();
        assert_eq!(world.status().phase, Phase::Deleting);
        let message = world.status().message.unwrap();
        assert!(
            message.contains("the pod quickstart-paris-1, which has the finalizer example.com/stuck"),
            "{message}"
        );
    }
    world.server.remove(&stuck);
    world.server.remove(&format!("{SETS}/quickstart-paris"));
    world.look().await.unwrap();
    assert_eq!(world.federation().metadata.finalizers, Some(vec![]));
}

#[tokio::test]
async fn a_namespace_that_is_being_deleted_rejects_events_without_blocking_the_operator() {
    let world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.make_pods();
    world.server.forbid("events", "it is being terminated", Some("NamespaceTerminating"));
    world.look().await.unwrap();
    assert_eq!(world.condition("PodsReady"), "True AllRunning");
    assert_eq!(world.context.session(UID, |it| it.unreported.due), None, "there is no other attempt");
}

#[tokio::test]
async fn an_invalid_federation_has_no_objects() {
    let world = World::new().await;
    let mut federation = world.server.get(FEDERATION).unwrap();
    federation["spec"]["deadline"] = json!("1ms");
    world.server.put(FEDERATION, federation);
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.status().phase, Phase::Rejected);
    assert_eq!(world.server.paths(SETS), [""; 0]);
    assert!(world.server.get(KEY).is_none());
}

/// Replaces the operator with one that permits this many pods.
fn permit(world: &mut World, max_pods: u32) {
    let settings = Settings { supervisor_api_port: world.port, max_pods, ..Settings::default() };
    world.context =
        Arc::new(Context::new(world.server.client(), settings, "test".into(), Arc::new(Metrics::default())));
}

#[tokio::test]
async fn a_federation_that_is_too_large_is_rejected_without_being_validated() {
    let mut world = World::new().await;
    permit(&mut world, 6);
    let mut federation = world.server.get(FEDERATION).unwrap();
    federation["spec"]["deadline"] = json!("1ms");
    world.server.put(FEDERATION, federation);
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(
        (world.status().phase, world.condition("Accepted")),
        (Phase::Rejected, "False Invalid".into())
    );
    let message = world.status().message.unwrap();
    assert!(message.contains("--max-pods 7") && !message.contains("deadline"), "{message}");
}

#[tokio::test]
async fn a_lower_limit_on_pods_does_not_affect_a_run() {
    let mut world = World::running(json!({})).await;
    permit(&mut world, 6);
    world.look().await.unwrap();
    assert_eq!((world.status().phase, world.condition("Accepted")), (Phase::Running, "True Valid".into()));
    change(&world, 2, |spec| spec["pause"] = json!(true));
    world.look().await.unwrap();
    assert_eq!(world.condition("Accepted"), "True Valid");
    assert!(world.supervisor.paused.load(Relaxed), "the change is sent to the supervisor");
}

#[tokio::test]
async fn a_change_of_a_fixed_field_does_not_reach_the_pods() {
    let world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.make_pods();
    world.look().await.unwrap();
    world.supervisor.say(|it| it.phase = supervision::RunPhase::Running);
    world.look().await.unwrap();
    let made = world.made();
    change(&world, 2, |spec| {
        spec["clusters"] = json!([{ "name": "paris", "nodes": 1 }, { "name": "nancy", "nodes": 3 }]);
    });
    world.server.writes();
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.condition("Accepted"), "False ChangeRefused");
    let message = world.status().condition("Accepted").unwrap().message.clone();
    assert!(message.contains("spec.clusters: `clusters` cannot change"), "{message}");
    assert_eq!(world.made(), made);
    let writes = world.server.writes();
    assert!(!writes.iter().any(|it| it.contains("statefulsets")), "{writes:?}");
    let clusters = world.status().clusters;
    let clusters: Vec<(&str, u32)> = clusters.iter().map(|it| (it.name.as_str(), it.pods)).collect();
    assert_eq!(clusters, [("paris", 3), ("rennes", 3)]);
}

#[tokio::test]
async fn a_federation_that_cannot_be_read_is_reported_and_does_not_block_others() {
    const BROKEN: &str = "/apis/faultline.dev/v1alpha1/namespaces/experiments/federations/broken";
    let world = World::new().await;
    let mut federation = world.server.get(FEDERATION).unwrap();
    federation["metadata"]["finalizers"] = json!(["faultline.dev/cleanup"]);
    world.server.put(FEDERATION, federation.clone());
    federation["metadata"]["name"] = json!("broken");
    federation["metadata"]["uid"] = json!("another");
    federation["spec"]["clusters"] = json!("none");
    world.server.put(BROKEN, federation);
    let server = world.server.clone();
    let told = async move {
        while server.paths(SETS).len() < 3
            || server.get(BROKEN).unwrap()["status"]["conditions"][0]["reason"] != "Invalid"
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let run = controller::run(Arc::clone(&world.context), None, told);
    tokio::time::timeout(Duration::from_secs(30), run).await.expect("both federations are handled");
    let status = &world.server.get(BROKEN).unwrap()["status"];
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("spec: ") && message.contains("none"), "{message}");
    assert!(world.server.paths(SETS).iter().all(|it| it.contains("quickstart")));
}

#[tokio::test]
async fn a_new_federation_that_cannot_be_read_is_rejected_until_it_is_corrected() {
    let world = World::new().await;
    let deadline = world.server.get(FEDERATION).unwrap()["spec"]["deadline"].clone();
    change(&world, 1, |spec| spec["deadline"] = json!("100000h"));
    world.look().await.unwrap();
    world.look().await.unwrap();
    let rejected = (Phase::Rejected, "False Invalid".to_owned());
    assert_eq!((world.status().phase, world.condition("Accepted")), rejected);
    let message = world.status().message.unwrap();
    assert!(message.contains("`100000h` is too large for a duration"), "{message}");
    assert_eq!(world.notes(), [message], "it is reported once");
    assert_eq!(world.server.paths(SETS), [""; 0]);
    assert!(world.server.get(KEY).is_none());
    change(&world, 2, |spec| spec["deadline"] = deadline.clone());
    world.look().await.unwrap();
    world.look().await.unwrap();
    assert_eq!(world.condition("Accepted"), "True Valid");
    assert_eq!(world.server.paths(SETS).len(), 3);
}

#[tokio::test]
async fn a_run_continues_without_a_change_that_cannot_be_read() {
    type Change<'a> = &'a dyn Fn(&mut Value);
    let mut deep = json!([]);
    (0..40).for_each(|_| deep = json!([deep]));
    let beyond_limits = json!({ "custom": { "name": "theirs", "parameter": deep } });
    let changes: [(&str, Change<'_>); 2] = [
        ("`60%` is too large for a loss", &|spec| spec["links"]["between"]["loss"] = json!("60%")),
        ("`spec` nests", &|spec| spec["application"] = beyond_limits.clone()),
    ];
    for (reason, unreadable) in changes {
        let mut world = World::running(json!({})).await;
        let (made, spec) = (world.made(), world.server.get(FEDERATION).unwrap()["spec"].clone());
        change(&world, 2, unreadable);
        // The new operator knows the run only from the API server.
        world.restart();
        world.look().await.unwrap();
        let refused = (Phase::Running, "False ChangeRefused".to_owned());
        assert_eq!((world.status().phase, world.condition("Accepted")), refused);
        let message = world.status().message.unwrap();
        assert!(message.contains(reason), "{message}");
        assert!(world.status().condition("Reconciled").is_none());

        change(&world, 3, |it| {
            *it = spec.clone();
            it["pause"] = json!(true);
        });
        world.look().await.unwrap();
        assert!(world.supervisor.paused.load(Relaxed), "later changes count once this one is reverted");
        world.look().await.unwrap();
        assert_eq!(world.condition("Accepted"), "True Valid");

        // The operator still replaces lost objects, and informs the supervisor about new pods.
        change(&world, 4, unreadable);
        world.server.remove(&format!("{SETS}/quickstart-paris"));
        world.server.remove(&format!("{PODS}/quickstart-paris-1"));
        world.look().await.unwrap();
        assert_eq!(world.condition("Accepted"), "False ChangeRefused");
        world.make_pods();
        assert_eq!(world.made(), made);
        world.look().await.unwrap();
        assert_eq!(world.supervisor.places.lock().unwrap().last().unwrap().places.len(), 6);
        let notes = world.notes();
        assert_eq!(notes.iter().filter(|it| it.contains(reason)).count(), 2, "once per change: {notes:?}");

        world.supervisor.say(|it| {
            it.phase = supervision::RunPhase::Completed;
            it.verdict = Some(RunVerdict::Pass);
        });
        world.look().await.unwrap();
        assert_eq!(
            (world.status().phase, world.condition("Completed")),
            (Phase::Completed, "True Pass".into())
        );
        world.look().await.unwrap();
        let paris = world.server.get(&format!("{SETS}/quickstart-paris")).unwrap();
        assert_eq!(paris["spec"]["replicas"], 0);

        world.delete_federation();
        world.look().await.unwrap();
        world.collect_garbage();
        world.look().await.unwrap();
        assert_eq!(world.server.get(FEDERATION).unwrap()["metadata"]["finalizers"], json!([]));
    }
}

#[tokio::test]
async fn a_run_without_a_file_is_left_alone_while_its_federation_cannot_be_read() {
    let mut world = World::running(json!({})).await;
    world.server.remove(FILE);
    let made = world.made();
    change(&world, 2, |spec| spec["links"]["between"]["loss"] = json!("60%"));
    world.restart();
    assert!(world.look().await.is_err());
    assert_eq!(world.condition("Reconciled"), "False Unreadable");
    assert_eq!(world.made(), made);
}

#[tokio::test]
async fn an_operator_in_another_namespace_may_connect_to_existing_supervisors() {
    const POLICY: &str = "/apis/networking.k8s.io/v1/namespaces/experiments/networkpolicies/quickstart-pods";
    let mut world = World::running(json!({})).await;
    let admitted = |world: &World| {
        let policy = world.server.get(POLICY).unwrap();
        let from = &policy["spec"]["ingress"][1]["from"][0]["namespaceSelector"]["matchLabels"];
        from["kubernetes.io/metadata.name"].clone()
    };
    assert_eq!(admitted(&world), "default");
    world.server.writes();
    let settings = Settings { supervisor_api_port: world.port, ..Settings::default() };
    let client = world.server.client_in("elsewhere");
    world.context = Arc::new(Context::new(client, settings, "test".into(), Arc::new(Metrics::default())));
    world.look().await.unwrap();
    assert_eq!(admitted(&world), "elsewhere");
    world.look().await.unwrap();
    let writes = world.server.writes();
    assert_eq!(writes.iter().filter(|it| it.contains("networkpolicies")).count(), 1, "{writes:?}");
    assert!(!writes.iter().any(|it| it.contains("statefulsets")), "{writes:?}");
}

#[tokio::test]
async fn a_federation_that_cannot_be_read_is_deleted_with_its_objects() {
    let world = World::new().await;
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.make_pods();
    world.delete_federation();
    change(&world, 2, |spec| spec["clusters"] = json!("none"));
    let look = async || {
        let federation = world.server.get(FEDERATION).unwrap();
        let finalizers = federation["metadata"]["finalizers"].as_array().unwrap().len();
        world.look().await.unwrap();
        finalizers
    };
    assert_eq!([look().await, look().await], [1, 1]);
    let status = world.status();
    assert_eq!(status.phase, Phase::Deleting);
    assert!(status.message.unwrap().starts_with("waiting for the deletion of "));
    world.collect_garbage();
    assert_eq!([look().await, look().await], [1, 0]);
    assert_eq!((world.server.paths(SETS), world.server.paths(PODS)), (vec![], vec![]));
}

#[tokio::test]
async fn the_rights_are_those_that_are_used() {
    let mut world = World::new().await;
    run_to_the_verdict(&mut world, async |world| world.look().await.unwrap()).await;
    // Requests that only some federations cause: for a deleted volume, an existing key, or pods that cannot be created.
    let rare = World::new().await;
    let mut federation = rare.server.get(FEDERATION).unwrap();
    federation["spec"]["kubernetes"] = json!({ "volumes": { "size": "1GiB" } });
    rare.server.put(FEDERATION, federation);
    rare.look().await.unwrap();
    rare.look().await.unwrap();
    let mut set = rare.server.get(&format!("{SETS}/quickstart-paris")).unwrap();
    set["status"] = json!({ "replicas": 0 });
    rare.server.put(&format!("{SETS}/quickstart-paris"), set);
    rare.make_pods();
    rare.make_claim("quickstart-rennes-2", rare.owner("quickstart-rennes"));
    rare.request_volume("rennes-2", &rare.uid_of(&format!("{PODS}/quickstart-rennes-2")));
    rare.look().await.unwrap();
    rare.server.remove(&format!("{SETS}/quickstart-rennes"));
    rare.look().await.unwrap();
    rare.delete_federation();
    rare.look().await.unwrap();
    rare.collect_garbage();
    rare.look().await.unwrap();
    // A federation that expires.
    let mut expiring = World::new().await;
    let mut federation = expiring.server.get(FEDERATION).unwrap();
    federation["spec"]["kubernetes"] = json!({ "ttlSecondsAfterFinished": 0 });
    expiring.server.put(FEDERATION, federation);
    run_to_the_verdict(&mut expiring, async |world| world.look().await.unwrap()).await;
    // Requests made by the watches.
    let watching = ApiServer::default();
    let watched = |used: &BTreeSet<Right>| used.iter().filter(|it| it.2 == "watch").count() == 3;
    let stop = {
        let watching = watching.clone();
        async move {
            while !watched(&watching.used()) {
                tokio::task::yield_now().await;
            }
        }
    };
    let run = controller::run(context(&watching, 1), None, stop);
    tokio::time::timeout(Duration::from_secs(30), run).await.expect("everything is watched");

    let used: BTreeSet<Right> =
        [world.server.used(), rare.server.used(), expiring.server.used(), watching.used()]
            .into_iter()
            .flatten()
            .collect();
    let mut granted = BTreeSet::new();
    for rule in RULES.iter().chain(SECRET_RULES) {
        for resource in rule.resources {
            for verb in rule.verbs {
                let right: Right = (rule.api_groups[0].into(), (*resource).into(), (*verb).into());
                assert!(granted.insert(right), "{rule:?} is listed twice");
            }
        }
    }
    let missing: Vec<&Right> = used.difference(&granted).collect();
    let idle: Vec<&Right> = granted.difference(&used).collect();
    assert_eq!((missing, idle), (vec![], vec![]), "missing, and granted but never used");
}
