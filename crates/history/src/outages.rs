//! Outages: the times in which processes failed and recovered, with what each of them cost.

use std::collections::BTreeSet;

use faultline_core::{Claim, ProcessId, Span, Time};
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::ledger::{Condition, Ledger};
use crate::lost::{Returns, instant};

/// The time from a failure until all processes have resumed, including further failures in that time and all
/// rollbacks that follow. Times are in seconds, by the clocks of the processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outage {
    /// The time of the first failure, since the start of the application.
    pub at_seconds: f64,
    /// The numbers of the planned faults that caused failures.
    pub faults: Vec<u32>,
    /// The number of failed processes.
    pub failed: usize,
    /// The number of processes that rolled back.
    pub rolled_back: usize,
    /// The time until failures were detected: the longest of any process.
    pub detecting_seconds: f64,
    /// The time until failed processes had been restarted: the longest of any process.
    pub replacing_seconds: f64,
    /// The time until states had been restored: the longest of any process.
    pub restoring_seconds: f64,
    /// The time from the restored state until the process resumed: the longest of any process.
    pub rejoining_seconds: f64,
    /// The time from the end of the outage until every process had re-executed what it had lost, or failed again.
    pub catch_up_seconds: f64,
    /// Lost work, summed over all processes.
    pub lost_work_seconds: f64,
    /// The time from the first failure until the last rolled-back process has resumed; absent if a process never
    /// resumed.
    pub recovery_seconds: Option<f64>,
}

/// An event that begins, continues or ends an outage. Events at the same instant are ordered as listed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A process failed. The number is that of the planned fault, if one caused the failure.
    Failed(ProcessId, Option<u32>),
    /// A process restored a state and thereby lost this work.
    Restored(ProcessId, Span),
    /// Another process took over the work of a process that failed permanently. This much of the work was lost.
    Takeover(ProcessId, Span),
    /// A process resumed.
    Resumed(ProcessId),
}

/// An outage that may be in progress.
#[derive(Clone, Debug)]
struct OngoingOutage {
    at: Time,
    faults: BTreeSet<u32>,
    failed: BTreeSet<ProcessId>,
    rolled_back: BTreeSet<ProcessId>,
    /// Processes that have not resumed yet.
    awaited: BTreeSet<ProcessId>,
    lost: Span,
    resumed_at: Time,
}

impl OngoingOutage {
    fn new(at: Time) -> OngoingOutage {
        let (faults, failed, rolled_back, awaited) = Default::default();
        OngoingOutage { at, faults, failed, rolled_back, awaited, lost: Span::ZERO, resumed_at: at }
    }

    fn advance(&mut self, at: Time, step: Step) {
        match step {
            Step::Failed(process, fault) => {
                self.faults.extend(fault);
                self.failed.insert(process);
                self.awaited.insert(process);
            }
            Step::Restored(process, lost) => {
                self.lost = self.lost + lost;
                self.rolled_back.insert(process);
                self.awaited.insert(process);
            }
            Step::Takeover(of, lost) => {
                if self.awaited.remove(&of) {
                    self.lost = self.lost + lost;
                    self.resumed_at = at;
                }
            }
            Step::Resumed(process) => {
                self.awaited.remove(&process);
                self.resumed_at = at;
            }
        }
    }

    /// Returns the outage, with its phases. `upto` is the time of the next failure after it, or the end of the run.
    fn close(self, history: &History<'_>, ledger: &Ledger, upto: Time) -> Outage {
        let has_ended = self.awaited.is_empty();
        let ended = if has_ended { self.resumed_at } else { upto };
        // Phases of the outage begin within it.
        let of = |stretches: &[(Time, Time, Condition)], condition: Condition| {
            let phases = stretches.iter().filter(|it| it.2 == condition && self.at <= it.0 && it.0 <= ended);
            phases.fold(Span::ZERO, |sum, (from, upto, _)| sum + upto.since(*from))
        };
        let longest = |condition: Condition| {
            let each = ledger.phases.values().map(|it| of(it, condition));
            each.max().unwrap_or_default().as_secs_f64()
        };
        let reexecuted = ledger.phases.values().flatten();
        let reexecuted = reexecuted
            .filter(|it| it.2 == Condition::Reexecuting && self.at <= it.0 && it.0 <= ended)
            .map(|it| it.1)
            .max();
        Outage {
            at_seconds: self.at.since(history.supervision.begun.unwrap_or_default()).as_secs_f64(),
            faults: self.faults.into_iter().collect(),
            failed: self.failed.len(),
            rolled_back: self.rolled_back.len(),
            detecting_seconds: longest(Condition::Detecting),
            replacing_seconds: longest(Condition::Replacing),
            restoring_seconds: longest(Condition::Restoring),
            rejoining_seconds: longest(Condition::Rejoining),
            catch_up_seconds: reexecuted.map_or(0.0, |it| it.max(ended).since(ended).as_secs_f64()),
            lost_work_seconds: self.lost.as_secs_f64(),
            recovery_seconds: has_ended.then(|| self.resumed_at.since(self.at).as_secs_f64()),
        }
    }
}

/// Returns the outages in the order of their first failures, with the lost work as defined in [`crate::lost`].
pub fn outages(history: &History<'_>, ledger: &Ledger) -> Vec<Outage> {
    let mut ongoing: Vec<OngoingOutage> = Vec::new();
    for (at, step) in steps(history) {
        let is_over = ongoing.last().is_none_or(|it| it.awaited.is_empty());
        if matches!(step, Step::Failed(..)) && is_over {
            ongoing.push(OngoingOutage::new(at));
        }
        if let Some(outage) = ongoing.last_mut() {
            outage.advance(at, step);
        }
    }
    let next: Vec<Time> = ongoing.iter().skip(1).map(|it| it.at).chain([history.end()]).collect();
    ongoing.into_iter().zip(next).map(|(it, upto)| it.close(history, ledger, upto)).collect()
}

fn steps(history: &History<'_>) -> Vec<(Time, Step)> {
    let is_rank = |process: ProcessId| history.member(process).is_some();
    let mut steps = Vec::new();
    // The failure of a process that is not a rank undoes no work by itself.
    let failed = history.supervision.ends.iter().filter(|it| it.is_ordered && is_rank(it.process));
    steps.extend(failed.map(|it| {
        let fault = it.by.and_then(|by| by.fault()).map(|no| no.0);
        (it.at, Step::Failed(it.process, fault))
    }));
    if steps.is_empty() {
        return steps;
    }
    let returns = Returns::new(history);
    for process in history.groups.iter().flat_map(|it| &it.members).copied() {
        let all = returns.of(process).into_iter();
        steps.extend(
            all.map(|it| (instant(history.trace, process, it.at), Step::Restored(process, it.lost()))),
        );
    }
    for it in returns.successions() {
        steps.extend(it.at.map(|at| (at, Step::Takeover(it.of, it.lost()))));
    }
    for claimed in history.claims.iter().filter(|it| matches!(it.claim, Claim::RolledBack { .. })) {
        let process = history.segment(claimed.at.segment).host;
        if is_rank(process) {
            steps.push((claimed.time, Step::Resumed(process)));
        }
    }
    steps.sort();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Run;
    use crate::testing::tasks::TaskRun;
    use faultline_core::Fact;

    const SECOND: Span = Span::from_secs(1);

    fn of(run: &Run) -> Vec<Outage> {
        let history = run.history();
        outages(&history, &Ledger::of(&history))
    }

    #[test]
    fn an_outage_ends_when_all_processes_have_resumed() {
        let mut run = Run::new(&[&[0, 1], &[2, 3]]);
        run.supervisor(Fact::Begun);
        run.commit_all(0, &[0, 1]);
        for it in [0, 1] {
            run.send(it, 1 - it);
        }
        run.wait(SECOND * 5);
        run.kill(0, false);
        run.wait(SECOND);
        run.kill(1, false);
        run.wait(SECOND * 2);
        run.restore(0, 1, Some((0, 1)));
        run.wait(SECOND);
        // The first process fails again before the other one has resumed.
        run.kill(0, false);
        run.wait(SECOND);
        run.restore(0, 2, Some((0, 1)));
        run.wait(SECOND);
        run.restore(1, 2, Some((0, 1)));
        run.wait(SECOND);
        run.kill(2, false);
        run.wait(SECOND * 10);
        run.supervisor(Fact::Completed);
        let [first, second] = &of(&run)[..] else { panic!("two outages") };
        assert_eq!((first.failed, first.rolled_back, first.recovery_seconds), (2, 2, Some(6.0)));
        assert_eq!(first.lost_work_seconds, 5.0 + 6.0, "the second life of the first process did no work");
        assert_eq!(first.restoring_seconds, 5.0, "the second process; the first one needed 3 s and 1 s");
        assert_eq!((second.failed, second.rolled_back, second.recovery_seconds), (1, 0, None));
        assert_eq!((second.at_seconds, second.restoring_seconds), (12.0, 10.0));
    }

    #[test]
    fn an_outage_ends_when_another_process_takes_over_the_work() {
        let mut run = TaskRun::new(2);
        run.0.supervisor(Fact::Begun);
        let spawned = run.begin(0, 2);
        let saved = run.save(0, 1);
        run.ran(0, spawned[0], 0);
        run.0.wait(SECOND * 5);
        run.lose_permanently(0);
        run.0.wait(SECOND * 2);
        run.absorb(1, 0, Some(saved));
        let [outage] = &of(&run.0)[..] else { panic!("one outage") };
        assert_eq!((outage.failed, outage.rolled_back, &outage.faults[..]), (1, 0, &[0][..]));
        // Each fact of such a run takes a millisecond.
        assert!(outage.recovery_seconds.is_some_and(|it| (it - 2.0).abs() < 0.01), "{outage:?}");
        assert!((outage.lost_work_seconds - 5.0).abs() < 0.01, "{outage:?}");
    }

    #[test]
    fn a_restore_to_the_initial_state_loses_all_work_and_a_second_one_nothing_more() {
        let mut run = Run::new(&[&[0]]);
        run.supervisor(Fact::Begun);
        run.send(0, 0);
        run.wait(SECOND * 7);
        run.kill(0, false);
        for incarnation in [1, 2] {
            run.wait(SECOND);
            run.restore(0, incarnation, None);
        }
        assert_eq!(of(&run)[0].lost_work_seconds, 7.0);
    }
}
