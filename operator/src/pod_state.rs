//! What the state of a pod says about it.

use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::Pod;

use crate::naming;

/// Returns the address of a pod that runs and is not being deleted. The programs in the pods use only IPv4.
pub(crate) fn address(pod: &Pod) -> Option<IpAddr> {
    let addresses = || addresses(pod).find_map(|it| it.parse::<Ipv4Addr>().ok());
    runs(pod).then(addresses)?.map(IpAddr::V4)
}

/// Returns whether all containers of a pod are running and can be reached, the Kubernetes node of the pod responds, and
/// the pod is not being deleted.
pub(crate) fn is_complete(pod: &Pod) -> bool {
    let mut statuses = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
    address(pod).is_some()
        && !has_lost_node(pod)
        && statuses.all(|it| it.state.as_ref().is_some_and(|it| it.running.is_some()))
}

/// Returns whether the Kubernetes node on which a pod was running does not respond. Kubernetes then marks the pod as not ready, but
/// cannot update the state of the pod's containers, which stay ready.
pub(crate) fn has_lost_node(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let mut conditions = status.conditions.iter().flatten();
    let mut containers = status.container_statuses.iter().flatten();
    let is_marked = conditions.any(|it| it.type_ == "Ready" && it.status == "False");
    is_marked && containers.next().is_some_and(|it| it.ready) && containers.all(|it| it.ready)
}

/// Returns whether a pod runs, but has only IPv6 addresses.
pub(crate) fn lacks_ipv4(pod: &Pod) -> bool {
    runs(pod) && address(pod).is_none() && addresses(pod).next().is_some()
}

fn addresses(pod: &Pod) -> impl Iterator<Item = &String> {
    let status = pod.status.iter();
    status.flat_map(|it| it.pod_ip.iter().chain(it.pod_ips.iter().flatten().map(|it| &it.ip)))
}

/// Returns whether the main container is running and the pod is not being deleted.
fn runs(pod: &Pod) -> bool {
    let running = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        let state = statuses.iter().find(|it| it.name == naming::CONTAINER)?.state.as_ref()?;
        Some(state.running.is_some())
    };
    pod.metadata.deletion_timestamp.is_none() && running(pod).unwrap_or(false)
}

/// Returns whether a pod has the mark of the federation with this UID.
pub(crate) fn is_marked(pod: &Pod, uid: &str) -> bool {
    let containers = pod.spec.iter().flat_map(|it| &it.containers);
    let mut variables = containers.flat_map(|it| it.env.iter().flatten());
    variables.any(|it| it.name == naming::MARK && it.value.as_deref() == Some(uid))
}
