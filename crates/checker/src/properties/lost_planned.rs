//! Lost work is bounded in planned programs, too: a failure loses at most the work since the last valid checkpoint.
//!
//! The protocol controls one part of this bound: a coordinator requests the next checkpoint `tau` after the last request
//! or, if that checkpoint took longer than `tau`, once it is complete. The duration of a checkpoint depends on the
//! storage and the network, and is taken from the run itself. After a failure, the recovery delays the next request.

use std::collections::{BTreeMap, BTreeSet};

use faultline_core::{Claim, Fact, FactKind, FactNo, Position, ProcessId, Span, Time};
use faultline_trace::manifest::Bounds;

use crate::finding::{Breach, Findings};
use faultline_history::{History, Source};

/// How late timers of real processes may be.
const SLACK: Span = Span::from_millis(500);

/// Time that the last messages of a checkpoint may take beyond the delay of the slowest link: packets may be lost and
/// sent again, or delayed by the simulator.
const LAST_MESSAGES: Span = Span::from_secs(1);

pub(super) fn check(history: &History<'_>, bounds: &Bounds, mut finding: Findings) -> Findings {
    let context = history.context;
    let Some(tau) = bounds.checkpoint_every.iter().flatten().min().copied() else { return finding };
    // A process that is halted for a fault to be injected requests no checkpoint.
    if context.halting.contains(&FactKind::CheckpointRequested) {
        return finding;
    }
    let slack = if context.common_clock { Span(1) } else { SLACK };
    let complete = complete(history);
    let slowest = context.links.iter().map(|it| it.requested.latency + it.requested.jitter).max();
    let last_messages = slowest.unwrap_or_default() * 4 + LAST_MESSAGES;
    for (&(process, life), stream) in &history.trace.streams {
        let requests = (0..).zip(stream).filter_map(|(number, (at, fact))| match fact {
            Fact::Claim(claim) => match **claim {
                Claim::CheckpointRequested { position, .. } => Some((FactNo(number), *at, position)),
                _ => None,
            },
            _ => None,
        });
        let requests: Vec<(FactNo, Time, Position)> = requests.collect();
        let next = requests.iter().skip(1).map(Some).chain([None]);
        for (&(number, at, position), next) in requests.iter().zip(next) {
            // A failure is known only once it has been detected, and what follows is a recovery.
            let unknown = at.0.saturating_sub((bounds.detect_after + last_messages).0);
            let failures = history.supervision.ends.iter().map(|it| it.at).filter(|it| it.0 >= unknown);
            let until = failures.chain(next.map(|it| it.1)).min();
            let (Some(until), Some(&complete)) = (until, complete.get(&position)) else { continue };
            finding.instances += 1;
            let waited = until.since(at);
            let allowed = if complete + last_messages > at + tau {
                tau.max((complete + last_messages).since(at))
            } else {
                tau
            };
            if waited > allowed + slack {
                finding.violated(
                    [Source { process, life, number }],
                    Breach::ProcessCheckpointOverdue { process, waited, every: tau },
                );
            }
        }
    }
    finding
}

/// Returns when each checkpoint that all partitions have stored was complete.
fn complete(history: &History<'_>) -> BTreeMap<Position, Time> {
    let mut all: BTreeMap<Position, (BTreeSet<ProcessId>, Time)> = BTreeMap::new();
    for (at, fact) in history.trace.streams.values().flatten() {
        if let Fact::Durable(name) = fact {
            let (owners, last) = all.entry(name.position()).or_insert((BTreeSet::new(), *at));
            owners.insert(name.owner);
            *last = (*last).max(*at);
        }
    }
    let partitions: usize = history.context.clusters.iter().map(Vec::len).sum();
    all.retain(|_, (owners, _)| owners.len() == partitions);
    all.into_iter().map(|(position, (_, last))| (position, last)).collect()
}

#[cfg(test)]
mod tests {
    use faultline_core::Attempt;

    use super::*;
    use crate::testing::check_alone;
    use crate::testing::planned::Partitions;

    const TAU: Span = Span::from_millis(100);

    /// Checks two partitions, the second of which stores its part `slow` after the first request; the coordinator
    /// requests the next checkpoint `wait` after that, or a process fails then.
    fn found(slow: Span, wait: Span, fails: bool) -> Vec<Breach> {
        let mut run = Partitions::new(2);
        run.0.context.common_clock = true;
        let (checkpoint_every, detect_after) = (vec![Some(TAU); 2], Span::ZERO);
        run.0.context.bounds = Some(Bounds { checkpoint_every, detect_after, collect_every: None });
        run.0.wait(Span::from_secs(10));
        let request = |run: &mut Partitions, sn| {
            let position = Position::new(0, sn);
            run.0.claim(0, Claim::CheckpointRequested { position, attempt: Attempt(1), forced: false });
        };
        request(&mut run, 1);
        run.save(0, 0, 1);
        run.0.wait(slow);
        run.save(1, 0, 1);
        run.0.wait(wait);
        if fails {
            run.0.kill(1, false);
        } else {
            request(&mut run, 2);
        }
        let finding = check_alone(super::super::bounded_loss::check, &run.0);
        assert_eq!(finding.instances, 1);
        finding.wrong()
    }

    #[test]
    fn the_next_checkpoint_is_requested_after_tau() {
        for fails in [false, true] {
            assert_eq!(found(Span::ZERO, TAU, fails), []);
            let every = TAU;
            let limit = TAU + LAST_MESSAGES;
            let waited = limit + Span::from_millis(1);
            let overdue = Breach::ProcessCheckpointOverdue { process: ProcessId(0), waited, every };
            assert_eq!(found(Span::ZERO, waited, fails), [overdue]);
        }
    }

    #[test]
    fn a_checkpoint_that_takes_longer_than_tau_delays_the_next() {
        assert_eq!(found(Span::from_secs(5), LAST_MESSAGES, false), []);
        assert_eq!(found(Span::from_secs(5), LAST_MESSAGES + Span::from_millis(1), false).len(), 1);
    }
}
