//! Validation stays cheap whatever a file contains, because an operator validates the federations of all users.

use faultline_api::resource::{FederationSpec, MAX_SERVERS};
use faultline_api::validate::{MAX_PROBLEMS, Problem, similar, validate};
use faultline_api::{Federation, Names, parse, plan, structural};
use faultline_core::ClusterId;
use regex::Regex;
use serde_json::{Map, Value, json};

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
          the deadline: choose longer times between failures, fewer entries with `mtbf` or `trace`, or a shorter `deadline`"
        ]
    );
    assert_eq!(
        problems(&with(weibull("1s", 2.0), 255)),
        [
            "spec.faults[1].mtbf.weibull.scale: this entry would inject more than 10000 faults before the deadline: choose \
          longer times between failures, or a shorter `deadline`"
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
fn the_bounds_of_a_uniform_distribution_must_be_ordered() {
    let bounds = |least: &str, most: &str| {
        let uniform = json!({ "uniform": { "least": least, "most": most } });
        let problems = problems(&federation(json!({ "faults": [{ "mtbf": uniform, "crash": {} }] })));
        problems.into_iter().next().unwrap_or_default()
    };
    assert_eq!(bounds("20s", "40s"), "");
    assert_eq!(bounds("20s", "20s"), "");
    assert_eq!(
        bounds("40s", "20s"),
        "spec.faults[0].mtbf.uniform.least: the shortest time between failures is longer than the longest: exchange `least` \
         and `most`"
    );
    assert!(bounds("0s", "0s").contains("must not be 0"));
    assert!(bounds("0s", "1s").contains("more than 10000 faults"));
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

/// Returns the smallest value that the schema permits.
fn minimal(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => {
            let required = [&schema["required"], &schema["oneOf"][0]["required"]];
            let names = required.into_iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
            let fields: Map<String, Value> =
                names.map(|it| (it.to_owned(), minimal(&schema["properties"][it]))).collect();
            fields.into()
        }
        Some("array") => {
            (0..schema["minItems"].as_u64().unwrap_or(0)).map(|_| minimal(&schema["items"])).collect()
        }
        Some("integer") => json!(schema["minimum"].as_f64().unwrap_or(0.0) as u64),
        Some("number") => json!(schema["minimum"].as_f64().unwrap_or(0.0)),
        Some("boolean") => json!(false),
        _ if schema["enum"].is_array() => schema["enum"][0].clone(),
        _ => {
            let pattern = Regex::new(schema["pattern"].as_str().unwrap_or("^a$")).expect("a valid pattern");
            let text = ["a", "1", "1s", "1MB", "1%"].into_iter().find(|it| pattern.is_match(it));
            json!(text.unwrap_or_else(|| panic!("no text matches {pattern}")))
        }
    }
}

/// Returns a spec in which the value at the end of the path is `end`. Schemas on the path require the other fields.
fn containing(schema: &Value, path: &[&str], end: Value) -> Value {
    let [step, rest @ ..] = path else { return end };
    match *step {
        "[]" => json!([containing(&schema["items"], rest, end)]),
        "{}" => json!({ "a": containing(&schema["additionalProperties"], rest, end) }),
        field => {
            let mut all = if schema["oneOf"].is_array() { json!({}) } else { minimal(schema) };
            all[field] = containing(&schema["properties"][field], rest, end);
            all
        }
    }
}

/// Returns values that exceed a limit in the schema, each with the name of the limit.
fn excesses(schema: &Value) -> Vec<(&'static str, Value)> {
    let number = |value: f64| if schema["type"] == "number" { json!(value) } else { json!(value as i64) };
    let many = |of: &Value, limit: u64| vec![minimal(of); limit as usize + 1];
    let values = &schema["additionalProperties"];
    let all = [
        ("minimum", schema["minimum"].as_f64().map(|it| number(it - 1.0))),
        ("maximum", schema["maximum"].as_f64().map(|it| number(it + 1.0))),
        ("minLength", schema["minLength"].as_u64().map(|_| json!(""))),
        ("maxLength", schema["maxLength"].as_u64().map(|it| json!("x".repeat(it as usize + 1)))),
        ("minItems", schema["minItems"].as_u64().map(|_| json!([]))),
        ("maxItems", schema["maxItems"].as_u64().map(|it| json!(many(&schema["items"], it)))),
        (
            "maxProperties",
            schema["maxProperties"].as_u64().map(|it| {
                let names = (0..).map(|it| format!("k{it}"));
                names.zip(many(values, it)).collect::<Map<_, _>>().into()
            }),
        ),
    ];
    all.into_iter().filter_map(|(limit, value)| Some((limit, value?))).collect()
}

/// Calls `look` with the path and the content of each schema in a schema.
fn each<'a>(schema: &'a Value, path: &mut Vec<&'a str>, look: &mut dyn FnMut(&[&'a str], &'a Value)) {
    look(path, schema);
    let properties = schema["properties"].as_object().into_iter().flatten();
    let inner = [("[]", &schema["items"]), ("{}", &schema["additionalProperties"])];
    let inner = inner.into_iter().filter(|(_, it)| it.is_object());
    for (step, schema) in properties.map(|(name, it)| (name.as_str(), it)).chain(inner) {
        path.push(step);
        each(schema, path, look);
        path.pop();
    }
}

/// Returns the problems of a spec; `None` if it cannot be parsed.
fn problems_of(mut spec: Value, changed: &str) -> Option<Vec<Problem>> {
    let base = json!({
        "clusters": [{ "name": "a", "nodes": 16 }],
        "protocol": { "none": {} },
        "application": { "fibonacci": {} },
    });
    for (field, value) in base.as_object().unwrap().iter().filter(|it| it.0 != changed) {
        spec[field] = value.clone();
    }
    let spec = serde_json::from_value::<FederationSpec>(spec).ok()?;
    Some(validate(&Federation::new("example", spec)))
}

/// API servers check these limits. A file that exceeds one must be rejected before it reaches an API server.
#[test]
fn every_limit_in_the_definition_is_checked() {
    let spec = &structural::<FederationSpec>();
    let mut checked = 0;
    each(spec, &mut Vec::new(), &mut |path, schema| {
        let Some(field) = path.first() else { return };
        let mut place = String::from("spec");
        for step in path {
            place += &match *step {
                "[]" => "[0]".to_owned(),
                "{}" => ".a".to_owned(),
                field => format!(".{field}"),
            };
        }
        // A label can contain dots, so it is not part of a path.
        let place =
            place.strip_suffix(".nodeSelector.a").map_or(place.clone(), |it| format!("{it}.nodeSelector"));
        let before = problems_of(containing(spec, path, minimal(schema)), field);
        let before = before.unwrap_or_else(|| panic!("{place} can be parsed"));
        for (limit, excess) in excesses(schema) {
            checked += 1;
            let Some(after) = problems_of(containing(spec, path, excess), field) else { continue };
            let found = after.iter().filter(|it| it.path.starts_with(&place));
            // The number of ranks must be exact, so any other number is the same problem.
            let is_exact = place == "spec.application.nas.order";
            let reported = found.filter(|it| is_exact || !before.contains(it)).count() > 0;
            assert!(reported, "`{limit}` of {place}: {after:?}");
        }
    });
    assert!(checked > 200, "{checked}");
}

#[test]
fn names_of_images_are_those_of_container_runtimes() {
    let problems = |image: &str| {
        let system = json!({ "system": { "command": ["sleep"] } });
        let spec = json!({ "clusters": [{ "name": "a", "nodes": 1 }], "application": system,
            "kubernetes": { "image": image } });
        let text = json!({ "apiVersion": "faultline.dev/v1alpha1", "kind": "Federation", "metadata": { "name": "x" },
            "spec": spec });
        let parsed = faultline_api::parse("test.yaml", text.to_string().as_bytes());
        parsed.err().map(|it| format!("{it}: {:?}", it.errors()))
    };
    let digest = format!("etcd@sha256:{}", "0a".repeat(32));
    let longest = format!("{}:{}", "a".repeat(255), "t".repeat(128));
    for image in ["etcd", "library/etcd:3.5", "Registry.Example:5000/a_b/c--d.e:V1_x", &digest, &longest] {
        assert_eq!(problems(image), None, "{image}");
    }
    let (long, long_tag) = ("a".repeat(256), format!("a:{}", "t".repeat(129)));
    for image in [
        "registry.example/Etcd",
        "Etcd",
        "etcd:",
        "a//b",
        "a_-b",
        "etcd:-1",
        "etcd@sha256:0a",
        &long,
        &long_tag,
    ] {
        let told = problems(image).unwrap_or_else(|| panic!("{image} is accepted"));
        assert!(told.contains("is not the name of an image"), "{told}");
    }
}
