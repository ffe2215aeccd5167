//! What a process did when, as far as its own facts show: when it worked, when a checkpoint froze it, and when it
//! finished. Makes no judgements.
//!
//! A computation or a task shares the fate of the fact that states its end. A process may save its state during a
//! computation; a rollback to that state repeats the whole computation, including the part before the save.

use std::collections::BTreeSet;

use faultline_core::{Claim, Fact, Position, ProcessId, TheftStep, Time};
use faultline_trace::{Stream, Trace};

use crate::lost::{FactPosition, Undone};

/// A period, from its start to its end.
pub type Period = (Time, Time);

/// The activities of a process. Periods of different activities may overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Periods in which the process computed or ran a task, which it completes even if a checkpoint freezes it in the
    /// meantime. Excludes those of `undone`.
    pub working: Vec<Period>,
    /// Periods in which the process re-executed tasks for others. Excludes those of `undone`.
    pub rerunning: Vec<Period>,
    /// Computations and tasks whose ends a rollback undid, from their starts.
    pub undone: Vec<Period>,
    /// Periods for which a committed checkpoint froze the process, unless a rollback undid the checkpoint.
    pub frozen: Vec<Period>,
    /// The time at which the process finished the application; `None` if its last life did not finish it, or if a
    /// rollback undid that.
    pub finished: Option<Time>,
}

/// What the rollbacks of a process did to its history.
#[derive(Clone, Debug, Default)]
pub struct Fate {
    /// The undone facts, as ranges in ascending order.
    undone: Vec<(FactPosition, FactPosition)>,
    /// The checkpoints that were restored.
    restored: BTreeSet<Position>,
}

impl Fate {
    /// Collects the undone stretches and the restored checkpoints of a process.
    pub fn new<'u>(
        undone: impl Iterator<Item = &'u Undone>,
        restored: impl Iterator<Item = Position>,
    ) -> Fate {
        let mut undone: Vec<_> = undone.map(|it| (it.from, it.upto)).collect();
        undone.sort_unstable();
        Fate { undone, restored: restored.collect() }
    }

    fn has_undone(&self, at: FactPosition) -> bool {
        let before = self.undone.partition_point(|(from, _)| *from <= at);
        before.checked_sub(1).is_some_and(|it| at < self.undone[it].1)
    }
}

impl Activity {
    /// Returns the activities of a process. A computation without an earlier fact in its life started at `begun`.
    pub fn of(process: ProcessId, trace: &Trace, begun: Time, fate: &Fate) -> Activity {
        let mut activity = Activity::default();
        for (life, stream) in trace.lives(process) {
            for (number, period) in working(stream, begun) {
                let periods = match stream[number].1 {
                    _ if fate.has_undone((life, number)) => &mut activity.undone,
                    Fact::Rerun { .. } => &mut activity.rerunning,
                    _ => &mut activity.working,
                };
                periods.push(period);
            }
            activity.finished = None;
            for (number, (at, fact)) in stream.iter().enumerate() {
                match fact {
                    Fact::Finished(_) => activity.finished = Some(*at),
                    Fact::Restored(_) => activity.finished = None,
                    Fact::Claim(claim) => {
                        if let Claim::Committed { position, frozen, .. } = **claim
                            && (fate.restored.contains(&position) || !fate.has_undone((life, number)))
                        {
                            activity.frozen.push((Time(at.0.saturating_sub(frozen.0)), *at));
                        }
                    }
                    _ => {}
                }
            }
        }
        activity
    }
}

/// Returns the periods in which a life computed or ran tasks, each with the number of the fact that states its end. A
/// computation without an earlier fact in this life
/// started at `begun`. No fact states when a task starts. The start is therefore estimated as the time of the last fact
/// that may have made the task ready or the process free, and that precedes the task's end by at least the task's
/// duration.
fn working(stream: &Stream, begun: Time) -> Vec<(usize, Period)> {
    let (mut all, mut starts) = (Vec::new(), Vec::new());
    for (number, (at, fact)) in stream.iter().enumerate() {
        match fact {
            Fact::Computed { since } => {
                let before = since.0.checked_sub(1).and_then(|it| stream.get(it as usize));
                all.push((number, (before.map_or(begun, |it| it.0), *at)));
            }
            Fact::Ran { cost_us, .. } | Fact::Rerun { cost_us, .. } => {
                let latest = Time(at.0.saturating_sub(u64::from(*cost_us) * 1000));
                let before = starts.partition_point(|it| *it <= latest);
                let start = before.checked_sub(1).map_or(latest, |it| starts[it]);
                all.push((number, (start, *at)));
                starts.push(*at);
            }
            Fact::Theft { step: TheftStep::Taken | TheftStep::Merged | TheftStep::Voided, .. }
            | Fact::Delivered(_)
            | Fact::Absorbed(_)
            | Fact::Restored(_) => starts.push(*at),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use faultline_core::{Digest, FactNo, Incarnation, Life, MessageId, Span, TaskId, Theft, Witness};

    use super::*;
    use crate::testing::{Run, p, position};

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    /// Returns the activities of p0 after facts at these times. Each list of facts belongs to a life of its own.
    fn activity(lives: impl IntoIterator<Item = Stream>, begun: Time) -> Activity {
        let mut trace = Trace::default();
        for (life, stream) in (1..).map(Life).zip(lives) {
            trace.streams.insert((p(0), life), stream);
        }
        Activity::of(p(0), &trace, begun, &Fate::default())
    }

    #[test]
    fn a_process_works_while_it_runs_a_task() {
        let task = |number, seconds: u32| Fact::Ran {
            task: TaskId(number),
            spawned: 0,
            cost_us: seconds * 1_000_000,
        };
        let theft = Theft { victim: p(1), thief: p(0), life: Life(1), number: 1 };
        let step = |step| Fact::Theft { theft, task: TaskId(2), step };
        let stream = vec![
            (at(2), task(1, 2)),
            // The process does not work until it steals a task of three seconds. While this task runs, the result of
            // another task arrives.
            (at(5), step(TheftStep::Taken)),
            (at(7), step(TheftStep::Merged)),
            (at(8), task(2, 3)),
            // Tasks run sequentially. On a real process, a task may take longer than its stated duration.
            (at(10), task(3, 1)),
        ];
        let working = activity([stream], at(0)).working;
        assert_eq!(working, [(at(0), at(2)), (at(5), at(8)), (at(8), at(10))]);
    }

    #[test]
    fn a_process_works_while_it_computes() {
        let id = |from, to| MessageId { from: p(from), to: p(to), incarnation: Incarnation(0), number: 0 };
        let stream = vec![
            // The first computation starts with the application.
            (at(3), Fact::Computed { since: FactNo(0) }),
            (at(3), Fact::Sent { id: id(0, 1), bytes: 8 }),
            // A message that arrives early does not start the second one.
            (at(4), Fact::Delivered(id(2, 0))),
            (at(6), Fact::Delivered(id(1, 0))),
            (at(9), Fact::Computed { since: FactNo(4) }),
        ];
        assert_eq!(activity([stream], at(1)).working, [(at(1), at(3)), (at(6), at(9))]);
    }

    #[test]
    fn a_checkpoint_freezes_a_process_until_it_is_committed() {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        let mut trace = run.trace.clone();
        let committed = trace.streams.get_mut(&(p(0), Life(1))).unwrap().last_mut().unwrap();
        let Fact::Claim(claim) = &mut committed.1 else { panic!("{committed:?} is not a claim") };
        let Claim::Committed { frozen, .. } = &mut **claim else { panic!("{claim:?} is not a commit") };
        (committed.0, *frozen) = (at(9), Span::from_secs(2));
        let frozen = |fate: &Fate| Activity::of(p(0), &trace, at(0), fate).frozen;
        assert_eq!(frozen(&Fate::default()), [(at(7), at(9))]);
        let life = |number| (Life(1), number);
        let undone = Fate { undone: vec![(life(1), life(9))], ..Fate::default() };
        assert_eq!(frozen(&undone), [], "a rollback undid the checkpoint");
        let restored = Fate { restored: [position(0, 1)].into(), ..undone };
        assert_eq!(frozen(&restored), [(at(7), at(9))], "a rollback restored the checkpoint");
    }

    #[test]
    fn a_computation_whose_end_was_undone_is_undone_from_its_start() {
        let computed = |since| Fact::Computed { since: FactNo(since) };
        let mut trace = Trace::default();
        let stream = vec![(at(3), computed(0)), (at(8), computed(1))];
        trace.streams.insert((p(0), Life(1)), stream);
        // The restored state was saved at 5 s.
        let fate = Fate { undone: vec![((Life(1), 1), (Life(1), 2))], ..Fate::default() };
        let activity = Activity::of(p(0), &trace, at(0), &fate);
        assert_eq!((activity.working, activity.undone), (vec![(at(0), at(3))], vec![(at(3), at(8))]));
    }

    #[test]
    fn a_process_has_finished_unless_a_rollback_undid_that() {
        let finished = || Fact::Finished(Box::new((Witness::default(), Digest([0; 16]))));
        let restored = Fact::Restored(Box::new((None, Incarnation(1), Witness::default())));
        let end = |lives: Vec<Stream>| activity(lives, at(0)).finished;
        let first = vec![(at(3), finished())];
        assert_eq!(end(vec![first.clone()]), Some(at(3)));
        let undone = vec![(at(3), finished()), (at(5), restored.clone())];
        assert_eq!(end(vec![undone]), None);
        assert_eq!(end(vec![first.clone(), vec![(at(5), restored.clone())]]), None, "in an earlier life");
        let again = vec![(at(5), restored), (at(8), finished())];
        assert_eq!(end(vec![first, again]), Some(at(8)));
    }
}
