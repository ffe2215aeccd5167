//! Orphans come first (HydEE, Theorem 1): until a process that rolled back has re-sent an orphan, no message of a later
//! phase reaches it from another cluster. This property is judged for every message that is suppressed because its
//! receiver already has it, against the deliveries since the rollback. It is judged for protocols that promise this
//! order.

use crate::finding::{Findings, Worded};
use crate::properties::order::phases;
use crate::property::Property;
use crate::rule::Rule;
use faultline_core::{FactKind, MessageId, Promise};
use faultline_history::{Context, History, MessageNo};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    OvertookOrphan { message: MessageId, phase: u32, orphan: MessageId, orphan_phase: u32 },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::OvertookOrphan { message: id, phase, orphan, orphan_phase } = *self;
        format!(
            "{} delivered {} of phase {phase} before it had re-sent {} of phase {orphan_phase}",
            names.process(orphan.from),
            names.message(id),
            names.message(orphan)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::OrphansFirst, "no message overtook an orphan message", check)
        .promised(Promise::OrphansFirst)
        .needs(&[FactKind::Orphaned]);

fn check(history: &History<'_>, finding: &mut Findings) {
    if history.suppressed.is_empty() {
        return;
    }
    let phases = phases(history);
    let phase_of = |message: MessageNo| phases.get(&history.messages.get(message).id).copied();
    for &(id, at) in &history.suppressed {
        let Some(&phase) = phases.get(&id) else { continue };
        finding.instances += 1;
        let first = history.between.partition_point(|it| it.at.segment < at.segment);
        let before = history.between[first..].iter().take_while(|it| it.at < at);
        let later = before.filter_map(|it| Some((phase_of(it.message)?, it)));
        if let Some((early, delivery)) = later.max_by_key(|(phase, _)| *phase).filter(|(it, _)| *it > phase) {
            finding.violated(
                [history.source(delivery.at), history.source(at)],
                Breach::OvertookOrphan {
                    message: history.messages.get(delivery.message).id,
                    phase: early,
                    orphan: id,
                    orphan_phase: phase,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone};
    use faultline_core::{Fact, Promise};

    /// p1 sends an orphan of phase 1. As a consequence, p0 sends a message, which reaches p1 before or after the orphan
    /// is re-sent.
    fn run(too_early: bool) -> Run {
        let mut run = Run::repeating(&[Promise::OrphansFirst], &[&[0], &[1]]);
        run.commit_all(1, &[1]);
        let orphan = run.send(1, 0);
        run.deliver(orphan);
        run.consume(orphan);
        let later = run.send(0, 1);
        run.kill(1, false);
        run.restore(1, 1, Some((0, 1)));
        if too_early {
            run.deliver(later);
        }
        run.send_as(orphan);
        run.state(1, Fact::Suppressed(orphan));
        if !too_early {
            run.deliver(later);
        }
        run
    }

    #[test]
    fn a_message_that_waits_for_the_orphan_is_allowed() {
        let finding = check_alone(&RULE, &run(false));
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{finding:?}");
    }

    #[test]
    fn a_message_before_the_orphan_is_found() {
        let finding = check_alone(&RULE, &run(true));
        finds!(finding, Breach::OvertookOrphan { phase: 2, .. });
    }

    #[test]
    fn a_protocol_that_promises_no_order_is_not_judged() {
        let mut run = run(true);
        run.withdraw(Promise::OrphansFirst);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
