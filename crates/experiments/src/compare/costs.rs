//! Computes the cost of one run from its history.

use std::collections::BTreeSet;

use faultline_core::{Claim, ClusterId, Fact, ProcessId, Span, TaskId, TheftStep, Time};
use faultline_history::History;
use faultline_history::lost::{Returns, instant};
use faultline_history::recoveries::Recoveries;
use serde::{Deserialize, Serialize};

/// The cost of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Costs {
    /// Seconds from the start of the application to the end of the run.
    pub seconds: f64,
    /// The number of checkpoints committed, summed over all ranks, excluding the initial checkpoint.
    pub checkpoints: u64,
    /// The number of forced checkpoints, which `checkpoints` includes.
    pub forced: u64,
    /// Bytes of application state passed to storage, including replicas.
    pub checkpoint_bytes: u64,
    /// The number of messages that the application sent.
    pub messages: u64,
    /// Bytes of content of all messages that the application sent.
    pub sent_bytes: u64,
    /// Bytes of content sent from one cluster to another.
    pub between_bytes: u64,
    /// Bytes of content of logged messages that were moved from the memory of their senders to storage.
    pub spilled_bytes: u64,
    /// Costs of a task-based program; absent if processes exchange messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCosts>,
    /// The number of faults that took effect.
    pub faults: usize,
    /// Outages in the order of their first failures.
    pub outages: Vec<Outage>,
}

/// The cost of a run of a task-based program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskCosts {
    /// The number of different tasks that were run.
    pub tasks: u64,
    /// The number of executions beyond the first of each task, in processes that failed and in those that did not.
    pub again: u64,
    /// The total duration of these repeated executions, in seconds.
    pub again_seconds: f64,
    /// The number of stolen tasks whose results were used.
    pub thefts: u64,
    /// The number of tasks that surviving processes re-executed because others had failed. Included in `again`.
    pub rerun: u64,
    /// The number of tasks that the surviving processes would have re-executed after a global rollback.
    pub global: u64,
    /// The number of processes that did not fail, summed over all recoveries.
    pub live: u64,
    /// The number of processes that neither failed nor re-executed anything, summed over all recoveries.
    pub idle: u64,
    /// The number of messages sent to coordinate checkpoints.
    pub coordination: u64,
    /// The number of checkpoints that processes coordinated by messages.
    pub coordinated: u64,
}

/// The time from a failure until all processes have resumed, including further failures in that time and all
/// rollbacks that follow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outage {
    /// The number of failed processes.
    pub failed: usize,
    /// The number of processes that rolled back.
    pub rolled_back: usize,
    /// Lost work in seconds, summed over all processes.
    pub lost_seconds: f64,
    /// Seconds from the first failure until the last rolled-back process has resumed; absent if a process never
    /// resumed.
    pub recovery_seconds: Option<f64>,
}

impl Costs {
    /// Computes the cost of a run, timed by the clocks of its processes.
    pub(crate) fn of(history: &History<'_>) -> Costs {
        let supervision = &history.supervision;
        let last = history.trace.streams.values().filter_map(|it| it.last()).map(|(at, _)| *at).max();
        let seconds = |begun: Time| last.unwrap_or(begun).since(begun).as_secs_f64();
        let without_effect: BTreeSet<_> = supervision.ineffective.iter().map(|it| it.0).collect();
        let injected: BTreeSet<_> = supervision.injected.iter().map(|it| it.0).collect();
        let mut costs = Costs {
            seconds: supervision.begun.map_or(0.0, seconds),
            faults: injected.difference(&without_effect).count(),
            tasks: TaskCosts::of(history),
            outages: outages(history),
            ..Costs::default()
        };
        for claimed in
            history.claims.iter().filter(|it| is_rank(history, history.segment(it.at.segment).host))
        {
            match *claimed.claim {
                Claim::Committed { position, forced, .. } if position.sn.0 > 1 => {
                    costs.checkpoints += 1;
                    costs.forced += u64::from(forced);
                }
                Claim::Spilled { bytes, .. } => costs.spilled_bytes += bytes,
                _ => {}
            }
        }
        let saved = history.witnessed.iter();
        costs.checkpoint_bytes =
            saved.filter(|it| is_rank(history, history.segment(it.at.segment).host)).map(|it| it.bytes).sum();
        costs.add_traffic(history);
        costs
    }

    /// Adds the messages that the application sent, including those that it sent again in a re-execution.
    fn add_traffic(&mut self, history: &History<'_>) {
        let mut cluster_of = vec![ClusterId::OUTSIDE; history.processes.len()];
        for (cluster, members) in (0..).map(ClusterId).zip(&history.context.clusters) {
            members.iter().for_each(|it| cluster_of[it.index()] = cluster);
        }
        let cluster = |it: ProcessId| cluster_of.get(it.index());
        let ranks = history.trace.streams.iter().filter(|((process, _), _)| is_rank(history, *process));
        for (_, fact) in ranks.flat_map(|(_, stream)| stream) {
            let Fact::Sent { id, bytes } = fact else { continue };
            let bytes = u64::from(*bytes);
            self.messages += 1;
            self.sent_bytes += bytes;
            self.between_bytes += if cluster(id.from) == cluster(id.to) { 0 } else { bytes };
        }
    }
}

/// Returns whether a process runs the application.
fn is_rank(history: &History<'_>, process: ProcessId) -> bool {
    history.member(process).is_some()
}

impl TaskCosts {
    /// Returns the costs of a task-based program; `None` if processes exchange messages.
    fn of(history: &History<'_>) -> Option<TaskCosts> {
        if history.tasks.is_none() && history.planned.is_none() {
            return None;
        }
        let mut costs = TaskCosts::default();
        let mut runs: Vec<(Time, TaskId, u32)> = Vec::new();
        let ranks = history.trace.streams.iter().filter(|((process, _), _)| is_rank(history, *process));
        for (at, fact) in ranks.flat_map(|(_, stream)| stream) {
            match fact {
                Fact::Ran { task, cost_us, .. } => runs.push((*at, *task, *cost_us)),
                // The task is already part of the partition's state, so this is never its first execution.
                Fact::Rerun { cost_us, .. } => {
                    costs.again += 1;
                    costs.again_seconds += f64::from(*cost_us) / 1e6;
                }
                _ => {}
            }
        }
        runs.sort_by_key(|it| it.0);
        let mut ran = BTreeSet::new();
        for (_, task, cost_us) in runs {
            if ran.insert(task) {
                costs.tasks += 1;
            } else {
                costs.again += 1;
                costs.again_seconds += f64::from(cost_us) / 1e6;
            }
        }
        let steps = history.tasks.iter().flat_map(|it| it.thefts.values().flatten());
        costs.thefts = steps.filter(|it| it.step == TheftStep::Merged).count() as u64;
        if let Some(planned) = &history.planned {
            costs.coordination = planned.coordinated.values().map(|it| it.len() as u64).sum();
            costs.coordinated = planned.coordinated.len() as u64;
            for (_, it) in Recoveries::of(history).all() {
                costs.rerun += it.again;
                costs.global += it.since;
                costs.live += it.live.len() as u64;
                costs.idle += it.live.difference(&it.busy).count() as u64;
            }
        }
        Some(costs)
    }
}

/// An event that begins, continues or ends an outage. Events at the same instant are ordered as listed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A process failed.
    Failed(ProcessId),
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
    failed: BTreeSet<ProcessId>,
    rolled_back: BTreeSet<ProcessId>,
    /// Processes that have not resumed yet.
    awaited: BTreeSet<ProcessId>,
    lost: Span,
    resumed_at: Time,
}

/// Returns the outages, with the lost work as defined in [`faultline_history::lost`].
fn outages(history: &History<'_>) -> Vec<Outage> {
    let mut outages: Vec<OngoingOutage> = Vec::new();
    for (at, step) in steps(history) {
        if let Step::Failed(process) = step {
            if outages.last().is_none_or(|it| it.awaited.is_empty()) {
                let (failed, rolled_back, awaited) = Default::default();
                outages.push(OngoingOutage {
                    at,
                    failed,
                    rolled_back,
                    awaited,
                    lost: Span::ZERO,
                    resumed_at: at,
                });
            }
            let outage = outages.last_mut().expect("an outage is in progress");
            outage.failed.insert(process);
            outage.awaited.insert(process);
        }
        let Some(outage) = outages.last_mut() else { continue };
        match step {
            Step::Failed(_) => {}
            Step::Restored(process, lost) => {
                outage.lost = outage.lost + lost;
                outage.rolled_back.insert(process);
                outage.awaited.insert(process);
            }
            Step::Takeover(of, lost) => {
                if outage.awaited.remove(&of) {
                    outage.lost = outage.lost + lost;
                    outage.resumed_at = at;
                }
            }
            Step::Resumed(process) => {
                outage.awaited.remove(&process);
                outage.resumed_at = at;
            }
        }
    }
    let close = |it: OngoingOutage| Outage {
        failed: it.failed.len(),
        rolled_back: it.rolled_back.len(),
        lost_seconds: it.lost.as_secs_f64(),
        recovery_seconds: it.awaited.is_empty().then(|| it.resumed_at.since(it.at).as_secs_f64()),
    };
    outages.into_iter().map(close).collect()
}

fn steps(history: &History<'_>) -> Vec<(Time, Step)> {
    let mut steps = Vec::new();
    // The failure of a process that is not a rank undoes no work by itself.
    let failed = history.supervision.ends.iter().filter(|it| it.is_ordered && is_rank(history, it.process));
    steps.extend(failed.map(|it| (it.at, Step::Failed(it.process))));
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
        if is_rank(history, process) {
            steps.push((claimed.time, Step::Resumed(process)));
        }
    }
    steps.sort();
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Fault, FaultNo, StorageFate};
    use faultline_history::testing::Run;

    const SECOND: Span = Span::from_secs(1);

    fn costs(run: &Run) -> Costs {
        Costs::of(&run.history())
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
        let costs = costs(&run);
        let [first, second] = &costs.outages[..] else { panic!("{:?}", costs.outages) };
        assert_eq!((first.failed, first.rolled_back, first.recovery_seconds), (2, 2, Some(6.0)));
        assert_eq!(first.lost_seconds, 5.0 + 6.0, "the second life of the first process did no work");
        assert_eq!((second.failed, second.rolled_back, second.recovery_seconds), (1, 0, None));
        assert_eq!((costs.seconds, costs.messages), (22.0, 2));
    }

    #[test]
    fn an_outage_ends_when_another_process_takes_over_the_work() {
        use faultline_history::testing::tasks::TaskRun;
        let mut run = TaskRun::new(2);
        run.0.supervisor(Fact::Begun);
        let spawned = run.begin(0, 2);
        let saved = run.save(0, 1);
        run.ran(0, spawned[0], 0);
        run.0.wait(SECOND * 5);
        run.lose_permanently(0);
        run.0.wait(SECOND * 2);
        run.absorb(1, 0, Some(saved));
        let costs = costs(&run.0);
        let [outage] = &costs.outages[..] else { panic!("{:?}", costs.outages) };
        assert_eq!((outage.failed, outage.rolled_back), (1, 0));
        // Each fact of such a run takes a millisecond.
        assert!(outage.recovery_seconds.is_some_and(|it| (it - 2.0).abs() < 0.01), "{outage:?}");
        assert!((outage.lost_seconds - 5.0).abs() < 0.01, "{outage:?}");
    }

    #[test]
    fn tasks_that_run_again_are_counted_separately() {
        let mut run = faultline_history::testing::tasks::TaskRun::new(1);
        let first = run.begin(0, 1)[0];
        run.ran(0, first, 0);
        run.ran(0, first, 0);
        let expected = TaskCosts { tasks: 2, again: 1, again_seconds: 0.001, ..TaskCosts::default() };
        assert_eq!(costs(&run.0).tasks, Some(expected));
    }

    #[test]
    fn re_executions_by_processes_that_kept_their_states_count() {
        let mut run = faultline_history::testing::planned::Partitions::new(2);
        let slot = run.checkpoint(0, 1);
        run.executed(0, 1, &[], &[1]);
        run.executed(0, 2, &[], &[]);
        run.executed(1, 3, &[], &[]);
        run.0.kill(1, false);
        run.restored(1, 5, slot);
        run.joined(1, 5, slot);
        run.joined(0, 5, slot);
        run.rerun(0, 1, 1, 5);
        run.executed(1, 3, &[], &[]);
        let tasks = costs(&run.0).tasks.expect("the application is a task-based program");
        // Each partition has also executed a task before the checkpoint.
        assert_eq!((tasks.tasks, tasks.again, tasks.again_seconds), (5, 2, 0.002));
        assert_eq!((tasks.rerun, tasks.global), (1, 2));
    }

    #[test]
    fn only_faults_with_an_effect_count() {
        let mut run = Run::new(&[&[0]]);
        for no in [0, 1].map(FaultNo) {
            let fault =
                Box::new(Fault::Crash { process: ProcessId(0), storage: StorageFate::Kept, returns: true });
            run.supervisor(Fact::Injecting { no, fault });
        }
        run.supervisor(Fact::Ineffective { no: FaultNo(1), reason: "the process is down".into() });
        assert_eq!(costs(&run).faults, 1);
    }

    #[test]
    fn bytes_between_clusters_are_counted_separately() {
        let mut run = Run::new(&[&[0, 1], &[2, 3]]);
        run.send(0, 1);
        run.send(0, 2);
        let costs = costs(&run);
        assert_eq!((costs.messages, costs.sent_bytes, costs.between_bytes), (2, 16, 8));
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
        assert_eq!(costs(&run).outages[0].lost_seconds, 7.0);
    }
}
