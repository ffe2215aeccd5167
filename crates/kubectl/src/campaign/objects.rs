//! The objects of a campaign on the cluster: a Job, and a ConfigMap that it owns.

use std::fs;
use std::path::Path;

use faultline_console::campaign::{CAMPAIGN, FEDERATION, IMAGE, NUMBERS, WorkerArguments};
use faultline_console::command_error::CommandError;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use miette::miette;
use serde_json::{Value, json};

/// The selector of all campaigns' objects.
pub(super) const CAMPAIGNS: &str = "app.kubernetes.io/name=faultline,app.kubernetes.io/component=campaign";
/// The name of the pods' container.
const CONTAINER: &str = "faultline";
/// How often a part is performed again after a failure.
const RETRIES: u32 = 2;
/// For how long a finished job and the logs of its pods remain, in seconds, if no command collects them.
const KEPT: u32 = 7 * 24 * 60 * 60;
/// After this many seconds without a sign of life from a node, its pods are moved.
const UNREACHABLE: u32 = 60;
/// The maximum size of a ConfigMap's content, in bytes.
const MOST_BYTES: usize = 1 << 20;

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": "faultline", "app.kubernetes.io/component": "campaign" })
}

/// Returns the job whose pods perform this number of parts.
pub(super) fn job(name: &str, parts: usize, on: &WorkerArguments) -> Job {
    let mut of_job = labels();
    if let Some(queue) = &on.queue {
        of_job["kueue.x-k8s.io/queue-name"] = queue.as_str().into();
    }
    let cpu = on.worker_cpu.as_deref().unwrap_or("1");
    let memory = on.worker_memory.map_or(1 << 30, |it| it.0).to_string();
    let resources = json!({ "cpu": cpu, "memory": memory });
    let tolerated = ["not-ready", "unreachable"].map(|it| {
        let key = format!("node.kubernetes.io/{it}");
        json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": UNREACHABLE })
    });
    let pod = json!({
        "restartPolicy": "Never",
        "tolerations": tolerated,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumes": [{ "name": "campaign", "configMap": { "name": name } }],
        "containers": [{
            "name": CONTAINER,
            "image": on.image.as_deref().unwrap_or(IMAGE),
            "args": ["part", "/campaign"],
            "resources": { "requests": resources, "limits": resources },
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            },
            "volumeMounts": [{ "name": "campaign", "mountPath": "/campaign", "readOnly": true }],
        }],
    });
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name, "labels": of_job },
        "spec": {
            "completionMode": "Indexed",
            "completions": parts,
            "parallelism": parts.min(on.workers() as usize),
            "backoffLimitPerIndex": RETRIES,
            "maxFailedIndexes": 0,
            "ttlSecondsAfterFinished": KEPT,
            "suspend": on.queue.is_some(),
            "podFailurePolicy": { "rules": [
                { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
                // Bad input, such as another version, does not become better.
                { "action": "FailJob",
                  "onExitCodes": { "containerName": CONTAINER, "operator": "In", "values": [2] } },
            ] },
            "template": { "metadata": { "labels": labels() }, "spec": pod },
        },
    });
    serde_json::from_value(job).expect("the object is a job")
}

/// Returns the immutable ConfigMap with the campaign in `dir` and the numbers of the parts that the pods of `job`
/// perform. It is deleted together with the job.
///
/// # Errors
///
/// Returns an error if a file cannot be read, or if the campaign is too large.
pub(super) fn description(job: &Job, dir: &Path, numbers: &[u32]) -> Result<ConfigMap, CommandError> {
    let mut data = json!({ NUMBERS: serde_json::to_string(numbers).expect("numbers have a JSON form") });
    for name in [CAMPAIGN, FEDERATION] {
        let path = dir.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => data[name] = text.into(),
            Err(error) if name == FEDERATION && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(CommandError::path("read", &path, error, "delete this directory")),
        }
    }
    let texts = data.as_object().into_iter().flatten();
    let size: usize = texts.map(|(name, text)| name.len() + text.as_str().map_or(0, str::len)).sum();
    if size > MOST_BYTES {
        return Err(CommandError::input(miette!(
            help = "shorten the federation, use fewer `--parts`, or divide the runs by hand (docs/parts.md)",
            "the campaign takes up {size} bytes; a ConfigMap, which carries it to the pods, can have at most {MOST_BYTES}"
        )));
    }
    let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": job.name_any(), "uid": job.uid() });
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": job.name_any(), "labels": labels(), "ownerReferences": [owner] },
        "immutable": true,
        "data": data,
    });
    Ok(serde_json::from_value(map).expect("the object is a ConfigMap"))
}

/// Returns the numbers of the parts that the pods of a job perform, if this ConfigMap belongs to the job.
pub(super) fn numbers(job: &Job, map: &ConfigMap) -> Option<Vec<u32>> {
    let is_owner = map.owner_references().iter().any(|it| Some(&it.uid) == job.uid().as_ref());
    let text = map.data.as_ref()?.get(NUMBERS).filter(|_| is_owner)?;
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_that_does_not_fit_is_refused_with_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let mut job = job("faultline-sweep-0", 3, &WorkerArguments::default());
        job.metadata.uid = Some("the uid".to_owned());
        let write = |name, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write(CAMPAIGN, "{}");
        let map = description(&job, dir.path(), &[2, 3, 7]).unwrap();
        assert_eq!(numbers(&job, &map), Some(vec![2, 3, 7]));
        assert_eq!((map.immutable, map.data.as_ref().unwrap().len()), (Some(true), 2));
        let mut other = job.clone();
        other.metadata.uid = Some("another".to_owned());
        assert_eq!(numbers(&other, &map), None);
        write(FEDERATION, &"#".repeat(MOST_BYTES));
        let error = description(&job, dir.path(), &[1]).unwrap_err().report;
        assert!(error.to_string().contains("takes up 1048619 bytes"), "{error}");
        assert!(error.help().unwrap().to_string().contains("--parts"));
    }

    /// Pods of the `restricted` profile.
    #[test]
    fn a_pod_has_no_rights_and_bounded_resources() {
        let on = WorkerArguments { queue: Some("nightly".to_owned()), ..WorkerArguments::default() };
        let job = serde_json::to_value(job("faultline-sweep-0", 3, &on)).unwrap();
        let (spec, pod) = (&job["spec"], &job["spec"]["template"]["spec"]);
        assert_eq!((&spec["parallelism"], &spec["suspend"]), (&json!(3), &json!(true)));
        assert_eq!(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "nightly");
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["resources"]["limits"], json!({ "cpu": "1", "memory": "1073741824" }));
        assert_eq!(container["image"], IMAGE);
    }
}
