//! Tampers with the records of simulated runs: no altered record passes, and the verdict gives the expected reason.

pub(crate) mod attacks;
mod columns;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use attacks::{Attack, attacks, copy};
use faultline_api::samples::sample;
use faultline_checker::Verdict;
use faultline_session::{Recording, Session, Simulator};
use faultline_trace::Bundle;

/// Returns the verdict on a record and its reasons. If the record cannot be read, returns `error` and the
/// reason.
fn judged(dir: &Path) -> (&'static str, Vec<String>) {
    match Recording::read(&Bundle::open(dir)) {
        Err(error) => ("error", vec![error.to_string()]),
        Ok(Recording { judgement, .. }) => match judgement.verdict {
            Verdict::Pass => ("pass", judgement.reasons),
            Verdict::Unknown => ("unknown", judgement.reasons),
            Verdict::Fail => ("fail", judgement.reasons),
        },
    }
}

/// Tries all attacks on the record of a simulated sample. If `FAULTLINE_TABLE` is set, writes the results to a file
/// whose name begins with its value.
fn withstands(name: &str) {
    let text = sample(name).expect("there is such a sample").text;
    let federation = faultline_api::parse("sample.yaml", text.as_bytes()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let bundle = Bundle::create(&run).unwrap();
    let session = Session::new(&federation).of_text(text, UNIX_EPOCH);
    session.record(&bundle, &mut Simulator::new(&mut ())).unwrap();
    assert_eq!(judged(&run), ("pass", vec![]), "{name}");

    let (mut passed, mut untold, mut rows) = (Vec::new(), Vec::new(), String::new());
    let all = attacks(&run);
    let mut verdicts: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, Attack { name: attack, told, act }) in all.iter().enumerate() {
        let dir = place.path().join(format!("attacked-{number}"));
        copy(&run, &dir);
        act.on(&dir);
        let (verdict, reasons) = judged(&dir);
        let why = reasons.first().map_or("", String::as_str);
        writeln!(rows, "{name} | {attack} | {verdict} | {why}").unwrap();
        *verdicts.entry(verdict).or_default() += 1;
        if verdict == "pass" {
            passed.push(attack);
        }
        let is_told = told.iter().any(|told| reasons.iter().any(|it| it.contains(told)));
        if verdict != "error" && !told.is_empty() && !is_told {
            untold.push(format!("{attack}: {reasons:?}"));
        }
        fs::remove_dir_all(&dir).unwrap();
    }
    if let Ok(path) = std::env::var("FAULTLINE_TABLE") {
        fs::write(format!("{path}-{name}"), rows).unwrap();
    }
    println!("{name}: {} attacks, {verdicts:?}", all.len());
    assert!(all.len() > 60, "only {} attacks", all.len());
    assert!(passed.is_empty(), "{name} passes: {passed:#?}");
    assert!(untold.is_empty(), "{name} has other reasons: {untold:#?}");
}

#[test]
fn tampering_with_a_record_of_hc3i_is_detected() {
    withstands("quickstart");
}

mod long {
    use super::withstands;

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn tampering_with_a_record_of_hydee_is_detected() {
        withstands("hydee");
    }

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn tampering_with_a_record_of_pessimistic_logging_is_detected() {
        withstands("pessimistic-logging");
    }
}
