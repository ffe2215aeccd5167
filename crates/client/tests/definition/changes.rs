//! Changes to a running federation, which the rules accept and reject like [`faultline_api::live`].

use faultline_api::live::{changes, changes_of_fixed_fields, rewritten};
use faultline_api::{Federation, plan};
use faultline_core::fault::{Change, LinkProperties};
use faultline_core::{ClusterId, FaultNo, Span, Target, Time, Trigger};
use serde_json::{Value, json};

use super::{good, validate_change, with_fields};

/// Merges this patch into the spec of the quick start, and returns the changes. Asserts that the rules of
/// the custom resource definition accept and reject the same patches, except that they permit removing
/// faults from the end of the list.
fn after(patch: Value) -> Result<Vec<Change>, Vec<String>> {
    let old = good();
    let mut spec = serde_json::to_value(&old.spec).unwrap();
    for (field, value) in patch.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let new = Federation { spec: serde_json::from_value(spec).unwrap(), ..old.clone() };
    let found = changes(&old, &new);
    let (before, now) = (&old.spec.faults, &new.spec.faults);
    let is_taken_back = now.len() < before.len() && before.starts_with(now);
    let by_rules = validate_change(&new, &old).is_ok();
    assert_eq!(found.is_ok() || is_taken_back, by_rules, "the rules agree: {found:?}");
    found.map_err(|problems| problems.into_iter().map(|it| it.path).collect())
}

fn faults(added: Value) -> Value {
    let mut faults = serde_json::to_value(good().spec.faults).unwrap();
    faults.as_array_mut().unwrap().push(added);
    json!({ "faults": faults })
}

#[test]
fn links_faults_and_pause_may_change() {
    assert_eq!(after(json!({})), Ok(vec![]));
    assert_eq!(after(json!({ "pause": true })), Ok(vec![Change::Pause(true)]));
    let pair = json!({ "pairs": [{ "from": "paris", "to": "rennes", "latency": "40ms", "jitter": "0s" }] });
    let before = good().spec.links().properties("paris", "rennes");
    let properties = LinkProperties { latency: Span::from_millis(40), jitter: Span::ZERO, ..before };
    let links = after(json!({ "links": pair })).unwrap();
    assert_eq!(links.len(), 2, "both directions, and no process is outside the clusters: {links:?}");
    assert!(links.contains(&Change::Link { from: ClusterId(0), to: ClusterId(1), properties }), "{links:?}");
    let known = plan(&good(), good().spec.seed()).len() as u32;
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
    let at = format!("spec.faults[{}].mtbf", good().spec.faults.len());
    assert_eq!(after(faults(drawn)), Err(vec![at]));
    let last_cluster = json!({ "at": "9s", "loseCluster": { "cluster": "nancy" } });
    assert!(after(faults(last_cluster)).is_err());
}

#[test]
fn values_that_only_an_api_server_considers_changed_are_reported() {
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
        let [old, new] = [old, new].map(|patch| with_fields(&patch));
        let spec = |it: &Value| serde_json::from_value::<Federation>(it.clone()).unwrap().spec;
        assert_eq!(changes_of_fixed_fields(&spec(&old), &spec(&new)), [], "equal: {new}");
        let by_rules = validate_change(&new, &old);
        let found = rewritten(&old.to_string(), &new.to_string()).unwrap();
        let paths: Vec<&str> = found.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, if path.is_empty() { vec![] } else { vec![path] }, "{new}");
        assert_eq!(by_rules.is_ok(), paths.is_empty(), "the rules agree about {new}: {by_rules:?}");
    }
    let spec = |failures: &str| format!("spec: {{ failures: {failures} }}");
    let with_null = rewritten(&spec("{}"), &spec("{ detectAfter: null, restartAfter: ~ }"));
    assert_eq!(with_null.unwrap(), [], "API servers remove nulls");
}
