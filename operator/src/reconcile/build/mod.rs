//! Derives the desired objects from the frozen federation and the existing objects, without side effects.

mod node;
mod pod;
mod policy;
mod supervisor;

use faultline_client::status::Phase;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;

use super::dereference::Observed;
use super::freeze::Frozen;
use crate::naming;
use crate::settings::Settings;

/// Value of the annotation [`naming::APPLIED`] of a set whose pods were removed because the run is over.
pub(super) const ENDED: &str = "ended";

/// Desired objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// Network policy of the pods.
    pub policy: NetworkPolicy,
    /// The service that gives the pods of a system their domain names.
    pub service: Option<Service>,
    /// Whether the supervisor's pod may be evicted, for example because its Kubernetes node is drained.
    pub budget: PodDisruptionBudget,
    /// Sets that are missing or differ from the desired state, in the order in which they must be created.
    pub sets: Vec<StatefulSet>,
    /// Sets that must be scaled, because another client has scaled them or the run is over.
    pub drifted: Vec<Drift>,
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

/// Returns the desired objects. Operators run in the namespace `operators`.
pub fn build(frozen: &Frozen, observed: &Observed, settings: &Settings, operators: &str) -> Desired {
    let federation = &*frozen.federation;
    // Once the run is over, only its record is needed.
    let over = observed.phase() == Phase::Completed || observed.has_lost_record();
    // An operator with another image would create different pods. The pods of a run stay unchanged, including the one
    // that keeps its record.
    let has_begun = observed.phase() >= Phase::Linking || observed.is_past_gathering();
    let stays = |it: &StatefulSet| has_begun && observed.sets.contains_key(&it.name_any());
    let supervisor = Some(supervisor::set(federation, settings)).filter(|it| !stays(it));
    let nodes = frozen.groups.iter().filter(|_| !over).map(|it| node::set(federation, it, settings));
    let nodes = nodes.filter(|it| !stays(it));
    let sets: Vec<StatefulSet> =
        supervisor.into_iter().chain(nodes).map(stamped).filter(|it| differs(it, observed)).collect();
    let is_made = |name: &str| sets.iter().any(|it| it.name_any() == name);
    let mut drifted = drifted(frozen, observed, over);
    drifted.retain(|it| !is_made(&it.set));
    Desired {
        policy: policy::policy(federation, operators),
        service: policy::service(federation),
        budget: supervisor::budget(federation, over),
        sets,
        drifted,
    }
}

/// Adds the hash of a set as an annotation.
fn stamped(mut set: StatefulSet) -> StatefulSet {
    let text = serde_json::to_vec(&set).expect("a set serialises");
    let hash = blake3::hash(&text).to_hex()[..16].to_owned();
    set.annotations_mut().insert(naming::APPLIED.into(), hash);
    set
}

/// Returns the sets whose number of pods is not the desired one.
fn drifted(frozen: &Frozen, observed: &Observed, over: bool) -> Vec<Drift> {
    let federation = &*frozen.federation;
    let groups = frozen.groups.iter().map(|it| (&it.name[..], if over { 0 } else { it.nodes }));
    let drift = |(group, wanted): (&str, u32)| {
        let set = naming::set(federation, group);
        let there = observed.sets.get(&set).filter(|it| it.metadata.deletion_timestamp.is_none())?;
        let (found, wanted) = (there.spec.as_ref()?.replicas?, i32::try_from(wanted).ok()?);
        let generation = there.metadata.generation.unwrap_or_default();
        let has_ended = there.annotations().get(naming::APPLIED).is_some_and(|it| it == ENDED);
        let is_end_of_run = wanted == 0 && !has_ended;
        (found != wanted).then_some(Drift { set, generation, found, wanted, is_end_of_run })
    };
    let supervisors = u32::from(!observed.has_never_started());
    groups.chain([(naming::Component::Supervisor.as_str(), supervisors)]).filter_map(drift).collect()
}

fn differs(wanted: &StatefulSet, observed: &Observed) -> bool {
    let there = observed.sets.get(&wanted.name_any());
    there.is_none_or(|it| it.annotations().get(naming::APPLIED) != wanted.annotations().get(naming::APPLIED))
}

/// Returns the pods that currently host a process, with the process's name.
pub(super) fn hosts<'a>(frozen: &Frozen, observed: &'a Observed) -> Vec<(String, &'a Pod)> {
    let mut hosts = Vec::new();
    for group in &frozen.groups {
        let set = naming::set(&*frozen.federation, &group.name);
        for node in 0..group.nodes {
            if let Some(pod) = observed.pods.get(&format!("{set}-{node}")) {
                hosts.push((group.process(node), &**pod));
            }
        }
    }
    hosts
}

#[cfg(test)]
pub(crate) mod tests;
