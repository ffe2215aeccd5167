//! The planned faults had an effect. A run that ended normally without one of them does not show what it was meant to
//! show, so it does not pass: a fault with a fixed time or a trigger did not become due, it found nothing to strike, or no
//! process applied it. Faults whose times are drawn (`mtbf`), or taken from a failure trace, need not occur, but a run in
//! which no fault took effect, or for which the seed drew none, proves nothing. If facts of the supervisor may be missing,
//! a fault of which there is no fact may have taken effect.
//!
//! The supervisor records a fault before it sends the orders that inject it. On real processes, the run may end before
//! a process applies such an order. A fault took effect if the manifest states when a process applied it, or ended.

use std::collections::BTreeSet;

use faultline_core::fault::Outcome;
use faultline_core::{FaultNo, Life, ProcessId, Trigger};
use faultline_history::expected::took_effect;
use faultline_history::redundant::{REMEDY, redundant};
use faultline_history::{Corruption, History};

use crate::finding::Findings;
use crate::property::Property;
use crate::rule::Rule;

pub(super) const RULE: Rule = Rule::new(Property::FaultsTookEffect, "the planned faults took effect", check);

/// The number of faults that a sentence lists.
const MOST_LISTED: usize = 8;

fn check(history: &History<'_>, finding: &mut Findings) {
    let planned = history.context.planned_faults as u64;
    if planned > 0 && history.trace.supervisor().is_empty() {
        finding.lacks_facts("the supervisor's facts are missing");
        return;
    }
    let has_completed = history.context.outcome == Some(Outcome::Completed);
    if planned == 0 && history.context.has_random_faults && has_completed {
        let remedy = "choose another seed or a smaller `mtbf`, or let the run last longer";
        finding.unjudged("no random fault was due before the end of the run", remedy);
    }
    let supervision = &history.supervision;
    finding.instances = planned;
    if let Some(corruption) = history.silently_corrupted() {
        corrupted(history, corruption, finding);
    }
    let effective = took_effect(history);
    let redundant = redundant(history);
    let injected = || supervision.injected.iter().map(|it| it.0);
    let is_not_applied = |it: &FaultNo| !effective.contains(it) && !redundant.contains_key(it);
    let not_applied: Vec<FaultNo> = injected().filter(is_not_applied).collect();
    let known: BTreeSet<FaultNo> = injected().chain(supervision.ineffective.iter().map(|it| it.0)).collect();
    // The faults of an explored run are numbered among all faults that could have occurred.
    let plan = &history.context.plan;
    let is_listed = plan.len() as u64 == planned;
    let number = |place: usize| if is_listed { plan[place].no } else { FaultNo(place as u32) };
    let never: Vec<FaultNo> = (0..planned as usize).map(number).filter(|it| !known.contains(it)).collect();
    let is_cut_short =
        history.context.outcome.is_none() || history.trace.has_gap(ProcessId::SUPERVISOR, Life(0));
    for (no, reason) in &supervision.ineffective {
        let text = format!("{no} had no effect: {reason}");
        missing(
            history,
            &[*no],
            &text,
            "plan it for a time at which it finds its target, or remove it",
            finding,
        );
    }
    for (no, reason) in &redundant {
        let text = format!("{no} {reason}");
        missing(history, &[*no], &text, REMEDY, finding);
    }
    for no in &not_applied {
        let text = format!("{no} was injected, but no process reported that it took effect");
        let remedy = "let the run last longer after the fault, or see the logs of the nodes";
        missing(history, &[*no], &text, remedy, finding);
    }
    if !never.is_empty() {
        match is_cut_short {
            true => finding.remark(format!(
                "the record does not show what became of {} of {planned} faults",
                never.len()
            )),
            false => {
                let text = format!(
                    "{} of {planned} faults did not become due before the end of the run",
                    never.len()
                );
                missing(history, &never, &text, remedy_of_never(history, &never), finding);
            }
        }
    }
    if planned > 0 && effective.is_empty() {
        match (is_cut_short && !never.is_empty(), planned) {
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

/// Records that these faults had no effect. This is a remark if all of them were drawn, or if the run did not end normally:
/// what ended it is the reason then.
fn missing(history: &History<'_>, faults: &[FaultNo], text: &str, remedy: &str, finding: &mut Findings) {
    let context = history.context;
    let has_ended_early = context.outcome.as_ref().is_some_and(|it| *it != Outcome::Completed);
    let due: Vec<FaultNo> = faults.iter().copied().filter(|it| !context.drawn.contains(it)).collect();
    finding.remark(text);
    if due.is_empty() || has_ended_early {
        return;
    }
    let more = due.len().saturating_sub(MOST_LISTED);
    let listed: Vec<String> = due.iter().take(MOST_LISTED).map(|it| it.0.to_string()).collect();
    let listed = match (listed.len(), more) {
        (1, _) if text.starts_with("fault") => String::new(),
        (1, _) => format!(" (fault {})", listed[0]),
        (_, 0) => format!(" (faults {})", listed.join(", ")),
        (_, more) => format!(" (faults {}, and {more} more)", listed.join(", ")),
    };
    finding.unjudged(format!("{text}{listed}"), remedy);
}

/// Returns the remedy for faults that did not become due.
fn remedy_of_never(history: &History<'_>, never: &[FaultNo]) -> &'static str {
    let mut triggers = history.context.plan.iter().filter(|it| never.contains(&it.no)).map(|it| &it.trigger);
    match triggers.any(|it| matches!(it, Trigger::When { .. })) {
        true => "let the fault wait for a fact that occurs, or let the run last longer",
        false => "plan a fault that is due before the end of the run, or let the application run longer",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::fault::Outcome;
    use faultline_core::{ClusterId, Fact, Fault, PlannedFault, Span, Time};
    use faultline_trace::manifest::{Effect, EffectEntry};

    #[test]
    fn a_plan_without_effect_is_unknown() {
        let mut run = Run::new(&[&[0]]);
        assert_eq!(check_alone(&RULE, &run).gap(), "", "there is no plan");
        run.context.planned_faults = 2;
        run.supervisor(Fact::Ineffective { no: FaultNo(0), reason: "it was late".into() });
        run.context.drawn = [FaultNo(0), FaultNo(1)].into();
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
    fn random_faults_of_which_the_seed_drew_none_are_unknown() {
        let judged = |outcome: Outcome| {
            let mut run = Run::new(&[&[0]]);
            run.context.has_random_faults = true;
            run.context.outcome = Some(outcome);
            check_alone(&RULE, &run).gap()
        };
        let expected = "no random fault was due before the end of the run; choose another seed";
        assert!(judged(Outcome::Completed).starts_with(expected));
        assert_eq!(judged(Outcome::Deadline), "", "the deadline is the reason");
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
    fn one_effect_is_enough_if_the_other_faults_were_drawn() {
        let mut run = Run::new(&[&[0]]);
        run.context.planned_faults = 2;
        run.context.drawn = [FaultNo(1)].into();
        run.inject_crash(0);
        assert_eq!(check_alone(&RULE, &run).gap(), "");
    }

    #[test]
    fn each_planned_fault_must_become_due_and_strike() {
        let judged = |run: &mut Run, outcome: Outcome| {
            run.context.planned_faults = 2;
            run.context.outcome = Some(outcome);
            run.inject_crash(0);
            check_alone(&RULE, run)
        };
        let finding = judged(&mut Run::new(&[&[0]]), Outcome::Completed);
        let expected =
            "1 of 2 faults did not become due before the end of the run (fault 1); plan a fault that is due";
        assert!(finding.gap().starts_with(expected), "{finding:?}");
        let finding = judged(&mut Run::new(&[&[0]]), Outcome::Deadline);
        assert_eq!((finding.gap(), finding.remarks.len()), (String::new(), 1), "the deadline is the reason");

        let mut run = Run::new(&[&[0]]);
        run.supervisor(Fact::Ineffective { no: FaultNo(1), reason: "no node had logged a line".into() });
        let finding = judged(&mut run, Outcome::Completed);
        let expected = "fault 1 had no effect: no node had logged a line; plan it for a time";
        assert!(finding.gap().starts_with(expected), "{finding:?}");

        let mut run = Run::new(&[&[0]]);
        let (cluster, process) = (None, None);
        let trigger = Trigger::When {
            fact: faultline_core::FactKind::Logged,
            of: None,
            cluster,
            process,
            occurrence: 1,
        };
        let (no, fault) = (FaultNo(1), Fault::crash(p(0)));
        run.context.plan = vec![PlannedFault { no, trigger, fault, reported: None, cause: None }];
        let finding = judged(&mut run, Outcome::Completed);
        assert!(
            finding.gap().ends_with("let the fault wait for a fact that occurs, or let the run last longer")
        );
    }

    #[test]
    fn a_crash_on_real_processes_took_effect_only_if_its_place_reported_the_end() {
        let judged = |at: Option<Time>| {
            let mut run = Run::new(&[&[0]]);
            (run.context.planned_faults, run.context.measures_links) = (1, true);
            run.context.outcome = Some(Outcome::Completed);
            let no = FaultNo(0);
            run.inject_crash(0);
            let (process, life, by) = (p(0), Life(1), faultline_core::EndedBy::Fault(no));
            let storage = faultline_core::StorageFate::Kept;
            run.supervisor(Fact::Failed { process, life, storage, by });
            let on = vec![Effect { process, life, at, exited: None, slowed: None, error: Span::ZERO }];
            run.context.effects = vec![EffectEntry { no, due: Time(0), on, idle: Vec::new() }];
            check_alone(&RULE, &run).gap()
        };
        assert_eq!(judged(Some(Time(7))), "");
        assert!(
            judged(None).starts_with("fault 0 was injected, but no process reported that it took effect")
        );
    }

    /// Judges a run on real processes whose only fault is a partition, with these times of its effects.
    fn partitioned(outcome: Option<Outcome>, effects: &[Option<Time>]) -> Findings {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.planned_faults = 1;
        run.context.measures_links = true;
        run.context.outcome = outcome;
        let (no, span) = (FaultNo(0), Span::from_secs(1));
        let (from, to, both) = (ClusterId(0), ClusterId(1), true);
        let fault = Fault::Partition { from, to: vec![to], both, span };
        run.supervisor(Fact::Injecting { no, fault: Box::new(fault) });
        let effect = |at: &Option<Time>| Effect {
            process: p(0),
            life: Life(1),
            at: *at,
            exited: None,
            slowed: None,
            error: Span::ZERO,
        };
        let on: Vec<Effect> = effects.iter().map(effect).collect();
        run.context.effects = vec![EffectEntry { no, due: Time(0), on, idle: Vec::new() }];
        check_alone(&RULE, &run)
    }

    #[test]
    fn a_fault_that_no_process_applied_had_no_effect() {
        let completed = Some(Outcome::Completed);
        for unseen in [&[][..], &[None]] {
            let finding = partitioned(completed.clone(), unseen);
            let expected = "fault 0 was injected, but no process reported that it took effect";
            assert!(finding.gap().starts_with(expected), "{finding:?}");
            assert_eq!(finding.remarks, [expected]);
        }
        let finding = partitioned(completed, &[None, Some(Time(1))]);
        assert_eq!((finding.gap(), finding.remarks.len()), (String::new(), 0));
        // The manifest states the effects only once the run has ended.
        assert_eq!(partitioned(None, &[]).gap(), "");
    }
}
