//! No value sent after the sender's part of a checkpoint is received before the receiver's part (CCK long paper: no
//! message after the pong): every value whose receipt a part contains was sent before the sender's own part. A send
//! that a rollback undid counts as well, because the value will be sent again.

use super::valid_checkpoints::{CrossingMessage, for_each_message};
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_core::{FactKind, MessageId, Position};
use faultline_history::{Context, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    SentAfterPart { position: Position, message: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::SentAfterPart { position, message: id } = *self;
        format!(
            "checkpoint {position} contains the receipt of {}, which {} sent after it had saved its part",
            names.message(id),
            names.process(id.from)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::QuietCheckpoints, "checkpoints contain no value that was sent after them", check)
        .needs(&[FactKind::Planned]);

fn check(history: &History<'_>, finding: &mut Findings) {
    if history.planned.is_none() {
        return;
    }
    for_each_message(history, |CrossingMessage { position, message, sender, receiver }| {
        let received = message.delivered().iter().find(|it| history.contains(receiver, **it));
        let Some(&received) = received else { return };
        finding.instances += 1;
        if !message.sent().iter().any(|sent| *sent < sender) {
            finding.violated(
                [history.source(received)],
                Breach::SentAfterPart { position, message: message.id },
            );
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_alone;
    use crate::testing::planned::Partitions;

    #[test]
    fn a_value_sent_after_a_part_is_in_no_other_part() {
        let mut run = Partitions::new(2);
        let early = run.executed(0, 1, &[], &[1])[0];
        run.delivered(early);
        run.save(0, 0, 1);
        let late = run.executed(0, 2, &[], &[1])[0];
        let position = run.save(1, 0, 1);
        run.commit(0, position);
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 0);

        let mut run = Partitions::new(2);
        run.save(0, 0, 1);
        let id = run.executed(0, 2, &[], &[1])[0];
        assert_eq!(late.from, id.from);
        run.delivered(id);
        let position = run.save(1, 0, 1);
        run.commit(0, position);
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 1);
    }

    #[test]
    fn an_undone_value_is_sent_again() {
        let mut run = Partitions::new(2);
        let first = run.checkpoint(0, 1);
        run.commit(0, first);
        let id = run.executed(0, 1, &[], &[1])[0];
        run.delivered(id);
        run.0.kill(0, false);
        run.restored(0, 3, first);
        let second = run.checkpoint(3, 2);
        run.commit(1, second);
        assert_eq!(check_alone(&RULE, &run.0).violation_count(), 0);
    }
}
