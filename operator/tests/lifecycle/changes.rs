//! Federations that cannot be run, and changes to those that run.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use faultline_api::supervision::{self, ClusterReport, ClusterState, RunVerdict};
use faultline_client::status::Phase;
use faultline_operator::metrics::Metrics;
use faultline_operator::{Context, Settings, controller};
use serde_json::{Value, json};

use crate::world::*;

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
    let world = World::started().await;
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
    assert!(message.starts_with("spec.clusters: ") && message.contains("none"), "{message}");
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
async fn a_federation_that_cannot_be_read_is_deleted_with_its_objects() {
    let world = World::created().await;
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
