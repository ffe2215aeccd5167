//! Deliveries are repeated in order (pessimistic logging; Elnozahy et al., section 4.2: no process depends on a
//! delivery that cannot be repeated). When a process rolls back, the messages that other processes have received from
//! it remain valid. The same messages must therefore be delivered to it in the same order again, up to the last
//! delivery on which a message that another process has received may depend. This property is judged for protocols that
//! promise it.

use std::collections::HashMap;

use faultline_core::{Fact, FactKind, MessageId, Promise};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, History, Point, SegmentNo};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    DeliveredInAnotherOrder { message: MessageId, instead_of: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::DeliveredInAnotherOrder { message: id, instead_of } = *self;
        format!(
            "{} delivered {} instead of {}, on whose delivery other processes depend",
            names.process(id.to),
            names.message(id),
            names.message(instead_of)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::RepeatedOrder, "re-execution delivered messages in the same order", check)
        .promised(Promise::RepeatedOrder)
        .needs(&[FactKind::Delivered, FactKind::Restored]);

fn check(history: &History<'_>, finding: &mut Findings) {
    for process in &history.processes {
        let states = process.segments.clone().map(SegmentNo).filter(|&it| history.has_state(it));
        let states: Vec<SegmentNo> = states.collect();
        for (place, &after) in states.iter().enumerate() {
            let Some(cut) = history.segment(after).parent else { continue };
            let again = deliveries(history, cut, end_of(history, after));
            for &before in &states[..place] {
                let was = deliveries(history, cut, end_of(history, before));
                compare(history, &was, &again, finding);
            }
        }
    }
}

/// Compares the deliveries that originally followed the restored state of a process with those that followed
/// the restore.
fn compare(history: &History<'_>, was: &[Delivery], again: &[Delivery], finding: &mut Findings) {
    let seen = was.iter().rposition(|it| it.is_seen).map_or(0, |last| last + 1);
    for (was, again) in was[..seen].iter().zip(again) {
        finding.instances += 1;
        if was.id != again.id {
            finding.violated(
                [history.source(was.at), history.source(again.at)],
                Breach::DeliveredInAnotherOrder { message: again.id, instead_of: was.id },
            );
            return;
        }
    }
}

/// Returns the state at the end of a segment.
fn end_of(history: &History<'_>, segment: SegmentNo) -> Point {
    Point { segment, fact: history.segment(segment).end }
}

struct Delivery {
    id: MessageId,
    at: Point,
    /// Whether, after this delivery and before the next, the process sent a message that went to the network and was
    /// delivered.
    is_seen: bool,
}

/// Returns the deliveries between two states; none if the second one does not continue the first.
fn deliveries(history: &History<'_>, cut: Point, end: Point) -> Vec<Delivery> {
    let mut stretches = Vec::new();
    let mut until = end;
    while until.segment > cut.segment {
        let segment = history.segment(until.segment);
        stretches.push((until.segment, segment.begin, until.fact));
        match segment.parent {
            Some(parent) => until = parent,
            None => return Vec::new(),
        }
    }
    if until.segment != cut.segment {
        return Vec::new();
    }
    stretches.push((cut.segment, cut.fact, until.fact));
    let mut deliveries: Vec<Delivery> = Vec::new();
    // The number of deliveries before each send whose message has not been transmitted yet.
    let mut sent: HashMap<MessageId, usize> = HashMap::new();
    for (number, from, upto) in stretches.into_iter().rev() {
        let segment = history.segment(number);
        let Some(stream) = history.trace.streams.get(&(segment.host, segment.life)) else { continue };
        for fact in from..upto {
            match stream[fact as usize].1 {
                Fact::Delivered(id) => {
                    deliveries.push(Delivery { id, at: Point { segment: number, fact }, is_seen: false });
                }
                Fact::Sent { id, .. } => drop(sent.insert(id, deliveries.len())),
                Fact::Transmitted { id, .. } => {
                    let before = sent.remove(&id).filter(|_| was_delivered(history, id)).unwrap_or(0);
                    if let Some(last) = deliveries[..before].last_mut() {
                        last.is_seen = true;
                    }
                }
                _ => {}
            }
        }
    }
    deliveries
}

fn was_delivered(history: &History<'_>, id: MessageId) -> bool {
    history.messages.find(id).is_some_and(|message| !message.delivered().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone};
    use faultline_core::Promise;

    /// Returns a run in which p1 receives two messages, and then sends one to p0 if `sends` is set. After the
    /// restore of p1, the messages arrive in the order `again`.
    fn run(sends: bool, again: [usize; 2]) -> Run {
        let mut run = Run::repeating(&[Promise::RepeatedOrder], &[&[0], &[1], &[2]]);
        run.commit_all(1, &[1]);
        let messages = [run.send(0, 1), run.send(2, 1)];
        messages.iter().for_each(|it| run.deliver(*it));
        if sends {
            let effect = run.send(1, 0);
            run.transmit(effect, crate::testing::position(0, 1));
            run.deliver(effect);
        }
        run.kill(1, false);
        run.restore(1, 1, Some((0, 1)));
        again.iter().for_each(|it| run.deliver(messages[*it]));
        run
    }

    #[test]
    fn the_same_order_is_allowed() {
        let finding = check_alone(&RULE, &run(true, [0, 1]));
        assert_eq!((finding.instances, finding.violation_count()), (2, 0), "{finding:?}");
    }

    #[test]
    fn another_order_is_found_if_a_process_depends_on_the_first() {
        let finding = check_alone(&RULE, &run(true, [1, 0]));
        finds!(finding, Breach::DeliveredInAnotherOrder { .. });
        assert_eq!(check_alone(&RULE, &run(false, [1, 0])).violation_count(), 0, "no process depends on it");
    }

    #[test]
    fn an_order_cut_short_by_the_next_failure_still_binds_later_lives() {
        let mut run = run(true, [0, 1]);
        run.kill(1, false);
        run.restore(1, 2, Some((0, 1)));
        run.kill(1, false);
        run.restore(1, 3, Some((0, 1)));
        let second = run.message(2, 1, 0, 0);
        run.deliver(second);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
    }

    #[test]
    fn a_protocol_that_promises_no_order_is_not_judged() {
        let mut run = run(true, [1, 0]);
        run.withdraw(Promise::RepeatedOrder);
        assert_eq!(check_alone(&RULE, &run).instances, 0);
    }
}
