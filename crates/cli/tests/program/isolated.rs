//! Tests that a run depends neither on other commands, nor on files that change meanwhile, nor on the programs that read its
//! output.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use faultline_trace::{Bundle, Hash};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

use crate::common::{CRASH, TestDirectory, passes_but_for_links, signal, small, wait_until};

/// A run that lasts until it is interrupted.
fn endless() -> String {
    small("").replace("steps: 60", "steps: 10000")
}

fn command(place: &TestDirectory, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultline"));
    command.current_dir(place.dir()).args(arguments).env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    // Messages are wrapped to the width of the terminal.
    String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Waits until the supervisor of the run in `record` has recorded that the application has begun.
fn wait_until_begun(place: &TestDirectory, record: &str) {
    let facts = place.path(&format!("{record}/facts/supervisor-0.facts"));
    let is_begun = || {
        let facts = fs::read(&facts).ok().and_then(|it| faultline_trace::read_facts(&it).ok());
        facts.is_some_and(|it| it.stream.iter().any(|(_, fact)| *fact == faultline_core::Fact::Begun))
    };
    wait_until(is_begun, || format!("the run in {record} does not begin"));
}

#[test]
fn commands_that_start_at_the_same_moment_get_records_of_their_own() {
    let place = TestDirectory::new();
    // Equal names and seeds, but different contents.
    for (file, steps) in [("a.yaml", "steps: 60"), ("b.yaml", "steps: 61")] {
        place.write(file, small("").replace("steps: 60", steps));
    }
    let begin = |number: usize| {
        let file = if number.is_multiple_of(2) { "a.yaml" } else { "b.yaml" };
        command(&place, &["run", file, "--backend", "simulate", "-q"]).spawn().unwrap()
    };
    let runs: Vec<Child> = (0..16).map(begin).collect();
    for run in runs {
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let records: Vec<_> = fs::read_dir(place.path("faultline-runs")).unwrap().map(|it| it.unwrap()).collect();
    assert_eq!(records.len(), 16, "{records:?}");
    let mut of_a = 0;
    for record in records {
        let manifest = Bundle::open(record.path()).read_manifest().unwrap();
        of_a += usize::from(manifest.federation.contains("steps: 60"));
        place.faultline(["check", record.path().to_str().unwrap(), "-q"]).assert().code(0);
    }
    assert_eq!(of_a, 8);
}

#[test]
fn a_directory_to_which_a_command_writes_is_refused() {
    let place = TestDirectory::new();
    place.write("long.yaml", endless());
    let refused = || contains("another command writes to it").and(contains("--out"));
    let mut run = command(&place, &["run", "long.yaml", "-q", "--out", "out"]).spawn().unwrap();
    wait_until_begun(&place, "out");
    for arguments in [
        &["run", "long.yaml", "--backend", "simulate", "--out", "out"][..],
        &["compare", "long.yaml", "--out", "out"],
        &["sweep", "long.yaml", "--set", "protocol.hc3i.checkpointEvery=1s,2s", "--out", "out"],
        &["fuzz", "--runs", "1", "--out", "out"],
        &["explore", "--out", "out"],
        &["reproduce", "hydee-table1", "--out", "out"],
        &["errata", "hydee", "--out", "out"],
    ] {
        place.faultline(arguments.iter().copied()).assert().code(2).stderr(refused());
    }
    // The claim ends with the program, however it ends. What remains is explained, and another directory can be used.
    signal(&run, "KILL");
    run.wait().unwrap();
    place.wait_until_empty();
    place.faultline(["check", "out"]).assert().code(3).stdout(contains("UNKNOWN"));
    place
        .faultline(["run", "long.yaml", "--out", "out"])
        .assert()
        .code(2)
        .stderr(contains("already holds the record of a run"));
    fs::remove_dir_all(place.path("out")).unwrap();
    fs::create_dir_all(place.path("out/facts")).unwrap();
    // A program that was killed between its claim and its first file.
    place.faultline(["check", "out"]).assert().code(2).stderr(contains("delete the directory"));
}

#[test]
fn a_command_that_records_nothing_leaves_no_directory_behind() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(""));
    let limited = "ulimit -n 30; exec \"$0\" run small.yaml -q";
    let mut shell = Command::new("sh");
    shell.current_dir(place.dir()).args(["-c", limited]).arg(env!("CARGO_BIN_EXE_faultline"));
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("ulimit -n"), "{}", text(&output.stderr));
    assert!(!place.path("faultline-runs").exists());
}

#[test]
fn files_of_the_record_that_change_during_a_run_change_nothing() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let run = ["run", "small.yaml", "--out", "run", "--format", "json"];
    let run = command(&place, &run).spawn().unwrap();
    wait_until_begun(&place, "run");
    place.write("small.yaml", "nothing");
    place.write("run/federation.yaml", small(CRASH).replace("steps: 60", "steps: 20"));
    fs::remove_file(place.path("run/manifest.json")).unwrap();
    judged(&place, &run.wait_with_output().unwrap());
    let manifest = Bundle::open(place.path("run")).read_manifest().unwrap();
    assert_eq!(manifest.federation, small(CRASH));
}

#[test]
fn a_program_that_is_replaced_during_a_run_is_kept() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let program = place.path("program");
    fs::copy(env!("CARGO_BIN_EXE_faultline"), &program).unwrap();
    let digest = Hash::of(fs::File::open(&program).unwrap()).unwrap();
    let mut run = Command::new(&program);
    run.current_dir(place.dir()).args([
        "run",
        "small.yaml",
        "--repeat",
        "2",
        "--out",
        "run",
        "--format",
        "json",
    ]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_begun(&place, "run/seed-3");
    place.write("another", "#!/bin/sh\nexit 9\n");
    fs::set_permissions(place.path("another"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(place.path("another"), &program).unwrap();
    let output = run.wait_with_output().unwrap();
    let json: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!((json["runs"].as_array().unwrap().len(), &json["failed"]), (2, &0.into()), "{json}");
    for record in ["run/seed-3", "run/seed-4"] {
        let checked = place.faultline(["check", record, "--format", "json"]).output().unwrap();
        judged(&place, &checked);
        let manifest = Bundle::open(place.path(record)).read_manifest().unwrap();
        assert_eq!(manifest.program, Some(digest));
    }
}

/// Checks that a run, whose summary a command has printed, passes or is unknown only because of its links.
fn judged(place: &TestDirectory, output: &Output) {
    let json: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!(json["result"]["equal"], true, "{json}");
    assert_eq!(json["faults"][0]["state"], "effective", "{json}");
    assert_eq!(output.status.code(), Some(if passes_but_for_links(&json) { 0 } else { 3 }));
    assert_eq!(place.processes(), [] as [String; 0]);
}

#[test]
fn an_output_that_stands_still_does_not_delay_a_run() {
    // Lines on standard output; a log with every order on standard error; the live view in JSON mode.
    for (arguments, of_stdout) in [(&["-v"][..], true), (&["-vv"], false), (&["--format", "json"], false)] {
        let place = TestDirectory::new();
        place.write("small.yaml", small(CRASH));
        let (mut reader, writer) = full_pipe();
        let base = ["run", "small.yaml", "--out", "run"];
        let arguments: Vec<&str> = base.into_iter().chain(arguments.iter().copied()).collect();
        let mut run = command(&place, &arguments);
        match of_stdout {
            true => run.stdout(writer).stderr(Stdio::null()),
            false => run.stderr(writer).stdout(Stdio::null()),
        };
        let mut child = run.spawn().unwrap();
        // Closes this process's end for writing.
        drop(run);
        ends_with_its_fault_on_time(&place, &format!("{arguments:?}"));
        let drained = thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
        assert!(matches!(child.wait().unwrap().code(), Some(0 | 3)));
        drained.join().unwrap().unwrap();
    }
}

/// Waits until the run recorded in `run` has ended, and checks that its fault struck when it was due.
fn ends_with_its_fault_on_time(place: &TestDirectory, what: &str) {
    let manifest = || Bundle::open(place.path("run")).read_manifest().ok();
    wait_until(
        || manifest().is_some_and(|it| it.outcome.is_some()),
        || format!("{what}: the run does not end"),
    );
    let late = manifest().unwrap().effects[0].latency().unwrap();
    assert!(late < faultline_core::Span::from_millis(500), "{what}: the fault was injected {late} late");
}

#[test]
fn a_terminal_that_is_stopped_does_not_delay_a_run() {
    const STOP: u8 = 0x13; // Ctrl-S
    const CONTINUE: u8 = 0x11; // Ctrl-Q
    for options in ["-v", "-vv", "--format json"] {
        let place = TestDirectory::new();
        place.write("small.yaml", small(CRASH));
        // The program starts once the terminal has been stopped.
        let program = env!("CARGO_BIN_EXE_faultline");
        let command = format!("read go; exec '{program}' run small.yaml --out run {options}");
        let mut script = Command::new("script");
        script.current_dir(place.dir()).args(["-qec", &command, "/dev/null"]).env("TERM", "xterm");
        // A shell warns of a locale that is not installed, and waits for the terminal.
        script.env("LC_ALL", "C");
        let mut run = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut keys = run.stdin.take().unwrap();
        let mut printed = run.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = shown.clone();
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = printed.read(&mut piece) {
                seen.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        });
        keys.write_all(&[STOP, b'\n']).unwrap();
        ends_with_its_fault_on_time(&place, options);
        let before = text(&shown.lock().unwrap());
        assert_eq!(before, "", "{options}: the terminal was not stopped");
        keys.write_all(&[CONTINUE]).unwrap();
        assert!(matches!(run.wait().unwrap().code(), Some(0 | 3)));
        reader.join().unwrap();
        let after = text(&shown.lock().unwrap());
        assert!(
            after.contains(if options.contains("json") { "\"verdict\"" } else { "small: hc3i" }),
            "{after}"
        );
    }
}

#[test]
fn readers_of_metrics_that_stand_still_do_not_delay_a_run() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut run =
        command(&place, &["run", "small.yaml", "--out", "run", "-q", "--metrics", &free.to_string()]);
    let mut run = run.spawn().unwrap();
    wait_until_begun(&place, "run");
    // Each sends requests until no more is accepted, and reads no answer. The program may answer only the first.
    let request = b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n";
    let mut readers = Vec::new();
    for _ in 0..16 {
        let mut reader = TcpStream::connect(free).unwrap();
        reader.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let sent = (0..20_000).take_while(|_| reader.write_all(request).is_ok()).count();
        assert!(sent > 0, "no request is accepted");
        readers.push(reader);
    }
    let mut other = TcpStream::connect(free).unwrap();
    other.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    other.read_to_string(&mut page).unwrap();
    assert!(page.contains("faultline_"), "{page}");
    ends_with_its_fault_on_time(&place, "metrics");
    assert!(matches!(run.wait().unwrap().code(), Some(0 | 3)));
}

/// Returns a pipe that accepts no further byte until something is read from it.
fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    let flags = OFlag::from_bits_retain(fcntl(writer.as_fd(), FcntlArg::F_GETFL).unwrap());
    fcntl(writer.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'.'; 512]).is_ok() {}
    while writer.write(b".").is_ok() {}
    fcntl(writer.as_fd(), FcntlArg::F_SETFL(flags)).unwrap();
    (reader, writer)
}

#[test]
fn a_message_that_cannot_be_printed_does_not_end_the_work() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.faultline(["run", "small.yaml", "--backend", "simulate", "--out", "run"]).assert().code(0);
    let full = |arguments: &[&str]| {
        let full = || fs::File::options().write(true).open("/dev/full").unwrap();
        command(&place, arguments).stderr(full()).output().unwrap().status.code()
    };
    assert_eq!(full(&["validate", "absent.yaml"]), Some(2));
    // Prints notes while it works.
    assert_eq!(full(&["run", "small.yaml", "--out", "again", "-vv", "--backend", "simulate"]), Some(0));
    assert_eq!(full(&["export", "run", "--format", "graph"]), Some(0));
    fs::remove_file(place.path("run/facts/p0-1.facts")).unwrap();
    assert_eq!(full(&["explain", "run"]), Some(0));
    assert_eq!(full(&["report", "run"]), Some(0));
}

#[test]
fn limits_of_the_machine_are_named_with_status_3() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.faultline(["run", "small.yaml", "--backend", "simulate", "--out", "run"]).assert().code(0);
    place.write("graph.edges", "a b 5\nb c 6\n");
    let limited = |limit: &str, arguments: &str| {
        let script = format!("ulimit {limit}; exec \"$0\" {arguments}");
        let mut shell = Command::new("sh");
        shell.current_dir(place.dir()).args(["-c", &script]).arg(env!("CARGO_BIN_EXE_faultline"));
        let output = shell.env("NO_COLOR", "1").output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{limit} {arguments}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    let files = limited("-n 20", "run small.yaml -q");
    assert!(files.contains("may open only 20 files") && files.contains("`ulimit -n`"), "{files}");
    let sizes = limited("-f 4", "run small.yaml --backend simulate -q --out large");
    assert!(sizes.contains("File too large") && sizes.contains("`ulimit -f`"), "{sizes}");
    let sizes = limited("-f 16", "run small.yaml -q --out real");
    assert!(sizes.contains("File too large") && sizes.contains("`ulimit -f`"), "{sizes}");
    for arguments in [
        "report run --to page.html",
        "sweep small.yaml --set protocol.hc3i.checkpointEvery=1s,2s --out sweep",
    ] {
        let sizes = limited("-f 4", arguments);
        assert!(sizes.contains("File too large") && sizes.contains("`ulimit -f`"), "{arguments}: {sizes}");
    }
    assert!(!place.path("page.html").exists());
    let kibibytes = fs::metadata(env!("CARGO_BIN_EXE_faultline")).unwrap().len() / 1024 + (32 << 10);
    let addresses = limited(&format!("-v {kibibytes}"), "fuzz --runs 20");
    assert!(addresses.contains("address space") && addresses.contains("`ulimit -v`"), "{addresses}");
}

#[test]
fn a_full_disk_is_named_with_status_3_and_old_pages_stay() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.write("graph.edges", "a b 5\nb c 6\n");
    fs::create_dir(place.path("disk")).unwrap();
    // A disk in its own mount namespace, which disappears when the shell exits.
    let within = |script: &str| {
        let mut shell = Command::new("unshare");
        shell.current_dir(place.dir()).args(["--map-root-user", "--mount", "sh", "-c"]);
        shell.arg(format!("mount -t tmpfs -o size=4m none disk || exit 99; {script}"));
        shell.env("NO_COLOR", "1").env("FAULTLINE", env!("CARGO_BIN_EXE_faultline")).output()
    };
    if !within("exit 0").is_ok_and(|it| it.status.success()) {
        eprintln!("SKIPPED: no disk can be mounted here (requires root or user namespaces)");
        return;
    }
    let script = "
        $FAULTLINE run small.yaml --backend simulate -q --out disk/run; echo \"run: $?\"
        $FAULTLINE report disk/run; cp disk/run/report.html page; mkdir disk/clusters disk/sweep
        dd if=/dev/zero of=disk/zeros bs=4k 2> /dev/null
        $FAULTLINE report disk/run; echo \"report: $?\"
        cmp page disk/run/report.html && echo same
        $FAULTLINE cluster graph.edges --out disk/clusters; echo \"cluster: $?\"
        $FAULTLINE sweep small.yaml --set protocol.hc3i.checkpointEvery=1s,2s --out disk/sweep; echo \"sweep: $?\"";
    let output = within(script).unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), text(&output.stderr));
    for part in ["run: 0", "report: 3", "same", "cluster: 3", "sweep: 3"] {
        assert!(out.contains(part), "{part}: {out} {err}");
    }
    assert_eq!(err.matches("No space left on device").count(), 3, "{err}");
    assert_eq!(err.matches("free some space on that disk").count(), 3, "{err}");
}

#[test]
fn a_report_overwrites_only_reports() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(""));
    place.faultline(["run", "small.yaml", "--backend", "simulate", "--out", "run"]).assert().code(0);
    let refused = |to: &str, why: &str| {
        let before = fs::read(place.path(to)).ok();
        place.faultline(["report", "run", "--to", to]).assert().code(2).stderr(contains(why.to_owned()));
        assert_eq!(fs::read(place.path(to)).ok(), before);
    };
    place.write("notes.html", "<!DOCTYPE html>mine");
    let other = "is not part of a report";
    for evidence in ["run/federation.yaml", "run/manifest.json", "run/facts/p0-1.facts", "notes.html"] {
        refused(evidence, other);
    }
    refused("run/facts/p9-1.facts", "belongs to the record");
    fs::create_dir(place.path("pages")).unwrap();
    place.write("pages/page.svg", "<svg>mine</svg>");
    refused("pages/page.html", other);
    for page in ["page.html", "page.html", "other.html"] {
        place.faultline(["report", "run", "--to", page]).assert().code(0);
        assert!(place.path(page).with_extension("svg").exists());
        place.faultline(["report", "run"]).assert().code(0);
    }
    place.faultline(["check", "run", "-q"]).assert().code(0);
}

#[test]
fn an_input_without_end_is_refused() {
    let place = TestDirectory::new();
    let endless = contains("it is longer than 256 MiB");
    for arguments in [["validate", "/dev/zero"], ["cluster", "/dev/zero"]] {
        place.faultline(arguments).assert().code(2).stderr(endless.clone());
    }
    let mut validate = command(&place, &["validate", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = validate.stdin.take().unwrap();
    // Ends when the command closes its end of the pipe.
    while input.write_all(&[b'#'; 1 << 16]).is_ok() {}
    let output = validate.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(endless.eval(&text(&output.stderr)), "{}", text(&output.stderr));
}

#[test]
fn a_terminal_that_is_closed_ends_a_run_like_a_signal_to_end_it() {
    let place = TestDirectory::new();
    place.write("long.yaml", endless());
    // Whatever started the tests may ignore the signal.
    let mut run = Command::new("env");
    run.current_dir(place.dir()).args(["--default-signal=HUP", env!("CARGO_BIN_EXE_faultline")]);
    run.args(["run", "long.yaml", "-q", "--out", "run"]).stdin(Stdio::null());
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_begun(&place, "run");
    signal(&run, "HUP");
    assert_eq!(run.wait().unwrap().code(), Some(3));
    assert_eq!(place.processes(), [] as [String; 0]);
    place.faultline(["check", "run"]).assert().code(3).stdout(contains("the run was interrupted"));

    // `nohup` starts programs that ignore the signal.
    let mut nohup = Command::new("nohup");
    nohup.current_dir(place.dir()).arg(env!("CARGO_BIN_EXE_faultline"));
    nohup.args(["run", "long.yaml", "-q", "--out", "kept"]).stdin(Stdio::null());
    let mut run = nohup.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_begun(&place, "kept");
    signal(&run, "HUP");
    signal(&run, "TERM");
    let mut out = String::new();
    run.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(3));
    place.faultline(["check", "kept"]).assert().code(3).stdout(contains("the run was interrupted"));
}

#[test]
fn a_store_that_is_removed_during_a_run_is_named_as_the_reason() {
    let place = TestDirectory::new();
    let faults = CRASH.replace("600ms", "1200ms");
    place.write("small.yaml", small(&faults).replace("steps: 60", "steps: 150"));
    let run = command(&place, &["run", "small.yaml", "-q", "--out", "run"]).spawn().unwrap();
    wait_until_begun(&place, "run");
    fs::remove_dir_all(place.path("run/nodes/lyon-1/store")).unwrap();
    let output = run.wait_with_output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{out} {err}");
    assert!(out.contains("UNKNOWN") && !out.contains("FAIL"), "{out}");
    assert!(err.contains("lyon-1 ended unexpectedly") && err.contains("storage"), "{err}");
}
