//! Tests of protocols that are programs, on the simulator and on real processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

use crate::common::{TestDirectory, passes_but_for_links, says, signal, small, wait_until};

/// Returns the path of a file in the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Copies the example into a directory, with a short run.
fn again(place: &TestDirectory) -> String {
    for name in ["again.py", "again.yaml"] {
        place.write(name, fs::read(repository("examples/python").join(name)).unwrap());
    }
    fs::read_to_string(place.path("again.yaml")).unwrap()
}

/// Returns a federation whose program misbehaves in this way on its first message.
fn bad(place: &TestDirectory, bad: &str) -> String {
    place.write("bad.py", fs::read(repository("crates/program/tests/bad/bad.py")).unwrap());
    // On a busy machine, other programs may take longer to answer.
    let within = if bad == "hangs" { "1s" } else { "30s" };
    let options = format!("env: {{ BAD: {bad} }}\n      answerWithin: {within}");
    let changes = [
        ("command: [python3, again.py]", "command: [python3, bad.py]"),
        ("files: { again.py: { file: again.py } }", "files: { bad.py: { file: bad.py } }"),
        ("parameters: { acceptsStale: false }", &options),
    ];
    // A failure while a program hangs has effects of its own.
    let text = again(place);
    let calm = text.split_once("  faults:").map_or("", |it| it.0).to_owned();
    let text = if bad == "hangs" { calm } else { text };
    changes.iter().fold(text, |text, (old, new)| {
        assert!(text.contains(old), "{old}");
        text.replace(old, new)
    })
}

#[test]
fn the_example_in_the_guide_is_the_file() {
    let guide = fs::read_to_string(repository("docs/programs.md")).unwrap();
    let code = fs::read_to_string(repository("examples/python/again.py")).unwrap();
    assert!(guide.contains(&format!("```python\n{code}```")));
    let file = fs::read_to_string(repository("examples/python/again.yaml")).unwrap();
    let (_, spec) = file.split_once('\n').unwrap();
    assert!(guide.contains(&format!("```yaml\n{spec}```")));
}

#[test]
fn a_program_recovers_in_virtual_time_and_its_record_needs_no_other_file() {
    let place = TestDirectory::new();
    let text = again(&place);
    let (json, code) = place.run("again.yaml", "simulate", &text, "run");
    assert_eq!(
        (code, &json["verdict"], &json["run"]["protocol"]),
        (Some(0), &"pass".into(), &"again.py".into()),
        "{json}"
    );
    let run = ["run", "again.yaml", "--backend", "simulate", "--fresh-programs", "--out", "fresh"];
    place.faultline(run).assert().code(0);
    let facts = |dir: &str| place.faultline(["export", dir]).output().unwrap().stdout;
    assert_eq!(facts("run"), facts("fresh"));
    fs::remove_file(place.path("again.py")).unwrap();
    for command in ["check", "explain", "report"] {
        place.faultline([command, "run"]).env("PATH", "").assert().code(0);
    }
    let refused = place.faultline(["check", "run", "--resimulate"]).assert().code(2);
    refused.stderr(says("the protocol of this run is a program, again.py").and(contains("--run-programs")));
    place.faultline(["check", "run", "--resimulate", "--run-programs"]).assert().code(0);
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn a_program_recovers_on_real_processes() {
    let place = TestDirectory::new();
    let text = again(&place);
    let (json, code) = place.run("again.yaml", "local", &text, "run");
    assert_eq!(code, Some(if passes_but_for_links(&json) { 0 } else { 3 }));
    assert_eq!(json["faults"][0]["state"], "effective", "{json}");
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn nothing_remains_of_a_run_that_is_killed() {
    let place = TestDirectory::new();
    // A run that takes long enough in virtual time, and a program that ignores the end of its input.
    place.write("again.yaml", again(&place).replace("steps: 60", "steps: 60000") + "  deadline: 1h\n");
    let code = fs::read_to_string(place.path("again.py")).unwrap();
    // Each program starts another process, which leaves its process group.
    let daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\n";
    place.write("again.py", format!("{daemon}{code}time.sleep(1000)\n"));
    fs::create_dir(place.path("tmp")).unwrap();
    for (name, backend) in [("KILL", "local"), ("INT", "local"), ("KILL", "simulate"), ("INT", "simulate")] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_faultline"));
        let out = format!("{name}-{backend}");
        run.args(["run", "again.yaml", "--backend", backend, "--out", &out]).current_dir(place.dir());
        run.env("TMPDIR", place.path("tmp"));
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let programs = || place.processes().iter().filter(|it| it.contains("again.py")).count();
        wait_until(|| programs() >= 4, || format!("not all programs run: {:?}", place.processes()));
        signal(&run, name);
        run.wait().unwrap();
        place.wait_until_empty();
        let left = || fs::read_dir(place.path("tmp")).unwrap().count();
        wait_until(|| left() == 0, || format!("{out}: temporary files remain"));
    }
}

#[test]
fn a_command_that_cannot_be_started_is_an_error() {
    let place = TestDirectory::new();
    place.write("unknown.yaml", again(&place).replace("python3", "pyhton3"));
    for backend in ["simulate", "local"] {
        let run = place.faultline(["run", "unknown.yaml", "--backend", backend]).assert().code(2);
        run.stderr(says("again.py cannot be started: `pyhton3` was not found").and(says("is it in PATH?")));
    }
    place.write("future.yaml", bad(&place, "future"));
    let run = place.faultline(["run", "future.yaml", "--backend", "simulate"]).assert().code(2);
    run.stderr(says("bad.py speaks version 2 of the contract; this Faultline speaks 1"));
    // Validation starts nothing.
    place.faultline(["validate", "unknown.yaml"]).assert().code(0);
}

#[test]
fn a_pipe_is_no_file_of_a_program() {
    let place = TestDirectory::new();
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    place.write("piped.yaml", again(&place).replace("file: again.py", "file: pipe"));
    place.faultline(["validate", "piped.yaml"]).assert().code(2).stderr(says("it is not a regular file"));
}

#[test]
fn a_broken_contract_fails_and_silence_does_not() {
    let place = TestDirectory::new();
    let of_event = "broke the contract at event ";
    for (how, backends, code, says) in [
        (
            "prints",
            &["simulate", "local"][..],
            1,
            "(`received`): its reply is not a JSON object: `DEBUG got it`",
        ),
        ("raises", &["simulate", "local"], 1, "its log ends with: Traceback (most recent call last)"),
        ("held", &["simulate"], 1, "action 2 (`deliver`): the application is held since event "),
        ("forks", &["local"], 1, of_event),
        ("hangs", &["simulate", "local"], 3, "(`received`) for 1 s"),
        ("killed", &["simulate"], 3, "was ended by SIGKILL"),
    ] {
        for backend in backends {
            let out = format!("{how}-{backend}");
            let (json, status) = place.run("bad.yaml", backend, &bad(&place, how), &out);
            assert_eq!(
                (status, &json["run"]["outcome"]),
                (Some(code), &Value::from("broken")),
                "{how} {backend}: {json}"
            );
            let reasons = json["reasons"].to_string();
            assert!(reasons.contains(&says.replace('"', "\\\"")), "{how}: {reasons}");
        }
    }
    place.wait_until_empty();
}

#[test]
fn a_program_that_depends_on_more_than_its_events_is_found() {
    for hidden in ["__import__('random').randrange(1000)", "id(event) % 2**31", "LIVES"] {
        let place = TestDirectory::new();
        again(&place);
        let code = fs::read_to_string(place.path("again.py")).unwrap();
        let piggybacked = "position=[self.incarnation, 0]";
        assert!(code.contains(piggybacked));
        let code = code.replace(piggybacked, &format!("position=[self.incarnation, {hidden}]"));
        let counted = "            process = StartAgain(event)";
        let code = code.replace(counted, &format!("            LIVES += 1 + event[\"me\"]\n{counted}"));
        place.write("again.py", code.replace("for line in sys.stdin:", "LIVES = 0\nfor line in sys.stdin:"));
        let fuzz = [
            "fuzz",
            "--program",
            "again.yaml",
            "--runs",
            "20",
            "--twice",
            "100",
            "--no-shrink",
            "--out",
            "found",
        ];
        let found = place.faultline(fuzz).assert().code(1);
        let reply = says("two runs with this seed differ: ")
            .and(says("(again.py, life 1) replied to event "))
            .and(contains("(`sent`) with").and(contains("when the schedule was repeated")));
        found.stdout(reply);
    }
}

/// Writes a protocol that claims to request checkpoints and takes only the first, and a federation that runs it.
fn claims_only(place: &TestDirectory) -> String {
    place.write("claims-only.py", include_str!("cases/claims-only.py"));
    include_str!("cases/claims-only.yaml").to_owned()
}

#[test]
fn a_checkpoint_that_is_only_claimed_excuses_no_lost_work() {
    let place = TestDirectory::new();
    let text = claims_only(&place);
    let (json, code) = place.run("claims-only.yaml", "simulate", &text, "run");
    assert_eq!(code, Some(1), "{json}");
    let reasons = json["reasons"].to_string();
    assert!(
        reasons.contains("the federation lost the work of") && reasons.contains("every 300 ms"),
        "{reasons}"
    );
}

#[test]
fn a_search_keeps_the_parameters_of_a_program_and_says_what_it_exercised() {
    let place = TestDirectory::new();
    // The program breaks its contract unless it may take checkpoints.
    let needs = "        self.every = duration(start[\"parameters\"][\"checkpointEvery\"])";
    let text = claims_only(&place);
    let code = include_str!("cases/claims-only.py");
    let from = "        self.every = duration(start[\"parameters\"].get(\"checkpointEvery\", \"500ms\"))";
    assert!(code.contains(from));
    place.write("claims-only.py", code.replace(from, needs));
    place.write("claims-only.yaml", text);
    let search = ["fuzz", "--program", "claims-only.yaml", "--runs", "4", "--no-shrink"];
    let found = place.faultline(search).output().unwrap();
    let said = String::from_utf8_lossy(&found.stdout);
    assert!(said.contains("exercised: ") && !said.contains("KeyError"), "{said}");
}

#[test]
fn a_search_finds_and_shrinks_a_defect_of_a_program() {
    let place = TestDirectory::new();
    again(&place);
    let clean = ["fuzz", "--program", "again.yaml", "--runs", "3", "-q"];
    place.faultline(clean).assert().code(0);
    let defect = [
        "fuzz",
        "--program",
        "again.yaml",
        "--set",
        "acceptsStale=true",
        "--out",
        "found",
        "--format",
        "json",
    ];
    let found = place.faultline(defect).assert().code(1);
    let json: Value = serde_json::from_slice(&found.get_output().stdout).unwrap();
    assert!(json["finding"]["property"].is_string(), "{json}");
    // The shrunk run ends soon after the violation.
    assert!(json["finding"]["facts"].as_u64().unwrap() < 100, "{}", json["finding"]["transcript"]);
    let shrunk = place.path("found/federation.yaml");
    assert!(fs::read_to_string(&shrunk).unwrap().contains("acceptsStale: true"));
    let run = ["run", "found/federation.yaml", "--backend", "simulate"];
    place.faultline(run).assert().code(1);
    place.write("small.yaml", small(""));
    let wrong = place.faultline(["fuzz", "--program", "small.yaml"]).assert().code(2);
    wrong.stderr(says("the protocol in small.yaml is not a program"));
}

/// Writes an application that behaves as `mode` says, and returns a federation that runs it.
fn with_mode(place: &TestDirectory, mode: &str) -> String {
    place.write("modes.py", include_str!("cases/modes.py"));
    include_str!("cases/modes.yaml").replace("MODE", mode)
}

#[test]
fn what_a_program_writes_to_standard_error_is_recorded_and_shown() {
    let place = TestDirectory::new();
    let crash = "  faults: [{ at: 80ms, crash: { cluster: b, node: 1 } }]\n";
    place.write("modes.yaml", with_mode(&place, "right") + crash);
    let run = |more: &[&str]| {
        let arguments = ["run", "modes.yaml", "--backend", "simulate", "--out"].iter().chain(more);
        let said = place.faultline(arguments.copied()).assert().code(0);
        String::from_utf8(said.get_output().stderr.clone()).unwrap()
    };
    let shown = run(&["shown", "-v"]);
    assert!(shown.contains("b-1 (modes.py, life 1): round 1 at rank 3"), "{shown}");
    assert!(shown.contains("b-1 (modes.py, life 2): round 1 at rank 3"), "{shown}");
    let quiet = run(&["quiet"]);
    assert!(!quiet.contains("at rank"), "{quiet}");
    for dir in ["shown", "quiet"] {
        let log = |life: u32| fs::read_to_string(place.path(&format!("{dir}/logs/b-1-{life}.log"))).unwrap();
        assert!(log(1).contains(" modes.py: round 1 at rank 3\n"), "{}", log(1));
        assert!(log(2).contains(" modes.py: round 3 at rank 3\n"), "{}", log(2));
        assert!(!log(2).contains("rank 0"), "{}", log(2));
    }
    // The record is judged as before.
    place.faultline(["check", "shown"]).assert().code(0);
}

#[test]
fn a_deadlock_of_the_application_is_named_and_not_held_against_the_protocol() {
    let place = TestDirectory::new();
    let (json, code) = place.run("modes.yaml", "simulate", &with_mode(&place, "deadlock"), "run");
    assert_eq!(code, Some(3), "{json}");
    let reasons = json["reasons"].to_string();
    assert!(reasons.contains("before all ranks had finished: all 4 ranks wait for a message"), "{reasons}");
    place.faultline(["check", "run"]).assert().code(3).stdout(says("all 4 ranks wait for a message"));
}

#[test]
fn a_program_that_is_not_deterministic_is_not_held_against_the_protocol() {
    let place = TestDirectory::new();
    for backend in ["simulate", "local"] {
        let (json, code) = place.run("modes.yaml", backend, &with_mode(&place, "random"), backend);
        assert_eq!(code, Some(3), "{json}");
        let reasons = json["reasons"].to_string();
        assert!(reasons.contains("the result differs between two runs of the program"), "{reasons}");
        let again = place.faultline(["check", backend]).assert().code(3);
        again.stdout(says("is the program deterministic?"));
    }
}
