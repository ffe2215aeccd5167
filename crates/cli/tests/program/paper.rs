//! Tests the three input files of the HC3I paper's simulator, which are simulated, imported or rejected. Also tests
//! reproductions and comparisons.

use crate::common::TestDirectory;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

const FILES: [&str; 7] =
    ["simulate", "--topology", "t.yaml", "--application", "a.yaml", "--timers", "m.yaml"];

/// Writes the three files for two clusters of three nodes. They compute for ten minutes, with failures unless
/// `mtbf` is `never`.
fn small(mtbf: &str) -> TestDirectory {
    let place = TestDirectory::new();
    place.write(
        "t.yaml",
        format!(
            "clusters: [{{ name: a, nodes: 3 }}, {{ name: b, nodes: 3 }}]
links:
  - [{{ preset: san }}]
  - [{{ preset: lan }}, {{ preset: san }}]
mtbf: {mtbf}
"
        ),
    );
    place.write("a.yaml", "duration: 10m\nmessages: { a: { a: 50, b: 40 }, b: { a: 9, b: 30 } }\n");
    place.write("m.yaml", "checkpoint: { a: 1m, b: never }\ncollect: 4m\n");
    place
}

fn output(place: &TestDirectory, more: &[&str]) -> String {
    let arguments = FILES.iter().chain(more).copied();
    let assert = place.faultline(arguments).assert().code(0);
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

#[test]
fn statistics_follow_from_the_files() {
    let place = small("never");
    let run: Value = serde_json::from_str(&output(&place, &["--format", "json", "--seed", "3"])).unwrap();
    assert_eq!(run["verdict"], "pass");
    assert_eq!(run["messages"], serde_json::json!([[50, 40], [9, 30]]));
    let [a, b] = &run["clusters"].as_array().unwrap()[..] else { panic!("two clusters") };
    assert_eq!(b["unforced"], 0, "the timer is infinite");
    assert!(a["unforced"].as_u64() <= Some(10) && a["forced"].as_u64() <= Some(9), "{a}");
    assert!(b["forced"].as_u64() > Some(0));
    let collection = &run["collections"][0]["clusters"];
    assert!(collection[0]["before"].as_u64() > collection[0]["after"].as_u64(), "{collection}");
    let kinds = run["traffic"].as_array().unwrap();
    let ask = kinds.iter().find(|it| it["kind"] == "ask").expect("a collection asks");
    assert_eq!(ask["messagesBetween"].as_u64().unwrap(), run["collections"].as_array().unwrap().len() as u64);
    assert_eq!(ask["messagesWithin"], 0);
}

#[test]
fn many_seeds_give_the_same_bytes_on_any_number_of_cores() {
    let place = small("3m");
    let text = output(&place, &["--seeds", "4", "--jobs", "1"]);
    assert!(text.starts_with("PASS seeds 0 to 3"), "{text}");
    assert!(text.contains("Rollbacks") && text.contains(".."), "{text}");
    assert_eq!(output(&place, &["--seeds", "4", "--jobs", "3"]), text);
    let csv = output(&small("never"), &["--seeds", "2", "--format", "csv"]);
    assert!(csv.starts_with("seed,verdict,statistic,of,to,number,value\n"), "{csv}");
    assert!(
        csv.contains("\n0,pass,messages,a,b,,40\n") && csv.contains("\n1,pass,messages,b,a,,9\n"),
        "{csv}"
    );
}

#[test]
fn the_command_line_overrides_the_duration() {
    let place = small("never");
    let run: Value = serde_json::from_str(&output(&place, &["--format", "json", "--for", "2m"])).unwrap();
    let duration = run["durationSeconds"].as_f64().unwrap();
    assert!((120.0..125.0).contains(&duration), "{duration}");
}

#[test]
fn higher_trace_levels_show_more() {
    let place = small("never");
    let lines =
        |level: &str| output(&place, &["--trace", level]).lines().map(str::to_owned).collect::<Vec<_>>();
    let [statistics, events, messages, actions] = ["statistics", "events", "messages", "actions"].map(lines);
    assert!(statistics[0].starts_with("PASS"), "{statistics:?}");
    assert!(
        events.iter().any(|it| it.contains("starts checkpoint") && it.contains(", forced")),
        "{events:?}"
    );
    assert!(events.iter().all(|it| !it.contains("delivered")), "{events:?}");
    let between = |it: &String| it.contains("b-") && it.contains("delivers a-");
    assert_eq!(messages.iter().filter(|it| between(it)).count(), 40);
    assert!(actions.iter().any(|it| it.contains("delivers a-0->a-1")), "{actions:?}");
    assert!(
        statistics.len() < events.len() && events.len() < messages.len() && messages.len() < actions.len()
    );
}

#[test]
fn an_imported_federation_runs_like_the_files() {
    let place = small("never");
    let arguments = std::iter::once("import").chain(FILES[1..].iter().copied());
    let assert = place.faultline(arguments).assert().code(0);
    place.write("imported.yaml", &assert.get_output().stdout);
    let run = ["run", "imported.yaml", "--backend", "simulate", "--seed", "3", "--format", "json"];
    let assert = place.faultline(run).assert().code(0);
    let imported: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    let simulated: Value =
        serde_json::from_str(&output(&place, &["--format", "json", "--seed", "3"])).unwrap();
    for cluster in 0..2 {
        assert_eq!(imported["clusters"][cluster]["forced"], simulated["clusters"][cluster]["forced"]);
    }
    assert_eq!(imported["run"]["facts"], simulated["facts"]);
}

#[test]
fn problems_are_reported_with_their_line() {
    let place = small("never");
    place.write("m.yaml", "checkpoint: { a: 1m, c: never, b: 2m }\n");
    for command in ["simulate", "import"] {
        let arguments = std::iter::once(command).chain(FILES[1..].iter().copied());
        place
            .faultline(arguments)
            .assert()
            .code(2)
            .stdout("")
            .stderr(contains("there is no cluster `c`").and(contains("m.yaml:1:25")));
    }
    std::fs::remove_file(place.path("a.yaml")).unwrap();
    place
        .faultline(FILES)
        .assert()
        .code(2)
        .stderr(contains("cannot read a.yaml").and(contains("faultline samples hc3i/application")));
}

#[test]
fn an_evaluation_leaves_a_page_tables_and_figures() {
    let place = TestDirectory::new();
    let arguments = ["reproduce", "hc3i", "--quick", "--seeds", "1", "--with-processes", "--out", "out"];
    let said = place.faultline(arguments).assert().code(0).get_output().stdout.clone();
    let said = String::from_utf8(said).unwrap();
    for part in [
        "messages by count",
        // The columns wrap longer texts.
        "the same in every",
        "0 runs did not pass",
        "equal with every",
        "out/index.html",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let read = |name: &str| std::fs::read_to_string(place.path("out").join(name)).unwrap();
    assert!(read("messages.csv").contains("cluster-1,cluster-0,11,11,0,11,11,"), "{}", read("messages.csv"));
    assert!(read("figure-5.svg").starts_with("<svg"));
    assert_eq!(
        read("reality.csv").lines().count(),
        4,
        "numbers that depend on timing: {}",
        read("reality.csv")
    );
    assert!(place.path("out/processes/real-3/manifest.json").exists());
    let page = read("index.html");
    for id in ["figure-5", "figure-8", "collection", "three-clusters", "whole-vector", "replicas", "reality"]
    {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    assert!(!page.contains("src=") && !page.contains("href=\"http"), "the page needs no network");
}

#[test]
fn the_tasks_of_planned_programs_are_measured_on_real_processes() {
    let place = TestDirectory::new();
    let arguments = ["reproduce", "cck", "--quick", "--with-processes", "--out", "out"];
    let said = place.faultline(arguments).assert().code(0).get_output().stdout.clone();
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("simulated run time"), "{said}");
    let times = std::fs::read_to_string(place.path("out/task-times.csv")).unwrap();
    let value = |row: &str, column: &str| -> f64 {
        let names = times.lines().next().unwrap().split(',').position(|it| it == column).unwrap();
        let row = times.lines().find(|it| it.starts_with(row)).unwrap();
        row.split(',').nth(names).unwrap().parse().unwrap()
    };
    for program in ["jacobi", "cloth"] {
        assert!(value(program, "task us mean") > 0.0 && value(program, "real s mean") > 0.0, "{times}");
        assert!(place.path(&format!("out/processes/{program}-tasks-1/manifest.json")).exists());
    }
}

/// Real processes and the simulator agree on the numbers that the files and the seed determine.
#[test]
fn real_processes_and_the_simulator_agree() {
    let place = TestDirectory::new();
    place.write(
        "t.yaml",
        "clusters: [{ name: a, nodes: 2 }, { name: b, nodes: 2 }]\nlinks: [[{}], [{}, {}]]\n",
    );
    place.write("a.yaml", "duration: 5s\nmessages: { a: { a: 20, b: 10 }, b: { b: 15 } }\n");
    place.write("m.yaml", "checkpoint: { a: 1s, b: never }\ndetectAfter: 5s\n");
    let arguments = std::iter::once("import").chain(FILES[1..].iter().copied());
    let imported = place.faultline(arguments).assert().code(0).get_output().stdout.clone();
    place.write("imported.yaml", imported);
    let run = |backend: &str| -> Value {
        let run = ["run", "imported.yaml", "--seed", "5", "--format", "json", "--backend", backend];
        // On a busy machine, links may not have their requested delays, and the verdict is then unknown.
        let assert = place.faultline(run).assert().code(&[0, 3] as &[i32]);
        serde_json::from_slice(&assert.get_output().stdout).unwrap()
    };
    let (real, simulated) = (run("local"), run("simulate"));
    for (run, on) in [(&real, "real processes"), (&simulated, "the simulator")] {
        let of = |cluster: usize, what: &str| run["clusters"][cluster][what].as_u64().unwrap();
        assert_eq!([of(0, "sentWithin"), of(0, "sentBetween"), of(0, "delivered")], [20, 10, 20], "{on}");
        assert_eq!([of(1, "sentWithin"), of(1, "sentBetween"), of(1, "delivered")], [15, 0, 25], "{on}");
        assert_eq!(
            (of(0, "forced"), of(1, "unforced")),
            (0, 1),
            "no process sends to a, and b has no timer: {on}"
        );
        assert!(of(1, "forced") >= 1 && of(0, "unforced") > 1, "{on}: {run}");
        assert_eq!(run["run"]["outcome"], "completed", "{on}");
    }
    assert_eq!(real["result"]["digests"], simulated["result"]["digests"]);
}

#[test]
fn protocols_are_compared_in_a_table_and_on_a_page() {
    let place = TestDirectory::new();
    place.write("small.yaml", crate::common::small(crate::common::CRASH));
    let compare =
        ["compare", "small.yaml", "--protocols", "hydee,coordinated", "--seeds", "1", "--out", "out"];
    place
        .faultline(compare)
        .assert()
        .code(0)
        .stdout(contains("hydee").and(contains("WITH FAULTS")).and(contains("out/index.html")));
    assert!(place.path("out/picture.svg").exists());
    let page = std::fs::read_to_string(place.path("out/index.html")).unwrap();
    for name in ["hydee-with-faults", "hydee-without-faults", "coordinated-with-faults"] {
        let report = format!("records/{name}/report.html");
        assert!(page.contains(&format!("href=\"{report}\"")), "{name}");
        assert!(place.path(&format!("out/{report}")).exists(), "{name}");
    }
    place.faultline(["check", "out/records/coordinated-without-faults", "-q"]).assert().code(0);
    let unknown = ["compare", "small.yaml", "--protocols", "hidee"];
    place.faultline(unknown).assert().code(2).stderr(contains("did you mean `hydee`?"));
}
