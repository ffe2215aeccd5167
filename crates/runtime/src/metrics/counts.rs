//! Counts and durations derived from facts.

use std::collections::{BTreeMap, VecDeque};

use faultline_core::operation::Completion;
use faultline_core::{
    Claim, ClusterId, Fact, FactKind, HistoryNo, Observation, Position, ProbeNo, Span, Time,
};
use serde::{Deserialize, Serialize};

/// Number of commits whose times are kept, to compute the work lost in a rollback. Work lost in a rollback to an older
/// checkpoint is not counted.
const REMEMBERED_COMMITS: usize = 64;

/// Counts of one life, or their sum over many lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of recorded facts, by index in [`FactKind::OF_PROCESSES`].
    pub(super) facts: Vec<u64>,
    /// Number of committed checkpoints that were forced.
    pub(super) forced: u64,
    /// Time during which the application was frozen for checkpoints.
    pub(super) frozen: Span,
    /// Time between the commit of a checkpoint and a rollback to it, summed over all rollbacks to checkpoints that this
    /// life committed.
    pub(super) lost: Span,
    /// Samples of each probe.
    pub(super) probes: BTreeMap<ProbeNo, Samples>,
    /// Operations of clients, by history and kind.
    pub(super) operations: BTreeMap<HistoryNo, BTreeMap<String, Samples>>,
}

/// Samples of a probe, or operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Samples {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) unknown: u64,
    /// Time from the start to the end of each sample, summed.
    pub(super) latency: Span,
}

impl Samples {
    fn add(&mut self, other: Samples) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.latency = self.latency + other.latency;
    }
}

/// Delays observed on links, by (sending, receiving) cluster: number of packets, and sum of their delays.
pub type Delays = BTreeMap<(ClusterId, ClusterId), (u64, Span)>;

/// Counts facts as they are recorded.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) counts: Counts,
    commits: VecDeque<(Position, Time)>,
    /// The kind of each operation that has not ended, and when it was invoked.
    invoked: BTreeMap<(HistoryNo, u64), (&'static str, Time)>,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            facts: vec![0; FactKind::OF_PROCESSES.len()],
            forced: 0,
            frozen: Span::ZERO,
            lost: Span::ZERO,
            probes: BTreeMap::new(),
            operations: BTreeMap::new(),
        }
    }
}

impl Counts {
    /// Returns the number of recorded facts of the given kind; 0 for the supervisor's kinds.
    pub fn of(&self, kind: FactKind) -> u64 {
        slot(kind).map_or(0, |slot| self.facts[slot])
    }

    /// Returns the number of recorded facts of all kinds.
    pub fn all(&self) -> u64 {
        self.facts.iter().sum()
    }

    /// Adds the counts of another life.
    pub fn add(&mut self, other: &Counts) {
        for (mine, theirs) in self.facts.iter_mut().zip(&other.facts) {
            *mine += theirs;
        }
        self.forced += other.forced;
        self.frozen = self.frozen + other.frozen;
        self.lost = self.lost + other.lost;
        for (probe, theirs) in &other.probes {
            self.probes.entry(*probe).or_default().add(*theirs);
        }
        for (history, theirs) in &other.operations {
            let mine = self.operations.entry(*history).or_default();
            for (kind, theirs) in theirs {
                mine.entry(kind.clone()).or_default().add(*theirs);
            }
        }
    }
}

impl Meter {
    pub(crate) fn count(&mut self, now: Time, fact: &Fact) {
        if let Some(slot) = slot(fact.kind()) {
            self.counts.facts[slot] += 1;
        }
        let claim = match fact {
            Fact::Claim(claim) => claim,
            Fact::Observed(it) => return self.observed(now, it),
            _ => return,
        };
        match &**claim {
            Claim::Committed { position, forced, frozen, .. } => {
                self.counts.forced += u64::from(*forced);
                self.counts.frozen = self.counts.frozen + *frozen;
                if self.commits.len() == REMEMBERED_COMMITS {
                    self.commits.pop_front();
                }
                self.commits.push_back((*position, now));
            }
            Claim::RolledBack { checkpoint, .. } => {
                if let Some((_, at)) = self.commits.iter().find(|(position, _)| position == checkpoint) {
                    self.counts.lost = self.counts.lost + now.since(*at);
                }
            }
            _ => {}
        }
    }

    fn observed(&mut self, now: Time, observation: &Observation) {
        match observation {
            Observation::Probed { probe, latency, ending, .. } => {
                let samples = self.counts.probes.entry(*probe).or_default();
                *match ending {
                    it if it.is_success() => &mut samples.succeeded,
                    it if it.is_unknown() => &mut samples.unknown,
                    _ => &mut samples.failed,
                } += 1;
                samples.latency = samples.latency + *latency;
            }
            Observation::Invoked { history, operation, call, .. } => {
                self.invoked.insert((*history, *operation), (call.kind(), now));
            }
            Observation::Concluded { history, operation, completion } => {
                let Some((kind, since)) = self.invoked.remove(&(*history, *operation)) else { return };
                let of_history = self.counts.operations.entry(*history).or_default();
                let samples = of_history.entry(kind.to_owned()).or_default();
                *match completion {
                    Completion::Ok(_) => &mut samples.succeeded,
                    Completion::Failed(_) => &mut samples.failed,
                    Completion::Unknown(_) | Completion::Broken(_) => &mut samples.unknown,
                } += 1;
                samples.latency = samples.latency + now.since(since);
            }
            _ => {}
        }
    }
}

/// Returns the index of a kind. Kinds are declared in the order of [`FactKind::OF_PROCESSES`], followed by
/// the supervisor's.
fn slot(kind: FactKind) -> Option<usize> {
    let slot = kind as usize;
    (FactKind::OF_PROCESSES.get(slot) == Some(&kind)).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::{Attempt, Cause, Ending, MessageId, ProcessId, Vectors};

    #[test]
    fn every_kind_of_process_has_a_slot() {
        for (index, kind) in FactKind::OF_PROCESSES.into_iter().enumerate() {
            assert_eq!(slot(kind), Some(index));
        }
        assert_eq!(slot(FactKind::Begun), None);
    }

    #[test]
    fn lost_work_is_counted_from_the_restored_checkpoint() {
        let mut meter = Meter::default();
        let mut claim = |at, claim| meter.count(Time(at), &Fact::Claim(Box::new(claim)));
        for (at, sn, forced) in [(100, 1, false), (200, 2, true)] {
            claim(
                at,
                Claim::Committed {
                    position: Position::new(0, sn),
                    attempt: Attempt(1),
                    forced,
                    frozen: Span(5),
                    vectors: Vectors::default().into(),
                },
            );
        }
        claim(
            260,
            Claim::RolledBack {
                to: Position::new(1, 1),
                checkpoint: Position::new(0, 1),
                cause: Cause::Failure,
                vectors: Vectors::default().into(),
            },
        );
        let id =
            MessageId { from: ProcessId(0), to: ProcessId(1), incarnation: Default::default(), number: 0 };
        meter.count(Time(300), &Fact::Sent { id, bytes: 8 });
        let mut counts = meter.counts;
        assert_eq!((counts.lost, counts.frozen, counts.forced), (Span(160), Span(10), 1));
        counts.add(&counts.clone());
        assert_eq!(counts.of(FactKind::CheckpointCommitted), 4);
        assert_eq!(counts.of(FactKind::Sent), 2);
        assert_eq!(counts.of(FactKind::Begun), 0);
    }

    #[test]
    fn operations_are_counted_by_history_kind_and_result() {
        use faultline_core::operation::{Answer, Call, Key};
        let mut meter = Meter::default();
        let mut count = |at, it: Observation| meter.count(Time(at), &Fact::Observed(it.into()));
        let history = HistoryNo(1);
        let completions = [
            Completion::Ok(Answer::Null),
            Completion::Failed("down".into()),
            Completion::Unknown("late".into()),
        ];
        for (operation, completion) in (0..).zip(completions) {
            let call = Call::Read(Key(0));
            count(10, Observation::Invoked { history, client: 0, session: 1, operation, call });
            count(15, Observation::Concluded { history, operation, completion });
        }
        count(20, Observation::Concluded { history, operation: 9, completion: Completion::Ok(Answer::Null) });
        let mut counts = meter.counts.clone();
        counts.add(&meter.counts);
        let expected = Samples { succeeded: 2, failed: 2, unknown: 2, latency: Span(30) };
        assert_eq!(counts.operations[&history], [("read".to_owned(), expected)].into());
    }

    #[test]
    fn samples_are_counted_by_probe_and_result() {
        let mut meter = Meter::default();
        for (sample, (probe, ending)) in (0..).zip([
            (0, Ending::Exit(0)),
            (0, Ending::TimedOut),
            (0, Ending::Exit(0)),
            (1, Ending::Exit(75)),
            (1, Ending::Http(500)),
        ]) {
            let probed = Observation::Probed {
                probe: ProbeNo(probe),
                sample,
                latency: Span::from_millis(3),
                ending,
                said: "".into(),
            };
            meter.count(Time(1), &Fact::Observed(probed.into()));
        }
        let mut counts = meter.counts.clone();
        counts.add(&meter.counts);
        let first = Samples { succeeded: 4, failed: 2, unknown: 0, latency: Span::from_millis(18) };
        assert_eq!(counts.probes[&ProbeNo(0)], first);
        let second = Samples { succeeded: 0, failed: 2, unknown: 2, latency: Span::from_millis(12) };
        assert_eq!(counts.probes[&ProbeNo(1)], second);
    }
}
