//! Economy: no message is re-sent unnecessarily. Between its own rollbacks, a process passes a message to the network
//! only once. It may do so once more for each life that ended in the receiver's group, because the message may have
//! been lost with it, and once more for each rollback of this group. A rollback also counts if another one overtakes it
//! before any process has restored its state, because the sender may have been alerted to both. Under
//! [`Promise::Containment`], only the ends of lives count: each rollback follows from one of them. A message that the
//! process suppressed needs such a reason for each transmission. If re-executions also repeat messages, both ends of a
//! channel compare their states before the channel resumes. A process must then not send a message to another group at
//! all if the receiver had the message before the process restored its state, and kept it. This last rule is judged
//! only if all processes read one clock.
//!
//! This property is not judged for planned programs: a recovery demands values again from processes that did not roll
//! back, and `strictly_required` judges which tasks are re-executed.

use std::collections::BTreeMap;

use faultline_core::{Claim, FactKind, MessageId, ProcessId, Promise};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use crate::words::how_often;
use faultline_history::{Context, History, Point, SegmentNo};

/// What a process did with a message within one segment.
#[derive(Default)]
struct Transmissions {
    times: u64,
    last: Option<Point>,
    suppressed: bool,
}

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    SentAgain { message: MessageId, times: u64, suppressed: bool },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::SentAgain { message: id, times, suppressed } = *self;

        let (sender, receiver) = (names.process(id.from), names.process(id.to));
        let (first, times) = match suppressed {
            true => ("suppressed", format!(" and transmitted it {}", how_often(times))),
            false => ("transmitted", format!(" {}", how_often(times))),
        };
        format!(
            "{sender} {first} {}{times}, although no failure of {receiver} or its group required it",
            names.message(id)
        )
    }
}

pub(super) const RULE: Rule = Rule::new(Property::SentOnce, "no message was re-sent unnecessarily", check)
    .needs(&[FactKind::Resent])
    .with(&[Aspect::Economy]);

fn check(history: &History<'_>, finding: &mut Findings) {
    if history.planned.is_some() {
        return;
    }
    let mut all: BTreeMap<(MessageId, SegmentNo), Transmissions> = BTreeMap::new();
    for &(id, at) in &history.suppressed {
        all.entry((id, at.segment)).or_default().suppressed = true;
    }
    for &(id, at) in &history.retransmitted {
        let of = all.entry((id, at.segment)).or_default();
        (of.times, of.last) = (of.times + 1, Some(at));
    }
    // `retransmitted` omits the first transmission of each message.
    for (&(id, segment), of) in &mut all {
        let first = history.messages.find(id).and_then(|it| it.stamp()).map(|(_, at)| at);
        if let Some(at) = first.filter(|at| at.segment == segment) {
            (of.times, of.last) = (of.times + 1, of.last.or(Some(at)));
        }
    }
    let losses = losses(history);
    let repeats = history.context.promises.include(Promise::Repetition)
        && history.context.promises.include(Promise::Containment);
    for ((id, segment), of) in all {
        finding.instances += 1;
        let losses = losses.get(&id.to).copied().unwrap_or(0);
        let is_needless = repeats && history.context.common_clock && receiver_had(history, id, segment);
        let reasons = if is_needless { 0 } else { u64::from(!of.suppressed) + losses };
        if let Some(at) = of.last.filter(|_| of.times > reasons) {
            let (times, suppressed) = (of.times, of.suppressed);
            finding.violated([history.source(at)], Breach::SentAgain { message: id, times, suppressed });
        }
    }
}

/// Returns whether the receiver, in another group, had the message before the sender restored its state, and never
/// rolled back to a state without it.
fn receiver_had(history: &History<'_>, id: MessageId, segment: SegmentNo) -> bool {
    let state = history.segment(segment);
    let is_between = history.group_of(id.from) != history.group_of(id.to);
    let Some(message) = history.messages.find(id).filter(|_| is_between && state.is_restored) else {
        return false;
    };
    let restored = history.time(Point { segment, fact: state.begin });
    message.delivered().iter().any(|it| history.time(*it) < restored && history.survives(*it))
}

/// Counts, for each receiver, the events that may have caused the loss of messages to it.
fn losses(history: &History<'_>) -> BTreeMap<ProcessId, u64> {
    let is_contained = history.context.promises.include(Promise::Containment);
    // The recoveries that each process began after its last restore. It may already have announced their rollbacks.
    let mut unfinished: BTreeMap<ProcessId, usize> = BTreeMap::new();
    for claimed in history.claims.iter().filter(|it| matches!(it.claim, Claim::RecoveryStarted { .. })) {
        let process = history.process_of(claimed.at);
        if claimed.at.segment.0 + 1 == history.processes[process.index()].segments.end {
            *unfinished.entry(process).or_default() += 1;
        }
    }
    let mut losses = BTreeMap::new();
    for group in &history.groups {
        let ends = history.supervision.ends.iter().filter(|end| group.members.contains(&end.process));
        let mut restored = group.rollbacks.iter().filter(|(_, it)| it.target().is_some());
        // Incarnation numbers also count rollbacks that were overtaken, for which no process restores a state.
        let rollbacks = match restored.next_back() {
            Some((&newest, _)) if !is_contained => (newest.0 as usize).max(1 + restored.count()),
            _ => 0,
        };
        let begun = group.members.iter().filter_map(|it| unfinished.get(it)).max();
        let begun = begun.copied().filter(|_| !is_contained).unwrap_or_default();
        let count = (ends.count() + rollbacks + begun) as u64;
        losses.extend(group.members.iter().map(|&it| (it, count)));
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, finds, position};
    use faultline_core::{Fact, Promise, Span};

    fn run() -> (Run, MessageId) {
        let mut run = Run::repeating(&[Promise::Containment], &[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let id = run.send(0, 1);
        run.transmit(id, position(0, 1));
        run.deliver(id);
        (run, id)
    }

    #[test]
    fn a_second_transmission_needs_a_failure_of_the_receiver() {
        let (mut run, id) = run();
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.transmit(id, position(0, 1));
        finds!(check_alone(&RULE, &run), Breach::SentAgain { times: 2, suppressed: false, .. });
        run.kill(1, false);
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn a_suppressed_message_is_not_transmitted() {
        let (mut run, id) = run();
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run.send_as(id);
        run.state(0, Fact::Suppressed(id));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.transmit(id, position(0, 1));
        finds!(check_alone(&RULE, &run), Breach::SentAgain { times: 1, suppressed: true, .. });
    }

    #[test]
    fn a_re_execution_sends_a_message_again() {
        let (mut run, id) = run();
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run.send_as(id);
        run.transmit(id, position(0, 1));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }

    #[test]
    fn a_re_execution_sends_no_message_that_its_receiver_had() {
        let sent_again = |is_delivered: bool, has_failed: bool| {
            let mut run = Run::repeating(&[Promise::Containment], &[&[0], &[1]]);
            run.context.common_clock = true;
            run.commit_all(0, &[0]);
            let id = run.send(0, 1);
            run.transmit(id, position(0, 1));
            if is_delivered {
                run.deliver(id);
            }
            run.wait(Span(1));
            if has_failed {
                run.kill(1, false);
                run.restore(1, 1, None);
            }
            run.kill(0, false);
            run.wait(Span(1));
            run.restore(0, 1, Some((0, 1)));
            run.send_as(id);
            run.transmit(id, position(0, 1));
            check_alone(&RULE, &run)
        };
        finds!(sent_again(true, false), Breach::SentAgain { times: 1, suppressed: false, .. });
        assert_eq!(sent_again(false, false).violation_count(), 0);
        assert_eq!(sent_again(true, true).violation_count(), 0);
    }

    /// The receiver's second rollback is overtaken by its third.
    #[test]
    fn each_rollback_of_the_receiver_is_a_reason() {
        let transmissions = |incarnation: u32, count: usize| {
            let mut run = Run::new(&[&[0], &[1, 2]]);
            run.commit_all(0, &[0]);
            run.commit_all(1, &[1, 2]);
            let id = run.send(0, 1);
            (0..count).for_each(|_| run.transmit(id, position(0, 1)));
            run.restore(1, incarnation, Some((0, 1)));
            run.restore(2, incarnation, Some((0, 1)));
            check_alone(&RULE, &run)
        };
        assert_eq!(transmissions(1, 2).violation_count(), 0);
        finds!(transmissions(1, 3), Breach::SentAgain { times: 3, suppressed: false, .. });
        assert_eq!(transmissions(3, 4).violation_count(), 0);
        finds!(transmissions(3, 5), Breach::SentAgain { times: 5, suppressed: false, .. });
    }

    /// The receiver announces a rollback, but the run ends before the receiver has restored its state.
    #[test]
    fn a_recovery_that_the_receiver_has_begun_is_a_reason() {
        let transmissions = |count: usize| {
            let mut run = Run::new(&[&[0], &[1, 2]]);
            run.commit_all(0, &[0]);
            run.commit_all(1, &[1, 2]);
            let id = run.send(0, 1);
            (0..count).for_each(|_| run.transmit(id, position(0, 1)));
            run.restore(1, 1, Some((0, 1)));
            run.restore(2, 1, Some((0, 1)));
            run.claim(2, Claim::RecoveryStarted { lives: 2, round: 2 });
            check_alone(&RULE, &run)
        };
        assert_eq!(transmissions(3).violation_count(), 0);
        finds!(transmissions(4), Breach::SentAgain { times: 4, suppressed: false, .. });
    }

    #[test]
    fn if_rollbacks_are_contained_each_end_of_a_life_is_one_reason() {
        let (mut run, id) = run();
        run.kill(1, false);
        run.restore(1, 1, None);
        run.transmit(id, position(0, 1));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.transmit(id, position(0, 1));
        finds!(check_alone(&RULE, &run), Breach::SentAgain { times: 3, suppressed: false, .. });
    }
}
