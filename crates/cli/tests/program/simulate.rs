//! Tests whole runs in virtual time from the user's point of view.

use crate::common::{CRASH, TestDirectory, says, small};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// A partition that outlasts the deadline, so the run cannot complete.
const CUT_OFF: &str =
    "  faults: [{ at: 100ms, partition: { from: nancy, to: lyon, for: 1m } }]\n  deadline: 3s\n";

fn object(place: &TestDirectory, arguments: &[&str], code: i32) -> Value {
    let assert = place.faultline(arguments.iter().copied()).assert().code(code);
    serde_json::from_slice(&assert.get_output().stdout).expect("the standard output is one JSON object")
}

#[test]
fn the_quick_start_passes_and_can_be_examined() {
    let place = TestDirectory::new();
    let run = place.faultline(["run", "--backend", "simulate"]).assert().code(0);
    let said = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    let summary: Vec<&str> = said.lines().skip_while(|it| !it.contains("PASS")).collect();
    assert!(summary.len() <= 24 && summary.iter().all(|it| it.chars().count() <= 100), "{said}");
    run.stdout(contains("PASS  quickstart"))
        .stdout(contains("rolls back to"))
        .stdout(contains("Both planned faults took effect."))
        .stdout(contains("equal those of the sequential reference"))
        .stdout(contains("faultline explain faultline-runs/quickstart-7"));
    let record = "faultline-runs/quickstart-7";
    place
        .faultline(["check", record, "-v"])
        .assert()
        .code(0)
        .stdout(contains("holds").count(holding(&place, record)));
    place.faultline(["explain", record]).assert().code(0).stdout(says("rolled back to its checkpoint"));
    place.faultline(["report", record]).assert().code(0).stdout(contains("report.html"));
    let page = std::fs::read_to_string(place.path(record).join("report.html")).unwrap();
    assert!(page.contains("<canvas") && page.contains("quickstart: pass"));
    let picture = std::fs::read_to_string(place.path(record).join("diagram.svg")).unwrap();
    assert!(picture.starts_with("<svg"));
    // A second run gets another directory.
    place.faultline(["run", "--backend", "simulate", "-q"]).assert().code(0);
    assert!(place.path("faultline-runs/quickstart-7.2/manifest.json").exists());
}

#[test]
fn commands_without_a_directory_use_the_newest_record() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let commands = [&["check"][..], &["explain"], &["report"], &["export"], &["replay"]];
    for command in commands {
        let none = contains("there is no record in `faultline-runs`").and(contains("faultline run"));
        place.faultline(command.iter().copied()).assert().code(2).stderr(none);
    }
    // The order of the names differs from that of the runs.
    for seed in ["5", "4"] {
        let run = ["run", "small.yaml", "--backend", "simulate", "--record", "-q", "--seed", seed];
        place.faultline(run).assert().code(0);
    }
    for command in commands {
        let newest = contains("newest record: faultline-runs/small-4");
        place.faultline(command.iter().copied()).assert().code(0).stderr(newest);
    }
    assert!(place.path("faultline-runs/small-4/report.html").exists());
}

#[test]
fn help_suggestions_and_completions_lead_to_the_samples() {
    let place = TestDirectory::new();
    place.faultline(["help"]).assert().code(0).stdout(contains("First steps:"));
    place.faultline(["help", "run"]).assert().code(0).stdout(contains("--backend"));
    let sample = "faultline samples quickstart > quickstart.yaml";
    for (arguments, said) in [
        (&["samples", "quickstrat"][..], "similar value exists: 'quickstart'"),
        (&["reproduce", "hydeee"], "similar value exists: 'hydee'"),
        (&["run", "quickstart"], sample),
        (&["validate", "quickstart.yaml"], sample),
        (&["plan", "quikstart"], sample),
    ] {
        place.faultline(arguments.iter().copied()).assert().code(2).stderr(says(said));
    }
    for shell in ["bash", "zsh"] {
        let script = contains("quickstart").and(contains("random-faults"));
        place.faultline(["completions", shell]).assert().code(0).stdout(script);
    }
}

fn holding(place: &TestDirectory, record: &str) -> usize {
    let json = object(place, &["check", record, "--format", "json"], 0);
    json["properties"].as_array().unwrap().iter().filter(|it| it["found"] == "holds").count()
}

#[test]
fn json_and_text_agree() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let run = ["run", "small.yaml", "--backend", "simulate", "--format", "json"];
    let json = object(&place, &run, 0);
    assert_eq!(json["verdict"], "pass");
    assert_eq!(json["run"]["seed"], 3);
    assert_eq!(json["run"]["outcome"], "completed");
    assert_eq!(json["faults"][0]["state"], "effective");
    assert_eq!(json["result"]["equal"], true);
    assert_eq!(json["clusters"][0]["rollbacks"][0]["faults"][0], 0);
    let again = object(&place, &["check", "faultline-runs/small-3", "--format", "json"], 0);
    assert_eq!(json, again, "a record gets the same judgement as its run");
}

#[test]
fn a_seed_repeats_a_run_bit_for_bit() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    for out in ["a", "b"] {
        place
            .faultline(["run", "small.yaml", "--backend", "simulate", "--seed", "9", "--out", out, "-q"])
            .assert()
            .code(0);
    }
    let mut files = 0;
    for entry in std::fs::read_dir(place.path("a/facts")).unwrap() {
        let name = entry.unwrap().file_name();
        let facts = |run: &str| std::fs::read(place.path(run).join("facts").join(&name)).unwrap();
        assert!(facts("a") == facts("b"), "{name:?} differs");
        files += 1;
    }
    assert!(files > 4, "{files} facts files");
}

#[test]
fn several_runs_are_summarised_and_only_reproducible_records_are_removed() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let run = ["run", "small.yaml", "--backend", "simulate", "--repeat", "3", "--out", "many"];
    place.faultline(run).assert().code(0).stdout(
        contains("seed  verdict   rollbacks  lost work")
            .and(contains("         3  PASS"))
            .and(contains("3 runs: 3 pass, 0 unknown, 0 fail")),
    );
    assert!(std::fs::read_dir(place.path("many")).unwrap().next().is_none(), "passed runs leave no record");
    place.faultline(run.into_iter().chain(["--keep"])).assert().code(0).stdout(contains("many/seed-5"));
    assert!(place.path("many/seed-5/manifest.json").exists(), "`--keep` keeps the records");
    std::fs::remove_dir_all(place.path("many")).unwrap();

    place.write("late.yaml", small(CUT_OFF));
    let run =
        ["run", "late.yaml", "--backend", "simulate", "--repeat", "2", "--out", "many", "--format", "json"];
    let json = object(&place, &run, 3);
    assert_eq!((json["verdict"].as_str(), json["unknown"].as_u64()), (Some("unknown"), Some(2)));
    assert_eq!(json["runs"][1]["bundle"], "many/seed-4");
    assert!(place.path("many/seed-4/manifest.json").exists());
}

#[test]
fn a_run_that_exceeds_its_deadline_is_unknown() {
    let place = TestDirectory::new();
    place.write("late.yaml", small(CUT_OFF));
    place
        .faultline(["run", "late.yaml", "--backend", "simulate", "-q"])
        .assert()
        .code(3)
        .stdout(contains("UNKNOWN").and(contains("deadline")));
}

#[test]
fn messages_in_transit_on_a_slow_link_are_neither_lost_nor_stalled() {
    let place = TestDirectory::new();
    let federation = |bandwidth: &str, message: &str, protocol: &str, deadline: &str| {
        format!(
            "apiVersion: faultline.dev/v1alpha1\nkind: Federation\nmetadata: {{ name: slow }}\nspec:\n  \
             clusters: [{{ name: lyon, nodes: 2 }}, {{ name: delft, nodes: 2 }}]\n  \
             links: {{ between: {{ latency: 5ms, bandwidth: {bandwidth} }} }}\n  protocol: {protocol}\n  \
             application: {{ synthetic: {{ message: {message}, state: 1kB, traffic: {{ exact: {{ duration: 1m, \
             messages: [{{ from: lyon, to: lyon, count: 20 }}, {{ from: lyon, to: delft, count: 20 }}] }} }} }} }}\n  \
             deadline: {deadline}\n"
        )
    };
    let protected = "{ hc3i: { checkpointEvery: 30m, collectEvery: 2h, replicateTo: sameCluster } }";
    for text in [federation("10kB", "10MB", "{ none: {} }", "3m"), federation("1B", "10kB", protected, "70m")]
    {
        place.write("slow.yaml", &text);
        let run = place.faultline(["run", "slow.yaml", "--backend", "simulate", "-q"]).assert();
        run.code(3).stdout(contains("UNKNOWN").and(contains("deadline")));
    }
}

#[test]
fn an_irreparable_loss_is_unrecoverable_by_design_and_names_the_holders() {
    let place = TestDirectory::new();
    let sample =
        place.faultline(["samples", "same-cluster-loss"]).assert().code(0).get_output().stdout.clone();
    place.write("loss.yaml", sample);
    place.faultline(["run", "loss.yaml", "--backend", "simulate"]).assert().code(3).stdout(
        contains("UNKNOWN")
            .and(contains("unrecoverable by design"))
            .and(contains("paris-0's part of checkpoint")),
    );
    place
        .faultline(["explain", "faultline-runs/same-cluster-loss-7"])
        .assert()
        .code(0)
        .stdout(contains("No checkpoint of paris can be restored").and(contains("not found at paris-")));
}

#[test]
fn clusters_that_take_checkpoints_together_roll_back_together() {
    let place = TestDirectory::new();
    let sample = place.faultline(["samples", "coordinated"]).assert().code(0).get_output().stdout.clone();
    place.write("together.yaml", sample);
    let json = object(&place, &["run", "together.yaml", "--backend", "simulate", "--format", "json"], 0);
    assert_eq!(json["clusters"][0]["rollbacks"][0]["becauseOf"], "rennes");
    assert_eq!(json["clusters"][1]["rollbacks"][0]["becauseOf"], Value::Null);
    place
        .faultline(["explain", "faultline-runs/coordinated-7"])
        .assert()
        .code(0)
        .stdout(contains("paris rolled back together with the others"));
}

#[test]
fn an_incomplete_record_is_not_judged_as_complete() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.faultline(["run", "small.yaml", "--backend", "simulate", "--out", "run", "-q"]).assert().code(0);
    let file = place.path("run/facts/p3-1.facts");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&file, bytes).unwrap();
    place.faultline(["check", "run"]).assert().code(3).stdout(contains("UNKNOWN"));
}

#[test]
fn the_seed_determines_the_plan() {
    let place = TestDirectory::new();
    let sample = place.faultline(["samples", "random-faults"]).assert().code(0).get_output().stdout.clone();
    place.write("random.yaml", sample);
    let plan = |seed: &str| {
        let assert =
            place.faultline(["plan", "random.yaml", "--seed", seed, "--format", "json"]).assert().code(0);
        serde_json::from_slice::<Value>(&assert.get_output().stdout).unwrap()
    };
    assert_eq!(plan("4"), plan("4"));
    assert_ne!(plan("4"), plan("5"));
    assert!(plan("4").as_array().unwrap().len() > 3);
    place.faultline(["plan", "random.yaml"]).assert().code(0).stdout(contains("is killed"));
}

#[test]
fn samples_and_schema_can_be_printed_and_every_sample_is_valid() {
    let place = TestDirectory::new();
    let list = place.faultline(["samples"]).assert().code(0).get_output().stdout.clone();
    let list = String::from_utf8(list).unwrap();
    // A long description takes several lines, all but the first of which begin with several spaces.
    let lines = list.lines().skip(1).filter(|line| !line.starts_with("  "));
    let names: Vec<_> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"quickstart") && names.len() > 4, "{list}");
    // The samples in a directory are not federations: they are input files of the HC3I paper's simulator.
    for name in names.into_iter().filter(|name| !name.contains('/')) {
        let text = place.faultline(["samples", name]).assert().code(0).get_output().stdout.clone();
        place.write("sample.yaml", text);
        place.faultline(["validate", "sample.yaml"]).assert().code(0).stdout(contains("is valid"));
    }
    let schema = place.faultline(["schema"]).assert().code(0).get_output().stdout.clone();
    assert!(serde_json::from_slice::<Value>(&schema).unwrap()["properties"]["spec"].is_object());
    place.faultline(["completions", "bash"]).assert().code(0).stdout(contains("faultline"));
}

/// Two clusters that run ping-pong. Every round forces a checkpoint, and no checkpoint is collected.
const PING_PONG: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: pingpong }
spec:
  clusters: [{ name: lyon, nodes: 20 }, { name: nancy, nodes: 20 }]
  links: { between: { latency: 3ms } }
  protocol: { hc3i: { checkpointEvery: never, replicas: 0 } }
  application: { pingPong: { sizes: [8B], rounds: 5000 } }
  deadline: 1h
";

#[test]
fn the_summary_says_that_a_checkpoint_timer_never_fired() {
    let place = TestDirectory::new();
    let slower = |period: &str| {
        let every = format!("checkpointEvery: 300ms, checkpointEveryIn: {{ nancy: {period} }}");
        place.write("my.yaml", small("").replace("checkpointEvery: 300ms", &every));
        let run = ["run", "my.yaml", "--backend", "simulate", "--out", period, "--format", "json"];
        object(&place, &run, 0)["notes"].to_string()
    };
    // Each checkpoint of lyon forces one of nancy, whose timer then starts again.
    let note = "the checkpoint timer of nancy (every 700 ms) never fired: 6 forced checkpoints came first and restarted it";
    assert_eq!(slower("700ms"), format!("[\"{note}\"]"));
    assert_eq!(slower("100ms"), "[]", "the timer fires");
    assert_eq!(slower("1h"), "[]", "the run ends before the timer could fire");
}

#[test]
fn an_exploration_ends_before_it_exceeds_its_memory_limit() {
    let place = TestDirectory::new();
    let explore = ["explore", "--protocol", "hc3i", "--messages", "4", "--overtakings", "all"];
    let bounds = ["--states", "100000000", "--memory", "64MiB"];
    let run = place.faultline(explore.into_iter().chain(bounds)).assert().code(3);
    run.stdout(contains("the search reached the memory limit of 64MiB"));
}

#[test]
fn a_run_ends_before_it_exceeds_its_memory_limit() {
    let place = TestDirectory::new();
    place.write("pingpong.yaml", PING_PONG);
    let run = ["run", "pingpong.yaml", "--backend", "simulate", "--out", "record", "--memory", "48MiB"];
    place.faultline(run).assert().code(3).stdout(
        contains("UNKNOWN")
            .and(contains("the program reached its memory limit, 48 MiB, with "))
            .and(contains("parts of checkpoints"))
            .and(contains("`collectEvery`")),
    );
    place.faultline(["check", "record"]).assert().code(3).stdout(contains("its memory limit"));
    place.faultline(["explain", "record"]).assert().stdout(contains("reached its memory limit"));
    place.faultline(["report", "record"]).assert().code(0).stdout(contains("report.html"));
    let summary = object(&place, &["check", "record", "--format", "json"], 3);
    assert_eq!(summary["run"]["outcome"], "outOfMemory");
}

#[test]
fn a_run_out_of_memory_leaves_the_next_run_the_whole_limit() {
    let place = TestDirectory::new();
    let many = "protocol: { none: {} }\n  application: { pingPong: { sizes: [8B], rounds: 20000 } }\n  deadline: 1h\n";
    let head = PING_PONG.split_once("protocol").expect("the file names a protocol").0;
    place.write("many.yaml", format!("{head}{many}"));
    let run = ["run", "many.yaml", "--backend", "simulate", "--memory", "96MiB", "--repeat", "2"];
    let runs = object(&place, &[&run[..], &["--format", "json"]].concat(), 3)["runs"].take();
    let durations: Vec<f64> =
        [0, 1].map(|it| runs[it]["durationSeconds"].as_f64().expect("a duration")).into();
    assert_eq!(runs[0]["verdict"], "unknown");
    assert!(durations[1] > 0.9 * durations[0], "{durations:?}: {runs}");
}

#[test]
fn runs_out_of_memory_are_repeated_instead_of_reused() {
    let place = TestDirectory::new();
    place.write("pingpong.yaml", PING_PONG);
    let limit = ["--seeds", "1", "--memory", "48MiB"];
    let sweep = ["sweep", "pingpong.yaml", "--set", "application.pingPong.rounds=10,5000", "--out", "swept"];
    let compare = ["compare", "pingpong.yaml", "--protocols", "hc3i", "--out", "compared"];
    // In the sweep, the run of ten rounds does not reach the limit. In the comparison, the run and its
    // reference both reach it.
    let works =
        [(&sweep[..], "swept/runs.jsonl", 1, "1 run"), (&compare[..], "compared/runs.jsonl", 0, "2 runs")];
    for (work, runs, complete, out_of_memory) in works {
        let told = contains(format!("out of memory: {out_of_memory} reached the limit"));
        let work = || work.iter().chain(&limit).copied();
        place.faultline(work()).assert().code(3).stderr(told.clone());
        let kept = || std::fs::read_to_string(place.path(runs)).unwrap().lines().count() - 1;
        assert_eq!(kept(), complete);
        place.faultline(work().chain(["--resume"])).assert().code(3).stderr(told);
        assert_eq!(kept(), complete);
    }
}

#[test]
fn a_limit_that_no_run_can_stay_within_is_rejected() {
    let place = TestDirectory::new();
    for (bound, error) in [
        ("64", "has no unit"),
        ("much", "is not a size"),
        ("1kB", "`--memory` must exceed"),
        ("1000GiB", "`--memory` must not exceed"),
    ] {
        place.faultline(["run", "--memory", bound]).assert().code(2).stderr(contains(error));
    }
}

#[test]
fn a_seed_without_a_random_fault_does_not_count_against_the_set() {
    let place = TestDirectory::new();
    let faults = |mean: &str| {
        format!("  faults: [{{ mtbf: {{ exponential: {mean} }}, crash: {{ cluster: any }} }}]\n")
    };
    place.write("some.yaml", small(&faults("4s")));
    let run = ["run", "some.yaml", "--backend", "simulate", "--repeat", "12", "--format", "json"];
    let said = object(&place, &run, 0);
    let number = |key: &str| said[key].as_u64().unwrap();
    assert!(number("passed") > 0 && number("withoutFault") > 0, "{said}");
    assert_eq!((number("passed") + number("withoutFault"), &said["verdict"]), (12, &"pass".into()), "{said}");
    let idle = said["runs"].as_array().unwrap().iter().find(|it| it["withoutFault"] == true).unwrap();
    assert_eq!((&idle["verdict"], &idle["bundle"]), (&"unknown".into(), &Value::Null), "{idle}");
    // If no run has a fault, nothing is known about faults.
    place.write("none.yaml", small(&faults("60s")));
    let run = ["run", "none.yaml", "--backend", "simulate", "--repeat", "2"];
    let all = contains("NO FAULT").and(contains("0 pass, 0 unknown, 0 fail, 2 without a fault"));
    place.faultline(run).assert().code(3).stdout(all);
    // A fixed-time fault that never occurs is a different case.
    place.write("late.yaml", small("  faults: [{ at: 100s, crash: { cluster: lyon, node: 0 } }]\n"));
    let run = ["run", "late.yaml", "--backend", "simulate", "--repeat", "2"];
    place.faultline(run).assert().code(3).stdout(contains("0 pass, 2 unknown, 0 fail\n"));
}

#[test]
fn a_minus_sign_stands_for_standard_input() {
    let place = TestDirectory::new();
    let fed = |arguments: &[&'static str]| {
        let mut command = place.faultline(arguments.iter().copied());
        command.write_stdin(small(""));
        command.assert()
    };
    fed(&["validate", "-"]).code(0).stdout(contains("standard input is valid"));
    fed(&["plan", "-"]).code(0).stdout(contains("no faults"));
    fed(&["run", "-", "--backend", "simulate", "--out", "run"]).code(0);
    fed(&["compare", "-", "--protocols", "hc3i", "--seeds", "1"]).code(0);
    fed(&["sweep", "-", "--set", "deadline=40s,41s", "--seeds", "1"]).code(0);
    fed(&["fuzz", "--file", "-"]).code(0);
    fed(&["validate", "-", "--running", "-"]).code(2).stderr(contains("can be read only once"));
    let graph = place.faultline(["export", "run", "--format", "graph"]).assert().code(0);
    let mut command = place.faultline(["cluster", "-"]);
    command.write_stdin(graph.get_output().stdout.clone());
    command.assert().code(0).stdout(contains("4 processes"));
    let planned = place.faultline(["samples", "cck"]).assert().code(0);
    place.write("cck.yaml", planned.get_output().stdout.clone());
    let partitions = place.faultline(["cluster", "cck.yaml"]).assert().code(0);
    let mut command = place.faultline(["cluster", "-"]);
    command.write_stdin(planned.get_output().stdout.clone());
    command.assert().code(0).stdout(partitions.get_output().stdout.clone());
}

#[test]
fn a_program_that_does_not_fit_in_memory_is_rejected() {
    let place = TestDirectory::new();
    let program = |protocol: &str, application: &str| {
        let text =
            format!("spec:\n  clusters: [{{ name: a, nodes: 2 }}]\n  protocol: {{ {protocol}: {{}} }}\n");
        let head = PING_PONG.split_once("spec:").expect("the file has a spec").0;
        place.write("program.yaml", format!("{head}{text}  application: {{ {application} }}\n"));
        place.faultline(["run", "program.yaml", "--backend", "simulate", "--memory", "200MiB"]).assert()
    };
    let iterations = "jacobi: { size: 4, iterations: 200000, taskTime: 1us }";
    let of_jacobi = "spec.application.jacobi: the program needs";
    for protocol in ["tic", "cck", "none"] {
        program(protocol, iterations).code(2).stderr(contains(of_jacobi));
    }
    let large = "jacobi: { size: 4096, rows: 64, columns: 64, iterations: 1 }";
    program("cck", large).code(2).stderr(contains(of_jacobi).and(contains("`--memory`")));
    let cloth = program("tic", "cloth: { size: 1024, iterations: 1 }");
    cloth.code(2).stderr(contains("spec.application.cloth: the program needs"));
}

#[test]
fn a_record_is_named_after_what_differs() {
    let place = TestDirectory::new();
    let run = |change: [&str; 2], backend: &str| {
        place.write("my.yaml", small("").replace(change[0], change[1]));
        let said = object(&place, &["run", "my.yaml", "--backend", backend, "--format", "json"], 0);
        said["run"]["bundle"].as_str().unwrap().to_owned()
    };
    let same = ["300ms", "300ms"];
    assert_eq!(run(same, "simulate"), "faultline-runs/small-3");
    assert_eq!(run(same, "simulate"), "faultline-runs/small-3.2", "an identical run");
    assert_eq!(run(["300ms", "200ms"], "simulate"), "faultline-runs/small-3-checkpointEvery=200ms");
    assert_eq!(run(["300ms", "200ms"], "simulate"), "faultline-runs/small-3-checkpointEvery=200ms.2");
    assert_eq!(run(["seed: 3", "seed: 4"], "simulate"), "faultline-runs/small-4");
}

#[test]
fn an_export_warns_that_its_run_did_not_complete() {
    let place = TestDirectory::new();
    place.write("short.yaml", small(CUT_OFF));
    place.faultline(["run", "short.yaml", "--backend", "simulate", "--out", "short"]).assert().code(3);
    let early = contains("this run exceeded its deadline");
    place.faultline(["export", "short"]).assert().code(0).stderr(early.clone());
    place.faultline(["export", "short", "--format", "graph"]).assert().code(0).stderr(early.clone());
    place.faultline(["cluster", "short"]).assert().code(0).stderr(early);
    place.write("whole.yaml", small(""));
    place.faultline(["run", "whole.yaml", "--backend", "simulate", "--out", "whole"]).assert().code(0);
    place.faultline(["export", "whole"]).assert().code(0).stderr("");
}

#[test]
fn a_plan_is_in_the_order_of_time_and_has_one_notation() {
    let place = TestDirectory::new();
    let faults = |first: &str| {
        format!(
            "  faults:
    - {{ at: {first}, crash: {{ cluster: nancy, node: 1 }} }}
    - {{ when: {{ fact: checkpointRequested, cluster: lyon, occurrence: 2 }}, crash: {{ cluster: lyon, node: 0 }} }}
    - {{ at: 1s, crash: {{ cluster: lyon, node: 1 }} }}
  deadline: 1h
"
        )
    };
    let plan = |first: &str, more: &[&str]| {
        place.write("plan.yaml", small(&faults(first)));
        let run = place.faultline(["plan", "plan.yaml"].iter().chain(more).copied()).assert().code(0);
        String::from_utf8_lossy(&run.get_output().stdout).into_owned()
    };
    let due = |text: &str| {
        let rows =
            text.lines().filter_map(|it| it.split("  ").map(str::trim).find(|it| it.starts_with("at ")));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let event = "at the 2nd checkpointRequested of lyon";
    assert_eq!(due(&plan("1500ms", &[])), ["at 1.00 s", "at 1.50 s", event]);
    assert_eq!(due(&plan("1500s", &[])), ["at 0:00:01", "at 0:25:00", event]);
    let json: Value = serde_json::from_str(&plan("1500ms", &["--format", "json"])).expect("it is JSON");
    let field = |name: &str| (0..3).map(|it| json[it][name].clone()).collect::<Vec<_>>();
    assert_eq!(field("atSeconds"), [Value::from(1.0), Value::from(1.5), Value::Null]);
    assert_eq!(field("no"), [2, 0, 1].map(Value::from));
}

#[test]
fn a_run_that_is_not_as_expected_fails_and_says_what_was_measured() {
    let place = TestDirectory::new();
    let expecting = |limits: &str| small(&format!("{CRASH}  expect: [{limits}]\n"));
    let within = "{ recoveredWithin: 5s }, { rollbacks: { atMost: 2 } }, { lostWork: { atMost: 9s } }, \
                  { finishedWithin: 9s }";
    place.write("small.yaml", expecting(within));
    let run = ["run", "small.yaml", "--backend", "simulate"];
    let met = contains("recovery within 5.00 s").and(says("expected measured result"));
    place.faultline(run).assert().code(0).stdout(met.and(contains("not met").not()));

    place.write("small.yaml", expecting("{ recoveredWithin: 5s }, { rollbacks: { atMost: 0 } }"));
    let summary = object(&place, &["run", "small.yaml", "--backend", "simulate", "--format", "json"], 1);
    let expectations = &summary["expectations"];
    assert_eq!((&expectations[0]["met"], &expectations[1]["met"]), (&"yes".into(), &"no".into()));
    let rollbacks = summary["clusters"].as_array().unwrap().iter();
    let rollbacks: usize = rollbacks.map(|it| it["rollbacks"].as_array().unwrap().len()).sum();
    assert_eq!(expectations[1]["figure"], rollbacks as f64, "{expectations}");
    assert_eq!(expectations[0]["figure"], summary["outages"][0]["recoverySeconds"]);
    let record = summary["run"]["bundle"].as_str().unwrap();
    let told = says("Expected: no rollback; measured: ").and(contains("; not met."));
    place.faultline(["explain", record]).assert().code(0).stdout(told);
    let reason = says("expected no rollback, but measured ");
    place.faultline(["check", record]).assert().code(1).stdout(reason);
    place.faultline(["report", record]).assert().code(0);
    let page = std::fs::read_to_string(place.path(record).join("report.html")).unwrap();
    assert!(page.contains("<h2>Expectations</h2>") && page.contains("not met"));

    // Without the fault, nothing can be said about recoveries.
    place.write("small.yaml", small("  expect: [{ recoveredWithin: 5s }]\n"));
    let unknown = says("expected recovery within 5.00 s, but no process failed");
    place.faultline(["run", "small.yaml", "--backend", "simulate"]).assert().code(3).stdout(unknown);
}
