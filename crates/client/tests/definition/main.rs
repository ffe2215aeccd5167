//! The custom resource definition: its text for review, the requirements of API servers, and rules that reject what the
//! validation rejects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use faultline_api::resource::*;
use faultline_api::samples::SAMPLES;
use faultline_api::{Federation, parse, schema};
use faultline_client::object::{FederationObject, definition};
use faultline_client::status::FederationStatus;
use kube_cel::{CompiledSchema, ValidationErrors, Validator, compile_schema, validate_compiled};
use serde::Serialize;
use serde_json::{Value, json};

mod changes;

/// The schema of an object.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let version = definition().spec.versions.remove(0);
    let schema = version.schema.and_then(|it| it.open_api_v3_schema).expect("the definition has a schema");
    serde_json::to_value(schema).expect("a schema serialises")
});

/// The rules of the definition.
static RULES: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&SCHEMA));

/// Applies the rules to a new object, as an API server does.
fn validate(federation: &impl Serialize) -> Result<(), ValidationErrors> {
    let federation = serde_json::to_value(federation).expect("a federation serialises");
    validate_compiled(&RULES, &federation, None)
}

/// Applies the rules to a changed object, as an API server does.
fn validate_change(new: &impl Serialize, old: &impl Serialize) -> Result<(), ValidationErrors> {
    let [new, old] = [serde_json::to_value(new), serde_json::to_value(old)];
    let (new, old) = (new.expect("a federation serialises"), old.expect("a federation serialises"));
    validate_compiled(&RULES, &new, Some(&old))
}

/// Calls `look` with the path and content of every schema in `schema`.
fn walk(path: &str, schema: &Value, look: &mut impl FnMut(&str, &Value)) {
    look(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, look);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&format!("{path}[]"), &schema[inner], look);
        }
    }
}

#[test]
fn the_definition_is_as_reviewed() {
    let reviewed = include_str!("../../../../manifests/federation-crd.yaml");
    let (_, reviewed) = reviewed.split_once('\n').expect("the first line is a comment");
    let text = serde_saphyr::to_string(&definition()).expect("a definition serialises");
    assert!(
        text == reviewed,
        "after `cargo xtask generate`, review the changes of manifests/federation-crd.yaml"
    );
}

#[test]
fn an_api_server_would_accept_the_definition() {
    walk("", &SCHEMA, &mut |path, schema| {
        let bounded = match schema["type"].as_str() {
            None if schema["x-kubernetes-int-or-string"] == true => schema["maxLength"].is_u64(),
            Some("string") => schema["maxLength"].is_u64() || schema["enum"].is_array(),
            Some("array") => schema["maxItems"].is_u64(),
            Some("object") => !schema["additionalProperties"].is_object() || schema["maxProperties"].is_u64(),
            Some("integer") => {
                ["uint32", "int64"].contains(&schema["format"].as_str().expect("an integer has a format"))
            }
            Some("number" | "boolean") => true,
            other => panic!("{path}: {other:?}"),
        };
        // Some API servers ignore the format.
        let limit = |keyword: &str| schema[keyword].as_f64().unwrap_or(f64::NAN);
        let fits = limit("minimum") >= 0.0 && limit("maximum") <= u32::MAX.into();
        assert!(fits || schema["format"] != "uint32", "{path}: {schema}");
        // API servers remove a `null` unless the field is nullable; otherwise, the object would not equal itself.
        assert!(schema["nullable"].is_null(), "{path} is nullable");
        assert!(bounded, "{path} is not bounded: {schema}");
        assert_ne!(schema["additionalProperties"], json!(false), "{path}");
        assert!(schema["description"].is_string(), "{path} is not described");
    });
}

#[test]
fn numbers_of_cores_are_not_negative() {
    let schema = &*SCHEMA;
    let cpu = &schema["properties"]["spec"]["properties"]["kubernetes"]["properties"]["resources"]["properties"]
        ["cpu"];
    assert_eq!((cpu["minimum"].as_f64(), cpu["maximum"].as_f64()), (Some(0.0), Some(1024.0)));
}

/// Calls `look` with the path and the description of each property in the schema of a file, except for variants of an
/// enum: the definition describes the variant, not the type of its value.
fn described(path: &str, schema: &Value, types: &Value, is_variant: bool, look: &mut dyn FnMut(&str, &str)) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if let Some(description) = property["description"].as_str().filter(|_| !is_variant) {
            look(&path, description);
        }
        described(&path, property, types, false, look);
    }
    for inner in ["items", "additionalProperties"].iter().map(|it| &schema[it]).filter(|it| it.is_object()) {
        described(&format!("{path}[]"), inner, types, false, look);
    }
    if let Some(name) = schema["$ref"].as_str() {
        described(path, &types[name.trim_start_matches("#/$defs/")], types, false, look);
    }
    for (keyword, is_variant) in [("anyOf", false), ("oneOf", true)] {
        for combined in schema[keyword].as_array().into_iter().flatten() {
            described(path, combined, types, is_variant, look);
        }
    }
}

#[test]
fn the_definition_describes_each_field_as_the_schema_of_a_file_does() {
    let mut descriptions = BTreeMap::new();
    walk("", &SCHEMA, &mut |path, schema| {
        descriptions.insert(path.to_owned(), schema["description"].as_str().unwrap_or_default().to_owned());
    });
    let file = schema();
    let mut compared = 0;
    described("", &file, &file["$defs"], false, &mut |path, description| {
        if path.starts_with(".spec") {
            assert_eq!(descriptions.get(path).map(String::as_str), Some(description), "{path}");
            compared += 1;
        }
    });
    assert!(compared > 100, "{compared}");
    assert!(
        descriptions[".spec.protocol.hc3i.replicateTo"].contains("Default `sameCluster`, as in the paper")
    );
}

fn good() -> Federation {
    parse("quickstart", SAMPLES[0].text.as_bytes()).expect("the quick start is valid")
}

/// Returns an object whose spec has these fields.
fn with_fields(fields: &Value) -> Value {
    let mut object = serde_json::to_value(good()).expect("a federation serialises");
    let spec = object["spec"].as_object_mut().expect("a JSON object");
    spec.extend(fields.as_object().expect("a JSON object").clone());
    object
}

/// Returns the errors that the CEL rules alone, as applied by an API server, report after a change.
fn refused(change: impl FnOnce(&mut FederationSpec)) -> String {
    let mut federation = good();
    change(&mut federation.spec);
    assert!(
        !faultline_api::validate(&federation).is_empty(),
        "the validation accepts what the rules must refuse"
    );
    let errors = validate(&federation).expect_err("the rules must refuse this");
    errors.iter().map(|it| format!("{it}\n")).collect()
}

#[test]
fn the_rules_admit_every_sample() {
    for sample in SAMPLES {
        let federation = parse(sample.name, sample.text.as_bytes()).expect("samples are valid");
        assert_eq!(validate(&federation), Ok(()), "{}", sample.name);
    }
}

#[test]
fn the_rules_refuse_what_the_validation_refuses() {
    let many = |spec: &mut FederationSpec| {
        for name in 'a'..='k' {
            spec.clusters.push(ClusterSpec::new(&name.to_string(), 100_000));
        }
    };
    assert!(refused(many).contains("the federation has too many nodes"));
    let pair = |spec: &mut FederationSpec| {
        let pair = json!({ "from": "paris", "to": "nancy" });
        let links =
            Links { pairs: vec![serde_json::from_value(pair).expect("a valid pair")], ..spec.links() };
        spec.links = Some(links);
    };
    assert!(refused(pair).contains("there is no cluster `nancy` (found in `to` of a pair)"));
    let fault = |fault: Value| {
        move |spec: &mut FederationSpec| {
            spec.faults = vec![serde_json::from_value(fault).expect("a valid fault")]
        }
    };
    assert!(refused(fault(json!({ "crash": {} }))).contains("exactly one trigger"));
    assert!(refused(fault(json!({ "at": "1s" }))).contains("exactly one action"));
    assert!(
        refused(fault(json!({ "at": "1s", "crash": {}, "loseCluster": {} }))).contains("exactly one action")
    );
    for (action, fields) in [
        ("crash", json!({ "cluster": "nancy" })),
        ("stop", json!({ "cluster": "nancy" })),
        ("restart", json!({ "cluster": "nancy" })),
        ("pause", json!({ "cluster": "nancy", "for": "1s" })),
        ("loseCluster", json!({ "cluster": "nancy" })),
        ("loseRack", json!({ "cluster": "nancy" })),
        ("slow", json!({ "cluster": "nancy", "by": 2 })),
        ("flip", json!({ "cluster": "nancy" })),
        ("slowStorage", json!({ "cluster": "nancy", "by": "1s" })),
        ("fullStorage", json!({ "cluster": "nancy" })),
        ("corruptStorage", json!({ "cluster": "nancy" })),
        ("link", json!({ "from": "nancy", "to": "paris", "latency": "1s" })),
        ("link", json!({ "from": "paris", "to": "nancy", "latency": "1s" })),
        ("partition", json!({ "from": "nancy", "to": "paris", "for": "1s" })),
        ("partition", json!({ "from": "paris", "to": "nancy", "for": "1s" })),
    ] {
        let refusal = refused(fault(json!({ "at": "1s", action: fields })));
        assert!(refusal.contains(&format!("there is no cluster `nancy` (found in `{action}.")), "{refusal}");
    }
    let occurrence = json!({ "fact": "delivered", "cluster": "nancy" });
    let refusal = refused(fault(json!({ "when": occurrence, "crash": {} })));
    assert!(refusal.contains("there is no cluster `nancy` (found in `when.cluster`"), "{refusal}");
}

/// A spec with these fields is accepted, or refused, by the rules and by the validation alike.
fn agree(fields: Value, is_valid: bool) {
    let federation: Federation = serde_json::from_value(with_fields(&fields)).expect("the fields exist");
    assert_eq!(faultline_api::validate(&federation).is_empty(), is_valid, "{fields}");
    assert_eq!(validate(&federation).is_ok(), is_valid, "{fields}: {:?}", validate(&federation));
}

#[test]
fn the_rules_refuse_expectations_without_exactly_one_assertion() {
    agree(json!({ "expect": [{ "rollbacks": { "atMost": 1 } }, { "recoveredWithin": "3s" }] }), true);
    agree(json!({ "expect": [{}] }), false);
    agree(json!({ "expect": [{ "availability": 0.5 }] }), false);
    agree(json!({ "expect": [{ "probe": "write", "finishedWithin": "3s" }] }), false);
    agree(json!({ "expect": [{ "exits": "paris" }] }), false);
    agree(json!({ "expect": [{ "atMost": 1, "finishedWithin": "3s" }] }), false);
    agree(json!({ "expect": [{ "lostWork": { "atMost": "1s" }, "recoveredWithin": "3s" }] }), false);
}

#[test]
fn the_rules_refuse_a_jitter_that_exceeds_the_latency() {
    for field in ["within", "between"] {
        agree(json!({ "links": { field: { "latency": "2ms", "jitter": "2000us" } } }), true);
        agree(json!({ "links": { field: { "latency": "2ms", "jitter": "2.1ms" } } }), false);
        agree(json!({ "links": { field: { "latency": "0", "jitter": "1ns" } } }), false);
        agree(json!({ "links": { field: { "preset": "lan", "jitter": "150us" } } }), true);
        agree(json!({ "links": { field: { "preset": "lan", "jitter": "151us" } } }), false);
        agree(json!({ "links": { field: { "preset": "wan", "latency": "1us" } } }), true);
    }
    // Without a preset, links have the latency of `san` within clusters, and none between them.
    agree(json!({ "links": { "within": { "jitter": "10us" } } }), true);
    agree(json!({ "links": { "within": { "jitter": "11us" } } }), false);
    agree(json!({ "links": { "between": { "jitter": "0" } } }), true);
    agree(json!({ "links": { "between": { "jitter": "1us" } } }), false);
    let pair = |to: &str, links: Value, jitter: &str, is_valid| {
        let mut links = links;
        links["pairs"] = json!([{ "from": "paris", "to": to, "jitter": jitter }]);
        agree(json!({ "links": links }), is_valid);
    };
    pair("rennes", json!({}), "10ms", true);
    pair("rennes", json!({}), "11ms", false);
    pair("paris", json!({}), "11us", false);
    pair("rennes", json!({ "between": { "latency": "1ms" } }), "1ms", true);
    pair("rennes", json!({ "between": { "latency": "1ms" } }), "1001us", false);
    pair("paris", json!({ "within": { "preset": "lan" } }), "150us", true);
    pair("paris", json!({ "within": { "preset": "lan" } }), "151us", false);
    let fault = |links: Value, change: Value, is_valid| {
        let mut change = change;
        change["for"] = json!("1s");
        agree(json!({ "links": links, "faults": [{ "at": "1s", "link": change }] }), is_valid);
    };
    fault(json!({}), json!({ "latency": "1ms", "jitter": "1ms" }), true);
    fault(json!({}), json!({ "latency": "1ms", "jitter": "2ms" }), false);
    fault(json!({}), json!({ "preset": "wan", "jitter": "11ms" }), false);
    fault(json!({}), json!({ "jitter": "10ms" }), true);
    fault(json!({}), json!({ "jitter": "11ms" }), false);
    fault(json!({ "between": { "latency": "1ms" } }), json!({ "jitter": "2ms" }), false);
    // The exception for the link that the fault changes.
    let exceptions = json!({ "pairs": [
        { "from": "rennes", "to": "paris", "latency": "1ms" },
        { "from": "paris", "to": "rennes", "latency": "20ms" },
        { "from": "paris", "to": "paris", "preset": "lan" },
    ] });
    let direction = |from: &str, to: &str, jitter: &str, is_valid| {
        fault(exceptions.clone(), json!({ "from": from, "to": to, "jitter": jitter }), is_valid);
    };
    direction("paris", "rennes", "20ms", true);
    direction("paris", "rennes", "21ms", false);
    direction("rennes", "paris", "1ms", true);
    direction("rennes", "paris", "2ms", false);
    direction("paris", "paris", "150us", true);
    direction("paris", "paris", "151us", false);
    direction("rennes", "rennes", "10us", true);
    direction("rennes", "rennes", "11us", false);
    direction("any", "rennes", "10ms", true);
    direction("any", "rennes", "11ms", false);
    let change = json!({ "from": "paris", "to": "rennes", "jitter": "12ms", "preset": "wan" });
    fault(exceptions.clone(), change, false);
    let same_latency = json!({ "pairs": [{ "from": "paris", "to": "rennes", "loss": "10%" }] });
    fault(same_latency.clone(), json!({ "from": "paris", "to": "rennes", "jitter": "10ms" }), true);
    fault(same_latency, json!({ "from": "paris", "to": "rennes", "jitter": "11ms" }), false);
}

/// A file may name both ends `any`, which a federation that was parsed omits.
#[test]
fn the_rules_treat_a_drawn_link_as_between_clusters() {
    let mut federation = serde_json::to_value(good()).expect("a federation serialises");
    federation["spec"]["links"] = json!({ "between": { "preset": "wan" } });
    let mut accepts = |jitter: &str| {
        let link = json!({ "from": "any", "to": "any", "jitter": jitter, "for": "1s" });
        federation["spec"]["faults"] = json!([{ "at": "1s", "link": link }]);
        validate(&federation)
    };
    assert_eq!(accepts("10ms").map_err(|it| it.to_string()), Ok(()));
    assert!(accepts("11ms").is_err());
}

#[test]
fn the_rules_refuse_a_limit_below_the_request() {
    for pod in ["resources", "supervisor"] {
        agree(json!({ "kubernetes": { pod: { "cpu": "500m", "cpuLimit": "0.5" } } }), true);
        agree(json!({ "kubernetes": { pod: { "cpu": "501m", "cpuLimit": "0.5" } } }), false);
        agree(json!({ "kubernetes": { pod: { "cpu": 1, "cpuLimit": "999m" } } }), false);
        agree(json!({ "kubernetes": { pod: { "cpuLimit": "10m" } } }), true);
    }
}

#[test]
fn the_rules_refuse_nodes_that_do_not_exist() {
    let federation = |fault: Value| {
        move |spec: &mut FederationSpec| {
            spec.clusters[1].nodes = 2;
            spec.faults.push(serde_json::from_value(fault).expect("a valid fault"));
        }
    };
    for (action, fields) in [
        ("crash", json!({})),
        ("stop", json!({})),
        ("pause", json!({ "for": "1s" })),
        ("slow", json!({ "by": 2 })),
        ("flip", json!({})),
        ("slowStorage", json!({ "by": "1s" })),
        ("fullStorage", json!({})),
        ("corruptStorage", json!({})),
    ] {
        let fault = |target: Value| {
            let mut fields = fields.clone();
            fields
                .as_object_mut()
                .expect("a JSON object")
                .extend(target.as_object().expect("a JSON object").clone());
            federation(json!({ "at": "1s", action: fields }))
        };
        let named = format!("in `{action}.node`");
        let refusal = refused(fault(json!({ "cluster": "paris", "node": 3 })));
        assert!(refusal.contains("cluster `paris` has no node") && refusal.contains(&named), "{refusal}");
        let refusal = refused(fault(json!({ "node": 2 })));
        assert!(
            refusal.contains("the smallest cluster has no node") && refusal.contains(&named),
            "{refusal}"
        );
        let mut fine = good();
        fault(json!({ "cluster": "paris", "node": 2 }))(&mut fine.spec);
        fault(json!({ "node": 1 }))(&mut fine.spec);
        assert_eq!(validate(&fine), Ok(()), "{action}");
    }
    let when = json!({ "fact": "delivered", "cluster": "rennes", "node": 2 });
    assert!(
        refused(federation(json!({ "when": when, "crash": {} }))).contains("cluster `rennes` has no node")
    );
    for when in [
        json!({ "fact": "delivered", "node": 0 }),
        json!({ "fact": "delivered", "cluster": "any", "node": 0 }),
    ] {
        let refusal = refused(federation(json!({ "when": when, "crash": {} })));
        assert!(refusal.contains("`when.node` of a fault requires the name of its cluster"), "{refusal}");
    }
}

#[test]
fn the_rules_refuse_invalid_names() {
    let reserved = refused(|spec| spec.clusters[1].name = "supervisor".into());
    assert!(
        reserved.contains("spec.clusters[1].name")
            && reserved.contains("a cluster must not be named `supervisor`: choose another name"),
        "{reserved}"
    );
    for (name, is_reserved) in
        [("storage-server-1023", true), ("storage-server-east", false), ("a-storage-server-1", false)]
    {
        let mut federation = good();
        federation.spec.clusters.push(ClusterSpec::new(name, 1));
        let message = format!("a cluster must not be named `{name}`: choose another name");
        let errors = validate(&federation).map_err(|it| it.to_string());
        assert_eq!(errors.as_ref().err().is_some_and(|it| it.contains(&message)), is_reserved, "{errors:?}");
        assert_eq!(!faultline_api::validate(&federation).is_empty(), is_reserved, "{name}");
    }
    let placed = |kubernetes: Value| {
        move |spec: &mut FederationSpec| {
            spec.kubernetes = Some(serde_json::from_value(kubernetes).expect("a valid placement"));
        }
    };
    for field in [json!({ "pools": { "pari": "east" } }), json!({ "sites": { "pari": {} } })] {
        let refusal = refused(placed(field));
        assert!(refusal.contains("there is no cluster `pari`"), "{refusal}");
    }
    for name in ["a.b", "a-", "1a", "A"] {
        let mut federation = good();
        federation.metadata.name = Some(name.into());
        let errors = validate(&federation).expect_err("the name must be rejected").to_string();
        let problem = faultline_api::validate(&federation).remove(0);
        assert!(errors.contains(&format!("{}: {}", problem.message, problem.help)), "{errors}");
    }
}

#[test]
fn equal_quantities_are_no_change() {
    let old = r#"
        {"deadline": "60s", "failures": {"detectAfter": "1s"}, "storage": {"latency": "1ms"},
         "protocol": {"hc3i": {"checkpointEvery": "2000ms", "collectEvery": "never"}},
         "application": {"heat": {"stepTime": "1000us"}},
         "kubernetes": {"resources": {"cpu": "0.5", "memory": "1GiB"}, "volumes": {"size": "64Mi"}},
         "faults": [{"at": "90s", "pause": {"for": "2m"}}]}"#;
    let new = r#"
        {"deadline": "1m", "failures": {"detectAfter": "1000ms"}, "storage": {"latency": "0.001s"},
         "protocol": {"hc3i": {"checkpointEvery": "2s", "collectEvery": "never"}},
         "application": {"heat": {"stepTime": "1ms"}},
         "kubernetes": {"resources": {"cpu": "500m", "memory": "1Gi"}, "volumes": {"size": "64MiB"}},
         "faults": [{"at": "90s", "pause": {"for": "2m"}}]}"#;
    let rules = |old: &Value, new: &Value| validate_change(&with_fields(new), &with_fields(old));
    let (old, new): (Value, Value) = (serde_json::from_str(old).unwrap(), serde_json::from_str(new).unwrap());
    assert_eq!(rules(&old, &new).map_err(|it| it.to_string()), Ok(()));
    for (field, value) in [
        ("deadline", json!("61s")),
        ("failures", json!({ "detectAfter": "2s" })),
        ("failures", json!({})),
        ("expect", json!([{ "rollbacks": { "atMost": 1 } }])),
        ("storage", json!({ "latency": "1ms", "kind": "memory" })),
        ("protocol", json!({ "hc3i": { "checkpointEvery": "never", "collectEvery": "never" } })),
        ("protocol", json!({ "coordinated": {} })),
        ("application", json!({ "heat": { "stepTime": "1ms", "steps": 7 } })),
        (
            "kubernetes",
            json!({ "resources": { "cpu": "501m", "memory": "1Gi" }, "volumes": { "size": "64Mi" } }),
        ),
        (
            "kubernetes",
            json!({ "resources": { "cpu": "0.5", "memory": "1025Mi" }, "volumes": { "size": "64Mi" } }),
        ),
        ("faults", json!([{ "at": "91s", "pause": { "for": "2m" } }])),
        ("faults", json!([{ "at": "90s", "pause": { "for": "2m", "node": 1 } }])),
    ] {
        let mut changed = new.clone();
        changed[field] = value;
        let errors = rules(&old, &changed).expect_err(field).to_string();
        assert!(errors.contains("cannot change"), "{field}: {errors}");
    }
}

/// API servers ignore the order when they compare whole lists of type `map`, unlike the evaluation here.
#[test]
fn clusters_cannot_be_reordered() {
    let schema = &*SCHEMA;
    let spec = &schema["properties"]["spec"];
    let rules = spec["x-kubernetes-validations"].as_array().expect("a spec has rules");
    walk(".spec", spec, &mut |path, schema| {
        if schema["x-kubernetes-list-type"] == "map" {
            let field = path.trim_start_matches(".spec.");
            let whole = format!("self.{field} == oldSelf.{field}");
            let compares = |rule: &Value| rule["rule"].as_str().is_some_and(|it| it.contains(&whole));
            assert!(!rules.iter().any(compares), "{path}");
        }
    });
    let compares = |rule: &&Value| rule["rule"].as_str().is_some_and(|it| it.contains("oldSelf.clusters"));
    let rule = rules.iter().find(compares).expect("clusters have a rule");
    let only =
        json!({ "type": "object", "properties": spec["properties"], "x-kubernetes-validations": [rule] });
    let clusters = |names: &[&str]| {
        let clusters = names.iter().map(|name| json!({ "name": name, "nodes": 2 }));
        json!({ "clusters": clusters.collect::<Vec<_>>() })
    };
    let names: Vec<String> = (0..256).map(|it| format!("c{it}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut last_swapped = all.clone();
    last_swapped.swap(254, 255);
    for (new, is_same) in [(&all[..], true), (&last_swapped[..], false), (&all[..255], false)] {
        let result = Validator::new().validate(&only, &clusters(new), Some(&clusters(&all)));
        assert_eq!(result.is_ok(), is_same, "{result:?}");
    }
}

#[test]
fn a_spec_cannot_change_but_a_status_can() {
    let old = FederationObject::from(good());
    let mut new = old.clone();
    new.status = Some(FederationStatus::default());
    assert_eq!(validate_change(&new, &old), Ok(()), "a status may change");
    new.spec.seed = Some(8);
    let errors = validate_change(&new, &old).expect_err("a spec may not");
    assert!(errors.to_string().contains("cannot change"), "{errors}");
}

#[test]
fn names_that_pods_cannot_have_are_refused_at_admission() {
    let mut federation = good();
    federation.metadata.name = Some("n".repeat(40));
    federation.spec.clusters[0].name = "c".repeat(12);
    assert!(!faultline_api::validate(&federation).is_empty(), "the validation accepts what the rules refuse");
    let errors = validate(&federation).expect_err("52 characters are too many");
    assert!(errors.to_string().contains("at most 51 characters"), "{errors}");
}

/// Checks federations whose names are as long as possible, and one character longer.
#[test]
fn names_that_pods_outside_the_clusters_cannot_have_are_refused_at_admission() {
    let shared = json!({ "replicateTo": "sharedStorage" });
    let with = |protocol: &str, options: Value| {
        let mut all = shared.clone();
        all.as_object_mut()
            .expect("a JSON object")
            .extend(options.as_object().expect("a JSON object").clone());
        json!({ protocol: all })
    };
    let each = ProtocolSpec::names().flat_map(|it| [json!({ it: {} }), with(it, json!({}))]);
    let numbers = [
        with("hc3i", json!({ "replicas": 0 })),
        with("cck", json!({ "replicas": 2 })),
        with("cck", json!({ "replicas": 16, "servers": 2 })),
        with("cck", json!({ "servers": 10 })),
        with("cck", json!({ "servers": 11 })),
        with("cck", json!({ "replicas": 0, "servers": 101 })),
        with("cck", json!({ "servers": 1001 })),
    ];
    // The rules for names, without those for specs.
    let schema = json!({
        "type": "object",
        "x-kubernetes-validations": SCHEMA["x-kubernetes-validations"],
    });
    let mut found = BTreeSet::new();
    for protocol in each.chain(numbers) {
        // Not all protocols store replicas.
        let Ok(protocol) = serde_json::from_value::<ProtocolSpec>(protocol) else { continue };
        let mut federation = good();
        federation.spec.protocol = protocol;
        let names = faultline_api::Names::of(&federation.spec);
        let longest = names.extra().iter().rev().max_by_key(|it| it.len()).cloned().unwrap_or_default();
        let most = 51 - longest.len();
        for length in [most, most + 1].map(|it| it.min(40)) {
            federation.metadata.name = Some("n".repeat(length));
            let problems = faultline_api::validate(&federation);
            let problem = problems.iter().find(|it| it.path == "metadata.name");
            let value = serde_json::to_value(&federation).expect("a federation serialises");
            let errors = Validator::new().validate(&schema, &value, None).map_err(|it| it.to_string());
            match problem {
                None => assert!(length <= most && errors == Ok(()), "{longest}: {errors:?}"),
                Some(it) => {
                    assert!(length > most, "{longest}: {it:?}");
                    let errors = errors.expect_err("the rules must refuse this");
                    assert!(errors.contains(&format!("{}: {}", it.message, it.help)), "{errors}");
                }
            }
        }
        found.insert(longest);
    }
    let expected = [
        "",
        "event-logger",
        "recovery-process",
        "storage-server",
        "storage-server.10",
        "storage-server.100",
        "storage-server.1000",
    ];
    assert_eq!(found, expected.map(str::to_owned).into());
}
