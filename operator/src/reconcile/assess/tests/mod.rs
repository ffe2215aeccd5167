//! Tests of the status and of the events to report, without a cluster.

mod changes;
mod events;

use std::sync::Arc;
use std::time::Duration;

use faultline_api::resource::Emulation;
use faultline_api::supervision::{
    self, ClusterReport, Faults, LinkReport, RunEvent, RunPhase, RunStatus, Shaping,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use crate::pod_state;
use crate::reconcile::build::tests::{cached, frozen, pod, quickstart, running, system};
use crate::reconcile::objects::Obstacle;

fn at(seconds: i64) -> Time {
    Time(Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds))
}

/// The outcome of the steps that change something.
#[derive(Clone)]
enum Told {
    Accepted(Applied, Option<String>),
    Other(Situation),
}

fn accepted(obstacle: Option<Obstacle>) -> Told {
    Told::Accepted(Applied { obstacle, ..Applied::default() }, None)
}

fn rejected(message: &str) -> Told {
    Told::Other(Situation::Rejected(Obstacle { reason: "Invalid", message: message.into() }))
}

/// Returns the status and the new events.
fn assessed(observed: &Observed, told: &Told, seconds: i64) -> (FederationStatus, Vec<NewEvent>) {
    let situation = match told.clone() {
        Told::Accepted(applied, refused) => {
            let frozen = frozen(observed);
            let followed = Followed { refused, is_to_pause: frozen.federation.spec.pause };
            let observed = observed.clone();
            Situation::Accepted(Box::new(Progress { frozen, observed, applied, followed }))
        }
        Told::Other(situation) => situation,
    };
    assess(&cached(&observed.federation), &situation, at(seconds))
}

/// Does the same, and stores the status in the federation.
fn look(observed: &mut Observed, told: &Told, seconds: i64) -> (FederationStatus, Vec<NewEvent>) {
    let (status, new_events) = assessed(observed, told, seconds);
    let mut federation = (*observed.federation).clone();
    federation.status = Some(status.clone());
    observed.federation = Arc::new(federation);
    (status, new_events)
}

fn condition_of<'a>(status: &'a FederationStatus, kind: &str) -> &'a Condition {
    status.condition(kind).unwrap_or_else(|| panic!("no {kind} in {status:#?}"))
}

fn event(number: u64, reason: &str) -> RunEvent {
    let text = format!("event {number}");
    RunEvent { number, at_seconds: Some(1.5), reason: reason.into(), warning: false, text, age_micros: None }
}

fn link(from: &str, to: &str, requested: u64, measured: u64) -> LinkReport {
    LinkReport {
        from: from.into(),
        to: to.into(),
        requested_micros: requested,
        measured_micros: Some(measured),
        as_requested: Some(true),
    }
}

fn reasons(new_events: &[NewEvent]) -> Vec<&str> {
    new_events.iter().map(|it| it.reason.as_str()).collect()
}

#[test]
fn an_invalid_federation_is_rejected_and_reported_once() {
    let mut observed = Observed::of(Arc::new(quickstart()));
    let situation = rejected("spec.deadline: too short");
    let (status, new_events) = look(&mut observed, &situation, 1);
    assert_eq!(status.phase, Phase::Rejected);
    assert_eq!(status.observed_generation, Some(1));
    let condition = condition_of(&status, condition::ACCEPTED);
    assert_eq!((&*condition.status, &*condition.message), ("False", "spec.deadline: too short"));
    assert_eq!(reasons(&new_events), ["Rejected"]);
    assert!(new_events[0].warning);
    assert_eq!(look(&mut observed, &situation, 2), (status, vec![]), "nothing new, not even a time");
}

#[test]
fn the_reason_why_pods_do_not_run_is_reported_verbatim() {
    let cases = [
        ("pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"", "PodSecurity"),
        ("pods \"x\" is forbidden: exceeded quota: small, requested: pods=1", "Quota"),
        ("pods \"x\" is forbidden: maximum cpu usage per Container is 500m, but limit is 2", "LimitRange"),
        ("admission webhook denied the request", "Refused"),
    ];
    for (message, reason) in cases {
        let mut observed = Observed::of(Arc::new(quickstart()));
        observed.refused = Some(message.into());
        let (status, new_events) = look(&mut observed, &accepted(None), 1);
        let condition = condition_of(&status, condition::PODS_READY);
        assert_eq!((&*condition.status, &*condition.reason), ("False", reason));
        assert!(condition.message.starts_with("0 of 7 pods are running; "), "{}", condition.message);
        assert!(condition.message.ends_with(message), "{}", condition.message);
        let has_remedy = condition.message.contains("delete the federation and apply it again with ");
        assert_eq!(has_remedy, matches!(reason, "Quota" | "LimitRange"), "{}", condition.message);
        assert_eq!(reasons(&new_events), [reason]);
        assert_eq!(status.message.as_ref(), Some(&condition.message), "it is the headline");
    }
}

#[test]
fn pods_that_may_not_configure_links_report_a_remedy() {
    let mut federation = quickstart();
    federation.spec.kubernetes.get_or_insert_default().links = Some(Emulation::Tc);
    let mut observed = Observed::of(Arc::new(federation));
    observed.refused = Some("pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": …".into());
    let (status, _) = look(&mut observed, &accepted(None), 1);
    let condition = condition_of(&status, condition::PODS_READY);
    assert_eq!((&*condition.status, &*condition.reason), ("False", "PodSecurity"));
    let remedy =
        "kubectl label --overwrite namespace experiments pod-security.kubernetes.io/enforce=privileged";
    assert!(condition.message.contains(remedy), "{}", condition.message);
    assert!(condition.message.ends_with("violates PodSecurity \"restricted:latest\": …"));
}

#[test]
fn the_linked_condition_says_what_emulates_links_and_what_kernels_lack() {
    let shaping = |rates, delays| {
        let lacks = if delays < 6 { vec!["sch_netem (no such thing)".to_owned()] } else { vec![] };
        Some(Shaping { places: 6, rates, delays, lacks })
    };
    let cases = [
        (None, "inNode", "InNode", "delay lines in the nodes emulate the links; the delay"),
        (shaping(6, 6), "tc", "TrafficControl", "traffic control in the pods emulates the links; the delay"),
        (
            shaping(6, 0),
            "tc+inNode",
            "TrafficControlAndInNode",
            "limits bandwidth, and delay lines in the nodes emulate the rest, because the kernels lack sch_netem (no such thing)",
        ),
        (shaping(4, 2), "tc+inNode", "TrafficControlAndInNode", "limits bandwidth in 4 of 6 pods"),
        (shaping(0, 0), "inNode", "InNode", "because the kernels lack sch_netem (no such thing)"),
    ];
    for (shaping, word, reason, says) in cases {
        let links = vec![link("paris", "rennes", 5000, 5040)];
        let said = RunStatus { phase: RunPhase::Running, links, shaping, ..RunStatus::default() };
        let (status, _) = look(&mut running(said.clone()), &accepted(None), 1);
        let linked = condition_of(&status, condition::LINKED);
        assert_eq!((status.shaping.as_deref(), &*linked.reason), (Some(word), reason));
        assert!(linked.message.contains(says), "{}", linked.message);

        let before = RunStatus { phase: RunPhase::Gathering, links: vec![], ..said };
        let (status, _) = look(&mut running(before), &accepted(None), 1);
        let linked = condition_of(&status, condition::LINKED);
        assert_eq!((&*linked.status, &*linked.reason), ("Unknown", "NotMeasured"));
    }
}

/// Until the pods have reported what their kernels support, only the request is known.
#[test]
fn what_emulates_links_is_reported_once_it_is_known() {
    for (links, early) in [(Emulation::Tc, None), (Emulation::InNode, Some("inNode"))] {
        let mut federation = quickstart();
        federation.spec.kubernetes.get_or_insert_default().links = Some(links);
        let observed = |said: RunStatus| {
            let mut observed = running(said);
            observed.federation = Arc::new(federation.clone());
            observed
        };
        for phase in [RunPhase::Gathering, RunPhase::Measuring] {
            let said = RunStatus { phase, ..RunStatus::default() };
            let (status, _) = look(&mut observed(said), &accepted(None), 1);
            assert_eq!(status.shaping.as_deref(), early, "{phase:?}");
        }
        let links = vec![link("paris", "rennes", 5000, 5040)];
        let shaping = early.is_none().then(|| Shaping { places: 6, rates: 6, delays: 6, lacks: vec![] });
        let said = RunStatus { phase: RunPhase::Measuring, links, shaping, ..RunStatus::default() };
        let (status, _) = look(&mut observed(said), &accepted(None), 1);
        assert_eq!(status.shaping.as_deref(), early.or(Some("tc")));
    }
}

#[test]
fn a_changed_link_counts_as_requested_only_once_measured() {
    let changed =
        LinkReport { measured_micros: None, as_requested: None, ..link("rennes", "paris", 9000, 0) };
    let links = vec![link("paris", "rennes", 5000, 5040), changed];
    let said = RunStatus { phase: RunPhase::Running, links, ..RunStatus::default() };
    let (status, _) = look(&mut running(said), &accepted(None), 1);
    let linked = condition_of(&status, condition::LINKED);
    assert!(linked.message.contains("as requested on 1 of 1 measured links"), "{}", linked.message);
    assert!(
        linked.message.ends_with("links that changed and have not been measured yet: 1"),
        "{}",
        linked.message
    );
}

#[test]
fn a_cluster_that_has_failed_is_not_ready_though_its_pods_run() {
    let ready = |state| {
        let cluster =
            |name: &str, state| ClusterReport { name: name.into(), up: 3, state, ..ClusterReport::default() };
        let clusters = vec![cluster("paris", state), cluster("rennes", supervision::ClusterState::Running)];
        let said = RunStatus { phase: RunPhase::Running, clusters, ..RunStatus::default() };
        look(&mut running(said), &accepted(None), 1).0.clusters_ready
    };
    assert_eq!(ready(supervision::ClusterState::Running).as_deref(), Some("2/2"));
    assert_eq!(ready(supervision::ClusterState::Failed).as_deref(), Some("1/2"));
    assert_eq!(ready(supervision::ClusterState::Unrecoverable).as_deref(), Some("1/2"));
}

#[test]
fn a_cluster_that_has_not_joined_or_has_left_needs_its_pods_but_is_not_counted_as_ready() {
    let status = |state, up| {
        let rennes = ClusterReport { name: "rennes".into(), up, state, ..ClusterReport::default() };
        let state = supervision::ClusterState::Running;
        let paris = ClusterReport { name: "paris".into(), up: 3, state, ..ClusterReport::default() };
        let said =
            RunStatus { phase: RunPhase::Running, clusters: vec![paris, rennes], ..RunStatus::default() };
        let mut observed = running(said);
        let (status, new_events) = look(&mut observed, &accepted(None), 1);
        assert_eq!(reasons(&new_events), ["PodsReady"], "its processes need not be up");
        observed.pods.remove("quickstart-rennes-0");
        let without_pod = look(&mut observed, &accepted(None), 2).0;
        assert_eq!(condition_of(&without_pod, condition::PODS_READY).reason, "Starting");
        assert_eq!(without_pod.phase, Phase::Running);
        (status.clusters_ready.unwrap(), without_pod.clusters_ready.unwrap())
    };
    let counts = |ready: &str, without_pod: &str| (ready.to_owned(), without_pod.to_owned());
    assert_eq!(status(supervision::ClusterState::Awaited, 0), counts("1/1", "1/1"));
    assert_eq!(status(supervision::ClusterState::Running, 3), counts("2/2", "1/2"));
    assert_eq!(status(supervision::ClusterState::Left, 0), counts("1/1", "1/1"));
}

#[test]
fn a_pod_whose_shaper_does_not_run_is_not_ready_but_stays_a_place() {
    let mut observed = running(RunStatus { phase: RunPhase::Running, ..RunStatus::default() });
    let name = "quickstart-paris-0";
    let mut pod = (*observed.pods[name]).clone();
    let shaper = json!({
        "name": "shaper", "ready": false, "restartCount": 3, "image": "", "imageID": "",
        "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 10s" } },
    });
    let statuses = pod.status.as_mut().and_then(|it| it.container_statuses.as_mut()).expect("it has some");
    statuses.push(serde_json::from_value(shaper).expect("a container's status"));
    assert!(pod_state::address(&pod).is_some());
    observed.pods.insert(name.into(), Arc::new(pod));
    let (status, _) = look(&mut observed, &accepted(None), 1);
    let ready = condition_of(&status, condition::PODS_READY);
    assert_eq!((&*ready.status, &*ready.reason), ("False", "CrashLoopBackOff"));
    assert_eq!(status.clusters[0].pods, 2);
}

#[test]
fn a_pod_whose_image_cannot_be_pulled_names_its_pull_secrets() {
    let mut observed = Observed::of(Arc::new(quickstart()));
    let mut pod = (*pod("quickstart-paris-0", Some("paris"), "uid", false)).clone();
    let state = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "unauthorized" } });
    pod.status = Some(
        serde_json::from_value(json!({ "containerStatuses": [{
            "name": "faultline", "state": state, "ready": false, "restartCount": 0, "image": "", "imageID": "",
        }] }))
        .expect("a status"),
    );
    let secrets = json!([{ "name": "registry" }, { "name": "mine" }]);
    let spec = pod.spec.get_or_insert_default();
    spec.image_pull_secrets = serde_json::from_value(secrets).expect("a list");
    observed.pods.insert("quickstart-paris-0".into(), Arc::new(pod));
    let (status, _) = look(&mut observed, &accepted(None), 1);
    let message = &condition_of(&status, condition::PODS_READY).message;
    let expected = "quickstart-paris-0: unauthorized; its pull secrets are registry, mine: if `kubectl get secret \
                    --namespace experiments registry mine` does not find one, create it";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_pod_that_cannot_start_says_why() {
    let stuck = |status: serde_json::Value| {
        let mut observed = Observed::of(Arc::new(quickstart()));
        let mut pod = (*pod("quickstart-paris-0", Some("paris"), "uid", false)).clone();
        pod.status = Some(serde_json::from_value(status).expect("a status"));
        observed.pods.insert("quickstart-paris-0".into(), Arc::new(pod));
        let (status, _) = look(&mut observed, &accepted(None), 1);
        let condition = condition_of(&status, condition::PODS_READY);
        format!("{}: {}", condition.reason, condition.message)
    };
    let waiting = |reason: &str, message: &str| {
        let state = json!({ "waiting": { "reason": reason, "message": message } });
        json!({ "containerStatuses": [{
            "name": "faultline", "state": state, "ready": false, "restartCount": 0, "image": "", "imageID": "",
        }] })
    };
    let not_found = "ErrImagePull: 0 of 7 pods are running; quickstart-paris-0: not found";
    assert_eq!(stuck(waiting("ErrImagePull", "not found")), not_found);
    assert_eq!(stuck(waiting("ContainerCreating", "")), "Starting: 0 of 7 pods are running");
    let mut behind_another = waiting("ContainerCreating", "");
    let failing = waiting("ErrImagePull", "not found")["containerStatuses"][0].clone();
    behind_another["containerStatuses"].as_array_mut().expect("an array").push(failing.clone());
    assert_eq!(stuck(behind_another), not_found);
    let mut initializing = waiting("PodInitializing", "");
    initializing["initContainerStatuses"] = json!([failing]);
    assert_eq!(stuck(initializing), not_found);
    let mut crashing = waiting("CrashLoopBackOff", "back-off 10s");
    crashing["containerStatuses"][0]["image"] = json!("node:1");
    crashing["containerStatuses"][0]["lastState"] =
        json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
    assert_eq!(
        stuck(crashing),
        "CrashLoopBackOff: 0 of 7 pods are running; the container `faultline` of quickstart-paris-0 keeps ending \
         (OOMKilled, exit status 137, image node:1); `kubectl logs --previous --namespace experiments \
         quickstart-paris-0 --container faultline` shows its last output"
    );
    let scheduled = |at: &str| {
        let mut status = waiting("ContainerCreating", "");
        let scheduled = json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": at }]);
        status["conditions"] = scheduled;
        status
    };
    assert_eq!(stuck(scheduled("1970-01-01T00:00:00Z")), "Starting: 0 of 7 pods are running");
    let long_ago = stuck(scheduled("1969-12-31T23:59:00Z"));
    assert!(long_ago.starts_with("NotStarting: 0 of 7 pods are running; quickstart-paris-0"), "{long_ago}");
    let remedy = "`kubectl describe pod --namespace experiments quickstart-paris-0` shows the reason";
    assert!(long_ago.ends_with(remedy), "{long_ago}");
    let mut unknown = scheduled("1969-12-31T23:59:00Z");
    unknown["containerStatuses"] = json!([]);
    assert!(stuck(unknown).starts_with("NotStarting: "), "the Kubernetes node reports nothing");
    let mut restarting = scheduled("1969-12-31T23:59:00Z");
    restarting["containerStatuses"][0]["restartCount"] = json!(1);
    assert!(stuck(restarting).starts_with("Starting: "), "it has started before");
    let unschedulable = json!({ "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available",
    }] });
    assert_eq!(
        stuck(unschedulable),
        "Unschedulable: 0 of 7 pods are running; quickstart-paris-0: 0/3 nodes are available"
    );
}

#[test]
fn a_pod_without_its_volume_names_the_claim() {
    let mut observed = Observed::of(Arc::new(quickstart()));
    let mut pod = (*pod("quickstart-paris-0", Some("paris"), "uid", false)).clone();
    let message = "pod has unbound immediate PersistentVolumeClaims";
    let condition =
        json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message });
    pod.status = Some(serde_json::from_value(json!({ "conditions": [condition] })).expect("a status"));
    observed.pods.insert("quickstart-paris-0".into(), Arc::new(pod));
    let (status, _) = look(&mut observed, &accepted(None), 1);
    let told = &condition_of(&status, condition::PODS_READY).message;
    let remedy = "`kubectl describe pvc --namespace experiments data-quickstart-paris-0` shows the reason";
    assert!(told.ends_with(&format!("{message}; {remedy}")), "{told}");
}

/// A set does not replace the pods of a Kubernetes node that is gone.
/// Kubernetes cannot update the containers of a lost Kubernetes node, which stay running and ready.
#[test]
fn a_pod_on_a_lost_kubernetes_node_does_not_count_as_running() {
    let mut observed = running(RunStatus { phase: RunPhase::Running, ..RunStatus::default() });
    let change = |observed: &mut Observed, is_ready: &str, container: bool| {
        let mut lost = (**observed.pods.get("quickstart-paris-1").expect("it exists")).clone();
        let status = lost.status.as_mut().expect("it has a status");
        let condition = json!([{ "type": "Ready", "status": is_ready }]);
        status.conditions = serde_json::from_value(condition).expect("conditions");
        status.container_statuses.iter_mut().flatten().for_each(|it| it.ready = container);
        lost.spec = serde_json::from_value(json!({ "containers": [], "nodeName": "east" })).expect("a spec");
        observed.pods.insert("quickstart-paris-1".into(), Arc::new(lost));
    };
    change(&mut observed, "False", true);
    let (status, new_events) = look(&mut observed, &accepted(None), 1);
    let ready = condition_of(&status, condition::PODS_READY);
    assert_eq!((&*ready.status, &*ready.reason), ("False", "NodeNotReady"));
    assert!(
        ready.message.starts_with("6 of 7 pods are running; quickstart-paris-1 runs on"),
        "{}",
        ready.message
    );
    assert!(ready.message.contains("the Kubernetes node east, which does not respond"), "{}", ready.message);
    assert!(reasons(&new_events).contains(&"NodeNotReady"));
    assert_eq!(status.message.as_ref(), Some(&ready.message));
    assert_eq!((status.clusters[0].pods, status.clusters_ready.as_deref()), (2, Some("0/2")));
    // A probe that fails is another matter: the supervisor says whether it responds.
    for (is_ready, container) in [("True", true), ("False", false)] {
        change(&mut observed, is_ready, container);
        let (status, _) = look(&mut observed, &accepted(None), 2);
        assert!(status.holds(condition::PODS_READY), "{is_ready}");
    }
}

#[test]
fn nothing_is_ready_while_a_federation_is_deleted() {
    let mut observed = running(RunStatus { phase: RunPhase::Running, ..RunStatus::default() });
    let (status, _) = look(&mut observed, &accepted(None), 1);
    let kinds = [condition::PODS_READY, condition::SUPERVISED, condition::RUNNING];
    assert!(kinds.iter().all(|it| status.holds(it)), "{status:#?}");
    let deleting = Told::Other(Situation::Deleting { left: vec!["the pod quickstart-paris-0".into()] });
    let (status, _) = look(&mut observed, &deleting, 2);
    for kind in kinds {
        let condition = condition_of(&status, kind);
        assert_eq!((&*condition.status, &*condition.reason), ("False", "Deleting"), "{kind}");
    }
    assert!(status.holds(condition::ACCEPTED));
}

#[test]
fn a_pod_that_is_not_deleted_is_reported_after_a_minute() {
    let mut observed = running(RunStatus { phase: RunPhase::Running, ..RunStatus::default() });
    let name = "quickstart-paris-0";
    let mut going = (*observed.pods[name]).clone();
    going.metadata.deletion_timestamp = Some(at(10));
    observed.pods.insert(name.into(), Arc::new(going));
    let mut reason = |seconds| {
        let (status, _) = look(&mut observed, &accepted(None), seconds);
        condition_of(&status, condition::PODS_READY).reason.clone()
    };
    assert_eq!(reason(70), "Starting");
    assert_eq!(reason(71), "Terminating");
}

#[test]
fn a_pod_without_an_ipv4_address_is_reported() {
    let mut observed = running(RunStatus { phase: RunPhase::Gathering, ..RunStatus::default() });
    for name in ["quickstart-paris-0", "quickstart-supervisor-0"] {
        let mut pod = (*observed.pods[name]).clone();
        pod.status.as_mut().expect("it has a status").pod_ip = Some("fd00::7".into());
        observed.pods.insert(name.into(), Arc::new(pod));
    }
    let (status, _) = look(&mut observed, &accepted(None), 1);
    let ready = condition_of(&status, condition::PODS_READY);
    assert_eq!((&*ready.status, &*ready.reason), ("False", "NoIPv4Address"));
    assert!(ready.message.starts_with("5 of 7 pods are running; quickstart-paris-0"), "{}", ready.message);
    assert_eq!(status.clusters[0].pods, 2);
}

#[test]
fn a_federation_whose_object_names_are_taken_is_refused() {
    let mut observed = Observed::of(Arc::new(quickstart()));
    let obstacle = Obstacle { reason: "NameTaken", message: "there is a Secret already".into() };
    let (status, new_events) = look(&mut observed, &accepted(Some(obstacle)), 1);
    assert_eq!(condition_of(&status, condition::ACCEPTED).status, "False");
    assert_eq!(new_events[0].reason, "NameTaken");
    let (status, _) = look(&mut observed, &accepted(None), 2);
    assert_eq!(condition_of(&status, condition::ACCEPTED).status, "True", "it is free again");
}

#[test]
fn a_slow_pod_does_not_hide_why_another_one_cannot_start() {
    let mut observed = Observed::of(Arc::new(quickstart()));
    let conditions = [
        json!({ "type": "PodScheduled", "status": "True", "lastTransitionTime": "1969-12-31T23:00:00Z" }),
        json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes" }),
    ];
    for (name, condition) in ["quickstart-paris-0", "quickstart-rennes-0"].into_iter().zip(conditions) {
        let mut pod = (*pod(name, None, name, false)).clone();
        pod.status = Some(serde_json::from_value(json!({ "conditions": [condition] })).expect("a status"));
        observed.pods.insert(name.into(), Arc::new(pod));
    }
    let (status, _) = look(&mut observed, &accepted(None), 1);
    assert_eq!(condition_of(&status, condition::PODS_READY).reason, "Unschedulable");
}

#[test]
fn an_obstacle_after_the_run_is_reported_until_it_is_gone() {
    let said =
        RunStatus { phase: RunPhase::Completed, events: vec![event(1, "Completed")], ..RunStatus::default() };
    let mut observed = running(said);
    let (status, _) = look(&mut observed, &accepted(None), 1);
    let message = status.message;
    let quota = Obstacle { reason: "Quota", message: "raise the ResourceQuota".into() };
    for (obstacle, reason, reported) in
        [(Some(quota.clone()), "Quota", true), (Some(quota), "Quota", false), (None, "RunEnded", false)]
    {
        let (status, new_events) = look(&mut observed, &accepted(obstacle), 2);
        assert_eq!(condition_of(&status, condition::PODS_READY).reason, reason);
        assert_eq!((status.message.as_ref(), !new_events.is_empty()), (message.as_ref(), reported));
    }
}

#[test]
fn a_run_is_followed_from_the_first_pod_to_the_verdict() {
    let cluster = |name: &str, up| ClusterReport {
        name: name.into(),
        state: supervision::ClusterState::Running,
        processes: 3,
        up,
        checkpoints: 2,
        forced: 1,
        rollbacks: 1,
        steps_done: 10,
        steps: 30,
    };
    let mut said = RunStatus { missing: vec!["paris-0".into()], ..RunStatus::default() };
    let mut observed = running(said.clone());
    let mut next = |said: &RunStatus, seconds| {
        observed.hear(said.clone());
        look(&mut observed, &accepted(None), seconds)
    };

    let (status, new_events) = next(&said, 1);
    assert_eq!(status.phase, Phase::Starting);
    assert_eq!(reasons(&new_events), ["PodsReady"]);
    assert_eq!(status.message.as_deref(), Some("waiting for paris-0"));
    assert_eq!(condition_of(&status, condition::LINKED).status, "Unknown");

    said.phase = RunPhase::Running;
    said.missing.clear();
    said.clusters = vec![cluster("paris", 3), cluster("rennes", 2)];
    said.links = vec![link("paris", "paris", 100, 103), link("paris", "rennes", 5000, 5040)];
    said.faults = Faults {
        planned: 2,
        done: 1,
        without_effect: 0,
        worst_skew_micros: Some(900),
        worst_latency_micros: Some(4000),
    };
    said.rollbacks = 2;
    said.events = vec![event(1, "Started"), event(2, "FaultInjected")];
    let (status, new_events) = next(&said, 2);
    assert_eq!(status.phase, Phase::Running);
    assert_eq!(reasons(&new_events), ["Started", "FaultInjected"]);
    assert_eq!(new_events[0].note, "At 1.50 s: event 1");
    assert_eq!(status.last_event, Some(2));
    assert_eq!(status.faults_done.as_deref(), Some("1/2"));
    assert_eq!((status.worst_skew_micros, status.worst_latency_micros), (Some(900), Some(4000)));
    assert_eq!(status.rollbacks, Some(2));
    assert_eq!(status.clusters_ready.as_deref(), Some("1/2"), "a process of rennes is down");
    assert_eq!(status.clusters[0].progress.as_deref(), Some("10/30"));
    assert_eq!(status.shaping.as_deref(), Some("inNode"));
    let linked = condition_of(&status, condition::LINKED);
    assert_eq!((&*linked.status, &*linked.reason), ("True", "InNode"));
    assert!(linked.message.contains("as requested on 2 of 2 measured links"), "{}", linked.message);
    assert!(
        linked.message.contains("deviates most on the link from paris to rennes, by 40 us"),
        "{}",
        linked.message
    );
    assert_eq!(condition_of(&status, condition::COMPLETED).status, "False");

    let (again, new_events) = next(&said, 3);
    assert_eq!((again, reasons(&new_events)), (status, vec![]), "events are reported once");

    said.phase = RunPhase::Completed;
    said.verdict = Some(RunVerdict::Pass);
    said.events = vec![event(3, "Completed")];
    let (status, new_events) = next(&said, 4);
    assert_eq!(status.phase, Phase::Completed);
    assert_eq!(status.verdict.as_deref(), Some("pass"));
    assert_eq!(reasons(&new_events), ["Completed"]);
    let completed = condition_of(&status, condition::COMPLETED);
    assert_eq!((&*completed.status, &*completed.reason), ("True", "Pass"));
    assert_eq!(completed.last_transition_time, at(4));
}

#[test]
fn a_run_that_could_not_be_carried_out_is_completed_and_unknown() {
    let said = RunStatus { phase: RunPhase::Failed, reasons: vec!["no room".into()], ..RunStatus::default() };
    let (status, _) = look(&mut running(said), &accepted(None), 1);
    let completed = condition_of(&status, condition::COMPLETED);
    assert_eq!(
        (&*completed.status, &*completed.reason, &*completed.message),
        ("True", "RunFailed", "no room")
    );
    assert_eq!(status.verdict.as_deref(), Some("unknown"));
}

/// A system whose container cannot pull its image, and whose nodes must be ready within 20 s. The agent runs.
fn without_image(within: &str) -> Observed {
    let mut federation = json!(system());
    federation["spec"]["application"]["system"]["ready"] =
        json!({ "tcp": "{{ host }}:80", "within": within });
    let mut observed = Observed::of(Arc::new(serde_json::from_value(federation).expect("a federation")));
    let mut paris = (*pod("pages-paris-0", Some("paris"), "uid", true)).clone();
    let state = json!({ "waiting": { "reason": "ErrImagePull", "message": "pages:1: not found" } });
    let system = json!({
        "name": "system", "image": "pages:1", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    });
    let statuses = paris.status.as_mut().and_then(|it| it.container_statuses.as_mut()).expect("it has some");
    statuses.push(serde_json::from_value(system).expect("a status"));
    observed.pods.insert("pages-paris-0".into(), Arc::new(paris));
    observed.hear(RunStatus { phase: RunPhase::Measuring, ..RunStatus::default() });
    observed.stuck_for = Duration::from_secs(20);
    observed
}

#[test]
fn a_system_ends_if_its_image_cannot_be_pulled_in_time() {
    let mut observed = without_image("21s");
    let (status, _) = look(&mut observed, &accepted(None), 1);
    assert_eq!((status.phase, status.verdict.as_deref()), (Phase::Linking, None));
    assert!(has_stuck_pod(&frozen(&observed), &observed));

    let mut observed = without_image("20s");
    let (status, new_events) = look(&mut observed, &accepted(None), 2);
    assert_eq!((status.phase, status.verdict.as_deref()), (Phase::Completed, Some("unknown")));
    let completed = condition_of(&status, condition::COMPLETED);
    assert_eq!((&*completed.status, &*completed.reason), ("True", "PodsNotStarted"));
    let told = "the container `system` could not start within 20s (`ready.within`): ErrImagePull, image pages:1; \
                pages-paris-0: pages:1: not found; correct `spec.kubernetes.image`, or make this image available to the \
                cluster, and create the federation again";
    assert_eq!((&*completed.message, status.message.as_deref()), (told, Some(told)));
    assert!(reasons(&new_events).contains(&"PodsNotStarted"), "{new_events:?}");
    assert_eq!(condition_of(&status, condition::RUNNING).status, "False");
    assert!(observed.has_never_started() && !observed.keeps_record());
    assert_eq!(look(&mut observed, &accepted(None), 3), (status, vec![]), "it is reported once");
}

#[test]
fn only_a_system_that_has_not_begun_ends_without_an_image() {
    let mut observed = without_image("20s");
    observed.hear(RunStatus { phase: RunPhase::Running, ..RunStatus::default() });
    assert_eq!(look(&mut observed, &accepted(None), 1).0.phase, Phase::Running);
    // Without a system, no time limit is stated, and an administrator can correct the image of the nodes.
    let mut observed = Observed { federation: Arc::new(quickstart()), ..without_image("20s") };
    assert_eq!(look(&mut observed, &accepted(None), 1).0.phase, Phase::Linking);
}

#[test]
fn a_silent_supervisor_is_reported_and_changes_no_phase() {
    let mut observed = running(RunStatus { phase: RunPhase::Running, ..RunStatus::default() });
    look(&mut observed, &accepted(None), 1);
    observed.supervision = Supervision::Silent("no response within 2s".into());
    let (status, new_events) = look(&mut observed, &accepted(None), 2);
    assert_eq!(status.phase, Phase::Running);
    assert_eq!(reasons(&new_events), ["SupervisorSilent"]);
    assert!(status.message.is_some_and(|it| it.contains("no response")));
}

#[test]
fn only_a_supervisor_that_responds_says_that_the_application_is_running() {
    for supervision in [Supervision::Absent, Supervision::Silent("no response within 2s".into())] {
        let said = RunStatus { phase: RunPhase::Running, ..RunStatus::default() };
        let mut observed = running(said.clone());
        look(&mut observed, &accepted(None), 1);
        observed.supervision = supervision;
        let (status, _) = look(&mut observed, &accepted(None), 2);
        let unknown = condition_of(&status, condition::RUNNING);
        assert_eq!((&*unknown.status, &*unknown.reason), ("Unknown", "NotSupervised"));
        assert_eq!(status.phase, Phase::Running);
        observed.hear(said);
        let (status, _) = look(&mut observed, &accepted(None), 3);
        assert_eq!(condition_of(&status, condition::RUNNING).status, "True");

        let mut observed = running(RunStatus { phase: RunPhase::Measuring, ..RunStatus::default() });
        look(&mut observed, &accepted(None), 1);
        observed.supervision = Supervision::Absent;
        let (status, _) = look(&mut observed, &accepted(None), 2);
        assert_eq!(condition_of(&status, condition::RUNNING).status, "False", "it has not started");
    }
}

#[test]
fn a_supervisor_without_the_record_of_a_started_run_ends_it() {
    let first = RunStatus { supervisor: "first".into(), phase: RunPhase::Running, ..RunStatus::default() };
    let mut observed = running(first);
    let (status, _) = look(&mut observed, &accepted(None), 1);
    assert_eq!(status.supervisor.as_deref(), Some("first"));
    assert!(!observed.has_lost_record());
    let second =
        RunStatus { supervisor: "second".into(), phase: RunPhase::Gathering, ..RunStatus::default() };
    observed.hear(second);
    assert!(observed.has_lost_record());
    let (status, new_events) = look(&mut observed, &accepted(None), 2);
    assert_eq!(status.phase, Phase::Completed);
    assert_eq!(status.verdict.as_deref(), Some("unknown"));
    assert_eq!(condition_of(&status, condition::COMPLETED).reason, "RecordLost");
    assert_eq!(reasons(&new_events), ["RecordLost"]);
    assert_eq!(look(&mut observed, &accepted(None), 3).1, vec![], "it stays completed");
}

#[test]
fn a_federation_that_cannot_be_read_reports_what_its_deletion_waits_for() {
    let mut federation = quickstart();
    federation.status = Some(FederationStatus { rollbacks: Some(2), ..FederationStatus::default() });
    let mut federation = json!(federation);
    federation["spec"] = json!("none");
    let federation = serde_json::from_value(federation).expect("a federation");
    let situation = Situation::Deleting { left: vec!["the pod p".into()] };
    let (status, new_events) = assess(&federation, &situation, at(1));
    assert_eq!((status.phase, status.rollbacks), (Phase::Deleting, Some(2)));
    assert_eq!(status.message.as_deref(), Some("waiting for the deletion of the pod p"));
    assert_eq!(new_events, []);
}

#[test]
fn a_paused_federation_is_reported_as_paused() {
    let mut observed = Observed::of(Arc::new(quickstart()));
    let mut said = RunStatus { phase: RunPhase::Paused, ..RunStatus::default() };
    observed.hear(said.clone());
    let (status, _) = look(&mut observed, &accepted(None), 1);
    assert_eq!(status.phase, Phase::Paused);
    let running = condition_of(&status, condition::RUNNING);
    assert_eq!((&*running.status, &*running.reason), ("False", "Paused"));
    said.phase = RunPhase::Running;
    observed.hear(said);
    let (status, _) = look(&mut observed, &accepted(None), 2);
    assert_eq!((status.phase, &*condition_of(&status, condition::RUNNING).status), (Phase::Running, "True"));
}

#[test]
fn a_run_that_must_not_start_yet_reports_the_reason() {
    let mut observed = running(RunStatus { phase: RunPhase::Measuring, ..RunStatus::default() });
    let mut federation = (*observed.federation).clone();
    federation.spec.pause = true;
    observed.federation = Arc::new(federation);
    let (status, _) = look(&mut observed, &accepted(None), 1);
    assert_eq!(status.phase, Phase::Linking);
    assert_eq!(status.message.as_deref(), Some(READY_BUT_PAUSED));
}
