//! Causal order (HydEE section II-A: the events of an execution are consistent with the happened-before relation): the
//! actions in the final states of the processes can be arranged in an order in which every message is sent before it is
//! consumed.
//!
//! Before that, every delivery in any state must be possible at all: the facts of each process happened in their order, and
//! a message was sent before it was delivered. A record in which a send depends on the delivery of the same message is that
//! of no run, whatever the protocol.
//!
//! Without rollbacks, the order of consumption always holds. But if messages of a rolled-back process still exist before it has re-sent
//! them, a message that depends on them can overtake them and be consumed before its own cause. It is judged if
//! consumption is recorded, as it is under protocols that rely on repetition.

use std::collections::HashMap;

use crate::finding::{Findings, Worded};
use crate::properties::order::{ProcessAction, final_actions, replay};
use crate::property::Property;
use crate::rule::Rule;
use faultline_core::{FactKind, MessageId};
use faultline_history::{Context, History, Message, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    DeliveredBeforeSent { message: MessageId },
    ConsumedBeforeItsCause { message: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let (Breach::DeliveredBeforeSent { message: id } | Breach::ConsumedBeforeItsCause { message: id }) =
            *self;
        let (message, receiver) = (names.message(id), names.process(id.to));
        match self {
            Breach::DeliveredBeforeSent { .. } => format!(
                "{receiver} delivered {message} before {} had sent it, which no run can do: the send depends on the \
                 delivery",
                names.process(id.from)
            ),
            Breach::ConsumedBeforeItsCause { .. } => {
                format!("{receiver} consumed {message}, whose send depends on later actions of {receiver}")
            }
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::CausalOrder, "no message was consumed before its causes", check)
        .needs(&[FactKind::Sent, FactKind::Delivered]);

fn check(history: &History<'_>, finding: &mut Findings) {
    match history.context.common_clock {
        true => check_times(history, finding),
        false => check_deliveries(history, finding),
    }
    if history.consumed == 0 {
        return;
    }
    let final_actions = final_actions(history);
    let is_consumed = |doing: &ProcessAction| matches!(doing, ProcessAction::Consumes(_));
    let consumed = final_actions.iter().flatten().filter(|(doing, _)| is_consumed(doing)).count() as u64;
    finding.instances += consumed;
    if consumed > 0
        && let Some((id, at)) = replay(&final_actions, |_, _| {})
    {
        finding.violated([at], Breach::ConsumedBeforeItsCause { message: id });
    }
}

/// Iterates over the messages that were sent and delivered, with their first sends. Tasks are sent by the processes that run
/// them, so their messages have no single sender.
fn delivered<'h>(history: &'h History<'_>) -> impl Iterator<Item = (&'h Message, Point)> {
    let has_senders = history.tasks.is_none() && history.planned.is_none();
    let messages = history.messages.iter().filter(move |it| has_senders && !it.delivered().is_empty());
    messages.filter_map(|it| Some((it, it.sent().first()?)))
}

/// Checks deliveries by the clock that all processes read.
fn check_times(history: &History<'_>, finding: &mut Findings) {
    for (message, sent) in delivered(history) {
        finding.instances += message.delivered().iter().count() as u64;
        let is_early = |at: &&Point| history.time(**at) < history.time(sent);
        if let Some(&early) = message.delivered().iter().find(is_early) {
            let breach = Breach::DeliveredBeforeSent { message: message.id };
            finding.violated([history.source(early), history.source(sent)], breach);
        }
    }
}

/// A send or a delivery of the message with this index.
#[derive(Clone, Copy)]
enum Action {
    Sends(usize),
    Delivers(usize),
}

/// Checks that the sends and deliveries of all lives can be arranged in an order in which every message is sent first.
fn check_deliveries(history: &History<'_>, finding: &mut Findings) {
    let messages: Vec<(&Message, Point)> = delivered(history).collect();
    let mut actions: Vec<Vec<(Point, Action)>> = vec![Vec::new(); history.processes.len()];
    for (index, (message, sent)) in messages.iter().enumerate() {
        actions[history.process_of(*sent).index()].push((*sent, Action::Sends(index)));
        for &at in message.delivered().iter() {
            finding.instances += 1;
            actions[history.process_of(at).index()].push((at, Action::Delivers(index)));
        }
    }
    actions.iter_mut().for_each(|it| it.sort_unstable_by_key(|(at, _)| *at));
    let mut done = vec![0; actions.len()];
    let mut is_sent = vec![false; messages.len()];
    let mut waiting: HashMap<usize, usize> = HashMap::new();
    let mut ready: Vec<usize> = (0..actions.len()).collect();
    while let Some(process) = ready.pop() {
        while let Some(&(_, action)) = actions[process].get(done[process]) {
            match action {
                Action::Sends(index) => {
                    is_sent[index] = true;
                    ready.extend(waiting.remove(&index));
                }
                Action::Delivers(index) if !is_sent[index] => {
                    waiting.insert(index, process);
                    break;
                }
                Action::Delivers(_) => {}
            }
            done[process] += 1;
        }
    }
    // Every process that waits does so for a process that waits, so following them leads into a cycle.
    let awaited = |process: usize| match actions[process].get(done[process]) {
        Some(&(at, Action::Delivers(index))) => Some((at, index)),
        _ => None,
    };
    let Some(mut process) = (0..actions.len()).find(|it| awaited(*it).is_some()) else { return };
    for _ in 0..actions.len() {
        let Some((_, index)) = awaited(process) else { return };
        process = history.process_of(messages[index].1).index();
    }
    let Some((at, index)) = awaited(process) else { return };
    let (message, sent) = messages[index];
    let breach = Breach::DeliveredBeforeSent { message: message.id };
    finding.violated([history.source(at), history.source(sent)], breach);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::{Run, check_alone, p};

    #[test]
    fn a_chain_of_messages_is_in_order_in_any_reading_order() {
        let mut run = Run::new(&[&[0], &[1], &[2]]);
        let first = run.send(2, 1);
        run.deliver(first);
        run.consume(first);
        let second = run.send(1, 0);
        run.deliver(second);
        run.consume(second);
        let finding = check_alone(&RULE, &run);
        assert_eq!(
            (finding.instances, finding.violation_count()),
            (4, 0),
            "each delivery, and each consumption"
        );
    }

    #[test]
    fn a_message_consumed_before_its_cause_is_found() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let cause = run.send(0, 1);
        run.deliver(cause);
        run.consume(cause);
        let effect = run.send(1, 0);
        // The cause is undone, but its effect is not, so the effect is consumed before the cause is re-sent.
        run.restore(0, 0, Some((0, 1)));
        run.deliver(effect);
        run.consume(effect);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0, "the cause no longer exists");
        run.send_as(cause);
        let finding = check_alone(&RULE, &run);
        finds!(finding, Breach::ConsumedBeforeItsCause { .. });
    }

    /// Returns a run in which each of `processes` processes delivers a message of its successor before it sends one to its
    /// predecessor, except that the first one sends first unless `is_circular`. One more process does nothing.
    fn ring(processes: u32, is_circular: bool) -> Run {
        let clusters: Vec<Vec<u32>> = (0..=processes).map(|it| vec![it]).collect();
        let clusters: Vec<&[u32]> = clusters.iter().map(Vec::as_slice).collect();
        let mut run = Run::new(&clusters);
        let id = run.message(0, 0, 0, 0);
        let of = |from: u32| MessageId { from: p(from), to: p((from + processes - 1) % processes), ..id };
        if !is_circular {
            run.send_as(of(0));
        }
        for process in (0..processes).rev() {
            run.deliver(of((process + 1) % processes));
            if process > 0 || is_circular {
                run.send_as(of(process));
            }
        }
        run
    }

    #[test]
    fn a_cycle_of_messages_is_found() {
        for processes in [2, 3, 7] {
            assert_eq!(check_alone(&RULE, &ring(processes, false)).violation_count(), 0);
            let finding = check_alone(&RULE, &ring(processes, true));
            finds!(finding, Breach::DeliveredBeforeSent { .. });
            assert_eq!(finding.violation_count(), 1);
        }
    }

    #[test]
    fn a_process_that_only_waits_for_a_cycle_is_not_blamed() {
        let mut run = ring(3, true);
        let id = run.message(1, 3, 0, 0);
        run.deliver(id);
        run.send_as(id);
        let [Breach::DeliveredBeforeSent { message }] = check_alone(&RULE, &run).wrong()[..] else {
            panic!()
        };
        assert_ne!(message.to, p(3));
    }

    #[test]
    fn a_delivery_after_an_earlier_send_of_the_same_message_is_possible() {
        let mut run = Run::new(&[&[0], &[1]]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.kill(0, false);
        run.send_as(id);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }

    #[test]
    fn a_delivery_before_the_send_is_found_in_virtual_time() {
        let violations = |sends_first: bool| {
            let mut run = Run::new(&[&[0], &[1]]);
            run.context.common_clock = true;
            let id = run.message(0, 1, 0, 0);
            if sends_first {
                run.send_as(id);
            }
            run.deliver(id);
            run.wait(faultline_core::Span(1));
            run.send_as(id);
            check_alone(&RULE, &run).violation_count()
        };
        assert_eq!((violations(true), violations(false)), (0, 1));
    }
}
