//! Facts that no run of a federation can contain: they name processes or clusters that do not exist, report that more
//! tasks were spawned than fit in memory, or are in the stream of a process that never reports such facts. Code that uses
//! a record relies on these limits.

use faultline_core::fact::Flipped;
use faultline_core::fault::Change;
use faultline_core::{Claim, ClusterId, Fact, FactNo, Fault, PartitionClaim, ProcessId, Target};

use crate::Manifest;
use crate::describe::message_of;
use crate::memory::Stream;

/// The number of spawned tasks that a stream may report beyond one per fact. Each takes up memory until it has run.
const UNFINISHED_TASKS: u64 = 1 << 26;

/// The size of a run's federation, which limits the identities that its facts can contain.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The number of processes.
    pub processes: usize,
    /// The number of clusters.
    pub clusters: usize,
}

impl Extent {
    /// Returns the extent of a run with this manifest; without a manifest, every process and cluster counts as
    /// possible.
    pub(crate) fn new(manifest: Option<&Manifest>) -> Extent {
        Extent {
            processes: manifest.map_or(usize::MAX, |it| it.processes.len()),
            clusters: manifest.map_or(usize::MAX, |it| it.clusters.len()),
        }
    }

    /// Returns whether a stream can belong to this process.
    pub(crate) fn contains(self, process: ProcessId) -> bool {
        process == ProcessId::SUPERVISOR || process.index() < self.processes
    }

    /// Returns the number of the first impossible fact in a stream of this process.
    pub(crate) fn first_impossible(self, process: ProcessId, stream: &Stream) -> Option<FactNo> {
        self.first_impossible_since(process, stream, 0, &mut 0)
    }

    /// Works like [`Extent::first_impossible`] for a stream whose first `known` facts are possible, and report that
    /// `spawned` tasks were spawned. Adds the tasks of the other facts to `spawned`.
    pub(crate) fn first_impossible_since(
        self,
        process: ProcessId,
        stream: &Stream,
        known: usize,
        spawned: &mut u64,
    ) -> Option<FactNo> {
        let is_supervisor = process == ProcessId::SUPERVISOR;
        let mut numbered = (0_u64..).zip(stream).skip(known);
        let found = numbered.find(|(number, (_, fact))| {
            if let Fact::Ran { spawned: more, .. } = fact {
                *spawned += u64::from(*more);
            }
            let is_foreign = fact.kind().is_of_process() == is_supervisor;
            is_foreign || *spawned > UNFINISHED_TASKS + number || !self.allows(fact)
        });
        found.map(|(number, _)| FactNo(number))
    }

    /// Returns whether a process other than the supervisor can report this fact.
    pub fn allows_of_process(self, fact: &Fact) -> bool {
        fact.kind().is_of_process() && self.allows(fact)
    }

    /// Returns whether a link can have this cluster at one of its ends.
    pub fn has_cluster(self, cluster: ClusterId) -> bool {
        cluster == ClusterId::OUTSIDE || cluster.index() < self.clusters
    }

    /// Returns whether the target of a fault exists.
    pub(crate) fn allows_target(self, fault: &Fault) -> bool {
        let cluster = |it: &ClusterId| self.has_cluster(*it);
        match fault {
            Fault::Kill { target, .. } | Fault::Stop { target, .. } => match target {
                Target::Process(of) => self.contains(*of),
                Target::Cluster(of) | Target::Rack { cluster: of, .. } => cluster(of),
            },
            Fault::Impair { process: of, .. } => self.contains(*of),
            Fault::Link { from, to, .. } => cluster(from) && cluster(to),
            Fault::Partition { from, to, .. } => cluster(from) && to.iter().all(cluster),
            Fault::Split { cluster: of, nodes, .. } => {
                cluster(of) && nodes.iter().all(|it| self.contains(*it))
            }
        }
    }

    fn allows(self, fact: &Fact) -> bool {
        let process = |it: &ProcessId| self.contains(*it);
        let has_known_ends = |fact| message_of(fact).is_none_or(|it| process(&it.from) && process(&it.to));
        let cluster = |it: &ClusterId| self.has_cluster(*it);
        match fact {
            Fact::Saved(saved) => process(&saved.0.owner),
            Fact::Durable(name)
            | Fact::Removed(name)
            | Fact::Damaged(name)
            | Fact::Flipped(Flipped::Copy { name, .. }) => process(&name.owner),
            Fact::Restored(restored) => restored.0.is_none_or(|it| process(&it.owner)),
            Fact::Planned(planned) => process(&planned.partition),
            Fact::Rerun { by, .. } => process(by),
            Fact::CheckpointMessage { from, to, .. } => process(from) && process(to),
            Fact::Theft { theft, .. } => process(&theft.victim) && process(&theft.thief),
            Fact::Absorbed(absorbed) => {
                process(&absorbed.0) && absorbed.1.is_none_or(|it| process(&it.owner))
            }
            Fact::Ceded { partition, .. } => process(partition),
            Fact::Claim(claim) => match &**claim {
                Claim::Unrecoverable { missing, .. } => {
                    missing.iter().all(|(name, asked)| process(&name.owner) && asked.iter().all(process))
                }
                Claim::Released { cluster: of } => cluster(of),
                Claim::Broke(breakage) => process(&breakage.process),
                Claim::Partition(PartitionClaim::RecoveryJoined { partition, .. }) => process(partition),
                Claim::Partition(PartitionClaim::Drained { from, to, .. }) => process(from) && process(to),
                _ => has_known_ends(fact),
            },
            Fact::LifeStarted { process: of, .. }
            | Fact::Failed { process: of, .. }
            | Fact::Detected { process: of, .. }
            | Fact::Resumed { process: of, .. } => process(of),
            Fact::Injecting { fault, .. } => self.allows_target(fault),
            Fact::Changed(change) => match &**change {
                Change::Fault(planned) => self.allows_target(&planned.fault),
                Change::Link { from, to, .. } => cluster(from) && cluster(to),
                Change::Pause(_) => true,
            },
            Fact::Joined(of) | Fact::Leaving(of) | Fact::Left(of) => cluster(of),
            _ => has_known_ends(fact),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Incarnation, MessageId, TaskId, Time};

    const P0: ProcessId = ProcessId(0);
    const SUPERVISOR: ProcessId = ProcessId::SUPERVISOR;

    fn first(of: ProcessId, facts: impl IntoIterator<Item = Fact>) -> Option<u64> {
        let stream = facts.into_iter().map(|it| (Time(0), it)).collect();
        Extent { processes: 3, clusters: 2 }.first_impossible(of, &stream).map(|it| it.0)
    }

    fn message(from: u32, to: u32) -> MessageId {
        MessageId { from: ProcessId(from), to: ProcessId(to), incarnation: Incarnation(0), number: 0 }
    }

    #[test]
    fn a_fact_about_an_unknown_process_or_cluster_is_impossible() {
        assert_eq!(first(P0, [0, 2, 3].map(|to| Fact::Delivered(message(0, to)))), Some(2));
        assert_eq!(first(P0, [Fact::Delivered(message(u32::MAX - 1, 0))]), Some(0));
        assert_eq!(first(SUPERVISOR, [0, 1, 2].map(|it| Fact::Left(ClusterId(it)))), Some(2));
        let link =
            |to| Change::Link { from: ClusterId(0), to: ClusterId(to), properties: Default::default() };
        assert_eq!(first(SUPERVISOR, [link(1), link(2)].map(|it| Fact::Changed(Box::new(it)))), Some(1));
        assert_eq!(first(P0, [Fact::Ceded { partition: ProcessId(3), epoch: Incarnation(0) }]), Some(0));
    }

    #[test]
    fn a_fact_in_the_stream_of_a_process_that_never_reports_it_is_impossible() {
        let (of_process, of_supervisor) = (Fact::Delivered(message(0, 1)), Fact::Completed);
        assert_eq!(first(P0, [of_process.clone(), of_supervisor.clone()]), Some(1));
        assert_eq!(first(SUPERVISOR, [of_supervisor, of_process]), Some(1));
    }

    #[test]
    fn a_task_that_spawns_more_tasks_than_fit_in_memory_is_impossible() {
        let ran = |spawned| Fact::Ran { task: TaskId::MAIN, spawned, cost_us: 1 };
        assert_eq!(first(P0, [ran(1 << 26)]), None);
        assert_eq!(first(P0, [ran(u32::MAX)]), Some(0));
        assert_eq!(first(P0, [ran(1 << 25), ran(1 << 25), ran(3)]), Some(2));
    }
}
