//! Tests that tampering with records is detected, and that commands handle damaged records without panicking.

#[path = "../../../session/tests/sessions/evidence/attacks.rs"]
mod attacks;

use std::fs;

use crate::common::{CRASH, TestDirectory, passes_but_for_links, small};
use attacks::{Act, Attack, attacks, copy};
use faultline_core::{Fact, ProcessId, Span};
use faultline_trace::manifest::BackendKind;
use faultline_trace::{Bundle, SealedBy};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

/// The maximum number of runs to try until the links are as requested. On a busy machine, a single run may not suffice.
const ATTEMPTS: u32 = 5;

/// Returns the verdict of `check` on a record and the reasons for the verdict, or `error` and the error
/// message.
fn check(place: &TestDirectory, dir: &str) -> (&'static str, Vec<String>) {
    let output = place.faultline(["check", dir, "--format", "json"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!errors.contains("panicked"), "{errors}");
    let verdict = match output.status.code() {
        Some(0) => "pass",
        Some(1) => "fail",
        Some(2) => return ("error", vec![errors]),
        Some(3) => "unknown",
        other => panic!("{other:?}: {errors}"),
    };
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reasons = json["reasons"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned());
    (verdict, reasons.collect())
}

#[test]
fn a_record_of_another_program_says_which_program_can_judge_it() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.faultline(["run", "small.yaml", "--backend", "simulate", "--out", "run", "-q"]).assert().code(0);
    let bundle = Bundle::open(place.path("run"));
    let mut manifest = bundle.read_manifest().unwrap();
    let mut federation = faultline_api::parse("federation.yaml", manifest.federation.as_bytes()).unwrap();
    federation.spec.protocol =
        faultline_api::resource::ProtocolSpec::Custom(faultline_api::resource::Custom {
            name: "zigzag".to_owned(),
            parameters: serde_json::Map::new(),
        });
    manifest.federation = faultline_api::to_yaml(&federation);
    bundle.write_manifest(&manifest).unwrap();
    let (verdict, reasons) = check(&place, "run");
    assert_eq!(verdict, "unknown");
    let missing = "federation.yaml cannot be used: this program does not contain the protocol `zigzag`";
    let remedy = "run the program that was built with `zigzag`";
    let names = |it: &String| it.contains(missing) && it.contains(remedy);
    assert!(reasons.iter().any(names), "{reasons:?}");
}

#[test]
fn tampering_with_a_sealed_record_of_real_processes_is_detected() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    let passes = |attempt: u32| {
        if attempt > 0 {
            fs::remove_dir_all(place.path("run")).unwrap();
        }
        let run =
            place.faultline(["run", "small.yaml", "--out", "run", "--format", "json"]).output().unwrap();
        passes_but_for_links(&serde_json::from_slice(&run.stdout).unwrap())
    };
    assert!((0..ATTEMPTS).any(passes), "this machine is too busy to emulate links");
    assert_eq!(check(&place, "run"), ("pass", vec![]));
    for entry in Bundle::open(place.path("run")).read_manifest().unwrap().facts {
        let seal = entry.seal.expect("every stream is sealed");
        let was_killed = (entry.process.0, entry.life.0) == (1, 1);
        let by = if was_killed { SealedBy::Supervisor } else { SealedBy::Process };
        assert_eq!((seal.by, seal.incomplete), (by, false), "{} {}", entry.process, entry.life);
    }
    for (number, Attack { name, told, act }) in attacks(&place.path("run")).iter().enumerate() {
        let dir = format!("attacked-{number}");
        copy(&place.path("run"), &place.path(&dir));
        act.on(&place.path(&dir));
        let (verdict, reasons) = check(&place, &dir);
        assert_ne!(verdict, "pass", "{name}");
        let is_told = told.iter().any(|told| reasons.iter().any(|it| it.contains(told)));
        assert!(is_told || told.is_empty() || verdict == "error", "{name}: {reasons:?}");
    }
}

/// Asserts that damaged records can be explained, drawn and exported. Tries each attack whose number is a multiple of
/// `step`.
fn assert_that_damaged_records_are_shown(step: usize) {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.faultline(["run", "small.yaml", "--backend", "simulate", "--out", "run", "-q"]).assert().code(0);
    for (number, Attack { name, act, .. }) in attacks(&place.path("run")).iter().enumerate().step_by(step) {
        let dir = format!("attacked-{number}");
        copy(&place.path("run"), &place.path(&dir));
        act.on(&place.path(&dir));
        let is_readable = check(&place, &dir).0 != "error";
        for command in [&["explain"][..], &["report"], &["export", "--format", "csv"]] {
            let arguments = command.iter().copied().chain([dir.as_str()]);
            let output = place.faultline(arguments).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(!errors.contains("panicked"), "{name}, {command:?}: {errors}");
            let expected = if is_readable { 0 } else { 2 };
            assert_eq!(output.status.code(), Some(expected), "{name}, {command:?}: {errors}");
        }
    }
}

#[test]
fn damaged_records_can_be_explained_drawn_and_exported() {
    assert_that_damaged_records_are_shown(10);
}

#[test]
fn a_record_without_a_stream_or_its_end_is_described_as_far_as_it_goes() {
    let place = TestDirectory::new();
    let sample = place.faultline(["samples", "quickstart"]).output().unwrap().stdout;
    place.write("quickstart.yaml", String::from_utf8(sample).unwrap());
    let run = ["run", "quickstart.yaml", "--backend", "simulate", "--out", "run", "-q"];
    place.faultline(run).assert().code(0);
    let explained = |dir: &str| {
        let output = place.faultline(["explain", dir]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    let ages = |text: &str| -> Vec<String> {
        let each =
            text.split("(saved ").skip(1).filter_map(|it| Some(it.split_once(" before")?.0.to_owned()));
        each.collect()
    };
    let whole = ages(&explained("run"));
    assert_eq!(whole, ["2.09 s", "318 ms", "1.84 s", "2.13 s"]);
    for entry in Bundle::open(place.path("run")).read_manifest().unwrap().facts {
        for keeps_half in [false, true] {
            let dir = "changed";
            copy(&place.path("run"), &place.path(dir));
            let path = Bundle::open(place.path(dir)).facts_path(entry.process, entry.life);
            let case = format!("{}, {}, {keeps_half}", entry.process, entry.life);
            if keeps_half {
                let bytes = fs::read(&path).unwrap();
                fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            let output = place.faultline(["check", dir, "--format", "json"]).output().unwrap();
            let json: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!((output.status.code(), &json["verdict"]), (Some(3), &"unknown".into()), "{case}");
            let reasons = json["reasons"].as_array().unwrap();
            assert_eq!(reasons.len(), 1, "{case}: {reasons:?}");
            let missing = reasons[0].as_str().unwrap().matches("missing").count();
            assert!(missing <= 1, "{case}: {reasons:?}");
            let properties = json["properties"].as_array().unwrap();
            assert!(properties.iter().all(|it| it["violationCount"] == 0), "{case}");
            let text = explained(dir);
            for claim in ["had not delivered", "did not reach", "no work was lost", " due.", "There were no"]
            {
                assert!(!text.contains(claim), "{case}, {claim}: {text}");
            }
            if entry.process != ProcessId::SUPERVISOR {
                assert!(ages(&text).iter().all(|it| whole.contains(it)), "{case}: {text}");
            }
            fs::remove_dir_all(place.path(dir)).unwrap();
        }
    }
}

#[test]
fn a_repeated_simulation_reveals_edits_that_nothing_else_reveals() {
    let place = TestDirectory::new();
    place.write("small.yaml", small(CRASH));
    place.faultline(["run", "small.yaml", "--backend", "simulate", "--out", "run", "-q"]).assert().code(0);
    place.faultline(["check", "run", "--resimulate", "-q"]).assert().code(0);

    let delayed = Act::Resealed(Box::new(|_, trace| {
        let facts = trace.streams.values_mut().flat_map(|stream| stream.iter_mut());
        let mut detected = facts.filter(|(_, fact)| matches!(fact, Fact::Detected { .. }));
        let (at, _) = detected.next().expect("a process was killed");
        *at += Span(1);
    }));
    delayed.on(&place.path("run"));
    place.faultline(["check", "run", "-q"]).assert().code(0);
    let repeated = place.faultline(["check", "run", "--resimulate", "-q"]).assert().code(3);
    repeated.stdout(contains("the facts of the supervisor differ from those of a repeated simulation"));

    let relabelled = Act::Resealed(Box::new(|manifest, _| manifest.backend = BackendKind::Local));
    relabelled.on(&place.path("run"));
    let refused = place.faultline(["check", "run", "--resimulate"]).assert().code(2);
    refused.stderr(contains("the run was not simulated").and(contains("omit `--resimulate`")));
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn every_damaged_record_can_be_explained_drawn_and_exported() {
        assert_that_damaged_records_are_shown(1);
    }
}
