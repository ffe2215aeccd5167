//! Economy: logged messages that no recovery can need are removed (HC3I, section 3.5; HydEE, section III-E). A sender
//! no longer needs a message once no recovery can undo its delivery. This property is judged by count: by the end of
//! the run, a process has removed at least as many messages as were delivered before a checkpoint that every recovery
//! restores or keeps. `log_kept` is the converse.
//!
//! Messages that a re-execution sent again are left out, because the re-execution need not log them.
//!
//! The counts of removed messages are self-reported: no fact shows the contents of a process's log. A message that need
//! not be logged, because a checkpoint of its receiver contains it, counts as removed. This property is judged in
//! virtual time, for processes that claim at least one removal.

use std::collections::BTreeMap;

use faultline_core::{Claim, FactKind, ProcessId, Time};

use super::collected::Collected;
use super::line::{RecoveryLine, due_since};
use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::{Aspect, Rule};
use crate::words::count;
use faultline_history::{Context, Ending, History, Point};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    LogNotRemoved { process: ProcessId, removed: u64, due: u64, since: Time },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::LogNotRemoved { process: of, removed, due, since } = *self;
        format!(
            "by the end, {} had removed only {} from its log, although no recovery after {:.2} s could need {due} \
                 of its messages",
            names.process(of),
            count(removed, "message"),
            since.as_secs_f64()
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::LogsCollected, "logged messages that no recovery can need were removed", check)
        .needs(&[FactKind::Collected])
        .with(&[Aspect::Economy]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(since) = due_since(history) else { return };
    let collects = last_collections(history);
    // A process removes nothing after its last collection. The instant is therefore moved back by the time from the
    // earliest last collection of any process to the end of the run.
    let Some(earliest) = collects.values().map(|(_, time)| *time).min() else { return };
    let window = history.context.end.since(since);
    let Some(since) = earliest.0.checked_sub(window.0).map(|it| Time(it).min(since)) else { return };
    let line = RecoveryLine::at(history, since);
    let collected = Collected::of(history);
    let due = due(history, &line);
    for (process, (at, _)) in collects {
        let Ending::Known(end) = history.ending(process) else { continue };
        finding.instances += 1;
        let (due, removed) = (due.get(&process).copied().unwrap_or(0), collected.at(history, Some(end)));
        if removed < due {
            finding.violated([history.source(at)], Breach::LogNotRemoved { process, removed, due, since });
        }
    }
}

/// Returns, for each process, its last claim that it collected garbage, and the time of that claim.
fn last_collections(history: &History<'_>) -> BTreeMap<ProcessId, (Point, Time)> {
    let collections = history.claims.iter().filter(|it| matches!(it.claim, Claim::Collected { .. }));
    collections.map(|it| (history.process_of(it.at), (it.at, it.time))).collect()
}

/// Counts, by sender, the surviving messages to other groups that were delivered before their receiver's checkpoint on
/// the line.
fn due(history: &History<'_>, line: &RecoveryLine) -> BTreeMap<ProcessId, u64> {
    let mut due = BTreeMap::new();
    // By receiver: the cut of its part of the checkpoint on the line.
    let mut cuts: BTreeMap<ProcessId, Option<Point>> = BTreeMap::new();
    for message in history.messages.iter() {
        let (from, to) = (history.group_of(message.id.from), history.member(message.id.to));
        let Some((group, place)) = to.filter(|(group, _)| from.is_some_and(|it| it != *group)) else {
            continue;
        };
        let cut = *cuts.entry(message.id.to).or_insert_with(|| {
            let checkpoint = history.groups[group].checkpoints.get(&line.restored(group)?)?;
            checkpoint.parts[place].cut
        });
        let Some(cut) = cut else { continue };
        let is_before = |&at: &Point| history.contains(cut, at);
        // A re-execution may send a message that it no longer has to log.
        let is_sent_once = message.sent().len() == 1;
        if is_sent_once
            && history.send_survives(message) == Some(true)
            && message.delivered().iter().any(is_before)
        {
            *due.entry(message.id.from).or_default() += 1;
        }
    }
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone, collecting, finds};
    use faultline_core::{Sn, Span};

    /// p0 sends two messages. A checkpoint of p1 contains the first. p0 collects garbage after half a minute.
    fn run(log: u32) -> Run {
        let mut run = collecting(&[&[0], &[1]]);
        run.commit_with(0, &[0], &[], &[]);
        let first = run.send(0, 1);
        run.deliver(first);
        run.commit_with(0, &[0], &[], &[]);
        run.commit_with(1, &[1], &[], &[(0, faultline_core::Position::new(0, 1))]);
        let second = run.send(0, 1);
        run.deliver(second);
        run.wait(Span::from_secs(30));
        run.claim(0, Claim::Collected { round: 1, below: Sn(2), kept: 1, log });
        run
    }

    #[test]
    fn a_message_before_the_line_must_have_been_removed() {
        finds!(check_alone(&RULE, &run(0)), Breach::LogNotRemoved { removed: 0, due: 1, .. });
    }

    #[test]
    fn a_message_after_the_line_may_be_kept() {
        let finding = check_alone(&RULE, &run(1));
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }

    #[test]
    fn a_restored_log_has_to_be_collected_again() {
        let mut run = run(1);
        run.kill(0, false);
        run.restore(0, 1, Some((0, 2)));
        run.context.end = Time::ZERO + Span::from_secs(120);
        run.wait(Span::from_secs(60));
        run.claim(0, Claim::Collected { round: 2, below: Sn(2), kept: 1, log: 0 });
        finds!(check_alone(&RULE, &run), Breach::LogNotRemoved { removed: 0, due: 1, .. });
    }
}
