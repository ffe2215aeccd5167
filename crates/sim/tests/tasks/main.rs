//! Programs of tasks on federations in the simulator: whatever fails, the result equals that of the sequential
//! reference.

mod federation;

use faultline_core::fault::Outcome;
use faultline_core::{FactKind, Fault, ProcessId, Span, StorageFate, Time, Trigger};
use faultline_dataflow::Recovery;
use faultline_protocols::none::NoProtocol;
use faultline_protocols::placement::ReplicateTo;
use faultline_protocols::{satin, theft};

use federation::{Ended, Federation};

#[test]
fn without_faults_every_federation_computes_what_one_place_does() {
    let mut stolen = 0;
    for seed in 0..60 {
        let federation = Federation::random(seed, 0);
        let Ended { outcome, digests, thefts, .. } = federation.run::<NoProtocol>(());
        assert_eq!(outcome, Outcome::Completed, "seed {seed}");
        assert_eq!(digests, [federation.expected()], "seed {seed}");
        stolen += thefts;
    }
    assert!(stolen > 500, "work spreads: {stolen} thefts");
}

#[test]
fn without_fault_tolerance_the_first_failure_ends_the_run() {
    let mut federation = Federation::random(3, 0);
    let trigger = Trigger::When { fact: FactKind::Ran, cluster: None, process: None, occurrence: 3 };
    let fault = Fault::Crash { process: ProcessId(0), storage: StorageFate::Kept, returns: true };
    federation.faults.push((trigger, fault));
    let ended = federation.run::<NoProtocol>(());
    assert!(matches!(ended.outcome, Outcome::Unrecoverable { .. }), "{:?}", ended.outcome);
    assert!(ended.ended > Time::ZERO);
}

/// TIC with two replicas of each checkpoint in other clusters.
fn tic(seed: u64, defects: theft::Defects) -> theft::Config {
    theft::Config {
        tau: Span::from_millis(50),
        record: theft::Record::Graph,
        before_asking: seed.is_multiple_of(5),
        replicas: 2,
        replicate_to: ReplicateTo::OtherCluster,
        defects,
    }
}

/// SEL, otherwise the same.
fn sel(seed: u64, defects: theft::Defects) -> theft::Config {
    theft::Config { record: theft::Record::Events, ..tic(seed, defects) }
}

#[test]
fn tic_survives_whatever_fails() {
    survives_whatever_fails::<theft::TaskRecovery>(|seed| tic(seed, theft::Defects::default()));
}

#[test]
fn sel_survives_whatever_fails() {
    survives_whatever_fails::<theft::TaskRecovery>(|seed| sel(seed, theft::Defects::default()));
}

#[test]
fn satin_survives_whatever_fails() {
    survives_whatever_fails::<satin::Satin>(|_| satin::Config::default());
}

fn survives_whatever_fails<P: Recovery + Send + 'static>(config: impl Fn(u64) -> P::Config) {
    let (from, count) = seeds();
    let (mut failed, mut lost, mut absorbed, mut restored, mut thefts) = (Vec::new(), Vec::new(), 0, 0, 0);
    for seed in from..from + count {
        let federation = Federation::random(seed, 3);
        let ended = federation.run::<P>(config(seed));
        absorbed += ended.absorbed;
        restored += ended.restored;
        thefts += ended.thefts;
        if matches!(ended.outcome, Outcome::Unrecoverable { .. }) {
            lost.push(seed);
        }
        let is_right = ended.digests.iter().all(|it| *it == federation.expected());
        let ends = matches!(ended.outcome, Outcome::Completed | Outcome::Unrecoverable { .. });
        if !is_right || !ends {
            failed.push((seed, ended.outcome.clone(), is_right));
        }
    }
    assert!(thefts > 5 * count as usize && restored > 0 && absorbed > 0, "faults find something to do");
    assert!(lost.len() as u64 <= count / 20, "{} runs lost everything: {lost:?}", lost.len());
    assert!(failed.is_empty(), "{} of {count}: {:?}", failed.len(), &failed[..failed.len().min(20)]);
}

/// Returns the seeds to run. `FAULTLINE_SEEDS=FROM,COUNT` selects others.
fn seeds() -> (u64, u64) {
    let asked = std::env::var("FAULTLINE_SEEDS").ok();
    let numbers = asked.as_deref().and_then(|it| it.split_once(','));
    numbers.and_then(|(from, count)| Some((from.parse().ok()?, count.parse().ok()?))).unwrap_or((0, 300))
}

#[test]
fn a_restored_process_that_asks_nothing_stalls_the_run() {
    let defects = theft::Defects::only(theft::Defect::NoQuery);
    let stalls = |seed: &u64| {
        let federation = Federation::random(*seed, 3);
        federation.run::<theft::TaskRecovery>(tic(*seed, defects)).outcome == Outcome::Deadline
    };
    assert!((0..100).any(|seed| stalls(&seed)));
}

#[test]
#[should_panic(expected = "was worked for in two graphs")]
fn a_graph_that_is_absorbed_twice_is_noticed() {
    let defects = theft::Defects::only(theft::Defect::AbsorbedTwice);
    for seed in 0..300 {
        Federation::random(seed, 3).run::<theft::TaskRecovery>(tic(seed, defects));
    }
}
