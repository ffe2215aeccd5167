//! Where the time of a whole run went.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use faultline_api::samples::SAMPLES;
use faultline_core::{ClusterId, Fact, Span};
use faultline_history::TimePart;
use faultline_report::Timeline;
use faultline_session::{Session, Simulator, UnjudgedRecording};

/// The processes of each cluster compute for 300 s each, and save their state while a computation runs.
const TEXT: &str = "
apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: { name: accounts }
spec:
  clusters: [{ name: a, nodes: 2 }, { name: b, nodes: 2 }]
  links: { within: { preset: san }, between: { latency: 1ms, bandwidth: 10Gbit } }
  storage: { kind: disk, writeBandwidth: 32MB, latency: 1ms }
  protocol: { coordinated: { checkpointEvery: 20s, replicas: 0 } }
  application: { heat: { steps: 300, stepTime: 1s, feedbackEvery: 1, state: 64MiB } }
  failures: { detectAfter: 2s, restartAfter: 4s }
  faults: [{ at: 50.3s, crash: { cluster: a } }, { at: 170.8s, crash: { cluster: b } }]
  deadline: 1h
  simulator: { exitNotice: never }
";

fn recorded(text: &str) -> UnjudgedRecording {
    recorded_with(text, 1)
}

fn recorded_with(text: &str, seed: u64) -> UnjudgedRecording {
    let federation =
        faultline_api::parse("accounts.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
    Session::new(&federation).seed(seed).simulate(&mut Simulator::new(&mut ())).unwrap()
}

#[test]
fn a_survivor_loses_no_work_after_it_learned_of_the_failure() {
    let recording = recorded(TEXT);
    let timeline = Timeline::new(&recording.trace, &recording.manifest);
    assert_eq!(timeline.rollbacks.len(), 4, "each failure affects both clusters");
    let mut survived = 0;
    for rollback in &timeline.rollbacks {
        let failure = timeline.failures.iter().rfind(|it| it.at < rollback.ended).expect("it failed before");
        let informed = failure.detected.expect("the failure was detected") + Span::from_millis(2);
        for (process, member) in rollback.members.iter().filter(|(it, _)| **it != failure.process) {
            survived += 1;
            let worked = informed.since(member.saved.expect("the state was saved"));
            assert!(member.lost <= worked, "{process} lost {}, but worked for {worked}", member.lost);
        }
    }
    assert_eq!(survived, 2 * 3);
}

#[test]
fn a_checkpoint_costs_the_messages_that_are_saved_with_it() {
    for (protocol, logs) in [
        ("{ coordinated: { checkpointEvery: 20s } }", false),
        ("{ hc3i: { checkpointEvery: 20s, collectEvery: never } }", true),
        ("{ hydee: { checkpointEvery: 20s } }", true),
        ("{ pessimisticLogging: { checkpointEvery: 20s } }", true),
        ("{ independent: { checkpointEvery: 20s, collectEvery: never } }", true),
    ] {
        let text = TEXT.replace("{ coordinated: { checkpointEvery: 20s, replicas: 0 } }", protocol);
        let lengths: BTreeSet<u64> =
            recorded(&text).trace.records().filter_map(|it| saved(&it.fact)).collect();
        let grown = lengths.last().zip(lengths.first()).map_or(0, |(most, least)| most - least);
        assert_eq!(grown > 10_000, logs, "{protocol}: {lengths:?}");
    }
}

fn saved(fact: &Fact) -> Option<u64> {
    match fact {
        Fact::Saved(saved) => Some(saved.2),
        _ => None,
    }
}

#[test]
fn faults_drawn_from_a_distribution_strike_until_the_end() {
    let (faults, end) = TEXT.split_once("  faults:").expect("the file has faults");
    let (_, end) = end.split_once('\n').expect("more follows");
    let drawn =
        format!("{faults}  faults: [{{ mtbf: {{ exponential: 60s }}, crash: {{ cluster: any }} }}]\n{end}");
    let recording = recorded(&drawn);
    let refused = |it: &&Fact| matches!(it, Fact::Ineffective { reason, .. } if reason.contains("left"));
    assert_eq!(recording.trace.supervisor().iter().map(|(_, fact)| fact).find(refused), None);
}

/// A computation shares the fate of its end, although the process saves its state while it computes.
#[test]
fn surviving_computations_last_as_long_as_without_failures() {
    let recording = recorded(TEXT);
    let timeline = Timeline::new(&recording.trace, &recording.manifest);
    for cluster in [0, 1].map(ClusterId) {
        let time = timeline.ledger.cluster(cluster);
        assert_eq!(time.of(TimePart::Working), Span::from_secs(600), "two processes compute for 300 s each");
        assert!(time.of(TimePart::Frozen) > Span::ZERO);
    }
}

/// Asserts that the parts of every process of every sample add up to its window, with each of these seeds.
fn assert_that_parts_add_up(seeds: RangeInclusive<u64>) {
    for sample in SAMPLES.iter().filter(|it| it.name != "paper-2x100") {
        for seed in seeds.clone() {
            let recording = recorded_with(sample.text, seed);
            let ledger = Timeline::new(&recording.trace, &recording.manifest).ledger;
            assert_eq!(ledger.processes.len(), recording.manifest.ranks().count(), "{}", sample.name);
            for it in &ledger.processes {
                let (from, upto) = it.window;
                assert_eq!(it.time.total(), upto.since(from), "{} {seed}: {}", sample.name, it.process);
            }
            let time = ledger.total();
            let restored = recording.trace.records().any(|it| matches!(it.fact, Fact::Restored(_)));
            assert!(time.ettr().is_some_and(|it| it > 0.1), "{} {seed}: {time:?}", sample.name);
            assert!(time.of(TimePart::Undone) == Span::ZERO || restored, "{} {seed}: {time:?}", sample.name);
        }
    }
}

#[test]
fn the_parts_of_every_process_add_up_to_its_window() {
    assert_that_parts_add_up(1..=1);
}

mod long {
    #[test]
    #[ignore = "long: run by the step `long tests` of .ci/run"]
    fn the_parts_of_every_process_add_up_to_its_window_with_other_seeds() {
        super::assert_that_parts_add_up(2..=3);
    }
}
