//! Tests the choice of clusters for a communication graph.

use std::fs;

use crate::common::TestDirectory;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// Creates a directory whose subdirectory `run` contains the record of a run without faults.
fn recorded() -> TestDirectory {
    let place = TestDirectory::new();
    place.write("small.yaml", crate::common::small(""));
    let run = ["run", "small.yaml", "--backend", "simulate", "--out", "run", "-q"];
    place.faultline(run).assert().code(0);
    place
}

#[test]
fn clusters_are_found_from_the_graph_of_a_run() {
    let place = recorded();
    let export = place.faultline(["export", "run", "--format", "graph"]).assert().code(0);
    let graph = String::from_utf8(export.get_output().stdout.clone()).unwrap();
    assert!(graph.starts_with("lyon-0\nlyon-1\nnancy-0\nnancy-1\n# from"), "{graph}");
    assert!(graph.contains("\nlyon-0 lyon-1 "), "{graph}");
    place.write("run.edges", &graph);
    place.faultline(["cluster", "run.edges", "--out", "out"]).assert().code(0).stdout(
        contains("-> ")
            .and(contains("Chosen: optimal (exhaustive), the smallest sum"))
            .and(contains("name: cluster-0, nodes:")),
    );
    for name in ["front.svg", "front.csv", "clusters.csv", "clusters.yaml", "clusters.json"] {
        assert!(place.path("out").join(name).exists(), "{name}");
    }
    place.write("bad.edges", "a b 1\na b c\n");
    let complains = contains("bad.edges").and(contains("line 2: `c` is not a whole number"));
    place.faultline(["cluster", "bad.edges"]).assert().code(2).stderr(complains);
    place
        .faultline(["cluster", "run.edges", "--max-rollback", "0"])
        .assert()
        .code(2)
        .stderr(contains("12.5"));
}

#[test]
fn clusters_of_nearly_the_same_size_are_found_on_request() {
    let place = TestDirectory::new();
    // A group of two processes and a group of four, with little traffic between the groups.
    let talk = |from: usize, to: usize| format!("p{from} p{to} 100\n");
    let pairs = [(0, 1), (2, 3), (2, 4), (2, 5), (3, 4), (3, 5), (4, 5)];
    place.write("uneven.edges", pairs.map(|(from, to)| talk(from, to)).concat() + "p1 p2 1\n");
    let chosen = |arguments: &[&str]| -> (u64, u64, String) {
        let all = ["cluster", "uneven.edges", "--format", "json", "--out", "out"].iter().chain(arguments);
        let output = place.faultline(all.copied()).assert().code(0).get_output().stdout.clone();
        let found: Value = serde_json::from_slice(&output).unwrap();
        let it = &found["front"][found["chosen"].as_u64().unwrap() as usize];
        let number = |name: &str| it[name].as_u64().unwrap();
        (number("clusters"), number("largest"), found["reason"].as_str().unwrap().to_owned())
    };
    assert_eq!(chosen(&[]).1, 4);
    let (clusters, largest, reason) = chosen(&["--balance", "1"]);
    assert_eq!(clusters * largest, 6, "{reason}");
    assert!(reason.contains("a largest cluster of at most 1 times the mean"), "{reason}");
    assert!(fs::read_to_string(place.path("out/front.csv")).unwrap().contains(",true\n"));
    let (_, _, reason) = chosen(&["--balance", "1.5", "--max-rollback", "10"]);
    assert!(
        reason.contains(
            "no division was found with at most 10 % rolled back and a largest cluster of at most 1.5 times"
        ),
        "{reason}"
    );
    place
        .faultline(["cluster", "uneven.edges", "--balance", "1"])
        .assert()
        .code(0)
        .stdout(contains("largest cluster").and(contains("( 33.33 %)").or(contains("( 50.00 %)"))));
    for wrong in ["0.5", "NaN", "inf", "-1", "x"] {
        place.faultline(["cluster", "uneven.edges", "--balance", wrong]).assert().code(2).stderr(
            contains(format!("'{wrong}'")).and(contains("write a number of at least 1, such as 1.2")),
        );
    }
}

/// Returns the edges of six processes that communicate in rows of three or in columns of two.
fn square(rows: bool) -> String {
    let of = |it: usize| if rows { it / 3 } else { it % 3 };
    let pairs = (0..6).flat_map(|from| (0..6).map(move |to| (from, to)));
    let talks = pairs.filter(|&(from, to)| from != to && of(from) == of(to));
    talks.map(|(from, to)| format!("p{from} p{to} {}\n", if rows { 10 } else { 20 })).collect()
}

#[test]
fn a_change_of_clusters_between_intervals_is_recommended_with_its_saving() {
    let place = TestDirectory::new();
    place.write("rows.edges", square(true));
    place.write("columns.edges", square(false));
    let shifting = ["cluster", "rows.edges", "columns.edges"];
    let output = |more: &[&'static str]| {
        let all = shifting.iter().chain(more).copied();
        String::from_utf8(place.faultline(all).assert().code(0).get_output().stdout.clone()).unwrap()
    };
    // Two rows, then three columns: 50 % and 33.33 % roll back, nothing is logged, and all processes take a checkpoint
    // for the change.
    let text = output(&["--out", "out"]);
    assert!(text.contains("Changing clusters before interval 2 pays off: the sum is 42.67 points"), "{text}");
    assert!(text.contains("From interval 2:\n  cluster-0: p0 p3\n"), "{text}");
    assert!(
        text.contains(
            "Faultline does not change clusters during a run. The best single division for all intervals:\n\nspec:"
        ),
        "{text}"
    );
    for name in ["intervals.svg", "intervals.csv", "clusters.csv", "clusters.yaml", "clusters.json"] {
        assert!(place.path("out").join(name).exists(), "{name}");
    }
    let clusters = fs::read_to_string(place.path("out/clusters.csv")).unwrap();
    assert!(clusters.starts_with("process,one,interval-1,interval-2\n"), "{clusters}");

    let found: Value = serde_json::from_str(&output(&["--change-cost", "0", "--format", "json"])).unwrap();
    assert_eq!(found["best"]["intervals"][1]["checkpointed"], 6);
    assert_eq!(found["clusters"][0]["1"], serde_json::json!(["p3", "p4", "p5"]));
    let text = output(&["--change-cost", "100"]);
    assert!(text.contains("Changing clusters does not pay off: the best sequence found"), "{text}");
    assert!(!text.contains("From interval"), "{text}");
}

#[test]
fn a_run_is_divided_into_intervals() {
    let place = recorded();
    place
        .faultline(["cluster", "run"])
        .assert()
        .code(0)
        .stdout(contains("4 processes, ").and(contains("-> ")));
    place
        .faultline(["cluster", "run", "--intervals", "3"])
        .assert()
        .code(0)
        .stdout(contains("4 processes, 3 intervals, ").and(contains("Changing clusters does not pay off")));
    place.write("one.edges", "a b 1\n");
    for (arguments, why) in [
        (&["run", "run", "--intervals", "2"][..], "`--intervals` requires the directory of one recorded run"),
        (&["one.edges", "--intervals", "2"], "`--intervals` requires the directory of one recorded run"),
        (&["one.edges", "--change-cost", "2"], "`--change-cost`"),
        (&["run/federation.yaml", "one.edges"], "is a federation file; pass it without any graphs"),
        (&["run", "--intervals", "1"], "write a whole number from 2 to 1000"),
        (&["run", "--intervals", "2", "--change-cost", "-1"], "write a number of at least 0, such as 2.5"),
        (&["."], "cannot use ."),
    ] {
        let all = ["cluster"].iter().chain(arguments).copied();
        place.faultline(all).assert().code(2).stderr(contains(why));
    }
}

/// Returns whether printed bytes contain nothing that a terminal would interpret.
fn is_harmless(printed: &[u8]) -> bool {
    let text = std::str::from_utf8(printed).expect("the output is text");
    text.chars().all(|it| (!it.is_control() || it == '\n') && !('\u{202a}'..='\u{202e}').contains(&it))
}

/// Returns the number of clusters in a written federation file's fragment.
fn clusters_in(fragment: &str) -> usize {
    let value = faultline_yaml(fragment);
    value["spec"]["clusters"].as_array().expect("the fragment lists the clusters").len()
}

fn faultline_yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("the fragment is YAML")
}

#[test]
fn names_from_a_file_are_quoted_wherever_they_are_written() {
    let place = TestDirectory::new();
    place.write(
        "names.csv",
        "\"a, b\",=2+3,4.0e2\n\"she said \"\"no\"\"\",\"    - { name: extra, nodes: 7 }\",400\n\
         dir\u{202e}gnp,t\u{9b}2J,400\n",
    );
    place.write("bell.edges", "p\u{1b}]0;x\u{7} q\u{1b}[1A 70\nq\u{1b}[1A r 2\n");
    for (file, processes) in [("names.csv", 6), ("bell.edges", 3)] {
        for more in [&[][..], &["--format", "json"], &["names.csv"]] {
            let arguments = ["cluster", file, "--out", "out"];
            let run = place.faultline(arguments.iter().chain(more).copied()).assert().code(0);
            assert!(is_harmless(&run.get_output().stdout), "{file} {more:?}");
        }
        let json = place.faultline(["cluster", file, "--format", "json", "--out", "out"]).assert().code(0);
        let found: Value = serde_json::from_slice(&json.get_output().stdout).expect("the output is JSON");
        let clusters = found["clusters"].as_array().expect("the output lists the clusters").len();
        let fragment = fs::read_to_string(place.path("out/clusters.yaml")).unwrap();
        assert_eq!(clusters_in(&fragment), clusters, "{fragment}");
        let table = fs::read_to_string(place.path("out/clusters.csv")).unwrap();
        let rows: Vec<csv::StringRecord> = csv::Reader::from_reader(table.as_bytes())
            .records()
            .collect::<Result<_, _>>()
            .expect("it is CSV");
        assert_eq!(rows.len(), processes, "{table}");
        assert!(rows.iter().all(|it| it.len() == 2), "{table}");
        if file == "names.csv" {
            assert!(table.contains("\"=2+3\",\"cluster-"), "{table}");
            assert!(rows.iter().any(|it| &it[0] == "she said \"no\""), "{table}");
        }
    }
    // The error quotes the line, and the name of the file is printed, too.
    place.write("no\u{1b}[2J.edges", "p\u{1b}]0;x\u{7} q\u{202e} 7x\u{1b}[2J\n");
    let run = place.faultline(["cluster", "no\u{1b}[2J.edges"]).assert().code(2);
    assert!(is_harmless(&run.get_output().stderr), "{:?}", run.get_output().stderr);
}

#[test]
fn graphs_that_are_not_understood_are_refused_with_the_line() {
    let place = TestDirectory::new();
    let refused = |name: &str, content: &str, why: &str| {
        place.write(name, content);
        let run = place.faultline(["cluster", name]).assert().code(2).stdout("");
        let said = String::from_utf8_lossy(&run.get_output().stderr).replace('│', "");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(why), "{name}: {said}");
    };
    let most = u64::MAX;
    refused("huge.edges", &format!("p q {most}\nq r {most}\n"), "line 1: the traffic exceeds the maximum");
    refused("pipe.csv", "p|q|8\nq|r|9\n", "line 1 contains `|`");
    refused("thousands.edges", "p q 2,500\n", "`2,500` has separators between its digits");
    refused("half.edges", "p q 0.5\n", "`0.5` has a fraction");
    refused("half.graphml", "<graphml/>", "graphs in XML are not supported");
    refused("edges.metis", "3 7\n2\n1 3\n2\n", "the header gives 7 as the number of edges");
    for (sample, why) in [("quickstart", "the application has no tasks"), ("tic", "processes steal tasks")] {
        let sample = faultline_api::samples::sample(sample).unwrap().text;
        refused("federation.yaml", sample, why);
        refused("federation.yaml", sample, "`faultline cluster DIR`");
    }
    place.write("limit.edges", format!("p q {}\n", 1_u64 << 60));
    place.faultline(["cluster", "limit.edges"]).assert().code(0);
    let twice = ["cluster", "limit.edges", "limit.edges"];
    place.faultline(twice).assert().code(2).stderr(contains("all graphs together"));
    place.write("marked.csv", "\u{feff}src;dst;bytes\r\np;q;30\r\nq;r;4\r\n");
    place
        .faultline(["cluster", "marked.csv"])
        .assert()
        .code(0)
        .stdout(contains("3 processes, 2 communicating"));
}
