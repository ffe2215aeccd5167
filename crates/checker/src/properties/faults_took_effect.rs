//! The planned faults had an effect. A run in which no fault took effect proves nothing. If facts of the supervisor may
//! be missing, a fault of which there is no fact may have taken effect.
//!
//! The supervisor records a fault before it sends the orders that inject it. On real processes, the run may end before
//! a process applies such an order. The ends of lives show that a crash or a cluster loss took effect. Any other fault
//! took effect if the manifest states when a process applied it.

use faultline_core::{Fault, FaultNo, Life, ProcessId};
use faultline_history::History;

use crate::finding::{Findings, Gap, Remark};
use crate::judgement::Property;

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::FaultsTookEffect);
    let planned = history.context.planned_faults as u64;
    if planned > 0 && history.trace.supervisor().is_empty() {
        finding.unjudged(Gap::SupervisorMissing);
        return finding;
    }
    let supervision = &history.supervision;
    finding.instances = planned;
    for (no, reason) in &supervision.ineffective {
        finding.remarks.push(Remark::WithoutEffect { fault: *no, reason: (*reason).to_owned() });
    }
    let injected = supervision.injected.iter().map(|(no, fault, ..)| (*no, *fault));
    let not_applied: Vec<FaultNo> = injected.filter(|it| !is_applied(history, *it)).map(|it| it.0).collect();
    finding.remarks.extend(not_applied.iter().map(|&fault| Remark::NotApplied { fault }));
    let injected = supervision.injected.len();
    let never = planned.saturating_sub((injected + supervision.ineffective.len()) as u64);
    let is_cut_short =
        history.context.outcome.is_none() || history.trace.has_gap(ProcessId::SUPERVISOR, Life(0));
    if never > 0 {
        finding.remarks.push(match is_cut_short {
            true => Remark::NotShown { open: never, planned },
            false => Remark::NotDue { never, planned },
        });
    }
    if planned > 0 && injected == not_applied.len() {
        finding.unjudged(match is_cut_short && never > 0 {
            true => Gap::FaultsNotShown { planned },
            false => Gap::NoFaultTookEffect { planned },
        });
    }
    finding
}

/// Returns whether an injected fault was applied. In virtual time, a fault is applied when it is injected. Until a run
/// ends, its manifest states no effects, so nothing is known about its faults.
fn is_applied(history: &History<'_>, (no, fault): (FaultNo, &Fault)) -> bool {
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
        assert_eq!(check_alone(check, &run).open, None, "there is no plan");
        run.context.planned_faults = 2;
        run.supervisor(Fact::Ineffective { no: FaultNo(0), reason: "it was late".into() });
        let finding = check_alone(check, &run);
        assert_eq!(finding.open, Some(Gap::NoFaultTookEffect { planned: 2 }));
        assert_eq!(
            finding.remarks,
            [
                Remark::WithoutEffect { fault: FaultNo(0), reason: "it was late".to_owned() },
                Remark::NotDue { never: 1, planned: 2 }
            ]
        );
    }

    #[test]
    fn a_record_that_ends_early_does_not_show_that_no_fault_took_effect() {
        let mut run = Run::new(&[&[0]]);
        run.context.planned_faults = 2;
        run.supervisor(Fact::Begun);
        run.context.outcome = None;
        let finding = check_alone(check, &run);
        assert_eq!(finding.open, Some(Gap::FaultsNotShown { planned: 2 }));
        assert_eq!(finding.remarks, [Remark::NotShown { open: 2, planned: 2 }]);
    }

    #[test]
    fn one_effect_is_enough() {
        let mut run = Run::new(&[&[0]]);
        run.context.planned_faults = 2;
        run.inject_crash(0);
        assert_eq!(check_alone(check, &run).open, None);
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
        check_alone(check, &run)
    }

    #[test]
    fn a_fault_that_no_process_applied_had_no_effect() {
        let completed = Some(Outcome::Completed);
        for unseen in [&[][..], &[None]] {
            let finding = partitioned(completed.clone(), unseen);
            assert_eq!(finding.open, Some(Gap::NoFaultTookEffect { planned: 1 }));
            assert_eq!(finding.remarks, [Remark::NotApplied { fault: FaultNo(0) }]);
        }
        let finding = partitioned(completed, &[None, Some(Time(1))]);
        assert_eq!((finding.open, finding.remarks), (None, vec![]));
        // The manifest states the effects only once the run has ended.
        assert_eq!(partitioned(None, &[]).open, None);
    }
}
