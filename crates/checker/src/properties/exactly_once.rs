//! Exactly once: no state of a process, final or undone, contains two deliveries of one message; no two messages share
//! an identity; and the deliveries in the final states include at most one message for each position in a channel.

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use faultline_core::{FactKind, MessageId};
use faultline_history::{Context, History, Point, Points};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    SameIdentity { message: MessageId },
    DeliveredTwice { message: MessageId },
    DeliveredBoth { one: MessageId, other: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::SameIdentity { message: id } => {
                format!("two messages have the identity {}", names.message(id))
            }
            Breach::DeliveredTwice { message: id } => {
                format!("{} delivered {} twice", names.process(id.to), names.message(id))
            }
            Breach::DeliveredBoth { one, other } => format!(
                "{} delivered both {} and {}, although one replaces the other",
                names.process(one.to),
                names.message(one),
                names.message(other)
            ),
        }
    }
}

pub(super) const RULE: Rule = Rule::new(Property::ExactlyOnce, "no message was delivered twice", check)
    .needs(&[FactKind::Delivered])
    .with(&[Aspect::NeedsNoOtherFact]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let mut places = Vec::new();
    for (number, message) in (0u32..).zip(history.messages.iter()) {
        if message.sent().len() > 1
            && let Some((first, second)) = same_identity(history, message.sent())
        {
            finding.violated(
                [history.source(first), history.source(second)],
                Breach::SameIdentity { message: message.id },
            );
        }
        let deliveries: Vec<_> = match message.delivered().len() {
            0 => continue,
            1 => Vec::new(),
            _ => message.delivered().iter().copied().collect(),
        };
        finding.instances += message.delivered().len() as u64;
        for (index, &later) in deliveries.iter().enumerate() {
            if let Some(&earlier) = deliveries[..index].iter().find(|&&it| history.contains(later, it)) {
                finding.violated(
                    [history.source(earlier), history.source(later)],
                    Breach::DeliveredTwice { message: message.id },
                );
            }
        }
        // Within one incarnation, messages of one channel that have the same number also have the same identity, so
        // only messages of different incarnations can share a position.
        if history.messages.has_other_incarnations(message.id)
            && message.delivered().iter().any(|&at| history.survives(at))
        {
            places.push(((message.id.from, message.id.to, message.id.number), number));
        }
    }
    places.sort_unstable();
    for pair in places.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let messages =
            [pair[0].1, pair[1].1].map(|number| history.messages.get(faultline_history::MessageNo(number)));
        let [one, other] = messages.map(|it| it.delivered().first().expect("the message was delivered"));
        finding.violated(
            [history.source(one), history.source(other)],
            Breach::DeliveredBoth { one: messages[0].id, other: messages[1].id },
        );
    }
}

/// Returns two sends that should not share an identity: any two sends or, if re-execution repeats messages, two in one
/// line of history.
fn same_identity(history: &History<'_>, sends: Points<'_>) -> Option<(Point, Point)> {
    let repeats = history.context.repeats();
    let sends: Vec<Point> = sends.iter().copied().collect();
    let is_same = |earlier, later| !repeats || history.contains(later, earlier);
    sends.iter().enumerate().find_map(|(index, &later)| {
        let earlier = sends[..index].iter().find(|&&earlier| is_same(earlier, later))?;
        Some((*earlier, later))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone};

    #[test]
    fn a_second_delivery_in_one_state_is_found_even_if_it_was_undone() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.deliver(id);
        run.restore(1, 1, Some((0, 1)));
        run.deliver(id);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (3, 1));
    }

    #[test]
    fn a_delivery_after_the_first_was_undone_is_allowed() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.restore(1, 1, Some((0, 1)));
        run.deliver(id);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }

    #[test]
    fn a_delivery_before_the_restored_cut_still_counts() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.commit_all(1, &[1]);
        run.restore(1, 1, Some((0, 1)));
        run.deliver(id);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
    }

    #[test]
    fn an_identity_used_twice_is_found() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.send(0, 1);
        run.restore(0, 0, Some((0, 1)));
        run.send(0, 1);
        finds!(check_alone(&RULE, &run), Breach::SameIdentity { .. });
    }

    #[test]
    fn an_identity_may_be_used_once_in_each_line_if_executions_repeat() {
        let mut run = Run::repeating(&[], &[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.send(0, 1);
        run.restore(0, 0, Some((0, 1)));
        let again = run.send(0, 1);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.send_as(again);
        finds!(check_alone(&RULE, &run), Breach::SameIdentity { .. });
    }

    #[test]
    fn a_position_in_a_channel_is_taken_once() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let undone = run.send(0, 1);
        run.deliver(undone);
        run.restore(0, 1, Some((0, 1)));
        let again = run.send(0, 1);
        run.deliver(again);
        finds!(check_alone(&RULE, &run), Breach::DeliveredBoth { .. });
    }
}
