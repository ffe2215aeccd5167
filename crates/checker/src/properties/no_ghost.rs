//! No ghost (HC3I section 2.2): a message in the final state of its receiver is also in the final state of
//! its sender.
//!
//! A rollback of the sender's cluster reaches other clusters through alerts. Between clusters, the property is
//! therefore judged only if no message is still in transit. Within a cluster, it is judged whenever the final states of
//! both processes have the same incarnation.

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use crate::words::count;
use faultline_core::{FactKind, MessageId};
use faultline_history::{Context, Ending, History, Message, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    SendUndone { message: MessageId },
    NeverSent { message: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::SendUndone { message: id } => {
                format!(
                    "{} is in the final state of {}, but its send was undone",
                    names.message(id),
                    names.process(id.to)
                )
            }
            Breach::NeverSent { message: id } => {
                format!("{} delivered {}, which was never sent", names.process(id.to), names.message(id))
            }
        }
    }
}

pub(super) const RULE: Rule = Rule::new(Property::NoGhost, "every delivered message was sent", check)
    .needs(&[FactKind::Sent, FactKind::Delivered]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let mut unjudged = 0u64;
    for message in history.messages.iter() {
        for &at in message.delivered().iter().filter(|&&at| history.survives(at)) {
            if !is_due(history, message) {
                unjudged += 1;
                continue;
            }
            finding.instances += 1;
            if history.send_survives(message) == Some(true) {
                continue;
            }
            match message.sent().first() {
                Some(sent) => finding.violated(
                    [history.source(at), history.source(sent)],
                    Breach::SendUndone { message: message.id },
                ),
                None => finding.violated([history.source(at)], Breach::NeverSent { message: message.id }),
            }
        }
    }
    if unjudged > 0 && history.is_settled {
        let messages = count(unjudged, "delivered message");
        finding.lacks_facts(format!("the final states of the senders of {messages} are unknown"));
    }
}

/// Returns whether a ghost would have been removed by now.
fn is_due(history: &History<'_>, message: &Message) -> bool {
    let (Ending::Known(sender), Ending::Known(receiver)) =
        (history.ending(message.id.from), history.ending(message.id.to))
    else {
        // The receiver's delivery survives, so its final state is known; if the sender never reported a fact, it sent
        // nothing.
        return history.ending(message.id.from) == Ending::Silent;
    };
    let incarnation = |cut: Point| history.segment(cut.segment).incarnation;
    let together = || history.group_of(message.id.from) == history.group_of(message.id.to);
    history.is_settled || together() && incarnation(sender) == incarnation(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone};
    use faultline_core::fault::Outcome;

    /// Returns a run in which p0 sends a message to p1, in another cluster, after a checkpoint. Then p0's
    /// cluster rolls back to this checkpoint.
    fn ghost(receiver_rolls_back: bool) -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.restore(0, 1, Some((0, 1)));
        if receiver_rolls_back {
            run.restore(1, 1, Some((0, 1)));
        }
        run
    }

    #[test]
    fn a_delivery_whose_send_was_undone_is_a_ghost() {
        let finding = check_alone(&RULE, &ghost(false));
        assert_eq!((finding.instances, finding.violation_count()), (1, 1));
        finds!(finding, Breach::SendUndone { .. });
    }

    #[test]
    fn a_delivery_that_was_undone_as_well_is_no_ghost() {
        assert_eq!(check_alone(&RULE, &ghost(true)).violation_count(), 0);
    }

    #[test]
    fn between_clusters_an_alert_may_be_in_transit() {
        let mut run = ghost(false);
        run.context.outcome = Some(Outcome::Deadline);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (0, 0));
    }

    #[test]
    fn within_a_cluster_it_is_judged_at_any_time() {
        let mut run = Run::new(&[&[0, 1]]);
        run.commit_all(0, &[0, 1]);
        let id = run.send(0, 1);
        run.restore(0, 1, Some((0, 1)));
        run.restore(1, 1, Some((0, 1)));
        run.deliver(id);
        run.context.outcome = Some(Outcome::Interrupted);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
    }

    #[test]
    fn an_invented_message_is_a_ghost() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.message(0, 1, 0, 7);
        run.deliver(id);
        finds!(check_alone(&RULE, &run), Breach::NeverSent { .. });
    }

    #[test]
    fn a_sender_with_an_unknown_final_state_makes_it_unknown() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.lose_evidence(0);
        let finding = check_alone(&RULE, &run);
        assert_eq!(finding.violation_count(), 0);
        assert!(finding.open.is_some());
    }
}
