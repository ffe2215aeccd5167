//! The planned faults had an effect. A run in which no fault took effect proves nothing. If facts of the supervisor may
//! be missing, a fault of which there is no fact may have taken effect.
//!
//! The supervisor records a fault before it sends the orders that inject it. On real processes, the run may end before
//! a process applies such an order. The ends of lives show that a crash or a cluster loss took effect. Any other fault
//! took effect if the manifest states when a process applied it.

use faultline_core::{Fault, FaultNo, Life, ProcessId};
use faultline_history::{Corruption, History};

use crate::finding::Findings;
use crate::property::Property;
use crate::rule::Rule;

pub(super) const RULE: Rule = Rule::new(Property::FaultsTookEffect, "the planned faults took effect", check);

fn check(history: &History<'_>, finding: &mut Findings) {
    let planned = history.context.planned_faults as u64;
    if planned > 0 && history.trace.supervisor().is_empty() {
        finding.lacks_facts("the supervisor's facts are missing");
        return;
    }
    let supervision = &history.supervision;
    finding.instances = planned;
    for (no, reason) in &supervision.ineffective {
        finding.remark(format!("{no} had no effect: {reason}"));
    }
    if let Some(corruption) = history.silently_corrupted() {
        corrupted(history, corruption, finding);
    }
    let injected = supervision.injected.iter().map(|(no, fault, ..)| (*no, *fault));
    let flipped = history.flipped_by();
    let is_applied = |(no, fault): (FaultNo, &Fault)| match fault.flips() {
        Some(_) => flipped.contains_key(&no),
        None => is_applied(history, no, fault),
    };
    let not_applied: Vec<FaultNo> = injected.filter(|it| !is_applied(*it)).map(|it| it.0).collect();
    for no in &not_applied {
        finding.remark(format!("{no} was injected, but no process reported that it took effect"));
    }
    let injected = supervision.injected.len();
    let never = planned.saturating_sub((injected + supervision.ineffective.len()) as u64);
    let is_cut_short =
        history.context.outcome.is_none() || history.trace.has_gap(ProcessId::SUPERVISOR, Life(0));
    if never > 0 {
        finding.remark(match is_cut_short {
            true => format!("the record does not show what became of {never} of {planned} faults"),
            false => format!("{never} of {planned} faults did not become due before the end of the run"),
        });
    }
    if planned > 0 && injected == not_applied.len() {
        match (is_cut_short && never > 0, planned) {
            (true, 1) => {
                finding.lacks_facts("the record does not show whether the only planned fault took effect");
            }
            (true, _) => finding.lacks_facts(format!(
                "the record does not show whether any of the {planned} planned faults took effect"
            )),
            (false, _) => {
                let reason = match planned {
                    1 => "the only planned fault did not take effect".to_owned(),
                    _ => format!("none of the {planned} planned faults took effect"),
                };
                let remedy =
                    "plan a fault that is due before the end of the run, or let the application run longer";
                finding.unjudged(reason, remedy);
            }
        }
    }
}

/// A restored copy may have reached the result even if the result is right, because processes may have restored others. A
/// message or a state has not reached a result that is known to be right.
fn corrupted(history: &History<'_>, corruption: Corruption, finding: &mut Findings) {
    let context = history.context;
    let (what, remedy) = match corruption {
        Corruption::Restored(part) => (
            format!(
                "a stored copy of {} had a flipped bit when the part was restored",
                context.names.part_in_sentence(part)
            ),
            "set `storage.verify: true`",
        ),
        _ if context.expected.is_some() => return,
        Corruption::Delivered(id) => (
            format!("a bit of {} was flipped when it was delivered", context.message(id)),
            "choose an application with a known result, such as `heat`",
        ),
        Corruption::Continued(process) => (
            format!("a bit of the state of {} was flipped", context.process(process)),
            "choose an application with a known result, such as `heat`",
        ),
    };
    finding.unjudged(
        format!(
            "silent corruption may have reached the result: {what}, and no protocol promises to detect this"
        ),
        remedy,
    );
}

/// Returns whether an injected fault, other than a flipped bit, was applied. In virtual time, a fault is applied when it is injected. Until a run
/// ends, its manifest states no effects, so nothing is known about its faults.
fn is_applied(history: &History<'_>, no: FaultNo, fault: &Fault) -> bool {
    let context = history.context;
    if !context.measures_links || context.outcome.is_none() || fault.kills().is_some() {
        return true;
    }
    let mut effects = context.effects.iter().filter(|it| it.no == no);
    effects.any(|it| it.on.iter().any(|it| it.at.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::fault::Outcome;
    use faultline_core::{ClusterId, Fact, Span, Time};
    use faultline_trace::manifest::{Effect, EffectEntry};

    #[test]
    fn a_plan_without_effect_is_unknown() {
        let mut run = Run::new(&[&[0]]);
        assert_eq!(check_alone(&RULE, &run).gap(), "", "there is no plan");
        run.context.planned_faults = 2;
        run.supervisor(Fact::Ineffective { no: FaultNo(0), reason: "it was late".into() });
        let finding = check_alone(&RULE, &run);
        assert!(finding.gap().starts_with("none of the 2 planned faults took effect; "), "{finding:?}");
        assert_eq!(
            finding.remarks,
            [
                "fault 0 had no effect: it was late",
                "1 of 2 faults did not become due before the end of the run"
            ]
        );
    }

    #[test]
    fn a_record_that_ends_early_does_not_show_that_no_fault_took_effect() {
        let mut run = Run::new(&[&[0]]);
        run.context.planned_faults = 2;
        run.supervisor(Fact::Begun);
        run.context.outcome = None;
        let finding = check_alone(&RULE, &run);
        let expected = "the record does not show whether any of the 2 planned faults took effect; ";
        assert!(finding.gap().starts_with(expected), "{finding:?}");
        assert_eq!(finding.remarks, ["the record does not show what became of 2 of 2 faults"]);
    }

    #[test]
    fn one_effect_is_enough() {
        let mut run = Run::new(&[&[0]]);
        run.context.planned_faults = 2;
        run.inject_crash(0);
        assert_eq!(check_alone(&RULE, &run).gap(), "");
    }

    /// Judges a run on real processes whose only fault is a partition, with these times of its effects.
    fn partitioned(outcome: Option<Outcome>, effects: &[Option<Time>]) -> Findings {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.planned_faults = 1;
        run.context.measures_links = true;
        run.context.outcome = outcome;
        let (no, span) = (FaultNo(0), Span::from_secs(1));
        let (from, to, both) = (ClusterId(0), ClusterId(1), true);
        let fault = Fault::Partition { from, to, both, span };
        run.supervisor(Fact::Injecting { no, fault: Box::new(fault) });
        let effect = |at: &Option<Time>| Effect {
            process: p(0),
            life: Life(1),
            at: *at,
            exited: None,
            error: Span::ZERO,
        };
        let on: Vec<Effect> = effects.iter().map(effect).collect();
        run.context.effects = vec![EffectEntry { no, due: Time(0), on }];
        check_alone(&RULE, &run)
    }

    #[test]
    fn a_fault_that_no_process_applied_had_no_effect() {
        let completed = Some(Outcome::Completed);
        for unseen in [&[][..], &[None]] {
            let finding = partitioned(completed.clone(), unseen);
            assert!(finding.gap().starts_with("the only planned fault did not take effect; "), "{finding:?}");
            let expected = "fault 0 was injected, but no process reported that it took effect";
            assert_eq!(finding.remarks, [expected]);
        }
        let finding = partitioned(completed, &[None, Some(Time(1))]);
        assert_eq!((finding.gap(), finding.remarks.len()), (String::new(), 0));
        // The manifest states the effects only once the run has ended.
        assert_eq!(partitioned(None, &[]).gap(), "");
    }
}
