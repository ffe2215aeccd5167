//! Assigns the facts of planned programs to partitions.
//!
//! A process runs its own partition, and takes over those of processes that fail permanently, and of processes whose
//! clusters join later or leave. The states of a partition therefore continue in the streams of other processes, in
//! *hosting periods*. A life may have several hosting periods of a partition that moves away and returns. The periods
//! of a partition are ordered by the recovery with which each of them begins.
//!
//! A process may never learn of a recovery that moved a partition away from it, because the coordinator
//! failed while it announced the recovery. Such a process continues to run the partition. If it joins a later
//! recovery with the partition, it discards nothing, and the state in which it joins follows the states that
//! the other process had: a new period begins, and continues the process's earlier one.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Claim, Fact, ImageName, Incarnation, Life, PartitionClaim, ProcessId};
use faultline_trace::{Stream, Trace};

/// Facts that a process states in one life: either about a partition, while it runs the partition, or about itself.
pub(super) struct HostingPeriod<'a> {
    /// The partition, or the process if it runs none.
    pub(super) partition: ProcessId,
    /// The process that reports the facts.
    pub(super) host: ProcessId,
    pub(super) life: Life,
    pub(super) stream: &'a Stream,
    /// The recovery with which the period begins: the one that moved the partition to the process, or in
    /// which the process restored its own partition. If there is no such recovery, this is the newest
    /// recovery that the process's earlier lives joined.
    begins: Incarnation,
    /// The position in the stream at which the period begins.
    pub(super) begin: u32,
    /// The position in the stream at which the next period continues this one; the length of the stream if none does.
    pub(super) end: u32,
    /// Whether the period continues the previous one of the same life.
    pub(super) continues: bool,
    /// The positions of the facts in the stream; `None` means all.
    pub(super) facts: Option<Vec<u32>>,
    /// The positions at which the process joined recoveries with the partition.
    joined: Vec<(u32, Incarnation)>,
}

/// Returns the periods of a run, partition by partition; `None` if its program is not planned.
pub(super) fn of(trace: &Trace) -> Option<Vec<HostingPeriod<'_>>> {
    let is_planned = |stream: &Stream| {
        // Partitions may recover before any of them has executed a task.
        let mut facts = stream.iter().map(|(_, fact)| fact);
        let first = facts.find_map(|fact| match fact {
            Fact::Planned(_) => Some(true),
            Fact::Ran { .. } | Fact::Sent { .. } | Fact::Theft { .. } => Some(false),
            Fact::Claim(claim) => matches!(**claim, Claim::Partition(_)).then_some(true),
            _ => None,
        });
        first == Some(true)
    };
    trace.streams.values().any(is_planned).then(|| {
        let mut periods: Vec<HostingPeriod<'_>> = Vec::new();
        // The newest recovery that each process has joined in its lives so far.
        let mut newest: BTreeMap<ProcessId, Incarnation> = BTreeMap::new();
        for (&(host, life), stream) in &trace.streams {
            if host != ProcessId::SUPERVISOR && !stream.is_empty() {
                periods.extend(split(host, life, stream, newest.entry(host).or_default()));
            }
        }
        let mut periods = divide(periods);
        // A process that has no state of its own partition yet may report facts about itself while another process runs
        // the partition. Its period then comes first.
        periods.sort_by_key(|it| (it.partition, it.begins, it.host != it.partition, it.host, it.life));
        periods
    })
}

/// Divides each period whose process joins a recovery after another process has taken over the partition.
fn divide(periods: Vec<HostingPeriod<'_>>) -> Vec<HostingPeriod<'_>> {
    let begins: BTreeSet<(ProcessId, Incarnation, ProcessId)> =
        periods.iter().map(|it| (it.partition, it.begins, it.host)).collect();
    let mut divided = Vec::with_capacity(periods.len());
    for mut period in periods {
        let mut since = period.begins;
        for (place, epoch) in std::mem::take(&mut period.joined) {
            let key = |begins| (period.partition, begins, ProcessId(0));
            let mut between = begins.range(key(since)..key(epoch.max(since)));
            let has_moved = between.any(|&(_, begins, host)| begins > since && host != period.host);
            since = since.max(epoch);
            if has_moved {
                let next = period.continue_from(place, epoch);
                divided.push(std::mem::replace(&mut period, next));
            }
        }
        divided.push(period);
    }
    divided
}

impl HostingPeriod<'_> {
    /// Ends the period at a position in the stream, and returns the one that continues it.
    fn continue_from(&mut self, place: u32, begins: Incarnation) -> Self {
        let end = std::mem::replace(&mut self.end, place);
        let facts = self.facts.get_or_insert_with(|| (self.begin..end).collect());
        let rest = facts.split_off(facts.partition_point(|it| *it < place));
        HostingPeriod {
            begins,
            begin: place,
            end,
            continues: true,
            facts: Some(rest),
            joined: Vec::new(),
            ..*self
        }
    }
}

/// The facts of a period, while a stream is being split.
struct Open {
    partition: ProcessId,
    /// The recovery with which the period begins, if a fact states it.
    begins: Option<Incarnation>,
    begin: u32,
    facts: Vec<u32>,
    joined: Vec<(u32, Incarnation)>,
}

/// Splits a stream into its periods. `newest` is the newest recovery that the process has joined, and is updated.
fn split<'a>(
    host: ProcessId,
    life: Life,
    stream: &'a Stream,
    newest: &mut Incarnation,
) -> Vec<HostingPeriod<'a>> {
    let before = *newest;
    let mut periods: Vec<Open> = Vec::new();
    // The current or last period of each partition.
    let mut current: BTreeMap<ProcessId, usize> = BTreeMap::new();
    let open = |periods: &mut Vec<Open>, partition, begins, begin| {
        periods.push(Open { partition, begins, begin, facts: Vec::new(), joined: Vec::new() });
        periods.len() - 1
    };
    current.insert(host, open(&mut periods, host, None, 0));
    // For each partition that has moved to this process and has not moved away, the recovery that moved it.
    let mut absorbed: BTreeMap<ProcessId, Incarnation> = BTreeMap::new();
    let mut executing = host;
    for (place, (_, fact)) in (0..).zip(stream) {
        let mut joins = None;
        let partition = match fact {
            Fact::Planned(planned) => {
                executing = planned.partition;
                executing
            }
            Fact::Ran { .. } | Fact::Rerun { .. } => executing,
            Fact::Sent { id, .. } | Fact::Transmitted { id, .. } => id.from,
            Fact::Delivered(id) => id.to,
            Fact::Ceded { partition, .. } => {
                absorbed.remove(partition);
                *partition
            }
            Fact::Restored(restored) => {
                let begins = &mut periods[current[&host]].begins;
                *begins = begins.or(Some(restored.1));
                host
            }
            Fact::Absorbed(of) => {
                absorbed.insert(of.0, of.3);
                current.insert(of.0, open(&mut periods, of.0, Some(of.3), place));
                of.0
            }
            // Other images, and those saved before the takeover, are replicas that the process holds.
            Fact::Saved(saved) if is_own(&absorbed, saved.0) => saved.0.owner,
            Fact::Claim(claim) => match **claim {
                Claim::Partition(PartitionClaim::RecoveryJoined { partition, epoch, .. }) => {
                    *newest = epoch.max(*newest);
                    joins = Some(epoch);
                    partition
                }
                Claim::Partition(PartitionClaim::Drained { to, .. }) => to,
                _ => host,
            },
            _ => host,
        };
        let index = *current.entry(partition).or_insert_with(|| open(&mut periods, partition, None, place));
        periods[index].facts.push(place);
        periods[index].joined.extend(joins.map(|epoch| (place, epoch)));
    }
    let is_alone = periods.len() == 1;
    let period = |Open { partition, begins, begin, facts, joined }| HostingPeriod {
        partition,
        host,
        life,
        stream,
        begins: begins.unwrap_or(before),
        begin,
        end: stream.len() as u32,
        continues: false,
        facts: (!is_alone).then_some(facts),
        joined,
    };
    periods.into_iter().map(period).collect()
}

/// Returns whether the process saved this image itself, for a partition that had moved to it.
fn is_own(absorbed: &BTreeMap<ProcessId, Incarnation>, name: ImageName) -> bool {
    absorbed.get(&name.owner).is_some_and(|epoch| name.incarnation >= *epoch)
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

    /// Returns a run in which the first partition runs at p0, then at p3, and then at p1.
    fn moved_twice() -> Partitions {
        let mut run = Partitions::new(4);
        run.0.lose_permanently(0);
        run.absorbed(3, 0, 5);
        run.0.lose_permanently(3);
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
        run.0.lose_permanently(0);
        run.joined(3, 5, Default::default());
        run.0.state(3, Fact::Absorbed(Box::new((p(0), None, Default::default(), Incarnation(5)))));
        run.0.lose_permanently(3);
        run.absorbed(2, 0, 8);
        assert_eq!(hosts(&run.0.history(), 0), [0, 3, 2]);
    }

    /// Partition 2 runs at p0 until p2 has joined. It returns to p0 in the same life, because p2 fails.
    #[test]
    fn a_process_may_run_a_partition_in_several_periods_of_one_life() {
        let mut run = Partitions::new(3);
        run.absorbed(0, 2, 0);
        run.save(0, 0, 1);
        run.joined_at(0, 2, 3, Default::default());
        run.ceded(0, 2, 5);
        run.absorbed(2, 2, 5);
        run.0.lose_permanently(2);
        run.absorbed(0, 2, 8);
        let history = run.0.history();
        assert_eq!(hosts(&history, 2), [2, 0, 2, 0], "p2 has no state at first");
        let Ending::Known(end) = history.ending(p(2)) else { panic!("{:?}", history.ending(p(2))) };
        assert_eq!(history.source(end).process, p(0));
        assert!(history.segment(end.segment).begin > 0);
    }

    /// p2 fails before it takes over its own partition from p0. Its next life restores the partition.
    #[test]
    fn a_life_that_restores_its_partition_follows_the_host_that_ran_it_before() {
        let mut run = Partitions::new(3);
        run.absorbed(0, 2, 0);
        run.0.kill(2, false);
        run.ceded(0, 2, 5);
        run.0.state(2, Fact::Restored(Box::new((None, Incarnation(5), Default::default()))));
        run.joined(2, 5, Default::default());
        assert_eq!(hosts(&run.0.history(), 2), [2, 0, 2]);
    }

    /// Partition 2 runs at p0 until p2 has joined. p0 does not learn of that; the next recovery that it joins moves the
    /// partition back to it.
    #[test]
    fn a_process_that_missed_two_moves_continues_the_partition() {
        let mut run = Partitions::new(3);
        run.absorbed(0, 2, 0);
        run.absorbed(2, 2, 2);
        run.executed_at(0, 2, 7);
        run.joined_at(0, 2, 5, Default::default());
        run.ceded(2, 2, 5);
        run.executed_at(0, 2, 8);
        let history = run.0.history();
        assert_eq!(hosts(&history, 2), [2, 0, 2, 0], "p2 has no state at first");
        let Ending::Known(end) = history.ending(p(2)) else { panic!("{:?}", history.ending(p(2))) };
        assert_eq!(history.source(end).process, p(0));
        let planned = history.planned.as_ref().unwrap();
        let ran = |task| planned.tasks[&crate::testing::planned::task(task)].ran[0];
        assert!(history.survives(ran(7)) && history.survives(ran(8)));
    }

    #[test]
    fn a_partition_whose_process_never_returns_has_no_final_state() {
        let mut run = moved_twice();
        run.0.lose_permanently(1);
        assert_eq!(run.0.history().ending(p(0)), Ending::Unsettled);
    }
}
