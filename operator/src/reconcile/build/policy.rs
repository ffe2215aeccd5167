//! The network policy of a federation's pods, for Kubernetes clusters whose network enforces policies, and the service that
//! gives the pods of a system their domain names.

use faultline_client::object::FederationObject;
use faultline_client::ports;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use serde_json::json;

use crate::install;
use crate::naming;
use crate::owned::owned;

/// Returns the headless service of a system: the commands of its nodes find each other by domain names, which are the same in
/// every life, and exist before the nodes are ready.
pub(super) fn service(federation: &FederationObject) -> Option<Service> {
    federation.spec.application.system()?;
    let labels = naming::labels(federation);
    let spec = json!({
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "selector": { naming::UID: labels[naming::UID], naming::COMPONENT: naming::Component::Node.as_str() },
    });
    let mut service: Service = owned(federation, naming::pods(federation));
    service.spec = Some(serde_json::from_value::<ServiceSpec>(spec).expect("the spec is that of a Service"));
    Some(service)
}

/// Returns a policy under which only pods of the same federation reach each other. In addition, the operator reaches
/// the supervisor's API, and pods of namespaces with the label [`naming::SCRAPES`] reach the ports of the supervisor's
/// API and of the agents, which serve metrics.
pub(super) fn policy(federation: &FederationObject, operators: &str) -> NetworkPolicy {
    let uid = &naming::labels(federation)[naming::UID];
    let this = json!({ "matchLabels": { naming::UID: uid } });
    let tcp = |port: u16| json!({ "protocol": "TCP", "port": port });
    let spec = json!({
        "podSelector": this,
        "policyTypes": ["Ingress"],
        "ingress": [
            { "from": [{ "podSelector": this }] },
            {
                "from": [{
                    "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": operators } },
                    "podSelector": { "matchLabels": install::labels() },
                }],
                "ports": [tcp(ports::SUPERVISOR_API)],
            },
            {
                "from": [{ "namespaceSelector": { "matchLabels": { naming::SCRAPES: "true" } } }],
                "ports": [tcp(ports::SUPERVISOR_API), tcp(ports::AGENT)],
            },
        ],
    });
    let mut policy: NetworkPolicy = owned(federation, naming::pods(federation));
    policy.spec =
        Some(serde_json::from_value::<NetworkPolicySpec>(spec).expect("the spec is that of a NetworkPolicy"));
    policy
}
