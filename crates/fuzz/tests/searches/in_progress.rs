//! Pages of runs in progress: they can be derived from any part of a run's facts, and know the end of a run that completed.

use faultline_core::Time;
use faultline_core::fault::Outcome;
use faultline_fuzz::{ProtocolName, Scenario, run};
use faultline_history::Standing;
use faultline_report::now::Progressing;
use faultline_report::page::live::Update;
use faultline_trace::{Manifest, Trace};

/// Returns what is known of a run at a time. The files of some processes are read later than those of others.
fn known(trace: &Trace, upto: Time, seed: u64) -> Trace {
    let mut known = trace.clone();
    for (&(process, _), stream) in &mut known.streams {
        let later = (u64::from(process.0) ^ seed) % 3 * 20_000_000;
        stream.retain(|(at, _)| at.0 <= upto.0 + later);
    }
    known.streams.retain(|_, stream| !stream.is_empty());
    known
}

#[test]
fn every_part_of_a_run_has_a_page() {
    let protocols: Vec<ProtocolName> = ProtocolName::all().collect();
    let (mut completed, mut sentences) = (0, 0);
    for (seed, protocol) in (0..300).zip(protocols.iter().copied().cycle()) {
        let trial = run(Scenario::new(seed, Some(protocol), None)).unwrap();
        let end = trial.trace.streams.values().filter_map(|it| it.last()).map(|it| it.0).max();
        let end = end.unwrap_or_default();
        let in_progress = Manifest { outcome: None, faults: Vec::new(), ..trial.manifest.clone() };
        for part in [0, 1, 3, 5, 7, 9] {
            let trace = known(&trial.trace, Time(end.0 / 10 * part), seed);
            let run = Progressing::new(&trace, &in_progress, &[]);
            assert!(run.now.sentence.ends_with('.'), "{protocol:?}, seed {seed}: {}", run.now.sentence);
            sentences += usize::from(!run.now.sentence.starts_with("The application runs"));
            let update = Update::new(&run, &in_progress);
            assert!(update.diagram.starts_with('{') && update.now.contains("states"), "seed {seed}");
        }
        if trial.manifest.outcome != Some(Outcome::Completed) {
            continue;
        }
        completed += 1;
        let now = Progressing::new(&trial.trace, &in_progress, &[]).now;
        let has_ended = |it: Standing| {
            matches!(it, Standing::Finished | Standing::Absent | Standing::Up | Standing::Down)
        };
        let is_known = now.states.iter().all(|it| has_ended(Standing::ALL[usize::from(*it)]));
        assert!(is_known, "{protocol:?}, seed {seed}: {now:?}");
    }
    assert!(completed > 150 && sentences > 300, "{completed} runs completed; {sentences} sentences");
}
