//! Exactly once: no state of a process, final or undone, contains two deliveries of one message; no two
//! messages share an identity; and the final deliveries have one message at each position of their channel.

use crate::history::{History, Point};
use crate::judgement::{Finding, Property};

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::ExactlyOnce);
    let context = history.context;
    let mut places = Vec::new();
    for (number, message) in (0u32..).zip(history.messages.iter()) {
        let sends: Vec<_> = message.sent.iter().copied().collect();
        if let Some((first, second)) = same_identity(history, &sends) {
            finding.violated([history.source(first), history.source(second)], || {
                format!("two messages have the identity {}", context.message(message.id))
            });
        }
        let deliveries: Vec<_> = match message.delivered.len() {
            0 => continue,
            1 => Vec::new(),
            _ => message.delivered.iter().copied().collect(),
        };
        finding.instances += message.delivered.len() as u64;
        for (index, &later) in deliveries.iter().enumerate() {
            if let Some(&earlier) = deliveries[..index].iter().find(|&&it| history.contains(later, it)) {
                finding.violated([history.source(earlier), history.source(later)], || {
                    let receiver = context.process(message.id.to);
                    format!("{receiver} delivered {} twice", context.message(message.id))
                });
            }
        }
        if message.delivered.iter().any(|&at| history.survives(at)) {
            places.push(((message.id.from, message.id.to, message.id.number), number));
        }
    }
    places.sort_unstable();
    for pair in places.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        let messages =
            [pair[0].1, pair[1].1].map(|number| history.messages.get(crate::history::MessageNo(number)));
        let [one, other] = messages.map(|it| it.delivered.first().expect("was delivered"));
        finding.violated([history.source(one), history.source(other)], || {
            let receiver = context.process(messages[0].id.to);
            let [one, other] = messages.map(|it| context.message(it.id));
            format!("{receiver} delivered both {one} and {other}, although one replaces the other")
        });
    }
    finding
}

/// Returns two sends that should not share an identity: any two; or, where a re-execution repeats the
/// messages of the execution, two of one history.
fn same_identity(history: &History<'_>, sends: &[Point]) -> Option<(Point, Point)> {
    let repeats = history.context.repeats();
    let is_same = |earlier, later| !repeats || history.contains(later, earlier);
    sends.iter().enumerate().find_map(|(index, &later)| {
        let earlier = sends[..index].iter().find(|&&earlier| is_same(earlier, later))?;
        Some((*earlier, later))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};

    #[test]
    fn a_second_delivery_in_one_state_is_found_even_if_it_was_undone() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        assert_eq!(check_alone(check, &run).violation_count(), 0);
        run.deliver(id);
        run.restore(1, 1, Some((0, 1)));
        run.deliver(id);
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (3, 1));
    }

    #[test]
    fn a_delivery_after_the_first_was_undone_is_right() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.restore(1, 1, Some((0, 1)));
        run.deliver(id);
        assert_eq!(check_alone(check, &run).violation_count(), 0);
    }

    #[test]
    fn a_delivery_before_the_restored_cut_still_counts() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.commit_all(1, &[1]);
        run.restore(1, 1, Some((0, 1)));
        run.deliver(id);
        assert_eq!(check_alone(check, &run).violation_count(), 1);
    }

    #[test]
    fn an_identity_used_twice_is_found() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.send(0, 1);
        run.restore(0, 0, Some((0, 1)));
        run.send(0, 1);
        assert!(check_alone(check, &run).violations[0].text.starts_with("two messages have the identity"));
    }

    #[test]
    fn where_executions_repeat_an_identity_may_be_used_once_in_each() {
        let mut run = Run::repeating(&[], &[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.send(0, 1);
        run.restore(0, 0, Some((0, 1)));
        let again = run.send(0, 1);
        assert_eq!(check_alone(check, &run).violation_count(), 0);
        run.send_as(again);
        assert!(check_alone(check, &run).violations[0].text.starts_with("two messages have the identity"));
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
        assert!(check_alone(check, &run).violations[0].text.contains("delivered both"));
    }
}
