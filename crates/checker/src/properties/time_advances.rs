//! Virtual time advanced until the run ended. If processes act without end at one instant, for example because a timer in
//! the past expires repeatedly, the driver ends the run. Judged in virtual time, under every protocol.

use faultline_history::History;

use crate::finding::{Breach, Findings};
use crate::judgement::Property;

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::TimeAdvances);
    if !history.context.common_clock {
        return finding;
    }
    finding.instances = 1;
    if let Some(stood_still @ Breach::TimeStoodStill { .. }) = Breach::of_end(history.context) {
        finding.violated([], stood_still);
    }
    finding
}

#[cfg(test)]
mod tests {
    use faultline_core::Time;
    use faultline_core::fault::{Handled, Outcome};

    use super::*;
    use crate::testing::{Run, check_alone, finds, p};

    #[test]
    fn a_run_without_progress_in_virtual_time_is_a_violation() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.common_clock = true;
        run.context.end = Time(2_500_000_000);
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
        let (process, handled, events) = (p(1), Handled::Timeout, 120_001);
        run.context.outcome = Some(Outcome::Stalled { process, handled, events });
        let finding = check_alone(check, &run);
        finds!(finding, Breach::TimeStoodStill { .. });
        let text = finding.wrong()[0].sentence(&run.context);
        assert!(
            text.contains("stopped advancing at 2.50 s, but 120001 events") && text.contains("a timeout"),
            "{text}"
        );
    }

    #[test]
    fn real_time_always_advances() {
        let mut run = Run::new(&[&[0]]);
        run.context.common_clock = false;
        assert_eq!(check_alone(check, &run).instances, 0);
    }
}
