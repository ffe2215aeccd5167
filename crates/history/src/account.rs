//! The cost of a run: its checkpoints, rollbacks, lost work and messages. This module makes no judgements.

use faultline_core::fault::Outcome;
use faultline_core::{Cause, Claim, Fact, GroupId, Incarnation, Position, ProcessId, Span};
use faultline_trace::Trace;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::groups::{Group, RestoredBy, Rollback};
use crate::history::History;
use crate::lost::{self, Return, Returns, Undone};
use crate::segments::Point;

/// The cost of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// How the run ended, or `None` if it was cut short.
    pub outcome: Option<Outcome>,
    /// The number of facts in the trace.
    pub facts: u64,
    /// Accounts by group. A group is the set of processes that take checkpoints together: a process, a
    /// cluster or the federation.
    pub groups: Vec<GroupAccount>,
    /// Rollbacks, ordered by group and then by incarnation.
    pub rollbacks: Vec<RollbackAccount>,
    /// The number of messages from each group to each group (including itself), by sender and then receiver.
    /// A message counts once, even if its send was undone.
    pub messages: Vec<Vec<u64>>,
}

/// The account of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupAccount {
    /// The group's display name.
    pub name: String,
    /// Committed checkpoints that were not forced: the first one, and those requested by the timer.
    pub unforced: u64,
    /// Committed checkpoints that a message or a theft forced.
    pub forced: u64,
    /// Discarded attempts at checkpoints, summed over the members.
    pub aborted: u64,
    /// The longest time for which a checkpoint paused a member's application.
    pub frozen_longest: Span,
    /// Rollbacks caused by the failure of a process of the group, and rollbacks without a claimed cause.
    pub rollbacks_by_failure: u64,
    /// Rollbacks caused by another group's rollback.
    pub rollbacks_by_alert: u64,
    /// Lives of the group's processes that ended before the end of the run.
    pub failures: u64,
    /// Messages that members re-sent from their logs.
    pub resent: u64,
    /// Messages that were dropped because a rollback had undone their sends.
    pub dropped: u64,
    /// Deliveries within the group, including undone ones.
    pub delivered_within: u64,
    /// Deliveries from other groups, including undone ones.
    pub delivered_between: u64,
    /// Messages that waited for a checkpoint that they forced.
    pub held: u64,
    /// The largest number of checkpoints that a member kept after its last collection; `None` if there was no
    /// collection.
    pub kept: Option<u32>,
}

/// One rollback of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RollbackAccount {
    /// The group, as an index into [`Account::groups`].
    pub group: usize,
    /// The incarnation that the rollback started.
    pub incarnation: Incarnation,
    /// The cause, as claimed by the protocol.
    pub cause: Option<Cause>,
    /// The restored position; SN 0 is the initial state.
    pub checkpoint: Position,
    /// The number of committed checkpoints that the rollback passed over.
    pub depth: u32,
    /// The lost work of all members together, as defined in [`crate::lost`].
    pub lost_work: Span,
    /// The time from the failure until the last member resumed. After an alert, or without a common clock: the longest
    /// time from a surviving member's pause until it resumed. `None` if it is unknown.
    pub time_to_recover: Option<Span>,
    /// The number of undone deliveries.
    pub undone_deliveries: u64,
    /// The number of members that restored a state.
    pub members: u32,
}

/// Computes the account of a run.
pub fn account(trace: &Trace, context: &Context) -> Account {
    Account::of(&History::new(trace, context))
}

impl Account {
    /// Computes the account of a run from its history.
    pub fn of(history: &History<'_>) -> Account {
        let mut this = Account {
            outcome: history.context.outcome.clone(),
            facts: history.trace.len() as u64,
            groups: Vec::with_capacity(history.groups.len()),
            rollbacks: Vec::new(),
            messages: vec![vec![0; history.groups.len()]; history.groups.len()],
        };
        let returns = Returns::new(history);
        for (number, group) in history.groups.numbered() {
            this.groups.push(count_group(history, number, group));
            if group.rollbacks.is_empty() {
                continue;
            }
            let returns: Vec<_> = group.members.iter().map(|&member| (member, returns.of(member))).collect();
            for (&incarnation, rollback) in &group.rollbacks {
                let undoing = Undoing { history, group, incarnation, rollback, returns: &returns };
                this.rollbacks.extend(undoing.account(number));
            }
        }
        this.count_messages(history);
        this
    }

    fn count_messages(&mut self, history: &History<'_>) {
        for message in history.messages.iter() {
            let (Some(from), Some(to)) = (history.group_of(message.id.from), history.group_of(message.id.to))
            else {
                continue;
            };
            let (from, to) = (usize::from(from.0), usize::from(to.0));
            self.messages[from][to] += u64::from(!message.sent().is_empty());
            let delivered = message.delivered().len() as u64;
            let counted = &mut self.groups[to];
            *(if from == to { &mut counted.delivered_within } else { &mut counted.delivered_between }) +=
                delivered;
        }
        let group_at = |at: Point| history.group_of(history.process_of(at)).map(|it| usize::from(it.0));
        for group in history.stale.iter().filter_map(|(_, at)| group_at(*at)) {
            self.groups[group].dropped += 1;
        }
        for group in history.resent.iter().filter_map(|(_, at)| group_at(*at)) {
            self.groups[group].resent += 1;
        }
        for group in history.held.iter().filter_map(|(_, at)| group_at(*at)) {
            self.groups[group].held += 1;
        }
        let aborted = history.claims.iter().filter(|it| matches!(it.claim, Claim::Aborted { .. }));
        for group in aborted.filter_map(|it| group_at(it.at)) {
            self.groups[group].aborted += 1;
        }
    }
}

fn count_group(history: &History<'_>, number: GroupId, group: &Group<'_>) -> GroupAccount {
    let mut count = GroupAccount { name: history.context.group(number), ..GroupAccount::default() };
    for checkpoint in group.checkpoints.values() {
        if let Some(first) = checkpoint.commits.first() {
            *(if first.forced { &mut count.forced } else { &mut count.unforced }) += 1;
            let frozen = checkpoint.commits.iter().map(|commit| commit.frozen).max();
            count.frozen_longest = count.frozen_longest.max(frozen.unwrap_or_default());
        }
    }
    for rollback in group.rollbacks.values() {
        match rollback.cause {
            Some((Cause::Alert { .. }, _)) => count.rollbacks_by_alert += 1,
            Some((Cause::Failure, _)) | None => count.rollbacks_by_failure += 1,
        }
    }
    let ends = history.supervision.ends.iter();
    count.failures = ends.filter(|end| history.group_of(end.process) == Some(number)).count() as u64;
    let kept = |place: usize| {
        let own = history.processes[group.members[place].index()].segments.clone();
        let first = history.claims.partition_point(|it| it.at.segment.0 < own.start);
        let claims = history.claims[first..].iter().take_while(|it| it.at.segment.0 < own.end);
        claims
            .filter_map(|it| match it.claim {
                Claim::Collected { kept, .. } => Some(*kept),
                _ => None,
            })
            .last()
    };
    count.kept = (0..group.members.len()).filter_map(kept).max();
    count
}

/// The effects of one rollback.
struct Undoing<'a> {
    history: &'a History<'a>,
    group: &'a Group<'a>,
    incarnation: Incarnation,
    rollback: &'a Rollback,
    /// The returns of every member.
    returns: &'a [(ProcessId, Vec<Return>)],
}

impl Undoing<'_> {
    /// Returns the account, or `None` if no process restored anything.
    fn account(&self, group: GroupId) -> Option<RollbackAccount> {
        let checkpoint = self.rollback.target()?.map_or(Position::default(), |name| name.position);
        let line = self.group.line_before(self.incarnation);
        Some(RollbackAccount {
            group: usize::from(group.0),
            incarnation: self.incarnation,
            cause: self.rollback.cause.map(|(cause, _)| cause),
            checkpoint,
            depth: self.group.committed_after(&line, checkpoint).count() as u32,
            lost_work: self.returns().fold(Span::ZERO, |sum, (_, it)| sum + it.lost()),
            time_to_recover: self.time_to_recover(),
            undone_deliveries: self.undone_deliveries(),
            members: self.rollback.restores().count() as u32,
        })
    }

    /// Iterates over the members' returns to the states that this rollback restored.
    fn returns(&self) -> impl Iterator<Item = (ProcessId, &Return)> {
        let all = self.returns.iter().flat_map(|(process, all)| all.iter().map(|it| (*process, it)));
        all.filter(|(_, it)| it.incarnation == self.incarnation)
    }

    fn undone_deliveries(&self) -> u64 {
        let delivered = |process: ProcessId, it: &Undone| {
            let facts = it.facts(self.history.trace, process);
            facts.iter().filter(|(_, fact)| matches!(fact, Fact::Delivered(_))).count() as u64
        };
        self.returns().flat_map(|(process, it)| it.undone.iter().map(move |it| delivered(process, it))).sum()
    }

    fn time_to_recover(&self) -> Option<Span> {
        let history = self.history;
        let resumed_at = |restored: &RestoredBy| {
            let process = history.process_of(restored.at);
            let &(_, _, at) = self.rollback.claimed.iter().find(|(it, ..)| *it == process)?;
            Some(history.time(at))
        };
        let supervision = &history.supervision;
        let failed = self
            .rollback
            .restores()
            .filter(|it| it.before.is_none())
            .filter_map(|it| {
                let state = history.segment(history.state_before(it)?.segment);
                Some(supervision.end_of(state.process, state.life)?.at)
            })
            .min();
        if let (Some(failed), true) = (failed, history.context.common_clock) {
            return Some(self.rollback.restores().filter_map(resumed_at).max()?.since(failed));
        }
        let stopped = |restored: &RestoredBy| {
            let RestoredBy { at, .. } = *restored;
            let begin = history.segment(at.segment).begin as usize;
            lost::stopped(&history.streams[at.segment.0 as usize][begin..at.fact as usize])
        };
        let survivors = self.rollback.restores().filter(|it| it.before.is_some());
        survivors.filter_map(|it| Some(resumed_at(it)?.since(stopped(it)?))).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, position};

    #[test]
    fn a_failure_and_the_alert_that_follows_are_accounted_for() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.context.common_clock = true;
        run.commit_all(0, &[0]);
        run.commit_all(1, &[1]);
        let id = run.send(0, 1);
        run.deliver(id);
        run.wait(Span(10));
        run.commit_all(1, &[1]);
        run.wait(Span(5));
        run.send(0, 1);
        run.kill(0, false);
        run.wait(Span(20));
        run.restore(0, 1, Some((0, 1)));
        run.claim(1, Claim::RecoveryStarted { lives: 1, round: 1 });
        run.wait(Span(3));
        let cause = Cause::Alert { from: GroupId(0), position: position(1, 1) };
        run.restore_because(1, 1, Some((0, 1)), cause);

        let account = account(&run.trace, &run.context);
        assert_eq!(account.messages, [[0, 2], [0, 0]]);
        let [first, second] = &account.groups[..] else { panic!("two groups") };
        assert_eq!((first.unforced, first.failures, first.rollbacks_by_failure), (1, 1, 1));
        assert_eq!((second.unforced, second.rollbacks_by_alert, second.delivered_between), (2, 1, 1));
        let [failure, alert] = &account.rollbacks[..] else { panic!("two rollbacks") };
        assert_eq!((failure.depth, failure.lost_work), (0, Span(15)));
        assert_eq!(failure.time_to_recover, Some(Span(20)));
        assert_eq!((alert.depth, alert.undone_deliveries), (1, 1));
        assert_eq!((alert.lost_work, alert.time_to_recover), (Span(35), Some(Span(3))));
    }
}
