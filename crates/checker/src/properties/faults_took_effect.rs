//! The planned faults had an effect. A run in which no fault took effect proves nothing.

use crate::finding::{Findings, Gap, Remark};
use crate::judgement::Property;
use faultline_history::History;

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
    let effective = supervision.injected.len() as u64;
    let never = planned.saturating_sub(effective + supervision.ineffective.len() as u64);
    if never > 0 {
        finding.remarks.push(Remark::NotDue { never, planned });
    }
    if planned > 0 && effective == 0 {
        finding.unjudged(Gap::NoFaultTookEffect { planned });
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
    fn one_effect_is_enough() {
        let mut run = Run::new(&[&[0]]);
        run.context.planned_faults = 2;
        run.inject_crash(0);
        assert_eq!(check_alone(check, &run).open, None);
    }
}
