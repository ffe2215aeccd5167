//! A run in memory and its record are judged alike: under correct code, under code with a defect, and with facts that
//! contradict each other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use faultline_catalog::Defect;
use faultline_checker::{Strictness, Verdict};
use faultline_core::{Life, ProcessId};
use faultline_fuzz::{Scenario, run};
use faultline_session::{Recording, UnjudgedRecording};
use faultline_trace::{Bundle, Manifest};

/// Asserts that the schedules of the first seeds are judged alike in memory and from their records. Returns the numbers
/// of runs that passed, were unknown and failed, and the number of records that contradict themselves.
fn judged_alike(seeds: u64) -> ([u32; 3], u32) {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    let defects: Vec<Defect> = Defect::all().collect();
    let (mut verdicts, mut contradictory) = ([0; 3], 0);
    for seed in 0..seeds {
        let defect = (seed % 2 == 1).then(|| defects[seed as usize % defects.len()]);
        let scenario = Scenario::new(seed, None, defect);
        let federation = scenario.to_yaml();
        // Some defects make the code panic.
        let Ok(trial) = catch_unwind(AssertUnwindSafe(|| run(scenario).unwrap())) else { continue };
        let manifest = Manifest { federation, ..trial.manifest.clone() };
        let mut unjudged = UnjudgedRecording { manifest, trace: trial.trace.clone() };
        let in_memory = if seed % 10 == 0 {
            // The record no longer states the end of the run.
            unjudged.trace.streams.get_mut(&(ProcessId::SUPERVISOR, Life(0))).unwrap().pop();
            let Recording { judgement, trace, .. } = unjudged.clone().judge_as(Strictness::Strict);
            (judgement, trace.flaws)
        } else {
            (trial.judgement, trial.trace.flaws)
        };
        let bundle = Bundle::create(&dir).unwrap();
        unjudged.write(&bundle).unwrap();
        let read = UnjudgedRecording::read(&bundle).unwrap().judge_as(Strictness::Strict);
        verdicts[read.judgement.verdict as usize] += 1;
        contradictory += u32::from(!read.trace.flaws.is_empty());
        assert_eq!((read.judgement, read.trace.flaws), in_memory, "seed {seed}, {defect:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
    ([Verdict::Pass, Verdict::Unknown, Verdict::Fail].map(|it| verdicts[it as usize]), contradictory)
}

#[test]
fn schedules_are_judged_alike_in_memory_and_from_their_records() {
    let (verdicts, contradictory) = judged_alike(100);
    assert!(verdicts.iter().all(|&it| it > 0) && contradictory > 0, "{verdicts:?}, {contradictory}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn a_thousand_schedules_are_judged_alike_in_memory_and_from_their_records() {
        let ([passed, unknown, failed], contradictory) = judged_alike(1000);
        assert!(passed > 300 && unknown > 50 && failed > 50, "{passed}, {unknown}, {failed}");
        assert!(contradictory > 50, "{contradictory} contradictory records");
    }
}
