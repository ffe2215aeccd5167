//! Lost work is bounded in task-based programs, too: a failure loses at most the tasks that were running and the work
//! since the last checkpoint, which is no older than `tau` plus the duration of the next write.
//!
//! The protocol controls two parts of this bound: when a process takes its next checkpoint (`tau` after the last one
//! or, if its write took longer than `tau`, `tau` after the write completed), and which checkpoint it restores (the
//! newest one that survives at the process or at a holder). The same applies to the successor of a process that never
//! returns, which absorbs that checkpoint. The duration of a write depends on the storage and the network.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use faultline_core::{Claim, Fact, FactNo, Life, Position, ProcessId, Span, Time};
use faultline_trace::Stream;
use faultline_trace::manifest::Bounds;

use crate::finding::{Findings, Worded};
use crate::properties::evident_loss::{Disturbances, round_limit};
use crate::properties::intervals::{SLACK, lives_before, since_restored};
use faultline_history::{CheckpointName, Context, Group, History, Source, StoredCopy};

/// The number of rounds after which a write should have ended.
const ROUNDS: u64 = 5;

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    ProcessCheckpointOverdue { process: ProcessId, waited: Span, every: Span },
    NewestNotRestored { process: ProcessId, newest: Position },
    NewestNotAbsorbed { by: ProcessId, of: ProcessId, newest: Position },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::ProcessCheckpointOverdue { process: by, waited, every } => format!(
                "{} had taken no checkpoint for {waited} when it failed, although it should take one every {every}",
                names.process(by)
            ),
            Breach::NewestNotRestored { process: by, newest } => {
                format!("{} did not restore checkpoint {newest}, the newest durable one", names.process(by))
            }
            Breach::NewestNotAbsorbed { by, of, newest } => format!(
                "{} did not absorb checkpoint {newest} of {}, the newest durable one",
                names.process(by),
                names.process(of)
            ),
        }
    }
}

pub(super) fn check(history: &History<'_>, bounds: &Bounds, finding: &mut Findings) {
    let slack = if history.context.common_clock { Span(1) } else { SLACK };
    let writes = Writes::of(history);
    let clusters = &history.context.clusters;
    let gone = history.supervision.gone(clusters);
    let tau_of = |process: ProcessId| -> Option<Span> {
        let cluster = clusters.iter().position(|it| it.contains(&process))?;
        *bounds.checkpoint_every.get(cluster)?
    };
    for group in &history.groups {
        let Some(&process) = group.members.first() else { continue };
        let Some(tau) = tau_of(process) else { continue };
        for restored in group.rollbacks.values().flat_map(|it| it.restores()) {
            let at = history.source(restored.at);
            let lives = lives_before(history, process, at.life);
            if lives.is_empty() {
                continue;
            }
            finding.instances += 1;
            let earlier = |it: Position| it.incarnation < at.life.incarnation();
            let position = restored.checkpoint.map(|it| it.position);
            if let Some(newest) = passed_over(history, group, position, earlier, at, &gone) {
                finding.violated([at], Breach::NewestNotRestored { process, newest });
            }
            check_delays(history, process, &lives, (tau, slack), &writes, finding);
        }
    }
    for absorption in history.tasks.iter().flat_map(|it| &it.absorptions) {
        let (of, at) = (absorption.of, history.source(absorption.at));
        let Some(tau) = tau_of(of) else { continue };
        finding.instances += 1;
        let position = absorption.image.map(|it| it.position());
        let group = history.groups.iter().find(|it| it.members.first() == Some(&of));
        if let Some(newest) = group.and_then(|it| passed_over(history, it, position, |_| true, at, &gone)) {
            finding.violated([at], Breach::NewestNotAbsorbed { by: at.process, of, newest });
        }
        let lives = lives_before(history, of, Life(u32::MAX));
        check_delays(history, of, &lives, (tau, slack), &writes, finding);
    }
}

/// Returns the newest of the `eligible` checkpoints that have a copy, at the process or at a holder, that
/// survived all losses before the life of `source` ended; `None` if the checkpoint that `source` restored is
/// at least as new.
fn passed_over(
    history: &History<'_>,
    group: &Group<'_>,
    restored: Option<Position>,
    eligible: impl Fn(Position) -> bool,
    source: Source,
    gone: &BTreeSet<ProcessId>,
) -> Option<Position> {
    let before = history.supervision.end_of_life(source.process, source.life);
    let is_left = |it: &StoredCopy| {
        !gone.contains(&it.holder) && !history.supervision.may_have_lost(it.holder, it.life, before)
    };
    let newest = newest_left(group, |name| eligible(name.position), is_left);
    newest.map(|it| it.0).filter(|it| restored.unwrap_or_default() < *it)
}

/// Returns the newest of the `eligible` checkpoints of a process of a task-based program that have a copy for which
/// `is_left` returns `true`, and the holder of such a copy.
pub(super) fn newest_left(
    group: &Group<'_>,
    eligible: impl Fn(&CheckpointName) -> bool,
    is_left: impl Fn(&StoredCopy) -> bool,
) -> Option<(Position, ProcessId)> {
    let left = group.checkpoints.iter().filter(|(name, _)| eligible(name)).filter_map(|(name, it)| {
        let copy = it.parts[0].copies.iter().find(|copy| is_left(copy))?;
        Some((name.position, copy.holder))
    });
    left.max()
}

/// Checks that a process took a checkpoint every `tau`, within `slack`, in all lives that were not judged at
/// an earlier restore.
fn check_delays(
    history: &History<'_>,
    process: ProcessId,
    lives: &[(Life, &Stream)],
    (tau, slack): (Span, Span),
    writes: &Writes<'_>,
    finding: &mut Findings,
) {
    for &(life, stream) in since_restored(lives) {
        if let Some((number, waited)) = too_late(history, process, stream, tau + slack, writes) {
            let at = Source { process, life, number: FactNo(number) };
            finding.violated([at], Breach::ProcessCheckpointOverdue { process, waited, every: tau });
        }
    }
}

/// Checks whether a life ran for longer than `limit` after its last checkpoint without writing another one. Returns the
/// number of the first fact about a task after that time, and the time elapsed.
fn too_late(
    history: &History<'_>,
    process: ProcessId,
    stream: &Stream,
    limit: Span,
    writes: &Writes<'_>,
) -> Option<(u64, Span)> {
    let mut since = stream.first().map(|(at, _)| *at);
    let mut is_writing = false;
    let mut may_resume = false;
    for (number, (at, fact)) in (0..).zip(stream) {
        match fact {
            Fact::Saved(saved) if saved.0.owner == process => (since, is_writing) = (Some(*at), true),
            // Before this fact, the process has nothing to save.
            Fact::Restored(_) => (since, is_writing, may_resume) = (Some(*at), false, true),
            Fact::Claim(claim) => match **claim {
                Claim::Committed { .. } => {
                    is_writing = false;
                    // If the write took longer than `tau`, the time to the next checkpoint is counted from the end of
                    // the write.
                    since = since.map(|it| if at.since(it) > limit { *at } else { it });
                }
                // A process resumes once after each restore.
                Claim::RolledBack { .. } if std::mem::take(&mut may_resume) => since = Some(*at),
                _ => {}
            },
            Fact::Ran { .. } => {
                let since = since.filter(|it| at.since(*it) > limit);
                if let Some(since) = since.filter(|it| !is_writing || writes.should_have_ended(*it, *at)) {
                    return Some((number, at.since(since)));
                }
            }
            _ => {}
        }
        // A process that is halted so that a fault can be injected takes no checkpoint, even if the delay before the
        // next one starts at this fact.
        if history.context.halting.contains(&fact.kind()) {
            since = None;
        }
    }
    None
}

/// How long a process may claim to be writing a checkpoint.
struct Writes<'a> {
    history: &'a History<'a>,
    /// The time within which a write ends, and the disturbances that may delay it. There is no such time if a storage has
    /// yet to complete a write.
    limit: OnceCell<(Option<Span>, Disturbances)>,
}

impl<'a> Writes<'a> {
    fn of(history: &'a History<'a>) -> Writes<'a> {
        Writes { history, limit: OnceCell::new() }
    }

    /// Returns whether a write that began at `since` should have ended before `now`.
    fn should_have_ended(&self, since: Time, now: Time) -> bool {
        let (limit, disturbances) = self.limit.get_or_init(|| {
            let limit = round_limit(self.history).map(|it| it * ROUNDS);
            (limit, Disturbances::of(self.history, limit.unwrap_or_default()))
        });
        limit.is_some_and(|limit| disturbances.longest_calm(since, now) > limit)
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::{FactKind, Span, TaskId};

    use super::*;
    use crate::testing::check_alone;
    use crate::testing::tasks::TaskRun;

    /// Checks a process that takes checkpoints, waits for `wait`, runs a task, fails, and restores checkpoint
    /// `restored`.
    fn found(wait: Span, restored: usize) -> Vec<Breach> {
        let mut run = TaskRun::new(1);
        run.0.context.common_clock = true;
        run.0.context.bounds = Some(bounds(1));
        run.begin(0, 1);
        let saved = [run.commit(0, 1, false), run.commit(0, 2, true)];
        run.0.wait(wait);
        run.ran(0, TaskId::MAIN.child(0), 0);
        run.0.kill(0, false);
        run.restore(0, Some(saved[restored]));
        let finding = check_alone(&super::super::bounded_loss::RULE, &run.0);
        assert_eq!(finding.instances, 1);
        finding.wrong::<Breach>()
    }

    /// Returns bounds that require a checkpoint of each cluster every 100 ms.
    fn bounds(clusters: usize) -> Bounds {
        Bounds {
            checkpoint_every: vec![Some(Span::from_millis(100)); clusters],
            detect_after: Span::ZERO,
            collect_every: None,
            delivered_within: None,
        }
    }

    #[test]
    fn a_process_takes_a_checkpoint_every_tau() {
        assert_eq!(found(Span::from_millis(90), 1), []);
        let wrong = found(Span::from_millis(110), 1);
        assert!(matches!(wrong[0], Breach::ProcessCheckpointOverdue { .. }), "{wrong:?}");
    }

    #[test]
    fn a_process_that_is_halted_as_it_restores_takes_no_checkpoint() {
        let violations = |halting: &[FactKind]| {
            let mut run = TaskRun::new(1);
            run.0.context.common_clock = true;
            run.0.context.halting = halting.iter().copied().collect();
            run.0.context.bounds = Some(bounds(1));
            run.begin(0, 1);
            let saved = run.commit(0, 1, false);
            run.0.kill(0, false);
            run.restore(0, Some(saved));
            run.0.wait(Span::from_millis(110));
            run.ran(0, TaskId::MAIN.child(0), 0);
            run.0.kill(0, false);
            run.restore(0, Some(saved));
            check_alone(&super::super::bounded_loss::RULE, &run.0).wrong::<Breach>()
        };
        let wrong = violations(&[]);
        assert!(matches!(wrong[..], [Breach::ProcessCheckpointOverdue { .. }]), "{wrong:?}");
        assert_eq!(violations(&[FactKind::Restored]), []);
    }

    #[test]
    fn a_process_restores_its_newest_checkpoint() {
        let wrong = found(Span::ZERO, 0);
        let newest = Position::new(0, 2);
        assert_eq!(wrong[0], Breach::NewestNotRestored { process: ProcessId(0), newest });
    }

    /// Checks a process that fails and restores a checkpoint. Checkpoint 2 is durable at a holder, but not in
    /// the process's own storage.
    fn found_at_a_holder(is_lost: bool, restored: usize) -> Vec<Breach> {
        let mut run = TaskRun::new(2);
        run.0.context.common_clock = true;
        run.0.context.bounds = Some(bounds(2));
        run.begin(0, 1);
        let first = run.commit(0, 1, false);
        let second = (run.0.image(0, 0, 2), run.0.witness(0));
        run.state(0, Fact::Saved(Box::new((second.0, second.1, 0))));
        run.0.durable(1, second.0);
        run.0.kill(0, false);
        if is_lost {
            run.0.kill(1, true);
        }
        run.restore(0, Some([first, second][restored]));
        check_alone(&super::super::bounded_loss::RULE, &run.0).wrong::<Breach>()
    }

    #[test]
    fn a_process_restores_the_newest_checkpoint_at_any_holder() {
        let newest = Position::new(0, 2);
        let wrong = Breach::NewestNotRestored { process: ProcessId(0), newest };
        assert_eq!(found_at_a_holder(false, 0), [wrong]);
        assert_eq!(found_at_a_holder(false, 1), []);
        assert_eq!(found_at_a_holder(true, 0), []);
    }

    /// Checks a run in which process 1 absorbs the image with the index `absorbed`, and process 0 never
    /// returns. Checkpoint 1 of process 0 is durable at both of the other processes, checkpoint 2 only at
    /// process 2.
    fn found_at_a_successor(wait: Span, is_lost: bool, absorbed: Option<usize>) -> Vec<Breach> {
        let mut run = TaskRun::new(3);
        run.0.context.common_clock = true;
        run.0.context.bounds = Some(bounds(3));
        run.begin(0, 1);
        let saved = [run.commit(0, 1, false), run.commit(0, 2, true)];
        for holder in [1, 2] {
            run.0.durable(holder, saved[0].0);
        }
        run.0.durable(2, saved[1].0);
        run.0.wait(wait);
        run.ran(0, TaskId::MAIN.child(0), 0);
        run.lose_permanently(0);
        if is_lost {
            run.0.kill(2, true);
        }
        run.absorb(1, 0, absorbed.map(|it| saved[it]));
        let finding = check_alone(&super::super::bounded_loss::RULE, &run.0);
        assert_eq!(finding.instances, 1);
        finding.wrong::<Breach>()
    }

    #[test]
    fn a_successor_absorbs_the_newest_checkpoint_at_any_holder() {
        let newest = |sn| Position::new(0, sn);
        let wrong = |sn| Breach::NewestNotAbsorbed { by: ProcessId(1), of: ProcessId(0), newest: newest(sn) };
        assert_eq!(found_at_a_successor(Span::ZERO, false, Some(1)), []);
        assert_eq!(found_at_a_successor(Span::ZERO, false, Some(0)), [wrong(2)]);
        assert_eq!(found_at_a_successor(Span::ZERO, false, None), [wrong(2)]);
        // The storage of process 0 is lost with the process.
        assert_eq!(found_at_a_successor(Span::ZERO, true, Some(0)), []);
        assert_eq!(found_at_a_successor(Span::ZERO, true, None), [wrong(1)]);
    }

    #[test]
    fn a_process_that_never_returns_took_a_checkpoint_every_tau() {
        let wrong = found_at_a_successor(Span::from_millis(110), false, Some(1));
        assert!(
            matches!(wrong[..], [Breach::ProcessCheckpointOverdue { process: ProcessId(0), .. }]),
            "{wrong:?}"
        );
    }

    #[test]
    fn a_life_that_failed_before_it_restored_a_state_hides_no_delay() {
        for returns in [false, true] {
            let mut run = TaskRun::new(2);
            run.0.context.common_clock = true;
            run.0.context.bounds = Some(bounds(2));
            run.begin(0, 1);
            let saved = run.commit(0, 1, false);
            run.0.durable(1, saved.0);
            run.0.wait(Span::from_millis(110));
            run.ran(0, TaskId::MAIN.child(0), 0);
            run.0.kill(0, false);
            run.0.wait(Span::from_millis(1));
            if returns {
                run.0.kill(0, false);
                run.restore(0, Some(saved));
            } else {
                run.lose_permanently(0);
                run.absorb(1, 0, Some(saved));
            }
            let wrong = check_alone(&super::super::bounded_loss::RULE, &run.0).wrong::<Breach>();
            assert!(matches!(wrong[..], [Breach::ProcessCheckpointOverdue { .. }]), "{returns}: {wrong:?}");
        }
    }
}
