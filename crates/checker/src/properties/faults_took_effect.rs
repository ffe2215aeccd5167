//! The planned faults had an effect. A run in which no fault took effect shows nothing.

use crate::history::History;
use crate::judgement::{Finding, Property};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::FaultsTookEffect);
    let planned = history.context.planned_faults as u64;
    let supervision = &history.supervision;
    finding.instances = planned;
    for (no, reason) in &supervision.ineffective {
        finding.remarks.push(format!("{no} had no effect: {reason}"));
    }
    let effective = supervision.injected.len() as u64;
    let never = planned.saturating_sub(effective + supervision.ineffective.len() as u64);
    if never > 0 {
        finding.remarks.push(format!("{never} of {planned} faults were not due before the end"));
    }
    if planned > 0 && effective == 0 {
        finding.unjudged(|| format!("none of the {planned} planned faults took effect"));
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::{Fact, FaultNo};

    #[test]
    fn a_plan_without_effect_is_unknown() {
        let mut run = Run::new(&[&[0]]);
        assert_eq!(check_alone(check, &run).unknown, None, "there is no plan");
        run.context.planned_faults = 2;
        run.supervisor(Fact::Ineffective { no: FaultNo(0), reason: "it was late".into() });
        let finding = check_alone(check, &run);
        assert_eq!(finding.unknown.unwrap(), "none of the 2 planned faults took effect");
        assert_eq!(
            finding.remarks,
            ["fault 0 had no effect: it was late", "1 of 2 faults were not due before the end"]
        );
    }

    #[test]
    fn one_effect_is_enough() {
        let mut run = Run::new(&[&[0]]);
        run.context.planned_faults = 2;
        run.inject_crash(0);
        assert_eq!(check_alone(check, &run).unknown, None);
    }
}
