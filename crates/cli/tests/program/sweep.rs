//! Tests sweeps from the user's point of view.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::common::TestDirectory;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

const FAULT: &str = "  faults: [{ at: 300ms, crash: { cluster: nancy, node: 0 } }]\n";
const TWO: [&str; 6] = [
    "sweep",
    "small.yaml",
    "--set",
    "protocol.hc3i.checkpointEvery=50ms,400ms",
    "--set",
    "links.between.latency=1ms..16ms/3",
];

fn place() -> TestDirectory {
    let place = TestDirectory::new();
    place.write("small.yaml", crate::common::small(FAULT));
    place
}

fn json(place: &TestDirectory, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(place.path(name)).unwrap()).unwrap()
}

#[test]
fn a_sweep_finds_the_setting_that_re_executes_the_fewest_tasks() {
    let place = TestDirectory::new();
    let sample = place.faultline(["samples", "tic"]).assert().code(0).get_output().stdout.clone();
    place.write("tic.yaml", sample);
    let sweep = ["sweep", "tic.yaml", "--set", "protocol.tic.tau=100ms,2s", "--seeds", "1", "--out", "out"];
    let run = place.faultline(sweep.into_iter().chain(["--best", "tasksRunAgainPercent"]));
    { run }.assert().code(0).stdout(contains("Lowest tasks re-executed"));
    assert_eq!(json(&place, "out/sweep.json")["best"]["setting"], 1, "the shorter interval");
}

#[test]
fn a_grid_is_run_judged_and_reported() {
    let place = place();
    let run = place.faultline(TWO.into_iter().chain(["--seeds", "3", "--best", "lostWork", "--out", "out"]));
    let told = contains("checkpointEvery").and(contains("4ms")).and(contains("Lowest lost work"));
    let told = told.and(contains("With fewer than 5 seeds, there are no confidence intervals"));
    { run }.assert().code(0).stdout(told);
    let sweep = json(&place, "out/sweep.json");
    assert_eq!(sweep["settings"].as_array().unwrap().len(), 6);
    assert_eq!(sweep["missing"], 0);
    for setting in sweep["settings"].as_array().unwrap() {
        assert_eq!((&setting["runs"], &setting["pass"]), (&3.into(), &3.into()), "{setting}");
    }
    let csv = fs::read_to_string(place.path("out/runs.csv")).unwrap();
    let seeds: BTreeSet<&str> = csv.lines().skip(1).map(|it| it.split(',').nth(2).unwrap()).collect();
    assert_eq!((csv.lines().count(), seeds.len()), (1 + 6 * 3, 3), "{csv}");
    // Each setting has a valid federation file, to which the page links.
    let best = sweep["best"]["setting"].as_u64().unwrap();
    let file = format!("out/settings/{best}.yaml");
    place.faultline(["validate", &file]).assert().code(0);
    let page = fs::read_to_string(place.path("out/index.html")).unwrap();
    assert!(page.contains(&format!("settings/{best}.yaml")) && page.contains("class=\"cell\""), "a heat map");
    // Every cell and row links to the report of its setting's first seed, whose record can be checked again.
    for setting in 1..=6 {
        let report = format!("records/{setting}/report.html");
        assert!(page.contains(&format!("href=\"{report}\"><rect")), "the cell of {setting}");
        let written = fs::read_to_string(place.path(&format!("out/{report}"))).unwrap();
        assert!(written.contains("seed 3"), "{report}");
        let mut checked = place.faultline(["check", &format!("out/records/{setting}"), "--format", "json"]);
        let checked: Value = serde_json::from_slice(&checked.unwrap().stdout).unwrap();
        assert_eq!((&checked["run"]["seed"], &checked["verdict"]), (&3.into(), &"pass".into()));
    }
}

#[test]
fn the_points_of_one_parameter_link_to_records_even_after_an_interruption() {
    let place = place();
    let run = |more: &[&str]| {
        let set = ["sweep", "small.yaml", "--set", "protocol.hc3i.checkpointEvery=50ms,100ms,400ms"];
        place.faultline(set.into_iter().chain(["--out", "out"]).chain(more.iter().copied()))
    };
    run(&["--seeds", "2"]).assert().code(0);
    let page = fs::read_to_string(place.path("out/index.html")).unwrap();
    let linked = |page: &str, file: &str| page.contains(&format!("href=\"{file}\"><circle"));
    assert!((1..=3).all(|it| linked(&page, &format!("records/{it}/report.html"))), "{page}");
    // A setting whose record was removed links to its federation file.
    fs::remove_dir_all(place.path("out/records/2")).unwrap();
    run(&["--seeds", "3", "--resume"]).assert().code(0);
    let page = fs::read_to_string(place.path("out/index.html")).unwrap();
    assert!(linked(&page, "records/1/report.html") && linked(&page, "settings/2.yaml"), "{page}");
    assert!(!page.contains("records/2/"), "{page}");
}

#[test]
fn seeds_without_a_random_fault_do_not_exclude_a_setting() {
    let place = TestDirectory::new();
    let faults = "  faults: [{ mtbf: { exponential: 2s }, crash: { cluster: any } }]\n";
    place.write("small.yaml", crate::common::small(faults));
    let run = TWO.into_iter().chain(["--seeds", "6", "--best", "lostWork", "--out", "out"]);
    let told = contains("without a fault").and(contains("Lowest lost work")).and(contains("unknown").not());
    place.faultline(run).assert().code(0).stdout(told);
    let sweep = json(&place, "out/sweep.json");
    let some = |what: &str| sweep["settings"].as_array().unwrap().iter().any(|it| it[what] != 0);
    assert!(some("withoutFault") && some("pass") && !some("unknown"), "{sweep}");
    let compare = ["compare", "small.yaml", "--protocols", "hc3i,none", "--seeds", "6", "--format", "json"];
    let compared = place.faultline(compare).assert().code(0);
    let compared: Value = serde_json::from_slice(&compared.get_output().stdout).unwrap();
    let faulty = &compared["protocols"][0]["withFaults"];
    assert!(faulty["withoutFault"] != 0 && faulty["unknown"] == 0, "{faulty}");
}

/// The page of the earlier sweep links to the federations of its settings and to its records.
#[test]
fn a_refused_sweep_changes_nothing_in_the_directory_of_another() {
    let place = place();
    let sweep = |values: &str, more: &[&str]| {
        let common = ["sweep", "small.yaml", "--set", values, "--seeds", "1", "--out", "out"];
        place.faultline(common.iter().chain(more).copied()).assert()
    };
    sweep("links.between.latency=1ms,2ms", &[]).code(0);
    let file = || fs::read_to_string(place.path("out/settings/1.yaml")).unwrap();
    let before = file();
    sweep("links.between.latency=8ms,9ms", &[]).code(2).stderr(contains("already contains results"));
    sweep("links.between.latency=8ms,9ms", &["--resume"])
        .code(2)
        .stderr(contains("belongs to another sweep"));
    assert_eq!(file(), before);
}

#[test]
fn a_journal_that_is_not_a_file_or_has_no_end_is_refused() {
    let place = place();
    let refused = |out: &str, said: &'static str| {
        for more in [&[][..], &["--resume"]] {
            let sweep = TWO.into_iter().chain(["--seeds", "1", "--out", out]);
            let sweep = place.faultline(sweep.chain(more.iter().copied())).assert().code(2);
            sweep.stderr(contains("runs.jsonl").and(contains(if more.is_empty() { "" } else { said })));
        }
    };
    for out in ["fifo", "large"] {
        fs::create_dir(place.path(out)).unwrap();
    }
    assert!(Command::new("mkfifo").arg(place.path("fifo/runs.jsonl")).status().unwrap().success());
    refused("fifo", "not a regular file");
    // A sparse file, which takes up no space on the disk.
    fs::File::create(place.path("large/runs.jsonl")).unwrap().set_len(6 << 30).unwrap();
    refused("large", "longer than 256 MiB");
}

#[test]
fn a_sweep_does_not_replace_files_that_are_not_its_own() {
    let place = place();
    fs::create_dir_all(place.path("records/1")).unwrap();
    place.write("records/1/notes.txt", "mine");
    let run = TWO.into_iter().chain(["--seeds", "1", "--out", "."]);
    place.faultline(run).assert().code(2).stderr(contains("contains other files"));
    assert_eq!(fs::read_to_string(place.path("records/1/notes.txt")).unwrap(), "mine");
}

#[test]
fn the_number_of_jobs_and_an_interruption_do_not_change_the_result() {
    let place = place();
    let sweep = |out: &str, more: &[&str]| {
        let common = ["--out", out, "--format", "csv"];
        place.faultline(TWO.into_iter().chain(common).chain(more.iter().copied()))
    };
    let whole = sweep("whole", &["--seeds", "3", "--jobs", "2"]).assert().code(0);
    let whole = String::from_utf8(whole.get_output().stdout.clone()).unwrap();
    sweep("cut", &["--seeds", "2", "--jobs", "1"]).assert().code(0);
    // The last line is incomplete, as if the program had been killed while it wrote a run.
    let kept = place.path("cut/runs.jsonl");
    let text = fs::read_to_string(&kept).unwrap();
    fs::write(&kept, &text[..text.len() - 20]).unwrap();
    sweep("cut", &["--seeds", "3"])
        .assert()
        .code(2)
        .stderr(contains("already contains results").and(contains("--resume")));
    let resumed = sweep("cut", &["--seeds", "3", "--resume"]).assert().code(0);
    assert_eq!(String::from_utf8(resumed.get_output().stdout.clone()).unwrap(), whole);
    let other = contains("it belongs to another sweep");
    let run = ["sweep", "small.yaml", "--set", "deadline=40s,41s", "--out", "cut", "--resume"];
    place.faultline(run).assert().code(2).stderr(other);
    // An invalid line before the last one is an error.
    fs::write(&kept, text.replacen("\"setting\":0", "\"setting\":x", 1)).unwrap();
    sweep("cut", &["--seeds", "3", "--resume"]).assert().code(2).stderr(contains("line 2"));
}

#[test]
fn values_are_read_as_in_a_file_and_a_range_may_start_at_zero() {
    let place = place();
    let sweep = |set: &str, out: &str| {
        let all = ["sweep", "small.yaml", "--set", set, "--seeds", "1", "--out", out, "--format", "json"];
        let run = place.faultline(all).assert().code(predicate::in_iter([0, 1, 3]));
        let found: Value = serde_json::from_slice(&run.get_output().stdout).expect("the output is JSON");
        let settings = found["settings"].as_array().expect("the output lists the settings").iter();
        let (path, _) = set.split_once('=').expect("the argument has a path");
        settings.map(|it| it["values"][path].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(sweep("links.between.latency=0..6ms/3", "ms"), ["0", "3ms", "6ms"]);
    assert_eq!(sweep("links.between.loss=0..1%/2", "loss"), ["0", "1%"]);
    assert_eq!(sweep("clusters.lyon.nodes=0x2,+3", "nodes"), ["0x2", "+3"]);
    assert_eq!(sweep("links.between.latency=300µs,1ms", "micro"), ["300µs", "1ms"]);
    let file = fs::read_to_string(place.path("ms/settings/1.yaml")).unwrap();
    assert!(file.contains("latency: 0ns"), "{file}");
}

#[test]
fn invalid_sweeps_are_refused_before_anything_runs() {
    let place = place();
    let refused = |set: &str, why: &str| {
        let run = place.faultline(["sweep", "small.yaml", "--set", set, "--out", "out"]).assert().code(2);
        let said = String::from_utf8_lossy(&run.get_output().stderr).replace("│", "");
        let said: Vec<&str> = said.split_whitespace().collect();
        assert!(said.join(" ").contains(why), "{said:?}");
    };
    refused("protocol.hydee.replicas=1,2", "the file's protocol is `hc3i`, not `hydee`");
    refused("protocol.hc3i.replica=1,2", "unknown field `replica`");
    refused("protocol.hc3i.replicas=0,7", "help: add clusters, or reduce `replicas`");
    refused("links.between.latency=1", "latency=1: `1` has no unit help: write a value such as `5ms`");
    refused("links.between.latency=1ms,5 ms", "latency=5 ms: `5 ms` contains a blank help: write `5ms`");
    refused("links.between.bandwidth=1bit", "`1bit` is less than the smallest bandwidth");
    refused(
        "clusters.lyon.nodes=two",
        "`two` is not a whole number help: write a whole number from 1 to 100000",
    );
    refused("clusters.lyon.name=null", "expected text (found an empty value or `null`) help: write a word");
    refused("protocol.hc3i.checkpointEvery=1", "`1` has no unit help: write a value such as");
    refused("clusters.rome.nodes=1,2", "there is no `rome` (available: `lyon`, `nancy`)");
    refused("links.between.latency=1ms..2ms", "1ms..2ms");
    refused("deadline=40s,40s", "`40s` appears twice");
    refused(
        "deadline=40s,50s,40000ms",
        "`deadline=40s` and `deadline=40000ms` are the same setting help: remove one",
    );
    refused("seed=1..100/3", "set the first with `--seed` and their number with `--seeds`");
    assert!(!place.path("out").exists(), "nothing was written");
}

#[test]
fn an_unwritable_record_does_not_hide_that_runs_are_missing() {
    let place = place();
    fs::create_dir(place.path("out")).unwrap();
    fs::write(place.path("out/records"), "a file").unwrap();
    let run = |more: &[&str]| {
        place.faultline(TWO.into_iter().chain(["--out", "out", "--jobs", "1"]).chain(more.iter().copied()))
    };
    let unwritten = contains("cannot record a run in");
    run(&[]).assert().code(2).stderr(unwritten.clone().and(contains("out of memory").not()));
    // Each run exceeds this limit.
    fs::remove_file(place.path("out/runs.jsonl")).unwrap();
    run(&["--memory", "16MiB"]).assert().code(2).stderr(unwritten.and(contains("out of memory: ")));
}
