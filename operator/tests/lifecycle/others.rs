//! Objects of other owners, and changes by other clients to the objects of a federation.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use faultline_api::supervision::{self, Request, RequestedAction, RunVerdict};
use faultline_client::status::Phase;
use serde_json::{Value, json};

use crate::world::*;

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
    let mut world = World::started().await;
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
async fn objects_that_new_pods_need_are_restored_and_reported() {
    let world = World::started().await;
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
async fn a_set_scaled_by_others_is_restored_and_reported() {
    let world = World::created().await;
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
