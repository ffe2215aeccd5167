//! Tests bad input: the exit status is 2, and the error states the problem, its location and the remedy.

use crate::common::{CRASH, TestDirectory, small};
use predicates::prelude::*;
use predicates::str::contains;

/// Runs a command, and expects each of these strings on standard error and nothing on standard output.
fn refused(place: &TestDirectory, arguments: &[&str], said: &[&str]) {
    let mut assert = place.faultline(arguments.iter().copied()).assert().code(2).stdout("");
    for part in said {
        assert = assert.stderr(contains(*part));
    }
}

const RECORD: [&str; 7] = ["run", "small.yaml", "--backend", "simulate", "--out", "record", "-q"];

/// Returns a directory in which `record` contains a run.
fn with_record() -> TestDirectory {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.faultline(RECORD).assert().code(0);
    place
}

#[test]
fn a_missing_file_is_reported_with_a_remedy() {
    let place = TestDirectory::new();
    for command in ["run", "validate", "plan"] {
        refused(
            &place,
            &[command, "nowhere.yaml"],
            &["cannot read nowhere.yaml", "faultline samples quickstart"],
        );
    }
}

#[test]
fn an_unknown_field_is_reported_with_its_line() {
    let place = TestDirectory::new();
    place.write("typo.yaml", small("  deadlime: 3s\n"));
    for command in ["run", "validate", "plan"] {
        refused(&place, &[command, "typo.yaml"], &["deadlime", "typo.yaml:15:3", "did you mean `deadline`"]);
    }
}

#[test]
fn a_fault_in_a_nonexistent_cluster_is_rejected_with_its_line() {
    let place = TestDirectory::new();
    place.write("lost.yaml", small("  faults: [{ at: 1s, loseCluster: { cluster: paris } }]\n"));
    refused(&place, &["validate", "lost.yaml"], &["paris", "lost.yaml:15"]);
}

#[test]
fn all_files_are_validated() {
    let place = TestDirectory::new();
    place.write("good.yaml", small(""));
    place.write("one.yaml", small("").replace("nodes: 2", "nodes: 0"));
    place.write("two.yaml", "kind: Federation\n");
    let output =
        place.faultline(["validate", "one.yaml", "good.yaml", "two.yaml", "absent.yaml"]).assert().code(2);
    let output = output.get_output();
    let said = String::from_utf8_lossy(&output.stderr);
    for file in ["one.yaml", "two.yaml", "absent.yaml"] {
        assert!(said.contains(file), "{file}: {said}");
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.starts_with("good.yaml is valid: ") && printed.ends_with("1 of 4 files are valid\n"),
        "{printed}"
    );
    let all = place.faultline(["validate", "good.yaml", "good.yaml"]).assert().code(0);
    all.stdout(predicates::str::ends_with("2 of 2 files are valid\n"));
    let running = ["validate", "good.yaml", "good.yaml", "--running", "good.yaml"];
    refused(&place, &running, &["`--running` compares one file"]);
}

/// A trace that is damaged or was cut must not become another trace.
#[test]
fn damaged_and_cut_failure_traces_are_refused_with_file_line_and_remedy() {
    let place = TestDirectory::new();
    let entry = "  faults: [{ trace: { file: trace.csv }, crash: {} }]\n";
    place.write("own.yaml", small(entry));
    let header = b"start,end,node,cause\n";
    for (rows, said) in [
        (&b"10,20,n1,GPU\n30,40,n2,x\xE9\n"[..], &["line 3", "not UTF-8", "iconv"][..]),
        (b"10,20,n1,GPU\n30,40,n2,NI", &["line 3", "no line break", "fetch the complete file"]),
        (b"10,20,n1,GPU\n30,4", &["line 3", "2 fields", "fetch the complete file"]),
    ] {
        std::fs::write(place.path("trace.csv"), [header, rows].concat()).unwrap();
        let said = [&["trace.csv"], said].concat();
        for command in [&["traces", "trace.csv"][..], &["validate", "own.yaml"], &["model", "own.yaml"]] {
            refused(&place, command, &said);
        }
    }
    std::fs::write(place.path("trace.json"), b"[{\"node_id\": \"n1\", \"event_time\": 0.5").unwrap();
    refused(&place, &["traces", "trace.json"], &["trace.json", "line 1", "ends in the middle"]);
}

#[test]
fn a_value_that_an_api_server_considers_changed_is_rejected_with_its_line() {
    let place = TestDirectory::new();
    let extra = "  deadline: 60s\n  storage: { writeBandwidth: 200MB }\n";
    let rewritten = extra.replace("60s", "1m");
    place.write("old.yaml", small(extra));
    place.write("same.yaml", small(&rewritten));
    place.write("new.yaml", small(&rewritten.replace("200MB", "1600Mbit")));
    let same = ["validate", "same.yaml", "--running", "old.yaml"];
    place.faultline(same).assert().code(0).stdout("nothing would change\n");
    let said =
        ["`storage.writeBandwidth` is written differently", "new.yaml:16", "exactly as in the running"];
    refused(&place, &["validate", "new.yaml", "--running", "old.yaml"], &said);
}

#[test]
fn a_file_that_is_not_text_is_rejected() {
    let place = TestDirectory::new();
    place.write("image.yaml", [0xff, 0xd8, 0xff]);
    refused(&place, &["run", "image.yaml"], &["not UTF-8"]);
}

#[test]
fn bytes_of_a_file_reach_the_terminal_only_as_text() {
    let place = TestDirectory::new();
    let sneaky = small("  deadline: 60s\n").replace("name: small", "name: s\u{9b}2J\u{202e}x\u{200b}");
    place.write("sneaky.yaml", &sneaky);
    place.write("escape.yaml", "apiVersion: \u{1b}]0;t\u{7}\n");
    place.write("binary.yaml", b"\x7fELF\x02\x1b[2J\x00\xff\n");
    for file in ["sneaky.yaml", "escape.yaml", "binary.yaml"] {
        for command in ["run", "validate", "plan", "compare"] {
            let run = place.faultline([command, file]).assert().code(2).stdout("");
            let printed = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
            let is_raw = |it: char| it.is_control() && it != '\n' || "\u{202e}\u{200b}".contains(it);
            assert!(!printed.contains(is_raw), "{command} {file}: {printed:?}");
        }
    }
}

#[test]
fn words_that_kubectl_reads_as_booleans_are_pointed_out() {
    let place = TestDirectory::new();
    place.write("bare.yaml", small("").replace("lyon", "y"));
    let warning =
        "warning: bare.yaml, line 7: `kubectl` reads `y` without quotes as a boolean; write \"y\"\n";
    place.faultline(["validate", "bare.yaml"]).assert().code(0).stdout(contains("is valid")).stderr(warning);
    place.write("quoted.yaml", small("").replace("lyon", "\"y\""));
    place.faultline(["validate", "quoted.yaml"]).assert().code(0).stderr("");
}

#[test]
fn printed_commands_can_be_pasted_into_a_shell() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(""));
    let run = ["run", "small.yaml", "--backend", "simulate", "--out", "a b/it's"];
    let run = place.faultline(run).assert().code(0).stdout(contains("faultline check 'a b/it'\\''s'"));
    let printed = String::from_utf8_lossy(&run.get_output().stdout).into_owned();
    let line = printed.lines().find(|it| it.contains("faultline check ")).expect("the command is printed");
    let words = line.trim_start().trim_start_matches("faultline ").split("  ").next().unwrap_or_default();
    let program = env!("CARGO_BIN_EXE_faultline");
    let shell = std::process::Command::new("sh")
        .args(["-c", &format!("{program} {words} -q")])
        .current_dir(place.dir())
        .status()
        .expect("a shell starts");
    assert_eq!(shell.code(), Some(0), "{words}");
}

#[test]
fn a_dumb_terminal_gets_no_escape_sequences() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.write("wrong.yaml", small("  deadlime: 3s\n"));
    let program = env!("CARGO_BIN_EXE_faultline");
    let commands =
        ["run small.yaml --backend simulate --out record", "validate wrong.yaml", "check record -vv"];
    for (terminal, is_dumb) in [("dumb", true), ("xterm", false)] {
        for command in commands {
            // With `CI`, some libraries print colours to every terminal.
            let output = place.on_terminal(&format!("CI=true {program} {command}"), terminal, false);
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                !printed.is_empty() && printed.contains('\u{1b}') != is_dumb,
                "{terminal} {command}: {printed}"
            );
        }
        std::fs::remove_dir_all(place.path("record")).expect("the run was recorded");
    }
}

#[test]
fn a_directory_without_a_record_is_rejected() {
    let place = TestDirectory::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    for command in ["check", "explain", "report"] {
        refused(&place, &[command, "nowhere"], &["no such directory", "printed at the end"]);
        refused(&place, &[command, "empty"], &["empty", "manifest.json"]);
        place.write("file", "");
        refused(&place, &[command, "file"], &["it is not a directory"]);
    }
}

#[test]
fn files_other_than_records_are_left_alone() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    std::fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/federation.yaml", "mine");
    let arguments = ["run", "small.yaml", "--backend", "simulate", "--out", "mine", "-q"];
    refused(&place, &arguments, &["contains other files", "--out"]);
    let arguments = ["run", "small.yaml", "--backend", "simulate", "--out", "small.yaml", "-q"];
    refused(&place, &arguments, &["cannot record a run in small.yaml", "it is not a directory", "--out"]);
    assert_eq!(std::fs::read_to_string(place.path("mine/federation.yaml")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(place.path("mine")).unwrap().count(), 1);
}

/// The search would otherwise end with a violation that cannot be recorded, or replace the user's files.
#[test]
fn a_search_is_not_begun_if_its_violations_could_not_be_recorded() {
    let place = with_record();
    std::fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/federation.yaml", "mine");
    for command in ["fuzz", "explore"] {
        refused(&place, &[command, "--out", "mine"], &["contains other files", "--out"]);
        refused(&place, &[command, "--out", "record"], &["already holds the record of a run", "--out"]);
    }
    assert_eq!(std::fs::read_to_string(place.path("mine/federation.yaml")).unwrap(), "mine");
}

#[test]
fn seeds_beyond_the_largest_one_are_rejected() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(""));
    const LARGEST: &str = "18446744073709551615";
    let said = ["2 consecutive seeds", "would exceed", "use a smaller seed"];
    let sweep = ["sweep", "small.yaml", "--set", "links.between.latency=1ms,2ms"];
    for command in [
        &["run", "small.yaml", "--backend", "simulate", "--repeat", "2"][..],
        &["compare", "small.yaml", "--seeds", "2"],
        &[&sweep[..], &["--seeds", "2"]].concat(),
    ] {
        refused(&place, &[command, &["--seed", LARGEST]].concat(), &said);
    }
    for command in [
        &["run", "small.yaml", "--backend", "simulate", "-q"][..],
        &["compare", "small.yaml", "--seeds", "1", "--protocols", "hc3i", "--out", "one"],
        &[&sweep[..], &["--seeds", "1"]].concat(),
    ] {
        place.faultline([command, &["--seed", LARGEST]].concat()).assert().code(0);
    }
}

#[test]
fn the_page_of_a_report_cannot_have_the_name_of_its_diagram() {
    let place = with_record();
    refused(
        &place,
        &["report", "record", "--to", "diagram.svg"],
        &["will contain the diagram", "report.html"],
    );
    assert!(!place.path("diagram.svg").exists());
}

#[test]
fn options_that_a_backend_would_ignore_are_rejected() {
    let place = TestDirectory::new();
    let metrics = ["run", "--backend", "simulate", "--metrics", "127.0.0.1:0"];
    refused(&place, &metrics, &["`--metrics` works only with `--backend local`", "or add `--backend local`"]);
    refused(
        &place,
        &["run", "--namespace", "x"],
        &["`--namespace` works only with `--backend kubernetes`", "or add `--backend kubernetes`"],
    );
    refused(
        &place,
        &["run", "--backend", "simulate", "--context", "x"],
        &["`--context` works only with `--backend kubernetes`"],
    );
}

#[test]
fn a_run_that_does_not_fit_this_machine_is_rejected() {
    let place = TestDirectory::new();
    place.write("huge.yaml", small("").replace("lyon, nodes: 2", "lyon, nodes: 100000"));
    let said = ["cannot run 100002 nodes", " needed, ", "--backend simulate", "--nodes 100002"];
    refused(&place, &["run", "huge.yaml", "--out", "record"], &said);
    assert!(!place.path("record").exists());
    // The rejection names every check that fails in `doctor`.
    let doctor = place.faultline(["doctor", "--nodes", "100002"]).assert().code(1);
    let doctor = String::from_utf8_lossy(&doctor.get_output().stdout).into_owned();
    let failed: Vec<_> = doctor.lines().filter_map(|it| it.strip_prefix("FAIL")).map(str::trim).collect();
    assert!(!failed.is_empty(), "{doctor}");
    for finding in failed {
        let (name, _) = finding.split_once("  ").unwrap();
        refused(&place, &["run", "huge.yaml", "--out", "record"], &[name]);
    }
}

#[test]
fn an_occupied_metrics_port_is_reported_with_a_remedy() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(""));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["run", "small.yaml", "--out", "record", "--metrics", &address];
    refused(&place, &arguments, &["cannot serve metrics at", &address, "another address or port"]);
    assert!(!place.path("record").exists());
}

#[test]
fn a_record_is_never_overwritten() {
    let place = with_record();
    let before = std::fs::read(place.path("record/manifest.json")).unwrap();
    refused(&place, &RECORD, &["already holds the record of a run", "--out"]);
    assert_eq!(std::fs::read(place.path("record/manifest.json")).unwrap(), before);
}

#[test]
fn an_unknown_sample_is_rejected() {
    refused(&TestDirectory::new(), &["samples", "slowstart"], &["invalid value 'slowstart'", "quickstart"]);
}

#[test]
fn invalid_arguments_are_rejected() {
    let place = TestDirectory::new();
    refused(&place, &["run", "--backend", "quantum"], &["quantum", "simulate"]);
    const SEED: &str = "write a whole number from 0 to 18446744073709551615";
    refused(&place, &["run", "--seed", "-1"], &["'-1' for '--seed", SEED]);
    refused(&place, &["run", "--seed=1.5"], &["'1.5' for '--seed", SEED]);
    refused(&place, &["fuzz", "--seed", "x"], &[SEED]);
    refused(&place, &["run", "--repeat", "0"], &["write a whole number from 1 to 4294967295"]);
    refused(&place, &["fuzz", "--runs", "0"], &["write a whole number from 1 to"]);
    refused(&place, &["fuzz", "--twice", "-5"], &["write a whole number from 0 to 100"]);
    refused(&place, &["fuzz", "--jobs", "0"], &["write a whole number from 1 to 1024"]);
    refused(&place, &["doctor", "--nodes", "0"], &["write a whole number from 1 to"]);
    refused(&place, &["validate", "x", "--orders", "0"], &["write a whole number from 1 to 1000"]);
    refused(&place, &["fuzz", "--for", "-3s"], &["'-3s' for '--for"]);
    refused(&place, &["run", "--metrics", "9464"], &["such as 127.0.0.1:9464"]);
    refused(
        &place,
        &["samples", "no-such-sample"],
        &["same-cluster-loss", "hc3i/application-three-clusters"],
    );
    refused(&place, &["run", "-q", "-v"], &["cannot be used with"]);
    refused(&place, &["jump"], &["jump"]);
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let place = TestDirectory::new();
    let commands =
        ["run", "check", "explain", "report", "plan", "validate", "schema", "samples", "completions"];
    let overview = place.faultline(["--help"]).assert().success();
    let overview = String::from_utf8_lossy(&overview.get_output().stdout).into_owned();
    assert!(overview.contains("Exit status") && !overview.contains(" node "), "{overview}");
    for command in commands {
        assert!(overview.contains(command), "{command}");
        let example = contains("Example").and(contains(format!("faultline {command}")));
        place.faultline([command, "--help"]).assert().success().stdout(example);
    }
}
