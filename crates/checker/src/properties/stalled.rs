//! Progress of each group: finds groups that stall while others continue.
//!
//! A group may be idle because its program waits for another group or has finished, so being idle alone
//! proves nothing. Either of two observations proves that a group has stalled. A message has been sent but not
//! delivered, although nothing has happened for a long time that could delay it. Or a process has restored a state and
//! now does nothing, although its application acted without waiting for a message when it was in this state before the
//! rollback.
//!
//! Both are judged against the longest delays that the run itself explains: the slowest delivery of a message, the work
//! that a rollback has to repeat, and the time that the links need to carry the data in transit.

use std::cmp::max;

use faultline_core::{Fact, MessageId, ProcessId, Span, Time};

use crate::finding::{Findings, Worded};
use faultline_history::{Context, Ending, History, Point, RestoredBy, Segment, SegmentNo};

/// The factor by which a delay may exceed a comparable earlier one.
pub(super) const TIMES: u64 = 10;

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    DeliveryOverdue { message: MessageId, waited: Span },
    NotResumed { process: ProcessId, still: Span },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::DeliveryOverdue { message: id, waited } => format!(
                "{} was not delivered in the last {waited} before the deadline, although nothing delayed it",
                names.message(id)
            ),
            Breach::NotResumed { process: by, still } => format!(
                "{} restored its state, but its application did nothing in the last {still} before the deadline, \
                 although it had continued from the same state without a message before the rollback",
                names.process(by)
            ),
        }
    }
}

/// Adds the violations to the finding of `progress`. `since` is the time at which the last fault ended, and `bound` the
/// time that a recovery may take.
pub(super) fn check(history: &History<'_>, since: Time, bound: Span, finding: &mut Findings) {
    let is_known = |it: &ProcessId| matches!(history.ending(*it), Ending::Known(_)) || history.has_left(*it);
    let mut members = history.groups.iter().flat_map(|it| &it.members);
    if history.tasks.is_some() || history.planned.is_some() || !members.all(is_known) {
        return;
    }
    let end = history.context.end;
    let restores = || history.groups.iter().flat_map(|it| it.rollbacks.values()).flat_map(|it| it.restores());
    let since = restores().map(|it| it.time).max().unwrap_or_default().max(since);
    let redone = restores().map(|it| redone(history, it)).max().unwrap_or_default();
    let limit = max(bound, max(redone, slowest_delivery(history)) * TIMES);
    if end.since(since) < limit {
        return;
    }
    for message in history.messages.iter() {
        let (from, to) = (message.id.from, message.id.to);
        let Some(&sent) = message.sent().iter().find(|&&at| history.survives(at)) else { continue };
        let is_delivered = || message.delivered().iter().any(|&at| history.survives(at));
        if is_delivered() || history.has_left(from) || history.has_left(to) {
            continue;
        }
        let waited = end.since(history.time(sent).max(since));
        if waited >= limit {
            finding.violated([history.source(sent)], Breach::DeliveryOverdue { message: message.id, waited });
        }
    }
    for &process in history.groups.iter().flat_map(|it| &it.members) {
        let Some((restored, before)) = idle(history, process) else { continue };
        let still = end.since(since);
        if still >= limit + before * TIMES {
            finding.violated([history.source(restored)], Breach::NotResumed { process, still });
        }
    }
}

/// Returns the time of the last fact before a cut, or the time at which the application began, whichever is later.
fn time_of_cut(history: &History<'_>, cut: Option<Point>) -> Time {
    let begun = history.supervision.begun.unwrap_or_default();
    match cut {
        Some(Point { segment, fact }) if fact > 0 => {
            history.time(Point { segment, fact: fact - 1 }).max(begun)
        }
        _ => begun,
    }
}

/// Returns the time from a restored state to the rollback that restored it: an upper bound on the work that
/// the process repeats.
fn redone(history: &History<'_>, restored: &RestoredBy) -> Span {
    let after = SegmentNo(restored.at.segment.0 + 1);
    let cut = history.segments.get(after.0 as usize).and_then(|it| it.parent);
    restored.time.since(time_of_cut(history, cut))
}

fn slowest_delivery(history: &History<'_>) -> Span {
    let spans = history.messages.iter().filter_map(|it| {
        let (sent, delivered) = (it.sent().first()?, it.delivered().first()?);
        Some(history.time(delivered).since(history.time(sent)))
    });
    spans.max().unwrap_or_default()
}

/// Returns the last restore of a process that has done nothing since, and how long its application had taken to do
/// something by itself after the restored state. Returns `None` if the process has acted, or if its next step required
/// a message.
fn idle(history: &History<'_>, process: ProcessId) -> Option<(Point, Span)> {
    let range = history.processes[process.index()].segments.clone();
    let last = SegmentNo(range.end.checked_sub(1)?);
    let Segment { begin, is_restored, parent, .. } = *history.segment(last);
    let has_acted =
        facts(history, last, begin).any(|(_, fact)| acts(fact) || matches!(fact, Fact::Finished(_)));
    if !is_restored || has_acted {
        return None;
    }
    let (earlier, from) = match parent {
        Some(cut) => (cut.segment, cut.fact),
        None => (SegmentNo(range.start), history.segment(SegmentNo(range.start)).begin),
    };
    let (at, next) = facts(history, earlier, from).find(|(_, fact)| acts(fact))?;
    let is_unprompted = !matches!(next, Fact::Delivered(_));
    let restored = Point { segment: last, fact: begin.checked_sub(1)? };
    is_unprompted.then(|| (restored, at.since(time_of_cut(history, parent))))
}

/// Returns whether a fact shows that the application sent, received or computed something.
pub(super) fn acts(fact: &Fact) -> bool {
    matches!(fact, Fact::Sent { .. } | Fact::Delivered(_) | Fact::Computed { .. })
}

/// Iterates over the facts of a segment, starting with fact number `from`.
pub(super) fn facts<'a>(
    history: &'a History<'_>,
    no: SegmentNo,
    from: u32,
) -> impl Iterator<Item = &'a (Time, Fact)> {
    let Segment { host, life, end, .. } = *history.segment(no);
    let stream = history.trace.streams.get(&(host, life)).map_or(&[][..], |it| &it[..]);
    stream.iter().take(end as usize).skip(from as usize)
}

#[cfg(test)]
mod tests {
    use super::super::progress;
    use super::*;
    use crate::testing::{Run, check_alone, p};
    use faultline_core::fault::LinkProperties;
    use faultline_core::fault::Outcome;
    use faultline_core::{ClusterId, FactNo, MessageId};
    use faultline_trace::manifest::LinkEntry;

    /// Returns a run of three clusters that exceeded its deadline after two minutes. p0 failed at the start
    /// and restored its state. Before the failure, p0 had computed something if `computes`, and had then
    /// received a message from p1 if `is_sent`.
    fn run(computes: bool, is_sent: bool) -> (Run, Option<MessageId>) {
        let mut run = Run::new(&[&[0], &[1], &[2]]);
        run.context.common_clock = true;
        run.context.outcome = Some(Outcome::Deadline);
        run.context.end = Time::ZERO + Span::from_secs(120);
        run.supervisor(Fact::Begun);
        run.commit_all(0, &[0]);
        run.wait(Span::from_millis(500));
        if computes {
            run.state(0, Fact::Computed { since: FactNo(0) });
        }
        let message = is_sent.then(|| run.send(1, 0));
        message.into_iter().for_each(|it| run.deliver(it));
        run.wait(Span::from_millis(500));
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        (run, message)
    }

    /// Makes the other clusters exchange messages until the end.
    fn others_continue(run: &mut Run) {
        for _ in 0..118 {
            run.wait(Span::from_secs(1));
            let id = run.send(1, 2);
            run.deliver(id);
        }
    }

    fn wrong(run: &Run) -> Vec<Breach> {
        check_alone(&progress::RULE, run).wrong::<Breach>()
    }

    #[test]
    fn a_group_may_wait_while_others_continue() {
        for computes in [false, true] {
            let (mut run, message) = run(computes, true);
            message.into_iter().for_each(|it| run.deliver(it));
            others_continue(&mut run);
            assert_eq!(wrong(&run), []);
        }
        let (mut run, _) = run(false, false);
        others_continue(&mut run);
        assert_eq!(wrong(&run), []);
    }

    #[test]
    fn a_message_that_is_not_delivered_while_others_continue_is_found() {
        let (mut run, message) = run(false, true);
        others_continue(&mut run);
        let (message, waited) = (message.unwrap(), Span::from_secs(119));
        assert_eq!(wrong(&run), [Breach::DeliveryOverdue { message, waited }]);
    }

    #[test]
    fn a_message_may_be_in_transit_as_long_as_others_were() {
        let (mut run, _) = run(false, true);
        let slow = run.send(1, 2);
        run.wait(Span::from_secs(12));
        run.deliver(slow);
        others_continue(&mut run);
        assert_eq!(wrong(&run), []);
    }

    #[test]
    fn a_message_to_a_cluster_that_has_left_is_not_awaited() {
        let (mut run, _) = run(false, true);
        run.supervisor(Fact::Left(ClusterId(0)));
        others_continue(&mut run);
        assert_eq!(wrong(&run), []);
    }

    #[test]
    fn a_message_may_wait_for_a_slow_link() {
        let (mut run, _) = run(false, true);
        others_continue(&mut run);
        assert_eq!(wrong(&run).len(), 1);
        let requested = LinkProperties { bandwidth: 1, ..LinkProperties::default() };
        let (from, to) = (ClusterId(0), ClusterId(1));
        let (measured, observed, since) = (None, None, None);
        run.context.links = vec![LinkEntry { from, to, requested, measured, observed, since }];
        assert_eq!(wrong(&run).len(), 1, "the message has 8 bytes");
        run.trace.streams.values_mut().flatten().for_each(|(_, fact)| {
            if let Fact::Sent { bytes, .. } = fact {
                *bytes = 1_000;
            }
        });
        assert_eq!(wrong(&run), []);
    }

    #[test]
    fn an_application_that_does_not_resume_is_found() {
        let (mut run, _) = run(true, false);
        others_continue(&mut run);
        let still = Span::from_secs(119);
        assert_eq!(wrong(&run), [Breach::NotResumed { process: p(0), still }]);
    }
}
