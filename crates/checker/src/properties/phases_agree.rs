//! Phases are correct (HydEE section III-B): a message that a process reports as an orphan was recorded in the phase
//! that follows from the messages that its sender had consumed. Phases that are too low release messages too early;
//! phases that are too high make processes wait for each other. The checker recomputes phases from the messages sent
//! and consumed in the final states.

use faultline_core::{Claim, FactKind, MessageId, PhaseClaim, ProcessId, Promise};

use crate::finding::{Findings, Worded};
use crate::properties::order::phases;
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    WrongPhase { process: ProcessId, message: MessageId, phase: u32, computed: u32 },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::WrongPhase { process: by, message: id, phase, computed } = *self;
        format!(
            "{} recorded {} in phase {phase}, but the messages that its sender had consumed imply phase {computed}",
            names.process(by),
            names.message(id)
        )
    }
}

pub(super) const RULE: Rule = Rule::new(
    Property::PhasesAgree,
    "the phases of orphan messages follow from the consumed messages",
    check,
)
.promised(Promise::Phases)
.needs(&[FactKind::Consumed]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let mut known = None;
    for claimed in &history.claims {
        let Claim::Phase(PhaseClaim::Orphaned { id, phase }) = *claimed.claim else { continue };
        // A message that had not been re-sent by the end has no phase in the final states.
        let Some(&computed) = known.get_or_insert_with(|| phases(history)).get(&id) else { continue };
        finding.instances += 1;
        if computed != phase {
            let process = history.process_of(claimed.at);
            finding.violated(
                [history.source(claimed.at)],
                Breach::WrongPhase { process, message: id, phase, computed },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone};
    use faultline_core::Promise;

    /// Returns a run in which p0 sends to p1, and p1 then sends to p2. After a rollback, p1 consumes the same
    /// message and sends its own again. p2 reports the message from p1 as an orphan in `phase`.
    fn run(phase: u32) -> Run {
        let mut run = Run::repeating(&[Promise::Phases], &[&[0], &[1], &[2]]);
        run.commit_all(1, &[1]);
        let cause = run.send(0, 1);
        let effect = run.message(1, 2, 0, 0);
        for time in 0..2 {
            run.deliver(cause);
            run.consume(cause);
            run.send(1, 2);
            if time == 0 {
                run.deliver(effect);
                run.kill(1, false);
                run.restore(1, 1, Some((0, 1)));
                run.claim(2, Claim::Phase(PhaseClaim::Orphaned { id: effect, phase }));
            }
        }
        run
    }

    #[test]
    fn a_message_that_follows_one_of_another_cluster_is_one_phase_later() {
        let finding = check_alone(&RULE, &run(2));
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{finding:?}");
    }

    #[test]
    fn a_wrong_phase_is_found() {
        for wrong in [1, 3] {
            let finding = check_alone(&RULE, &run(wrong));
            finds!(finding, Breach::WrongPhase { computed: 2, .. });
        }
    }

    #[test]
    fn a_protocol_without_phases_is_not_judged() {
        let mut run = run(3);
        run.withdraw(Promise::Phases);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
