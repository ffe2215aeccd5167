//! The objects that install the operator: the custom resource definition, permissions, and the deployment.
//! `cargo xtask generate` writes them to `manifests/install.yaml`, and the permissions to the chart.
//!
//! The permissions are exactly those that are used: a test compares them with the actual requests.

use serde::Serialize;
use serde_json::{Value, json};

use crate::naming::FIELD_MANAGER;

/// Namespace of the operator in `manifests/install.yaml`.
pub const NAMESPACE: &str = "faultline-system";
/// The role with the permissions on secrets.
pub const SECRETS_ROLE: &str = "faultline-operator-secrets";
/// The lease that determines which of several operators is active.
pub const LEASE: &str = "faultline-operator";
/// Port on which the operator serves its metrics and health status.
pub const METRICS_PORT: u16 = 8080;

/// Number of operators, of which one is active. The others take over if its Kubernetes node fails.
const REPLICAS: u32 = 2;
/// Time after which Kubernetes replaces the operator of a Kubernetes node that does not respond, in seconds.
const NODE_LOST_SECONDS: u32 = 30;

/// A rule of a role: verbs on resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// API group; empty for the core group.
    pub api_groups: [&'static str; 1],
    /// The resources to which the rule applies.
    pub resources: &'static [&'static str],
    /// The permitted verbs.
    pub verbs: &'static [&'static str],
}

/// Permissions of the operator in the namespaces that it watches.
pub const RULES: &[Rule] = &[
    // Watching federations, keeping them until their objects are deleted, and deleting those that have expired.
    Rule {
        api_groups: ["faultline.dev"],
        resources: &["federations"],
        verbs: &["delete", "list", "patch", "watch"],
    },
    // Reporting their state.
    Rule { api_groups: ["faultline.dev"], resources: &["federations/status"], verbs: &["patch"] },
    Rule { api_groups: ["events.k8s.io"], resources: &["events"], verbs: &["create"] },
    // Creating their pods.
    Rule {
        api_groups: ["apps"],
        resources: &["statefulsets"],
        verbs: &["create", "delete", "get", "list", "patch", "watch"],
    },
    Rule { api_groups: [""], resources: &["configmaps"], verbs: &["create", "get", "patch"] },
    Rule {
        api_groups: ["networking.k8s.io"],
        resources: &["networkpolicies"],
        verbs: &["create", "get", "patch"],
    },
    Rule { api_groups: ["policy"], resources: &["poddisruptionbudgets"], verbs: &["create", "get", "patch"] },
    // Finding pods, and replacing them.
    Rule { api_groups: [""], resources: &["pods"], verbs: &["delete", "list", "watch"] },
    Rule { api_groups: [""], resources: &["persistentvolumeclaims"], verbs: &["delete", "list"] },
    // Finding out why pods cannot be created.
    Rule { api_groups: [""], resources: &["events"], verbs: &["list"] },
];

/// Permissions of an operator that permits images (`--allow-images`), in addition to [`RULES`]: systems have services.
pub const IMAGE_RULES: &[Rule] =
    &[Rule { api_groups: [""], resources: &["services"], verbs: &["create", "get", "patch"] }];

/// Permissions of the operator on the secrets with the keys of federations. Separate, because an administrator may grant
/// them only in some of the namespaces that the operator watches.
pub const SECRET_RULES: &[Rule] =
    &[Rule { api_groups: [""], resources: &["secrets"], verbs: &["create", "get", "patch"] }];

/// Permissions of the operator in its own namespace, for the election of the active operator.
pub const LEASE_RULES: &[Rule] = &[Rule {
    api_groups: ["coordination.k8s.io"],
    resources: &["leases"],
    verbs: &["create", "get", "patch"],
}];

/// Permissions on federations that are added to the user-facing default roles of Kubernetes. `admin` includes `edit`,
/// and `edit` includes `view`.
pub const AGGREGATED: &[Aggregated] = &[
    Aggregated {
        of: "view",
        rules: &[Rule {
            api_groups: ["faultline.dev"],
            resources: &["federations", "federations/status"],
            verbs: &["get", "list", "watch"],
        }],
    },
    Aggregated {
        of: "edit",
        rules: &[Rule {
            api_groups: ["faultline.dev"],
            resources: &["federations"],
            verbs: &["create", "delete", "deletecollection", "patch", "update"],
        }],
    },
];

/// Permissions that are added to a default role of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Aggregated {
    /// Name of the role.
    pub of: &'static str,
    /// Additional rules.
    pub rules: &'static [Rule],
}

/// Returns all objects of the installation, in the order in which they must be applied.
///
/// # Panics
///
/// Panics if the custom resource definition has no JSON form, which would be a bug.
pub fn objects() -> Vec<Value> {
    let definition =
        serde_json::to_value(faultline_client::object::definition()).expect("a definition serialises");
    let bind = |kind: &str, role: &str| {
        let mut metadata = metadata(kind == "Role");
        metadata["name"] = json!(role);
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": FIELD_MANAGER, "namespace": NAMESPACE }],
        })
    };
    let aggregated = AGGREGATED.iter().map(|Aggregated { of, rules }| {
        let mut labels = labels();
        labels[format!("rbac.authorization.k8s.io/aggregate-to-{of}")] = json!("true");
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": format!("faultline-federations-{of}"), "labels": labels },
            "rules": rules,
        })
    });
    let role = |name: &str, rules: &[Rule]| {
        let mut metadata = metadata(false);
        metadata["name"] = json!(name);
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": rules,
        })
    };
    let mut objects = vec![
        definition,
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": NAMESPACE,
                "labels": { "pod-security.kubernetes.io/enforce": "restricted" },
            },
        }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(true) }),
        role(FIELD_MANAGER, RULES),
        bind("ClusterRole", FIELD_MANAGER),
        role(SECRETS_ROLE, SECRET_RULES),
        bind("ClusterRole", SECRETS_ROLE),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata(true),
            "rules": LEASE_RULES,
        }),
        bind("Role", FIELD_MANAGER),
        deployment(),
        budget(),
        policy(),
    ];
    objects.extend(aggregated);
    objects
}

fn metadata(namespaced: bool) -> Value {
    let mut metadata = json!({ "name": FIELD_MANAGER, "labels": labels() });
    if namespaced {
        metadata["namespace"] = json!(NAMESPACE);
    }
    metadata
}

/// Returns the labels of operators.
pub(crate) fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "faultline", "app.kubernetes.io/component": "operator" })
}

/// Returns the network policy of operators. The policy permits access only to metrics and health.
fn policy() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(true),
        "spec": {
            "podSelector": { "matchLabels": labels() },
            "policyTypes": ["Ingress"],
            "ingress": [{ "ports": [{ "protocol": "TCP", "port": METRICS_PORT }] }],
        },
    })
}

/// Returns the budget of operators: one of the replicas stays available when Kubernetes nodes are drained.
fn budget() -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(true),
        "spec": { "minAvailable": 1, "selector": { "matchLabels": labels() } },
    })
}

/// Returns the tolerations of operators. If a Kubernetes node stops responding, Kubernetes replaces its operator after
/// this time; the default would be 300 s.
fn tolerations() -> Value {
    let toleration = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_LOST_SECONDS });
    json!(["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(toleration))
}

fn deployment() -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(true),
        "spec": {
            "replicas": REPLICAS,
            "selector": { "matchLabels": labels() },
            "template": {
                "metadata": {
                    "labels": labels(),
                    "annotations": {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": METRICS_PORT.to_string(),
                        "prometheus.io/path": "/metrics",
                    },
                },
                "spec": {
                    "serviceAccountName": FIELD_MANAGER,
                    "tolerations": tolerations(),
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": { "matchLabels": labels() },
                        // Otherwise, the pods that an update replaces would count as well.
                        "matchLabelKeys": ["pod-template-hash"],
                    }],
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "runAsGroup": 65532,
                        "seccompProfile": { "type": "RuntimeDefault" },
                    },
                    "containers": [{
                        "name": "operator",
                        "image": format!("faultline-operator:{version}"),
                        "imagePullPolicy": "IfNotPresent",
                        "env": [
                            { "name": "FAULTLINE_NODE_IMAGE", "value": format!("faultline-node:{version}") },
                            { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                        ],
                        "ports": [{ "name": "metrics", "containerPort": METRICS_PORT }],
                        "readinessProbe": { "httpGet": { "path": "/healthz", "port": "metrics" } },
                        "livenessProbe": { "httpGet": { "path": "/healthz", "port": "metrics" } },
                        "resources": {
                            "requests": { "cpu": "50m", "memory": "64Mi" },
                            "limits": { "memory": "256Mi" },
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": { "drop": ["ALL"] },
                        },
                    }],
                },
            },
        },
    })
}
