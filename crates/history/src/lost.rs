//! Lost work: the work that the rollbacks of a process undid. All numbers and diagrams that show lost work use this
//! definition.
//!
//! The lost work of a process in a rollback is the time from the instant of the restored state, or from the start of
//! the application if that is later, until the process stopped for the recovery or failed. Everything that it did in
//! between was undone. Work that an earlier rollback had already undone does not count again, nor does the time during
//! which the process was down. If the supervisor ended the process, the time of the failure is the time at which it did
//! so. Otherwise, it is the time of the process's last fact, since nothing more precise is known. Time for which a
//! checkpoint paused the process counts; time for which the user paused the whole federation does not.
//!
//! The lost work of a group's rollback is the sum over its processes. This module makes no judgements. The only clock
//! that it compares with those of the processes is the supervisor's: for the start of the application, the ends of
//! lives, and pauses.

use std::collections::BTreeSet;

use faultline_core::fault::Change;
use faultline_core::{Claim, Fact, ImageName, Incarnation, Life, ProcessId, Promise, Span, Time, Witness};
use faultline_trace::Trace;

use crate::history::History;
use crate::segments::{Point, SegmentNo, Witnessed};
use crate::supervision::Supervision;

/// A position in the facts of a process: a life, and a fact in that life. The end of a range is the position after its
/// last fact. The positions of a process are ordered like its history.
pub type FactPosition = (Life, usize);

/// The end of a life, as the second part of a [`FactPosition`].
const END: usize = usize::MAX;

/// The return of a process to an earlier state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    /// The fact that states the restore.
    pub at: FactPosition,
    /// The restored image; `None` is the initial state.
    pub image: Option<ImageName>,
    /// The incarnation that the process's group started.
    pub incarnation: Incarnation,
    /// The restored state, as a position in the process's facts.
    cut: FactPosition,
    /// The time at which the process was last in the restored state; `None` if the facts of that state are missing.
    pub to: Option<Time>,
    /// The undone stretches, in the order of the process's history. A stretch whose first fact is missing has no
    /// duration.
    pub undone: Vec<Undone>,
}

/// How the work of a process continued elsewhere after the process failed permanently or its partition moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    /// The time at which another process took over the work; `None` if no process could.
    pub at: Option<Time>,
    /// The process that took over the work.
    pub by: Option<ProcessId>,
    /// The process whose work, or whose partition, was taken over.
    pub of: ProcessId,
    /// The process that had done the work before; `None` if no process had, because the cluster joins later.
    pub from: Option<ProcessId>,
    /// The image from which the other process continued; `None` if it continued from the initial state, or
    /// had nothing to continue from.
    pub image: Option<ImageName>,
    /// The time at which the earlier process was last in the state from which the work continued.
    pub to: Time,
    /// The work that `of` had done after the state from which the work continued, in the order of its
    /// history. Empty if another process had done the work before: the time of that process is shared by its
    /// own partition and the one that moved.
    pub undone: Vec<Undone>,
    /// The number and total duration of the partition's tasks that the earlier process had run after the
    /// state from which the work continued; zero if the earlier process is `of`, or if there is none.
    pub elsewhere: (u64, Span),
}

impl Succession {
    /// Returns the lost work of the failed process.
    pub fn lost(&self) -> Span {
        self.undone.iter().fold(Span::ZERO, |sum, it| sum + it.lost())
    }
}

/// A stretch of one life that a restore undid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The first fact of the stretch.
    pub from: FactPosition,
    /// The position after the last fact of the stretch.
    pub upto: FactPosition,
    /// The time at which the work of the stretch started.
    pub began: Time,
    /// The time at which the work of the stretch ended.
    pub ended: Time,
    /// The time for which the user had paused the federation during the stretch.
    pub stood: Span,
}

/// The pauses of the whole federation that its user requested.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Vec<(Time, Time)>);

impl Pauses {
    /// Reads the pauses from the changes that the user made.
    pub fn of(supervision: &Supervision<'_>) -> Pauses {
        let mut pauses = Vec::new();
        for &(at, change) in &supervision.changes {
            match *change {
                Change::Pause(true) => pauses.push((at, Time(u64::MAX))),
                Change::Pause(false) => {
                    pauses.last_mut().into_iter().for_each(|it: &mut (Time, Time)| it.1 = at)
                }
                _ => {}
            }
        }
        Pauses(pauses)
    }

    /// Returns the start and the end of every pause. The end of a pause that never ended is [`Time::NEVER`].
    pub fn stretches(&self) -> impl Iterator<Item = (Time, Time)> {
        self.0.iter().copied()
    }

    /// Returns how long the federation was paused during this interval.
    pub fn within(&self, from: Time, upto: Time) -> Span {
        let each = self.0.iter().map(|&(begun, ended)| (begun.max(from), ended.min(upto)));
        each.filter(|(begun, ended)| begun < ended)
            .fold(Span::ZERO, |sum, (begun, ended)| sum + ended.since(begun))
    }
}

impl Return {
    /// Returns the process's lost work.
    pub fn lost(&self) -> Span {
        self.undone.iter().fold(Span::ZERO, |sum, it| sum + it.lost())
    }
}

impl Undone {
    /// Returns the work of the stretch.
    pub fn lost(&self) -> Span {
        Span(self.ended.since(self.began).0 - self.stood.0)
    }

    /// Returns the facts of the stretch.
    pub fn facts<'a>(&self, trace: &'a Trace, process: ProcessId) -> &'a [(Time, Fact)] {
        let stream = stream(trace, process, self.from.0);
        &stream[self.from.1.min(stream.len())..self.upto.1.min(stream.len())]
    }
}

/// Finds the returns of processes in a history.
#[derive(Debug)]
pub struct Returns<'h, 'a> {
    history: &'h History<'a>,
    begun: Time,
    pauses: Pauses,
}

impl<'h, 'a> Returns<'h, 'a> {
    /// Prepares the search, and reads the pauses of the federation.
    pub fn new(history: &'h History<'a>) -> Returns<'h, 'a> {
        let begun = history.supervision.begun.unwrap_or_default();
        Returns { history, begun, pauses: Pauses::of(&history.supervision) }
    }

    /// Returns the pauses that the federation's user requested.
    pub fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// Lists the returns of `process`, in order. If another process restores the partition of `process`, this does not
    /// count as a return. Neither does the move of the partition to `process` once the cluster of `process` has joined.
    pub fn of(&self, process: ProcessId) -> Vec<Return> {
        let history = self.history;
        let Some(own) = history.processes.get(process.index()).map(|it| it.segments.clone()) else {
            return Vec::new();
        };
        let mut returns = Vec::new();
        let mut past = SurvivingHistory::default();
        let first = history.witnessed.partition_point(|it| it.at.segment.0 < own.start);
        let stated = history.witnessed[first..].iter().take_while(|it| it.at.segment.0 < own.end);
        for restored in stated.filter(|it| it.is_restored) {
            let segment = history.segment(restored.at.segment);
            if segment.host != process || self.has_moved(restored) {
                continue;
            }
            let incarnation = history.segment(SegmentNo(restored.at.segment.0 + 1)).incarnation;
            let at = (segment.life, restored.at.fact as usize);
            let cut = (restored.witness.life, restored.witness.upto.index());
            let undone = past.restore(cut, at);
            returns.push(Return {
                at,
                image: restored.part,
                incarnation,
                cut,
                to: has_facts(history.trace, process, cut)
                    .then(|| instant(history.trace, process, cut).max(self.begun)),
                undone: undone.into_iter().map(|it| self.undone(process, cut, it)).collect(),
            });
        }
        returns
    }

    /// Returns how work continued in other processes, in chronological order. Processes whose work no process
    /// took over come last. If several processes took over the work of the same process, because the first of
    /// them had failed in turn, the loss counts once.
    pub fn successions(&self) -> Vec<Succession> {
        let history = self.history;
        let absorbed = history.tasks.iter().flat_map(|it| &it.absorptions);
        let absorbed = absorbed.map(|it| self.succession(it.at, it.of, it.image, it.witness, Some(it.of)));
        let moved = history.witnessed.iter().filter(|it| it.is_restored && self.has_moved(it));
        let moved = moved.map(|it| {
            self.succession(it.at, it.owner, it.part, it.witness, self.host_before(it.at, it.owner))
        });
        let mut all: Vec<Succession> = absorbed.chain(moved).collect();
        all.sort_by_key(|it| (it.at, it.of));
        let mut seen = BTreeSet::new();
        for it in all.iter_mut().filter(|it| it.from == Some(it.of) && !seen.insert(it.of)) {
            it.undone.clear();
        }
        all.extend(self.abandoned().filter(|it| !seen.contains(&it.of)));
        all
    }

    /// Returns whether a partition moved to the process that restored this state.
    fn has_moved(&self, restored: &Witnessed) -> bool {
        matches!(self.history.fact(restored.at), Fact::Absorbed(_))
    }

    /// Returns the process that ran a partition before it moved; `None` if no process had run it.
    fn host_before(&self, at: Point, partition: ProcessId) -> Option<ProcessId> {
        let history = self.history;
        if matches!(history.fact(at), Fact::Absorbed(it) if it.3 == Incarnation::default()) {
            return None;
        }
        let first = history.processes[partition.index()].segments.start;
        let earlier = (first..at.segment.0).rev().map(|it| history.segment(SegmentNo(it)));
        let mut earlier = earlier.filter(|it| it.is_active || it.is_restored && !it.is_rootless);
        Some(earlier.next().map_or(partition, |it| it.host))
    }

    fn succession(
        &self,
        at: Point,
        of: ProcessId,
        image: Option<ImageName>,
        witness: Witness,
        from: Option<ProcessId>,
    ) -> Succession {
        let history = self.history;
        let cut = (witness.life, witness.upto.index());
        let by = history.segment(at.segment).host;
        let (undone, elsewhere) = match from {
            Some(from) if from == of => (self.undone_after(of, cut), (0, Span::ZERO)),
            Some(from) => (Vec::new(), self.ran_elsewhere(at, of, from, cut)),
            None => (Vec::new(), (0, Span::ZERO)),
        };
        Succession {
            at: Some(history.time(at)),
            by: Some(by),
            of,
            from,
            image,
            to: instant(history.trace, from.unwrap_or(of), cut),
            undone,
            elsewhere,
        }
    }

    /// Returns the number and total duration of the partition's tasks that `host` had run after the state at
    /// `cut` and before the partition moved at `at`.
    fn ran_elsewhere(
        &self,
        at: Point,
        partition: ProcessId,
        host: ProcessId,
        cut: FactPosition,
    ) -> (u64, Span) {
        let history = self.history;
        let executions = history.planned.iter().flat_map(|it| it.tasks.values());
        let executions = executions.filter(|it| it.partition == partition).flat_map(|it| &it.ran);
        let after = executions.filter(|it| {
            let segment = history.segment(it.segment);
            it.segment < at.segment && segment.host == host && (segment.life, it.fact as usize) >= cut
        });
        ran(after.map(|&it| history.fact(it)))
    }

    /// Returns the permanently failed processes whose work no process can take over, because none of it is stored.
    fn abandoned(&self) -> impl Iterator<Item = Succession> {
        let history = self.history;
        let stores = history.context.promises.include(Promise::CheckpointedFirst);
        let is_stolen = history.tasks.is_some() && !stores;
        let gone = history.supervision.gone(&history.context.clusters).into_iter().filter(move |_| is_stolen);
        let begin = FactPosition::default();
        gone.map(move |of| Succession {
            at: None,
            by: None,
            of,
            from: Some(of),
            image: None,
            to: self.begun,
            undone: self.undone_after(of, begin),
            elsewhere: (0, Span::ZERO),
        })
    }

    /// Returns the work that a permanently failed process had done after a state, except for work that earlier
    /// rollbacks had undone.
    fn undone_after(&self, process: ProcessId, cut: FactPosition) -> Vec<Undone> {
        let Some((life, _)) = self.history.trace.lives(process).last() else { return Vec::new() };
        let mut past = SurvivingHistory::default();
        for it in self.of(process) {
            past.restore(it.cut, it.at);
        }
        let undone = past.restore(cut, (life, END));
        undone.into_iter().map(|it| self.undone(process, cut, it)).collect()
    }

    fn undone(
        &self,
        process: ProcessId,
        cut: FactPosition,
        (from, upto): (FactPosition, FactPosition),
    ) -> Undone {
        let (history, life) = (self.history, from.0);
        let mut active = history.trace.lives(process).filter(|(_, stream)| !stream.is_empty());
        let is_first = active.next().is_some_and(|(first, _)| first == life);
        // The process returns to the initial state. It remains in that state until the application begins, even if its
        // first fact is earlier.
        let is_initial = cut == FactPosition::default() && from.1 == 0;
        let began =
            if is_initial { self.begun } else { instant(history.trace, process, from).max(self.begun) };
        let undone = Undone { from, upto, began, ended: began, stood: Span::ZERO };
        // A later life has no state before its first restore.
        if from.1 == 0 && !is_first || !has_facts(history.trace, process, from) {
            return undone;
        }
        let failed_at = (upto.1 == END).then(|| history.supervision.end_of(process, life)).flatten();
        let failed_at = failed_at.filter(|it| it.is_ordered).map(|it| it.at);
        let last = instant(history.trace, process, upto);
        let ended = self
            .stopped(process, from, upto)
            .unwrap_or_else(|| failed_at.map_or(last, |failed_at| failed_at.max(last)));
        let ended = ended.max(began);
        Undone { ended, stood: self.pauses.within(began, ended), ..undone }
    }

    /// Returns the time at which a process stopped for a recovery within a stretch; `None` if it did not.
    fn stopped(&self, process: ProcessId, from: FactPosition, upto: FactPosition) -> Option<Time> {
        let stream = stream(self.history.trace, process, from.0);
        stopped(&stream[from.1.min(stream.len())..upto.1.min(stream.len())])
    }
}

/// Returns the time at which a process stopped for the recovery that followed these facts; `None` if it did not. A
/// process that stops only a part of its work, one partition, reports instead that it enters a recovery round.
pub(crate) fn stopped(facts: &[(Time, Fact)]) -> Option<Time> {
    let enters =
        |fact: &Fact| matches!(fact, Fact::Claim(it) if matches!(**it, Claim::RecoveryStarted { .. }));
    let held = facts.iter().rfind(|(_, fact)| *fact == Fact::Held);
    held.or_else(|| facts.iter().find(|(_, fact)| enters(fact))).map(|(at, _)| *at)
}

/// Returns the number of executions of tasks among these facts, and their total duration.
pub fn ran<'a>(facts: impl Iterator<Item = &'a Fact>) -> (u64, Span) {
    facts.fold((0, Span::ZERO), |(tasks, cost), fact| match fact {
        Fact::Ran { cost_us, .. } => (tasks + 1, cost + Span::from_micros((*cost_us).into())),
        _ => (tasks, cost),
    })
}

/// Returns the time at which a process was at a position in its history: the time of the fact at that position or, at
/// the end of a life, of the life's last fact.
pub fn instant(trace: &Trace, process: ProcessId, place: FactPosition) -> Time {
    let stream = stream(trace, process, place.0);
    stream.get(place.1).or(stream.last()).map_or(Time::ZERO, |(at, _)| *at)
}

/// Returns whether the facts of a process reach this position.
fn has_facts(trace: &Trace, process: ProcessId, place: FactPosition) -> bool {
    place.1 <= stream(trace, process, place.0).len()
}

fn stream(trace: &Trace, process: ProcessId, life: Life) -> &[(Time, Fact)] {
    trace.streams.get(&(process, life)).map_or(&[], Vec::as_slice)
}

/// The stretches of a process's history that have not been undone.
#[derive(Default)]
struct SurvivingHistory {
    standing: Vec<(FactPosition, FactPosition)>,
    begun: FactPosition,
}

impl SurvivingHistory {
    /// Moves the process back to `cut` at `now`. Returns the stretches that this undoes, each within one
    /// life.
    fn restore(&mut self, cut: FactPosition, now: FactPosition) -> Vec<(FactPosition, FactPosition)> {
        self.standing.push((self.begun, now));
        self.begun = now;
        let mut undone = Vec::new();
        while let Some((from, upto)) = self.standing.pop() {
            if from < cut && cut < upto {
                self.standing.push((from, cut));
                undone.extend(split_by_life(cut, upto));
                break;
            } else if upto <= cut {
                self.standing.push((from, upto));
                break;
            }
            undone.extend(split_by_life(from, upto));
        }
        undone.reverse();
        undone
    }
}

/// Splits a stretch over several lives into one stretch per life, the last one first.
fn split_by_life(from: FactPosition, upto: FactPosition) -> Vec<(FactPosition, FactPosition)> {
    let mut stretches = Vec::new();
    for life in (from.0.0..=upto.0.0).rev() {
        let begin = if life == from.0.0 { from.1 } else { 0 };
        let end = if life == upto.0.0 { upto.1 } else { END };
        if life > 0 && begin < end {
            stretches.push(((Life(life), begin), (Life(life), end)));
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::planned::Partitions;
    use crate::testing::tasks::TaskRun;
    use crate::testing::{Run, p};

    /// Returns a run of a process that worked for 10 ns after its first checkpoint, and was paused for 1 ns.
    fn one_rollback() -> Run {
        let mut run = Run::new(&[&[0]]);
        run.wait(Span(2));
        run.send(0, 0);
        run.wait(Span(3));
        run.commit_all(0, &[0]);
        run.send(0, 0);
        run.wait(Span(10));
        run.claim(0, Claim::RecoveryStarted { lives: 1, round: 1 });
        run.wait(Span(1));
        run.restore(0, 1, Some((0, 1)));
        run
    }

    fn lost(run: &Run) -> Vec<u64> {
        Returns::new(&run.history()).of(p(0)).iter().map(|it| it.lost().0).collect()
    }

    #[test]
    fn a_survivor_loses_its_work_until_it_pauses() {
        assert_eq!(lost(&one_rollback()), [10]);
    }

    #[test]
    fn a_survivor_loses_nothing_while_it_waits_for_the_failed_process() {
        let mut run = Run::new(&[&[0]]);
        run.commit_all(0, &[0]);
        run.wait(Span(3));
        run.state(0, Fact::Held);
        run.wait(Span(50));
        run.claim(0, Claim::RecoveryStarted { lives: 2, round: 0 });
        run.wait(Span(1));
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(lost(&run), [3]);
    }

    #[test]
    fn undone_work_is_not_lost_again() {
        let mut run = one_rollback();
        run.send(0, 0);
        run.wait(Span(7));
        run.claim(0, Claim::RecoveryStarted { lives: 1, round: 2 });
        run.wait(Span(2));
        // Passes over the checkpoint to which the process had returned. This undoes 5 ns of work before that
        // checkpoint, and 7 ns after the return.
        run.restore(0, 2, None);
        assert_eq!(lost(&run), [10, 5 + 7]);
    }

    #[test]
    fn a_failed_process_loses_nothing_while_it_is_down() {
        let mut run = Run::new(&[&[0]]);
        run.commit_all(0, &[0]);
        run.wait(Span(3));
        run.send(0, 0);
        run.wait(Span(4));
        run.kill(0, false);
        run.wait(Span(100));
        run.claim(0, Claim::RecoveryStarted { lives: 2, round: 1 });
        run.wait(Span(100));
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(lost(&run), [7], "until the supervisor ended the process");
    }

    #[test]
    fn a_process_that_paused_before_it_failed_lost_its_work_until_the_pause() {
        let mut run = Run::new(&[&[0]]);
        run.commit_all(0, &[0]);
        run.wait(Span(3));
        run.claim(0, Claim::RecoveryStarted { lives: 1, round: 1 });
        run.wait(Span(50));
        run.kill(0, false);
        run.wait(Span(100));
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(lost(&run), [3]);
    }

    #[test]
    fn nothing_is_lost_before_the_application_begins() {
        let mut run = Run::new(&[&[0]]);
        run.send(0, 0);
        run.wait(Span(40));
        run.supervisor(Fact::Begun);
        run.wait(Span(6));
        run.claim(0, Claim::RecoveryStarted { lives: 1, round: 1 });
        run.restore(0, 1, None);
        assert_eq!(lost(&run), [6]);
        assert_eq!(Returns::new(&run.history()).of(p(0))[0].to, Some(Time(40)));
    }

    #[test]
    fn work_after_a_state_whose_facts_are_missing_is_unknown() {
        let mut run = Run::new(&[&[0]]);
        run.wait(Span(50));
        run.send(0, 0);
        run.commit_all(0, &[0]);
        run.wait(Span(4));
        run.send(0, 0);
        run.kill(0, false);
        run.restore(0, 1, Some((0, 1)));
        assert!(lost(&run)[0] >= 4);
        run.trace.streams.remove(&(p(0), Life(1)));
        let history = run.history();
        let returns = Returns::new(&history).of(p(0));
        assert_eq!(returns.iter().map(|it| (it.to, it.lost())).collect::<Vec<_>>(), [(None, Span::ZERO)]);
    }

    /// Returns a run in which a process saves a state, works for 10 ms, and never returns.
    fn permanent_failure(promises: &[Promise]) -> (TaskRun, (ImageName, faultline_core::Witness)) {
        let mut run = TaskRun::promising(3, promises);
        run.0.supervisor(Fact::Begun);
        let spawned = run.begin(0, 1);
        let saved = run.save(0, 1);
        run.0.wait(Span::from_millis(9));
        run.ran(0, spawned[0], 0);
        run.lose_permanently(0);
        (run, saved)
    }

    fn lost_permanently(run: &TaskRun) -> Vec<(ProcessId, Option<ProcessId>, u64)> {
        let all = Returns::new(&run.0.history()).successions();
        all.iter().map(|it| (it.of, it.by, it.lost().0 / 1_000_000)).collect()
    }

    #[test]
    fn a_process_that_never_returns_loses_what_it_did_after_the_state_from_which_others_continue() {
        let (mut run, saved) = permanent_failure(&[Promise::CheckpointedFirst]);
        assert_eq!(lost_permanently(&run), [], "the loss is not known yet");
        for successor in [1, 2] {
            run.absorb(successor, 0, Some(saved));
        }
        assert_eq!(lost_permanently(&run), [(p(0), Some(p(1)), 10), (p(0), Some(p(2)), 0)], "counts once");
    }

    #[test]
    fn a_process_that_never_returns_loses_everything_if_nothing_was_stored() {
        let (run, _) = permanent_failure(&[]);
        assert_eq!(lost_permanently(&run), [(p(0), None, 12)]);
    }

    #[test]
    fn no_work_is_lost_while_the_user_pauses_the_federation() {
        let mut run = Run::new(&[&[0]]);
        let pause = |paused| Fact::Changed(Box::new(Change::Pause(paused)));
        run.supervisor(pause(true));
        run.wait(Span(50));
        run.supervisor(pause(false));
        let pauses = Pauses::of(&run.history().supervision);
        let [(from, upto)] = pauses.0[..] else { panic!("the federation paused once: {pauses:?}") };
        let long = upto.since(from);
        assert!(long >= Span(50));
        assert_eq!(pauses.within(Time::ZERO, upto + Span(9)), long);
        assert_eq!(pauses.within(from + Span(10), from + Span(20)), Span(10));
        assert_eq!(pauses.within(upto, upto + Span(9)), Span::ZERO);
    }

    /// p0 runs the partition of p2 until p2 has joined.
    #[test]
    fn a_partition_that_moves_to_its_own_process_is_not_a_rollback() {
        let mut run = Partitions::new(3);
        run.absorbed(0, 2, 0);
        run.executed_at(0, 2, 50);
        run.ceded(0, 2, 5);
        run.absorbed(2, 2, 5);
        let history = run.0.history();
        let returns = Returns::new(&history);
        assert_eq!(returns.of(p(2)), []);
        let moves = returns.successions();
        let moves: Vec<_> = moves.iter().map(|it| (it.by, it.from, it.elsewhere.0, it.lost())).collect();
        assert_eq!(moves, [(Some(p(0)), None, 0, Span::ZERO), (Some(p(2)), Some(p(0)), 1, Span::ZERO)]);
    }
}
