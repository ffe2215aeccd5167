//! Judges a recorded run: did the protocol behave correctly?
//!
//! The checker reads only the [`History`] of a run: its facts, and the context that no fact states ([`Context`]). Each
//! property under [`properties`] reports what it judged and what it found. Clocks do not order facts of different
//! processes: facts are related by streams, restores, message identities and incarnations. Times of different processes
//! are compared only in virtual time, where all processes read the same clock ([`Context::common_clock`]), and by three
//! properties: [`Property::AtOnce`] and [`Property::Expected`], which allow for the uncertainty of the clocks, and
//! [`Property::BoundedLoss`], which allows for clocks that differ by half a second. A protocol's reports
//! about itself ([`faultline_core::Claim`]) are judged, or identify what to judge; they are never evidence.

mod evidence;
mod finding;
mod judgement;
pub mod properties;
mod property;
mod rule;
#[cfg(test)]
mod testing;
mod words;

pub use evidence::{contradiction, examined};
pub use faultline_history::{Context, History, Source};
pub use finding::{Finding, Violation, Worded};
pub use judgement::{Judgement, Verdict};
pub use properties::violation_at_end;
pub use property::Property;
pub use rule::Strictness;
pub use words::{count, how_often};

use faultline_trace::Trace;

use judgement::Evidence;

/// Judges a run. Waste is only reported as a remark.
pub fn judge(trace: &Trace, context: &Context) -> Judgement {
    judge_history(&History::new(trace, context), Strictness::Lenient)
}

/// Judges a run from its history.
pub fn judge_history(history: &History<'_>, strictness: Strictness) -> Judgement {
    let findings = properties::ALL.iter().map(|rule| rule.judge(history, strictness)).collect();
    Judgement::new(findings, Evidence::of(history), history.context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Run;
    use faultline_core::{Attempt, Cause, Claim, Digest, Fact, GroupId, Promise, Span, Vectors};
    use faultline_trace::manifest::{Bounds, Copies, ReplicaHolders};
    use faultline_trace::{Flaw, FlawKind};

    /// Two clusters of two processes each: an exchange of messages, a failure, a rollback, and the exchange again.
    fn good() -> Run {
        let mut run = Run::new(&[&[0, 1], &[2, 3]]);
        run.supervisor(Fact::Begun);
        run.commit_all(0, &[0, 1]);
        run.commit_all(1, &[2, 3]);
        for round in 0..2 {
            for (from, to) in [(0, 1), (1, 0), (2, 3), (0, 2)] {
                let id = run.send(from, to);
                run.transmit(id, run.position(from));
                run.deliver(id);
            }
            if round == 0 {
                run.commit_with(
                    1,
                    &[2, 3],
                    &[Run::COVERS_ALL, Run::COVERS_ALL],
                    &[(0, crate::testing::position(0, 1))],
                );
                run.kill(0, false);
                run.restore(0, 1, Some((0, 1)));
                run.restore(1, 1, Some((0, 1)));
                let cause = faultline_core::Cause::Alert {
                    from: faultline_core::GroupId(0),
                    position: crate::testing::position(1, 1),
                };
                run.restore_because(2, 1, Some((0, 1)), cause);
                run.restore_because(3, 1, Some((0, 1)), cause);
            }
        }
        (0..4).for_each(|rank| run.finish(rank, Digest([rank as u8; 16])));
        run.supervisor(Fact::Completed);
        run
    }

    #[test]
    fn a_correct_run_passes_every_property() {
        let run = good();
        let judgement = judge(&run.trace, &run.context);
        assert_eq!(judgement.reasons, [""; 0]);
        assert_eq!(judgement.verdict, Verdict::Pass);
        for property in [Property::NoGhost, Property::NoLoss, Property::ExactlyOnce, Property::WitnessAgrees]
        {
            assert!(judgement.of(property).instances > 0, "{property:?}");
        }
    }

    /// Two clusters under a protocol that promises everything that a protocol for messages can promise, claims everything,
    /// and does nothing: it saves no checkpoint, restores no state, and removes nothing.
    fn claims_only() -> Run {
        let mut run = Run::new(&[&[0, 1], &[2, 3]]);
        let all = [
            Promise::Containment,
            Promise::OrphansFirst,
            Promise::Phases,
            Promise::LogKept,
            Promise::DurableRestore,
            Promise::Refill,
            Promise::ForcedByNews,
        ];
        run.context.promises = run.context.promises.with(&all);
        run.context.common_clock = true;
        run.context.bounds = Some(Bounds {
            checkpoint_every: vec![Some(Span::from_millis(300)); 2],
            detect_after: Span::from_millis(100),
            collect_every: Some(Span::from_secs(1)),
            delivered_within: None,
        });
        run.context.copies = Some(Copies { replicas: 1, kept_by: ReplicaHolders::OtherCluster });
        run.supervisor(Fact::Begun);
        let vectors = std::sync::Arc::new(Vectors { ddv: [Run::COVERS_ALL; 2].into(), delivered: [].into() });
        for sn in 1..40 {
            run.wait(Span::from_millis(300));
            let id = run.send(0, 2);
            run.transmit(id, run.position(0));
            run.deliver(id);
            let (position, attempt) = (crate::testing::position(0, sn), Attempt(1));
            for process in 0..4 {
                run.claim(process, Claim::CheckpointRequested { position, attempt, forced: true });
                let (frozen, vectors) = (Span::ZERO, vectors.clone());
                run.claim(process, Claim::Committed { position, attempt, forced: true, frozen, vectors });
                run.claim(process, Claim::Collected { round: sn, below: position.sn, kept: 0, log: 9 });
                run.claim(process, Claim::Protected);
            }
        }
        run.kill(0, true);
        let to = crate::testing::position(1, 39);
        let (checkpoint, cause) = (crate::testing::position(0, 39), Cause::Failure);
        run.restore_because(0, 1, None, cause);
        for process in 0..2 {
            run.claim(process, Claim::RolledBack { to, checkpoint, cause, vectors: vectors.clone() });
        }
        run.claim(0, Claim::Unrecoverable { group: GroupId(1), missing: [].into() });
        (0..4).for_each(|rank| run.finish(rank, Digest([rank as u8; 16])));
        run.supervisor(Fact::Completed);
        run
    }

    #[test]
    fn a_protocol_that_claims_everything_and_does_nothing_fails_each_property_in_force() {
        let run = claims_only();
        let judgement = judge(&run.trace, &run.context);
        assert_eq!(judgement.verdict, Verdict::Fail);
        let violated: Vec<Property> = judgement.violated().collect();
        for property in [
            Property::ForcedBeforeDelivery,
            Property::MembersAgree,
            Property::DurableBeforeCommit,
            Property::UnrecoverableJustified,
            Property::LogKept,
            Property::BoundedLoss,
            Property::DurableBeforeResume,
        ] {
            assert!(violated.contains(&property), "{property:?} is not violated: {violated:?}");
        }
        // What nothing shows is not exercised.
        for property in [Property::OrphansFirst, Property::PhasesAgree, Property::ConsistentCheckpoint] {
            assert_eq!(judgement.of(property).instances, 0, "{property:?}");
        }
    }

    #[test]
    fn missing_facts_are_not_evidence_against_a_run() {
        let run = good();
        let lives: Vec<_> = run.trace.streams.keys().copied().collect();
        for &(process, life) in &lives {
            for keep in [0, 1, 2] {
                let mut trace = run.trace.clone();
                let stream = trace.streams.get_mut(&(process, life)).unwrap();
                let half = stream.len() / 2;
                stream.truncate(half * keep);
                let kind = FlawKind::Gap(faultline_core::FactNo(stream.len() as u64));
                trace.flaws.push(Flaw { stream: Some((process, life)), kind });
                if keep == 0 {
                    trace.streams.remove(&(process, life));
                }
                let judgement = judge(&trace, &run.context);
                let reasons = &judgement.reasons;
                assert_eq!(judgement.verdict, Verdict::Unknown, "{process} {life}: {reasons:?}");
                let [reason] = &reasons[..] else { panic!("{process} {life}: {reasons:?}") };
                assert!(reason.contains("have a gap"), "{process} {life}: {reason}");
                let is_fact = |it: &&Finding| it.violation_count() > 0 && !it.is_doubtful;
                let stated: Vec<_> = judgement.findings.iter().filter(is_fact).collect();
                assert!(stated.is_empty(), "{process} {life}: {stated:?}");
            }
        }
    }

    #[test]
    fn findings_are_in_the_order_of_the_properties() {
        let run = good();
        let findings = judge(&run.trace, &run.context).findings;
        assert!(findings.is_sorted_by_key(|finding| finding.property));
        assert_eq!(findings.len(), properties::ALL.len());
    }

    #[test]
    fn a_violation_fails_and_missing_evidence_is_unknown() {
        let mut run = good();
        let id = run.send(0, 3);
        let judgement = judge(&run.trace, &run.context);
        assert_eq!(judgement.verdict, Verdict::Fail);
        assert_eq!(judgement.violated().collect::<Vec<_>>(), [Property::NoLoss]);
        run.transmit(id, run.position(0));
        run.deliver(id);
        assert_eq!(judge(&run.trace, &run.context).verdict, Verdict::Pass);
        run.lose_evidence(1);
        assert_eq!(judge(&run.trace, &run.context).verdict, Verdict::Unknown);
    }

    #[test]
    fn facts_may_be_missing_while_a_run_is_in_progress() {
        let mut run = good();
        let name = run.image(0, 0, 1);
        let committed_undurable = |trace: &mut Trace| {
            let stream = trace.streams.get_mut(&(crate::testing::p(0), faultline_core::Life(1))).unwrap();
            stream.retain(|(_, fact)| *fact != Fact::Durable(name));
        };
        committed_undurable(&mut run.trace);
        assert_eq!(judge(&run.trace, &run.context).verdict, Verdict::Fail);
        run.context.outcome = None;
        let judgement = judge(&run.trace, &run.context);
        assert_eq!(judgement.verdict, Verdict::Unknown);
        let [reason] = &judgement.reasons[..] else { panic!("{:?}", judgement.reasons) };
        assert!(reason.starts_with("the run was cut short; repeat the run"), "{reason}");
        let doubtful: Vec<_> = judgement.findings.iter().filter(|it| it.is_doubtful).collect();
        let [finding] = doubtful[..] else { panic!("{doubtful:?}") };
        let unknown = finding.unknown.as_deref().unwrap_or_default();
        assert!(unknown.starts_with("doubtful, because facts may be missing: "), "{unknown}");
    }

    #[test]
    fn an_invented_message_is_not_a_gap_in_the_record() {
        let mut run = good();
        let id = run.message(0, 3, 1, 7);
        run.deliver(id);
        let judgement = judge_history(&examined(run.history()), Strictness::Lenient);
        assert_eq!(judgement.verdict, Verdict::Fail, "{:?}", judgement.reasons);
        assert!(judgement.violated().any(|it| it == Property::NoGhost), "{:?}", judgement.reasons);
    }

    #[test]
    fn a_judgement_round_trips_through_json() {
        let mut run = good();
        run.send(0, 3);
        let judgement = judge(&run.trace, &run.context);
        let json = serde_json::to_string(&judgement).unwrap();
        assert_eq!(serde_json::from_str::<Judgement>(&json).unwrap(), judgement);
        assert!(json.starts_with(r#"{"verdict":"fail","#), "{json}");
    }
}
