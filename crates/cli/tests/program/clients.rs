//! Tests of clients: programs that carry out operations on a system, whose answers are judged.

use std::fs;

use predicates::str::contains;
use serde_json::Value;

use crate::common::TestDirectory;
use crate::programs::repository;

/// Returns a shorter run of a register with a replica, and clients; `bug` is `none` or `lagging`.
fn register(place: &TestDirectory, bug: &str, faults: &str) -> String {
    let from = repository("e2e/verdicts/lagging-register");
    place.write("store.py", fs::read(from.join("store.py")).unwrap());
    let text = fs::read_to_string(from.join("federation.yaml")).unwrap();
    let text = text.split("  faults:").next().unwrap().to_owned();
    let text = text.replace("{ BUG: none } # wrong: { BUG: lagging }", &format!("{{ BUG: {bug} }}"));
    format!("{}  faults: [{faults}]\n", text.replace("after: 10s", "after: 4s"))
}

fn facts(place: &TestDirectory, kind: &str) -> Vec<Value> {
    let lines = place.faultline(["export", "run"]).output().unwrap().stdout;
    let lines = String::from_utf8(lines).unwrap();
    let facts = lines.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    facts.filter(|it| it["fact"] == kind).collect()
}

#[test]
fn clients_find_the_stale_reads_of_a_lagging_replica() {
    let place = TestDirectory::new();
    let text = register(&place, "lagging", "");
    let (json, _) = place.run("own.yaml", "local", &text, "run");
    assert_eq!(json["verdict"], "fail", "{json}");
    let reason = json["reasons"][0].as_str().unwrap();
    assert!(reason.starts_with("kv (register, linearizable): "), "{reason}");
    let history = &json["histories"][0];
    assert_eq!((&history["name"], &history["result"]), (&"kv".into(), &"fail".into()), "{history}");
    let drawing = history["anomalies"][0]["drawings"][0].as_str().unwrap();
    assert!(drawing.contains("client") && drawing.contains("read"), "{drawing}");
    place.faultline(["check", "run"]).assert().code(1).stdout(contains("kv.read"));
    // For other judges, in the form of Jepsen, which finds the same.
    let export = |options: &[&str]| {
        let words = ["export", "run", "--format", "jepsen"].iter().chain(options);
        place.faultline(words.copied()).output().unwrap()
    };
    place.write("history.edn", export(&[]).stdout);
    let check = ["check", "--history", "history.edn", "--model", "register"];
    place.faultline(check).assert().code(1).stdout(contains("linearizable"));
    assert_eq!(export(&["--clients", "kv"]).stdout, export(&[]).stdout);
    let refused = export(&["--clients", "other"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("choose one with `--clients`: `kv`"));
}

#[test]
fn a_register_whose_clients_crash_is_judged() {
    let place = TestDirectory::new();
    let faults = "{ at: 2s, crash: { cluster: clients, node: 0 } }";
    let text = register(&place, "none", faults) + "  expect: [{ probe: kv.write, availability: 0.5 }]\n";
    let (json, _) = place.run("own.yaml", "local", &text, "run");
    assert_ne!(json["verdict"], "fail", "{json}");
    let property = |name: &str| {
        let all = json["properties"].as_array().unwrap().iter();
        all.clone().find(|it| it["property"] == name).unwrap()["found"].clone()
    };
    assert_eq!(property("consistent"), "holds", "{json}");
    let history = &json["histories"][0];
    assert_eq!(history["result"], "pass", "{history}");
    let kinds = history["kinds"].as_array().unwrap();
    assert_eq!(
        kinds.iter().map(|it| it["kind"].as_str().unwrap()).collect::<Vec<_>>(),
        ["read", "write", "cas"]
    );
    assert!(kinds.iter().all(|it| it["ok"].as_u64().unwrap() > 10), "{history}");
    // Every operation was invoked before it ended, each in its own life.
    let (invoked, concluded) = (facts(&place, "invoked"), facts(&place, "concluded"));
    let lives = |all: &[Value]| all.iter().map(|it| it["life"].as_u64().unwrap()).max();
    assert_eq!((lives(&invoked), lives(&concluded)), (Some(2), Some(2)));
    for it in &concluded {
        let is_own =
            |other: &&Value| (&other["life"], &other["operation"]) == (&it["life"], &it["operation"]);
        let begun = invoked.iter().find(is_own).expect("it was invoked");
        assert!(begun["time_ns"].as_i64() <= it["time_ns"].as_i64());
    }
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn mistakes_in_the_file_are_reported() {
    let place = TestDirectory::new();
    for (from, to, part) in [
        ("model: register", "model: registers", "did you mean `register`?"),
        ("rate: 50", "rate: 10000, mix: { write: 1 }", "add `read`: without it, nothing can be judged"),
        ("by: clients,", "by: elsewhere,", "there is no node or cluster"),
        (
            "clusters: [",
            "kubernetes: { image: registry.example/store:1 }\n  clusters: [",
            "`clients` do not run in pods",
        ),
        (
            "  faults:",
            "  expect: [{ probe: kv.wrte, availability: 0.5 }]\n  faults:",
            "did you mean `kv.write`?",
        ),
        (
            "faults: []",
            "faults: [{ when: { fact: concluded, of: kw }, crash: { cluster: paris } }]",
            "there is no history `kw`",
        ),
    ] {
        let text = register(&place, "none", "").replacen(from, to, 1);
        place.write("own.yaml", text);
        place.faultline(["validate", "own.yaml"]).assert().code(2).stderr(contains(part));
    }
    let many = register(&place, "none", "").replacen("rate: 50", "rate: 10000", 1).replacen(
        "after: 4s",
        "after: 4m",
        1,
    );
    place.write("own.yaml", many);
    let message = "`rate` gives 2400000 operations in 4m";
    place.faultline(["validate", "own.yaml"]).assert().code(2).stderr(contains(message));
}
