//! No value sent after the sender's part of a checkpoint is received before the receiver's part (CCK long paper: no
//! message after the pong): every value whose receipt a part contains was sent before the sender's own part. A send
//! that a rollback undid counts as well, because the value will be sent again.

use super::valid_checkpoints::{CrossingMessage, for_each_message};
use crate::finding::{Breach, Findings};
use crate::judgement::Property;
use faultline_history::History;

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::QuietCheckpoints);
    if history.planned.is_none() {
        return finding;
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
    finding
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
        assert_eq!(check_alone(check, &run.0).violation_count(), 0);

        let mut run = Partitions::new(2);
        run.save(0, 0, 1);
        let id = run.executed(0, 2, &[], &[1])[0];
        assert_eq!(late.from, id.from);
        run.delivered(id);
        let position = run.save(1, 0, 1);
        run.commit(0, position);
        assert_eq!(check_alone(check, &run.0).violation_count(), 1);
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
        assert_eq!(check_alone(check, &run.0).violation_count(), 0);
    }
}
