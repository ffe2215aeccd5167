//! No loss (HC3I section 2.1: "in transit messages … should not be lost"): a message in the final state of its sender
//! is also in the final state of its receiver. This property is judged only if no message is still in transit, which
//! always holds between a cluster that has left permanently and all others.

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use crate::words::count;
use faultline_core::{FactKind, MessageId};
use faultline_history::{Context, Ending, History};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    NeverDelivered { message: MessageId },
    NotDeliveredAgain { message: MessageId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::NeverDelivered { message: id } => format!("{} was never delivered", names.message(id)),
            Breach::NotDeliveredAgain { message: id } => {
                format!(
                    "{} was not delivered again after {} had rolled back",
                    names.message(id),
                    names.process(id.to)
                )
            }
        }
    }
}

pub(super) const RULE: Rule = Rule::new(Property::NoLoss, "every sent message was delivered", check)
    .needs(&[FactKind::Sent, FactKind::Delivered]);

fn check(history: &History<'_>, finding: &mut Findings) {
    // The partitions of a planned program continue to run, even if their clusters have left.
    let some_left = !history.supervision.left.is_empty() && history.planned.is_none();
    if !history.is_settled && !some_left {
        return;
    }
    let context = history.context;
    let mut unjudged = 0u64;
    for message in history.messages.iter() {
        let one_left = || some_left && (history.has_left(message.id.from) || history.has_left(message.id.to));
        if !history.is_settled && !one_left() {
            continue;
        }
        let Some(&sent) = message.sent().iter().find(|&&at| history.survives(at)) else { continue };
        match history.ending(message.id.to) {
            Ending::Known(_) | Ending::Silent | Ending::Gone => {}
            Ending::Unsettled | Ending::Incomplete => {
                unjudged += 1;
                continue;
            }
        }
        finding.instances += 1;
        if !message.delivered().iter().any(|&at| history.survives(at)) {
            match message.delivered().first() {
                None => {
                    finding.violated([history.source(sent)], Breach::NeverDelivered { message: message.id })
                }
                Some(delivered) => {
                    finding.violated(
                        [history.source(sent), history.source(delivered)],
                        Breach::NotDeliveredAgain { message: message.id },
                    );
                }
            }
        }
    }
    if !context.recorded.contains(FactKind::Sent) {
        return;
    }
    if history.tasks.is_some() {
        // In a task-based program, a message lost in transit shows up as a missing task.
        return;
    }
    let ranks: usize = context.clusters.iter().map(Vec::len).sum();
    // The partitions of a planned program send no message if one of them has all tasks.
    if finding.instances == 0 && ranks > 1 && history.is_settled && history.planned.is_none() {
        let remedy = "use an application whose ranks exchange messages, or let it run longer";
        finding.inconclusive("no message had to be delivered", remedy);
    }
    if unjudged > 0 {
        let messages = count(unjudged, "message");
        finding.lacks_facts(format!("the final states of the receivers of {messages} are unknown"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::finds;
    use crate::testing::planned::Partitions;
    use crate::testing::{Run, check_alone};
    use faultline_core::fault::{LinkProperties, Outcome};
    use faultline_core::{ClusterId, Fact, Span, Time};
    use faultline_trace::manifest::LinkEntry;

    /// Returns a run in which a delivery is undone. With `delivered_again`, the message is then delivered
    /// again.
    fn loss(delivered_again: bool) -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.restore(1, 1, Some((0, 1)));
        if delivered_again {
            run.deliver(id);
        }
        run
    }

    #[test]
    fn an_undone_delivery_that_is_not_repeated_is_a_loss() {
        let finding = check_alone(&RULE, &loss(false));
        assert_eq!((finding.instances, finding.violation_count()), (1, 1));
        finds!(finding, Breach::NotDeliveredAgain { .. });
    }

    #[test]
    fn a_repeated_delivery_is_no_loss() {
        let finding = check_alone(&RULE, &loss(true));
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn a_message_may_be_in_transit_at_the_deadline_unless_nothing_has_moved_for_long() {
        let mut run = loss(false);
        run.context.outcome = Some(Outcome::Deadline);
        run.context.end = Time::ZERO + Span::from_secs(60);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.context.settled_after = Some(Span::from_secs(30));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
        run.context.settled_after = Some(Span::from_secs(61));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }

    #[test]
    fn a_message_may_be_in_transit_for_as_long_as_the_links_need() {
        // A message has eight bytes; the run is quiet for a minute.
        for (bandwidth, latency, more, is_settled) in
            [(1, 0, 0, true), (1, 0, 8, false), (1_000, 0, 8, true), (0, 1_000, 0, false), (0, 100, 0, true)]
        {
            let mut run = loss(false);
            for _ in 0..more {
                run.send(0, 1);
            }
            run.context.outcome = Some(Outcome::Deadline);
            run.context.end = Time::ZERO + Span::from_secs(60);
            run.context.settled_after = Some(Span::from_secs(30));
            let requested = LinkProperties {
                bandwidth,
                latency: Span::from_millis(latency),
                ..LinkProperties::default()
            };
            let (from, to, measured, observed, since) = (ClusterId(0), ClusterId(1), None, None, None);
            run.context.links = vec![LinkEntry { from, to, requested, measured, observed, since }];
            assert_eq!(
                check_alone(&RULE, &run).violation_count() > 0,
                is_settled,
                "{bandwidth} {latency} {more}"
            );
        }
    }

    #[test]
    fn nothing_is_in_transit_from_a_cluster_that_has_left() {
        let mut run = loss(false);
        run.context.outcome = Some(Outcome::Deadline);
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.supervisor(Fact::Left(ClusterId(0)));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
        let mut run = loss(true);
        run.context.outcome = Some(Outcome::Deadline);
        run.supervisor(Fact::Left(ClusterId(0)));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn a_send_that_was_undone_need_not_arrive() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.send(0, 1);
        run.restore(0, 1, Some((0, 1)));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (0, 0));
        assert!(finding.open.is_some(), "nothing was judged");
    }

    #[test]
    fn partitions_need_not_send_messages() {
        let run = Partitions::new(2);
        assert!(check_alone(&RULE, &run.0).open.is_none());
        assert!(check_alone(&RULE, &Run::new(&[&[0], &[1]])).open.is_some());
    }

    #[test]
    fn a_message_to_a_partition_whose_cluster_has_left_may_be_in_transit() {
        let mut run = Partitions::new(2);
        run.executed(0, 1, &[], &[1]);
        run.0.supervisor(Fact::Left(ClusterId(1)));
        run.0.context.outcome = Some(Outcome::Deadline);
        assert_eq!(check_alone(&RULE, &run.0).instances, 0);
    }
}
