//! Computes the cost of one run from its history.

use std::collections::BTreeSet;

use faultline_core::{Claim, ClusterId, Fact, ProcessId, TaskId, TheftStep, Time};
use faultline_history::outages::outages;
use faultline_history::recoveries::Recoveries;
use faultline_history::{History, Ledger, Outage};
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

impl Costs {
    /// Computes the cost of a run, timed by the clocks of its processes.
    pub(crate) fn of(history: &History<'_>) -> Costs {
        Costs::with(history, &Ledger::of(history))
    }

    /// Works like [`Costs::of`], with the ledger of the run.
    pub(crate) fn with(history: &History<'_>, ledger: &Ledger) -> Costs {
        let supervision = &history.supervision;
        let seconds = |begun: Time| history.end().since(begun).as_secs_f64();
        let without_effect: BTreeSet<_> = supervision.ineffective.iter().map(|it| it.0).collect();
        let injected: BTreeSet<_> = supervision.injected.iter().map(|it| it.0).collect();
        let mut costs = Costs {
            seconds: supervision.begun.map_or(0.0, seconds),
            faults: injected.difference(&without_effect).count(),
            tasks: TaskCosts::of(history),
            outages: outages(history, ledger),
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

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Fault, FaultNo};
    use faultline_history::testing::Run;

    fn costs(run: &Run) -> Costs {
        Costs::of(&run.history())
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
            let fault = Box::new(Fault::crash(ProcessId(0)));
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
}
