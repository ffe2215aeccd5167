//! Tests `faultline model`. The tests of `crates/experiments` cover the formulas.

use std::fs;

use crate::common::TestDirectory;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// Coordinated checkpoints of 64 KiB at 64 kB/s. Failures are detected after 1 s, and processes restart after 2 s.
const TRAIN: &str = "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: train }
spec:
  clusters: [{ name: a, nodes: 2 }, { name: b, nodes: 2 }]
  links: { between: { latency: 1ms } }
  storage: { writeBandwidth: 64kB, latency: 1ms }
  protocol: { coordinated: { checkpointEvery: 10s, replicas: 0 } }
  application: { heat: { steps: 300, stepTime: 500ms, feedbackEvery: 1, state: 64KiB } }
  failures: { detectAfter: 1s, restartAfter: 2s }
  faults: [{ mtbf: { exponential: 2m }, crash: {} }]
  deadline: 1h
  simulator: { exitNotice: never }
";

fn place(changes: &[(&str, &str)]) -> TestDirectory {
    let place = TestDirectory::new();
    let text = changes.iter().fold(TRAIN.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    place.write("train.yaml", text);
    place
}

fn json(place: &TestDirectory, more: &[&str]) -> Value {
    let run = ["model", "train.yaml", "--format", "json", "-q"].into_iter().chain(more.iter().copied());
    let assert = place.faultline(run).assert().code(0);
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

#[test]
fn constants_are_measured_and_the_exact_model_predicts_the_goodput() {
    let place = place(&[]);
    let model = json(&place, &["--check", "--seeds", "6", "--jobs", "1", "--out", "out"]);
    let constants = &model["constants"];
    let near = |name: &str, expected: f64, most: f64| {
        let found = constants[name].as_f64().unwrap();
        assert!((found - expected).abs() <= most, "{name}: {found}");
    };
    near("mtbf", 120.0, 1e-6);
    // A global rollback repeats all work since the last commit.
    near("repeated", 1.0, 0.01);
    near("determination", 1.0, 0.001);
    near("variation", 1.0, 0.1);
    // Detection, restart, 1 s to read the state, and the part of a step before the snapshot.
    near("failure", 4.9, 0.3);
    near("checkpoint", 1.3, 0.2);
    assert_eq!(constants["rolledBack"]["mean"], 1.0);
    assert_eq!(constants["crashes"], serde_json::json!([16, 16]));
    let simulated = model["simulated"].as_array().unwrap();
    assert_eq!(simulated.len(), 8);
    let best = model["advice"]["value"].as_f64().unwrap();
    assert_eq!((&model["advice"]["model"], (14.0..19.0).contains(&best)), (&"exact".into(), true), "{best}");
    // The greatest measured goodput is at an interval near the best one.
    let goodput = |it: &&Value| it["goodputPercent"]["mean"].as_f64().unwrap();
    let top = simulated.iter().max_by(|a, b| goodput(a).total_cmp(&goodput(b))).unwrap();
    let ratio = top["every"].as_f64().unwrap() / best;
    assert!((0.3..3.0).contains(&ratio), "{ratio}");
    let page = fs::read_to_string(place.path("out/index.html")).unwrap();
    assert!(page.matches("<svg").count() == 2 && !page.contains("NaN"), "{page}");
    assert_eq!(json(&place, &["--jobs", "3"])["constants"], *constants, "any number of jobs");
}

#[test]
fn a_model_that_does_not_apply_says_why() {
    let bursts = [("exponential: 2m", "weibull: { scale: 60s, shape: 0.5 }")];
    place(&bursts)
        .faultline(["model", "train.yaml", "-q"])
        .assert()
        .code(0)
        .stdout(contains("exact*").and(contains("bursts cost less")).and(contains("not exponential")));
    let hydee = [("coordinated:", "hydee:")];
    let model = json(&place(&hydee), &[]);
    let exact = &model["models"][4];
    assert_eq!((&exact["name"], &exact["valid"]), (&"exact".into(), &false.into()));
    assert!(exact["why"].as_str().unwrap().contains("rolls back all processes"), "{exact}");
    assert_eq!(model["advice"]["model"], "hierarchical");
}

#[test]
fn sweep_accepts_the_recommended_interval() {
    let place = place(&[]);
    let run = place.faultline(["model", "train.yaml", "--advise", "-q"]).assert().code(0);
    let setting = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    assert!(setting.starts_with("protocol.coordinated.checkpointEvery=1"), "{setting}");
    let sweep = ["sweep", "train.yaml", "--set", setting.trim(), "--seeds", "1"];
    place.faultline(sweep).assert().code(0);
}

#[test]
fn a_federation_without_a_model_is_refused() {
    let period = "coordinated: { checkpointEvery: 10s, replicas: 0 }";
    for (change, message) in [
        ((period, "none: {}"), "none has no checkpoint period"),
        (
            (period, "hydee: { checkpointEvery: 10s, checkpointEveryIn: { a: 5s } }"),
            "`checkpointEveryIn` gives",
        ),
        (("checkpointEvery: 10s", "checkpointEvery: never"), "is `never`"),
        (("mtbf: { exponential: 2m }", "at: 1s"), "the file has no random faults"),
        (("steps: 300", "steps: 10"), "and no checkpoint"),
        (("deadline: 1h", "deadline: 155s"), "a run without faults did not complete"),
    ] {
        let run = place(&[change]).faultline(["model", "train.yaml", "-q"]).assert().code(2);
        run.stderr(contains(message).and(contains("help: ")));
    }
    let place = TestDirectory::new();
    let sample = place.faultline(["samples", "tic"]).assert().code(0).get_output().stdout.clone();
    place.write("tic.yaml", sample);
    place.faultline(["model", "tic.yaml"]).assert().code(2).stderr(contains("hydee, spbc"));
}
