//! Where the time of a whole run went.

use std::collections::BTreeSet;

use faultline_core::{Fact, Span};
use faultline_report::{DisplayNames, TimeByActivity, Timeline};
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
    let federation =
        faultline_api::parse("accounts.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}"));
    Session::new(&federation).seed(1).simulate(&mut Simulator::new(&mut ())).unwrap()
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
    let names = DisplayNames::new(&recording.manifest);
    for cluster in names.clusters() {
        let time = TimeByActivity::of(cluster, &timeline, &recording.trace, &names);
        assert!(
            (time.working_seconds - 600.0).abs() < 1e-6,
            "two processes compute for 300 s each: {time:?}"
        );
    }
}
