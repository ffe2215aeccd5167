//! The code of no process panicked. A panic ends the run.

use faultline_core::ProcessId;
use faultline_history::History;

use crate::finding::{Breach, Findings};
use crate::judgement::Property;

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::NoPanic);
    let lives = history.trace.streams.keys().filter(|(process, _)| *process != ProcessId::SUPERVISOR);
    finding.instances = lives.count() as u64;
    if let Some(panicked @ Breach::Panicked(_)) = Breach::of_end(history.context) {
        // A life that panics at its start has recorded no facts.
        finding.instances = finding.instances.max(1);
        finding.violated([], panicked);
    }
    finding
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use faultline_core::fault::{Handled, Outcome, Panic};
    use faultline_core::{Life, Time};

    use super::*;
    use crate::testing::{Run, check_alone, finds, p};

    #[test]
    fn a_panic_is_a_violation() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "one life has recorded facts");
        let (message, place) = (Arc::from("index out of bounds"), Arc::from("src/lib.rs:7:1"));
        let (process, life, at, handled) = (p(1), Life(1), Time(3_000_000_000), Handled::Message(id));
        let panic = Arc::new(Panic { process, life, at, handled, message, place });
        run.context.outcome = Some(Outcome::Panicked(panic));
        let finding = check_alone(check, &run);
        finds!(finding, Breach::Panicked(_));
        let text = finding.wrong()[0].sentence(&run.context);
        for part in ["panicked at 3.00 s", "index out of bounds", "(src/lib.rs:7:1)", "while it handled"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
