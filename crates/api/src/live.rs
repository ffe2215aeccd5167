//! Changes to a running federation: links, faults added at the end of the list, and pauses.
//!
//! API servers enforce most of the rules for such changes through the custom resource definition. They cannot reject a
//! shortened list of faults, because only the supervisor knows which faults the run has accepted.

use faultline_core::ClusterId;
use faultline_core::fault::Change;

use crate::names::Names;
use crate::plan::plan;
use crate::resource::{Federation, FederationSpec};
use crate::validate::{Problem, validate};

/// Returns the changes that turn a federation running as `old` into `new`, in an order in which they can be applied.
/// `old` must be valid.
///
/// # Errors
///
/// Returns the problems if `new` is invalid or contains changes that a running federation does not allow.
pub fn changes(old: &Federation, new: &Federation) -> Result<Vec<Change>, Vec<Problem>> {
    let mut problems = validate(new);
    problems.extend(changes_of_fixed_fields(&old.spec, &new.spec));
    if !problems.is_empty() {
        return Err(problems);
    }
    let links_before = old.spec.links().expand(&old.spec.clusters);
    let links = new.spec.links().expand(&new.spec.clusters);
    // Links to and from processes outside the clusters matter only if the protocol needs such processes.
    let has_no_outside = Names::of(&new.spec).extra().is_empty();
    let is_outside = |it: ClusterId| it == ClusterId::OUTSIDE && has_no_outside;
    let changed = links.into_iter().filter(|((from, to), properties)| {
        links_before[&(*from, *to)] != *properties && !is_outside(*from) && !is_outside(*to)
    });
    let mut changes: Vec<Change> =
        changed.map(|((from, to), properties)| Change::Link { from, to, properties }).collect();
    let known = plan(old, old.spec.seed()).len();
    changes.extend(plan(new, new.spec.seed()).into_iter().skip(known).map(Change::Fault));
    if old.spec.pause != new.spec.pause {
        changes.push(Change::Pause(new.spec.pause));
    }
    Ok(changes)
}

/// Returns the problems with changes that a running federation does not allow.
pub fn changes_of_fixed_fields(old: &FederationSpec, new: &FederationSpec) -> Vec<Problem> {
    let fields = [
        ("seed", old.seed != new.seed),
        ("clusters", old.clusters != new.clusters),
        ("storage", old.storage != new.storage),
        ("protocol", old.protocol != new.protocol),
        ("application", old.application != new.application),
        ("stealing", old.stealing != new.stealing),
        ("schedule", old.schedule != new.schedule),
        ("failures", old.failures != new.failures),
        ("deadline", old.deadline != new.deadline),
        ("kubernetes", old.kubernetes != new.kubernetes),
        ("simulator", old.simulator != new.simulator),
    ];
    let changed = fields.into_iter().filter(|(_, changed)| *changed).map(|(field, _)| Problem {
        path: format!("spec.{field}"),
        message: format!("`{field}` cannot change while the federation runs"),
        help: "change only `links`, `faults` or `pause`, or delete the federation and apply it again".into(),
    });
    let mut problems: Vec<Problem> = changed.collect();
    for (index, fault) in old.faults.iter().enumerate() {
        if new.faults.get(index) != Some(fault) {
            problems.push(Problem {
                path: if index < new.faults.len() {
                    format!("spec.faults[{index}]")
                } else {
                    "spec.faults".into()
                },
                message: format!("fault {index} in the list was changed or removed"),
                help: "restore it, and add new faults at the end of the list".into(),
            });
            return problems;
        }
    }
    for (index, fault) in new.faults.iter().enumerate().skip(old.faults.len()) {
        if fault.mtbf.is_some() {
            problems.push(Problem {
                path: format!("spec.faults[{index}].mtbf"),
                message:
                    "the times of `mtbf` count from the start of the application, which is already running"
                        .into(),
                help: "use `at` or `when` for faults of a running federation".into(),
            });
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::SAMPLES;
    use faultline_core::fault::LinkProperties;
    use faultline_core::{Fault, FaultNo, Span, Time, Trigger};

    fn quickstart() -> Federation {
        crate::parse("quickstart", SAMPLES[0].text.as_bytes()).expect("the quick start is valid")
    }

    /// Merges this patch into the spec of the quick start, and returns the changes. Asserts that the rules of
    /// the custom resource definition accept and reject the same patches, except that they permit removing
    /// faults from the end of the list.
    fn after(patch: serde_json::Value) -> Result<Vec<Change>, Vec<String>> {
        let old = quickstart();
        let mut spec = serde_json::to_value(&old.spec).unwrap();
        for (field, value) in patch.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let new = Federation { spec: serde_json::from_value(spec).unwrap(), ..old.clone() };
        let found = changes(&old, &new);
        let (before, now) = (&old.spec.faults, &new.spec.faults);
        let is_taken_back = now.len() < before.len() && before.starts_with(now);
        let by_rules = kube_core::cel::validate_cel_update(&new, &old).is_ok();
        assert_eq!(found.is_ok() || is_taken_back, by_rules, "the rules agree: {found:?}");
        found.map_err(|problems| problems.into_iter().map(|it| it.path).collect())
    }

    fn faults(added: serde_json::Value) -> serde_json::Value {
        let mut faults = serde_json::to_value(quickstart().spec.faults).unwrap();
        faults.as_array_mut().unwrap().push(added);
        serde_json::json!({ "faults": faults })
    }

    #[test]
    fn links_faults_and_pause_may_change() {
        use serde_json::json;
        assert_eq!(after(json!({})), Ok(vec![]));
        assert_eq!(after(json!({ "pause": true })), Ok(vec![Change::Pause(true)]));
        let pair =
            json!({ "pairs": [{ "from": "paris", "to": "rennes", "latency": "40ms", "jitter": "0s" }] });
        let before = quickstart().spec.links().properties("paris", "rennes");
        let properties = LinkProperties { latency: Span::from_millis(40), jitter: Span::ZERO, ..before };
        let links = after(json!({ "links": pair })).unwrap();
        assert_eq!(links.len(), 2, "both directions, and no process is outside the clusters: {links:?}");
        assert!(
            links.contains(&Change::Link { from: ClusterId(0), to: ClusterId(1), properties }),
            "{links:?}"
        );
        let known = plan(&quickstart(), quickstart().spec.seed()).len() as u32;
        let added = after(faults(json!({ "at": "9s", "loseCluster": { "cluster": "rennes" } }))).unwrap();
        let [Change::Fault(planned)] = &added[..] else { panic!("{added:?}") };
        assert_eq!(
            (planned.no, &planned.trigger),
            (FaultNo(known), &Trigger::At(Time::ZERO + Span::from_secs(9)))
        );
        assert!(matches!(planned.fault, Fault::LoseCluster { cluster: ClusterId(1), .. }));
    }

    #[test]
    fn nothing_else_may_change() {
        use serde_json::json;
        assert_eq!(after(json!({ "seed": 99 })), Err(vec!["spec.seed".into()]));
        assert_eq!(after(json!({ "deadline": "99s" })), Err(vec!["spec.deadline".into()]));
        assert_eq!(after(json!({ "deadline": "1m" })), Ok(vec![]), "both mean 60s");
        assert_eq!(
            after(json!({ "kubernetes": { "placement": "spread" } })),
            Err(vec!["spec.kubernetes".into()])
        );
        assert_eq!(after(json!({ "faults": [] })), Err(vec!["spec.faults".into()]));
        let another = json!([{ "at": "1s", "crash": { "cluster": "paris", "node": 0 } }]);
        assert_eq!(after(json!({ "faults": another })), Err(vec!["spec.faults[0]".into()]));
        let drawn = json!({ "mtbf": { "exponential": "10s" }, "crash": {} });
        let at = format!("spec.faults[{}].mtbf", quickstart().spec.faults.len());
        assert_eq!(after(faults(drawn)), Err(vec![at]));
        let last_cluster = json!({ "at": "9s", "loseCluster": { "cluster": "nancy" } });
        assert!(after(faults(last_cluster)).is_err());
    }
}
