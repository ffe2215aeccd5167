//! No process ended unexpectedly. The protocol recovers from an unexpected end as from any other failure, but
//! the run was not the requested one: something broke, or another program killed the process.
//!
//! The supervisor records a crash before it sends the order. On real processes, the process may already have ended by
//! itself, unless its place reported when it was killed. [`AtOnce`](Property::AtOnce) judges cluster losses.

use std::collections::BTreeSet;

use faultline_core::{EndedBy, FaultNo, Life, ProcessId, Target};
use faultline_history::History;

use super::at_once::end_not_seen;
use crate::finding::Findings;
use crate::property::Property;
use crate::rule::{Aspect, Rule};

pub(super) const RULE: Rule = Rule::new(Property::NoUnplannedFailure, "no process ended unexpectedly", check)
    .with(&[Aspect::NeedsNoOtherFact]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let context = history.context;
    let (crashes, seen) = (crashes(history), seen(history));
    for end in &history.supervision.ends {
        finding.instances += 1;
        // A life without facts may not have started.
        let has_facts =
            || history.trace.streams.get(&(end.process, end.life)).is_some_and(|it| !it.is_empty());
        if !end.is_ordered {
            let process = context.process(end.process);
            let at = end.at.as_secs_f64();
            let remedy = match context.in_pods {
                true => "its log may say why (`kubectl faultline logs`)",
                false => "its log in the record (`nodes`) may say why",
            };
            finding.unjudged(
                format!("{process} ended unexpectedly at {at:.2} s, without a planned fault"),
                remedy,
            );
        } else if let Some(EndedBy::Fault(fault)) = end.by
            && crashes.contains(&fault)
            && !seen.contains(&(fault, end.process, end.life))
            && has_facts()
        {
            end_not_seen(end.process, fault, context, finding);
        }
    }
}

/// Returns the crashes whose effects the manifest must state: in virtual time, there are no effects, and until a run
/// ends, its manifest does not state them.
fn crashes(history: &History<'_>) -> BTreeSet<FaultNo> {
    let context = history.context;
    let is_judged = context.measures_links && context.outcome.is_some();
    let injected = history.supervision.injected.iter().filter(|_| is_judged);
    injected.filter(|it| matches!(it.1.kills(), Some(Target::Process(_)))).map(|it| it.0).collect()
}

/// Returns the lives that a place reported to have been ended by a fault.
fn seen(history: &History<'_>) -> BTreeSet<(FaultNo, ProcessId, Life)> {
    let effects =
        history.context.effects.iter().flat_map(|effect| effect.on.iter().map(|it| (effect.no, it)));
    effects.filter(|(_, it)| it.at.is_some()).map(|(no, it)| (no, it.process, it.life)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::fault::Outcome;
    use faultline_core::{ClusterId, Fact, Fault, Span, StorageFate, Time};
    use faultline_trace::manifest::{Effect, EffectEntry};

    #[test]
    fn an_end_that_the_supervisor_only_detected_is_unplanned() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.kill(0, false);
        assert_eq!(check_alone(&RULE, &run).gap(), "");
        run.supervisor(Fact::Detected { process: ProcessId(1), life: Life(1) });
        let reason = check_alone(&RULE, &run).gap();
        assert!(reason.starts_with("p1 ended unexpectedly at 0.00 s, without a planned fault; "), "{reason}");
    }

    /// Returns the finding about a crash of process 0 on real processes, with these times of its effect.
    fn crashed(has_facts: bool, effect: Option<Option<Time>>) -> String {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.measures_links = true;
        run.context.outcome = Some(Outcome::Completed);
        if has_facts {
            run.send(0, 1);
        }
        let (process, life, no) = (ProcessId(0), Life(1), FaultNo(0));
        let fault = Fault::crash(process);
        run.supervisor(Fact::Injecting { no, fault: Box::new(fault) });
        run.supervisor(Fact::Failed { process, life, storage: StorageFate::Kept, by: EndedBy::Fault(no) });
        let effect =
            effect.map(|at| Effect { process, life, at, exited: None, slowed: None, error: Span::ZERO });
        run.context.effects =
            vec![EffectEntry { no, due: Time(0), on: effect.into_iter().collect(), idle: Vec::new() }];
        check_alone(&RULE, &run).gap()
    }

    #[test]
    fn a_process_that_nobody_saw_crash_may_have_ended_by_itself() {
        for effect in [None, Some(None)] {
            assert!(crashed(true, effect).starts_with("it is unknown when fault 0 ended p0: "), "{effect:?}");
        }
        assert_eq!(crashed(true, Some(Some(Time(7)))), "");
        assert_eq!(crashed(false, None), "", "the process had not started");
    }

    #[test]
    fn a_process_whose_cluster_has_not_joined_cannot_fail() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.supervisor(Fact::Detected { process: ProcessId(1), life: Life(1) });
        assert!(check_alone(&RULE, &run).open.is_some(), "the cluster may have been there from the start");
        run.supervisor(Fact::Joined(ClusterId(1)));
        assert_eq!((check_alone(&RULE, &run).instances, check_alone(&RULE, &run).gap()), (0, String::new()));
        run.supervisor(Fact::Detected { process: ProcessId(1), life: Life(2) });
        assert!(check_alone(&RULE, &run).open.is_some(), "the cluster has joined");
    }
}
