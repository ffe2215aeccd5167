//! Does for a supervisor what only the operator can do: tells it where the processes are, and deletes pods and volumes at
//! its request.

use std::collections::{BTreeMap, BTreeSet};

use faultline_api::supervision::{Place, Places, Request, RequestedAction, RunStatus};
use faultline_client::ports;
use faultline_client::status::Phase;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::build;
use super::dereference::{Observed, Supervision, find_supervisor};
use super::freeze::Frozen;
use super::objects::{ApplyError, delete_pod};
use crate::context::Context;
use crate::naming;
use crate::pod_state;

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

/// Sends the places of the processes to the supervisor, and carries out its requests. A supervisor that does not respond
/// is no error: data that it does not receive is sent again at the next reconciliation.
///
/// # Errors
///
/// Fails if a request to the API server fails, or if there is no usable key.
pub async fn assist(frozen: &Frozen, observed: &Observed, context: &Context) -> Result<(), ApplyError> {
    let (places, orders) = (places(frozen, observed), orders(frozen, observed));
    if places.is_none() && orders.is_empty() {
        return Ok(());
    }
    let Some(supervisor) = find_supervisor(observed, context).await? else { return Ok(()) };
    let federation = &*frozen.federation;
    if let Some(places) = places {
        match supervisor.places(&places).await {
            Ok(()) => {
                context.cache(federation, |it| it.pushed = Some(places));
            }
            Err(error) => context.warn(federation, "cannot send places to the supervisor", &error),
        }
    }
    let mut accepts_answers = true;
    // A request that cannot be carried out does not hold up those for other processes.
    let mut carried_out = Ok(());
    for order in orders {
        match order {
            SupervisorRequest::Delete { pod, uid, claim } => {
                let deleted = delete_pod(federation, &pod, &uid, claim.as_deref(), context).await;
                carried_out = carried_out.and(deleted);
            }
            // If the supervisor hangs, waiting for it once is enough.
            SupervisorRequest::Done { request } if accepts_answers => {
                if let Err(error) = supervisor.done(request).await {
                    accepts_answers = false;
                    context.warn(federation, "cannot report a request as done", &error);
                }
            }
            SupervisorRequest::Done { .. } => {}
        }
    }
    carried_out
}

/// Returns the places of the processes, with a higher generation than the supervisor's; `None` if the supervisor does
/// not respond, if it already knows the places, or if the run is over.
pub(super) fn places(frozen: &Frozen, observed: &Observed) -> Option<Places> {
    let Supervision::Known(status) = &observed.supervision else { return None };
    if observed.phase() == Phase::Completed || observed.has_lost_record() {
        return None;
    }
    let place = |(process, pod): (String, &Pod)| {
        let address = pod_state::address(pod)?;
        let address = std::net::SocketAddr::new(address, ports::AGENT).to_string();
        Some(Place { process, uid: pod.uid()?, address })
    };
    let places: Vec<Place> = build::hosts(frozen, observed).into_iter().filter_map(place).collect();
    let known = observed.pushed.as_ref();
    if known.is_some_and(|it| it.places == places && it.generation == status.generation) {
        return None;
    }
    let newest = known.map_or(0, |it| it.generation).max(status.generation);
    Some(Places { generation: newest + 1, places })
}

/// Returns the names of all processes.
fn processes(frozen: &Frozen) -> BTreeSet<String> {
    let groups = frozen.groups.iter();
    groups.flat_map(|group| (0..group.nodes).map(|node| group.process(node))).collect()
}

/// Returns whether a supervisor has more requests than its federation has processes, or requests for processes that do
/// not exist. The supervisor in the node image never does.
pub(super) fn has_excess_requests(frozen: &Frozen, status: &RunStatus) -> bool {
    if status.requests.is_empty() {
        return false;
    }
    let processes = processes(frozen);
    status.requests.len() > processes.len()
        || status.requests.iter().any(|it| !processes.contains(&it.process))
}

/// Returns what the supervisor's requests require, with at most one request for each process: a second request waits
/// until the first is done. Requests for unknown processes are ignored.
pub(super) fn orders(frozen: &Frozen, observed: &Observed) -> Vec<SupervisorRequest> {
    let Supervision::Known(status) = &observed.supervision else { return Vec::new() };
    if status.requests.is_empty() {
        return Vec::new();
    }
    let hosts: BTreeMap<String, &Pod> = build::hosts(frozen, observed).into_iter().collect();
    let mut without_request = processes(frozen);
    let has_volume = frozen.federation.spec.kubernetes.as_ref().is_some_and(|it| it.volumes.is_some());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::reconcile::build::tests::{frozen, pod, running, volume, with};

    fn places_of(observed: &Observed) -> Option<Places> {
        places(&frozen(observed), observed)
    }

    fn orders_of(observed: &Observed) -> Vec<SupervisorRequest> {
        orders(&frozen(observed), observed)
    }

    #[test]
    fn places_are_those_of_running_pods_and_announced_once() {
        let mut observed = running(RunStatus { generation: 4, ..RunStatus::default() });
        let name = "quickstart-paris-1";
        observed.pods.insert(name.into(), pod(name, Some("paris"), "uid of paris-1", false));
        let places = places_of(&observed).expect("they are new");
        assert_eq!(places.generation, 5, "newer than the places from an earlier operator");
        let processes: Vec<&str> = places.places.iter().map(|it| it.process.as_str()).collect();
        assert_eq!(processes, ["paris-0", "paris-2", "rennes-0", "rennes-1", "rennes-2"]);
        assert_eq!(places.places[0].address, "10.0.0.18:7400");
        assert_eq!(places.places[0].uid, "uid of paris-0");

        observed.pushed = Some(places.clone());
        observed.hear(RunStatus { generation: 5, ..RunStatus::default() });
        assert_eq!(places_of(&observed), None);

        observed.hear(RunStatus::default());
        let again = places_of(&observed).expect("a restarted supervisor is told again");
        assert_eq!((again.generation, again.places), (6, places.places));
    }

    #[test]
    fn a_pod_that_is_being_deleted_is_not_a_place() {
        let mut observed = running(RunStatus::default());
        let mut going = (*observed.pods["quickstart-rennes-0"]).clone();
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        observed.pods.insert("quickstart-rennes-0".into(), Arc::new(going));
        let places = places_of(&observed).expect("they are new").places;
        assert!(places.iter().all(|it| it.process != "rennes-0"));
    }

    #[test]
    fn requests_apply_only_to_the_pod_with_their_uid() {
        let request = |id, action, process: &str, uid: &str| Request {
            id,
            action,
            process: process.into(),
            uid: uid.into(),
        };
        let status = RunStatus {
            requests: vec![
                request(1, RequestedAction::DeletePod, "paris-0", "uid of paris-0"),
                request(2, RequestedAction::DeleteVolume, "rennes-2", "uid of rennes-2"),
                request(3, RequestedAction::DeletePod, "paris-1", "uid of an earlier pod"),
            ],
            ..RunStatus::default()
        };
        let delete = |pod: &str, uid: &str, claim: Option<&str>| SupervisorRequest::Delete {
            pod: pod.into(),
            uid: uid.into(),
            claim: claim.map(str::to_owned),
        };
        let observed = running(status.clone());
        assert_eq!(
            orders_of(&observed),
            [
                delete("quickstart-paris-0", "uid of paris-0", None),
                delete("quickstart-rennes-2", "uid of rennes-2", None),
                SupervisorRequest::Done { request: 3 },
            ]
        );

        let mut on_volumes = running(status.clone());
        on_volumes.federation = with(|it| it.volumes = Some(volume())).federation;
        assert_eq!(
            orders_of(&on_volumes)[1],
            delete("quickstart-rennes-2", "uid of rennes-2", Some("data-quickstart-rennes-2"))
        );

        let mut going = observed.clone();
        let mut pod = (*going.pods["quickstart-paris-0"]).clone();
        pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        going.pods.insert("quickstart-paris-0".into(), Arc::new(pod));
        assert_eq!(
            orders_of(&going).len(),
            2,
            "a pod that is being deleted is neither deleted again nor reported as done"
        );
    }
}
