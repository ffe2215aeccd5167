//! A cluster loss ended all of its processes at once: otherwise the survivors had time to act on the first
//! failures.

use std::collections::BTreeMap;

use faultline_core::{Fault, FaultNo};
use faultline_trace::manifest::EffectEntry;

use crate::history::History;
use crate::judgement::{Finding, Property};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::AtOnce);
    let context = history.context;
    // In virtual time, a fault happens at one instant.
    if !context.measures_links {
        return finding;
    }
    let effects: BTreeMap<FaultNo, &EffectEntry> = context.effects.iter().map(|it| (it.no, it)).collect();
    let mut worst = None;
    for planned in &context.plan {
        let Fault::LoseCluster { cluster, .. } = planned.fault else { continue };
        if !history.supervision.injected.iter().any(|it| it.0 == planned.no) {
            continue;
        }
        let (no, name) = (planned.no, context.cluster(cluster));
        finding.instances += 1;
        let Some(effect) = effects.get(&no) else {
            finding.unjudged(|| {
                format!("the times at which the processes of {name} ended by {no} were not recorded")
            });
            continue;
        };
        if let Some(unseen) = effect.on.iter().find(|it| it.at.is_none()) {
            let process = context.process(unseen.process);
            finding.unjudged(|| {
                format!(
                    "the time at which {process} ended by {no} is unknown, because its place did \
                    not respond"
                )
            });
        } else if let Some(skew) = effect.skew() {
            worst = worst.max(Some((skew, no, name, effect.on.len())));
        }
    }
    let Some((skew, no, name, processes)) = worst else { return finding };
    let within = context.at_once_within;
    if skew > within {
        finding.unjudged(|| {
            format!("the {processes} processes of {name} ended within {skew} by {no}, not within {within}")
        });
    } else {
        finding.remarks.push(format!("cluster losses: all processes ended within {skew}"));
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::{ClusterId, Fact, Life, PlannedFault, ProcessId, Span, StorageFate, Time, Trigger};
    use faultline_trace::manifest::Effect;

    fn lost(micros: &[Option<u64>]) -> Run {
        let mut run = Run::new(&[&[0, 1, 2]]);
        let fault = Fault::LoseCluster { cluster: ClusterId(0), storage: StorageFate::Kept, returns: true };
        let trigger = Trigger::At(Time(0));
        run.context.plan = vec![PlannedFault { no: FaultNo(0), trigger, fault: fault.clone() }];
        run.context.measures_links = true;
        run.supervisor(Fact::Injecting { no: FaultNo(0), fault: Box::new(fault) });
        let on = (0..).zip(micros).map(|(process, micros)| Effect {
            process: ProcessId(process),
            life: Life(1),
            at: micros.map(|it| Time::ZERO + Span::from_micros(it)),
            error: Span::from_micros(500),
        });
        run.context.effects = vec![EffectEntry { no: FaultNo(0), due: Time::ZERO, on: on.collect() }];
        run
    }

    #[test]
    fn processes_that_fail_too_far_apart_are_not_lost_at_once() {
        let finding = check_alone(check, &lost(&[Some(0), Some(49_000), Some(1_000)]));
        assert_eq!(
            (finding.instances, &finding.unknown),
            (1, &None),
            "50.0 ms with the errors of both clocks"
        );
        assert!(finding.remarks[0].contains("50.0 ms"), "{:?}", finding.remarks);
        let finding = check_alone(check, &lost(&[Some(0), Some(49_001), Some(1_000)]));
        let unknown = finding.unknown.unwrap();
        assert!(unknown.starts_with("the 3 processes of c0 ended within 50.0 ms by fault 0"), "{unknown}");
        let mut strict = lost(&[Some(0), Some(2_000)]);
        strict.context.at_once_within = Span::from_millis(1);
        assert!(check_alone(check, &strict).unknown.is_some(), "the bound is the federation's");
    }

    #[test]
    fn an_unrecorded_end_is_not_judged() {
        let unseen = check_alone(check, &lost(&[Some(0), None, Some(1)])).unknown.unwrap();
        assert!(unseen.contains("p1 ended by fault 0 is unknown"), "{unseen}");
        let mut run = lost(&[Some(0), Some(1)]);
        run.context.effects.clear();
        assert!(check_alone(check, &run).unknown.unwrap().contains("were not recorded"));
        run.context.measures_links = false;
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.unknown), (0, None), "virtual time has no skew");
    }

    #[test]
    fn a_cluster_with_one_process_up_is_lost_at_once() {
        let finding = check_alone(check, &lost(&[Some(0)]));
        assert_eq!((finding.instances, finding.unknown), (1, None));
    }
}
