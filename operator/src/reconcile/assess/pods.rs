//! The condition `PodsReady`: how many pods run, and what prevents the others from running.

use std::time;

use faultline_api::quantity::Duration;
use faultline_api::supervision::RunPhase;
use faultline_client::status::{ClusterStatus, Phase, condition};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

use super::Report;
use crate::federation_cache::{Misplaced, Origin};
use crate::naming;
use crate::pod_state;
use crate::reconcile::advice::refusal;
use crate::reconcile::apply::Applied;
use crate::reconcile::build::{self, Drift};
use crate::reconcile::dereference::{Observed, Supervision};
use crate::reconcile::freeze::Frozen;
use crate::reconcile::objects::{Obstacle, Restored};

/// Time that a pod may take to start or to end before it is reported as an obstacle.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// Reasons for which the image of a container is missing.
const IMAGE_REASONS: [&str; 4] =
    ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"];

impl Report<'_> {
    /// Reports the state of the pods: how many run, and what prevents the others from running.
    pub(super) fn pods(&mut self, frozen: &Frozen, observed: &Observed, applied: &Applied) {
        let hosts = build::hosts(frozen, observed);
        let running = |group: &str| {
            let of_group = |pod: &Pod| pod.labels().get(naming::CLUSTER).is_some_and(|it| it == group);
            hosts.iter().filter(|(_, pod)| of_group(pod) && pod_state::is_complete(pod)).count() as u32
        };
        let clusters: Vec<ClusterStatus> = frozen
            .groups
            .iter()
            .filter(|it| it.is_cluster)
            .map(|group| {
                let before = self.status.clusters.iter().find(|it| it.name == group.name).cloned();
                ClusterStatus {
                    name: group.name.clone(),
                    nodes: group.nodes,
                    pods: running(&group.name),
                    ..before.unwrap_or_default()
                }
            })
            .collect();
        self.status.clusters = clusters;
        let up: u32 = frozen.groups.iter().map(|it| running(&it.name)).sum();
        let supervisor = observed.supervisor();
        let (wanted, up) =
            (frozen.nodes() + 1, up + u32::from(supervisor.is_some_and(|it| pod_state::is_complete(it))));
        let refused = observed.refused.as_ref().map(|message| refusal(&observed.federation, message));
        let stuck = || observed.pods.values().find_map(|it| obstacle(it, &self.now));
        let slow = || observed.pods.values().find_map(|it| not_starting(it, &self.now));
        let occupied = || observed.misplaced.found.iter().find_map(occupied);
        let obstacle = applied.obstacle.clone().or_else(occupied).or(refused).or_else(stuck).or_else(slow);
        let obstacle = obstacle.filter(|_| up < wanted);
        match obstacle {
            Some(Obstacle { reason, message }) => {
                let message = format!("{up} of {wanted} pods are running; {message}");
                self.warn(condition::PODS_READY, "False", reason, &message);
            }
            None if up < wanted => {
                self.condition(
                    condition::PODS_READY,
                    "False",
                    "Starting",
                    &format!("{up} of {wanted} pods are running"),
                );
            }
            None => {
                let message = format!("all {wanted} pods are running, including the supervisor's");
                if self.condition(condition::PODS_READY, "True", "AllRunning", &message) {
                    self.add_event(condition::PODS_READY, "PodsReady", &message, false);
                }
            }
        }
    }

    /// Reports that the run is over, and that the state of pods no longer matters unless the supervisor's cannot be
    /// created.
    pub(super) fn over(&mut self, applied: &Applied) {
        let Some(Obstacle { reason, message }) = &applied.obstacle else {
            let message = match self.status.why_not_started() {
                Some(_) => "the run has ended, and has no record",
                None => "the run has ended; only its record is kept",
            };
            self.condition(condition::PODS_READY, "False", "RunEnded", message);
            return;
        };
        self.warn(condition::PODS_READY, "False", reason, message);
    }

    /// Reports changes by other clients that the operator has reverted.
    pub(super) fn repaired(&mut self, applied: &Applied) {
        for Drift { set, generation, found, wanted, .. } in &applied.repaired {
            let why = match wanted {
                0 => "the run is over",
                _ => "the size of a federation cannot change while it runs",
            };
            let note = format!(
                "the replicas of {set} were changed to {found}; the operator restored them to {wanted}, because {why}"
            );
            self.add_warning(&format!("drift of {set} at {generation}"), "DriftRepaired", &note);
        }
        for Misplaced { pod, uid, .. } in &applied.removed {
            let note = format!(
                "the labels of the pod {pod} were changed, so its StatefulSet could not replace or keep it; the \
                 operator deleted the pod, and its process begins a new life in another one"
            );
            self.add_warning(&format!("{pod} removed as {uid}"), "DriftRepaired", &note);
        }
        for Restored { object, uid } in &applied.restored {
            let note = format!("{object} was deleted although pods still need it; the operator restored it");
            self.add_warning(&format!("{object} restored as {uid}"), "ObjectRestored", &note);
        }
    }
}

/// Returns the obstacle that prevents a pod from running; `None` if the pod only needs time.
fn obstacle(pod: &Pod, now: &Time) -> Option<Obstacle> {
    if pod_state::has_lost_node(pod) {
        let node = pod.spec.as_ref().and_then(|it| it.node_name.as_deref()).unwrap_or("(unknown)");
        let message = format!(
            "{} runs on the Kubernetes node {node}, which does not respond; if this node is gone for good, delete the \
             Node",
            pod.name_any()
        );
        return Some(Obstacle { reason: "NodeNotReady", message });
    }
    // This time includes the grace period.
    if pod.metadata.deletion_timestamp.as_ref().is_some_and(|it| is_long_ago(it, now)) {
        let name = pod.name_any();
        let message = format!(
            "{name} is being deleted, but still exists: its Kubernetes node may not respond, or the pod may have \
             finalizers; if its Kubernetes node is gone for good, delete the Node"
        );
        return Some(Obstacle { reason: "Terminating", message });
    }
    let status = pod.status.as_ref()?;
    if pod_state::lacks_ipv4(pod) {
        let message =
            format!("{} has only IPv6 addresses, but processes communicate over IPv4", pod.name_any());
        return Some(Obstacle { reason: "NoIPv4Address", message });
    }
    let unscheduled = status.conditions.iter().flatten().find(|it| {
        it.type_ == "PodScheduled" && it.status == "False" && it.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(it) = unscheduled {
        let message = format!("{}: {}", pod.name_any(), it.message.as_deref().unwrap_or_default());
        // The scheduler does not state why there is no volume.
        let remedy = message.contains("PersistentVolumeClaim").then(|| {
            let (claim, namespace) = (naming::claim(&pod.name_any()), pod.namespace().unwrap_or_default());
            format!("; `kubectl describe pvc --namespace {namespace} {claim}` shows the reason")
        });
        return Some(Obstacle { reason: "Unschedulable", message: message + &remedy.unwrap_or_default() });
    }
    containers(pod).find_map(|it| stuck(pod, it))
}

/// Returns whether the run of a system cannot begin because a container cannot start.
pub(in crate::reconcile) fn has_stuck_pod(frozen: &Frozen, observed: &Observed) -> bool {
    first_stuck(frozen, observed).is_some()
}

/// Returns why a system cannot become ready: a container has been unable to start for longer than `ready.within` of its
/// nodes. `None` while time is left, or once the application has started.
pub(super) fn why_never_ready(frozen: &Frozen, observed: &Observed) -> Option<String> {
    let Stuck { pod, container, obstacle: Obstacle { reason, message }, within } =
        first_stuck(frozen, observed)?;
    if observed.stuck_for < time::Duration::from(within.0) {
        return None;
    }
    let (name, image) = (&container.name, &container.image);
    let remedy = match name == naming::SYSTEM {
        true => "correct `spec.kubernetes.image`, or make this image available to the cluster",
        false => "ask your administrator to make this image available to the cluster",
    };
    let remedy = match IMAGE_REASONS.contains(&reason) {
        true => remedy.to_owned(),
        false => {
            let (namespace, pod) = (pod.namespace().unwrap_or_default(), pod.name_any());
            format!("correct the cause, which `kubectl describe pod --namespace {namespace} {pod}` shows")
        }
    };
    Some(format!(
        "the container `{name}` could not start within {within} (`ready.within`): {reason}, image {image}; {message}; {remedy}, \
         and create the federation again"
    ))
}

/// A container that cannot start.
struct Stuck<'a> {
    pod: &'a Pod,
    container: &'a ContainerStatus,
    obstacle: Obstacle,
    /// Time within which the node must be ready.
    within: Duration,
}

/// Returns the container of a system's pods that cannot start and has the least time, before the application starts.
fn first_stuck<'a>(frozen: &Frozen, observed: &'a Observed) -> Option<Stuck<'a>> {
    let system = frozen.federation.spec.application.system()?;
    let has_begun = match &observed.supervision {
        Supervision::Known(said) => !matches!(said.phase, RunPhase::Gathering | RunPhase::Measuring),
        _ => observed.phase() >= Phase::Running,
    };
    if has_begun {
        return None;
    }
    let within = |cluster: &str| Duration(system.on(cluster).ready.cloned().unwrap_or_default().within());
    let longest = frozen.groups.iter().map(|it| within(&it.name)).max()?;
    let stuck = observed.pods.values().filter_map(|pod| {
        let within = pod.labels().get(naming::CLUSTER).map_or(longest, |it| within(it));
        let (container, obstacle) = containers(pod).find_map(|it| Some((it, stuck(pod, it)?)))?;
        Some(Stuck { pod, container, obstacle, within })
    });
    stuck.min_by_key(|it| it.within)
}

/// Returns the states of a pod's containers, in the order in which they start.
fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|it| [&it.init_container_statuses, &it.container_statuses]).flatten().flatten()
}

/// Returns the obstacle that prevents a container from running; `None` if the container only needs time.
fn stuck(pod: &Pod, container: &ContainerStatus) -> Option<Obstacle> {
    const NEEDS_ACTION: &[&str] = &[
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        CRASHING,
    ];
    const CRASHING: &str = "CrashLoopBackOff";
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let why = waiting.reason.as_deref().unwrap_or_default();
    let reason = NEEDS_ACTION.iter().find(|it| **it == why)?;
    let pod_name = pod.name_any();
    let ended = container.last_state.as_ref().and_then(|it| it.terminated.as_ref());
    let message = match ended.filter(|_| *reason == CRASHING) {
        None => {
            let said = waiting.message.as_deref().unwrap_or(why);
            format!("{pod_name}: {said}{}", pull_secrets(pod, reason).unwrap_or_default())
        }
        Some(ended) => format!(
            "the container `{name}` of {pod_name} keeps ending ({why}, exit status {code}, image {image}); \
             `kubectl logs --previous --namespace {namespace} {pod_name} --container {name}` shows its last output",
            name = container.name,
            why = ended.reason.as_deref().unwrap_or("Error"),
            code = ended.exit_code,
            image = container.image,
            namespace = pod.namespace().unwrap_or_default(),
        ),
    };
    Some(Obstacle { reason, message })
}

/// If an image cannot be pulled, names the pull secrets of the pod: the kubelet ignores those that do not exist.
fn pull_secrets(pod: &Pod, reason: &str) -> Option<String> {
    if !["ErrImagePull", "ImagePullBackOff"].contains(&reason) {
        return None;
    }
    let secrets = pod.spec.as_ref()?.image_pull_secrets.iter().flatten();
    let names: Vec<&str> = secrets.map(|it| it.name.as_str()).collect();
    let namespace = pod.namespace().unwrap_or_default();
    (!names.is_empty()).then(|| {
        format!(
            "; its pull secrets are {}: if `kubectl get secret --namespace {namespace} {}` does not find one, create it",
            names.join(", "),
            names.join(" ")
        )
    })
}

/// Returns the obstacle that a pod of another owner is for the pod of the same name.
fn occupied(misplaced: &Misplaced) -> Option<Obstacle> {
    let Misplaced { pod, origin: Origin::Elsewhere(owner), .. } = misplaced else { return None };
    let owner = owner.as_ref().map_or_else(|| "has no owner".to_owned(), |it| format!("belongs to {it}"));
    let message = format!(
        "the pod {pod} already exists, but does not belong to this federation: it {owner}; delete it, or give the \
         federation another name"
    );
    Some(Obstacle { reason: "NameTaken", message })
}

fn is_long_ago(time: &Time, now: &Time) -> bool {
    now.0.duration_since(time.0) > PATIENCE
}

/// Returns the obstacle for a pod whose containers have not started long after the pod was scheduled.
fn not_starting(pod: &Pod, now: &Time) -> Option<Obstacle> {
    let status = pod.status.as_ref()?;
    let has_started = |it: &ContainerStatus| {
        let mut states = [&it.state, &it.last_state].into_iter().flatten();
        it.restart_count > 0 || states.any(|it| it.running.is_some() || it.terminated.is_some())
    };
    if status.container_statuses.iter().flatten().any(has_started) {
        return None;
    }
    let scheduled = status.conditions.iter().flatten().find(|it| it.type_ == "PodScheduled");
    let scheduled = scheduled.filter(|it| it.status == "True")?.last_transition_time.as_ref();
    scheduled.is_some_and(|it| is_long_ago(it, now)).then(|| Obstacle {
        reason: "NotStarting",
        message: format!(
            "{name} was scheduled more than a minute ago, but its containers have not started; \
             `kubectl describe pod --namespace {namespace} {name}` shows the reason",
            name = pod.name_any(),
            namespace = pod.namespace().unwrap_or_default()
        ),
    })
}
