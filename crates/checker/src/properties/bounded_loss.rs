//! Lost work is bounded: a failure loses at most the work done during one checkpoint interval, the commit, and the
//! detection of the failure.
//!
//! This property is judged wherever the bound applies: at rollbacks after a failure that restore the newest committed
//! checkpoint. Facts of the supervisor show the failure, whatever cause the protocol claims. The protocol controls one
//! part of the bound closely: how long its coordinator waits between a commit and the next request, by the coordinator's
//! own clock. Both are claims, so [`super::evident_loss`] also judges the lost work itself. Before the first commit, the wait counts from the first message
//! that the coordinator's application sent or received. After a commit, time before any application of the group acts
//! does not count: a process may commit its first checkpoint before it may act, and no work can be lost until then. The
//! duration of a commit depends on the storage and the network, so it is bounded only loosely. Runs in which a
//! fault delays messages, writes or processes are not judged. Time during which a coordinator was halted at one of its
//! own facts, so that a fault could be injected, does not count.
//!
//! Under a protocol whose checkpoint numbers define the recovery line ([`Affected::Line`]), every process waits for
//! that line after any failure, and if a process did not have to roll back, no fact states when it resumes. Therefore,
//! a coordinator's wait counts only up to the first such failure.

use std::cell::LazyCell;

use faultline_core::{Affected, Claim, Fact, Fault, Incarnation, Position, Promise, Span, Time};

use crate::finding::{Findings, Worded};
use crate::properties::evident_loss::EvidentLoss;
use crate::properties::intervals::{SLACK, checkpoint_every};
use crate::properties::rollback_caused::{after_failures, ends};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Checkpoint, Context, Group, GroupId, History, LifeEnd, Point, Rollback};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    CheckpointOverdue { group: GroupId, waited: Span, every: Span, detect_after: Span },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        let Breach::CheckpointOverdue { group: of, waited, every, detect_after } = *self;
        format!(
            "{} had taken no checkpoint for {waited} when it failed, although it should take one every {every}, \
             and its failure should be detected within {detect_after}",
            names.group(of)
        )
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::BoundedLoss, "lost work is bounded by the checkpoint interval", check);

fn check(history: &History<'_>, finding: &mut Findings) {
    let logs_events = history.context.promises.include(Promise::EventsLogged) && history.tasks.is_some();
    if history.context.bounds.is_none() && !logs_events {
        return;
    }
    let is_disturbed = |fault: &Fault| fault.kills().is_none();
    if history.supervision.injected.iter().any(|(_, fault, ..)| is_disturbed(fault)) {
        return;
    }
    if logs_events {
        return super::lost_events::check(history, finding);
    }
    let Some(bounds) = &history.context.bounds else { return };
    if let Some(planned) = &history.planned {
        return super::lost_planned::check(history, planned, bounds, finding);
    }
    if history.tasks.is_some() {
        return super::lost_tasks::check(history, bounds, finding);
    }
    let slack = if history.context.common_clock { Span::ZERO } else { SLACK };
    let (ends, evident) = (ends(history), LazyCell::new(|| EvidentLoss::of(history)));
    for (number, group) in history.groups.numbered() {
        let Some(Some(every)) = checkpoint_every(history, bounds, group) else { continue };
        let limit = every + bounds.detect_after + slack;
        let failed = after_failures(history, group, &ends);
        for (&incarnation, rollback) in group.rollbacks.iter().filter(|it| failed.contains(it.0)) {
            let target = restored_newest(group, incarnation, rollback);
            if target.is_none() && !has_no_excuse(history, number, incarnation) {
                continue;
            }
            let detected = bounds.detect_after + slack;
            let is_judged = evident.as_ref().is_some_and(|it| {
                it.judge((number, group), (incarnation, rollback), (every, detected), finding)
            });
            let waited = target.and_then(|it| waited(history, group, it, rollback));
            finding.instances += u64::from(is_judged || waited.is_some());
            if let Some(waited) = waited.filter(|it| *it > limit) {
                let restored = rollback.restores().next().expect("the rollback restored a state");
                let detect_after = bounds.detect_after;
                let breach = Breach::CheckpointOverdue { group: number, waited, every, detect_after };
                finding.violated([history.source(restored.at)], breach);
            }
        }
    }
}

/// Returns whether a rollback passed over a committed checkpoint that it could have restored, under a protocol that
/// restores neither the newest consistent checkpoint, which `maximalLine` judges, nor a line that its numbers define.
fn has_no_excuse(history: &History<'_>, number: GroupId, incarnation: Incarnation) -> bool {
    let promises = history.context.promises;
    let is_free = !promises.include(Promise::MaximalLine) && promises.affected != Affected::Line;
    is_free && super::maximal_line::passes_over_a_clean_one(history, number, incarnation)
}

/// Returns the restored checkpoint, unless the rollback passed over a committed one. What no process saved cannot be
/// committed, whatever the protocol claims.
fn restored_newest(group: &Group<'_>, incarnation: Incarnation, rollback: &Rollback) -> Option<Position> {
    let target = rollback.target()?.map_or(Position::default(), |name| name.position);
    let line = group.line_before(incarnation);
    let mut newer = group.committed_after(&line, target);
    let is_saved = |it: &Checkpoint<'_>| it.parts.iter().all(|part| part.witness.is_some());
    (!newer.any(|(_, it)| is_saved(it))).then_some(target)
}

/// Returns how long the coordinator let the application run after the restored checkpoint without requesting another;
/// `None` if the bound does not apply.
fn waited(history: &History<'_>, group: &Group<'_>, target: Position, rollback: &Rollback) -> Option<Span> {
    let acted = |state: Point| history.segment(state.segment).is_active;
    let has_acted = rollback.restores().any(|it| history.state_before(it).is_some_and(acted));
    if target == Position::default() && !has_acted {
        // The process waited for its first checkpoint, which it takes before it does any work that could be lost.
        return Some(Span::ZERO);
    }
    let restored = rollback.restored.first().copied().flatten()?;
    let state = history.state_before(&restored)?;
    let life = history.segment(state.segment).life;
    let process = history.process_of(state);
    let stream = &history.trace.streams[&(process, life)];
    let own = history.processes[process.index()].segments.clone();
    let first = history.claims.partition_point(|it| it.at.segment.0 < own.start);
    let mut since: Option<Time> = None;
    let mut paused: Option<Time> = None;
    let mut is_committed = false;
    for claimed in history.claims[first..].iter().take_while(|it| it.at < state) {
        if history.segment(claimed.at.segment).life != life {
            continue;
        }
        match claimed.claim {
            Claim::Committed { .. } | Claim::RolledBack { .. } => {
                is_committed = matches!(claimed.claim, Claim::Committed { .. });
                (since, paused) = (Some(claimed.time), None);
            }
            Claim::CheckpointRequested { .. } | Claim::RecoveryStarted { .. } => {
                paused = paused.or(Some(claimed.time));
            }
            _ => {}
        }
    }
    // A coordinator that neither requested a checkpoint nor started a recovery has rolled back immediately, or failed.
    let last_fact = || {
        let last = (state.fact as usize).checked_sub(1)?;
        stream.get(last).map(|(time, _)| *time)
    };
    let paused = paused.or_else(|| restored.before.map(|_| restored.time)).or_else(last_fact)?;
    // A coordinator without any checkpoint has waited for its first one at least since its application first acted.
    let acts = |(_, fact): &&(Time, Fact)| matches!(fact, Fact::Sent { .. } | Fact::Delivered(_));
    let mut before = stream.iter().take(state.fact as usize);
    let first_act = || before.find(acts).filter(|_| target == Position::default()).map(|it| it.0);
    let since = since.or_else(first_act)?;
    // A process that waits for the next life of a failed member takes no checkpoint; no fact states when it learns of
    // the failure. A member may have failed before the last commit, after it had completed its part. The clocks may
    // differ by less than the slack, but this comparison can only excuse the coordinator.
    let ends = history.supervision.ends.iter();
    let unresolved = ends.filter(|end| !is_resolved(history, group, end, since));
    let first = unresolved.map(|it| it.at.max(since)).min();
    let paused = first.map_or(paused, |it| it.min(paused));
    // A process that is halted so that a fault can be injected at one of its facts requests no checkpoint.
    let after = stream.partition_point(|(time, _)| *time < since);
    let mut facts = stream[after..].iter().take_while(|(time, _)| *time <= paused);
    let halted =
        facts.find(|(_, fact)| history.context.halting.contains(&fact.kind())).map(|(time, _)| *time);
    // After a commit, the application may not have started yet. After a rollback, it continues at once.
    let started = if is_committed { started(history, group) } else { Time::ZERO };
    Some(halted.unwrap_or(paused).since(since.max(started)))
}

/// Returns when an application of the group first acted; [`Time::NEVER`] if none did.
fn started(history: &History<'_>, group: &Group<'_>) -> Time {
    let acts = |(_, fact): &&(Time, Fact)| {
        matches!(fact, Fact::Sent { .. } | Fact::Delivered(_) | Fact::Computed { .. })
    };
    let lives = group.members.iter().flat_map(|&member| history.trace.lives(member));
    lives.filter_map(|(_, stream)| stream.iter().find(acts).map(|it| it.0)).min().unwrap_or(Time::NEVER)
}

/// Returns whether the end of a life no longer concerns the group at `now`: the group does not wait for the process, or
/// the process has restored a state in a later life.
fn is_resolved(history: &History<'_>, group: &Group<'_>, end: &LifeEnd, now: Time) -> bool {
    let follows_line = history.context.promises.affected == Affected::Line;
    let Some((of, place)) = history.member(end.process) else { return true };
    if !follows_line && group.members.binary_search(&end.process).is_err() {
        return true;
    }
    let mut restores = history.groups[of].rollbacks.values().filter_map(|it| it.restored[place]);
    restores.any(|it| it.time <= now && history.segment(it.at.segment).life > end.life)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_core::ProcessId;
    use faultline_trace::manifest::Bounds;

    /// Returns a run in which a cluster fails when the time `after` has passed since its last checkpoint and its first
    /// message. The cluster should take a checkpoint every second, and its failures should be detected within 100 ms.
    fn run(after: Span) -> Run {
        starts_late(Span::ZERO, after)
    }

    /// Returns the same run, except that the application starts only when `idle` has passed since the checkpoint.
    fn starts_late(idle: Span, after: Span) -> Run {
        let mut run = Run::new(&[&[0, 1]]);
        run.context.common_clock = true;
        run.context.bounds = Some(Bounds {
            checkpoint_every: vec![Some(Span::from_secs(1))],
            detect_after: Span::from_millis(100),
            collect_every: None,
            delivered_within: None,
        });
        run.commit_all(0, &[0, 1]);
        run.wait(idle);
        run.send(1, 0);
        run.wait(after);
        run.kill(1, false);
        run.restore(0, 1, Some((0, 1)));
        run.restore(1, 1, Some((0, 1)));
        run
    }

    #[test]
    fn a_failure_within_the_interval_is_allowed() {
        let finding = check_alone(&RULE, &run(Span::from_millis(1_050)));
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{:?}", finding.violations);
    }

    #[test]
    fn time_before_the_application_starts_does_not_count() {
        let violations = |run: &Run| check_alone(&RULE, run).violation_count();
        assert_eq!(violations(&starts_late(Span::from_secs(5), Span::from_millis(1_050))), 0);
        assert_eq!(violations(&starts_late(Span::from_secs(5), Span::from_millis(1_200))), 1);
    }

    #[test]
    fn a_failure_before_the_application_starts_loses_nothing() {
        let context = run(Span::ZERO).context;
        let mut run = Run::new(&[&[0, 1]]);
        run.context = context;
        run.commit_all(0, &[0, 1]);
        run.wait(Span::from_secs(5));
        run.kill(1, false);
        run.restore(0, 1, Some((0, 1)));
        run.restore(1, 1, Some((0, 1)));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{:?}", finding.violations);
    }

    #[test]
    fn waiting_for_the_next_life_of_a_member_does_not_count_as_a_delay() {
        for common_clock in [true, false] {
            waits_for_the_next_life(common_clock);
        }
    }

    /// The next life starts only after a delay that would be too long between two checkpoints, because another machine
    /// has to be found for the member.
    fn waits_for_the_next_life(common_clock: bool) {
        let mut run = run(Span::from_millis(900));
        run.context.common_clock = common_clock;
        run.commit_all(0, &[0, 1]);
        run.wait(Span::from_millis(900));
        run.kill(1, false);
        run.wait(Span::from_secs(5));
        run.restore(0, 2, Some((1, 2)));
        run.restore(1, 2, Some((1, 2)));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0), "{:?}", finding.violations);
    }

    #[test]
    fn waiting_for_a_member_that_failed_before_the_last_commit_is_excused_as_well() {
        let mut run = run(Span::from_millis(900));
        run.kill(1, false);
        run.commit_all(0, &[0]);
        run.wait(Span::from_secs(5));
        run.restore(0, 2, Some((1, 2)));
        run.restore(1, 2, Some((0, 1)));
        let finding = check_alone(&RULE, &run);
        assert_eq!((finding.instances, finding.violation_count()), (2, 0), "{:?}", finding.violations);
    }

    #[test]
    fn a_failure_of_another_group_excuses_a_process_that_waits_for_a_line() {
        let wrong = |affected: Affected| {
            let mut run = run(Span::ZERO);
            let context = run.context.clone();
            run = Run::new(&[&[0], &[1]]);
            run.context = context;
            run.context.clusters = vec![vec![ProcessId(0)], vec![ProcessId(1)]];
            run.context.bounds.as_mut().expect("the context has bounds").checkpoint_every =
                vec![Some(Span::from_secs(1)); 2];
            run.context.promises = run.context.promises.affecting(affected);
            run.commit_all(0, &[0]);
            run.commit_all(1, &[1]);
            run.send(1, 0);
            run.kill(0, false);
            run.wait(Span::from_secs(5));
            run.restore(0, 1, Some((0, 1)));
            run.send(1, 0);
            run.kill(1, false);
            run.restore(1, 2, Some((0, 1)));
            check_alone(&RULE, &run).violation_count()
        };
        assert_eq!(wrong(Affected::Dependents), 1);
        assert_eq!(wrong(Affected::Line), 0);
    }

    #[test]
    fn a_checkpoint_that_was_overdue_is_found() {
        assert_eq!(check_alone(&RULE, &run(Span::from_millis(1_200))).violation_count(), 1);
    }

    #[test]
    fn a_halted_process_is_excused() {
        let mut run = run(Span::from_millis(1_200));
        run.context.halting = [faultline_core::FactKind::CheckpointCommitted].into();
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
        run.context.halting = [faultline_core::FactKind::Delivered].into();
        assert_eq!(
            check_alone(&RULE, &run).violation_count(),
            1,
            "the process was not halted at this kind of fact"
        );
    }

    #[test]
    fn a_process_may_be_halted_before_its_application_starts() {
        let mut run = starts_late(Span::from_millis(300), Span::from_millis(1_200));
        assert_eq!(check_alone(&RULE, &run).violation_count(), 1);
        run.context.halting = [faultline_core::FactKind::CheckpointCommitted].into();
        assert_eq!(check_alone(&RULE, &run).violation_count(), 0);
    }

    #[test]
    fn a_process_that_has_not_acted_has_lost_nothing() {
        let failed_twice = |acts: bool| {
            let context = run(Span::ZERO).context;
            let mut run = Run::new(&[&[0, 1]]);
            run.context = context;
            run.restore(0, 1, None);
            run.restore(1, 1, None);
            run.wait(Span::from_secs(9));
            if acts {
                run.send(0, 1);
            }
            run.kill(1, false);
            run.restore(0, 2, None);
            run.restore(1, 2, None);
            check_alone(&RULE, &run)
        };
        let finding = failed_twice(false);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{:?}", finding.violations);
        assert_eq!(failed_twice(true).violation_count(), 1);
    }

    #[test]
    fn a_process_that_never_takes_a_checkpoint_is_found() {
        let failed_after = |acts: bool, span: Span| {
            let context = run(Span::ZERO).context;
            let mut run = Run::new(&[&[0, 1]]);
            run.context = context;
            run.wait(Span::from_secs(9));
            if acts {
                run.send(0, 1);
            }
            run.wait(span);
            run.send(1, 0);
            run.kill(1, false);
            run.restore(0, 1, None);
            run.restore(1, 1, None);
            let finding = check_alone(&RULE, &run);
            (finding.instances, finding.violation_count())
        };
        assert_eq!(failed_after(true, Span::from_millis(1_050)), (1, 0), "it may take its first one later");
        assert_eq!(failed_after(true, Span::from_millis(1_200)), (1, 1));
        assert_eq!(failed_after(false, Span::from_millis(1_200)), (1, 0), "only another process acted");
    }

    #[test]
    fn passing_over_a_committed_checkpoint_is_not_judged_here() {
        let mut run = run(Span::from_millis(10));
        run.commit_all(0, &[0, 1]);
        run.commit_all(0, &[0, 1]);
        run.wait(Span::from_secs(9));
        run.kill(1, false);
        run.restore(0, 2, Some((1, 2)));
        run.restore(1, 2, Some((1, 2)));
        assert_eq!(check_alone(&RULE, &run).instances, 1);
    }
}
