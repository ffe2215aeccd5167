//! Assigns the facts of planned programs to partitions.
//!
//! A process runs its own partition, and takes over those of permanently failed processes. The states of a partition
//! therefore continue in the streams of other processes, in *stints*. The stints of a partition are ordered by the
//! recovery with which each of them begins.

use std::collections::BTreeMap;

use faultline_core::{Claim, Fact, ImageName, Incarnation, Life, ProcessId};
use faultline_trace::{Stream, Trace};

/// The facts of one life that are about one partition, or about the process itself.
pub(super) struct Stint<'a> {
    /// The partition, or the process if it runs none.
    pub(super) partition: ProcessId,
    /// The process that states the facts.
    pub(super) host: ProcessId,
    pub(super) life: Life,
    pub(super) stream: &'a Stream,
    /// The recovery with which the stint begins, and `false`: the recovery that moved the partition to the process or,
    /// without a move, the newest one that the process's earlier lives joined. If the process failed before it joined
    /// the recovery that moved the partition: the newest one that it had joined, and `true`.
    begins: (Incarnation, bool),
    /// The positions of the facts in the stream; `None` means all.
    pub(super) facts: Option<Vec<u32>>,
}

/// Returns the stints of a run, partition by partition; `None` if its program is not planned.
pub(super) fn of(trace: &Trace) -> Option<Vec<Stint<'_>>> {
    let is_planned = |stream: &Stream| {
        let is_of_tasks = |fact: &Fact| {
            matches!(fact, Fact::Planned(_) | Fact::Ran { .. } | Fact::Sent { .. } | Fact::Theft { .. })
        };
        let first = stream.iter().map(|(_, fact)| fact).find(|it| is_of_tasks(it));
        first.is_some_and(|it| matches!(it, Fact::Planned(_)))
    };
    trace.streams.values().any(is_planned).then(|| {
        let mut stints: Vec<Stint<'_>> = Vec::new();
        // The newest recovery that each process has joined in its lives so far.
        let mut newest: BTreeMap<ProcessId, Incarnation> = BTreeMap::new();
        for (&(host, life), stream) in &trace.streams {
            if host != ProcessId::SUPERVISOR && !stream.is_empty() {
                stints.extend(split(host, life, stream, newest.entry(host).or_default()));
            }
        }
        stints.sort_by_key(|it| (it.partition, it.begins, it.host, it.life));
        stints
    })
}

/// Splits a stream into its stints. `newest` is the newest recovery that the process has joined, and is updated.
fn split<'a>(host: ProcessId, life: Life, stream: &'a Stream, newest: &mut Incarnation) -> Vec<Stint<'a>> {
    let before = *newest;
    // For each partition that the process took over, the recovery that moved it; `None` until the process joins that
    // recovery.
    let mut absorbed: BTreeMap<ProcessId, Option<Incarnation>> = BTreeMap::new();
    let mut executing = host;
    let mut facts: BTreeMap<ProcessId, Vec<u32>> = BTreeMap::from([(host, Vec::new())]);
    for (place, (_, fact)) in (0..).zip(stream) {
        let partition = match fact {
            Fact::Planned(planned) => {
                executing = planned.partition;
                executing
            }
            Fact::Ran { .. } | Fact::Rerun { .. } => executing,
            Fact::Sent { id, .. } | Fact::Transmitted { id, .. } => id.from,
            Fact::Delivered(id) => id.to,
            Fact::Ceded { partition, .. } => *partition,
            Fact::Absorbed(of) => {
                absorbed.insert(of.0, None);
                of.0
            }
            // Other images, and those saved before the takeover, are replicas that the process holds.
            Fact::Saved(saved) if is_own(&absorbed, saved.0) => saved.0.owner,
            Fact::Claim(claim) => match **claim {
                Claim::RecoveryJoined { partition, epoch, .. } => {
                    absorbed.entry(partition).and_modify(|it| *it = it.or(Some(epoch)));
                    *newest = epoch.max(*newest);
                    partition
                }
                Claim::Drained { to, .. } => to,
                _ => host,
            },
            _ => host,
        };
        facts.entry(partition).or_default().push(place);
    }
    let is_alone = facts.len() == 1;
    let newest = *newest;
    let stint = |(partition, facts): (ProcessId, Vec<u32>)| Stint {
        partition,
        host,
        life,
        stream,
        begins: match absorbed.get(&partition) {
            Some(Some(epoch)) => (*epoch, false),
            Some(None) => (newest, true),
            None => (before, false),
        },
        facts: (!is_alone).then_some(facts),
    };
    facts.into_iter().map(stint).collect()
}

/// Returns whether the process saved this image itself, for a partition that it had taken over.
fn is_own(absorbed: &BTreeMap<ProcessId, Option<Incarnation>>, name: ImageName) -> bool {
    absorbed.get(&name.owner).is_some_and(|it| it.is_some_and(|epoch| name.incarnation >= epoch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::p;
    use crate::testing::planned::Partitions;
    use crate::{Ending, History};

    /// Returns the processes that ran a partition, in order.
    fn hosts(history: &History<'_>, partition: u32) -> Vec<u32> {
        let own = history.processes[partition as usize].segments.clone();
        let mut hosts: Vec<u32> = own.map(|it| history.segments[it as usize].host.0).collect();
        hosts.dedup();
        hosts
    }

    /// The first partition runs at p0, then at p3, and then at p1.
    fn moved_twice() -> Partitions {
        let mut run = Partitions::new(4);
        run.0.lose_for_good(0);
        run.absorbed(3, 0, 5);
        run.0.lose_for_good(3);
        run.absorbed(1, 0, 8);
        run
    }

    #[test]
    fn a_partition_is_followed_in_the_order_of_the_recoveries_that_moved_it() {
        let run = moved_twice();
        let history = run.0.history();
        assert_eq!(hosts(&history, 0), [0, 3, 1]);
        let Ending::Known(end) = history.ending(p(0)) else { panic!("{:?}", history.ending(p(0))) };
        assert_eq!(history.source(end).process, p(1));
    }

    #[test]
    fn a_process_that_fails_before_it_joins_hosts_the_partition_only_until_then() {
        let mut run = Partitions::new(4);
        run.0.lose_for_good(0);
        run.joined(3, 5, Default::default());
        run.0.state(3, Fact::Absorbed(Box::new((p(0), None, Default::default()))));
        run.0.lose_for_good(3);
        run.absorbed(2, 0, 8);
        assert_eq!(hosts(&run.0.history(), 0), [0, 3, 2]);
    }

    #[test]
    fn a_partition_whose_process_never_returns_has_no_final_state() {
        let mut run = moved_twice();
        run.0.lose_for_good(1);
        assert_eq!(run.0.history().ending(p(0)), Ending::Unsettled);
    }
}
