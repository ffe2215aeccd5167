//! A partition runs on one process at a time (CCK). It moves in only two cases: away from a process that has failed
//! permanently or whose cluster is about to leave, and to the process of the same name once the cluster of that process
//! has joined. A process that still runs when a partition moves away must stop running the partition before the process
//! leaves, and before the program ends.
//!
//! If all processes that knew about a move have failed or left since, the move is forgotten: the partition still has to
//! move away from the process that ran it before that move, and may move to a different process.
//!
//! A process that never learns of a move, because the coordinator failed while it announced the move, continues to run
//! the partition. It need not cede the partition if the next recovery that it joins moves the partition back to it.
//!
//! The new host reports that it has restored the partition; the old one reports that it has ceded it. A process that
//! fails need not cede anything: its next life runs only the partitions that it is told to run.

use std::ops::Range;

use faultline_core::fault::Outcome;
use faultline_core::{FactKind, Life, ProcessId};

use crate::finding::{Findings, Worded};
use crate::property::Property;
use crate::rule::Rule;
use faultline_history::{Context, History, Planned, Point, Segment, SegmentNo};

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    MovedWithoutCause { partition: ProcessId, from: ProcessId, to: ProcessId },
    NotCeded { partition: ProcessId, from: ProcessId, to: ProcessId },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::MovedWithoutCause { partition, from, to } => format!(
                "partition {} moved from {} to {}, although {} had not failed permanently and was not about to leave",
                names.process(partition),
                names.process(from),
                names.process(to),
                names.process(from)
            ),
            Breach::NotCeded { partition, from, to } => format!(
                "partition {} moved from {} to {}, but {} never stopped running it",
                names.process(partition),
                names.process(from),
                names.process(to),
                names.process(from)
            ),
        }
    }
}

pub(super) const RULE: Rule =
    Rule::new(Property::OneHost, "each partition ran on one process at a time", check)
        .needs(&[FactKind::Planned]);

fn check(history: &History<'_>, finding: &mut Findings) {
    let Some(planned) = &history.planned else { return };
    let departing = history.supervision.departing(&history.context.clusters);
    let joining = history.supervision.joining(&history.context.clusters);
    for &partition in history.context.clusters.iter().flatten() {
        let joins = joining.contains(&partition);
        // The process that ran the partition before the moves that were forgotten.
        let mut origin = partition;
        for moved in moves(history, partition, joins) {
            let Move { from, since, life, to, at } = moved;
            finding.instances += 1;
            let source = history.source(at);
            let has_ended = history.supervision.end_of(from, life).is_some();
            let mut ceded = planned.ceded.iter().filter(|it| (it.partition, it.host) == (partition, from));
            let has_ceded = ceded.any(|it| (since..at.segment).contains(&it.at.segment));
            // The process of a cluster that has joined may depart before it restores its partition. The
            // partition then moves on.
            let has_gone_home = to == partition || departing.contains(&partition) && (has_ceded || has_ended);
            let is_forgotten = || has_ended && is_forgotten(history, planned, partition, &moved);
            let has_cause = departing.contains(&from)
                || joins && has_gone_home
                || departing.contains(&origin) && is_forgotten();
            if departing.contains(&from) {
                origin = from;
            }
            if !has_cause {
                finding.violated([source], Breach::MovedWithoutCause { partition, from, to });
            }
            let is_over = history.context.outcome == Some(Outcome::Completed) || history.has_left(from);
            if !is_over || has_ended || has_ceded || is_continued(history, partition, &moved) {
                continue;
            }
            if history.trace.has_gap_of(from) {
                finding.lacks_facts_of(from, history.context);
                continue;
            }
            finding.violated([source], Breach::NotCeded { partition, from, to });
        }
    }
}

/// Returns whether a process kept running a partition after the partition moved away from it, because it had not
/// learned of the move.
fn is_continued(history: &History<'_>, partition: ProcessId, moved: &Move) -> bool {
    let end = history.processes[partition.index()].segments.end;
    let mut later = (moved.at.segment.0..end).map(|it| history.segment(SegmentNo(it)));
    later.any(|it| it.continues && (it.host, it.life) == (moved.from, moved.life))
}

/// Returns whether all processes that knew that the partition ran at `moved.from` have failed or left. Those
/// processes are the coordinator and every process that took part in the recovery that moved the partition
/// there, or in a later recovery before this move.
fn is_forgotten(history: &History<'_>, planned: &Planned, partition: ProcessId, moved: &Move) -> bool {
    let supervision = &history.supervision;
    // The map is ordered by epoch.
    let first_joined = |range: Range<SegmentNo>| {
        let mut joined = planned.joined.iter().filter(|((_, of), _)| *of == partition);
        joined.find(|(_, it)| range.contains(&it.at.segment)).map(|((epoch, _), _)| *epoch)
    };
    let end = SegmentNo(history.processes[partition.index()].segments.end);
    let (since, until) = (moved.since..moved.at.segment, moved.at.segment..end);
    let (Some(since), Some(until)) = (first_joined(since), first_joined(until)) else {
        return false;
    };
    let joined = planned.joined.iter().map(|((epoch, _), it)| (*epoch, it.at));
    let ceded = planned.ceded.iter().map(|it| (it.epoch, it.at));
    let has_failed = |at: Point| {
        let segment = history.segment(at.segment);
        history.has_left(segment.host) || supervision.end_of(segment.host, segment.life).is_some()
    };
    let is_coordinator =
        |it: ProcessId| history.member(it).is_none() && !history.context.servers.contains(&it);
    joined.chain(ceded).filter(|(epoch, _)| (since..until).contains(epoch)).all(|(_, at)| has_failed(at))
        && supervision.ends.iter().any(|it| is_coordinator(it.process))
}

/// The move of a partition to another process.
struct Move {
    from: ProcessId,
    /// The first state of the partition at `from` since the partition moved there.
    since: SegmentNo,
    /// The last life of `from` that had a state of the partition.
    life: Life,
    to: ProcessId,
    /// The point at which `to` has the partition's state.
    at: Point,
}

/// Returns the moves of a partition, in order. `joins` states whether its cluster joined during the run.
fn moves(history: &History<'_>, partition: ProcessId, joins: bool) -> Vec<Move> {
    let range = history.processes[partition.index()].segments.clone();
    // A process that is present from the start has a state of its own partition from the start; any other state is
    // restored.
    let is_initial = |it: &Segment| !joins && !it.is_restored && (it.host, it.life) == (partition, Life(1));
    let has_state = |it: &Segment| it.is_restored && !it.is_rootless || is_initial(it);
    let mut moves = Vec::new();
    let mut last: Option<&Segment> = None;
    let mut since = SegmentNo(range.start);
    for (no, segment) in range.map(|it| (SegmentNo(it), history.segment(SegmentNo(it)))) {
        if !has_state(segment) {
            continue;
        }
        if let Some(before) = last.filter(|it| it.host != segment.host) {
            let at = Point { segment: no, fact: segment.begin };
            moves.push(Move { from: before.host, since, life: before.life, to: segment.host, at });
            since = no;
        }
        last = Some(segment);
    }
    moves
}

#[cfg(test)]
mod tests {
    use faultline_core::fault::StorageFate;
    use faultline_core::{ClusterId, EndedBy, Fact, Incarnation, Position};

    use super::*;
    use crate::testing::planned::Partitions;
    use crate::testing::{check_alone, p};

    /// Judges a run in which partition 0 moves from process 0 to process 1.
    fn moved(is_announced: bool, is_ceded: bool, has_left: bool) -> Vec<Breach> {
        let mut run = Partitions::new(3);
        run.executed(0, 1, &[], &[]);
        run.executed(1, 2, &[], &[]);
        if is_announced {
            run.0.supervisor(Fact::Leaving(ClusterId(0)));
        }
        if is_ceded {
            run.0.state(0, Fact::Ceded { partition: p(0), epoch: Incarnation(5) });
        }
        run.absorbed(1, 0, 5);
        if has_left {
            run.0.supervisor(Fact::Left(ClusterId(0)));
        } else {
            run.0.context.outcome = Some(Outcome::Deadline);
        }
        let finding = check_alone(&RULE, &run.0);
        assert_eq!(finding.instances, 1);
        finding.wrong::<Breach>()
    }

    #[test]
    fn a_partition_may_move_before_its_cluster_leaves() {
        assert_eq!(moved(true, true, true), []);
        assert_eq!(moved(true, true, false), []);
    }

    #[test]
    fn a_partition_may_not_move_without_a_cause() {
        assert!(matches!(moved(false, true, false)[..], [Breach::MovedWithoutCause { .. }]));
    }

    #[test]
    fn a_process_may_not_leave_with_its_partition() {
        assert!(matches!(moved(true, false, true)[..], [Breach::NotCeded { .. }]));
        assert_eq!(moved(true, false, false), [], "the process may still cede the partition");
    }

    /// Judges a run in which partition 2 runs at process 0 until its own process takes over.
    fn joined(is_announced: bool, is_ceded: bool) -> Vec<Breach> {
        let mut run = Partitions::new(3);
        run.absorbed(0, 2, 0);
        if is_announced {
            run.0.supervisor(Fact::Joined(ClusterId(2)));
        }
        if is_ceded {
            run.0.state(0, Fact::Ceded { partition: p(2), epoch: Incarnation(5) });
        }
        run.absorbed(2, 2, 5);
        run.0.context.outcome = Some(Outcome::Completed);
        check_alone(&RULE, &run.0).wrong::<Breach>()
    }

    #[test]
    fn a_partition_moves_home_once_its_cluster_has_joined() {
        assert_eq!(joined(true, true), []);
        assert!(matches!(joined(true, false)[..], [Breach::NotCeded { .. }]));
        assert!(!joined(false, true).is_empty(), "no cluster has joined");
    }

    #[test]
    fn a_process_that_missed_a_move_may_continue_the_partition() {
        for returns in [true, false] {
            let mut run = Partitions::new(3);
            run.absorbed(0, 2, 0);
            run.0.supervisor(Fact::Joined(ClusterId(2)));
            run.absorbed(2, 2, 2);
            run.0.supervisor(Fact::Leaving(ClusterId(2)));
            run.ceded(2, 2, 5);
            if returns {
                run.joined_at(0, 2, 5, Position::default());
            }
            run.executed_at(0, 2, 7);
            run.0.context.outcome = Some(Outcome::Completed);
            let wrong = check_alone(&RULE, &run.0).wrong::<Breach>();
            assert_eq!(wrong.is_empty(), returns, "{wrong:?}");
        }
    }

    #[test]
    fn a_partition_moves_on_if_its_process_departs_before_it_restores_the_partition() {
        for departs in [true, false] {
            let mut run = Partitions::new(3);
            run.absorbed(0, 2, 0);
            run.0.supervisor(Fact::Joined(ClusterId(2)));
            run.0.state(0, Fact::Ceded { partition: p(2), epoch: Incarnation(5) });
            if departs {
                run.0.lose_permanently(2);
            }
            run.absorbed(1, 2, 6);
            let wrong = check_alone(&RULE, &run.0).wrong::<Breach>();
            assert_eq!(matches!(wrong[..], [Breach::MovedWithoutCause { .. }]), !departs, "{wrong:?}");
        }
    }

    /// Judges a run in which partition 0 moves to process 1 in recovery 5, and to process 2 in recovery 8,
    /// although process 1 does not depart. The processes in `failed` fail in between; process 4 is the
    /// coordinator.
    fn moved_twice(failed: &[u32], is_known_to_3: bool) -> Vec<Breach> {
        let mut run = Partitions::new(4);
        run.0.supervisor(Fact::Leaving(ClusterId(0)));
        run.absorbed(1, 0, 5);
        if is_known_to_3 {
            run.joined(3, 5, Position::default());
        }
        for &it in failed {
            if it < 4 {
                run.0.kill(it, false);
                continue;
            }
            let (process, life, storage) = (p(it), Life(1), StorageFate::Kept);
            run.0.supervisor(Fact::Failed { process, life, storage, by: EndedBy::Silence });
        }
        run.ceded(0, 0, 8);
        run.absorbed(2, 0, 8);
        run.0.context.outcome = Some(Outcome::Completed);
        check_alone(&RULE, &run.0).wrong::<Breach>()
    }

    #[test]
    fn a_move_may_be_forgotten_only_by_failed_processes() {
        assert_eq!(moved_twice(&[1, 4], false), []);
        assert_eq!(moved_twice(&[1, 3, 4], true), []);
        for (failed, is_known_to_3) in [(&[1, 4][..], true), (&[1], false), (&[4], false), (&[], false)] {
            let wrong = moved_twice(failed, is_known_to_3);
            assert!(matches!(wrong[..], [Breach::MovedWithoutCause { .. }, ..]), "{failed:?}: {wrong:?}");
        }
    }

    #[test]
    fn a_process_that_left_has_forgotten_a_move() {
        for leaves in [true, false] {
            let mut run = Partitions::new(3);
            run.0.supervisor(Fact::Leaving(ClusterId(0)));
            run.absorbed(1, 0, 5);
            run.ceded(0, 0, 5);
            if leaves {
                run.0.supervisor(Fact::Left(ClusterId(0)));
            }
            run.0.kill(1, false);
            let (process, life, storage) = (p(3), Life(1), StorageFate::Kept);
            run.0.supervisor(Fact::Failed { process, life, storage, by: EndedBy::Silence });
            run.absorbed(2, 0, 8);
            run.0.context.outcome = Some(Outcome::Deadline);
            assert_eq!(check_alone(&RULE, &run.0).wrong::<Breach>().is_empty(), leaves);
        }
    }

    /// A partition returns to a process that ceded it earlier, and then moves away again.
    #[test]
    fn each_move_of_a_partition_requires_that_its_host_cedes_it() {
        let mut run = Partitions::new(3);
        run.absorbed(0, 2, 0);
        run.0.supervisor(Fact::Joined(ClusterId(2)));
        run.0.state(0, Fact::Ceded { partition: p(2), epoch: Incarnation(5) });
        run.absorbed(2, 2, 5);
        run.0.lose_permanently(2);
        run.absorbed(0, 2, 8);
        run.0.supervisor(Fact::Leaving(ClusterId(0)));
        run.absorbed(1, 2, 9);
        run.0.supervisor(Fact::Left(ClusterId(0)));
        assert!(matches!(check_alone(&RULE, &run.0).wrong::<Breach>()[..], [Breach::NotCeded { .. }]));
        run.0.state(0, Fact::Ceded { partition: p(2), epoch: Incarnation(9) });
        assert_eq!(check_alone(&RULE, &run.0).wrong::<Breach>(), []);
    }

    #[test]
    fn a_permanently_failed_process_need_not_cede_its_partition() {
        let mut run = Partitions::new(3);
        run.executed(0, 1, &[], &[]);
        run.executed(1, 2, &[], &[]);
        run.0.lose_permanently(0);
        run.absorbed(1, 0, 5);
        let finding = check_alone(&RULE, &run.0);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }
}
