//! Changes to a running federation: links, faults added at the end of the list, and pauses.
//!
//! API servers enforce most of the rules for such changes through the custom resource definition. They cannot reject a
//! shortened list of faults, because only the supervisor knows which faults the run has accepted.

use faultline_core::ClusterId;
use faultline_core::fault::Change;
use serde_json::Value;

use crate::document::schema_of_spec;
use crate::names::Names;
use crate::parse::{Rejected, read};
use crate::plan::plan;
use crate::resource::{CANNOT_CHANGE, CHANGE_HELP, Federation, FederationSpec, difference_of_fields, stored};
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

/// Returns the problems with values that are written differently in two files, although they are equal. API servers
/// treat some of these as forbidden changes, because they compare most quantities as text. Both files must contain valid
/// federations that differ only by permitted [changes]. `old` is the text that was applied.
///
/// # Errors
///
/// Fails if a file is not YAML.
pub fn rewritten(old: &str, new: &str) -> Result<Vec<Problem>, Box<Rejected>> {
    let schema = schema_of_spec();
    let spec = |text: &str| -> Result<Value, Box<Rejected>> {
        let document = read::<Value>("", text.as_bytes(), "describe a federation")?.value;
        Ok(stored(&schema, &document["spec"]))
    };
    let (old, new) = (spec(old)?, spec(new)?);
    let difference = |(field, _)| difference_of_fields(&schema, "spec", [field], &new, &old);
    let mut paths: Vec<String> = FIXED_FIELDS.into_iter().filter_map(difference).collect();
    let [faults_before, faults] = [&old, &new].map(|it| it["faults"].as_array().into_iter().flatten());
    let index = faults_before.zip(faults).position(|(old, new)| old != new);
    paths.extend(index.map(|it| format!("spec.faults[{it}]")));
    let problem = |path: String| Problem {
        message: format!(
            "`{}` is written differently, which an API server rejects although the meaning is the same",
            path.trim_start_matches("spec.")
        ),
        help: "write it exactly as in the running federation".into(),
        path,
    };
    Ok(paths.into_iter().map(problem).collect())
}

/// The name of a field, and a function that returns whether two specs differ in it.
type Field = (&'static str, fn(&FederationSpec, &FederationSpec) -> bool);

/// Fields that must not change while a federation runs.
const FIXED_FIELDS: [Field; 12] = [
    ("seed", |old, new| old.seed != new.seed),
    ("clusters", |old, new| old.clusters != new.clusters),
    ("storage", |old, new| old.storage != new.storage),
    ("protocol", |old, new| old.protocol != new.protocol),
    ("application", |old, new| old.application != new.application),
    ("stealing", |old, new| old.stealing != new.stealing),
    ("schedule", |old, new| old.schedule != new.schedule),
    ("failures", |old, new| old.failures != new.failures),
    ("deadline", |old, new| old.deadline != new.deadline),
    ("expect", |old, new| old.expect != new.expect),
    ("kubernetes", |old, new| old.kubernetes != new.kubernetes),
    ("simulator", |old, new| old.simulator != new.simulator),
];

/// Returns the problems with changes that a running federation does not allow.
pub fn changes_of_fixed_fields(old: &FederationSpec, new: &FederationSpec) -> Vec<Problem> {
    let fields = FIXED_FIELDS.into_iter();
    let changed = fields.filter(|(_, is_changed)| is_changed(old, new)).map(|(field, _)| Problem {
        path: format!("spec.{field}"),
        message: format!("`{field}` {CANNOT_CHANGE}"),
        help: CHANGE_HELP.into(),
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
        if let Some(trigger) = fault.repeated() {
            problems.push(Problem {
                path: format!("spec.faults[{index}].{trigger}"),
                message: format!(
                    "the times of `{trigger}` count from the start of the application, which is already running"
                ),
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
    use faultline_core::{FaultNo, Span, Target, Time, Trigger};

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
        assert!(planned.fault.kills() == Some(Target::Cluster(ClusterId(1))));
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

    #[test]
    fn values_that_only_an_api_server_considers_changed_are_reported() {
        use serde_json::json;
        let nodes = |extra: Value| {
            let mut clusters = json!([{ "name": "paris", "nodes": 3 }, { "name": "rennes", "nodes": 3 }]);
            clusters[0].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            json!({ "clusters": clusters })
        };
        let memory = |it: &str| json!({ "kubernetes": { "resources": { "memory": it } } });
        let cpu = |it: Value| json!({ "kubernetes": { "resources": { "cpu": it } } });
        let write = |it: &str| json!({ "storage": { "writeBandwidth": it } });
        let every = |it: &str| json!({ "protocol": { "hc3i": { "checkpointEveryIn": { "paris": it } } } });
        let collect = |it: &str| json!({ "protocol": { "hc3i": { "collectEvery": it } } });
        let step = |it: &str| json!({ "application": { "heat": { "stepTime": it } } });
        let pods = |it: Value| json!({ "kubernetes": it });
        let pause = |it: &str| json!({ "faults": [{ "at": "9s", "pause": { "for": it } }] });
        for (old, new, path) in [
            (memory("1GiB"), memory("1024MiB"), "spec.kubernetes.resources.memory"),
            (memory("1GiB"), memory("1Gi"), ""),
            (cpu(json!("0.5")), cpu(json!("500m")), ""),
            (cpu(json!(2)), cpu(json!("2")), ""),
            (write("200MB"), write("1600Mbit"), "spec.storage.writeBandwidth"),
            (nodes(json!({ "joinsAfter": "60s" })), nodes(json!({ "joinsAfter": "1m" })), "spec.clusters"),
            (every("60s"), every("1m"), "spec.protocol.hc3i.checkpointEveryIn"),
            (collect("60s"), collect("1m"), ""),
            (collect("never"), collect("infinite"), "spec.protocol.hc3i.collectEvery"),
            (collect("0"), collect("0s"), "spec.protocol.hc3i.collectEvery"),
            (step("20ms"), step("20000us"), ""),
            (json!({ "deadline": "60s" }), json!({ "deadline": "1m" }), ""),
            (json!({ "storage": {} }), json!({ "storage": { "kind": "disk" } }), ""),
            (pods(json!({})), pods(json!({ "tolerations": [] })), "spec.kubernetes.tolerations"),
            (
                pods(json!({ "results": { "size": "1GiB" } })),
                pods(json!({ "results": { "size": "1GiB", "keep": false } })),
                "spec.kubernetes.results.keep",
            ),
            (pause("60s"), pause("1m"), "spec.faults[0]"),
        ] {
            let [old, new] = [old, new].map(|patch| {
                let mut spec = serde_json::to_value(quickstart().spec).unwrap();
                spec.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
                spec
            });
            let parsed = |spec: &Value| serde_json::from_value::<FederationSpec>(spec.clone()).unwrap();
            assert_eq!(changes_of_fixed_fields(&parsed(&old), &parsed(&new)), [], "equal: {new}");
            let by_rules = kube_core::cel::Validator::new().validate(&schema_of_spec(), &new, Some(&old));
            let text = |spec: &Value| json!({ "spec": spec }).to_string();
            let found = rewritten(&text(&old), &text(&new)).unwrap();
            let paths: Vec<&str> = found.iter().map(|it| it.path.as_str()).collect();
            assert_eq!(paths, if path.is_empty() { vec![] } else { vec![path] }, "{new}");
            assert_eq!(by_rules.is_ok(), paths.is_empty(), "the rules agree about {new}: {by_rules:?}");
        }
        let spec = |failures: &str| format!("spec: {{ failures: {failures} }}");
        let with_null = rewritten(&spec("{}"), &spec("{ detectAfter: null, restartAfter: ~ }"));
        assert_eq!(with_null.unwrap(), [], "API servers remove nulls");
    }
}
