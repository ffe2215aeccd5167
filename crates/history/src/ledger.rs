//! Where the time of every process went. Each moment of a process counts once, so for every process the parts add up to
//! its window exactly: from the start of the application, or from the time at which its cluster joined, to the end of
//! the run, or to the time at which its cluster left.
//!
//! A moment belongs to the first of these parts that applies:
//!
//! | part | when |
//! | --- | --- |
//! | paused | the user paused the federation |
//! | detecting | a life has ended, and the supervisor has not detected it |
//! | replacing | the end was detected, and the next life has not started |
//! | frozen | a checkpoint that survives, or was restored, froze the process, unless a computation ran |
//! | undone | work that a rollback undid, or that was lost with a process that never returned |
//! | restoring | a failed process: from its start to its restored state; any other: from its last recovery round |
//! | rejoining | the state is restored, and the process has not resumed |
//! | working | computations and tasks that survive |
//! | rerunning | tasks re-executed for others by a process that kept its state |
//! | finished | the application has finished |
//! | stalled | the rest, while another process recovers or re-executes, unless the process itself re-executes |
//! | waiting | the rest: for messages, tasks or values |

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

use faultline_core::{Claim, ClusterId, Fact, Life, ProcessId, Span, Time};
use faultline_trace::Stream;
use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::activity::{Activity, Fate, Period};
use crate::history::History;
use crate::lost::{Return, Returns, Undone, instant};

/// Declares [`TimePart`] with its names, in display order.
macro_rules! parts {
    ($($(#[$doc:meta])* $part:ident $name:literal $field:literal,)*) => {
        /// A part of the time of a process. The module's documentation defines the parts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the module's table documents the parts")]
        pub enum TimePart {
            $($part,)*
        }

        impl TimePart {
            /// All parts, in display order.
            pub const ALL: [TimePart; [$($name),*].len()] = [$(TimePart::$part),*];

            /// Returns the name of the part, in lower case.
            pub const fn name(self) -> &'static str {
                match self { $(TimePart::$part => $name,)* }
            }

            /// Returns the name of the field that states the part in seconds.
            const fn field(self) -> &'static str {
                match self { $(TimePart::$part => $field,)* }
            }
        }
    };
}

parts! {
    Working "working" "workingSeconds",
    Waiting "waiting" "waitingSeconds",
    Stalled "stalled" "stalledSeconds",
    Undone "undone" "undoneSeconds",
    Rerunning "rerunning" "rerunningSeconds",
    Frozen "frozen" "frozenSeconds",
    Detecting "detecting" "detectingSeconds",
    Replacing "replacing" "replacingSeconds",
    Restoring "restoring" "restoringSeconds",
    Rejoining "rejoining" "rejoiningSeconds",
    Paused "paused" "pausedSeconds",
    Finished "finished" "finishedSeconds",
}

/// Time of one or several processes, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeByPart([Span; TimePart::ALL.len()]);

impl TimeByPart {
    /// Returns the time of one part.
    pub fn of(&self, part: TimePart) -> Span {
        self.0[part as usize]
    }

    /// Returns the seconds of each part, with its name, in display order.
    pub fn parts(&self) -> [(&'static str, f64); TimePart::ALL.len()] {
        TimePart::ALL.map(|it| (it.name(), self.of(it).as_secs_f64()))
    }

    /// Returns the sum of all parts.
    pub fn total(&self) -> Span {
        self.0.iter().fold(Span::ZERO, |sum, it| sum + *it)
    }

    /// Returns the sum of all parts, in seconds.
    pub fn total_seconds(&self) -> f64 {
        self.total().as_secs_f64()
    }

    /// Returns the effective training time ratio: the share of the time in which the application made progress or
    /// waited for its own messages, of all time in which it was neither paused nor finished. `None` if there is no such
    /// time.
    pub fn ettr(&self) -> Option<f64> {
        let whole = self.total().0 - self.of(TimePart::Paused).0 - self.of(TimePart::Finished).0;
        let effective = self.of(TimePart::Working) + self.of(TimePart::Waiting);
        (whole > 0).then(|| effective.0 as f64 / whole as f64)
    }

    fn count(&mut self, part: TimePart, span: Span) {
        self.0[part as usize] = self.0[part as usize] + span;
    }
}

impl Add for TimeByPart {
    type Output = TimeByPart;

    fn add(mut self, other: TimeByPart) -> TimeByPart {
        TimePart::ALL.into_iter().for_each(|part| self.count(part, other.of(part)));
        self
    }
}

/// Written as an object with the seconds of each part.
impl Serialize for TimeByPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for part in TimePart::ALL {
            map.serialize_entry(part.field(), &self.of(part).as_secs_f64())?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for TimeByPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TimeByPart, D::Error> {
        let fields = BTreeMap::<String, f64>::deserialize(deserializer)?;
        let mut time = TimeByPart::default();
        for (field, seconds) in fields {
            let part = TimePart::ALL.into_iter().find(|it| it.field() == field);
            let part = part.ok_or_else(|| D::Error::custom(format!("there is no part {field}")))?;
            time.count(part, Span((seconds * 1e9).round() as u64));
        }
        Ok(time)
    }
}

/// The time of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessTime {
    /// The process.
    pub process: ProcessId,
    /// The cluster to which the process belongs.
    pub cluster: ClusterId,
    /// The start and the end of the time that is divided.
    pub window: Period,
    /// The parts.
    pub time: TimeByPart,
}

/// The time of all ranks of a run.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The time of each rank whose facts are complete, by cluster.
    pub processes: Vec<ProcessTime>,
    /// When each rank was in a phase of a recovery, or re-executed what a rollback had undone.
    pub(crate) phases: BTreeMap<ProcessId, Vec<Stretch>>,
}

/// What can be the case at a moment. Several conditions may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    Paused,
    Detecting,
    Replacing,
    Frozen,
    Undone,
    /// A computation or task runs whose end a rollback undid.
    UndoneComputation,
    Restoring,
    Rejoining,
    Working,
    Rerunning,
    Finished,
    /// The process re-executes what a rollback had undone.
    Reexecuting,
    /// Another process recovers or re-executes.
    OthersRecover,
}

const CONDITIONS: usize = Condition::OthersRecover as usize + 1;

/// A period in which a condition holds.
pub(crate) type Stretch = (Time, Time, Condition);

impl Ledger {
    /// Divides the time of every rank.
    pub fn of(history: &History<'_>) -> Ledger {
        let end = history.end();
        let returns = Returns::new(history);
        let mut abandoned: BTreeMap<ProcessId, Vec<Undone>> = BTreeMap::new();
        for it in returns.successions() {
            abandoned.entry(it.of).or_default().extend(it.undone);
        }
        let own: BTreeMap<ProcessId, Own> = ranks(history)
            .map(|(_, process)| {
                let lost = abandoned.remove(&process).unwrap_or_default();
                (process, Own::of(history, process, returns.of(process), lost, end))
            })
            .collect();
        let recovering = recovering(history, &own, end);
        let incomplete = history.incomplete();
        let mut ledger = Ledger::default();
        for (cluster, process) in ranks(history).filter(|(_, it)| !incomplete.contains(it)) {
            let window = window(history, cluster, end);
            let others = recovering.iter().filter(|(.., only)| *only != Some(process));
            let others = others.map(|&(from, upto, _)| (from, upto, Condition::OthersRecover));
            let paused = returns.pauses().stretches().map(|(from, upto)| (from, upto, Condition::Paused));
            let stretches = own[&process].stretches(history, process, window);
            let time = divide(window, stretches.into_iter().chain(others).chain(paused));
            ledger.processes.push(ProcessTime { process, cluster, window, time });
        }
        ledger.phases = own.into_iter().map(|(process, own)| (process, own.phases)).collect();
        ledger
    }

    /// Returns the time of the processes of a cluster.
    pub fn cluster(&self, cluster: ClusterId) -> TimeByPart {
        let of_it = self.processes.iter().filter(|it| it.cluster == cluster);
        of_it.fold(TimeByPart::default(), |sum, it| sum + it.time)
    }

    /// Returns the time of all processes.
    pub fn total(&self) -> TimeByPart {
        self.processes.iter().fold(TimeByPart::default(), |sum, it| sum + it.time)
    }
}

fn ranks<'h>(history: &'h History<'_>) -> impl Iterator<Item = (ClusterId, ProcessId)> + 'h {
    let clusters = (0..).map(ClusterId).zip(&history.context.clusters);
    clusters.flat_map(|(cluster, members)| members.iter().map(move |it| (cluster, *it)))
}

fn window(history: &History<'_>, cluster: ClusterId, end: Time) -> Period {
    let of = |changes: &[(Time, ClusterId)]| changes.iter().find(|it| it.1 == cluster).map(|it| it.0);
    let supervision = &history.supervision;
    let begun = of(&supervision.joined).or(supervision.begun).unwrap_or_default();
    (begun, of(&supervision.left).unwrap_or(end).max(begun))
}

/// What the ledger reads from the facts about one process.
struct Own {
    /// Phases of recoveries, and re-executions.
    phases: Vec<Stretch>,
    undone: Vec<Undone>,
    fate: Fate,
}

impl Own {
    fn of(
        history: &History<'_>,
        process: ProcessId,
        returns: Vec<Return>,
        lost: Vec<Undone>,
        end: Time,
    ) -> Own {
        let mut phases = down(history, process, end);
        phases.extend(restoring(history, process, &returns, end));
        phases.extend(reexecuting(history, process, &returns, end));
        let restored: Vec<_> = returns.iter().filter_map(|it| Some(it.image?.position())).collect();
        let undone: Vec<Undone> = returns.into_iter().flat_map(|it| it.undone).chain(lost).collect();
        let fate = Fate::new(undone.iter(), restored.into_iter());
        Own { phases, undone, fate }
    }

    fn stretches(&self, history: &History<'_>, process: ProcessId, window: Period) -> Vec<Stretch> {
        let activity = Activity::of(process, history.trace, window.0, &self.fate);
        let of = |periods: Vec<Period>, condition| {
            periods.into_iter().map(move |(from, upto)| (from, upto, condition))
        };
        let undone = self.undone.iter().map(|it| (it.began, it.ended)).collect();
        let finished = activity.finished.map(|at| (at, window.1)).into_iter().collect();
        let mut all = self.phases.clone();
        all.extend(of(undone, Condition::Undone));
        all.extend(of(activity.undone, Condition::UndoneComputation));
        all.extend(of(activity.working, Condition::Working));
        all.extend(of(activity.rerunning, Condition::Rerunning));
        all.extend(of(activity.frozen, Condition::Frozen));
        all.extend(of(finished, Condition::Finished));
        all
    }
}

/// Returns the time at which a life ended: when the supervisor ended it or, if it ended by itself, its last fact.
fn end_of(history: &History<'_>, process: ProcessId, life: Life) -> Option<Time> {
    let end = history.supervision.end_of(process, life)?;
    let last = instant(history.trace, process, (life, usize::MAX));
    Some(if end.is_ordered { end.at } else { last.min(end.at) })
}

/// Returns the periods in which no life of a process ran.
fn down(history: &History<'_>, process: ProcessId, end: Time) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    for it in history.supervision.ends.iter().filter(|it| it.process == process) {
        let ended = end_of(history, process, it.life).unwrap_or(it.at);
        let restarted = it.restarted.unwrap_or(end);
        let detected = it.detected.unwrap_or(restarted).min(restarted);
        stretches.push((ended, detected, Condition::Detecting));
        stretches.push((detected, restarted, Condition::Replacing));
    }
    stretches
}

/// Returns the periods in which a process restored a state, and those from a restore until the process resumed.
fn restoring(history: &History<'_>, process: ProcessId, returns: &[Return], end: Time) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    // Lives that follow a failure, with the times at which they started.
    let started = history.supervision.ends.iter().filter(|it| it.process == process);
    let started: BTreeMap<Life, Time> =
        started.filter_map(|it| Some((it.life.next(), it.restarted?))).collect();
    for (life, at) in &started {
        if returns.iter().all(|it| it.at.0 != *life) {
            let ended = end_of(history, process, *life).unwrap_or(end);
            stretches.push((*at, ended, Condition::Restoring));
        }
    }
    for (place, it) in returns.iter().enumerate() {
        let (life, number) = it.at;
        let Some(stream) = history.trace.streams.get(&(process, life)) else { continue };
        let before = place.checked_sub(1).map(|it| returns[it].at).filter(|it| it.0 == life);
        let since = before.map_or(0, |it| it.1 + 1);
        let restored = instant(history.trace, process, it.at);
        let began = match started.get(&life).filter(|_| before.is_none()) {
            Some(at) => *at,
            None => entered(&stream[since..number]).unwrap_or(restored),
        };
        stretches.push((began, restored, Condition::Restoring));
        stretches.extend(resumed(stream, number).map(|at| (restored, at, Condition::Rejoining)));
    }
    stretches
}

/// Returns the time at which a process last entered a recovery round or, if it reports none, stopped for the recovery.
fn entered(facts: &[(Time, Fact)]) -> Option<Time> {
    let enters =
        |fact: &Fact| matches!(fact, Fact::Claim(it) if matches!(**it, Claim::RecoveryStarted { .. }));
    let last = |is: &dyn Fn(&Fact) -> bool| facts.iter().rfind(|(_, fact)| is(fact)).map(|(at, _)| *at);
    last(&enters).or_else(|| last(&|fact| *fact == Fact::Held))
}

/// Returns the time at which a process resumed after the restore that is this fact.
fn resumed(stream: &Stream, restored: usize) -> Option<Time> {
    let after = stream[restored + 1..].iter().take_while(|(_, fact)| !matches!(fact, Fact::Restored(_)));
    let resumes = |fact: &Fact| matches!(fact, Fact::Claim(it) if matches!(**it, Claim::RolledBack { .. }));
    after.into_iter().find(|(_, fact)| resumes(fact)).map(|(at, _)| *at)
}

/// Returns the periods in which a process re-executed what rollbacks had undone: from the restore until it had reported
/// as many computations, tasks and deliveries as before.
fn reexecuting(history: &History<'_>, process: ProcessId, returns: &[Return], end: Time) -> Vec<Stretch> {
    let progresses =
        |fact: &Fact| matches!(fact, Fact::Computed { .. } | Fact::Ran { .. } | Fact::Delivered(_));
    let (mut stretches, mut owed) = (Vec::new(), 0);
    for (place, it) in returns.iter().enumerate() {
        let (life, number) = it.at;
        let Some(stream) = history.trace.streams.get(&(process, life)) else { continue };
        let undone = it.undone.iter().flat_map(|stretch| stretch.facts(history.trace, process));
        owed += undone.filter(|(_, fact)| progresses(fact)).count();
        if owed == 0 {
            continue;
        }
        let next = returns.get(place + 1).map(|it| it.at).filter(|it| it.0 == life);
        let facts = &stream[number + 1..next.map_or(stream.len(), |it| it.1)];
        let mut redone = facts.iter().filter(|(_, fact)| progresses(fact));
        let caught_up = redone.nth(owed - 1).map(|(at, _)| *at);
        if caught_up.is_none() {
            owed -= facts.iter().filter(|(_, fact)| progresses(fact)).count();
        } else {
            owed = 0;
        }
        let stopped = next.map(|it| instant(history.trace, process, it));
        let stopped = stopped.or_else(|| end_of(history, process, life)).unwrap_or(end);
        let restored = instant(history.trace, process, it.at);
        stretches.push((restored, caught_up.unwrap_or(stopped), Condition::Reexecuting));
    }
    stretches
}

/// Returns the periods in which any process recovers or re-executes, in order, each with that process if it is the only
/// one.
fn recovering(
    history: &History<'_>,
    own: &BTreeMap<ProcessId, Own>,
    end: Time,
) -> Vec<(Time, Time, Option<ProcessId>)> {
    let of_ranks = own.iter().flat_map(|(process, own)| own.phases.iter().map(|it| (*process, *it)));
    let others = history.supervision.ends.iter().map(|it| it.process).filter(|it| !own.contains_key(it));
    let others: BTreeSet<ProcessId> = others.collect();
    let of_others = others
        .iter()
        .flat_map(|&process| down(history, process, end).into_iter().map(move |it| (process, it)));
    let mut turns: Vec<(Time, ProcessId, bool)> = of_ranks
        .chain(of_others)
        .filter(|(_, (from, upto, _))| from < upto)
        .flat_map(|(process, (from, upto, _))| [(from, process, true), (upto, process, false)])
        .collect();
    turns.sort_unstable();
    let mut open: BTreeMap<ProcessId, u32> = BTreeMap::new();
    let mut periods: Vec<(Time, Time, Option<ProcessId>)> = Vec::new();
    let mut since = Time::ZERO;
    for (at, process, begins) in turns {
        if since < at && !open.is_empty() {
            let only = open.keys().next().copied().filter(|_| open.len() == 1);
            match periods.last_mut().filter(|it| it.1 == since && it.2 == only) {
                Some(last) => last.1 = at,
                None => periods.push((since, at, only)),
            }
        }
        since = at;
        let count = open.entry(process).or_default();
        if begins {
            *count += 1;
        } else {
            *count -= 1;
            if *count == 0 {
                open.remove(&process);
            }
        }
    }
    periods
}

/// Divides a window among the parts.
fn divide(window: Period, stretches: impl Iterator<Item = Stretch>) -> TimeByPart {
    let (from, upto) = window;
    let mut turns: Vec<(Time, Condition, bool)> = Vec::new();
    for (begin, end, condition) in stretches {
        let (begin, end) = (begin.max(from), end.min(upto));
        if begin < end {
            turns.extend([(begin, condition, true), (end, condition, false)]);
        }
    }
    turns.sort_unstable();
    let mut time = TimeByPart::default();
    let mut open = [0_u32; CONDITIONS];
    let mut since = from;
    for (at, condition, begins) in turns {
        time.count(part(&open), at.since(since));
        let count = &mut open[condition as usize];
        *count = if begins { *count + 1 } else { *count - 1 };
        since = at;
    }
    time.count(part(&open), upto.since(since));
    time
}

/// Returns the part to which a moment belongs at which these conditions hold.
fn part(open: &[u32; CONDITIONS]) -> TimePart {
    let holds = |condition: Condition| open[condition as usize] > 0;
    let computes =
        [Condition::Working, Condition::UndoneComputation, Condition::Rerunning].into_iter().any(holds);
    let is_stalled = holds(Condition::OthersRecover) && !holds(Condition::Reexecuting);
    let first = [
        (holds(Condition::Paused), TimePart::Paused),
        (holds(Condition::Detecting), TimePart::Detecting),
        (holds(Condition::Replacing), TimePart::Replacing),
        (holds(Condition::Frozen) && !computes, TimePart::Frozen),
        (holds(Condition::Undone) || holds(Condition::UndoneComputation), TimePart::Undone),
        (holds(Condition::Restoring), TimePart::Restoring),
        (holds(Condition::Rejoining), TimePart::Rejoining),
        (holds(Condition::Working), TimePart::Working),
        (holds(Condition::Rerunning), TimePart::Rerunning),
        (holds(Condition::Finished), TimePart::Finished),
        (is_stalled, TimePart::Stalled),
    ];
    first.into_iter().find(|(applies, _)| *applies).map_or(TimePart::Waiting, |(_, part)| part)
}

#[cfg(test)]
mod tests {
    use faultline_core::{FactNo, Incarnation};

    use super::*;
    use crate::testing::{Run, p};

    const SECOND: Span = Span::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn seconds(time: &TimeByPart) -> Vec<(&'static str, u64)> {
        let parts = TimePart::ALL.into_iter().filter(|it| time.of(*it) > Span::ZERO);
        parts.map(|it| (it.name(), time.of(it).0 / 1_000_000_000)).collect()
    }

    #[test]
    fn every_moment_counts_once_for_the_first_part_that_applies() {
        let stretches = [
            (at(2), at(5), Condition::Undone),
            // The checkpoint survives, although the work before and after it is undone.
            (at(4), at(6), Condition::Frozen),
            (at(5), at(7), Condition::Detecting),
            (at(7), at(9), Condition::Restoring),
            (at(8), at(10), Condition::Rejoining),
            // The computation ends after the process was frozen.
            (at(12), at(14), Condition::Working),
            (at(13), at(15), Condition::Frozen),
            (at(10), at(13), Condition::OthersRecover),
            (at(16), at(20), Condition::Finished),
            // Longer than the window, as for a process that never returned.
            (at(18), at(99), Condition::Replacing),
        ];
        let time = divide((at(1), at(20)), stretches.into_iter());
        let expected = [
            ("working", 2),
            ("waiting", 2),
            ("stalled", 2),
            ("undone", 2),
            ("frozen", 2),
            ("detecting", 2),
            ("replacing", 2),
            ("restoring", 2),
            ("rejoining", 1),
            ("finished", 2),
        ];
        assert_eq!(seconds(&time), expected);
        assert_eq!(time.total(), SECOND * 19);
        assert_eq!(time.ettr(), Some(4.0 / 17.0));
    }

    #[test]
    fn a_freeze_during_a_computation_is_part_of_the_computation() {
        let during = |computation| {
            let stretches = [(at(0), at(3), Condition::Frozen), (at(0), at(2), computation)];
            seconds(&divide((at(0), at(3)), stretches.into_iter()))
        };
        assert_eq!(during(Condition::Working), [("working", 2), ("frozen", 1)]);
        assert_eq!(during(Condition::UndoneComputation), [("undone", 2), ("frozen", 1)]);
        assert_eq!(during(Condition::Undone), [("frozen", 3)]);
    }

    /// p1 fails; p0 stops, waits for it, and restores the same checkpoint. p2 belongs to another cluster.
    #[test]
    fn survivors_stall_while_a_process_is_replaced() {
        let mut run = Run::new(&[&[0, 1], &[2]]);
        run.supervisor(Fact::Begun);
        run.commit_all(0, &[0, 1]);
        let computed = |run: &mut Run, process| {
            let facts = run.witness(process).upto;
            run.wait(SECOND * 3);
            run.state(process, Fact::Computed { since: FactNo(facts.0) });
        };
        computed(&mut run, 0);
        run.supervisor(Fact::Failed {
            process: p(1),
            life: Life(1),
            storage: faultline_core::StorageFate::Kept,
            by: faultline_core::EndedBy::Silence,
        });
        run.wait(SECOND * 2);
        run.supervisor(Fact::Detected { process: p(1), life: Life(1) });
        run.state(0, Fact::Held);
        run.wait(SECOND * 4);
        let boot = faultline_core::Boot::Restarted;
        run.supervisor(Fact::LifeStarted { process: p(1), life: Life(2), boot });
        run.next_life(1);
        run.claim(0, Claim::RecoveryStarted { lives: 3, round: 0 });
        run.wait(SECOND);
        for process in [0, 1] {
            run.restore(process, 1, Some((0, 1)));
        }
        computed(&mut run, 0);
        run.supervisor(Fact::Completed);
        let history = run.history();
        let ledger = Ledger::of(&history);
        let of = |process: usize| seconds(&ledger.processes[process].time);
        assert_eq!(of(0), [("working", 3), ("stalled", 4), ("undone", 5), ("restoring", 1)]);
        let failed = [("stalled", 3), ("undone", 3), ("detecting", 2), ("replacing", 4), ("restoring", 1)];
        assert_eq!(of(1), failed);
        assert_eq!(of(2), [("waiting", 3), ("stalled", 10)], "until p0 has computed again what it lost");
        assert!(ledger.processes.iter().all(|it| it.time.total() == SECOND * 13));
        assert_eq!(ledger.total().total(), SECOND * 39);
    }

    #[test]
    fn an_undone_computation_is_not_owed_twice() {
        let mut run = Run::new(&[&[0]]);
        run.supervisor(Fact::Begun);
        run.commit_all(0, &[0]);
        for _ in 0..2 {
            run.wait(SECOND);
            run.state(0, Fact::Computed { since: FactNo(0) });
        }
        for incarnation in [1, 2] {
            run.state(0, Fact::Held);
            run.restore(0, incarnation, Some((0, 1)));
            run.wait(SECOND);
            run.state(0, Fact::Computed { since: FactNo(0) });
        }
        run.wait(SECOND);
        run.state(0, Fact::Computed { since: FactNo(0) });
        run.wait(SECOND * 5);
        run.supervisor(Fact::Completed);
        let history = run.history();
        let returns = Returns::new(&history).of(p(0));
        assert_eq!(returns.iter().map(|it| it.incarnation).collect::<Vec<_>>(), [1, 2].map(Incarnation));
        let periods: Vec<_> = reexecuting(&history, p(0), &returns, history.end());
        assert_eq!(periods.last().map(|(from, upto, _)| upto.since(*from)), Some(SECOND * 2));
    }
}
