//! Tests `faultline traces`. The tests of `crates/failures` cover the formats and the statistics.

use std::fs;
use std::io::{self, Read};
use std::process::Stdio;

use crate::common::TestDirectory;
use predicates::prelude::*;
use predicates::str::{contains, starts_with};
use serde_json::Value;

const TINY: &str = include_str!("../../../failures/tests/data/tiny.json");
const SYSTEMS: &str = include_str!("../../../failures/tests/data/lanl-systems.csv");
const EVENTS: &str = include_str!("../../../failures/tests/data/events.tsv");

#[test]
fn a_trace_is_described_and_written() {
    let place = TestDirectory::new();
    place.write("tiny.json", TINY);
    let assert = place.faultline(["traces", "tiny.json", "--out", "out"]).assert().code(0).stderr("");
    assert.stdout(
        starts_with("tiny.json: infinitehbd, 5 faults on 3 of 3 nodes, over 4.00 d\n\n time between faults  mean 15.0 h,")
            .and(contains(" GPU    3       60.0 %   12.0 h\n"))
            .and(predicate::str::ends_with("\nout/index.html\n")),
    );
    let read = |name: &str| fs::read_to_string(place.path("out").join(name)).unwrap();
    let statistics: Value = serde_json::from_str(&read("traces.json")).unwrap();
    assert_eq!(statistics["gaps"]["meanSeconds"], 54_000.0);
    assert_eq!(statistics["repair"]["p90Seconds"], 120_960.0);
    assert_eq!(statistics["downAtOnce"]["mean"], 0.875);
    assert_eq!(statistics["groups"][2]["withinSeconds"], 3600);
    assert_eq!(statistics["causes"][0]["medianRepairSeconds"], 43_200.0);
    assert_eq!(statistics["perNode"]["halfOn"], 2);
    assert!(read("index.html").contains("tiny.json: failure trace"));
    assert!(read("trace.csv").starts_with("start,end,node,cause\n0,43200,n1,GPU\n0,21600,n2,NIC\n"));
    // The written faults are the same trace.
    let again = place.faultline(["traces", "out/trace.csv", "--format", "json"]).output().unwrap();
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&again["gaps"], &again["downAtOnce"]), (&statistics["gaps"], &statistics["downAtOnce"]));
}

#[test]
fn options_choose_faults_and_standard_input_is_a_file() {
    let place = TestDirectory::new();
    place.write("systems.csv", SYSTEMS);
    place
        .faultline(["traces", "systems.csv"])
        .assert()
        .code(2)
        .stderr(contains("systems.csv: the file has 2 systems").and(contains("2 (1 fault), 18 (1)")));
    place
        .faultline(["traces", "systems.csv", "--system", "18"])
        .assert()
        .code(0)
        .stdout(contains("systems.csv: lanl, 1 fault on 1 of 5 nodes"));
    let columns = "start=event_start_time,end=event_stop_time,node=node_id";
    place
        .faultline(["traces", "-", "--as", "csv", "--columns", columns, "--where", "event_type=0"])
        .write_stdin(EVENTS)
        .assert()
        .code(0)
        .stdout(starts_with("standard input: csv, 2 faults on 2 of 2 nodes, over 25.5 s"));
    place.write("tiny.json", TINY);
    place
        .faultline([
            "traces",
            "tiny.json",
            "--causes",
            "Fan,GPU",
            "--begin",
            "1.5d",
            "--end",
            "72h",
            "--nodes",
            "400",
        ])
        .assert()
        .code(0)
        .stdout(starts_with("tiny.json: infinitehbd, 3 faults on 3 of 400 nodes, over 2.50 d"));
    place.write("two.csv", "start,end,node\n1,2,n1\n5,6,n1\n");
    place.faultline(["traces", "two.csv"]).assert().code(0).stdout(contains("; 0 of 1 gap is 0\n"));
}

#[test]
fn bad_input_names_the_line_and_the_remedy() {
    let place = TestDirectory::new();
    place.write("tiny.json", TINY);
    place.write("cut.json", &TINY[..500]);
    place.write("empty", "");
    place.write("binary", b"\x7FELF\x00\x1b[31m\n\x00");
    let bad = |arguments: &[&str], what: &str, help: &str| {
        let arguments = ["traces"].iter().chain(arguments).copied();
        let assert = place.faultline(arguments).assert().code(2).stdout("");
        let is_plain = predicate::function(|it: &str| !it.contains('\u{1b}'));
        assert.stderr(contains(what).and(contains(help)).and(is_plain));
    };
    bad(&["absent.json"], "cannot read absent.json", "docs/failures.md");
    bad(&["."], "the file cannot be read", "specify a readable file");
    bad(&["cut.json"], "cut.json: line 4: the file ends in the middle", "fetch the complete file");
    bad(&["empty"], "empty: the file is empty", "specify a file with recorded failures");
    bad(&["binary"], "binary: line 1: the format is not recognised", "--as");
    bad(&["tiny.json", "--as", "lanl"], "tiny.json: line 1: the header has no column", "omit `--as lanl`");
    bad(&["tiny.json", "--as", "json"], "infinitehbd, lanl, spot, csv", "");
    bad(&["tiny.json", "--causes", "Gpu"], "no fault has the cause `Gpu`", "did you mean `GPU`?");
    bad(&["tiny.json", "--begin", "40d"], "`--begin` is after the end", "write an earlier time");
    bad(&["tiny.json", "--begin", "-1d"], "must not be negative", "");
    bad(
        &["tiny.json", "--begin", "40x"],
        "is not a valid unit for a duration",
        "use one of ns, us, ms, s, m, h, d",
    );
    place.write("host.csv", "time,host\n1,a\n2,b\n");
    let columns = ["host.csv", "--columns", "start=time,node=host"];
    bad(&columns, "host.csv: line 1: the header has no column `end`", "use one of `time`, `host`");
    bad(&["host.csv", "--where", "host=a"], "the header has no column `start`", "use one of `time`, `host`");
    place.write("dates.csv", "start,end,node\n2024-01-01 00:00:00,2024-01-01 01:00:00,a\n");
    bad(&["dates.csv"], "(found `2024-01-01 00:00:00`)", "such as 2024-01-31T10:54:00Z");
    bad(&["tiny.json", "--columns", "when=start"], "cannot rename `when`", "start=event_start_time");
    bad(&["tiny.json", "--where", "x"], "write a name, `=` and a value", "");
    bad(&["tiny.json", "--nodes", "2"], "`--nodes` is 2, but the file has faults on 3 nodes", "at least 3");
}

/// The address space of the program is limited to 300 MiB.
#[cfg(target_os = "linux")]
#[test]
fn a_line_of_a_gigabyte_takes_little_memory() {
    let place = TestDirectory::new();
    for begin in ["start,end,node\n1,2,", "[{\"node_id\":\"", "{\"data\":["] {
        let script = "ulimit -v 307200; exec \"$0\" traces -";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_faultline")]).current_dir(place.dir());
        let mut child =
            command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // The program closes its input early.
        let _closed = io::copy(&mut begin.as_bytes().chain(io::repeat(b'1').take(1 << 30)), &mut input);
        drop(input);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("longer than 1 MiB"), "{said}");
    }
}

/// Returns a federation of three processes, with a fault for each failure of a trace.
fn federation(trace: &str, action: &str) -> String {
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: traced }}
spec:
  clusters: [{{ name: a, nodes: 3 }}]
  protocol: {{ coordinated: {{ checkpointEvery: 2s }} }}
  application: {{ heat: {{ steps: 100 }} }}
  faults:
    - trace: {{ {trace} }}
      {action}
  deadline: 2m
"
    )
}

#[test]
fn the_failures_of_a_file_become_faults() {
    let place = TestDirectory::new();
    fs::create_dir(place.path("dir")).unwrap();
    place.write("dir/tiny.json", TINY);
    let trace = "file: tiny.json, nodes: fold, begin: 0s, speed: 8640";
    place.write("dir/traced.yaml", federation(trace, "crash: {}"));
    let plan = place.faultline(["plan", "dir/traced.yaml", "--format", "json"]).assert().code(0);
    let plan: Value = serde_json::from_slice(&plan.get_output().stdout).unwrap();
    let row = |it: &Value| (it["atSeconds"].as_f64().unwrap(), it["what"].as_str().unwrap().to_owned());
    let rows: Vec<_> = plan.as_array().unwrap().iter().map(row).collect();
    let expected = [
        (0.0, 0, "5.00 s (cause: GPU)"),
        (0.0, 1, "2.50 s (cause: NIC)"),
        (15.0, 0, "2.50 s (cause: GPU)"),
        (20.0, 2, "20.0 s (cause: Fan)"),
        (25.0, 1, "5.00 s (cause: GPU)"),
    ];
    let expected = expected.map(|(at, node, rest)| (at, format!("a-{node} is killed, repair takes {rest}")));
    assert_eq!(rows, expected);
    assert_eq!(plan[3]["cause"], "Fan");
}

#[test]
fn a_trace_may_count_from_any_instant() {
    let place = TestDirectory::new();
    let rows = [(0, "gpu-1"), (86_400, "gpu-2"), (172_800, "gpu-3"), (259_200, "gpu-1"), (345_600, "gpu-2")];
    let row = |(at, node): (u64, &str)| format!("{},{},{node},GPU\n", 1_717_200_000 + at, 1_717_203_600 + at);
    place.write("epoch.csv", format!("start,end,node,cause\n{}", rows.map(row).concat()));
    place.write("epoch.yaml", federation("file: epoch.csv, nodes: fold, speed: 8640", "crash: {}"));
    let plan = place.faultline(["plan", "epoch.yaml", "--format", "json"]).assert().code(0);
    let plan: Value = serde_json::from_slice(&plan.get_output().stdout).unwrap();
    assert_eq!(plan.as_array().map(Vec::len), Some(5), "{plan}");
    // A part of a trace has the same faults, from its first one on.
    let cut = ["traces", "epoch.csv", "--begin", "12h", "--end", "80h", "--out", "cut"];
    place.faultline(cut).assert().code(0);
    place.write(
        "cut.yaml",
        federation("file: cut/trace.csv, nodes: fold, speed: 8640, begin: 0s", "crash: {}"),
    );
    let plan = place.faultline(["plan", "cut.yaml", "--format", "json"]).assert().code(0);
    let plan: Value = serde_json::from_slice(&plan.get_output().stdout).unwrap();
    let due: Vec<f64> = plan.as_array().unwrap().iter().filter_map(|it| it["atSeconds"].as_f64()).collect();
    assert_eq!(due, [0.0, 10.0, 20.0]);
}

#[test]
fn too_few_nodes_for_all_repairs_are_noted() {
    let place = TestDirectory::new();
    let text = |fault: &str| {
        let text = federation("file: none", "");
        let (before, _) = text.split_once("    - trace").expect("the federation has a fault");
        format!("{before}    - {{ {fault} }}\n  deadline: 2m\n")
    };
    place.write("crowded.yaml", text("mtbf: { exponential: 10s }, crash: { repair: 1h }"));
    let note = "nodes are under repair at once, but the federation has 3 nodes and 0 spares";
    for command in ["plan", "validate"] {
        place.faultline([command, "crowded.yaml"]).assert().code(0).stderr(contains(note));
    }
    place.write("rare.yaml", text("at: 1s, crash: { cluster: a, node: 1, repair: 3s }"));
    place.faultline(["validate", "rare.yaml"]).assert().code(0).stderr("");
    // The repair takes longer than the detection and the restart.
    place.faultline(["run", "rare.yaml", "--backend", "simulate", "--out", "rare"]).assert().code(0);
    let waited = "a-1 waited until 4.00 s for the repair of its node.";
    place.faultline(["explain", "rare"]).assert().code(0).stdout(contains(waited));
}

#[test]
fn a_trace_that_cannot_trigger_faults_is_refused_with_a_remedy() {
    let place = TestDirectory::new();
    place.write("tiny.json", TINY);
    place.write("systems.csv", SYSTEMS);
    place.write("open.csv", "start,end,node,cause\n10,,n1,GPU\n20,30,n2,GPU\n");
    let long: String = (0..30_000).map(|it| format!("{it},{},n{},GPU\n", it + 1, it % 7)).collect();
    place.write("long.csv", format!("start,end,node,cause\n{long}"));
    for (trace, action, problem, remedy) in [
        ("nodes: fold", "crash: {}", "the trace has neither `file` nor `data`", "write `file`"),
        ("file: tiny.json, data: x", "crash: {}", "`file` and `data` cannot be combined", "keep one"),
        ("file: absent.json", "crash: {}", "cannot read absent.json", "specify a failure trace"),
        ("file: systems.csv", "crash: {}", "systems", "choose one with `system`"),
        ("file: tiny.json, begin: 960h", "crash: {}", "the trace lasts 4.00 d", "write an earlier time"),
        ("file: tiny.json, causes: [Gpu]", "crash: {}", "`Gpu`", "`GPU`"),
        ("file: open.csv", "crash: {}", "3 processes cannot stand for 2 observed nodes", "set `of`"),
        ("file: tiny.json, of: 2", "crash: {}", "`of` is 2", "set `of` to at least 3"),
        ("file: tiny.json, speed: 0", "crash: {}", "the speed 0 is out of range", "between 0.001 and"),
        ("file: open.csv, nodes: fold", "pause: {}", "how long 1 of 2 faults last", "add `for`"),
        ("file: long.csv, nodes: fold", "crash: {}", "the trace is too long (", "faultline traces FILE"),
    ] {
        place.write("traced.yaml", federation(trace, action));
        let assert = place.faultline(["plan", "traced.yaml"]).assert().code(2);
        assert.stderr(contains(problem).and(contains(remedy)));
    }
    let untraced = federation("file: tiny.json", "pause: {}").replace("trace: { file: tiny.json }", "at: 1s");
    place.write("untraced.yaml", &untraced);
    let assert = place.faultline(["plan", "untraced.yaml"]).assert().code(2);
    assert.stderr(contains("only a `trace` supplies a duration").and(contains("add `for`")));
}
