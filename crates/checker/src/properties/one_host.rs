//! A partition runs on one process at a time (CCK). It moves only away from a process that has failed permanently, or
//! whose cluster is due to leave. A process that still runs when its partition moves must stop running the partition
//! before it leaves, and before the program ends.
//!
//! The process that takes over states that it has restored the partition; the other one states that it has ceded it. A
//! process that fails need not cede anything: its next life runs only what it is told to run.

use faultline_core::fault::Outcome;
use faultline_core::{Life, ProcessId};

use crate::finding::{Breach, Findings, Gap};
use crate::judgement::Property;
use faultline_history::{History, Planned, Point, Segment, SegmentNo};

pub(super) fn check(history: &History<'_>) -> Findings {
    let mut finding = Findings::new(Property::OneHost);
    let Some(planned) = &history.planned else { return finding };
    let departing = history.supervision.departing(&history.context.clusters);
    for &partition in history.context.clusters.iter().flatten() {
        for Move { from, life, to, at } in moves(history, partition) {
            finding.instances += 1;
            let source = history.source(at);
            if !departing.contains(&from) {
                finding.violated([source], Breach::MovedWithoutCause { partition, from, to });
            }
            let is_over = history.context.outcome == Some(Outcome::Completed) || history.has_left(from);
            let has_ended = history.supervision.end_of(from, life).is_some();
            if !is_over || has_ended || has_ceded(planned, partition, from) {
                continue;
            }
            if history.trace.has_gap_of(from) {
                finding.unjudged(Gap::FactsMissing { process: from });
                continue;
            }
            finding.violated([source], Breach::NotCeded { partition, from, to });
        }
    }
    finding
}

fn has_ceded(planned: &Planned, partition: ProcessId, host: ProcessId) -> bool {
    planned.ceded.iter().any(|it| (it.partition, it.host) == (partition, host))
}

/// A partition that moved to another process.
struct Move {
    from: ProcessId,
    /// The last life of that process that had a state of the partition.
    life: Life,
    to: ProcessId,
    /// The point at which the other process has the partition's state.
    at: Point,
}

/// Returns the moves of a partition, in their order.
fn moves(history: &History<'_>, partition: ProcessId) -> Vec<Move> {
    let range = history.processes[partition.index()].segments.clone();
    // A process has a state of its own partition from the start; any other state is restored.
    let has_state = |it: &Segment| it.is_restored && !it.is_rootless || it.life == Life(1);
    let mut moves = Vec::new();
    let mut last: Option<&Segment> = None;
    for (no, segment) in range.map(|it| (SegmentNo(it), history.segment(SegmentNo(it)))) {
        if !has_state(segment) {
            continue;
        }
        if let Some(before) = last.filter(|it| it.host != segment.host) {
            let at = Point { segment: no, fact: segment.begin };
            moves.push(Move { from: before.host, life: before.life, to: segment.host, at });
        }
        last = Some(segment);
    }
    moves
}

#[cfg(test)]
mod tests {
    use faultline_core::{ClusterId, Fact, Incarnation};

    use super::*;
    use crate::testing::planned::Partitions;
    use crate::testing::{check_alone, p};

    /// Partition 0 moves from process 0 to process 1.
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
        let finding = check_alone(check, &run.0);
        assert_eq!(finding.instances, 1);
        finding.wrong()
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

    #[test]
    fn a_process_that_fails_for_good_need_not_cede_its_partition() {
        let mut run = Partitions::new(3);
        run.executed(0, 1, &[], &[]);
        run.executed(1, 2, &[], &[]);
        run.0.lose_for_good(0);
        run.absorbed(1, 0, 5);
        let finding = check_alone(check, &run.0);
        assert_eq!((finding.instances, finding.violation_count()), (1, 0));
    }
}
