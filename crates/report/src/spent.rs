//! How processes spent their time. Every moment of every process counts once, so the parts add up to the whole.
//!
//! A moment belongs to the first of these kinds that applies: paused, down, frozen for a checkpoint that survives, undone
//! by a later rollback or lost for good, recovering, working, finished. A surviving process works until it learns of the
//! failure: such work is undone, not recovery. A process works while its application computes or runs a task, which it
//! completes even if a checkpoint freezes the process in the meantime. In the remaining time, it waits for a message,
//! for a task to steal or for a value.

use std::ops::Add;

use faultline_core::{ClusterId, ProcessId, Span, Time};
use faultline_history::{Activity, Fate};
use faultline_trace::Trace;
use serde::{Deserialize, Serialize};

use crate::names::DisplayNames;
use crate::timeline::Timeline;

/// Time of processes in seconds, by activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeByActivity {
    /// Time in computations and tasks that no rollback undid.
    pub working_seconds: f64,
    /// Remaining time: the process waited for a message, for a task to steal or for a value.
    pub waiting_seconds: f64,
    /// Work that a rollback undid, or that was lost with a process that never returned.
    pub undone_seconds: f64,
    /// Time for which a committed checkpoint froze the process, excluding computations that completed in the meantime.
    pub frozen_seconds: f64,
    /// Time from the restart of a failed process, or from the start of the recovery of a surviving one, until it
    /// resumed.
    pub recovering_seconds: f64,
    /// Time from a failure until the restart.
    pub down_seconds: f64,
    /// Time for which the user paused the federation.
    pub paused_seconds: f64,
    /// Time after the application had finished.
    pub finished_seconds: f64,
}

/// Names of the activities, in order of precedence.
const KINDS: [&str; 7] = ["paused", "down", "frozen", "undone", "recovering", "working", "finished"];
const PAUSED: usize = 0;
const DOWN: usize = 1;
const FROZEN: usize = 2;
const UNDONE: usize = 3;
const RECOVERING: usize = 4;
const WORKING: usize = 5;
const FINISHED: usize = 6;
/// Computations that a rollback undid. Not a kind of its own: such a moment is undone.
const REPEATED: usize = 7;

impl TimeByActivity {
    /// Adds up the time of the processes of a cluster: from the start of the application or, if the cluster joined
    /// later, from that point, until the cluster left or the run ended. Omits processes whose facts are incomplete.
    pub fn of(
        cluster: ClusterId,
        timeline: &Timeline,
        trace: &Trace,
        names: &DisplayNames,
    ) -> TimeByActivity {
        let mut spent = TimeByActivity::default();
        for &process in names.processes(cluster).iter().filter(|it| !timeline.incomplete.contains(it)) {
            let window = window(cluster, timeline);
            let mut all = stretches(process, timeline, window);
            all.extend(active(&Activity::of(process, trace, window.0, &fate(process, timeline)), window));
            let [paused, down, frozen, undone, recovering, working, finished, waiting] = shares(window, &all);
            spent.paused_seconds += paused;
            spent.down_seconds += down;
            spent.recovering_seconds += recovering;
            spent.undone_seconds += undone;
            spent.frozen_seconds += frozen;
            spent.finished_seconds += finished;
            spent.working_seconds += working;
            spent.waiting_seconds += waiting;
        }
        spent
    }

    /// Returns the sum of all parts.
    pub fn total_seconds(&self) -> f64 {
        self.parts().iter().map(|(_, seconds)| seconds).sum()
    }

    /// Returns the parts with their names, in display order.
    pub fn parts(&self) -> [(&'static str, f64); 8] {
        [
            (KINDS[WORKING], self.working_seconds),
            ("waiting", self.waiting_seconds),
            (KINDS[UNDONE], self.undone_seconds),
            (KINDS[FROZEN], self.frozen_seconds),
            (KINDS[RECOVERING], self.recovering_seconds),
            (KINDS[DOWN], self.down_seconds),
            (KINDS[PAUSED], self.paused_seconds),
            (KINDS[FINISHED], self.finished_seconds),
        ]
    }
}

impl Add for TimeByActivity {
    type Output = TimeByActivity;

    fn add(self, other: TimeByActivity) -> TimeByActivity {
        TimeByActivity {
            working_seconds: self.working_seconds + other.working_seconds,
            waiting_seconds: self.waiting_seconds + other.waiting_seconds,
            undone_seconds: self.undone_seconds + other.undone_seconds,
            frozen_seconds: self.frozen_seconds + other.frozen_seconds,
            recovering_seconds: self.recovering_seconds + other.recovering_seconds,
            down_seconds: self.down_seconds + other.down_seconds,
            paused_seconds: self.paused_seconds + other.paused_seconds,
            finished_seconds: self.finished_seconds + other.finished_seconds,
        }
    }
}

type Stretch = (Time, Time, usize);

fn window(cluster: ClusterId, timeline: &Timeline) -> (Time, Time) {
    let of = |changes: &[(Time, ClusterId)]| changes.iter().find(|it| it.1 == cluster).map(|it| it.0);
    (of(&timeline.joined).unwrap_or(timeline.origin), of(&timeline.left).unwrap_or(timeline.end))
}

/// Returns the periods in which a process was paused, down or recovering, and those that were undone, in any order.
/// They may overlap.
fn stretches(process: ProcessId, timeline: &Timeline, window: (Time, Time)) -> Vec<Stretch> {
    let mut all: Vec<Stretch> =
        timeline.pauses.stretches().map(|(from, upto)| (from, upto, PAUSED)).collect();
    for failure in timeline.failures.iter().filter(|it| it.process == process) {
        all.push((failure.at, failure.restarted.unwrap_or(window.1), DOWN));
    }
    for rollback in &timeline.rollbacks {
        let Some(member) = rollback.members.get(&process) else { continue };
        let failures = rollback.failures.iter().map(|&it| &timeline.failures[it]);
        let restarted = failures.filter(|it| it.process == process).filter_map(|it| it.restarted).max();
        let from = restarted.unwrap_or(rollback.began).min(member.restored);
        all.push((from, member.resumed.unwrap_or(member.restored), RECOVERING));
    }
    let undone = timeline.undone.iter().filter(|it| it.process == process);
    all.extend(undone.map(|it| (it.stretch.began, it.stretch.ended, UNDONE)));
    let lost = timeline.lost_permanently.iter().filter(|(of, _)| *of == process);
    all.extend(lost.map(|(_, it)| (it.began, it.ended, UNDONE)));
    all
}

/// Returns what rollbacks did to the history of a process.
fn fate(process: ProcessId, timeline: &Timeline) -> Fate {
    let undone = timeline.undone.iter().filter(|it| it.process == process).map(|it| &it.stretch);
    let lost = timeline.lost_permanently.iter().filter(|(of, _)| *of == process).map(|(_, it)| it);
    let of_it = timeline.rollbacks.iter().filter(|it| it.members.contains_key(&process));
    Fate::new(undone.chain(lost), of_it.filter_map(|it| it.checkpoint))
}

/// Returns the periods of a process's own activities.
fn active(activity: &Activity, window: (Time, Time)) -> impl Iterator<Item = Stretch> {
    let working = activity.working.iter().map(|&(from, upto)| (from, upto, WORKING));
    let undone = activity.undone.iter().map(|&(from, upto)| (from, upto, REPEATED));
    let frozen = activity.frozen.iter().map(|&(from, upto)| (from, upto, FROZEN));
    let finished = activity.finished.map(|at| (at, window.1, FINISHED));
    working.chain(undone).chain(frozen).chain(finished)
}

/// Returns the seconds of each activity within the window, followed by the seconds without any activity.
fn shares(window: (Time, Time), stretches: &[Stretch]) -> [f64; KINDS.len() + 1] {
    let (from, upto) = window;
    let mut turns: Vec<(Time, usize, bool)> = Vec::with_capacity(2 * stretches.len());
    for &(begin, end, kind) in stretches {
        let (begin, end) = (begin.max(from), end.min(upto));
        if begin < end {
            turns.extend([(begin, kind, true), (end, kind, false)]);
        }
    }
    turns.sort_unstable();
    let mut spans = [Span::ZERO; KINDS.len() + 1];
    let mut open = [0_u32; KINDS.len() + 1];
    let mut since = from;
    let mut count = |open: &[u32], since: Time, until: Time| {
        let computes = open[WORKING] + open[REPEATED] > 0;
        let applies = |&kind: &usize| open[kind] > 0 && !(kind == FROZEN && computes);
        let kind = (0..=KINDS.len()).find(applies).unwrap_or(KINDS.len());
        let kind = if open[REPEATED] > 0 { kind.min(UNDONE) } else { kind };
        spans[kind] = spans[kind] + until.since(since);
    };
    for (at, kind, begins) in turns {
        count(&open, since, at);
        open[kind] = if begins { open[kind] + 1 } else { open[kind] - 1 };
        since = at;
    }
    if since < upto {
        count(&open, since, upto);
    }
    spans.map(|it| it.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    #[test]
    fn every_moment_counts_once_for_the_first_kind_that_applies() {
        let stretches = [
            (at(2), at(5), UNDONE),
            // The checkpoint survives, although the work before and after it is undone.
            (at(4), at(6), FROZEN),
            (at(5), at(7), DOWN),
            // A surviving process worked between the failure and its rollback.
            (at(2), at(3), RECOVERING),
            // Overlapping periods of the same kind.
            (at(7), at(9), RECOVERING),
            (at(8), at(10), RECOVERING),
            // Longer than the window, as for a process that never returned.
            (at(18), at(99), DOWN),
            (at(16), at(20), FINISHED),
            // The computation ends after the process was frozen.
            (at(12), at(14), WORKING),
            (at(13), at(15), FROZEN),
        ];
        let [paused, down, frozen, undone, recovering, working, finished, waiting] =
            shares((at(1), at(20)), &stretches);
        assert_eq!([paused, down, recovering, undone, working, frozen], [0.0, 4.0, 3.0, 2.0, 2.0, 2.0]);
        assert_eq!((finished, waiting), (2.0, 4.0));
        assert_eq!(paused + down + recovering + undone + working + frozen + finished + waiting, 19.0);
        assert_eq!(shares((at(1), at(4)), &[])[KINDS.len()], 3.0, "no activity");
    }

    #[test]
    fn a_process_waits_while_it_neither_works_nor_is_frozen_nor_has_finished() {
        let activity = Activity {
            working: vec![(at(0), at(2)), (at(4), at(7))],
            undone: vec![],
            frozen: vec![(at(6), at(8))],
            finished: Some(at(11)),
        };
        let window = (at(1), at(12));
        let all: Vec<Stretch> = active(&activity, window).collect();
        let shares = shares(window, &all);
        assert_eq!([WORKING, FROZEN, FINISHED, KINDS.len()].map(|it| shares[it]), [4.0, 1.0, 1.0, 5.0]);
    }
}
