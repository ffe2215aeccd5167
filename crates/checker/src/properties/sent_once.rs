//! Economy: no message is re-sent unnecessarily. In a state that no rollback interrupts, a process gives a message to
//! the network once, and once more for each life or state that ended in the receiver's group, because the message may
//! have been lost with it. A message that the process suppressed needs such a reason for each transmission.
//!
//! Not judged for programs of tasks that are assigned in advance: a recovery demands values again from processes that
//! did not roll back, and `strictly_required` judges which.

use std::collections::BTreeMap;

use faultline_core::{MessageId, ProcessId};

use crate::finding::{Breach, Findings};
use crate::judgement::Property;
use faultline_history::{History, Point, SegmentNo};

/// What a process did with a message in one of its states.
#[derive(Default)]
struct Transmissions {
    times: u64,
    last: Option<Point>,
    suppressed: bool,
}

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::SentOnce);
    if history.planned.is_some() {
        return finding;
    }
    let mut all: BTreeMap<(MessageId, SegmentNo), Transmissions> = BTreeMap::new();
    for &(id, at) in &history.suppressed {
        all.entry((id, at.segment)).or_default().suppressed = true;
    }
    for &(id, at) in &history.retransmitted {
        let of = all.entry((id, at.segment)).or_default();
        (of.times, of.last) = (of.times + 1, Some(at));
    }
    // The first transmission is not among them.
    for (&(id, segment), of) in &mut all {
        let first = history.messages.find(id).and_then(|it| it.stamp()).map(|(_, at)| at);
        if let Some(at) = first.filter(|at| at.segment == segment) {
            (of.times, of.last) = (of.times + 1, of.last.or(Some(at)));
        }
    }
    let ended = ended(history);
    for ((id, _), of) in all {
        finding.instances += 1;
        let receivers = history.group_of(id.to).map_or(vec![id.to], |it| history.groups[it].members.clone());
        let ended: u64 = receivers.iter().map(|it| ended.get(it).copied().unwrap_or(0)).sum();
        let reasons = u64::from(!of.suppressed) + ended;
        if let Some(at) = of.last.filter(|_| of.times > reasons) {
            let (times, suppressed) = (of.times, of.suppressed);
            finding.violated([history.source(at)], Breach::SentAgain { message: id, times, suppressed });
        }
    }
    finding
}

/// Counts, by process, the lives and the states that ended.
fn ended(history: &History<'_>) -> BTreeMap<ProcessId, u64> {
    let mut ended = BTreeMap::new();
    for end in &history.supervision.ends {
        *ended.entry(end.process).or_default() += 1;
    }
    for segment in history.segments.iter().filter(|it| it.is_restored) {
        *ended.entry(segment.process).or_default() += 1;
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, finds, position};
    use faultline_core::{Fact, Promise};

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
        assert_eq!(check_alone(check, &run).violation_count(), 0);
        run.transmit(id, position(0, 1));
        finds!(check_alone(check, &run), Breach::SentAgain { times: 2, suppressed: false, .. });
        run.kill(1, false);
        let finding = check_alone(check, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn a_suppressed_message_is_not_transmitted() {
        let (mut run, id) = run();
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run.send_as(id);
        run.state(0, Fact::Suppressed(id));
        assert_eq!(check_alone(check, &run).violation_count(), 0);
        run.transmit(id, position(0, 1));
        finds!(check_alone(check, &run), Breach::SentAgain { times: 1, suppressed: true, .. });
    }

    #[test]
    fn a_re_execution_sends_a_message_again() {
        let (mut run, id) = run();
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        run.send_as(id);
        run.transmit(id, position(0, 1));
        assert_eq!(check_alone(check, &run).violation_count(), 0);
    }
}
