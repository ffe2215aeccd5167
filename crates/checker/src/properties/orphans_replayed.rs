//! Orphans are replayed (HydEE section III-C: the count of orphans is never negative, and zero at the end). A process
//! that reports an orphan has the message; the orphan is re-sent and suppressed; and a message is suppressed only if
//! its receiver had it. This property is judged by the messages that were delivered, sent and suppressed, not by any
//! process's count.

use std::collections::HashSet;

use faultline_core::{Claim, FactKind, MessageId, PhaseClaim};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, Ending, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    SuppressedUndelivered { message: MessageId },
    NotAnOrphan { message: MessageId },
    OrphanNeverResent { message: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::SuppressedUndelivered { message: id } => {
                format!(
                    "{} suppressed {}, although it had never been delivered",
                    names.process(id.from),
                    names.message(id)
                )
            }
            Breach::NotAnOrphan { message: id } => {
                format!(
                    "{} reported {} as an orphan message, but had not delivered it",
                    names.process(id.to),
                    names.message(id)
                )
            }
            Breach::OrphanNeverResent { message: id } => {
                let (sender, receiver) = (names.process(id.from), names.process(id.to));
                format!("{sender} never re-sent {}, an orphan message of {receiver}", names.message(id))
            }
        }
    }
}

pub(super) const RULE: Rule = Rule::new(Property::OrphansReplayed, "every orphan message was re-sent", check)
    .needs(&[FactKind::Orphaned]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let mut replayed: HashSet<MessageId> = HashSet::new();
    for &(id, at) in &history.suppressed {
        replayed.insert(id);
        finding.instances += 1;
        let is_there = history.messages.find(id).is_some_and(|message| !message.delivered().is_empty());
        // The last fact of the receiver may be missing.
        if !is_there && history.ending(id.to) != Ending::Incomplete {
            finding.violated([history.source(at)], Breach::SuppressedUndelivered { message: id });
        }
    }
    for claimed in &history.claims {
        let Claim::Phase(PhaseClaim::Orphaned { id, .. }) = *claimed.claim else { continue };
        finding.instances += 1;
        let has_it = history.messages.find(id).is_some_and(|it| {
            it.delivered().iter().any(|&delivered| history.contains(claimed.at, delivered))
        });
        if !has_it && history.ending(id.to) != Ending::Incomplete {
            finding.violated([history.source(claimed.at)], Breach::NotAnOrphan { message: id });
        }
        let is_over = history.is_settled && matches!(history.ending(id.from), Ending::Known(_));
        // The last orphan may still wait for its phase when all processes have finished: it was re-sent, even if not
        // yet suppressed.
        let waits = || {
            history.messages.find(id).is_some_and(|message| {
                let mut left = message.stamp().into_iter().chain(message.restamped());
                message.sent().iter().any(|&sent| history.survives(sent))
                    && !left.any(|(_, at)| history.survives(at))
            })
        };
        if is_over && history.survives(claimed.at) && !replayed.contains(&id) && !waits() {
            finding.violated([history.source(claimed.at)], Breach::OrphanNeverResent { message: id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone};
    use faultline_core::Fact;

    /// p0 sends to p1 and rolls back; p1 reports the message.
    fn run(delivered: bool) -> (Run, MessageId) {
        let mut run = Run::repeating(&[], &[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let id = run.send(0, 1);
        if delivered {
            run.deliver(id);
        }
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run.claim(1, Claim::Phase(PhaseClaim::Orphaned { id, phase: 1 }));
        (run, id)
    }

    #[test]
    fn an_orphan_that_is_re_sent_is_allowed() {
        let (mut run, id) = run(true);
        run.send_as(id);
        run.state(0, Fact::Suppressed(id));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0), "{finding:?}");
    }

    #[test]
    fn an_orphan_that_is_never_re_sent_is_found() {
        let finding = check_alone(&RULE, &run(true).0);
        finds!(finding, Breach::OrphanNeverResent { .. });
    }

    #[test]
    fn a_process_that_reports_an_orphan_must_have_it() {
        let (mut run, id) = run(false);
        run.send_as(id);
        run.deliver(id);
        run.state(0, Fact::Suppressed(id));
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::NotAnOrphan { .. });
    }

    #[test]
    fn a_message_that_was_never_delivered_must_not_be_suppressed() {
        let mut run = Run::repeating(&[], &[&[0], &[1]]);
        let id = run.send(0, 1);
        run.state(0, Fact::Suppressed(id));
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::SuppressedUndelivered { .. });
    }
}
