//! Virtual time advanced until the run ended. If processes act without end at one instant, for example because a timer in
//! the past expires repeatedly, the driver ends the run. Judged in virtual time, under every protocol.

use faultline_history::{Context, History};

use super::no_panic::input;
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use faultline_core::fault::{Handled, Outcome};
use faultline_core::{ProcessId, Time};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    TimeStoodStill { process: ProcessId, handled: Handled, events: u64, at: Time },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::TimeStoodStill { process: of, handled, events, at } = *self;
        format!(
            "virtual time stopped advancing at {:.2} s, but {events} events followed; in the last one, {} handled {}",
            at.as_secs_f64(),
            names.process(of),
            input(handled, names)
        )
    }
}

pub(super) const RULE: Rule = Rule::new(Property::TimeAdvances, "virtual time advanced", check)
    .with(&[Aspect::NeedsNoOtherFact, Aspect::NeverImported]);

fn check(history: &History<'_>, finding: &mut Findings) {
    if !history.context.common_clock {
        return;
    }
    finding.instances = 1;
    if let Some(stood_still) = at_end(history.context) {
        finding.violated([], stood_still);
    }
}

/// Returns how virtual time stopped advancing, if the run ended because of this.
pub(super) fn at_end(context: &Context) -> Option<impl Worded + use<>> {
    match *context.outcome.as_ref()? {
        Outcome::Stalled { process, handled, events } => {
            Some(Breach::TimeStoodStill { process, handled, events, at: context.end })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, finds, p};

    #[test]
    fn a_run_without_progress_in_virtual_time_is_a_violation() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.common_clock = true;
        run.context.end = Time(2_500_000_000);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
        let (process, handled, events) = (p(1), Handled::Timeout, 120_001);
        run.context.outcome = Some(Outcome::Stalled { process, handled, events });
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::TimeStoodStill { .. });
        let text = finding.wrong::<Breach>()[0].sentence(&run.context);
        assert!(
            text.contains("stopped advancing at 2.50 s, but 120001 events") && text.contains("a timeout"),
            "{text}"
        );
    }

    #[test]
    fn real_time_always_advances() {
        let mut run = Run::new(&[&[0]]);
        run.context.common_clock = false;
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
