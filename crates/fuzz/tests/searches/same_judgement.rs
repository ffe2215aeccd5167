//! A run in memory and its record are judged alike, under correct code and under code with a defect.

use std::panic::{AssertUnwindSafe, catch_unwind};

use faultline_catalog::Defect;
use faultline_checker::{Strictness, Verdict};
use faultline_fuzz::{Scenario, run};
use faultline_session::UnjudgedRecording;
use faultline_trace::{Bundle, Manifest};

#[test]
fn schedules_are_judged_alike_in_memory_and_from_their_records() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    let defects: Vec<Defect> = Defect::all().chain(Defect::mutations()).collect();
    let (mut verdicts, mut contradictory) = ([0; 3], 0);
    for seed in 0..1000 {
        let defect = (seed % 2 == 1).then(|| defects[seed as usize % defects.len()]);
        let protocol = defect.map(|it| it.run_by()[0].parse().unwrap());
        let scenario = Scenario::new(seed, protocol, defect);
        let federation = scenario.to_yaml();
        // Some defects make the code panic.
        let Ok(trial) = catch_unwind(AssertUnwindSafe(|| run(scenario).unwrap())) else { continue };
        let bundle = Bundle::create(&dir).unwrap();
        let manifest = Manifest { federation, ..trial.manifest.clone() };
        UnjudgedRecording { manifest, trace: trial.trace.clone() }.write(&bundle).unwrap();
        let read = UnjudgedRecording::read(&bundle).unwrap().judge_as(Strictness::Strict);
        assert_eq!(read.judgement, trial.judgement, "seed {seed}, {defect:?}");
        assert_eq!(read.trace.flaws, trial.trace.flaws, "seed {seed}, {defect:?}");
        verdicts[trial.judgement.verdict as usize] += 1;
        contradictory += u32::from(!trial.trace.flaws.is_empty());
        std::fs::remove_dir_all(&dir).unwrap();
    }
    let [passed, unknown, failed] =
        [Verdict::Pass, Verdict::Unknown, Verdict::Fail].map(|it| verdicts[it as usize]);
    assert!(passed > 300 && unknown > 50 && failed > 50, "{passed}, {unknown}, {failed}");
    assert!(contradictory > 0, "no facts contradict each other");
}
