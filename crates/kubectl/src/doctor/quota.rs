//! Whether the ResourceQuotas of a namespace permit the pods of a run.

use faultline_console::examination::{Finding, PlannedRun};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt;

use super::{fail, ok, pods};

/// Name of the finding.
pub(super) const NAME: &str = "quotas";

/// Reports whether the quotas permit as many pods as the planned run has. A federation's file determines how much the
/// pods request, so the finding only names the other resources that are limited.
pub(super) fn finding(quotas: &[ResourceQuota], planned: PlannedRun) -> Finding {
    let applicable: Vec<&ResourceQuota> = quotas.iter().filter(|it| concerns_federations(it)).collect();
    let mut limited: Vec<String> = Vec::new();
    for quota in applicable {
        let name = quota.name_any();
        for resource in resources(quota) {
            if !matches!(resource, "pods" | "count/pods") {
                limited.push(format!("{resource} (`{name}`)"));
            } else if let Some(left) = left(quota, resource).filter(|it| *it < pods(planned)) {
                let detail = format!(
                    "the ResourceQuota `{name}` permits {left} more pods; to run {planned} requires {}",
                    pods(planned)
                );
                return fail(NAME, detail, "use fewer nodes, delete other pods, or raise the ResourceQuota");
            }
        }
    }
    let detail = match limited.as_slice() {
        [] => "none prevents the run".to_owned(),
        _ => format!("enough pods are permitted; not checked: {}", limited.join(", ")),
    };
    ok(NAME, detail)
}

/// Returns whether a quota applies to the pods of federations, which request resources and have no deadline. Whether it
/// applies to a priority class depends on the federation.
fn concerns_federations(quota: &ResourceQuota) -> bool {
    let Some(spec) = &quota.spec else { return false };
    let mut scopes = spec.scopes.iter().flatten();
    spec.scope_selector.is_none()
        && scopes.all(|it| matches!(it.as_str(), "NotBestEffort" | "NotTerminating"))
}

/// Returns the names of the limited resources.
fn resources(quota: &ResourceQuota) -> impl Iterator<Item = &str> {
    quota.spec.iter().flat_map(|it| it.hard.iter().flatten()).map(|(name, _)| name.as_str())
}

/// Returns how many more objects of this kind a quota permits; `None` if this is unknown.
fn left(quota: &ResourceQuota, resource: &str) -> Option<u64> {
    let number = |it: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| it.0.parse::<u64>().ok();
    let hard = number(quota.spec.as_ref()?.hard.as_ref()?.get(resource)?)?;
    let used = quota.status.as_ref().and_then(|it| number(it.used.as_ref()?.get(resource)?)).unwrap_or(0);
    Some(hard.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_console::examination::CheckState;
    use serde_json::{Value, json};

    fn found(spec: Value, used: Value) -> (CheckState, String) {
        let quota = json!({ "metadata": { "name": "small" }, "spec": spec, "status": { "used": used } });
        let found = finding(&[serde_json::from_value(quota).unwrap()], PlannedRun::of(None));
        (found.state, found.detail)
    }

    #[test]
    fn a_quota_must_permit_a_pod_for_each_node_and_one_for_the_supervisor() {
        let pods =
            |hard: &str, used: &str| found(json!({ "hard": { "pods": hard } }), json!({ "pods": used }));
        assert_eq!(pods("10", "3"), (CheckState::Ok, "none prevents the run".to_owned()));
        let (state, detail) = pods("10", "4");
        assert_eq!(state, CheckState::Fail);
        assert_eq!(
            detail,
            "the ResourceQuota `small` permits 6 more pods; to run the quick start requires 7"
        );
        assert_eq!(pods("3", "5").0, CheckState::Fail);
        assert_eq!(found(json!({ "hard": { "count/pods": "6" } }), json!({})).0, CheckState::Fail);
        assert_eq!(finding(&[], PlannedRun::of(None)).state, CheckState::Ok);
    }

    #[test]
    fn quotas_for_other_pods_do_not_count_and_other_resources_are_named() {
        let scoped = |scope: &str| found(json!({ "hard": { "pods": "0" }, "scopes": [scope] }), json!({})).0;
        assert_eq!(scoped("BestEffort"), CheckState::Ok);
        assert_eq!(scoped("Terminating"), CheckState::Ok);
        assert_eq!(scoped("NotTerminating"), CheckState::Fail);
        let (state, detail) = found(json!({ "hard": { "pods": "7", "limits.memory": "1Gi" } }), json!({}));
        assert_eq!(state, CheckState::Ok);
        assert_eq!(detail, "enough pods are permitted; not checked: limits.memory (`small`)");
    }
}
