//! What there should be, from what is asked for and what there is. Pure.

mod node;
pub(crate) mod pod;
mod policy;
mod supervisor;

use std::collections::BTreeMap;

use faultline_api::Federation;
use faultline_api::resource::Phase;
use faultline_api::supervision::{Action, Amended, Phase as Run, Place, Places};
use faultline_client::ports;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::dereference::{Observed, Supervision};
use super::validate::Validated;
use crate::naming;
use crate::settings::Settings;

/// What there should be, and what there is not yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// The federation's file; wanted by the sets.
    pub file: ConfigMap,
    /// Who may reach the pods.
    pub policy: NetworkPolicy,
    /// Sets of pods that are missing or differ, in the order in which they are to be made.
    pub sets: Vec<StatefulSet>,
    /// Sets with another number of pods than they were made with.
    pub drifted: Vec<Drift>,
    /// Where the processes are, for the supervisor; `None` when it knows.
    pub places: Option<Places>,
    /// What the federation is to be like now; `None` when the supervisor knows, or has refused it.
    pub amended: Option<Amended>,
    /// What the supervisor asks for.
    pub orders: Vec<Order>,
}

/// Somebody else has changed how many pods a set has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The set.
    pub set: String,
    /// Of the set, as it was found.
    pub generation: i64,
    /// How many it is to have now.
    pub found: i32,
    /// How many it should have.
    pub wanted: i32,
}

/// What the supervisor asks for, in terms of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// These are to be deleted, and looked for again.
    Delete {
        /// The pod.
        pod: String,
        /// Its UID, so that a successor is not deleted in its place.
        uid: String,
        /// The claim of its volume, if that is to go, too.
        claim: Option<String>,
    },
    /// What was asked for is so.
    Done {
        /// The number of the request.
        request: u64,
    },
}

/// What there should be; operators run in the namespace `operators`.
pub fn build(validated: &Validated, observed: &Observed, settings: &Settings, operators: &str) -> Desired {
    let federation = &validated.federation;
    // Once the run is over only its record is wanted.
    let over = observed.phase() == Phase::Completed || observed.has_lost_record();
    // Another operator, with another image, may want other pods. Those of a run stay as they are, and so does the one that
    // keeps its record.
    let has_begun = observed.phase() >= Phase::Linking;
    let stays = |it: &StatefulSet| has_begun && observed.sets.contains_key(&it.name_any());
    let supervisor = Some(supervisor::set(federation, settings)).filter(|it| !stays(it));
    let nodes = validated.groups.iter().map(|it| node::set(federation, it, over, settings));
    let nodes = nodes.filter(|it| over || !stays(it));
    let sets: Vec<StatefulSet> =
        supervisor.into_iter().chain(nodes).map(stamped).filter(|it| differs(it, observed)).collect();
    let is_made = |name: &str| sets.iter().any(|it| it.name_any() == name);
    let mut drifted = drifted(validated, observed, over);
    drifted.retain(|it| !is_made(&it.set));
    Desired {
        file: file(federation),
        policy: policy::policy(federation, operators),
        sets,
        drifted,
        places: places(validated, observed),
        amended: amended(validated, observed),
        orders: orders(validated, observed),
    }
}

/// The federation as a file: what the supervisor begins with. It is never written again; of later changes the supervisor is
/// told.
fn file(federation: &Federation) -> ConfigMap {
    let text = json!({
        "apiVersion": Federation::api_version(&()),
        "kind": Federation::kind(&()),
        "metadata": { "name": federation.name_any() },
        "spec": federation.spec,
    });
    let mut file: ConfigMap = owned(federation, naming::file(federation));
    file.immutable = Some(true);
    file.data = Some([("federation.yaml".to_owned(), format!("{text:#}\n"))].into());
    file
}

/// An object of this name that belongs to the federation, and goes when it goes.
pub(super) fn owned<K>(federation: &Federation, name: String) -> K
where
    K: Resource<DynamicType = ()> + Default,
{
    let mut object = K::default();
    let metadata = object.meta_mut();
    metadata.name = Some(name);
    metadata.namespace = federation.namespace();
    metadata.labels = Some(naming::labels(federation));
    // What it owns goes after it, not before: nothing is to block, and no right to block is needed.
    let owner =
        federation.controller_owner_ref(&()).map(|it| OwnerReference { block_owner_deletion: None, ..it });
    metadata.owner_references = Some(owner.into_iter().collect());
    object
}

/// With a hash of itself.
fn stamped(mut set: StatefulSet) -> StatefulSet {
    let text = serde_json::to_vec(&set).expect("a set serialises");
    let hash = blake3::hash(&text).to_hex()[..16].to_owned();
    set.annotations_mut().insert(naming::APPLIED.into(), hash);
    set
}

/// Sets that are what they should be but for the number of their pods.
fn drifted(validated: &Validated, observed: &Observed, over: bool) -> Vec<Drift> {
    let federation = &validated.federation;
    let groups = validated.groups.iter().map(|it| (&it.name[..], if over { 0 } else { it.nodes }));
    let drift = |(group, wanted): (&str, u32)| {
        let set = naming::set(federation, group);
        let there = observed.sets.get(&set).filter(|it| it.metadata.deletion_timestamp.is_none())?;
        let (found, wanted) = (there.spec.as_ref()?.replicas?, i32::try_from(wanted).ok()?);
        let generation = there.metadata.generation.unwrap_or_default();
        (found != wanted).then_some(Drift { set, generation, found, wanted })
    };
    groups.chain([(naming::Component::Supervisor.as_str(), 1)]).filter_map(drift).collect()
}

fn differs(wanted: &StatefulSet, observed: &Observed) -> bool {
    let there = observed.sets.get(&wanted.name_any());
    there.is_none_or(|it| it.annotations().get(naming::APPLIED) != wanted.annotations().get(naming::APPLIED))
}

/// The pods that host a process now, with its name.
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

/// Where the processes are, with a higher generation than the supervisor has; `None` when there is no supervisor, or it
/// knows them already.
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

/// The spec, when it has changed since the federation was made and the run can still be another.
fn amended(validated: &Validated, observed: &Observed) -> Option<Amended> {
    let Supervision::Known(status) = &observed.supervision else { return None };
    let federation = &validated.federation;
    let generation = federation.metadata.generation?;
    let over = matches!(status.phase, Run::Judging | Run::Completed | Run::Failed);
    let known = status.amendment.as_ref().is_some_and(|it| it.generation >= generation);
    // The file that the supervisor began with has at least the first.
    if generation <= 1 || over || known || validated.refused.is_some() || observed.has_lost_record() {
        return None;
    }
    Some(Amended { generation, spec: federation.spec.clone() })
}

fn orders(validated: &Validated, observed: &Observed) -> Vec<Order> {
    let Supervision::Known(status) = &observed.supervision else { return Vec::new() };
    let hosts: BTreeMap<String, &Pod> = hosts(validated, observed).into_iter().collect();
    let has_volume = validated.federation.spec.kubernetes.as_ref().is_some_and(|it| it.volumes.is_some());
    let order = |request: &faultline_api::supervision::Request| {
        // Only this very pod is meant. Once it is gone, so is what was asked for: a claim that was deleted before it
        // goes with it.
        match hosts.get(&request.process).filter(|it| it.uid().as_ref() == Some(&request.uid)) {
            None => Some(Order::Done { request: request.id }),
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => None,
            Some(pod) => {
                let claim = request.action == Action::DeleteVolume && has_volume;
                Some(Order::Delete {
                    pod: pod.name_any(),
                    uid: request.uid.clone(),
                    claim: claim.then(|| naming::claim(&pod.name_any())),
                })
            }
        }
    };
    status.requests.iter().filter_map(order).collect()
}

pub(super) use pod::{address, is_complete};

#[cfg(test)]
pub(crate) mod tests;
