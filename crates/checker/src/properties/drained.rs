//! At a valid checkpoint, the channels between partitions are drained (CCK long paper, the coordinated checkpoint): the
//! checkpoint contains the receipt of every value whose send it contains. No channel's state is saved, so a rollback to
//! the checkpoint would lose a value that the receiver's part lacks.

use super::valid_checkpoints::{CrossingMessage, for_each_message};
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_core::{FactKind, MessageId, Position};
use faultline_history::{Context, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    SentAndNotReceived { position: Position, message: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::SentAndNotReceived { position, message: id } = *self;
        format!(
            "checkpoint {position} contains the send of {}, but not its receipt by {}",
            names.message(id),
            names.process(id.to)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::Drained, "checkpoints contain every value that was sent before them", check)
        .needs(&[FactKind::Planned]);

fn check(history: &History<'_>, finding: &mut Findings) {
    if history.planned.is_none() {
        return;
    }
    for_each_message(history, |CrossingMessage { position, message, sender, receiver }| {
        let Some(&sent) = message.sent().iter().find(|it| history.contains(sender, **it)) else { return };
        finding.instances += 1;
        if !message.delivered().iter().any(|it| history.contains(receiver, *it)) {
            finding.violated(
                [history.source(sent)],
                Breach::SentAndNotReceived { position, message: message.id },
            );
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_alone;
    use crate::testing::planned::Partitions;

    fn violations(is_late: bool) -> (u64, u64) {
        let mut run = Partitions::new(2);
        let id = run.executed(0, 1, &[], &[1])[0];
        if !is_late {
            run.delivered(id);
        }
        let position = run.checkpoint(0, 1);
        if is_late {
            run.delivered(id);
        }
        run.commit(0, position);
        let finding = check_alone(&RULE, &run.0);
        (finding.instances, finding.violation_count())
    }

    #[test]
    fn a_value_sent_before_a_checkpoint_is_received_before_it() {
        assert_eq!(violations(false), (1, 0));
        assert_eq!(violations(true), (1, 1));
    }
}
