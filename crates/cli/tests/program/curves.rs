//! Tests comparisons over the values of a parameter.

use std::fs;

use crate::common::{CRASH, TestDirectory, small};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

const RANDOM: &str = "  faults: [{ mtbf: { exponential: 2s }, crash: {} }]\n";
const CURVES: [&str; 8] = [
    "compare",
    "small.yaml",
    "--sweep",
    "mtbf=8s,500ms,2s",
    "--protocols",
    "coordinated,hydee,none",
    "--seeds",
    "6",
];

fn place(faults: &str) -> TestDirectory {
    let place = TestDirectory::new();
    place.write("small.yaml", small(faults));
    place
}

#[test]
fn goodput_is_compared_over_the_mean_time_between_faults() {
    let place = place(RANDOM);
    let run = place.faultline(CURVES.into_iter().chain(["--out", "out"])).assert().code(0);
    run.stdout(contains("Goodput over mtbf").and(contains("no faults")).and(contains("none is left out")));
    let json: Value =
        serde_json::from_str(&fs::read_to_string(place.path("out/comparison.json")).unwrap()).unwrap();
    assert_eq!(json["sweep"]["values"], serde_json::json!(["500ms", "2s", "8s"]), "in ascending order");
    let curves = json["curves"].as_array().unwrap();
    assert_eq!(curves.len(), 2);
    for curve in curves {
        let goodput = |it: &Value| it["goodputPercent"]["mean"].as_f64().unwrap();
        let mut all: Vec<f64> = curve["points"].as_array().unwrap().iter().map(goodput).collect();
        all.push(goodput(&curve["withoutFaults"]));
        assert!(all.is_sorted() && all[0] < 90.0 && all[3] <= 100.0, "fewer faults, more goodput: {all:?}");
    }
    // A reference, two runs without faults, and six with faults, with six seeds each.
    let journal = fs::read_to_string(place.path("out/runs.jsonl")).unwrap();
    assert_eq!(journal.lines().count(), 1 + 6 * (1 + 2 + 6));
    let page = fs::read_to_string(place.path("out/index.html")).unwrap();
    for file in ["settings/1-hydee.yaml", "settings/3-coordinated.yaml"] {
        assert!(page.contains(&format!("href=\"{file}\"")) && !page.contains("NaN"), "{page}");
        place.faultline(["validate", &format!("out/{file}")]).assert().code(0);
    }
    let first = fs::read_to_string(place.path("out/settings/1-hydee.yaml")).unwrap();
    assert!(first.contains("exponential: 500ms") && first.contains("hydee"), "{first}");
}

#[test]
fn a_resumed_comparison_has_the_same_bytes() {
    let place = place(RANDOM);
    place.faultline(CURVES.into_iter().chain(["--out", "whole"])).assert().code(0);
    let journal = fs::read_to_string(place.path("whole/runs.jsonl")).unwrap();
    let begun: String = journal.lines().take(20).map(|it| it.to_owned() + "\n").collect();
    fs::create_dir(place.path("resumed")).unwrap();
    let headless = begun.split_once('\n').unwrap().1;
    place.write("resumed/runs.jsonl", headless);
    let refused =
        place.faultline(CURVES.into_iter().chain(["--out", "resumed", "--resume"])).assert().code(2);
    refused.stderr(contains("its first line does not say to"));
    place.write("resumed/runs.jsonl", begun);
    place.faultline(CURVES.into_iter().chain(["--out", "resumed", "--resume"])).assert().code(0);
    for name in ["comparison.json", "index.html", "picture.svg", "runs.jsonl"] {
        let [whole, resumed] =
            ["whole", "resumed"].map(|it| fs::read_to_string(place.path(it).join(name)).unwrap());
        assert!(whole == resumed, "{name}");
    }
}

#[test]
fn runs_with_wrong_results_are_counted() {
    let place = place("  faults: [{ mtbf: { exponential: 1s }, flip: { in: state } }]\n");
    let run = ["compare", "small.yaml", "--protocols", "coordinated", "--seeds", "2"];
    let run = place.faultline(run.into_iter().chain(["--sweep", "mtbf=200ms,400ms"])).assert().code(3);
    run.stdout(contains("coordinated at mtbf=200ms: 2 of 2 runs completed without a verdict"));
}

#[test]
fn other_fields_and_values_that_are_no_numbers_can_vary() {
    let place = place(CRASH);
    let sweep = |values: &str| {
        let run = ["compare", "small.yaml", "--protocols", "hc3i,hydee", "--seeds", "1", "--sweep", values];
        place.faultline(run.into_iter().chain(["--out", &values.replace(['.', ',', '='], "-")]))
    };
    sweep("protocol.hc3i.checkpointEvery=never,100ms").assert().code(0).stdout(contains("never"));
    sweep("links.between.latency=1ms,8ms").assert().code(0).stdout(contains("latency"));
}

#[test]
fn a_comparison_that_makes_no_sense_is_refused() {
    let refused = |faults: &str, more: &[&str], message: &str| {
        let place = place(faults);
        let run = place.faultline(["compare", "small.yaml"].into_iter().chain(more.iter().copied()));
        { run }.assert().code(2).stderr(contains(message).and(contains("help: ")));
    };
    refused(CRASH, &["--sweep", "mtbf=1s,2s"], "the file has no random faults");
    refused(RANDOM, &["--sweep", "mtbf=0s,2s"], "mtbf=0s: the mean time between faults must be");
    refused(RANDOM, &["--sweep", "mtbf=often,2s"], "mtbf=often: the mean time between faults must be");
    refused(RANDOM, &["--sweep", "mtbf=2s"], "one value makes no curve");
    refused(RANDOM, &["--sweep", "mtbf=1s,2s", "--backend", "local"], "`--sweep` works only in virtual time");
}
