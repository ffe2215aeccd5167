//! A checkpoint of a cluster is consistent (HC3I section 2.2): if one part contains the delivery of a message that was
//! sent within the cluster, the sender's part contains the send. Messages in transit do not make a checkpoint
//! inconsistent: they belong to it, and are delivered again after a restore. If they are not delivered, `no_loss`
//! reports it.

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_core::{FactKind, MessageId, Position};
use faultline_history::{Context, GroupId, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    DeliveryWithoutSend { group: GroupId, position: Position, message: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::DeliveryWithoutSend { group, position, message } = *self;
        format!(
            "checkpoint {position} of {} contains the delivery of {}, but not its send",
            names.group(group),
            names.message(message)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::ConsistentCheckpoint, "every checkpoint is consistent within its cluster", check)
        .needs(&[FactKind::Sent, FactKind::Delivered]);

fn check(history: &History<'_>, finding: &mut Findings) {
    for message in history.messages.iter() {
        let (Some(sender), Some(receiver)) = (history.member(message.id.from), history.member(message.id.to))
        else {
            continue;
        };
        if sender.0 != receiver.0 {
            continue;
        }
        for &delivered in message.delivered().iter() {
            // A later checkpoint on the same line also contains this delivery, with a later part of the sender.
            let Some((name, parts)) = history.first_line_with(delivered) else { continue };
            let Some(cut) = parts[sender.1] else {
                finding.lacks_content(message.id.from, name.position, history.context);
                continue;
            };
            finding.instances += 1;
            if !message.sent().iter().any(|&sent| history.contains(cut, sent)) {
                finding.violated(
                    [history.source(delivered)],
                    Breach::DeliveryWithoutSend {
                        group: sender.0,
                        position: name.position,
                        message: message.id,
                    },
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};

    #[test]
    fn a_message_sent_before_and_delivered_after_is_in_transit() {
        let mut run = Run::new(&[&[0, 1]]);
        let delivered = run.send(0, 1);
        run.deliver(delivered);
        let late = run.send(0, 1);
        run.commit_all(0, &[0, 1]);
        run.deliver(late);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn a_message_sent_after_and_delivered_before_is_an_orphan_in_the_checkpoint() {
        let mut run = Run::new(&[&[0, 1]]);
        run.commit_all(0, &[0]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.commit_all(0, &[1]);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 1));
    }

    #[test]
    fn messages_between_clusters_are_not_judged() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.commit_all(1, &[1]);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
