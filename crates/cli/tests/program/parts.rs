//! Tests sweeps and comparisons that several machines perform.

use std::fs;

use crate::common::{TestDirectory, small};
use predicates::str::contains;

const CURVES: [&str; 6] =
    ["compare", "small.yaml", "--sweep", "links.between.latency=3ms,9ms", "--seeds", "2"];
const FAULT: &str = "  faults: [{ at: 300ms, crash: { cluster: nancy, node: 0 } }]\n";
const SWEEP: [&str; 6] =
    ["sweep", "small.yaml", "--set", "protocol.hc3i.checkpointEvery=50ms,400ms", "--seeds", "4"];
const COMPARE: [&str; 6] = ["compare", "small.yaml", "--protocols", "hc3i,coordinated,none", "--seeds", "4"];
const REPRODUCE: [&str; 5] = ["reproduce", "tic", "--quick", "--seeds", "1"];
const SEARCH: [&str; 8] = ["fuzz", "--defect", "no-drain", "--runs", "500", "--twice", "0", "--no-shrink"];

fn place() -> TestDirectory {
    let place = TestDirectory::new();
    place.write("small.yaml", small(FAULT));
    place
}

/// Performs one part, and returns its results.
fn part(place: &TestDirectory, command: &[&str], part: &str) -> String {
    let run = place.faultline(command.iter().copied().chain(["--part", part])).assert().code(0);
    String::from_utf8(run.get_output().stdout.clone()).unwrap()
}

/// Performs three parts, and writes their results to files.
fn parts(place: &TestDirectory, command: &[&str]) -> [&'static str; 3] {
    for number in 1..=3 {
        place.write(&format!("{number}.jsonl"), part(place, command, &format!("{number}/3")));
    }
    ["1.jsonl", "2.jsonl", "3.jsonl"]
}

/// Executes a command that fails because of its input, and checks its error.
fn is_refused(place: &TestDirectory, command: &[&str], message: &str) {
    let run = place.faultline(command.iter().copied()).assert().code(2);
    let said = String::from_utf8_lossy(&run.get_output().stderr).replace('│', "");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(message), "{message}: {said}");
}

#[test]
fn parts_make_the_same_whole() {
    let place = place();
    for (command, results) in [
        (&SWEEP[..], "runs.csv sweep.json index.html runs.jsonl"),
        (&COMPARE, "comparison.json index.html runs.jsonl"),
        (&CURVES, "comparison.json index.html runs.jsonl"),
        (&REPRODUCE, "granularity.csv satin.svg index.html"),
    ] {
        let files = parts(&place, command);
        let gather = ["--gather"].into_iter().chain(files);
        let command = || command.iter().copied();
        place.faultline(command().chain(["--out", "alone"])).assert().code(0);
        place.faultline(command().chain(["--out", "gathered"]).chain(gather)).assert().code(0);
        for name in results.split(' ') {
            let [alone, gathered] =
                ["alone", "gathered"].map(|it| fs::read_to_string(place.path(it).join(name)).unwrap());
            assert!(alone == gathered, "{:?} {name}", command().next());
        }
        for directory in ["alone", "gathered"] {
            fs::remove_dir_all(place.path(directory)).unwrap();
        }
    }
}

#[test]
fn runs_of_missing_parts_are_performed_here() {
    let place = place();
    let [first, ..] = parts(&place, &SWEEP);
    let gather = SWEEP.into_iter().chain(["--out", "out", "--gather", first]);
    place.faultline(gather).assert().code(0);
    let journal = fs::read_to_string(place.path("out/runs.jsonl")).unwrap();
    assert_eq!(journal.lines().count(), 1 + 2 * 4, "{journal}");
}

#[test]
fn incomplete_results_and_results_of_other_work_are_refused() {
    let place = place();
    let [first, second, _] = parts(&place, &SWEEP);
    let whole = fs::read_to_string(place.path(first)).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let refused = |gather: &[&str], message: &str| {
        is_refused(&place, &[&SWEEP[..], &["--out", "out", "--gather"], gather].concat(), message);
        assert!(!place.path("out").exists(), "nothing is written");
    };
    place.write("cut.jsonl", lines[..lines.len() - 1].join("\n"));
    refused(&["cut.jsonl"], "its last line is missing");
    place.write("hole.jsonl", [&lines[..1], &lines[2..]].concat().join("\n"));
    refused(&["hole.jsonl"], "it states 2 results, but contains 1");
    refused(&[first, second, first], "part 1/3 is in another file, too");
    refused(&["small.yaml"], "line 1:");
    refused(&["nowhere.jsonl"], "No such file");
    let older = whole.replacen(env!("CARGO_PKG_VERSION"), "0.0.1", 1);
    place.write("older.jsonl", older);
    refused(&["older.jsonl"], "version 0.0.1 of Faultline wrote it, and this is version");
    for (options, message) in [
        (&["--seeds", "9"][..], "its runs have `--seeds 9`, and those of this command have `--seeds 4`"),
        (&["--seed", "5"], "have `--seed 5`, and those of this command have `--seed 3`"),
        (&["--set", "links.between.latency=1ms"], "--set links.between.latency=1ms`, and those of this"),
        (&["--sample", "1"], "have `--sample 1`, and those of this command have no `--sample`"),
    ] {
        let seeds = if options[0] == "--seeds" { &[][..] } else { &SWEEP[4..] };
        let command = [&SWEEP[..4], options, seeds].concat();
        place.write("other.jsonl", part(&place, &command, "2/3"));
        refused(&["other.jsonl"], message);
    }
    let other = [&COMPARE[..2], &["--protocols", "hc3i,none", "--seeds", "4"]].concat();
    place.write("other.jsonl", part(&place, &other, "2/3"));
    let gather = [&COMPARE[..], &["--gather", "other.jsonl"]].concat();
    is_refused(&place, &gather, "its runs have `--protocols hc3i,none`, and those of this command");
    place.write("other.jsonl", part(&place, &SEARCH, "2/3"));
    let gather = ["fuzz", "--gather", "other.jsonl"];
    is_refused(
        &place,
        &gather,
        "its runs have `--defect no-drain`, and those of this command have no `--defect`",
    );
    place.write("other.yaml", small(""));
    place.write("other.jsonl", part(&place, &[&["sweep", "other.yaml"], &SWEEP[2..]].concat(), "2/3"));
    refused(&["other.jsonl"], "it belongs to another sweep: the file differs");
    let local = COMPARE.into_iter().chain(["--backend", "local", "--part", "1/3"]);
    place.faultline(local).assert().code(2).stderr(contains("cannot be divided among machines"));
    place
        .faultline(SWEEP.into_iter().chain(["--part", "4/3"]))
        .assert()
        .code(2)
        .stderr(contains("`4/3` is not a part"));
}

#[test]
fn a_machine_that_computes_something_else_is_noticed() {
    let place = place();
    for command in [SWEEP, COMPARE] {
        let results = part(&place, &command, "1/3");
        let changed = results.replacen("\"seconds\":", "\"seconds\":1", 1);
        assert_ne!(results, changed);
        place.write("changed.jsonl", changed);
        let gather = command.into_iter().chain(["--out", "out", "--gather", "changed.jsonl"]);
        let gathered = place.faultline(gather).assert().code(3);
        gathered.stderr(contains("had another result on the machine"));
        // The results of this machine are kept, and those of the other are not.
        let journal = fs::read_to_string(place.path("out/runs.jsonl")).unwrap();
        let here = part(&place, &command, "2/3");
        // A comparison repeats the runs with the first seed here, because they are recorded; parts of a sweep lack them.
        let seed = |it: &str| serde_json::from_str::<serde_json::Value>(it).unwrap()["seed"].as_u64();
        let first = results.lines().filter_map(seed).min().filter(|_| command[0] == "compare");
        let there = results.lines().skip(2).find(|it| seed(it).is_some() && seed(it) != first).unwrap();
        // Both parts may contain the same reference runs.
        let own = here.lines().find(|it| seed(it).is_some() && !results.contains(it)).unwrap();
        assert!(journal.contains(own) && !journal.contains(there));
        fs::remove_dir_all(place.path("out")).unwrap();
    }
}

#[test]
fn a_divided_search_finds_the_same_violation() {
    let place = place();
    let found = |arguments: &[&str]| {
        let run = [&SEARCH[..], &["--format", "json", "--out", "found"]].concat();
        let run = place.faultline(run.into_iter().chain(arguments.iter().copied())).assert().code(1);
        let mut report: serde_json::Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
        for time in ["seconds", "runsPerSecond"] {
            report.as_object_mut().unwrap().remove(time);
        }
        fs::remove_dir_all(place.path("found")).unwrap();
        report
    };
    for number in [1, 2] {
        place.write(&format!("{number}.jsonl"), part(&place, &SEARCH, &format!("{number}/2")));
    }
    let alone = found(&[]);
    assert_eq!(found(&["--gather", "1.jsonl", "2.jsonl"]), alone);
    assert_eq!(found(&["--gather", "2.jsonl"]), alone, "missing stretches run here");
    let results = fs::read_to_string(place.path("1.jsonl")).unwrap();
    place.write("1.jsonl", results.replacen("\"directed\":", "\"directed\":1", 1));
    let wrong = SEARCH.into_iter().chain(["--gather", "1.jsonl"]);
    place.faultline(wrong).assert().code(3).stderr(contains("had another result on the machine"));
    for option in [&["--for", "1s"][..], &["--resume"], &["--table"]] {
        let refused = ["fuzz", "--gather", "2.jsonl"].into_iter().chain(option.iter().copied());
        place.faultline(refused).assert().code(2).stderr(contains("if several machines"));
    }
}

/// A pod performs the part with the number that belongs to its index.
#[test]
fn a_pod_performs_its_part() {
    let place = place();
    fs::create_dir(place.path("campaign")).unwrap();
    let campaign = |version: &str| {
        let arguments =
            SWEEP.into_iter().chain(["--backend", "kubernetes", "--workers", "9", "--out", "x", "--quiet"]);
        serde_json::json!({
            "version": version, "arguments": arguments.collect::<Vec<_>>(), "identity": "0", "runs": 6, "parts": 3,
        })
    };
    place.write("campaign/federation.yaml", small(FAULT));
    place.write("campaign/parts.json", "[3,1]");
    place.write("campaign/campaign.json", campaign(env!("CARGO_PKG_VERSION")).to_string());
    let perform = |index: &str| {
        let mut command = place.faultline(["part", "campaign"]);
        command.env("JOB_COMPLETION_INDEX", index).assert()
    };
    let results = perform("1").code(0).get_output().stdout.clone();
    assert_eq!(String::from_utf8(results).unwrap(), part(&place, &SWEEP, "1/3"));
    perform("2").code(2).stderr(contains("JOB_COMPLETION_INDEX"));
    place.write("campaign/campaign.json", campaign("0.0.1").to_string());
    perform("0").code(2).stderr(contains("was started with version 0.0.1"));
}

#[test]
fn work_that_cannot_be_divided_is_refused_with_the_reason() {
    let place = place();
    for (command, reason) in [
        (&["explore", "--backend", "kubernetes", "--workers", "50"][..], "share one set of visited states"),
        (&["explore", "--workers", "50"], "share one set of visited states"),
        (&["reproduce", "hydee", "--backend", "kubernetes"], "need measurements that precede them"),
        (&["reproduce", "hydee-table1", "--part", "1/2"], "it simulates no runs"),
        (&["reproduce", "cck", "--part", "1/2", "--with-processes"], "consists of simulations"),
        (&["reproduce", "cck", "--workers", "2"], "`--workers` works only with `--backend kubernetes`"),
    ] {
        is_refused(&place, command, reason);
    }
}

#[test]
fn options_for_pods_need_pods() {
    let place = place();
    for (options, message) in [
        (&["--workers", "3"][..], "`--workers` works only with `--backend kubernetes`"),
        (&["--backend", "kubernetes", "--part", "1/3"], "already divides the runs"),
    ] {
        for command in [&SWEEP[..], &COMPARE, &["fuzz"]] {
            let refused = command.iter().chain(options).copied();
            place.faultline(refused).assert().code(2).stderr(contains(message));
        }
    }
}
