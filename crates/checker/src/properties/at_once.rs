//! A cluster loss ended all processes of the cluster at once, and likewise the loss of a rack. Otherwise, the surviving processes would have had time to
//! react to the first failures.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{EndedBy, FaultNo, ProcessId};
use faultline_trace::fault::place;
use faultline_trace::manifest::EffectEntry;

use crate::finding::Findings;
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use crate::words::idle_machine;
use faultline_history::{Context, History};

pub(super) const RULE: Rule =
    Rule::new(Property::AtOnce, "every cluster loss ended all processes of the cluster at once", check)
        .with(&[Aspect::NeverImported]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let context = history.context;
    // In virtual time, a fault happens at one instant.
    if !context.measures_links {
        return;
    }
    let effects: BTreeMap<FaultNo, &EffectEntry> = context.effects.iter().map(|it| (it.no, it)).collect();
    let mut worst = None;
    for &(no, fault, ..) in &history.supervision.injected {
        let Some(target) = fault.kills_at_once() else { continue };
        finding.instances += 1;
        let Some(effect) = effects.get(&no) else {
            let ended = format!("{no} ended the processes of {}", place(target, &context.names));
            finding.inconclusive(format!("the times at which {ended} were not recorded"), "repeat the run");
            continue;
        };
        // A record that was changed may lack effects, or name other processes. Lives that had ended before lost at most
        // their storage.
        let ends = history.supervision.ends.iter().filter(|it| it.by == Some(EndedBy::Fault(no)));
        let ended: BTreeSet<_> = ends.map(|it| (it.process, it.life)).collect();
        let seen = effect.on.iter().map(|it| (it.process, it.life)).collect();
        let unseen = effect.on.iter().find(|it| it.at.is_none()).map(|it| it.process);
        let differing = || ended.symmetric_difference(&seen).next().map(|(process, _)| *process);
        if let Some(process) = unseen.or_else(differing) {
            end_not_seen(process, no, context, finding);
        } else if let Some(skew) = effect.skew() {
            worst = worst.max(Some((skew, no, place(target, &context.names), effect.on.len())));
        }
    }
    let Some((skew, no, place, processes)) = worst else { return };
    let within = context.at_once_within;
    if skew > within {
        let reason =
            format!("{no} ended the {processes} processes of {place} within {skew}, not within {within}");
        finding.unjudged(reason, idle_machine(context));
    } else {
        finding.remark(format!("cluster losses: all processes of a lost cluster stopped within {skew}"));
    }
}

/// Reports that it is unknown when a fault ended a process.
pub(super) fn end_not_seen(process: ProcessId, fault: FaultNo, names: &Context, finding: &mut Findings) {
    let ended = format!("{fault} ended {}", names.process(process));
    let why = "its place did not respond, or the process had already ended";
    finding.unjudged(format!("it is unknown when {ended}: {why}"), "repeat the run");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::{
        ClusterId, Fact, Fault, Life, PlannedFault, ProcessId, Span, StorageFate, Time, Trigger,
    };
    use faultline_trace::manifest::Effect;

    fn lost(micros: &[Option<u64>]) -> Run {
        let mut run = Run::new(&[&[0, 1, 2]]);
        let fault = Fault::kill(ClusterId(0), StorageFate::Kept);
        let trigger = Trigger::At(Time(0));
        run.context.plan =
            vec![PlannedFault { no: FaultNo(0), trigger, fault: fault.clone(), reported: None, cause: None }];
        run.context.measures_links = true;
        run.supervisor(Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) });
        let on = (0..).zip(micros).map(|(process, micros)| Effect {
            process: ProcessId(process),
            life: Life(1),
            at: micros.map(|it| Time::ZERO + Span::from_micros(it)),
            exited: None,
            slowed: None,
            error: Span::from_micros(500),
        });
        run.context.effects =
            vec![EffectEntry { no: FaultNo(0), due: Time::ZERO, on: on.collect(), idle: Vec::new() }];
        for process in (0..micros.len() as u32).map(ProcessId) {
            let (life, storage, by) = (Life(1), StorageFate::Kept, EndedBy::Fault(FaultNo(0)));
            run.supervisor(Fact::Failed { process, life, storage, by });
        }
        run
    }

    #[test]
    fn processes_that_fail_too_far_apart_are_not_lost_at_once() {
        let finding = check_alone(&RULE, &lost(&[Some(0), Some(49_000), Some(1_000)]));
        assert_eq!(
            (finding.instances, finding.gap()),
            (1, String::new()),
            "50.0 ms with the errors of both clocks"
        );
        assert_eq!(
            finding.remarks,
            ["cluster losses: all processes of a lost cluster stopped within 50.0 ms"]
        );
        let finding = check_alone(&RULE, &lost(&[Some(0), Some(49_001), Some(1_000)]));
        let expected =
            "fault 0 ended the 3 processes of c0 within 50.0 ms, not within 50.0 ms; the machine was busy: ";
        assert!(finding.gap().starts_with(expected), "{finding:?}");
        let mut strict = lost(&[Some(0), Some(2_000)]);
        strict.context.at_once_within = Span::from_millis(1);
        assert!(check_alone(&RULE, &strict).open.is_some(), "the bound is the federation's");
    }

    #[test]
    fn an_unrecorded_end_is_not_judged() {
        let unseen = check_alone(&RULE, &lost(&[Some(0), None, Some(1)])).gap();
        let expected = "it is unknown when fault 0 ended p1: its place did not respond, or the process had already \
                        ended; repeat the run";
        assert_eq!(unseen, expected);
        let mut run = lost(&[Some(0), Some(1)]);
        run.context.effects.clear();
        let expected =
            "the times at which fault 0 ended the processes of c0 were not recorded; repeat the run";
        assert_eq!(check_alone(&RULE, &run).gap(), expected);
        run.context.measures_links = false;
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.gap()), (0, String::new()), "virtual time has no skew");
    }

    #[test]
    fn effects_on_other_processes_are_no_evidence() {
        let changes: [fn(&mut Vec<Effect>); 4] = [
            |it| it.clear(),
            |it| it.truncate(1),
            |it| it[0].process = ProcessId(2),
            |it| it[0].life = Life(2),
        ];
        for change in changes {
            let mut run = lost(&[Some(0), Some(1)]);
            change(&mut run.context.effects[0].on);
            let open = check_alone(&RULE, &run).gap();
            assert!(open.starts_with("it is unknown when fault 0 ended "), "{open}");
        }
    }

    #[test]
    fn a_process_that_had_crashed_before_need_not_end_with_its_cluster() {
        let micros = [Some(0), Some(1)];
        let mut run = lost(&[]);
        let (process, life, storage) = (ProcessId(2), Life(1), StorageFate::Lost);
        run.supervisor(Fact::Failed { process, life, storage, by: EndedBy::Fault(FaultNo(1)) });
        let others = lost(&micros);
        run.context.effects = others.context.effects;
        for process in (0..3).map(ProcessId) {
            run.supervisor(Fact::Failed { process, life, storage, by: EndedBy::Fault(FaultNo(0)) });
        }
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.gap()), (1, String::new()));
    }

    #[test]
    fn a_cluster_with_one_process_up_is_lost_at_once() {
        let finding = check_alone(&RULE, &lost(&[Some(0)]));
        assert_eq!((finding.instances, finding.gap()), (1, String::new()));
    }
}
