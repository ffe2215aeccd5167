//! Lost work is bounded, whatever the protocol claims. Part of `boundedLoss`.
//!
//! [`super::bounded_loss`] judges how long a coordinator waited between two claims: that it committed a checkpoint, and
//! that it requested the next one. A protocol may claim to have requested a checkpoint that it never takes. Therefore,
//! the lost work is also measured without claims: from the first act of an application after the restored state to the
//! next failure of its group. In this time, the protocol had to request a checkpoint, and a checkpoint that was requested
//! had to be committed or aborted within the [limit](round_limit) of a round. Only time without disturbances counts: all
//! processes were up and had restored their states, and no cluster joined or left.

use std::collections::BTreeMap;

use faultline_core::{Affected, Fact, Incarnation, ProcessId, Span, Time};

use super::line::slack;
use super::stalled::{acts, facts};
use crate::finding::{Findings, Worded};
use faultline_history::{Context, Group, GroupId, History, Point, Rollback, SegmentNo};

/// The rounds that fall into the lost work: one that took the restored checkpoint, and one that the failure interrupted.
const ROUNDS: u64 = 2;
/// How many times each process may save a part in one round.
const PARTS: u64 = 4;
/// The time by which a busy machine may delay a round on real processes.
const BUSY: Span = Span::from_secs(10);
/// The number of rounds after which a process that restores no state no longer excuses others.
const GIVEN_UP: u64 = 5;

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    TooMuchLost { group: GroupId, lost: Span, every: Span, allowed: Span },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::TooMuchLost { group: of, lost, every, allowed } = *self;
        format!(
            "{} lost the work of {lost} when it failed, although it should take a checkpoint every {every} and may lose \
             at most {allowed}",
            names.group(of)
        )
    }
}

/// What is known about a run, to judge the rollbacks of its groups.
pub(super) struct EvidentLoss<'a> {
    history: &'a History<'a>,
    round: Span,
    disturbances: Disturbances,
}

impl<'a> EvidentLoss<'a> {
    /// Returns `None` if a storage has yet to complete a write, for which a checkpoint may wait, or if the run was imported:
    /// the clocks of its processes need not agree.
    pub(super) fn of(history: &'a History<'a>) -> Option<EvidentLoss<'a>> {
        if history.context.unmatched.is_some() {
            return None;
        }
        let round = round_limit(history)?;
        Some(EvidentLoss { history, round, disturbances: Disturbances::of(history, round) })
    }

    /// Judges a rollback that follows the failure of one of its group's processes and restored the newest committed
    /// checkpoint. The group should take a checkpoint `every` so often, and detects failures within `detected`. Returns
    /// whether the rollback undid any work.
    pub(super) fn judge(
        &self,
        (number, group): (GroupId, &Group<'_>),
        (incarnation, rollback): (Incarnation, &Rollback),
        (every, detected): (Span, Span),
        finding: &mut Findings,
    ) -> bool {
        let earlier: Vec<&Rollback> = group.rollbacks.range(..incarnation).map(|it| it.1).collect();
        let members = (0..group.members.len()).filter_map(|place| {
            let lost = lost(self.history, group, (place, rollback), &earlier, &self.disturbances)?;
            Some((lost, rollback.restored[place]?.at))
        });
        let Some((lost, at)) = members.max_by_key(|it| it.0) else { return false };
        let allowed = every + detected + self.round * ROUNDS;
        if lost > allowed {
            let breach = Breach::TooMuchLost { group: number, lost, every, allowed };
            finding.violated([self.history.source(at)], breach);
        }
        true
    }
}

/// Returns the longest time without disturbances during which a member did work that a rollback undid: up to the first
/// failure of its group. Returns `None` if it did no such work, or if it was halted so that a fault could be injected.
fn lost(
    history: &History<'_>,
    group: &Group<'_>,
    (place, rollback): (usize, &Rollback),
    earlier: &[&Rollback],
    disturbances: &Disturbances,
) -> Option<Span> {
    let process = group.members[place];
    let restored = rollback.restored[place]?;
    let until_restored = history.state_before(&restored)?;
    // An earlier rollback to the same state lost the work before it, and was judged itself.
    let previous = earlier.iter().rev().find_map(|it| it.restored[place]);
    let from = match (previous, restored.checkpoint) {
        (Some(previous), name) => {
            let resumed = Point { segment: SegmentNo(previous.at.segment.0 + 1), fact: previous.at.fact + 1 };
            let cut = name.and_then(|it| group.checkpoints.get(&it)?.parts[place].cut);
            cut.filter(|it| *it > resumed).unwrap_or(resumed)
        }
        (None, Some(name)) => group.checkpoints.get(&name)?.parts[place].cut?,
        (None, None) => {
            let first = SegmentNo(history.processes[process.index()].segments.start);
            Point { segment: first, fact: history.segment(first).begin }
        }
    };
    let since = (from.segment.0..=until_restored.segment.0).map(SegmentNo).find_map(|no| {
        let first = if no == from.segment { from.fact } else { history.segment(no).begin };
        facts(history, no, first).find(|(_, fact)| acts(fact)).map(|it| it.0)
    })?;
    let follows_line = history.context.promises.affected == Affected::Line;
    let concerns = |it: ProcessId| follows_line || group.members.binary_search(&it).is_ok();
    let ends = history.supervision.ends.iter().filter(|it| concerns(it.process) && it.at >= since);
    let until = ends.map(|it| it.at).min().unwrap_or(Time::NEVER).min(restored.time);
    let is_halt = |(at, fact): &&(Time, Fact)| {
        (since..=until).contains(at) && history.context.halting.contains(&fact.kind())
    };
    let mut lives = group.members.iter().flat_map(|&it| history.trace.lives(it));
    if !history.context.halting.is_empty() && lives.any(|(_, stream)| stream.iter().any(|it| is_halt(&it))) {
        return None;
    }
    Some(disturbances.longest_calm(since, until))
}

/// Returns the time within which a checkpoint that was requested is committed or aborted, or a recovery ends, if nothing
/// disturbs it; `None` if a storage has yet to complete a write.
pub(super) fn round_limit(history: &History<'_>) -> Option<Span> {
    let part = history.witnessed.iter().map(|it| it.bytes).max().unwrap_or_default();
    let ranks = history.context.clusters.iter().flatten().count();
    let bytes = u128::from(part) * ranks as u128 * u128::from(PARTS);
    let busy = if history.context.common_clock { Span::ZERO } else { BUSY };
    let writes = history.slowest_write()? * PARTS;
    Some(slack(history) * 2 + history.transfer_time(bytes) + writes + busy)
}

/// When failures, recoveries and changes disturbed the federation.
pub(super) struct Disturbances {
    /// Instants, ascending.
    at: Vec<Time>,
    /// Times during which a process was down, or had not restored its state.
    down: Vec<(Time, Time)>,
}

impl Disturbances {
    pub(super) fn of(history: &History<'_>, round: Span) -> Disturbances {
        let supervision = &history.supervision;
        let is_calm = |fact: &Fact| matches!(fact, Fact::Ineffective { .. } | Fact::Completed);
        let of_supervisor = history.trace.supervisor().iter().filter(|(_, fact)| !is_calm(fact));
        let restores =
            || history.groups.iter().flat_map(|it| it.rollbacks.values()).flat_map(|it| it.restores());
        let mut restored: BTreeMap<ProcessId, Vec<Time>> = BTreeMap::new();
        for it in restores() {
            restored.entry(history.process_of(it.at)).or_default().push(it.time);
        }
        let mut at: Vec<Time> = of_supervisor.map(|it| it.0).chain(restores().map(|it| it.time)).collect();
        at.sort_unstable();
        at.dedup();
        let gone = supervision.gone(&history.context.clusters);
        let down = supervision.ends.iter().map(|end| {
            let until = match end.restarted {
                Some(restarted) => {
                    let given_up = restarted + round * GIVEN_UP;
                    let own = restored.get(&end.process).into_iter().flatten();
                    own.copied().filter(|it| *it >= restarted).min().unwrap_or(given_up).min(given_up)
                }
                None if gone.contains(&end.process) => end.detected.unwrap_or(end.at),
                None => Time::NEVER,
            };
            (end.at, until)
        });
        Disturbances { at, down: down.collect() }
    }

    /// Returns the longest time between two disturbances from `since` to `until`.
    pub(super) fn longest_calm(&self, since: Time, until: Time) -> Span {
        let first = self.at.partition_point(|it| *it <= since);
        let inside = self.at[first..].iter().copied().take_while(|it| *it < until);
        let mut longest = Span::ZERO;
        let mut from = since;
        for to in inside.chain([until]) {
            let down = self.down.iter().filter(|(begin, end)| *begin <= from && from < *end);
            let up = down.map(|it| it.1).max().unwrap_or(from);
            longest = longest.max(to.since(up.min(to)));
            from = to;
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::super::bounded_loss::RULE;
    use super::*;
    use crate::testing::{Run, check_alone, position};
    use faultline_core::{Attempt, Cause, Claim, Promise};
    use faultline_trace::manifest::Bounds;

    const EVERY: Span = Span::from_millis(300);

    fn run() -> Run {
        let mut run = Run::new(&[&[0, 1], &[2]]);
        run.context.common_clock = true;
        run.context.bounds = Some(Bounds {
            checkpoint_every: vec![Some(EVERY); 2],
            detect_after: Span::from_millis(100),
            collect_every: None,
            delivered_within: None,
        });
        run
    }

    /// Lets both processes of the first cluster act, once every 100 ms.
    fn act(run: &mut Run, tenths: u32) {
        for _ in 0..tenths {
            run.wait(Span::from_millis(100));
            let id = run.send(0, 1);
            run.deliver(id);
        }
    }

    fn request(run: &mut Run, sn: u32) {
        let (position, attempt) = (position(0, sn), Attempt(1));
        run.claim(0, Claim::CheckpointRequested { position, attempt, forced: false });
    }

    fn fail(run: &mut Run, cause: Cause) {
        run.kill(1, false);
        run.restore_because(0, 1, Some((0, 1)), cause);
        run.restore_because(1, 1, Some((0, 1)), cause);
    }

    fn lost(run: &Run) -> Vec<Span> {
        let found = check_alone(&RULE, run);
        found.some_wrong::<Breach>().map(|Breach::TooMuchLost { lost, .. }| lost).collect()
    }

    #[test]
    fn a_checkpoint_that_is_requested_and_never_taken_excuses_nothing() {
        for (tenths, violations) in [(40, 0), (60, 1)] {
            let mut run = run();
            run.commit_all(0, &[0, 1]);
            act(&mut run, 3);
            request(&mut run, 2);
            act(&mut run, tenths - 3);
            fail(&mut run, Cause::Failure);
            assert_eq!(lost(&run).len(), violations, "{tenths}");
        }
    }

    #[test]
    fn further_requests_aborts_and_recoveries_excuse_nothing() {
        let mut run = run();
        run.commit_all(0, &[0, 1]);
        for sn in 2..30 {
            act(&mut run, 3);
            request(&mut run, sn);
            run.claim(0, Claim::Aborted { position: position(0, sn), attempt: Attempt(1) });
            run.claim(0, Claim::RecoveryStarted { lives: 2, round: 0 });
        }
        fail(&mut run, Cause::Failure);
        assert_eq!(lost(&run), [Span::from_millis(8_300)]);
    }

    #[test]
    fn the_claimed_cause_of_a_rollback_excuses_nothing() {
        let mut run = run();
        run.commit_all(0, &[0, 1]);
        act(&mut run, 60);
        fail(&mut run, Cause::Alert { from: GroupId(1), position: position(1, 1) });
        assert_eq!(lost(&run).len(), 1);
        assert!(check_alone(&RULE, &run).violation_count() > 1, "the coordinator waited too long as well");
    }

    #[test]
    fn failures_elsewhere_excuse_a_delay() {
        let mut run = run();
        run.commit_all(0, &[0, 1]);
        run.commit_all(1, &[2]);
        act(&mut run, 3);
        request(&mut run, 2);
        for incarnation in 1..4 {
            act(&mut run, 20);
            run.kill(2, false);
            run.restore(2, incarnation, Some((0, 1)));
        }
        fail(&mut run, Cause::Failure);
        assert_eq!(lost(&run), []);
    }

    #[test]
    fn a_checkpoint_that_is_committed_and_passed_over_without_need_is_lost_work() {
        let found = |promises: &[Promise]| {
            let mut run = run();
            run.withdraw(Promise::MaximalLine);
            run.context.promises = run.context.promises.with(promises);
            run.commit_all(0, &[0, 1]);
            act(&mut run, 40);
            run.commit_all(0, &[0, 1]);
            act(&mut run, 20);
            fail(&mut run, Cause::Failure);
            lost(&run).len()
        };
        assert_eq!(found(&[]), 1);
        assert_eq!(found(&[Promise::MaximalLine]), 0, "`maximalLine` judges this");
    }

    #[test]
    fn an_idle_group_loses_nothing() {
        let mut run = run();
        run.commit_all(0, &[0, 1]);
        run.wait(Span::from_secs(60));
        fail(&mut run, Cause::Failure);
        assert_eq!(lost(&run), []);
    }
}
