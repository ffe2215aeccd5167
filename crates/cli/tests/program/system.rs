//! Tests of systems: commands that do not know Faultline, on real processes.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

use crate::common::{TestDirectory, signal, wait_until};
use crate::tc::supports_traffic_control;

/// Returns the file of a federation with a system of two clusters, `a` with two nodes and `b` with one.
fn system(fields: &str, faults: &str) -> String {
    format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: own }}
spec:
  clusters: [{{ name: a, nodes: 2 }}, {{ name: b, nodes: 1 }}]
  links: {{ within: {{ preset: none }}, between: {{ preset: none }} }}
  failures: {{ detectAfter: 5s }}
  application:
    system:
      {fields}
  faults: [{faults}]
"
    )
}

/// Returns a predicate for an error that contains a sentence, which may be wrapped.
fn says(sentence: &'static str) -> impl Predicate<str> {
    predicates::function::function(move |text: &str| {
        let words = text.split_whitespace().filter(|it| *it != "│");
        words.collect::<Vec<_>>().join(" ").contains(sentence)
    })
}

/// A command that leaves a file in each life, lists these files, and runs forever.
const LISTS: &str = r#"command: [sh, -c, 'touch "{{ data }}/life-{{ life }}"; echo $FAULTLINE_BOOT; ls "{{ data }}"; exec sleep 600']"#;

fn facts(place: &TestDirectory, kind: &str) -> Vec<Value> {
    let lines = place.faultline(["export", "run"]).output().unwrap().stdout;
    let lines = String::from_utf8(lines).unwrap();
    let facts = lines.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    facts.filter(|it| it["fact"] == kind).collect()
}

fn log(place: &TestDirectory, name: &str) -> String {
    fs::read_to_string(place.path("run/logs").join(name)).unwrap()
}

#[test]
fn data_outlive_a_crash_but_not_the_loss_of_storage() {
    let place = TestDirectory::new();
    let faults = "{ at: 500ms, crash: { cluster: a, node: 1 } }, \
                  { at: 1s, loseCluster: { cluster: b, storage: lost } }, \
                  { at: 2500ms, crash: { cluster: b, node: 0 } }";
    let text = system(&format!("{LISTS}\n      ends: {{ after: 4s }}"), faults);
    let (json, _) = place.run("own.yaml", "local", &text, "run");
    assert_ne!(json["verdict"], "fail", "{json}");
    assert_eq!(json["run"]["protocol"], "system");
    let properties = json["properties"].as_array().unwrap();
    let result = |name: &str| &properties.iter().find(|it| it["property"] == name).unwrap()["found"];
    for name in ["recordComplete", "completed", "faultsTookEffect", "oneLife", "noUnplannedFailure"] {
        assert_eq!(result(name), "holds", "{name}");
    }
    assert_eq!(log(&place, "a-0-1.log"), "fresh\nlife-1\n");
    assert_eq!(log(&place, "a-1-2.log"), "restarted\nlife-1\nlife-2\n");
    assert_eq!(log(&place, "b-0-2.log"), "replaced\nlife-2\n");
    assert_eq!(log(&place, "b-0-3.log"), "restarted\nlife-2\nlife-3\n");
    assert_eq!(facts(&place, "ready").len(), 6);
    assert_eq!(facts(&place, "exited"), [] as [Value; 0], "a crash is not an exit");
    assert_eq!(place.processes(), [] as [String; 0]);
    for command in ["check", "explain", "report"] {
        let output = place.faultline([command, "run"]).assert().code(predicate::ne(2));
        output.stdout(contains("Time of the processes").not());
    }
}

/// As PostgreSQL does, the server refuses to start while the process whose number its data contain still runs.
#[test]
fn a_command_whose_number_is_in_its_data_starts_again_after_a_crash() {
    let place = TestDirectory::new();
    let script = "import os, subprocess, sys, time\n\
                  path = sys.argv[1] + '/pid'\n\
                  for number in open(path).read().split() if os.path.exists(path) else []:\n\
                  \x20   try: os.kill(int(number), 0)\n\
                  \x20   except ProcessLookupError: continue\n\
                  \x20   sys.exit('process ' + number + ' still runs')\n\
                  child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n\
                  open(path, 'w').write(f'{os.getpid()} {child.pid}')\n\
                  time.sleep(600)\n";
    place.write("server.py", script);
    let fields = "command: [python3, server.py, '{{ data }}']\n      \
                  files: { server.py: { file: server.py } }\n      \
                  probes: { wrote: { every: 100ms, exec: [test, -e, '{{ data }}/pid'] } }\n      \
                  ends: { after: 4s }";
    let faults = "{ at: 1s, crash: { cluster: a, node: 1 } }, { at: 2s, loseCluster: { cluster: a } }";
    let text = system(fields, faults) + "  expect: [{ probe: wrote, longestOutage: 3s }]\n";
    let (json, _) = place.run("own.yaml", "local", &text, "run");
    assert_eq!(facts(&place, "exited"), [] as [Value; 0], "{json}");
    assert_eq!(facts(&place, "lifeStarted").len(), 6, "{json}");
}

#[test]
fn the_run_begins_when_all_nodes_are_ready_and_the_system_is_set_up() {
    let place = TestDirectory::new();
    let fields = r#"command: [sh, -c, 'sleep 1; touch up; exec sleep 600']
      ready: { exec: [test, -e, up] }
      setup: { by: b-0, exec: [sh, -c, 'echo "$FAULTLINE_NODES" > "{{ data }}/set-up"'] }
      probes: { set: { by: b, every: 100ms, exec: [test, -e, '{{ data }}/set-up'] } }
      ends: { after: 1s }"#;
    place.run("own.yaml", "local", &system(fields, ""), "run");
    let ready = facts(&place, "ready");
    assert_eq!(ready.len(), 3);
    assert!(ready.iter().all(|it| it["time_ns"].as_i64() < Some(0)), "{ready:?}");
    assert!(facts(&place, "probeSucceeded").len() > 3);
    assert_eq!(facts(&place, "probeFailed"), [] as [Value; 0]);
    let nodes = fs::read_to_string(place.path("run/nodes/b-0/data/set-up")).unwrap();
    let names: Vec<_> = nodes.trim().split(',').filter_map(|it| it.split_once('=')).collect();
    assert_eq!(names.iter().map(|it| it.0).collect::<Vec<_>>(), ["a-0", "a-1", "b-0"]);
    assert!(names.iter().all(|it| it.1.starts_with("127.")), "{nodes}");
}

#[test]
fn a_paused_command_stands_still_and_is_not_declared_failed() {
    let place = TestDirectory::new();
    let fields = "command: [sh, -c, 'while :; do echo tick; sleep 0.1; done']
      watch: { tick: ^tick }
      ends: { after: 4s }";
    let text = system(fields, "{ at: 1s, pause: { cluster: b, node: 0, for: 2s } }");
    let text = text.replace("detectAfter: 5s", "detectAfter: 1s");
    place.run("own.yaml", "local", &text, "run");
    assert_eq!(facts(&place, "failed"), [] as [Value; 0]);
    let ticks = facts(&place, "logged");
    let times = ticks.iter().filter(|it| it["process"] == "b-0").map(|it| it["time_ns"].as_i64().unwrap());
    let times: Vec<_> = times.collect();
    let longest = times.windows(2).map(|it| it[1] - it[0]).max().unwrap();
    assert!((1_800_000_000..3_500_000_000).contains(&longest), "{longest}");
}

#[test]
fn a_slow_command_runs_only_a_share_of_the_time() {
    let place = TestDirectory::new();
    // The command says once per tenth of a second how much processor time it has used.
    let fields = r#"command:
        - python3
        - -c
        - |
          import time
          said = 0
          while True:
              if time.monotonic() - said > 0.1:
                  said = time.monotonic()
                  print('used', time.process_time(), flush=True)
      watch: { used: '^used (?<seconds>[0-9.]+)' }
      in: { a: { command: [sleep, '600'] } }
      ends: { after: 6s }"#;
    let faults = "{ at: 1s, slow: { cluster: b, node: 0, by: 4, for: 3s } }, \
                  { at: 2s, pause: { cluster: b, node: 0, for: 500ms } }, \
                  { at: 4500ms, slow: { cluster: b, node: 0, by: 10, for: 500ms } }, \
                  { at: 4600ms, crash: { cluster: b, node: 0 } }";
    let (json, _) = place.run("own.yaml", "local", &system(fields, faults), "run");
    assert_ne!(json["verdict"], "fail", "{json}");
    let logged = facts(&place, "logged");
    let seconds = |it: &Value| it["time_ns"].as_i64().unwrap() as f64 / 1e9;
    let within = |from: f64, to: f64| {
        let said = logged.iter().filter(|it| (from..to).contains(&seconds(it)));
        said.map(|it| (seconds(it), it["groups"]["seconds"].as_str().unwrap().parse::<f64>().unwrap()))
            .collect::<Vec<_>>()
    };
    let slow = within(1.1, 4.0);
    let ((begun, first), (ended, last)) = (slow[0], slow[slow.len() - 1]);
    let used = (last - first) / (ended - begun);
    let fault = &json["faults"][0];
    let (ran, processor) = (fault["ranShare"].as_f64().unwrap(), fault["processorShare"].as_f64().unwrap());
    // On a busy machine, slices are less exact.
    assert!(used < 0.45 && (processor - used).abs() < 0.1, "{used} {fault}");
    assert!((0.05..0.5).contains(&ran) && processor < ran + 0.1, "{fault}");
    assert!(within(2.2, 2.5).is_empty(), "a pause stops the slices, too: {:?}", within(2.0, 3.0));
    for fault in json["faults"].as_array().unwrap() {
        assert_eq!(fault["state"], "effective", "{fault}");
    }
    place.faultline(["explain", "run"]).assert().success().stdout(says("of a core"));
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn faults_follow_what_nodes_report() {
    let place = TestDirectory::new();
    // Only the first life of a-1 leads; b-0 says so 1.5 s later, in each life.
    let fields = r#"command: [sh, -c, '[ $FAULTLINE_NAME$FAULTLINE_LIFE != a-11 ] || echo I lead; exec sleep 600']
      watch: { leader: ^I lead }
      probes: { up: { by: b, every: 100ms, exec: ['true'] } }
      ends: { after: 6s }
      in: { b: { command: [sh, -c, 'sleep 1.5; echo I lead; exec sleep 600'] } }"#;
    let faults = "{ at: 500ms, crash: { reported: leader } }, \
                  { when: { fact: logged, of: leader, cluster: b }, loseCluster: { reported: leader } }, \
                  { when: { fact: probeSucceeded, of: up, occurrence: 30 }, pause: { cluster: a, node: 0, for: 100ms } }";
    let (json, _) = place.run("own.yaml", "local", &system(fields, faults), "run");
    assert_ne!(json["verdict"], "fail", "{json}");
    let what = |no: usize| json["faults"][no]["what"].as_str().unwrap().to_owned();
    assert_eq!(what(0), "a-1 is killed (last to log leader)");
    assert_eq!(what(1), "all of b is killed at once (last to log leader)");
    for fault in json["faults"].as_array().unwrap() {
        assert_eq!(fault["state"], "effective", "{fault}");
    }
    let failed: Vec<_> = facts(&place, "failed").iter().map(|it| it["about_process"].clone()).collect();
    assert_eq!(failed, ["a-1", "b-0"]);
    let events = place.faultline(["export", "run", "--format", "events"]).output().unwrap().stdout;
    place.write("events.jsonl", String::from_utf8(events).unwrap());
    let judged = place.faultline(["check", "--events", "events.jsonl"]).assert().code(predicate::ne(2));
    judged.stdout(contains("struck a node").not().and(contains("not in the plan").not()));
}

/// Returns the file of a system whose command says how it is told to end.
const ENDS: &str = r#"command: [sh, -c, 'trap "echo closing; sleep 0.2; exit 3" TERM; touch up; while :; do sleep 0.05; done']
      ready: { exec: [test, -e, up] }
      in: { b: { command: [sh, -c, '[ $FAULTLINE_LIFE -gt 1 ] || trap "" TERM; touch up; while :; do sleep 0.05; done'] } }
"#;

#[test]
fn a_command_that_is_stopped_ends_in_time_or_is_killed() {
    let place = TestDirectory::new();
    let fields = format!("{ENDS}      ends: {{ after: 3s }}");
    let faults = "{ at: 500ms, stop: { cluster: a, node: 1, storage: lost } }, \
                  { at: 500ms, stop: { cluster: b, within: 700ms, repair: 1s } }";
    let (json, _) = place.run("own.yaml", "local", &system(&fields, faults), "run");
    assert_ne!(json["verdict"], "fail", "{json}");
    assert_eq!(facts(&place, "exited"), [] as [Value; 0], "{json}");
    let stopped = facts(&place, "stopped");
    let of = |name: &str| stopped.iter().find(|it| it["process"] == name).unwrap();
    let (ended, killed) = (of("a-1"), of("b-0"));
    assert_eq!((&ended["status"], &ended["killed"]), (&3.into(), &false.into()), "{ended}");
    assert_eq!(ended["said"], "closing");
    assert!((200_000_000..700_000_000).contains(&ended["latency_ns"].as_u64().unwrap()), "{ended}");
    assert_eq!((&killed["ending"], &killed["status"]), (&"signal".into(), &9.into()), "{killed}");
    assert!(killed["killed"] == true && killed["latency_ns"].as_u64().unwrap() >= 700_000_000, "{killed}");
    let failed = facts(&place, "failed");
    assert!(failed.len() == 2 && failed.iter().all(|it| it["fault"].is_number()), "{failed:?}");
    assert_eq!(failed[0]["storage"], "lost", "{failed:?}");
    let started = facts(&place, "lifeStarted");
    let again = started.iter().find(|it| it["about_process"] == "b-0" && it["about_life"] == 2).unwrap();
    let after = again["time_ns"].as_i64().unwrap() - killed["time_ns"].as_i64().unwrap();
    assert!(after >= 1_000_000_000, "the repair begins once the command has ended: {after}");
    for (no, how) in [(0, "a-1 ended"), (1, "b-0 did not end, and was killed")] {
        let fault = &json["faults"][no];
        assert_eq!(fault["state"], "effective", "{fault}");
        assert!(fault["stopped"][0].as_str().unwrap().starts_with(how), "{fault}");
    }
    let explained = place.faultline(["explain", "run"]).assert().success();
    explained.stdout(
        says("the command of a-1 ended 2").and(says("after SIGTERM: exit status 3; its last line: closing")),
    );
    place.faultline(["check", "run"]).assert().code(predicate::ne(2)).stdout(contains("contradict").not());
}

#[test]
fn the_nodes_of_a_cluster_restart_one_after_the_other_with_another_command() {
    let place = TestDirectory::new();
    let fields = r#"command: [sh, -c, 'trap "exit 0" TERM; sleep 0.3; echo $0 {{ name }}; touch up; while :; do sleep 0.05; done', old]
      ready: { exec: [test, -e, up] }
      ends: { after: 4s }"#;
    let command = r#"[sh, -c, 'sleep 0.3; echo $0 {{ name }}; touch up; exec sleep 600', new]"#;
    let faults = format!(
        "{{ at: 500ms, restart: {{ cluster: a, inTurn: true, command: {command} }} }}, \
         {{ at: 1900ms, restart: {{ cluster: b }} }}"
    );
    let (json, _) = place.run("own.yaml", "local", &system(fields, &faults), "run");
    assert_ne!(json["verdict"], "fail", "{json}");
    let first_line = |name| log(&place, name).lines().next().unwrap().to_owned();
    assert_eq!(first_line("a-0-2.log"), "new a-0");
    assert_eq!(first_line("a-1-2.log"), "new a-1");
    assert_eq!(first_line("b-0-2.log"), "old b-0", "the command of another cluster stays");
    let time = |it: &Value| it["time_ns"].as_i64().unwrap();
    let ready = facts(&place, "ready");
    let again = ready.iter().find(|it| it["process"] == "a-0" && it["life"] == 2).unwrap();
    let stopped = facts(&place, "stopped");
    let second = stopped.iter().find(|it| it["process"] == "a-1").unwrap();
    assert!(time(second) > time(again), "{stopped:?} {ready:?}");
    assert_eq!(json["faults"][0]["stopped"].as_array().unwrap().len(), 2, "{json}");
    place.faultline(["check", "run"]).assert().code(predicate::ne(2)).stdout(contains("contradict").not());
    for (fault, message) in [
        ("restart: { cluster: c }", "there is no cluster `c`"),
        ("restart: { cluster: a, command: ['{{ nme }}'] }", "undefined value"),
        ("restart: { cluster: a, command: [] }", "the command is empty"),
        ("stop: { cluster: a, node: 2 }", "cluster `a` has no node 2"),
        ("stop: { cluster: a, within: 0s }", "a command needs time to end"),
        ("stop: { reported: led }", "there is no watch `led`"),
        ("stop: { cluster: a, repair: 0s }", "the repair must not take 0s"),
    ] {
        place.write("bad.yaml", system(fields, &format!("{{ at: 1s, {fault} }}")));
        place.faultline(["validate", "bad.yaml"]).assert().code(2).stderr(says(message));
    }
    place.write("absent.yaml", system(fields, "{ at: 1s, restart: { cluster: a, command: [absent] } }"));
    let refused = place.faultline(["run", "absent.yaml", "--out", "absent"]).assert().code(2);
    refused.stderr(says("`absent` does not exist on this machine"));
}

#[test]
fn the_run_ends_with_the_commands_of_a_cluster() {
    let place = TestDirectory::new();
    let fields = "command: [sleep, '600']
      ends: { exit: b }
      in: { b: { command: [sh, -c, 'sleep 1; exit 0'] } }";
    let (json, _) = place.run("own.yaml", "local", &system(fields, ""), "run");
    assert_eq!(json["run"]["outcome"], "completed", "{json}");
    let exits = facts(&place, "exited");
    assert_eq!((exits.len(), &exits[0]["process"], &exits[0]["status"]), (1, &"b-0".into(), &0.into()));
}

#[test]
fn daemons_do_not_outlive_their_life_or_the_run() {
    // Each life starts a daemon that ignores signals, and the command ignores the request to end.
    do_not_outlive("trap '' TERM; setsid sh -c 'trap \"\" TERM HUP INT; sleep 7001' & sleep 7002");
}

#[test]
fn programs_with_another_environment_do_not_outlive_their_life_or_the_run() {
    do_not_outlive("exec env -i sh -c 'sleep 7001 & exec sleep 7002'");
}

/// Runs a command that starts the process `sleep 7001` on two nodes, of which one crashes. Its processes must end with
/// their life and with the run, even if `faultline` is killed.
fn do_not_outlive(command: &str) {
    let place = TestDirectory::new();
    let text = system(&format!("command: [sh, -c, {command:?}]\n      ends: {{ after: 3s }}"), "");
    let text = text.replace("nodes: 2", "nodes: 1");
    let text = text.replace("faults: []", "faults: [{ at: 1s, crash: { cluster: b, node: 0 } }]");
    place.write("own.yaml", &text);
    let daemons = || place.processes().iter().filter(|it| it.starts_with("sleep 7001")).count();
    let begin = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_faultline"));
        command.args(["run", "own.yaml", "--out", "run"]).current_dir(place.dir());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut run = begin();
    wait_until(|| daemons() == 2, || format!("the daemons start: {:?}", place.processes()));
    let has_crashed = || place.path("run/logs/b-0-2.log").exists();
    wait_until(has_crashed, || "the second life starts".to_owned());
    wait_until(|| daemons() == 2, || format!("one life, one daemon: {:?}", place.processes()));
    run.wait().unwrap();
    assert_eq!(place.processes(), [] as [String; 0]);

    fs::remove_dir_all(place.path("run")).unwrap();
    let mut run = begin();
    wait_until(|| daemons() == 2, || format!("the daemons start: {:?}", place.processes()));
    signal(&run, "KILL");
    run.wait().unwrap();
    place.wait_until_empty();
}

/// A system whose probe fails from two seconds after the start.
fn probed(expect: &str) -> String {
    let fields = "command: [sleep, '600']
      probes: { up: { by: b, every: 100ms, timeout: 200ms, exec: [test, '!', -e, down] } }
      ends: { after: 4s }
      in: { b: { command: [sh, -c, 'sleep 2; touch down; exec sleep 600'] } }";
    format!("{}  expect: [{expect}]\n", system(fields, "{ at: 2500ms, crash: { cluster: a, node: 0 } }"))
}

#[test]
fn what_probes_find_is_compared_with_what_the_file_expects() {
    let place = TestDirectory::new();
    let expect = "{ probe: up, availability: 0.99 }, { probe: up, longestOutage: 100ms }, \
                  { probe: up, recoveredWithin: 400ms }, { exits: a, atMost: 0 }";
    let (json, code) = place.run("own.yaml", "local", &probed(expect), "run");
    let met = |number: usize| json["expectations"][number]["met"].as_str();
    // If the machine was busy all the time, it may be the reason for the outage. The probe was failing before the fault.
    assert!(matches!(met(0), Some("no" | "unknown")) && matches!(met(1), Some("no" | "unknown")), "{json}");
    assert_eq!([2, 3].map(met), ["unknown", "yes"].map(Some), "{json}");
    assert_eq!(code, Some(if met(0) == Some("no") || met(1) == Some("no") { 1 } else { 3 }), "{json}");
    let samples = facts(&place, "probeSucceeded").len() + facts(&place, "probeFailed").len();
    let probe = &json["probes"][0];
    assert_eq!((&probe["by"], &probe["samples"]), (&"b-0".into(), &samples.into()));
    // The probe fails from about two seconds after the start to the end, after four seconds.
    let share = json["expectations"][0]["figure"].as_f64().unwrap();
    assert!((0.2..0.7).contains(&share), "{share}");
    assert_eq!(probe["availability"], json["expectations"][0]["figure"], "the summary and the verdict agree");
    assert!(probe["lastFailed"]["reason"].as_str().unwrap().starts_with("exit status 1"), "{probe}");
    let recovery = &json["probeRecoveries"][0];
    assert_eq!((&recovery["fault"], &recovery["recoveredSeconds"]), (&0.into(), &Value::Null));
    let said = says("probe up failed for").and(says("because it was failing at b-0 before"));
    place.faultline(["explain", "run"]).assert().code(0).stdout(said);
    place
        .faultline(["check", "run"])
        .assert()
        .code(code.unwrap())
        .stdout(says("expected availability of up of at least"));
    place.faultline(["report", "run"]).assert().code(predicate::ne(2));
    let page = fs::read_to_string(place.path("run/report.html")).unwrap();
    assert!(page.contains("<h2>Probes</h2>") && page.contains("var(--bad)"));
    assert!(page.contains("availability of up") && page.contains("longest outage"));
    for other in ["messages re-sent", " forced</span>", "work lost"] {
        assert!(!page.contains(other), "{other}");
    }
}

#[test]
fn a_probe_that_failed_before_the_fault_and_a_check_that_cannot_tell_are_unknown() {
    let place = TestDirectory::new();
    let fields = r#"command: [sleep, '600']
      probes: { p: { by: b, every: 100ms, exec: [sh, -c, 'test {{ sample }} -lt 4 || test {{ sample }} -gt 24'] } }
      ends: { after: 4s }"#;
    let text = system(fields, "{ at: 1500ms, crash: { cluster: a, node: 0 } }");
    let expect = "{ probe: p, recoveredWithin: 1500ms }, \
                  { check: cannot tell, by: b-0, exec: [sh, -c, 'echo cannot connect; exit 75'] }";
    let (json, code) = place.run("own.yaml", "local", &format!("{text}  expect: [{expect}]\n"), "run");
    assert_eq!((&json["verdict"], code), (&"unknown".into(), Some(3)), "{json}");
    let reasons: Vec<&str> = json["reasons"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(reasons[0].contains("exit status 75 (cannot tell)"), "{reasons:?}");
    let reason = "probe p of b-0 was failing when fault 0 struck, so its recovery is unknown";
    assert!(reasons.iter().any(|it| it.contains(reason)), "{reasons:?}");
}

#[test]
fn samples_that_were_due_and_not_taken_do_not_make_a_system_look_available() {
    let place = TestDirectory::new();
    // While the server is paused, each sample takes its timeout, in which many others were due.
    let fields = r#"command:
        - python3
        - -uc
        - |
          import socketserver as it, sys
          class Handler(it.BaseRequestHandler):
              def handle(self):
                  self.request.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
          it.TCPServer.allow_reuse_address = True
          it.TCPServer((sys.argv[1], 8474), Handler).serve_forever()
        - '{{ bind }}'
      ready: { tcp: '{{ bind }}:8474' }
      probes: { page: { by: b, every: 50ms, timeout: 2s, http: 'http://{{ nodes[0].host }}:8474/' } }
      ends: { after: 8s }
      in: { b: { command: [sleep, '600'], ready: {} } }"#;
    let text = system(fields, "{ at: 2s, pause: { cluster: a, node: 0, for: 4s } }");
    let text = text.replace("detectAfter: 5s", "detectAfter: 60s");
    let expect = "{ probe: page, availability: 0.9 }";
    let (json, code) = place.run("own.yaml", "local", &format!("{text}  expect: [{expect}]\n"), "run");
    let probe = &json["probes"][0];
    let number = |name: &str| probe[name].as_f64().unwrap();
    assert!(number("succeeded") / number("samples") > 0.8, "{probe}");
    // The second sample succeeds once the pause ends, just before its timeout.
    assert!((1.5..5.0).contains(&number("downSeconds")), "{probe}");
    // On a busy machine, the outage may be the machine's fault, or the probe may not have been observed.
    let met = json["expectations"][0]["met"].as_str().unwrap();
    assert!(["no", "unknown"].contains(&met) && matches!(code, Some(1 | 3)), "{json}");
    assert!(json["pressure"]["isAvailable"].is_boolean(), "{json}");
}

#[test]
fn a_planned_fault_that_does_not_occur_does_not_pass_and_one_that_nothing_notices_is_named() {
    let place = TestDirectory::new();
    let fields = "command: [sleep, '600']
      watch: { leader: ^I lead }
      probes: { up: { by: b, every: 200ms, exec: ['true'] } }
      ends: { after: 3s }";
    let faults = "{ at: 1s, crash: { cluster: a, node: 1 } }, { at: 2s, crash: { reported: leader } }, \
                  { when: { fact: logged, of: leader }, pause: { cluster: a, node: 0, for: 100ms } }";
    let text = system(fields, faults);
    let expect = "{ probe: up, availability: 0.1 }, { faults: { atLeast: 1 } }";
    let (json, code) = place.run("own.yaml", "local", &format!("{text}  expect: [{expect}]\n"), "run");
    assert_eq!((&json["verdict"], code), (&"unknown".into(), Some(3)), "{json}");
    let reasons = json["reasons"].to_string();
    assert!(reasons.contains("fault 1 had no effect: no node had logged a line for its watch"), "{reasons}");
    let remarks = json["notes"].to_string();
    assert!(remarks.contains("1 of 3 faults did not become due before the end of the run"), "{remarks}");
    assert_eq!(json["faults"][0]["state"], "effective", "{json}");
    assert_eq!(json["lives"][0]["ended"], "fault 0", "{json}");
    assert_eq!(json["expectations"][1]["met"], "yes", "{json}");
    for (faults, message) in [
        ("{ at: 3s, crash: { cluster: a, node: 1 } }", "the fault would occur after the end of the run (3s)"),
        ("{ at: 1h, crash: { cluster: a, node: 1 } }", "the fault would occur after the deadline of the run"),
        (
            r#"{ trace: { data: "start,end,node,cause\n90,95,gpu-1,GPU\n5000,5001,gpu-2,GPU\n", of: 3, begin: 100s }, crash: {} }"#,
            "no fault of the trace occurs before the end of the run",
        ),
    ] {
        place.write("bad.yaml", system(fields, faults));
        place.faultline(["validate", "bad.yaml"]).assert().code(2).stderr(says(message));
    }
}

#[test]
fn exits_of_commands_are_explained_with_their_last_line() {
    let place = TestDirectory::new();
    let fields = "command: [sh, -c, 'test {{ index }} = 0 || exec sleep 600; sleep 1; echo cannot open config; exit 3']\n      \
                  ends: { after: 3s }";
    let text = format!("{}  expect: [{{ exits: b, atMost: 9 }}]\n", system(fields, ""));
    let (json, code) = place.run("own.yaml", "local", &text, "run");
    assert_eq!(code, Some(1), "{json}");
    let reason = json["reasons"][0].as_str().unwrap();
    assert!(reason.contains("the command of a-0 ended by itself: exit status 3"), "{reason}");
    assert_eq!(json["lives"][0]["ended"], "exit status 3", "{json}");
    let said = says("ended by itself: exit status 3").and(contains("logs/a-0-1.log"));
    place.faultline(["explain", "run"]).assert().code(0).stdout(said);
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once() {
    let place = TestDirectory::new();
    let fields = r#"command: [redis-server, --bind, '{{ host_ip }}']
      probe: { up: { by: b, tcp: '{{ host }}:6399' } }"#;
    let faults = "{ at: 2s, loseRack: { reported: leader } }, { at: 5, kill: a-0 }";
    place.write(
        "typo.yaml",
        format!("{}  expect: [{{ probe: up, recoverWithin: 5s }}]\n", system(fields, faults)),
    );
    let rejected = place.faultline(["validate", "typo.yaml"]).assert().code(2);
    let all = [
        "unknown field `probe`",
        "unknown field `reported`",
        "unknown field `kill`",
        "unknown field `recoverWithin`",
        "did you mean `probes`?",
    ];
    let text = String::from_utf8(rejected.get_output().stderr.clone()).unwrap();
    for message in all {
        assert!(says(message).eval(&text), "{message}: {text}");
    }
    assert!(!says("there is no probe").eval(&text) && !says("has no assertion").eval(&text), "{text}");
}

/// A job of two ranks that log each step with a digest, and continue after a crash where they stopped. `WRONG` lets rank 1
/// compute something else from step 8, and restart after a crash.
fn training(wrong: bool, expect: &str) -> String {
    let fields = r#"command:
        - sh
        - -c
        - |
          step=$(cat "{{ data }}/step" 2> /dev/null || echo 0)
          while :; do
            step=$((step + 1))
            digest=$((step * 7))
            if [ "$WRONG" = {{ node }} ] && [ $step -ge 8 ]; then digest=$((step * 9)); fi
            echo some text; echo "committed {\"step\": $step, \"digest\": \"d$digest\"}"
            [ "$WRONG" = {{ node }} ] || echo $step > "{{ data }}/step"
            sleep 0.1
          done
      env: { WRONG: "WHICH" }
      watch:
        committed: '"step": (?<step>\d+), "digest": "(?<digest>\w+)"'
        panic: panicked|Traceback
      ends: { after: 6s }
      in: { b: { command: [sleep, '600'] } }"#;
    let fields = fields.replace("WHICH", if wrong { "1" } else { "none" });
    let text = system(&fields, "{ at: 2s, crash: { cluster: a, node: 1 } }");
    format!("{text}  expect: [{expect}]\n")
}

#[test]
fn what_programs_log_is_compared_with_what_the_file_expects() {
    let place = TestDirectory::new();
    let expect = "{ watch: committed, same: digest, for: step }, { watch: committed, increases: step }, \
                  { watch: panic, atMost: 0 }, { watch: committed, atLeast: 10 }, \
                  { watch: committed, recoveredWithin: 3s }, { watch: committed, longestGap: 2s }, \
                  { watch: committed, increases: step, per: life }, { watch: panic, atLeast: 1 }";
    let met = |json: &Value, number: usize| json["expectations"][number]["met"].as_str().unwrap().to_owned();
    let (json, code) = place.run("own.yaml", "local", &training(false, expect), "run");
    for number in [0, 1, 2, 3, 6] {
        assert_eq!(met(&json, number), "yes", "{json}");
    }
    // A busy machine may be slow.
    for number in [4, 5] {
        assert!(["yes", "unknown"].contains(&&*met(&json, number)), "{json}");
    }
    assert_eq!((&*met(&json, 7), code), ("no", Some(1)), "{json}");
    let lines = facts(&place, "logged");
    assert!(lines.len() > 20 && lines.iter().all(|it| it["groups"]["digest"].is_string()), "{lines:?}");

    let (json, code) = place.run("own.yaml", "local", &training(true, expect), "wrong");
    assert_eq!(
        ([0, 1, 6].map(|it| met(&json, it)), code),
        (["no", "no", "yes"].map(Into::into), Some(1)),
        "{json}"
    );
    let cited = &json["expectations"][0]["lines"];
    assert!(cited[0]["line"] != cited[1]["line"] && cited[0]["node"] != cited[1]["node"], "{cited}");
    let cited = &json["expectations"][1]["lines"];
    assert_eq!((&cited[0]["life"], &cited[1]["life"]), (&1.into(), &2.into()), "{cited}");
    // The cited position is that of the line in the log.
    for it in cited.as_array().unwrap() {
        let log = fs::read_to_string(place.path("wrong").join(it["log"].as_str().unwrap())).unwrap();
        let number = it["logLine"].as_u64().unwrap() as usize;
        assert_eq!(log.lines().nth(number - 1), it["line"].as_str(), "{it}");
    }
    let reasons = json["reasons"].to_string();
    assert!(reasons.contains("different digest for") && reasons.contains("logs/a-1-1.log:"), "{reasons}");
    assert!(reasons.contains("the last fault before: fault 0 at 2.0"), "{reasons}");
    let said = says("that do not increase it").and(says("in life 2 at"));
    place.faultline(["explain", "wrong"]).assert().code(0).stdout(said);
    let checked = place.faultline(["check", "wrong"]).assert().code(1);
    checked.stdout(says("expected the same digest in all lines of committed with the same step"));
}

#[test]
fn results_are_written_as_junit_xml() {
    let place = TestDirectory::new();
    let fields = r#"command: [sh, -c, 'printf "a <b> \"c\" & d\n"; exec sleep 600']
      watch: { x: a, y: never }
      ends: { after: 1s }"#;
    let expect = "{ watch: x, atMost: 0 }, { watch: x, atLeast: 1 }, { watch: y, longestGap: 9s }";
    place.write("own.yaml", system(fields, "") + &format!("  expect: [{expect}]\n"));
    let run = ["run", "own.yaml", "--out", "run", "--junit", "run.xml", "-q"];
    place.faultline(run).assert().code(1);
    place.faultline(["check", "run", "--junit", "check.xml", "-q"]).assert().code(1);
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(read("run.xml"), read("check.xml"));
    // Another program reads it.
    let script = "import sys, xml.etree.ElementTree as it\n\
                  for suite in it.parse(sys.argv[1]).getroot():\n\
                  \x20 print(suite.get('name'), len(suite) == int(suite.get('tests')))\n\
                  \x20 for case in suite: print(case.get('classname'), case.get('name'), *[(x.tag, x.text) for x in case])\n";
    place.write("read.py", script);
    let mut python = std::process::Command::new("python3");
    let output = python.args(["read.py", "run.xml"]).current_dir(place.dir()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("own (seed 0) True\n"), "{text}");
    let line =
        |name: &str| text.lines().find(|it| it.contains(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    let failed = line("own.expectation no line of x ");
    assert!(failed.contains("('failure', ") && failed.contains(r#"a <b> "c" & d"#), "{failed}");
    assert!(line("own.expectation at least 1 line of x").ends_with("of x"), "{text}");
    assert!(
        line("own.expectation no more than 9.00 s").contains("('error', 'no line matched the watch;"),
        "{text}"
    );
    assert!(line("own.property recordComplete: ").contains("own.property"), "{text}");
    // The expectations have cases of their own, and count once.
    assert!(!text.contains("own.property expected: "), "{text}");
    assert_eq!(text.matches("('failure', ").count(), 1, "{text}");
    assert!(!text.contains("noLoss"), "{text}");
    place
        .faultline(["run", "own.yaml", "--junit", "missing/run.xml"])
        .assert()
        .code(2)
        .stderr(says("--junit"));
}

#[test]
fn the_output_of_a_failed_check_keeps_its_lines() {
    let place = TestDirectory::new();
    let fields = "command: [sleep, '600']\n      ends: { after: 500ms }";
    let check = r#"{ check: three lines, by: a-0, exec: [sh, -c, 'printf "head\n  - one\n"; echo bad >&2; exit 1'] }"#;
    place.write("own.yaml", system(fields, "") + &format!("  expect: [{check}]\n"));
    let run = ["run", "own.yaml", "--out", "run", "--junit", "run.xml"];
    let lines = "a-0-1.log:\n      head\n        - one\n      bad\n";
    for arguments in [&run[..], &["check", "run"]] {
        let output = place.faultline(arguments.iter().copied()).assert().code(1).get_output().stdout.clone();
        let text = String::from_utf8(output).unwrap();
        assert!(text.contains(lines) && !text.contains("head / "), "{text}");
    }
    let xml = fs::read_to_string(place.path("run.xml")).unwrap();
    assert!(xml.contains("\nhead\n  - one\nbad</failure>"), "{xml}");
}

#[test]
fn lines_that_come_too_often_leave_expectations_open_unless_they_are_violated() {
    let place = TestDirectory::new();
    let fields = r#"command: [sh, -c, 'for i in $(seq 500); do echo step $i; done; sleep 2; echo step 7; exec sleep 600']
      watch: { step: '^step (?<step>\d+)' }
      ends: { after: 4s }
      in: { b: { command: [sleep, '600'] } }"#;
    let expect = "{ watch: step, same: step, for: step }, { watch: step, atMost: 9999 }, { watch: step, increases: step }";
    let (json, _) =
        place.run("own.yaml", "local", &(system(fields, "") + &format!("  expect: [{expect}]\n")), "run");
    let met = |number: usize| json["expectations"][number]["met"].as_str().unwrap();
    assert_eq!([met(0), met(1), met(2)], ["unknown", "unknown", "no"], "{json}");
    assert!(json["reasons"].to_string().contains("more than 100 per second"), "{json}");
    assert_eq!(facts(&place, "linesLeftOut").len(), 2);
}

#[test]
fn mistakes_in_expectations_of_what_programs_log_are_refused() {
    let place = TestDirectory::new();
    for (expect, message) in [
        ("{ watch: comitted, atMost: 0 }", "there is no watch `comitted`"),
        ("{ watch: committed, same: digst, for: step }", "the watch `committed` has no group `digst`"),
        ("{ watch: panic, increases: step }", "name a group of its regular expression: `(?<step>"),
        ("{ watch: committed, same: digest, for: stp }", "has no group `stp`"),
        ("{ watch: committed, atMost: 1, for: step }", "`for` belongs to `same`"),
        ("{ watch: committed, atMost: 1, per: run }", "`per` has no effect"),
        ("{ watch: committed, longestGap: 1s, per: life }", "write `per: node` or `per: run`"),
        ("{ watch: committed }", "the expectation has no assertion"),
        ("{ watch: committed, availability: 0.5 }", "this assertion is not about the lines of a watch"),
        ("{ longestGap: 1s }", "`longestGap` needs a watch"),
        ("{ atLeast: 1 }", "`atLeast` limits nothing here"),
        ("{ watch: committed, atLeast: 0 }", "write a larger number"),
        ("{ watch: committed, atLeast: 1, atMost: 3 }", "two assertions"),
    ] {
        place.write("bad.yaml", training(false, expect));
        place.faultline(["validate", "bad.yaml"]).assert().code(2).stderr(says(message));
    }
}

#[test]
fn checks_run_one_after_the_other_once_the_run_is_over() {
    let place = TestDirectory::new();
    let checks = "{ check: the data are there, by: a-0, exec: [sh, -c, 'echo {{ name }} >> \"{{ data }}/seen\"'] }, \
                  { check: one entry was written, by: a-0, exec: [sh, -c, 'test $(wc -l < \"{{ data }}/seen\") = 1'] }, \
                  { check: nothing is wrong, by: b-0, exec: [sh, -c, 'exit 4'] }, \
                  { check: an answer comes, by: b-0, exec: [sleep, '60'], within: 200ms }";
    let fields = "command: [sleep, '600']\n      ends: { after: 1s }";
    let text =
        format!("{}  expect: [{checks}]\n", system(fields, "{ at: 500ms, crash: { cluster: a, node: 0 } }"));
    let (json, code) = place.run("own.yaml", "local", &text, "run");
    let met = |number: usize| json["expectations"][number]["met"].as_str();
    assert_eq!([0, 1, 2, 3].map(met), ["yes", "yes", "no", "unknown"].map(Some), "{json}");
    assert_eq!((code, facts(&place, "checked").len()), (Some(1), 4));
    let reasons = json["reasons"].to_string();
    assert!(
        reasons.contains("success of check \\\"nothing is wrong\\\", but measured exit status 4"),
        "{reasons}"
    );
    assert!(reasons.contains("see logs/b-0-1.log"), "{reasons}");
    assert_eq!(place.processes(), [] as [String; 0]);
    for (check, message) in [
        ("{ check: x, by: a-0 }", "a check needs a node and a command"),
        ("{ check: x, by: a-7, exec: [y] }", "there is no node `a-7`"),
        ("{ check: x, by: a-0, exec: ['{{ nme }}'] }", "the template cannot be rendered"),
        ("{ check: x, by: a-0, exec: [] }", "the command is empty"),
        ("{ exits: a, atMost: 0, by: a-0 }", "`by` belongs to a check"),
    ] {
        place.write("bad.yaml", format!("{}  expect: [{check}]\n", system(fields, "")));
        place.faultline(["validate", "bad.yaml"]).assert().code(2).stderr(says(message));
    }
}

#[test]
fn a_node_that_is_not_ready_carries_out_no_check() {
    let place = TestDirectory::new();
    let fields = "command: [sleep, '600']
      ready: { exec: [test, '{{ life }}', '=', '1'], within: 500ms }
      ends: { after: 1s }";
    let text = system(fields, "{ at: 300ms, crash: { cluster: a, node: 0 } }");
    let text = format!("{text}  expect: [{{ check: all is well, by: a-0, exec: ['true'] }}]\n");
    let (json, code) = place.run("own.yaml", "local", &text, "run");
    assert_eq!((&json["expectations"][0]["met"], code), (&"unknown".into(), Some(3)), "{json}");
    let (reasons, notes) = (json["reasons"].to_string(), json["notes"].to_string());
    assert!(reasons.contains("its node was not ready"), "{reasons}");
    assert!(notes.contains("a-0 was not ready again when the run ended, in life 2"), "{notes}");
}

#[test]
fn a_command_that_has_stopped_itself_ends_with_the_run() {
    let place = TestDirectory::new();
    let fields =
        "command: [sh, -c, 'trap \"touch ended; exit 0\" TERM; kill -STOP $$']\n      ends: { after: 1s }";
    let text = format!("{}  expect: [{{ exits: a, atMost: 0 }}]\n", system(fields, ""));
    let begun = Instant::now();
    let (json, code) = place.run("own.yaml", "local", &text, "run");
    // On a busy machine, links may be slower than requested.
    assert!(matches!(code, Some(0 | 3)), "{json}");
    assert!(begun.elapsed() < Duration::from_secs(9), "it was not killed after 10 s");
    assert!(place.path("run/nodes/a-0/1.dir/ended").exists());
}

#[test]
fn a_system_that_expects_nothing_does_not_pass_and_a_command_must_not_end() {
    let place = TestDirectory::new();
    let asleep = system("command: [sleep, '600']\n      ends: { after: 1s }", "");
    let (json, _) = place.run("own.yaml", "local", &asleep, "run");
    assert_eq!(json["verdict"], "unknown", "{json}");
    assert!(json["reasons"].to_string().contains("nothing about this system was asserted"), "{json}");
    let ends = system("command: [sh, -c, 'sleep 1; exit 7']\n      ends: { after: 2s }", "");
    let (json, code) = place.run("ends.yaml", "local", &ends, "ends");
    assert!(json["reasons"].to_string().contains("ended by itself: exit status 7"), "{json}");
    assert_eq!(code, Some(1));
}

#[test]
fn a_system_that_does_not_start_is_an_error_of_the_file() {
    for (fields, text) in [
        (
            "command: [sh, -c, 'echo no config; exit 3']\n      ready: {}\n      in: { b: { command: [sh, -c, 'exec sleep 600'], ready: { exec: [sh, -c, 'sleep 1'] } } }",
            "ended before the run began: exit status 3; its output ends with: no config",
        ),
        (
            "command: [sh, -c, 'setsid sleep 600 & exit 0']\n      ready: { exec: ['false'] }",
            "it left `sleep` running: keep that in the foreground, or write `onExit: daemon`",
        ),
        (
            "command: [sh, -c, 'echo port in use; exit 3']\n      ready: { tcp: '127.0.0.1:1' }",
            "was not ready when its command ended: exit status 3; its output ends with: port in use",
        ),
        (
            "command: [sleep, '600']\n      ready: { exec: ['false'], within: 500ms }",
            "was not ready within 500ms, but its command is running: exit status 1",
        ),
        (
            "command: [sleep, '600']\n      setup: { by: a-0, exec: [sh, -c, 'echo no quorum >&2; exit 1'] }",
            "a-0 could not set the system up: exit status 1: no quorum",
        ),
    ] {
        let place = TestDirectory::new();
        place.write("own.yaml", system(fields, ""));
        let run = place.faultline(["run", "own.yaml", "--out", "run"]).assert().code(2);
        run.stderr(says(text));
        assert_eq!(place.processes(), [] as [String; 0]);
    }
}

#[test]
fn what_a_system_cannot_do_is_refused() {
    let place = TestDirectory::new();
    let fields = format!("{LISTS}\n      ends: {{ after: 1s }}");
    place.write("own.yaml", system(&fields, ""));
    for arguments in [&["run", "own.yaml", "--backend", "simulate"][..], &["explore", "--file", "own.yaml"]] {
        let refused = place.faultline(arguments.iter().copied()).assert().code(2);
        refused.stderr(
            says("a system cannot run in virtual time: its programs read the real clock")
                .and(contains("--backend local")),
        );
    }
    let compared = place.faultline(["compare", "own.yaml"]).assert().code(2);
    compared.stderr(says("a system has no protocol that could be compared with others"));
    place.write("cut.yaml", system(&fields, "{ at: 500ms, partition: { from: a, to: b, for: 100ms } }"));
    let refused = place.faultline(["run", "cut.yaml", "--out", "cut"]).assert().code(2);
    refused.stderr(says("`partition` needs emulated links"));
    assert!(!place.path("cut").exists(), "a refused run leaves no record");
    for (file, message) in [
        (
            system(&fields, "{ at: 1s, slowStorage: { cluster: a, node: 0, by: 1s, for: 1s } }"),
            "`slowStorage`",
        ),
        (system(&fields, "{ at: 1s, crash: { reported: led } }"), "there is no watch `led`"),
        (
            system(&fields, "{ at: 1s, pause: { reported: led, node: 0, for: 1s } }"),
            "`reported` cannot be combined with `node`",
        ),
        (system(&fields, "{ when: { fact: probeFailed, of: led }, crash: {} }"), "there is no probe `led`"),
        (
            system(&fields, "{ when: { fact: delivered }, crash: {} }"),
            "a fault of a system cannot wait for this fact",
        ),
        (system(&fields, "{ at: 1s, flip: { cluster: a, node: 0 } }"), "`flip`"),
        (system("command: [run, '{{ nme }}']", ""), "undefined value"),
        (system(&fields, "").replace("links:", "storage: {}\n  links:"), "`storage` has no effect"),
        (system(&fields, "").replace("links:", "protocol: { hc3i: {} }\n  links:"), "omit `protocol`"),
        (
            system(&fields, "").replace(&format!("system:\n      {fields}"), "heat: {}"),
            "the federation has no protocol",
        ),
    ] {
        place.write("bad.yaml", &file);
        place.faultline(["validate", "bad.yaml"]).assert().code(2).stderr(contains(message));
    }
}

#[test]
fn a_fault_that_the_kernel_cannot_emulate_for_a_system_is_refused() {
    let place = TestDirectory::new();
    if !supports_traffic_control(&place) {
        return;
    }
    let doctor = place.faultline(["doctor", "--tc", "--format", "json"]).output().unwrap();
    let doctor: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let mut findings = doctor["findings"].as_array().unwrap().iter();
    let has_netem = findings.any(|it| it["name"] == "sch_netem" && it["state"] == "ok");
    let fields = "command: [sleep, '600']
      probes: { up: { by: b, every: 200ms, exec: ['true'] } }
      ends: { after: 3s }";
    for (change, is_delayed) in
        [("latency: 900ms", true), ("latency: 0, loss: 30%", true), ("bandwidth: 100kB", false)]
    {
        let text = system(fields, &format!("{{ at: 1s, link: {{ from: a, to: b, {change}, for: 1s }} }}"));
        place.write("own.yaml", format!("{text}  expect: [{{ probe: up, availability: 0.1 }}]\n"));
        let _ = fs::remove_dir_all(place.path("run"));
        let run = place.faultline(["run", "own.yaml", "--links", "tc", "--out", "run"]).assert();
        match is_delayed && !has_netem {
            true => drop(run.code(2).stderr(says("this kernel does not emulate them (sch_netem)"))),
            false => drop(run.code(predicate::ne(2)).code(predicate::ne(1))),
        }
    }
}

#[test]
fn in_network_namespaces_a_partition_drops_packets_and_addresses_stay() {
    let place = TestDirectory::new();
    if !supports_traffic_control(&place) {
        return;
    }
    // Unlike `http.server`, this does not look up names, which takes long without a name server.
    let fields = r#"command:
        - python3
        - -c
        - |
          import socketserver as it, sys
          class Handler(it.BaseRequestHandler):
              def handle(self):
                  print('asked by', self.client_address[0], flush=True)
          print('b is', sys.argv[2], flush=True)
          it.TCPServer((sys.argv[1], 8080), Handler).serve_forever()
        - '{{ bind }}'
        - '{{ nodes[2].host }}'
      ready: { tcp: '{{ bind }}:8080' }
      probes: { page: { by: b, every: 100ms, timeout: 500ms, tcp: '{{ nodes[0].host }}:8080' } }
      ends: { after: 8s }"#;
    let faults =
        "{ at: 1s, partition: { from: b, to: a, for: 2s } }, { at: 4s, crash: { cluster: a, node: 0 } }";
    place.write("own.yaml", system(fields, faults));
    let run = ["run", "own.yaml", "--links", "tc", "--out", "run"];
    place.faultline(run).assert().code(predicate::ne(2)).code(predicate::ne(1));
    let seconds = |it: &Value| it["time_ns"].as_i64().unwrap() as f64 / 1e9;
    let succeeded: Vec<f64> = facts(&place, "probeSucceeded").iter().map(seconds).collect();
    let succeeds_within = |from: f64, to: f64| succeeded.iter().any(|it| (from..to).contains(it));
    assert!(succeeds_within(0.0, 1.0), "before the partition: {succeeded:?}");
    assert!(!succeeds_within(1.2, 3.0), "during the partition: {succeeded:?}");
    assert!(succeeds_within(3.0, 4.0), "after the partition: {succeeded:?}");
    assert!(succeeds_within(4.5, 8.0), "in the second life: {succeeded:?}");
    // Some programs tell others to call them back at the address from which a connection comes.
    let output = log(&place, "a-0-1.log");
    let address = output.lines().find_map(|it| it.strip_prefix("b is ")).unwrap();
    assert!(output.contains(&format!("asked by {address}\n")), "{output}");
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn an_isolated_cluster_is_cut_off_from_all_others_but_those_that_are_excepted() {
    let place = TestDirectory::new();
    let fields = r#"command: [python3, -c, 'import socketserver as it, sys; print("I lead", flush=True) if sys.argv[2] == "c-0" else None; it.TCPServer((sys.argv[1], 8080), it.BaseRequestHandler).serve_forever()', '{{ bind }}', '{{ name }}']
      ready: { tcp: '{{ bind }}:8080' }
      watch: { leader: ^I lead }
      probes:
        site: { by: b, every: 100ms, timeout: 300ms, tcp: '{{ nodes[3].host }}:8080' }
        client: { by: clients, every: 100ms, timeout: 300ms, tcp: '{{ nodes[3].host }}:8080' }
      ends: { after: 8s }"#;
    let faults = "{ at: 1s, partition: { isolate: c, except: [clients], for: 2s } }, \
                  { at: 4s, partition: { reported: leader, for: 2s } }";
    let text = system(fields, faults).replace(
        "{ name: b, nodes: 1 }]",
        "{ name: b, nodes: 1 }, { name: c, nodes: 1 }, { name: clients, nodes: 1 }]",
    );
    for (partition, message) in [
        ("{ isolate: c, from: a, for: 2s }", "`isolate` cannot be combined with `from`"),
        ("{ isolate: c, except: [c], for: 2s }", "`c` is the isolated cluster"),
        ("{ isolate: c, except: [a, b, clients], for: 2s }", "cut off from no other"),
        ("{ isolate: d, for: 2s }", "there is no cluster `d`"),
        ("{ from: a, to: b, except: [c], for: 2s }", "`except` belongs to an isolated cluster"),
        ("{ isolate: c }", "add `for`"),
        ("{ reported: lead, for: 2s }", "there is no watch `lead`"),
    ] {
        place.write("bad.yaml", text.replacen("{ isolate: c, except: [clients], for: 2s }", partition, 1));
        place.faultline(["validate", "bad.yaml"]).assert().code(2).stderr(says(message));
    }
    place.write("own.yaml", &text);
    place.faultline(["plan", "own.yaml"]).assert().code(0).stdout(
        says("c is cut off from a, b for 2.00 s")
            .and(says("the cluster of the node that last logged leader")),
    );
    if !supports_traffic_control(&place) {
        return;
    }
    let text = text + "  expect: [{ probe: site, recoveredWithin: 5s }]\n";
    place.write("own.yaml", text);
    let run = ["run", "own.yaml", "--links", "tc", "--out", "run", "--format", "json"];
    let output = place.faultline(run).assert().code(predicate::ne(2)).code(predicate::ne(1));
    let json: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let probed = facts(&place, "probeSucceeded");
    let succeeds_within = |probe: &str, from: f64, to: f64| {
        let seconds = |it: &Value| it["time_ns"].as_i64().unwrap() as f64 / 1e9;
        probed.iter().any(|it| it["probe"] == probe && (from..to).contains(&seconds(it)))
    };
    assert!(succeeds_within("site", 0.0, 1.0) && succeeds_within("site", 3.1, 4.0), "{probed:?}");
    assert!(!succeeds_within("site", 1.3, 3.0) && !succeeds_within("site", 4.3, 6.0), "{probed:?}");
    assert!(succeeds_within("client", 1.5, 3.0), "the clients are excepted: {probed:?}");
    assert!(!succeeds_within("client", 4.4, 6.0), "the leader is cut off from the clients, too: {probed:?}");
    // One entry, one row, one recovery of each probe.
    let faults = json["faults"].as_array().unwrap();
    assert!(faults.len() == 2 && faults.iter().all(|it| it["state"] == "effective"), "{json}");
    assert_eq!(faults[1]["what"], "c is cut off from a, b, clients for 2.00 s (last to log leader)");
    assert_eq!(json["probeRecoveries"].as_array().unwrap().len(), 4, "{json}");
    place.faultline(["check", "run"]).assert().code(predicate::ne(2)).stdout(contains("contradict").not());
}

#[test]
fn some_nodes_can_be_cut_off_within_their_cluster() {
    let place = TestDirectory::new();
    let fields = r#"command: [python3, -c, 'import socketserver as it, sys; it.TCPServer((sys.argv[1], 8080), it.BaseRequestHandler).serve_forever()', '{{ bind }}']
      ready: { tcp: '{{ bind }}:8080' }
      probes:
        inside: { by: a-1, every: 100ms, timeout: 300ms, tcp: '{{ nodes[0].host }}:8080' }
        outside: { by: b, every: 100ms, timeout: 300ms, tcp: '{{ nodes[0].host }}:8080' }
      ends: { after: 6s }"#;
    let text = system(fields, "{ at: 1s, partition: { within: a, nodes: [0], for: 2s } }");
    for (partition, message) in [
        ("{ within: c, nodes: [0], for: 2s }", "there is no cluster `c`"),
        ("{ within: a, nodes: [2], for: 2s }", "cluster `a` has no node 2"),
        ("{ within: a, nodes: [0, 1], for: 2s }", "needs nodes of `a` on both sides"),
        ("{ within: a, for: 2s }", "needs nodes of `a` on both sides"),
        ("{ within: b, nodes: [0], for: 2s }", "needs nodes of `b` on both sides"),
        ("{ within: any, nodes: [0], for: 2s }", "needs the name of the cluster"),
        ("{ within: a, nodes: [0], isolate: b, for: 2s }", "`within` cannot be combined with `isolate`"),
        ("{ nodes: [0], for: 2s }", "`nodes` belongs to a partition `within` a cluster"),
        ("{ within: a, nodes: [0] }", "add `for`"),
    ] {
        place.write("bad.yaml", text.replacen("{ within: a, nodes: [0], for: 2s }", partition, 1));
        place.faultline(["validate", "bad.yaml"]).assert().code(2).stderr(says(message));
    }
    place.write("own.yaml", &text);
    let refused = place.faultline(["run", "own.yaml", "--out", "refused"]).assert().code(2);
    refused.stderr(says("`partition` needs emulated links"));
    if !supports_traffic_control(&place) {
        return;
    }
    place.write("own.yaml", text + "  expect: [{ probe: inside, recoveredWithin: 3s }]\n");
    let run = ["run", "own.yaml", "--links", "tc", "--out", "run", "--format", "json"];
    let output = place.faultline(run).assert().code(predicate::ne(2)).code(predicate::ne(1));
    let json: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let probed = facts(&place, "probeSucceeded");
    let succeeds_within = |probe: &str, from: f64, to: f64| {
        let seconds = |it: &Value| it["time_ns"].as_i64().unwrap() as f64 / 1e9;
        probed.iter().any(|it| it["probe"] == probe && (from..to).contains(&seconds(it)))
    };
    assert!(succeeds_within("inside", 0.0, 1.0) && succeeds_within("inside", 3.1, 6.0), "{probed:?}");
    assert!(!succeeds_within("inside", 1.4, 3.0), "{probed:?}");
    assert!(succeeds_within("outside", 1.4, 3.0), "other clusters are not affected: {probed:?}");
    // One entry, one row, one recovery.
    let faults = json["faults"].as_array().unwrap();
    assert!(faults.len() == 1 && faults[0]["state"] == "effective", "{json}");
    assert_eq!(faults[0]["what"], "a-0 is cut off from the other nodes of a for 2.00 s");
    place.faultline(["check", "run"]).assert().code(predicate::ne(2)).stdout(contains("contradict").not());
}

/// A program that logs what it sends and delivers. If `BAD` is set, it loses a message.
const LOGS: &str = r#"
        import json, os, socket, time
        name, life = os.environ["FAULTLINE_NAME"], int(os.environ["FAULTLINE_LIFE"])
        hosts = dict(it.split("=") for it in os.environ["FAULTLINE_NODES"].split(","))
        number = 0
        def log(fact, **more):
            global number
            line = {"process": name, "life": life, "number": number, "time_ns": time.monotonic_ns(), "fact": fact}
            print(json.dumps({**line, **more}), flush=True)
            number += 1
        socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        socket.bind((hosts[name], 9999))
        print("starting", flush=True)
        open("bound", "w").close()
        if name == "a-0":
            socket.settimeout(0.1)
            for it in range(5):
                log("sent", receiver="b-0", message_number=it)
                answer = None
                while answer != it:
                    socket.sendto(str(it).encode(), (hosts["b-0"], 9999))
                    try:
                        answer = int(socket.recv(99))
                    except OSError:
                        pass
        elif name == "b-0":
            seen = set()
            while True:
                answer, sender = socket.recvfrom(99)
                it = int(answer)
                if it not in seen:
                    if it != 2 or "BAD" not in os.environ:
                        log("delivered", sender="a-0", message_number=it)
                    if it == 4:
                        log("finished")
                seen.add(it)
                socket.sendto(answer, sender)
        log("finished")
        time.sleep(600)
"#;

#[test]
fn the_own_log_of_a_system_is_judged_after_the_run() {
    for (env, code, text) in
        [("", 0, "PASS"), ("env: { BAD: '1' }", 1, "message 2 from a-0 to b-0 was never delivered")]
    {
        let place = TestDirectory::new();
        place.write("node.py", LOGS.replace("\n        ", "\n"));
        let command = "command: [python3, node.py]\n      files: { node.py: { file: node.py } }";
        let ready = "ready: { exec: [test, -e, bound] }";
        let fields = format!("{command}\n      {env}\n      {ready}\n      ends: {{ after: 8s }}");
        let (json, _) = place.run("own.yaml", "local", &system(&fields, ""), "run");
        assert_eq!(json["run"]["outcome"], "completed", "{json}");
        let mut lines =
            r#"{"event":"run","version":1,"name":"own","clusters":{"a":["a-0","a-1"],"b":["b-0"]}}"#
                .to_owned();
        for name in ["a-0-1.log", "a-1-1.log", "b-0-1.log"] {
            let log = log(&place, name);
            let facts = log.lines().filter(|it| it.starts_with("{\"process\""));
            facts.for_each(|it| lines += &format!("\n{it}"));
        }
        place.write("events.jsonl", lines + "\n{\"event\":\"end\",\"outcome\":\"completed\"}\n");
        place.faultline(["check", "--events", "events.jsonl"]).assert().code(code).stdout(says(text));
    }
}

#[test]
fn the_figures_of_a_probe_agree_with_an_independent_recount_of_the_exported_facts() {
    let place = TestDirectory::new();
    // The node that answers is down for a second, twice; connections are refused meanwhile.
    let fields = "command: [python3, -m, http.server, '8080', --bind, '{{ bind }}']
      ready: { tcp: '{{ bind }}:8080' }
      probes: { up: { by: b, every: 100ms, timeout: 500ms, tcp: '{{ nodes[0].host }}:8080' } }
      ends: { after: 6s }";
    let down = "crash: { cluster: a, node: 0, repair: 1s }";
    let faults = format!(
        "{{ at: 1s, {down} }}, {{ at: 2800ms, crash: {{ cluster: a, node: 1 }} }}, {{ at: 4s, {down} }}"
    );
    let expect = "{ probe: up, availability: 0.1 }, { probe: up, longestOutage: 5s }";
    let text = format!("{}  expect: [{expect}]\n", system(fields, &faults));
    let (json, _) = place.run("own.yaml", "local", &text, "run");
    let recoveries = json["probeRecoveries"].as_array().unwrap();
    let exported = place.faultline(["export", "run"]).output().unwrap().stdout;
    let mut recount = std::process::Command::new("python3");
    recount.args(["-c", include_str!("recount.py")]);
    recount.args(recoveries.iter().map(|it| it["atSeconds"].to_string()));
    let mut recount = recount.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    recount.stdin.take().unwrap().write_all(&exported).unwrap();
    let counted: Value = serde_json::from_slice(&recount.wait_with_output().unwrap().stdout).unwrap();
    let probe = &json["probes"][0];
    for name in ["samples", "succeeded"] {
        assert_eq!(probe[name], counted[name], "{name}: {json}");
    }
    let same = |ours: &Value, theirs: &Value, what: &str| match (ours.as_f64(), theirs.as_f64()) {
        (Some(ours), Some(theirs)) => assert!((ours - theirs).abs() < 2e-6, "{what}: {ours} and {theirs}"),
        (ours, theirs) => assert_eq!(ours, theirs, "{what}"),
    };
    // On a busy machine, some samples may be late, so part of the time is unobserved.
    if probe["unobservedSeconds"] == 0.0 {
        same(&json["expectations"][0]["figure"], &counted["availability"], "availability");
    }
    same(&json["expectations"][1]["figure"], &counted["longestOutage"], "longest outage");
    assert!(counted["longestOutage"].as_f64().unwrap() > 0.5, "{counted}");
    assert_eq!(recoveries.len(), 3);
    for (it, theirs) in recoveries.iter().zip(counted["recovered"].as_array().unwrap()) {
        same(&it["recoveredSeconds"], theirs, "recovery");
    }
}

/// Returns the texts in this field of facts of this kind.
fn said(place: &TestDirectory, kind: &str) -> Vec<String> {
    let facts = facts(place, kind);
    facts.iter().map(|it| it["said"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_command_that_cannot_be_started_is_refused_before_the_run() {
    let place = TestDirectory::new();
    place.write("bad.sh", "#!/no/such/shell\n");
    let fields = "command: [sleep, '600']
      files: { bad.sh: { file: bad.sh } }
      probes:
        direct: { exec: [etcdctl-3.9, endpoint, health] }
        shell: { exec: [sh, -c, 'etcdctl-3.9 endpoint health'] }
        denied: { exec: [/etc/passwd] }
        script: { exec: [./bad.sh] }
        other: { exec: [./other.sh] }
      ends: { after: 1s }";
    place.write("own.yaml", system(fields, ""));
    let refused = place.faultline(["run", "own.yaml", "--out", "run"]).assert().code(2);
    refused.stderr(
        says("`etcdctl-3.9` does not exist on this machine")
            .and(says("`/etc/passwd` cannot be executed"))
            .and(says("`./bad.sh` is a script for `/no/such/shell`"))
            .and(says("`./other.sh` does not exist"))
            .and(contains("own.yaml has 4 problems"))
            // The lines are quoted as they were written, although the script's content was inserted.
            .and(contains("direct: { exec: [etcdctl-3.9, endpoint, health] }")),
    );
    assert!(!place.path("run").exists(), "a refused run leaves no record");
    place.faultline(["validate", "own.yaml"]).assert().code(0);
    let fields = "command: [tool]
      env: { PATH: 'bin:/usr/bin:/bin' }
      files: { bin/tool: { text: \"#!/usr/bin/env sh\\nexec sleep 600\\n\" } }
      ends: { after: 500ms }";
    let (json, _) = place.run("own.yaml", "local", &system(fields, ""), "run");
    assert_eq!(json["run"]["outcome"], "completed", "{json}");
}

#[test]
fn what_cannot_be_judged_is_neither_success_nor_failure() {
    let place = TestDirectory::new();
    let fields = "command: [sleep, '600']
      ready: { exec: [sh, -c, 'test -e tried || { touch tried; exit 75; }'] }
      probes:
        unsure: { by: b, every: 100ms, exec: [sh, -c, 'echo no quorum >&2; exit 75'] }
        bad: { by: b, every: 100ms, timeout: 300ms, exec: [sh, -c, 'echo wrong; exit 1'] }
        gone: { by: b, every: 100ms, exec: [sh, -c, 'exec {{ data }}/tool'] }
      ends: { after: 1s }";
    let check = "{ check: a quorum exists, by: a-0, exec: [sh, -c, 'echo cannot connect; exit 75'] }";
    let text = format!("{}  expect: [{check}]\n", system(fields, ""));
    let (json, code) = place.run("own.yaml", "local", &text, "run");
    assert_eq!((&json["expectations"][0]["met"], code), (&"unknown".into(), Some(3)), "{json}");
    let unknown = said(&place, "probeUnknown");
    assert!(unknown.len() > 2 && unknown.iter().all(|it| it == "no quorum"), "{unknown:?}");
    let failed = said(&place, "probeFailed");
    assert!(
        failed.contains(&"wrong".to_owned()) && failed.iter().any(|it| it.contains("not found")),
        "{failed:?}"
    );
    assert_eq!(said(&place, "checked"), ["cannot connect"]);
}

#[test]
fn every_process_of_a_sample_is_gone_when_the_sample_has_ended() {
    let place = TestDirectory::new();
    // `timeout` leaves its process group, the second sample leaves its session, and the third ends before its processes.
    let fields = r#"command: [sleep, '600']
      probes:
        group: { by: b, every: 500ms, timeout: 200ms, exec: [sh, -c, "timeout 60 sh -c 'sleep 1; echo late >> {{ data }}/written' | cat"] }
        session: { by: b, every: 500ms, timeout: 200ms, exec: [sh, -c, "setsid sh -c 'sleep 1; echo late >> {{ data }}/written'"] }
        left: { by: b, every: 500ms, exec: [sh, -c, "setsid -f sh -c 'sleep 1; echo late >> {{ data }}/written'; exit 0"] }
        orphan: { by: b, every: 50ms, exec: [sh, -c, "sh -c 'sleep 0.02' & exit 0"] }
      ends: { after: 2s }"#;
    let checks = "{ check: nothing was written, by: b-0, exec: [sh, -c, 'sleep 2; ! test -e {{ data }}/written'] }, \
                  { check: no process waits to be reaped, by: b-0, exec: [sh, -c, '! ps --ppid $PPID -o stat= | grep Z'] }, \
                  { check: something was left, by: b-0, exec: [sh, -c, 'setsid -f sleep 7003; exit 0'] }, \
                  { check: it is gone, by: b-0, exec: [sh, -c, '! pgrep -f \"^sleep 7003\"'] }";
    let text = format!("{}  expect: [{checks}]\n", system(fields, ""));
    let (json, _) = place.run("own.yaml", "local", &text, "run");
    let met = |number: usize| json["expectations"][number]["met"].as_str();
    assert_eq!([0, 1, 2, 3].map(met), [Some("yes"); 4], "{json}");
    assert!(facts(&place, "probeSucceeded").len() > 8);
}

#[test]
fn a_busy_machine_kills_no_node() {
    let place = TestDirectory::new();
    // A sample stops the node's own process, which then sends no heartbeat for two seconds.
    let stops = "test {{ sample }} != 3 || { (sleep 2; kill -CONT $PPID) & kill -STOP $PPID; sleep 0.1; }";
    let fields = format!(
        "command: [sleep, '600']
      probes: {{ up: {{ by: b, every: 100ms, timeout: 10s, exec: [sh, -c, {stops:?}] }} }}
      ends: {{ after: 4s }}"
    );
    let text = system(&fields, "").replace("detectAfter: 5s", "detectAfter: 500ms");
    place.run("own.yaml", "local", &text, "run");
    assert_eq!(facts(&place, "failed"), [] as [Value; 0]);
    let longest = facts(&place, "probeSucceeded").iter().filter_map(|it| it["latency_ns"].as_i64()).max();
    assert!(longest.is_none_or(|it| it > 1_500_000_000), "the process was stopped: {longest:?}");
}

#[test]
fn commands_have_a_defined_environment() {
    let place = TestDirectory::new();
    let fields = "command: [sh, -c, 'env; exec sleep 600']
      env: { OWN: 'of {{ name }}' }
      ends: { after: 500ms }";
    place.write("own.yaml", system(fields, ""));
    let mut run = place.faultline(["run", "own.yaml", "--out", "run"]);
    run.env("http_proxy", "http://127.0.0.1:9").env("LD_PRELOAD", "").env("TZ", "UTC");
    run.assert().code(predicate::ne(2));
    let log = log(&place, "a-0-1.log");
    let names = |it: &str| it.split('=').next().unwrap_or_default().to_owned();
    let other = log.lines().map(names).filter(|it| !it.starts_with("FAULTLINE_"));
    // The shell adds `PWD`, `OLDPWD`, `SHLVL` and `_`.
    let other: Vec<_> = other.filter(|it| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&&**it)).collect();
    assert!(other.iter().all(|it| ["PATH", "HOME", "LANG", "TZ", "OWN"].contains(&&**it)), "{log}");
    for line in ["OWN=of a-0", "TZ=UTC", "FAULTLINE_LIFE=1"] {
        assert!(log.lines().any(|it| it == line), "{log}");
    }
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(place.path("run/manifest.json")).unwrap()).unwrap();
    let recorded = &manifest["environment"];
    assert_eq!((&recorded["TZ"], &recorded["http_proxy"]), (&"UTC".into(), &Value::Null), "{manifest}");
}

#[test]
fn watches_see_lines_as_programs_write_them() {
    let place = TestDirectory::new();
    let fields = r#"command: [sh, -c, 'sleep 1; printf "$TEXT"; exec sleep 600']
      watch: { leader: "^became leader$" }
      env: { TEXT: "{{ ['became leader\\r\\n', '\\033[32mbecame leader\\033[0m\\n', '10%%\\rbecame leader\\r'][index] }}" }
      ends: { after: 3s }"#;
    let pause = |cluster, node| {
        format!(
            "{{ when: {{ fact: logged, of: leader, cluster: {cluster}, node: {node} }}, pause: {{ cluster: {cluster}, node: {node}, for: 100ms }} }}"
        )
    };
    let faults = [pause("a", 0), pause("a", 1), pause("b", 0)].join(", ");
    let (json, _) = place.run("own.yaml", "local", &system(fields, &faults), "run");
    for fault in json["faults"].as_array().unwrap() {
        assert_eq!(fault["state"], "effective", "{json}");
    }
}

#[test]
fn output_is_merged_by_whole_lines_and_shortened_between_lines() {
    let place = TestDirectory::new();
    let writes = "import os\nfor it in range(3000):\n  os.write(1, b'one ')\n  os.write(2, b'error %d\\n' % it)\n  os.write(1, b'line %d\\n' % it)\nimport time; time.sleep(600)";
    let fields = format!("command: [python3, -c, {writes:?}]\n      logs: 8KiB\n      ends: {{ after: 2s }}");
    place.run("own.yaml", "local", &system(&fields, ""), "run");
    let log = log(&place, "a-0-1.log");
    assert!(log.len() < 9_000 && log.contains("bytes are omitted, up to line "), "{log}");
    let is_whole = |it: &str| {
        let number = it.strip_prefix("one line ").or(it.strip_prefix("error "));
        number.is_some_and(|it| it.parse::<u32>().is_ok())
    };
    let other: Vec<_> = log.lines().filter(|it| !is_whole(it)).collect();
    assert!(matches!(other[..], [mark] if mark.starts_with("[about ")), "{other:?}");
}

#[test]
fn the_run_ends_when_a_command_exits_that_must_not() {
    let place = TestDirectory::new();
    let fields = "command: [sh, -c, 'test {{ index }} = 0 || exec sleep 600; sleep 1; echo cannot open config; exit 3']
      ends: { after: 100s }
      in: { b: { command: [sleep, '600'] } }";
    let checks =
        "{ check: a-0 works, by: a-0, exec: ['true'] }, { check: b-0 works, by: b-0, exec: ['true'] }";
    let text = format!("{}  expect: [{checks}]\n", system(fields, ""));
    let begun = Instant::now();
    let (json, code) = place.run("own.yaml", "local", &text, "run");
    assert!(begun.elapsed() < Duration::from_secs(50), "the run did not end");
    assert_eq!(code, Some(1), "{json}");
    assert_eq!(said(&place, "exited")[0], "cannot open config");
    let met = |number: usize| json["expectations"][number]["met"].as_str();
    assert_eq!([0, 1].map(met), ["unknown", "yes"].map(Some), "{json}");
    assert!(json["reasons"].to_string().contains("the command of its node had exited"), "{json}");
}

#[test]
fn a_command_that_is_started_again_begins_a_life_without_what_it_left_behind() {
    let place = TestDirectory::new();
    let holds = "(flock -n 9 && echo got it || echo taken; exec sleep 600) 9> \"{{ data }}/lock\" & sleep 1.2; exit 4";
    let fields = format!(
        "command: [sleep, '600']
      ends: {{ after: 5s }}
      in: {{ b: {{ command: [sh, -c, {holds:?}], onExit: restart }} }}"
    );
    let (json, _) = place.run("own.yaml", "local", &system(&fields, ""), "run");
    assert_eq!(json["run"]["outcome"], "completed", "{json}");
    assert_ne!(json["verdict"], "fail", "{json}");
    for life in 1..4 {
        assert_eq!(log(&place, &format!("b-0-{life}.log")), "got it\n");
    }
    let failed = facts(&place, "failed");
    assert!(failed.len() >= 2 && failed.iter().all(|it| it["ended_by"] == "commandExited"), "{failed:?}");
    assert!(json["notes"].to_string().contains("because a command exited"), "{json}");
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn a_crash_loop_ends_the_run() {
    let place = TestDirectory::new();
    let fields = "command: [sh, -c, 'echo cannot open config; exit 3']
      onExit: restart
      ends: { after: 100s }
      in: { a: { command: [sleep, '600'] } }";
    let begun = Instant::now();
    let (json, code) = place.run("own.yaml", "local", &system(fields, ""), "run");
    assert!(begun.elapsed() < Duration::from_secs(50), "the run did not end");
    assert_eq!((code, &json["run"]["outcome"]), (Some(1), &"exitsAgain".into()), "{json}");
    let reasons = json["reasons"].to_string();
    assert!(
        reasons.contains("exited 6 times in a row") && reasons.contains("cannot open config"),
        "{reasons}"
    );
    place.faultline(["explain", "run"]).assert().code(0).stdout(says("exited 6 times in a row"));
}

#[test]
fn ranks_start_again_together_and_after_the_cluster_that_they_need() {
    let place = TestDirectory::new();
    let fields = "command: [sh, -c, 'echo $FAULTLINE_LIFE; test $FAULTLINE_NAME$FAULTLINE_LIFE != a-11 || { sleep 1.5; exit 9; }; exec sleep 600']
      ends: { after: 4s }
      in: { a: { onExit: restartCluster, after: [b] }, b: { command: [sh, -c, 'sleep 1; touch up; exec sleep 600'], ready: { exec: [test, -e, up] } } }";
    let (json, _) = place.run("own.yaml", "local", &system(fields, ""), "run");
    assert_eq!(json["run"]["outcome"], "completed", "{json}");
    let mut failed: Vec<_> = facts(&place, "failed").iter().map(|it| it["about_process"].clone()).collect();
    failed.sort_by_key(ToString::to_string);
    assert_eq!(failed, ["a-0", "a-1"]);
    assert_eq!(log(&place, "a-0-2.log"), "2\n");
    let ready = facts(&place, "ready");
    let at = |name: &str| ready.iter().find(|it| it["process"] == name).unwrap()["time_ns"].as_i64();
    assert!(at("b-0") < at("a-0") && at("b-0") < at("a-1"), "{ready:?}");
    for (after, message) in [("[c]", "there is no cluster `c`"), ("[a]", "would wait for themselves")] {
        place.write("bad.yaml", system(&fields.replace("[b]", after), ""));
        place.faultline(["validate", "bad.yaml"]).assert().code(2).stderr(says(message));
    }
}

#[test]
fn a_daemon_can_be_a_node() {
    let place = TestDirectory::new();
    let daemon = "setsid sh -c 'sleep 0.5; echo up; while :; do sleep 0.2; echo alive; done' & exit 0";
    let fields = format!(
        "command: [sh, -c, {daemon:?}]
      onExit: daemon
      watch: {{ alive: ^alive }}
      ends: {{ after: 4s }}"
    );
    let faults = "{ at: 1500ms, crash: { cluster: b, node: 0 } }";
    let (json, _) = place.run("own.yaml", "local", &system(&fields, faults), "run");
    assert_eq!(json["run"]["outcome"], "completed", "{json}");
    assert_eq!(facts(&place, "exited"), [] as [Value; 0]);
    let lines = facts(&place, "logged").iter().filter(|it| it["process"] == "a-0").count();
    assert!(lines > 8, "{lines}");
    assert!(log(&place, "b-0-2.log").starts_with("up\nalive\n"));
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn a_daemon_that_ends_has_exited() {
    let place = TestDirectory::new();
    let daemon = "setsid sh -c 'sleep 1.5; echo out of memory; exit 3' & exit 0";
    let fields = format!(
        "command: [sleep, '600']
      ends: {{ after: 100s }}
      in: {{ b: {{ command: [sh, -c, {daemon:?}], onExit: daemon }} }}"
    );
    let (json, code) = place.run("own.yaml", "local", &system(&fields, ""), "run");
    assert_eq!(code, Some(1), "{json}");
    let exits = facts(&place, "exited");
    assert_eq!(
        (exits.len(), &exits[0]["status"], &exits[0]["said"]),
        (1, &3.into(), &"out of memory".into())
    );
}

#[test]
fn what_a_command_leaves_behind_continues_if_it_may_exit() {
    let place = TestDirectory::new();
    let daemon = "setsid sh -c 'sleep 0.5; touch up; while :; do sleep 0.2; echo alive; done' & exit 0";
    let fields = format!(
        "command: [sh, -c, {daemon:?}]
      onExit: stay
      ready: {{ exec: [test, -e, up] }}
      watch: {{ alive: ^alive }}
      ends: {{ after: 2s }}"
    );
    let (json, _) = place.run("own.yaml", "local", &system(&fields, ""), "run");
    assert_eq!(json["run"]["outcome"], "completed", "{json}");
    assert!(facts(&place, "logged").len() > 12);
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn a_fault_that_changes_nothing_does_not_pass() {
    let place = TestDirectory::new();
    let fields = r#"command: [sh, -c, 'test "$FAULTLINE_NAME" = a-0 || exec sleep 600']
      onExit: stay
      ready: {}
      ends: { after: 4s }"#;
    let faults = "{ at: 1s, crash: { cluster: a, node: 0 } }, { at: 1s, pause: { cluster: a, node: 1, for: 3s } }, \
                  { at: 2s, pause: { cluster: a, node: 1, for: 1s } }, { at: 1s, pause: { cluster: b, node: 0, for: 1s } }, \
                  { at: 1s, crash: { cluster: b, node: 0 } }";
    let text = system(fields, faults) + "  expect: [{ faults: { atLeast: 2 } }]\n";
    let (json, code) = place.run("own.yaml", "local", &text, "run");
    assert_eq!((code, &json["expectations"][0]["figure"]), (Some(3), &2.0.into()), "{json}");
    let notes = json["notes"].to_string();
    for reason in [
        "fault 0 found no running command of its target",
        "fault 2 changed nothing: its target was paused already",
        "fault 3 changed nothing: its target was paused already, or was killed at once",
    ] {
        assert!(notes.contains(reason), "{notes}");
    }
    let reason = json["faults"][2]["reason"].as_str();
    assert_eq!(reason, Some("its target was paused already, or was killed at once"), "{json}");
}

#[test]
fn a_command_that_cannot_be_started_again_is_unknown() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestDirectory::new();
    let once = place.path("once");
    fs::write(&once, "#!/bin/sh\nrm \"$0\"\nexec sleep 600\n").unwrap();
    fs::set_permissions(&once, fs::Permissions::from_mode(0o755)).unwrap();
    let fields = format!(
        "command: [sleep, '600']
      ready: {{}}
      ends: {{ after: 4s }}
      in: {{ b: {{ command: [{}] }} }}",
        once.display()
    );
    let text = system(&fields, "{ at: 1s, crash: { cluster: b, node: 0 } }");
    let (json, code) =
        place.run("own.yaml", "local", &format!("{text}  expect: [{{ exits: b, atMost: 0 }}]\n"), "run");
    assert_eq!(code, Some(3), "{json}");
    assert!(json["reasons"].to_string().contains("once` cannot be started: No such file"), "{json}");
}

#[test]
fn a_check_of_a_node_that_restarts_again_and_again_does_not_hold_up_the_end() {
    let place = TestDirectory::new();
    let fields = "command: [sleep, '600']
      ready: {}
      ends: { after: 1s }
      in: { b: { command: [sleep, '1.5'], onExit: restart } }";
    let expect = "{ check: takes too long, by: b-0, exec: [sleep, '30'] }";
    let (json, code) =
        place.run("own.yaml", "local", &format!("{}  expect: [{expect}]\n", system(fields, "")), "run");
    assert_eq!(code, Some(3), "{json}");
    assert!(json["reasons"].to_string().contains("the check did not run"), "{json}");
}
