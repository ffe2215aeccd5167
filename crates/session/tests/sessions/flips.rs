//! Bits are flipped: of a stored state, before its checksum is computed, of a message, or of a state in memory.

use faultline_api::Federation;
use faultline_checker::{Property, Verdict};
use faultline_core::fact::Flipped;
use faultline_core::{Fact, FactKind};
use faultline_history::Contradiction;
use faultline_session::{Recording, Session, Simulator};

/// A bit of a checkpoint of b-0 is flipped, and b-0 fails after a time that depends on the seed.
fn federation(verify: bool) -> Federation {
    const HC3I: &str = "hc3i: { checkpointEvery: 100ms, replicas: 1, replicateTo: otherCluster }";
    const HEAT: &str =
        "heat: { rows: 2, columns: 8, steps: 60, stepTime: 10ms, feedbackEvery: 5, state: 1KiB }";
    federation_of(HC3I, HEAT, verify, "mtbf: { exponential: 200ms }, flip: { cluster: b, node: 0 }")
}

fn federation_of(protocol: &str, application: &str, verify: bool, flip: &str) -> Federation {
    let text = format!(
        "apiVersion: faultline.dev/v1alpha1
kind: Federation
metadata: {{ name: flips }}
spec:
  clusters: [{{ name: a, nodes: 2 }}, {{ name: b, nodes: 2 }}]
  links: {{ between: {{ latency: 2ms }} }}
  storage: {{ latency: 1ms, verify: {verify} }}
  protocol: {{ {protocol} }}
  application: {{ {application} }}
  failures: {{ detectAfter: 30ms, restartAfter: 10ms }}
  faults:
    - {{ {flip} }}
    - {{ mtbf: {{ exponential: 300ms }}, crash: {{ cluster: b, node: 0 }} }}
  deadline: 20s
"
    );
    faultline_api::parse("flips.yaml", text.as_bytes()).unwrap_or_else(|it| panic!("{it}: {:?}", it.errors()))
}

fn run(federation: &Federation, seed: u64) -> Recording {
    Session::new(federation).seed(seed).simulate(&mut Simulator::new(&mut ())).unwrap().judge()
}

fn facts(recording: &Recording) -> impl Iterator<Item = &Fact> {
    recording.trace.streams.values().flatten().map(|(_, fact)| fact)
}

/// Returns whether a part with a flipped bit was restored, from the storage of any process.
fn was_restored(recording: &Recording) -> bool {
    let flipped = facts(recording).filter_map(|fact| match fact {
        Fact::Flipped(Flipped::Copy { name, .. }) => Some(*name),
        _ => None,
    });
    let flipped: Vec<_> = flipped.collect();
    facts(recording)
        .any(|fact| matches!(fact, Fact::Restored(it) if it.0.is_some_and(|it| flipped.contains(&it))))
}

#[test]
fn flipped_bits_never_change_a_result_if_storage_is_verified() {
    let federation = federation(true);
    let (mut restored, mut damaged) = (0, 0);
    for seed in 0..1000 {
        let recording = run(&federation, seed);
        let judgement = &recording.judgement;
        assert_eq!(
            judgement.of(Property::SameResult).violation_count(),
            0,
            "seed {seed}: {:?}",
            judgement.reasons
        );
        let nothing_struck = recording.is_without_fault(&federation);
        assert!(judgement.verdict == Verdict::Pass || nothing_struck, "seed {seed}: {:?}", judgement.reasons);
        restored += u32::from(was_restored(&recording));
        for fact in facts(&recording) {
            let Fact::Damaged(name) = fact else { continue };
            let is_flipped = |it: &Fact| matches!(it, Fact::Flipped(Flipped::Copy { name: flipped, .. }) if flipped == name);
            assert!(facts(&recording).any(is_flipped), "seed {seed}: {name}");
            damaged += 1;
        }
    }
    assert!(restored > 100, "{restored} runs restored a part of which another copy was damaged");
    assert!(damaged > 100, "{damaged} reads found a damaged part");
}

#[test]
fn a_run_that_restores_a_flipped_bit_is_unknown() {
    let federation = federation(false);
    let (mut restored, mut changed) = (0, 0);
    for seed in 0..200 {
        let recording = run(&federation, seed);
        let judgement = &recording.judgement;
        if was_restored(&recording) {
            restored += 1;
            assert_eq!(judgement.verdict, Verdict::Unknown, "seed {seed}: {:?}", judgement.reasons);
            assert!(
                judgement
                    .reasons
                    .iter()
                    .any(|it| it.contains("silent corruption may have reached the result"))
            );
        }
        changed += u32::from(judgement.of(Property::SameResult).violation_count() > 0);
    }
    assert!(
        restored > 40 && changed > 30,
        "{changed} of {restored} runs that restored a flipped bit have a wrong result"
    );
}

/// Otherwise, a forger could excuse every violation.
#[test]
fn a_flipped_bit_without_a_fault_contradicts_the_record() {
    let mut federation = federation(false);
    federation.spec.faults.remove(0);
    let recording = run(&federation, 1);
    let mut trace = recording.trace.clone();
    let stream =
        trace.streams.values_mut().find(|it| it.iter().any(|(_, fact)| matches!(fact, Fact::Saved(_))));
    let stream = stream.expect("a process saved its state");
    let saved = stream.iter().position(|(_, fact)| matches!(fact, Fact::Saved(_))).unwrap();
    let (at, Fact::Saved(part)) = stream[saved].clone() else { panic!("the fact states a saved part") };
    stream.insert(saved + 1, (at, Fact::Flipped(Flipped::Copy { name: part.0, is_checked: false })));
    let context = faultline_checker::Context::from_manifest(&recording.manifest);
    let history = faultline_checker::examined(faultline_checker::History::new(&trace, &context));
    let found = &history.contradictions;
    assert!(found.iter().any(|it| matches!(it, Contradiction::FlippedByNoFault(..))), "{found:?}");
}

/// Counts the runs of 100 seeds by verdict: passed, and without a verdict.
fn verdicts(federation: &Federation) -> (u32, u32) {
    let (mut passed, mut unknown) = (0, 0);
    for seed in 0..100 {
        let recording = run(federation, seed);
        let judgement = &recording.judgement;
        let has_flipped = facts(&recording).any(|it| it.kind() == FactKind::Flipped);
        let is_wrong = judgement.of(Property::SameResult).violation_count() > 0;
        match judgement.verdict {
            Verdict::Pass => {
                assert!(!is_wrong, "seed {seed}");
                passed += u32::from(has_flipped);
            }
            Verdict::Unknown => {
                let reason = judgement.reasons.first().expect("a verdict other than pass has a reason");
                let is_expected = reason.contains("silent corruption may have reached the result")
                    || reason.contains("had no effect")
                    || reason.contains("no process reported that it took effect")
                    || recording.is_without_fault(federation);
                assert!(is_expected || reason.contains("deadline"), "seed {seed}: {:?}", judgement.reasons);
                unknown += u32::from(has_flipped);
            }
            Verdict::Fail => panic!("seed {seed}: {:?}", judgement.reasons),
        }
    }
    (passed, unknown)
}

const COORDINATED: &str = "coordinated: { checkpointEvery: 100ms, replicas: 1, replicateTo: otherCluster }";
const HYDEE: &str = "hydee: { checkpointEvery: 100ms, replicas: 1, replicateTo: otherCluster }";

#[test]
fn a_flipped_bit_in_memory_leaves_the_right_result_or_no_verdict() {
    let heat = "heat: { rows: 2, columns: 8, steps: 60, stepTime: 10ms, feedbackEvery: 5, state: 1KiB }";
    let exchange = "exchange: { exchanges: 80, stepTime: 5ms }";
    for target in ["message", "state"] {
        let flip = format!("at: 300ms, flip: {{ cluster: b, node: 0, in: {target} }}");
        for (protocol, application) in [(COORDINATED, heat), (COORDINATED, exchange), (HYDEE, heat)] {
            let (passed, unknown) = verdicts(&federation_of(protocol, application, false, &flip));
            // Only a rollback of the whole federation undoes a flipped bit for certain.
            let least = if protocol == COORDINATED { 5 } else { 0 };
            assert!(
                passed >= least && unknown > 20,
                "{flip}, {protocol}: {passed} passed, {unknown} unknown"
            );
        }
    }
}

#[test]
fn what_has_no_content_cannot_be_flipped() {
    let synthetic =
        "synthetic: { traffic: { exact: { duration: 1s, messages: [{ from: a, to: b, count: 40 }] } } }";
    let federation =
        federation_of(COORDINATED, synthetic, false, "at: 300ms, flip: { cluster: b, node: 0, in: message }");
    let recording = run(&federation, 1);
    assert!(!facts(&recording).any(|it| it.kind() == FactKind::Flipped));
    let reasons = &recording.judgement.reasons;
    assert!(!reasons.iter().any(|it| it.contains("silent corruption")), "{reasons:?}");
    let remarks = &recording.judgement.of(Property::FaultsTookEffect).remarks;
    assert!(remarks.iter().any(|it| it.contains("no process reported that it took effect")), "{remarks:?}");
}
