//! Lost work is bounded in planned programs, too: a failure loses at most the work since the last valid checkpoint.
//!
//! The protocol controls one part of this bound: the coordinator requests the next checkpoint `tau` after the last
//! request or, if that checkpoint took longer than `tau`, once the last partition has acknowledged it. The duration of
//! a checkpoint depends on the storage and the network, and is taken from the run.
//!
//! No fact states when an acknowledgement reaches the coordinator, so the bound adds the longest time that a message to
//! the coordinator may take. This property is judged only if that time is bounded, and only in virtual time, because
//! times of different processes are compared. Time during which a failure was unknown or a recovery was in progress
//! does not count.

use std::cell::LazyCell;
use std::collections::BTreeMap;

use faultline_core::{Claim, ClusterId, Fact, FactKind, FactNo, Position, ProcessId, Span, Time};
use faultline_trace::Stream;
use faultline_trace::manifest::Bounds;

use super::evident_loss::round_limit;
use crate::finding::{Findings, Worded};
use faultline_history::{Context, History, LifeEnd, Planned, Source};

/// The number of rounds, and of the longest tasks, after which every partition should have acknowledged a request.
const ROUNDS: u64 = 5;

/// A request for a checkpoint.
struct Request {
    number: FactNo,
    at: Time,
    position: Position,
}

/// How a run violates the property.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Breach {
    NextCheckpointLate { process: ProcessId, waited: Span, allowed: Span },
    NeverAcknowledged { process: ProcessId, waited: Span },
}

impl Worded for Breach {
    fn sentence(&self, names: &Context) -> String {
        match *self {
            Breach::NextCheckpointLate { process: by, waited, allowed } => format!(
                "{} requested no checkpoint for {waited}, although the next one was due after {allowed}",
                names.process(by)
            ),
            Breach::NeverAcknowledged { process: by, waited } => format!(
                "a checkpoint that {} requested was not taken by every partition within {waited}",
                names.process(by)
            ),
        }
    }
}

pub(super) fn check(history: &History<'_>, planned: &Planned, bounds: &Bounds, finding: &mut Findings) {
    let context = history.context;
    let tau = bounds.checkpoint_every.iter().flatten().min().copied();
    let (Some(tau), Some(delivered_within)) = (tau, bounds.delivered_within) else { return };
    // A coordinator that is halted so that a fault can be injected requests no checkpoint.
    let halts = [FactKind::CheckpointRequested, FactKind::CheckpointMessage, FactKind::Released];
    if !context.common_clock || halts.iter().any(|it| context.halting.contains(it)) {
        return;
    }
    let round = LazyCell::new(|| round_limit(history).map(|it| it * ROUNDS + context.longest_task * ROUNDS));
    let result = history.results.iter().map(|it| history.time(it.0)).min();
    for (&(process, life), stream) in &history.trace.streams {
        let requests = requests(stream);
        let next = requests.iter().skip(1).map(|it| Some(it.at)).chain([None]);
        for (request, next) in requests.iter().zip(next) {
            let acknowledged = acknowledged(history, planned, process, request.position);
            let (before, after): (Vec<&LifeEnd>, Vec<&LifeEnd>) =
                history.supervision.ends.iter().partition(|it| it.at <= request.at);
            let is_known = |end: &&LifeEnd| {
                end.process == process || is_recovered(history, planned, end, request.position)
            };
            if !before.iter().all(is_known) {
                continue;
            }
            let next = next.filter(|_| acknowledged.is_some());
            let Some(until) = after.iter().map(|it| it.at).chain(next).chain(result).min() else { continue };
            if is_moving(history, planned, request.at, until) {
                continue;
            }
            let waited = until.since(request.at);
            let at = [Source { process, life, number: request.number }];
            let Some(acknowledged) = acknowledged else {
                if round.is_some_and(|it| waited > it) {
                    finding.instances += 1;
                    finding.violated(at, Breach::NeverAcknowledged { process, waited });
                }
                continue;
            };
            finding.instances += 1;
            let allowed = tau.max((acknowledged + delivered_within).since(request.at));
            if waited > allowed {
                finding.violated(at, Breach::NextCheckpointLate { process, waited, allowed });
            }
        }
    }
}

/// Returns the requests for checkpoints in one life, in order.
fn requests(stream: &Stream) -> Vec<Request> {
    let of = |(number, (at, fact)): (u64, &(Time, Fact))| match fact {
        Fact::Claim(claim) => match **claim {
            Claim::CheckpointRequested { position, .. } => {
                Some(Request { number: FactNo(number), at: *at, position })
            }
            _ => None,
        },
        _ => None,
    };
    (0..).zip(stream).filter_map(of).collect()
}

/// Returns when the last partition acknowledged a checkpoint to the coordinator; `None` if some partition did not.
fn acknowledged(
    history: &History<'_>,
    planned: &Planned,
    coordinator: ProcessId,
    position: Position,
) -> Option<Time> {
    let sent = planned.coordinated.get(&position)?.iter().filter(|(_, to, _)| *to == coordinator);
    let by: BTreeMap<ProcessId, Time> = sent.map(|(from, _, at)| (*from, history.time(*at))).collect();
    let partitions: usize = history.context.clusters.iter().map(Vec::len).sum();
    (by.len() == partitions).then(|| by.into_values().max()).flatten()
}

/// Returns whether a cluster was leaving or joining at some time from `since` to `until`: a recovery moves its
/// partitions, and no fact states when this recovery begins.
fn is_moving(history: &History<'_>, planned: &Planned, since: Time, until: Time) -> bool {
    let supervision = &history.supervision;
    let has_left = |leaving| supervision.left.iter().any(|&(at, cluster)| cluster == leaving && at <= since);
    let is_home = |partition: &ProcessId| {
        planned.joined.iter().any(|((_, of), joined)| {
            of == partition
                && history.source(joined.at).process == *partition
                && history.time(joined.at) <= since
        })
    };
    let are_home = |cluster: ClusterId| history.context.clusters[cluster.index()].iter().all(is_home);
    supervision.leaving.iter().any(|&(at, cluster)| at <= until && !has_left(cluster))
        || supervision
            .joined
            .iter()
            .any(|&(at, cluster)| at <= until && !has_left(cluster) && !are_home(cluster))
}

/// Returns whether, after the end of a life, the partition of the failed process joined the recovery that
/// precedes a checkpoint. If the partition runs on another process, it must have joined after the failed
/// process restarted or, if that process never restarted, after its failure was detected: an earlier join may
/// belong to a recovery from before the failure. A storage server joins no recovery, so no fact states when
/// its failure became known.
fn is_recovered(history: &History<'_>, planned: &Planned, end: &LifeEnd, checkpoint: Position) -> bool {
    planned.joined.get(&(checkpoint.incarnation, end.process)).is_some_and(|joined| {
        let source = history.source(joined.at);
        if source.process == end.process {
            return source.life > end.life;
        }
        end.restarted.or(end.detected).is_some_and(|since| history.time(joined.at) > since)
    })
}

#[cfg(test)]
mod tests {
    use faultline_core::{Attempt, Digest, Span};

    use super::*;
    use crate::testing::check_alone;
    use crate::testing::planned::Partitions;

    const TAU: Span = Span::from_millis(100);
    const DELIVERED_WITHIN: Span = Span::from_millis(10);

    /// The coordinator is the third process.
    const COORDINATOR: u32 = 2;

    fn run() -> Partitions {
        let mut run = Partitions::new(3);
        run.0.context.clusters.truncate(2);
        run.0.context.common_clock = true;
        run.0.context.bounds = Some(Bounds {
            checkpoint_every: vec![Some(TAU); 2],
            detect_after: Span::ZERO,
            collect_every: None,
            delivered_within: Some(DELIVERED_WITHIN),
        });
        run
    }

    fn request(run: &mut Partitions, epoch: u32, sn: u32) {
        let position = Position::new(epoch, sn);
        run.0.claim(COORDINATOR, Claim::CheckpointRequested { position, attempt: Attempt(1), forced: false });
    }

    fn acknowledge(run: &mut Partitions, partition: u32, epoch: u32, sn: u32) {
        let (position, from) = (Position::new(epoch, sn), ProcessId(partition));
        run.0.state(partition, Fact::CheckpointMessage { position, from, to: ProcessId(COORDINATOR) });
    }

    /// Requests a checkpoint that the second partition acknowledges `slow` later than the first, and then waits for
    /// `wait`.
    fn checkpoint(run: &mut Partitions, epoch: u32, slow: Span, wait: Span) {
        request(run, epoch, 1);
        acknowledge(run, 0, epoch, 1);
        run.0.wait(slow);
        acknowledge(run, 1, epoch, 1);
        run.0.wait(wait);
    }

    fn found(run: &Partitions) -> (u64, Vec<Breach>) {
        let finding = check_alone(&super::super::bounded_loss::RULE, &run.0);
        (finding.instances, finding.wrong::<Breach>())
    }

    #[test]
    fn the_next_checkpoint_is_requested_after_tau() {
        for (waited, end) in [TAU, TAU + Span(1)].into_iter().flat_map(|it| (0..3).map(move |end| (it, end)))
        {
            let mut run = run();
            checkpoint(&mut run, 0, Span::ZERO, waited);
            match end {
                0 => request(&mut run, 0, 2),
                1 => run.0.kill(1, false),
                _ => run.0.finish(0, Digest([1; 16])),
            }
            let late = Breach::NextCheckpointLate { process: ProcessId(COORDINATOR), waited, allowed: TAU };
            let expected = if waited > TAU { vec![late] } else { Vec::new() };
            assert_eq!(found(&run), (1, expected), "{waited} until {end}");
        }
    }

    #[test]
    fn a_checkpoint_that_takes_longer_than_tau_delays_the_next() {
        for (late, count) in [(Span::ZERO, 0), (Span(1), 1)] {
            let mut run = run();
            checkpoint(&mut run, 0, Span::from_secs(5), DELIVERED_WITHIN + late);
            request(&mut run, 0, 2);
            assert_eq!(found(&run).1.len(), count);
        }
    }

    #[test]
    fn a_checkpoint_that_is_never_acknowledged_is_not_judged() {
        let mut run = run();
        request(&mut run, 0, 1);
        acknowledge(&mut run, 0, 0, 1);
        run.0.wait(Span::from_secs(5));
        run.0.kill(1, false);
        assert_eq!(found(&run), (0, vec![]));
    }

    #[test]
    fn a_failure_that_the_coordinator_may_not_know_is_an_excuse() {
        for (joins, instances) in [(false, 0), (true, 1)] {
            let mut run = run();
            run.0.kill(1, false);
            if joins {
                run.joined(1, 1, Position::default());
            }
            checkpoint(&mut run, 1, Span::ZERO, TAU * 2);
            request(&mut run, 1, 2);
            let (judged, wrong) = found(&run);
            assert_eq!((judged, wrong.len() as u64), (instances, instances));
        }
    }

    #[test]
    fn a_failure_of_a_process_whose_partition_has_moved_is_an_excuse_until_the_next_recovery() {
        for (recovers, instances) in [(false, 0), (true, 1)] {
            let mut run = run();
            run.0.supervisor(Fact::Leaving(ClusterId(1)));
            run.absorbed(0, 1, 1);
            run.0.kill(1, false);
            run.0.supervisor(Fact::Left(ClusterId(1)));
            run.0.wait(Span(1));
            let epoch = 1 + u32::from(recovers);
            if recovers {
                run.joined_at(0, 1, epoch, Position::default());
            }
            checkpoint(&mut run, epoch, Span::ZERO, TAU * 2);
            request(&mut run, epoch, 2);
            assert_eq!(found(&run).0, instances, "{recovers}");
        }
    }

    #[test]
    fn a_cluster_that_is_due_to_leave_is_an_excuse_until_it_has_left() {
        for (leaves, instances) in [(false, 0), (true, 1)] {
            let mut run = run();
            run.0.supervisor(Fact::Leaving(faultline_core::ClusterId(1)));
            if leaves {
                run.0.supervisor(Fact::Left(faultline_core::ClusterId(1)));
            }
            checkpoint(&mut run, 1, Span::ZERO, TAU * 2);
            request(&mut run, 1, 2);
            assert_eq!(found(&run).0, instances);
        }
    }

    #[test]
    fn a_cluster_that_has_joined_is_an_excuse_until_its_partitions_are_home() {
        for (are_home, instances) in [(false, 0), (true, 1)] {
            let mut run = run();
            run.0.supervisor(Fact::Joined(ClusterId(1)));
            if are_home {
                run.absorbed(1, 1, 1);
            }
            checkpoint(&mut run, 1, Span::ZERO, TAU * 2);
            request(&mut run, 1, 2);
            assert_eq!(found(&run).0, instances);
        }
    }

    #[test]
    fn a_coordinator_that_may_have_been_halted_is_not_judged() {
        for fact in [FactKind::CheckpointRequested, FactKind::Released] {
            let mut run = run();
            run.0.context.halting.insert(fact);
            checkpoint(&mut run, 1, Span::ZERO, TAU * 2);
            request(&mut run, 1, 2);
            assert_eq!(found(&run).0, 0, "{fact:?}");
        }
    }

    #[test]
    fn without_a_bound_for_messages_nothing_is_judged() {
        let mut run = run();
        run.0.context.bounds.as_mut().expect("the context has bounds").delivered_within = None;
        checkpoint(&mut run, 0, Span::ZERO, TAU * 2);
        request(&mut run, 0, 2);
        assert_eq!(found(&run), (0, vec![]));
    }
}
