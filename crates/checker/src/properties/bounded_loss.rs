//! Lost work is bounded: a failure loses at most the checkpoint interval, the commit and the detection.
//!
//! Judged where the bound applies: at rollbacks for a failure that restore the newest committed checkpoint. What the
//! protocol decides of that bound is how long its coordinator waits between a commit and the next request, by the
//! coordinator's own clock; how long a commit takes is the storage's and the network's business, and is reported, not
//! bounded. Runs in which a fault holds messages, writes or processes back are not judged.

use faultline_core::{Claim, Fault, Position, Span, Time};

use crate::history::{Group, History, Rollback};
use crate::judgement::{Finding, Property};

/// What timers of real processes may be late.
const SLACK: Span = Span::from_millis(500);

pub(super) fn check(history: &History<'_>) -> Finding {
    let mut finding = Finding::new(Property::BoundedLoss);
    let Some(bounds) = &history.context.bounds else { return finding };
    let is_disturbed = history
        .supervision
        .injected
        .iter()
        .any(|(_, fault, ..)| !matches!(fault, Fault::Crash { .. } | Fault::LoseCluster { .. }));
    if is_disturbed {
        return finding;
    }
    let slack = if history.context.common_clock { Span::ZERO } else { SLACK };
    for (number, group) in history.groups.iter().enumerate() {
        let Some(&Some(every)) = bounds.checkpoint_every.get(number) else { continue };
        let limit = every + bounds.detect_after + slack;
        for (&incarnation, rollback) in &group.rollbacks {
            let Some(waited) = waited(history, group, incarnation, rollback) else { continue };
            finding.instances += 1;
            if waited > limit {
                let restored = rollback.restores().next().expect("has a target");
                finding.violated([history.source(restored.at)], || {
                    let cluster = history.context.group(number);
                    format!(
                        "{cluster} had taken no checkpoint for {waited} when it failed, although it takes one \
                         every {every} and notices a failure within {}",
                        bounds.detect_after
                    )
                });
            }
        }
    }
    finding
}

/// How long the coordinator had let the application run since the restored checkpoint without asking for the next;
/// `None` when the bound does not apply.
fn waited(
    history: &History<'_>,
    group: &Group<'_>,
    incarnation: faultline_core::Incarnation,
    rollback: &Rollback,
) -> Option<Span> {
    let target = rollback.target()?.map_or(Position::default(), |name| name.position);
    if !matches!(rollback.cause, Some((faultline_core::Cause::Failure, _))) {
        return None;
    }
    if group.committed_after(&group.line_before(incarnation), target).next().is_some() {
        return None;
    }
    let coordinator = *group.members.first()?;
    let restored = rollback.restored.first().copied().flatten()?;
    let own = history.processes[coordinator.index()].segments.clone();
    let first = history.claims.partition_point(|it| it.at.segment.0 < own.start);
    let mut since: Option<Time> = None;
    let mut asked = None;
    let mut noticed = None;
    let mut life = None;
    for claimed in history.claims[first..].iter().take_while(|it| it.at < restored.at) {
        let new_life = life.replace(history.segment(claimed.at.segment).life) != life;
        if new_life && restored.before.is_none() && history.segment(restored.at.segment).life == life? {
            break; // the life that recovers: what was lost was lost before
        }
        match claimed.claim {
            Claim::Committed { .. } | Claim::RolledBack { .. } => {
                (since, asked, noticed) = (Some(claimed.time), None, None);
            }
            Claim::CheckpointRequested { .. } => asked = asked.or(Some(claimed.time)),
            Claim::RecoveryStarted { .. } => noticed = noticed.or(Some(claimed.time)),
            _ => {}
        }
    }
    let end = match restored.before {
        Some(_) => asked.or(noticed).unwrap_or(restored.time),
        // The coordinator itself died: what it stated last came before that.
        None => asked.or_else(|| last_words(history, coordinator, restored.at))?,
    };
    Some(end.since(since?))
}

/// When the life before the one that states `at` stated its last fact.
fn last_words(
    history: &History<'_>,
    process: faultline_core::ProcessId,
    at: crate::history::Point,
) -> Option<Time> {
    let life = history.segment(at.segment).life;
    let (_, stream) = history.trace.lives(process).rfind(|(it, _)| *it < life)?;
    stream.last().map(|(time, _)| *time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, check_alone};
    use faultline_trace::manifest::Bounds;

    /// A failure `after` the last checkpoint of a cluster that takes one every second, and detects within 100 ms.
    fn run(after: Span) -> Run {
        let mut run = Run::new(&[&[0, 1]]);
        run.context.common_clock = true;
        run.context.bounds = Some(Bounds {
            checkpoint_every: vec![Some(Span::from_secs(1))],
            detect_after: Span::from_millis(100),
        });
        run.commit_all(0, &[0, 1]);
        run.wait(after);
        run.kill(1, false);
        run.restore(0, 1, Some((0, 1)));
        run.restore(1, 1, Some((0, 1)));
        run
    }

    #[test]
    fn a_failure_within_the_interval_is_right() {
        let finding = check_alone(check, &run(Span::from_millis(1_050)));
        assert_eq!((finding.instances, finding.violation_count()), (1, 0), "{:?}", finding.violations);
    }

    #[test]
    fn a_checkpoint_that_was_overdue_is_found() {
        assert_eq!(check_alone(check, &run(Span::from_millis(1_200))).violation_count(), 1);
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
        assert_eq!(check_alone(check, &run).instances, 1);
    }
}
