//! Tests the program that contains the protocol.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Runs a command in a directory with the federation file of the example. Its exit status must be one of `codes`.
fn run(place: &TempDir, codes: &[i32], arguments: &[&str]) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("federation.yaml");
    fs::copy(file, place.path().join("federation.yaml")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sender-based"));
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
    let protocols = ["--protocols", "sender-based,pessimisticLogging"];
    let said = run(&place, &[0], &[&["compare", "federation.yaml", "--seeds", "2"][..], &protocols].concat());
    assert!(said.contains("sender-based") && said.contains("pessimisticLogging"), "{said}");
}

#[test]
fn a_defect_is_found_and_shrunk() {
    let place = tempfile::tempdir().unwrap();
    let search = [
        "fuzz",
        "--protocol",
        "sender-based",
        "--set",
        "defect=duplicatesAccepted",
        "--runs",
        "300",
        "--out",
        "found",
    ];
    let said = run(&place, &[1], &search);
    assert!(said.contains("no message was delivered twice"), "{said}");
    run(&place, &[1], &["run", "found/federation.yaml", "--backend", "simulate", "--out", "again"]);
}

#[test]
fn random_schedules_are_clean() {
    let place = tempfile::tempdir().unwrap();
    run(&place, &[0], &["fuzz", "--protocol", "sender-based", "--runs", "2000"]);
}
