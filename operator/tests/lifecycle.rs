//! The whole lifecycle of a federation, with an in-memory API server and a supervisor whose status the test sets: the
//! order of writes, restarts of the operator at any point, and the permissions used.

#[path = "lifecycle/changes.rs"]
mod changes;
mod common;
#[path = "lifecycle/election.rs"]
mod election;
#[path = "lifecycle/ends.rs"]
mod ends;
#[path = "lifecycle/others.rs"]
mod others;
#[path = "lifecycle/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faultline_api::supervision::{self, Request, RequestedAction, RunVerdict};
use faultline_client::status::Phase;
use faultline_operator::election::GRACE;
use faultline_operator::install::{RULES, SECRET_RULES};
use faultline_operator::metrics::Metrics;
use faultline_operator::{Context, Settings, controller};
use serde_json::json;

use common::{ApiServer, Right};
use world::*;

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
async fn repeated_failures_to_reconcile_are_reported() {
    let world = World::created().await;
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
