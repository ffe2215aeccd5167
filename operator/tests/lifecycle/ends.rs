//! The ends of runs, and of federations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use faultline_api::supervision::{self, RunStatus, RunVerdict};
use faultline_client::status::Phase;
use faultline_operator::controller;
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use crate::world::*;

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
async fn a_supervisor_may_be_evicted_only_after_the_run() {
    let mut world = World::created().await;
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
async fn a_run_that_ends_while_the_operator_has_no_rights_is_reported_once_it_has_them() {
    let world = World::started().await;
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
    let spec = serde_json::value::to_raw_value(&federation["spec"]).unwrap();
    world.context.session(UID, |it| it.frozen = Some(spec));
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
    let world = World::started().await;
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
    let world = World::created().await;
    world.make_pods();
    world.server.forbid("events", "it is being terminated", Some("NamespaceTerminating"));
    world.look().await.unwrap();
    assert_eq!(world.condition("PodsReady"), "True AllRunning");
    assert_eq!(world.context.session(UID, |it| it.unreported.due), None, "there is no other attempt");
}

#[tokio::test]
async fn a_system_whose_image_cannot_be_pulled_ends_and_loses_its_pods() {
    let mut world = World::of("systems/pages").await;
    change(&world, 1, |spec| {
        spec["kubernetes"] = json!({ "image": "pages:1" });
        spec["application"]["system"]["ready"] = json!({ "tcp": "{{ host }}:80", "within": "100ms" });
    });
    world.look().await.unwrap();
    world.look().await.unwrap();
    world.make_pods();
    let path = format!("{PODS}/quickstart-paris-0");
    let mut pod = world.server.get(&path).unwrap();
    let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
    pod["status"]["containerStatuses"].as_array_mut().unwrap().push(json!({
        "name": "system", "image": "pages:1", "imageID": "", "ready": false, "restartCount": 0, "state": waiting,
    }));
    world.server.put(&path, pod);
    world.look().await.unwrap();
    assert_ne!(world.status().phase, Phase::Completed, "there is time left");
    tokio::time::sleep(Duration::from_millis(120)).await;
    world.look().await.unwrap();
    assert_eq!(world.condition("Completed"), "True PodsNotStarted");
    assert_eq!(world.status().verdict.as_deref(), Some("unknown"));
    world.look().await.unwrap();
    for set in ["paris", "supervisor"] {
        let set = world.server.get(&format!("{SETS}/quickstart-{set}")).unwrap();
        assert_eq!(set["spec"]["replicas"], 0, "{}", set["metadata"]["name"]);
    }
    assert!(
        world.notes().iter().any(|it| it.contains("could not start within 100ms")),
        "{:?}",
        world.notes()
    );
    world.restart();
    world.look().await.unwrap();
    assert_eq!(world.condition("Completed"), "True PodsNotStarted");
}
