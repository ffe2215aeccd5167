//! Validation stays cheap whatever a file contains, because an operator validates the federations of all users.

use faultline_api::resource::MAX_SERVERS;
use faultline_api::validate::{MAX_PROBLEMS, similar, validate};
use faultline_api::{Federation, Names, parse, plan};
use faultline_core::ClusterId;
use serde_json::{Value, json};

/// Returns a federation with two clusters that runs a task-based program, with these fields replaced or added.
fn federation(fields: Value) -> Federation {
    let mut spec = json!({
        "clusters": [{ "name": "a", "nodes": 2 }, { "name": "b", "nodes": 2 }],
        "protocol": { "tic": {} },
        "application": { "fibonacci": {} },
        "deadline": "10000s",
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Federation::new("example", serde_json::from_value(spec).expect("the fields exist"))
}

/// Returns the problems of a federation as text: the path, the message and the remedy.
fn problems(federation: &Federation) -> Vec<String> {
    validate(federation).iter().map(|it| format!("{}: {}: {}", it.path, it.message, it.help)).collect()
}

fn weibull(scale: &str, shape: f64) -> Value {
    json!({ "mtbf": { "weibull": { "scale": scale, "shape": shape } }, "crash": { "cluster": "a", "node": 0 } })
}

#[test]
fn all_entries_together_draw_a_limited_number_of_faults() {
    let permanent = json!({ "at": "1s", "crash": { "cluster": "a", "node": 0, "returns": false } });
    let with = |entry: Value, times: usize| {
        let entries: Vec<Value> = [permanent.clone()].into_iter().chain(vec![entry; times]).collect();
        federation(json!({ "faults": entries }))
    };
    let often = weibull("5s", 1.0);
    assert_eq!(problems(&with(often.clone(), 4)), [""; 0]);
    assert_eq!(
        problems(&with(often, 255)),
        [
            "spec.faults[5].mtbf.weibull.scale: this entry and those before it would inject more than 10000 faults before \
          the deadline: choose longer times between failures, fewer entries with `mtbf`, or a shorter `deadline`"
        ]
    );
    assert_eq!(
        problems(&with(weibull("1s", 2.0), 255)),
        [
            "spec.faults[1].mtbf.weibull.scale: this entry would inject more than 10000 faults before the deadline: choose \
          a longer time between failures, or a shorter `deadline`"
        ]
    );
}

#[test]
fn the_shape_of_a_distribution_affects_the_number_of_faults() {
    let one = |entry| federation(json!({ "faults": [entry] }));
    // The mean is 60 s: about 170 faults.
    let rare = one(weibull("500ms", 0.2));
    assert_eq!(problems(&rare), [""; 0]);
    assert!(plan(&rare, 0).len() < 1000);
    // The mean is 0.89 times the scale.
    assert_eq!(problems(&one(weibull("1s", 2.0))).len(), 1);
    assert_eq!(problems(&one(weibull("1200ms", 2.0))), [""; 0]);
}

#[test]
fn the_number_and_the_length_of_problems_are_limited() {
    let clusters: Vec<Value> = (0..256).map(|it| json!({ "name": format!("c{it}"), "nodes": 2 })).collect();
    let send: Vec<Value> = (0..150).map(|it| json!({ "to": format!("x{it}"), "probability": 0 })).collect();
    let behaviour = |it| json!({ "cluster": format!("c{it}"), "meanComputation": "1s", "send": send });
    let behaviours: Vec<Value> = (0..100).map(behaviour).collect();
    let wrong = federation(json!({
        "clusters": clusters,
        "protocol": { "hc3i": {} },
        "application": { "synthetic": { "traffic": { "random": { "duration": "30s", "clusters": behaviours } } } },
    }));
    let found = problems(&wrong);
    assert_eq!(found.len(), MAX_PROBLEMS);
    assert!(
        found[0].contains("the clusters are: c0, c1, c10,") && found[0].ends_with("c111 and 240 more"),
        "{}",
        found[0]
    );
    let rejected = parse("wrong", faultline_api::to_yaml(&wrong).as_bytes()).unwrap_err();
    assert_eq!(rejected.to_string(), "wrong has at least 100 problems");

    let crash = json!({ "at": "1s", "crash": { "process": "storage-server.9999" } });
    let of_servers = federation(json!({
        "protocol": { "cck": { "replicateTo": "sharedStorage", "servers": MAX_SERVERS } },
        "application": { "jacobi": {} },
        "faults": [crash],
    }));
    let found = problems(&of_servers);
    assert!(found.len() == 1 && found[0].ends_with("storage-server.14 and 1009 more"), "{found:?}");

    assert_eq!(similar(&"x".repeat(1 << 20), ["paris"]), None);
}

#[test]
fn numbers_that_are_too_large_are_rejected() {
    let jacobi = |servers: Value, nodes: u32| {
        federation(json!({
            "clusters": [{ "name": "a", "nodes": nodes }, { "name": "b", "nodes": nodes }],
            "protocol": { "cck": servers },
            "application": { "jacobi": {} },
        }))
    };
    for field in ["replicas", "servers"] {
        let many = jacobi(json!({ "replicateTo": "sharedStorage", field: u32::MAX }), 2);
        assert_eq!(Names::of(&many.spec).extra().len(), MAX_SERVERS as usize + 1);
        assert_eq!(problems(&many).len(), 1, "{field}");
    }
    let large = jacobi(json!({}), u32::MAX);
    assert_eq!(Names::of(&large.spec).ranks(), u32::MAX);
    assert_eq!(problems(&large).len(), 2);
    let mut nas = large.clone();
    nas.spec.application = serde_json::from_value(json!({ "nas": { "pattern": "cg" } })).unwrap();
    assert!(problems(&nas).iter().any(|it| it.contains("cluster `a` has too many nodes")));
    let mut empty = jacobi(json!({}), 2);
    empty.spec.clusters.clear();
    empty.spec.schedule = Some(serde_json::from_value(json!({ "pieces": [0] })).unwrap());
    assert_eq!(problems(&empty).len(), 1);
}

#[test]
fn expanded_links_have_the_properties_of_each_pair_of_clusters() {
    let federation = federation(json!({
        "links": { "pairs": [
            { "from": "a", "to": "b", "latency": "40ms" },
            { "from": "b", "to": "b", "bandwidth": "1MB" },
        ] },
    }));
    let links = federation.spec.links();
    let names = Names::of(&federation.spec);
    let expanded = links.expand(&federation.spec.clusters);
    assert_eq!(expanded.len(), 9);
    for ((from, to), properties) in expanded {
        let expected = match (from, to) {
            (ClusterId::OUTSIDE, _) | (_, ClusterId::OUTSIDE) => links.between(),
            _ => links.properties(names.cluster(from), names.cluster(to)),
        };
        assert_eq!(properties, expected, "{from} {to}");
    }
}
