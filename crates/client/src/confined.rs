//! Rights of pods, which are minimal: the profile `restricted` of Pod Security, and no access to the API server.

use serde_json::{Value, json};

/// An unprivileged user. The same in every pod, so that the next pod can read a volume.
const USER: i64 = 65532;

/// Returns the spec of a pod under the profile `restricted` of Pod Security, without access to the API server.
///
/// Processes of a federation crash without warning on purpose; `grace` is how many seconds a deleted pod has to end.
pub fn pod(containers: Vec<Value>, volumes: Value, grace: u32) -> Value {
    json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": grace,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": containers,
        "volumes": volumes,
    })
}

/// Returns the security context of a container.
pub fn container() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

/// Returns the security context of a shaper's container: root over the network of its own pod. Kubernetes grants a
/// capability to root only.
pub fn shaper() -> Value {
    json!({
        "runAsUser": 0,
        "runAsNonRoot": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN"] },
    })
}
