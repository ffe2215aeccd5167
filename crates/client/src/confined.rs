//! Minimal privileges for pods: the Pod Security profile `restricted`, and no access to the API server.

use serde_json::{Value, json};

/// UID and GID of an unprivileged user: the same in every pod, so that a pod can read the files that an earlier pod
/// wrote to its volume.
const USER: i64 = 65532;

/// Returns the spec of a pod under the Pod Security profile `restricted`, without access to the API server.
///
/// `grace` is the time, in seconds, within which a deleted pod must terminate.
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

/// Returns the security context of a container without capabilities, with a read-only root file system.
pub fn container() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

/// Returns the security context of a container with an image of the user's, whose root file system may be writable. `user`
/// is the ID of the user who runs it.
pub fn system(user: Option<u32>) -> Value {
    let mut context = container();
    context["readOnlyRootFilesystem"] = json!(false);
    context["runAsUser"] = json!(user.map_or(USER, i64::from));
    context
}

/// Returns the security context of a shaper's container, which administers the network of its own pod. It
/// runs as root, because Kubernetes grants capabilities only to root.
pub fn shaper() -> Value {
    json!({
        "runAsUser": 0,
        "runAsNonRoot": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN"] },
    })
}
