//! Derives the desired objects from the federation and the existing objects, without side effects.

mod node;
pub(crate) mod pod;
mod policy;
mod supervisor;

use std::collections::{BTreeMap, BTreeSet};

use faultline_api::Federation;
use faultline_api::resource::Phase;
use faultline_api::supervision::{Amended, Place, Places, Request, RequestedAction, RunPhase, RunStatus};
use faultline_client::ports;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::dereference::{Observed, Supervision};
use super::validate::{self, Validated};
use crate::naming;
use crate::settings::Settings;

/// Name of the federation's file in its ConfigMap.
pub(super) const FILE: &str = "federation.yaml";

/// Value of the annotation [`naming::APPLIED`] of a set whose pods were removed because the run is over.
pub(super) const ENDED: &str = "ended";

/// Desired objects, data for the supervisor, and requests from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// The federation's file, which the sets mount.
    pub file: ConfigMap,
    /// Network policy of the pods.
    pub policy: NetworkPolicy,
    /// Whether the supervisor's pod may be evicted, for example because its Kubernetes node is drained.
    pub budget: PodDisruptionBudget,
    /// Sets that are missing or differ from the desired state, in the order in which they must be created.
    pub sets: Vec<StatefulSet>,
    /// Sets that must be scaled, because another client has scaled them or the run is over.
    pub drifted: Vec<Drift>,
    /// Places of the processes, to be sent to the supervisor; `None` if there is nothing to send.
    pub places: Option<Places>,
    /// The changed spec, to be sent to the supervisor; `None` if there is nothing to send.
    pub amended: Option<Amended>,
    /// Requests from the supervisor.
    pub orders: Vec<SupervisorRequest>,
}

/// A set that does not have the desired number of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Name of the set.
    pub set: String,
    /// Generation of the set when the change was found.
    pub generation: i64,
    /// Number of pods found.
    pub found: i32,
    /// Desired number of pods.
    pub wanted: i32,
    /// Whether the pods are removed because the run is over, for the first time.
    pub is_end_of_run: bool,
}

/// A request from the supervisor, in terms of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisorRequest {
    /// Delete these objects.
    Delete {
        /// Name of the pod.
        pod: String,
        /// UID of the pod, so that a successor is not deleted in its place.
        uid: String,
        /// Claim of the pod's volume, if it is to be deleted as well.
        claim: Option<String>,
    },
    /// The request has been carried out.
    Done {
        /// Number of the request.
        request: u64,
    },
}

/// Returns the desired objects. Operators run in the namespace `operators`.
pub fn build(validated: &Validated, observed: &Observed, settings: &Settings, operators: &str) -> Desired {
    let federation = &validated.federation;
    // Once the run is over, only its record is needed.
    let over = observed.phase() == Phase::Completed || observed.has_lost_record();
    // An operator with another image would create different pods. The pods of a run stay unchanged, including the one
    // that keeps its record.
    let has_begun = observed.phase() >= Phase::Linking || observed.is_past_gathering();
    let stays = |it: &StatefulSet| has_begun && observed.sets.contains_key(&it.name_any());
    let supervisor = Some(supervisor::set(federation, settings)).filter(|it| !stays(it));
    let nodes = validated.groups.iter().filter(|_| !over).map(|it| node::set(federation, it, settings));
    let nodes = nodes.filter(|it| !stays(it));
    let sets: Vec<StatefulSet> =
        supervisor.into_iter().chain(nodes).map(stamped).filter(|it| differs(it, observed)).collect();
    let is_made = |name: &str| sets.iter().any(|it| it.name_any() == name);
    let mut drifted = drifted(validated, observed, over);
    drifted.retain(|it| !is_made(&it.set));
    Desired {
        file: file(federation),
        policy: policy::policy(federation, operators),
        budget: supervisor::budget(federation, over),
        sets,
        drifted,
        places: places(validated, observed),
        amended: amended(validated, observed),
        orders: orders(validated, observed),
    }
}

/// Returns the federation as the file with which the supervisor starts. The file is written only once; later changes
/// are sent to the supervisor.
fn file(federation: &Federation) -> ConfigMap {
    let text = json!({
        "apiVersion": Federation::api_version(&()),
        "kind": Federation::kind(&()),
        "metadata": { "name": federation.name_any() },
        "spec": federation.spec,
    });
    let mut file: ConfigMap = owned(federation, naming::file(federation));
    file.immutable = Some(true);
    file.data = Some([(FILE.to_owned(), format!("{text:#}\n"))].into());
    file
}

/// Creates an object with this name that belongs to the federation, and is deleted with it.
pub(super) fn owned<K>(federation: &Federation, name: String) -> K
where
    K: Resource<DynamicType = ()> + Default,
{
    let mut object = K::default();
    let metadata = object.meta_mut();
    metadata.name = Some(name);
    metadata.namespace = federation.namespace();
    metadata.labels = Some(naming::labels(federation));
    // The finalizer already delays the deletion of the federation, so objects need not block the deletion, and the
    // operator needs no permission to make them do so.
    let owner =
        federation.controller_owner_ref(&()).map(|it| OwnerReference { block_owner_deletion: None, ..it });
    metadata.owner_references = Some(owner.into_iter().collect());
    object
}

/// Adds the hash of a set as an annotation.
fn stamped(mut set: StatefulSet) -> StatefulSet {
    let text = serde_json::to_vec(&set).expect("a set serialises");
    let hash = blake3::hash(&text).to_hex()[..16].to_owned();
    set.annotations_mut().insert(naming::APPLIED.into(), hash);
    set
}

/// Returns the sets whose number of pods is not the desired one.
fn drifted(validated: &Validated, observed: &Observed, over: bool) -> Vec<Drift> {
    let federation = &validated.federation;
    let groups = validated.groups.iter().map(|it| (&it.name[..], if over { 0 } else { it.nodes }));
    let drift = |(group, wanted): (&str, u32)| {
        let set = naming::set(federation, group);
        let there = observed.sets.get(&set).filter(|it| it.metadata.deletion_timestamp.is_none())?;
        let (found, wanted) = (there.spec.as_ref()?.replicas?, i32::try_from(wanted).ok()?);
        let generation = there.metadata.generation.unwrap_or_default();
        let has_ended = there.annotations().get(naming::APPLIED).is_some_and(|it| it == ENDED);
        let is_end_of_run = wanted == 0 && !has_ended;
        (found != wanted).then_some(Drift { set, generation, found, wanted, is_end_of_run })
    };
    groups.chain([(naming::Component::Supervisor.as_str(), 1)]).filter_map(drift).collect()
}

fn differs(wanted: &StatefulSet, observed: &Observed) -> bool {
    let there = observed.sets.get(&wanted.name_any());
    there.is_none_or(|it| it.annotations().get(naming::APPLIED) != wanted.annotations().get(naming::APPLIED))
}

/// Returns the names of all pods of a federation, by set.
pub(super) fn pod_names(federation: &Federation) -> impl Iterator<Item = (String, String)> {
    let groups = validate::groups(federation).into_iter();
    let groups = groups.map(|it| (naming::set(federation, &it.name), it.nodes));
    let sets = groups.chain([(naming::supervisor(federation), 1)]);
    sets.flat_map(|(set, pods)| (0..pods).map(move |it| (set.clone(), format!("{set}-{it}"))))
}

/// Returns the pods that currently host a process, with the process's name.
pub(super) fn hosts<'a>(validated: &'a Validated, observed: &'a Observed) -> Vec<(String, &'a Pod)> {
    let mut hosts = Vec::new();
    for group in &validated.groups {
        let set = naming::set(&validated.federation, &group.name);
        for node in 0..group.nodes {
            if let Some(pod) = observed.pods.get(&format!("{set}-{node}")) {
                hosts.push((group.process(node), &**pod));
            }
        }
    }
    hosts
}

/// Returns the places of the processes, with a higher generation than the supervisor's; `None` if the supervisor does
/// not respond, if it already knows the places, or if the run is over.
fn places(validated: &Validated, observed: &Observed) -> Option<Places> {
    let Supervision::Known(status) = &observed.supervision else { return None };
    if observed.phase() == Phase::Completed || observed.has_lost_record() {
        return None;
    }
    let place = |(process, pod): (String, &Pod)| {
        let address = pod::address(pod)?;
        let address = std::net::SocketAddr::new(address, ports::AGENT).to_string();
        Some(Place { process, uid: pod.uid()?, address })
    };
    let places: Vec<Place> = hosts(validated, observed).into_iter().filter_map(place).collect();
    let known = observed.pushed.as_ref();
    if known.is_some_and(|it| it.places == places && it.generation == status.generation) {
        return None;
    }
    let newest = known.map_or(0, |it| it.generation).max(status.generation);
    Some(Places { generation: newest + 1, places })
}

/// Returns the spec if it has changed since the federation was created, the supervisor does not know it yet, and the
/// run can still be changed.
fn amended(validated: &Validated, observed: &Observed) -> Option<Amended> {
    let Supervision::Known(status) = &observed.supervision else { return None };
    let federation = &validated.federation;
    let generation = federation.metadata.generation?;
    let over = matches!(status.phase, RunPhase::Judging | RunPhase::Completed | RunPhase::Failed);
    let known = status.amendment.as_ref().is_some_and(|it| it.generation >= generation);
    // The file with which the supervisor started contains the first generation of the spec, or a newer one.
    if generation <= 1 || over || known || validated.refused.is_some() || observed.has_lost_record() {
        return None;
    }
    Some(Amended { generation, spec: federation.spec.clone() })
}

/// Returns the names of all processes.
fn processes(validated: &Validated) -> BTreeSet<String> {
    let groups = validated.groups.iter();
    groups.flat_map(|group| (0..group.nodes).map(|node| group.process(node))).collect()
}

/// Returns whether a supervisor has more requests than its federation has processes, or requests for processes that do
/// not exist. The supervisor in the node image never does.
pub(super) fn has_excess_requests(validated: &Validated, status: &RunStatus) -> bool {
    if status.requests.is_empty() {
        return false;
    }
    let processes = processes(validated);
    status.requests.len() > processes.len()
        || status.requests.iter().any(|it| !processes.contains(&it.process))
}

/// Returns what the supervisor's requests require, with at most one request for each process: a second request waits
/// until the first is done. Requests for unknown processes are ignored.
fn orders(validated: &Validated, observed: &Observed) -> Vec<SupervisorRequest> {
    let Supervision::Known(status) = &observed.supervision else { return Vec::new() };
    if status.requests.is_empty() {
        return Vec::new();
    }
    let hosts: BTreeMap<String, &Pod> = hosts(validated, observed).into_iter().collect();
    let mut without_request = processes(validated);
    let has_volume = validated.federation.spec.kubernetes.as_ref().is_some_and(|it| it.volumes.is_some());
    let order = |request: &Request| {
        // The request concerns only this pod. Once the pod is gone, the request is complete: a claim that was
        // deleted earlier is removed with the pod.
        match hosts.get(&request.process).filter(|it| it.uid().as_ref() == Some(&request.uid)) {
            None => Some(SupervisorRequest::Done { request: request.id }),
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => None,
            Some(pod) => {
                let claim = request.action == RequestedAction::DeleteVolume && has_volume;
                Some(SupervisorRequest::Delete {
                    pod: pod.name_any(),
                    uid: request.uid.clone(),
                    claim: claim.then(|| naming::claim(&pod.name_any())),
                })
            }
        }
    };
    let first = status.requests.iter().filter(|it| without_request.remove(&it.process));
    first.filter_map(order).collect()
}

pub(super) use pod::{address, has_lost_node, is_complete, is_marked, lacks_ipv4};

#[cfg(test)]
pub(crate) mod tests;
