//! A pod that tests a Kubernetes node's kernel for the features that emulate links, in the environment of a shaper.
//! Used by `kubectl faultline doctor`, not by the operator.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::{confined, naming};

/// Time limit of a probing pod, in seconds, in case it is not deleted.
const DEADLINE_SECONDS: u32 = 60;

/// Returns a pod that prints the features of the Kubernetes node's kernel as a line of JSON, and then exits. The pod
/// has the privileges of a [shaper](naming::SHAPER), and `invocation` as the value of its label [`INVOCATION`](naming::INVOCATION).
///
/// # Panics
///
/// Panics if the generated object is not a valid pod, which only a bug can cause.
pub fn pod(node: &str, image: &str, invocation: &str) -> Pod {
    let container = json!({
        "name": naming::SHAPER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["probe"],
        "resources": {
            "requests": { "cpu": "10m", "memory": "16Mi" },
            "limits": { "cpu": "1", "memory": "64Mi" },
        },
        "securityContext": confined::shaper(),
    });
    let mut spec = confined::pod(vec![container], json!([]), 0);
    spec["nodeName"] = json!(node);
    spec["restartPolicy"] = json!("Never");
    spec["activeDeadlineSeconds"] = json!(DEADLINE_SECONDS);
    let labels = json!({
        "app.kubernetes.io/name": "faultline", naming::COMPONENT: "probe", naming::INVOCATION: invocation,
    });
    let pod = json!({ "metadata": { "generateName": "faultline-probe-", "labels": labels }, "spec": spec });
    serde_json::from_value(pod).expect("the JSON describes a pod")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_the_rights_of_a_shaper_on_its_node() {
        let pod = pod("worker-1", "faultline-node:1.2.3", "0f");
        let spec = pod.spec.unwrap();
        assert_eq!(spec.node_name.as_deref(), Some("worker-1"));
        assert_eq!(spec.automount_service_account_token, Some(false));
        let context = spec.containers[0].security_context.clone().unwrap();
        let capabilities = context.capabilities.unwrap();
        assert_eq!(capabilities.add.unwrap(), ["NET_ADMIN"]);
        assert_eq!(capabilities.drop.unwrap(), ["ALL"]);
        assert_eq!(pod.metadata.labels.unwrap().get(naming::INVOCATION).map(String::as_str), Some("0f"));
    }
}
