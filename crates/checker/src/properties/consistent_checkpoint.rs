//! A checkpoint of a cluster is consistent (HC3I section 2.2): if one part contains the delivery of a message that was
//! sent within the cluster, the sender's part contains the send. Messages in transit do not make a checkpoint
//! inconsistent: they belong to it, and are delivered again after a restore. If they are not delivered, `no_loss`
//! reports it.

use crate::finding::{Breach, Findings, Gap};
use crate::judgement::Property;
use faultline_history::History;

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::ConsistentCheckpoint);
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
                finding.unjudged(Gap::PartUnknown { owner: message.id.from, position: name.position });
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
    finding
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
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn a_message_sent_after_and_delivered_before_is_an_orphan_in_the_checkpoint() {
        let mut run = Run::new(&[&[0, 1]]);
        run.commit_all(0, &[0]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.commit_all(0, &[1]);
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 1));
    }

    #[test]
    fn messages_between_clusters_are_not_judged() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.commit_all(1, &[1]);
        assert_eq!(check_alone(check, &run).instances, 0);
    }
}
