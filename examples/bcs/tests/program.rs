//! Tests the program that contains the protocol.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Runs a command in a directory with the federation file of the example. Its exit status must be one of `codes`.
fn run(place: &TempDir, codes: &[i32], arguments: &[&str]) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("federation.yaml");
    fs::copy(file, place.path().join("federation.yaml")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bcs"));
    let Output { status, stdout, stderr } = command.args(arguments).current_dir(place).output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.code().is_some_and(|it| codes.contains(&it)), "{arguments:?}: {status}\n{out}{error}");
    format!("{out}{error}")
}

#[test]
fn it_recovers_in_virtual_time() {
    let place = tempfile::tempdir().unwrap();
    run(&place, &[0], &["run", "federation.yaml", "--backend", "simulate", "--out", "simulated", "--record"]);
    run(&place, &[0], &["replay", "simulated"]);
    let said = run(&place, &[0], &["explain", "simulated"]);
    assert!(said.contains("rolled back"), "{said}");
}

#[test]
fn it_recovers_on_real_processes() {
    let place = tempfile::tempdir().unwrap();
    // The exit status is 3 if the machine is too busy to emulate the links as requested.
    run(&place, &[0, 3], &["run", "federation.yaml", "--out", "real", "--record"]);
    run(&place, &[0], &["replay", "real"]);
}

#[test]
fn it_is_compared_with_built_in_protocols() {
    let place = tempfile::tempdir().unwrap();
    let protocols = ["--protocols", "bcs,independent,coordinated"];
    let said = run(&place, &[0], &[&["compare", "federation.yaml", "--seeds", "2"][..], &protocols].concat());
    assert!(said.contains("bcs") && said.contains("independent"), "{said}");
}

#[test]
fn a_defect_is_found_and_shrunk() {
    let place = tempfile::tempdir().unwrap();
    let search =
        ["fuzz", "--protocol", "bcs", "--set", "defect=noForcing", "--runs", "300", "--out", "found"];
    let said = run(&place, &[1], &search);
    assert!(said.contains("every delivered message was sent"), "{said}");
    run(&place, &[1], &["run", "found/federation.yaml", "--backend", "simulate", "--out", "again"]);
}

#[test]
fn a_panic_and_virtual_time_that_stands_still_are_violations() {
    let place = tempfile::tempdir().unwrap();
    for (defect, stated, happened) in [
        ("deliversWhileHeld", "no process panicked", " while it handled "),
        ("timeoutInThePast", "virtual time advanced", "virtual time stopped advancing at "),
    ] {
        let (found, set) = (format!("found-{defect}"), format!("defect={defect}"));
        let said = run(&place, &[1], &["fuzz", "--protocol", "bcs", "--set", &set, "--out", &found]);
        assert!(said.contains(stated) && said.contains(happened), "{said}");
        let again = run(&place, &[1], &["fuzz", "--file", &format!("{found}/federation.yaml")]);
        assert!(again.contains(happened), "{again}");
        let text = fs::read_to_string(place.path().join("federation.yaml")).unwrap();
        let text = text.replace("name: bcs,", &format!("name: bcs, defect: {defect},"));
        let text = text.replace("nodes: 3", "nodes: 1").replace("lyon, node: 1", "lyon, node: 0");
        let explored = format!("{defect}.yaml");
        fs::write(place.path().join(&explored), text).unwrap();
        let record = format!("explored-{defect}");
        let explore =
            ["explore", "--file", &explored, "--messages", "1", "--overtakings", "1", "--out", &record];
        let said = run(&place, &[1], &explore);
        assert!(said.contains(happened) && !said.contains("RUST_BACKTRACE"), "{said}");
        for record in [found, record] {
            assert!(run(&place, &[1], &["check", &record]).contains(happened));
            assert!(run(&place, &[0], &["explain", &record]).contains(happened.trim()));
            run(&place, &[0], &["report", &record]);
        }
    }
}

#[test]
fn a_panic_is_a_violation_on_real_processes() {
    let place = tempfile::tempdir().unwrap();
    run(&place, &[0], &["validate", "federation.yaml"]);
    let text = fs::read_to_string(place.path().join("federation.yaml")).unwrap();
    let text = text.replace("custom: { name: bcs,", "custom: { name: bcs, defect: deliversWhileHeld,");
    fs::write(place.path().join("panics.yaml"), text).unwrap();
    for backend in ["local", "simulate"] {
        // On real processes, whether a message arrives while the application is held depends on their timing.
        let panics = (0..20).map(|attempt| format!("{backend}-{attempt}")).find(|out| {
            let said = run(&place, &[0, 1, 3], &["run", "panics.yaml", "--backend", backend, "--out", out]);
            said.contains("FAIL") && said.contains(" panicked at ")
        });
        let out = panics.expect("one of the runs panics");
        let checked = run(&place, &[1], &["check", &out]);
        assert!(checked.contains(" while it handled ") && checked.contains(".rs:"), "{checked}");
    }
}

#[test]
fn random_schedules_are_clean() {
    let place = tempfile::tempdir().unwrap();
    run(&place, &[0], &["fuzz", "--protocol", "bcs", "--runs", "2000"]);
}

#[test]
fn the_schema_describes_the_parameters() {
    let place = tempfile::tempdir().unwrap();
    let schema = run(&place, &[0], &["schema"]);
    assert!(
        schema.contains("\"const\": \"bcs\"")
            && schema.contains("A message is delivered before the checkpoint"),
        "{schema}"
    );
}

#[test]
fn the_help_names_the_protocol() {
    let place = tempfile::tempdir().unwrap();
    for command in ["fuzz", "explore"] {
        let help = run(&place, &[0], &[command, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("This program also contains: bcs"), "{help}");
    }
}

#[test]
fn unknown_names_and_fields_are_reported() {
    let place = tempfile::tempdir().unwrap();
    run(&place, &[0], &["validate", "federation.yaml"]);
    let text = fs::read_to_string(place.path().join("federation.yaml")).unwrap();
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        fs::write(place.path().join("other.yaml"), text.replace(from, to)).unwrap();
        run(&place, &[2], &["validate", "other.yaml"])
    };
    let said = refused("custom: { name: bcs,", "custom: { name: zigzag,");
    assert!(said.contains("does not contain the protocol `zigzag`") && said.contains("only `bcs`"), "{said}");
    let said = refused("checkpointEvery: 500ms", "checkpointsEvery: 500ms");
    assert!(said.contains("unknown field `checkpointsEvery`"), "{said}");
    let said = refused("checkpointEvery: 500ms", "checkpointEvery: fast");
    assert!(said.contains("fast"), "{said}");
    let said = refused("heat: { steps: 150, feedbackEvery: 10, state: 64KiB }", "custom: { name: stencil }");
    assert!(said.contains("does not contain the application `stencil`"), "{said}");
}
