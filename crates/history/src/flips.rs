//! Flipped bits that may have reached the result of a run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use faultline_core::fact::Flipped;
use faultline_core::{Fact, FaultNo, ImageName, Life, MessageId, ProcessId};

use crate::history::History;
use crate::segments::Point;

/// How a flipped bit may have reached the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// A part was restored although a stored copy of it had a flipped bit that no digest reveals. The process may have
    /// restored another copy.
    Restored(ImageName),
    /// An application received a message with a flipped bit.
    Delivered(MessageId),
    /// A bit of the state of this process's application was flipped.
    Continued(ProcessId),
}

impl History<'_> {
    /// Returns the faults that flipped a bit, each with the fact that reports the bit. Each fault flips a bit of its own, in
    /// the order of the faults. The end of a life undoes the orders to flip bits that were still to be carried out.
    pub fn flipped_by(&self) -> BTreeMap<FaultNo, (Point, Flipped)> {
        let mut reported = BTreeMap::<_, VecDeque<(Point, Flipped)>>::new();
        for &(at, flipped) in &self.flips {
            let segment = self.segment(at.segment);
            reported
                .entry((segment.host, segment.life, flipped.target()))
                .or_default()
                .push_back((at, flipped));
        }
        let (mut lives, mut found) = (BTreeMap::new(), BTreeMap::new());
        if reported.is_empty() {
            return found;
        }
        for (_, fact) in self.trace.supervisor() {
            match fact {
                Fact::LifeStarted { process, life, .. } => _ = lives.insert(*process, *life),
                Fact::Injecting { no, fault } => {
                    let Some((process, target)) = fault.flips() else { continue };
                    let life = lives.get(&process).copied().unwrap_or(Life(1));
                    let bits = reported.get_mut(&(process, life, target));
                    found.extend(bits.and_then(VecDeque::pop_front).map(|bit| (*no, bit)));
                }
                _ => {}
            }
        }
        found
    }

    /// Returns a flipped bit that may have reached the result; `None` if rollbacks have undone all flipped bits, or digests
    /// reveal them. A restored copy comes first, because it may have reached even a result that is right.
    ///
    /// If re-execution repeats messages, a rollback undoes no flipped bit for certain: other processes keep the messages
    /// that depend on it.
    pub fn silently_corrupted(&self) -> Option<Corruption> {
        let restored = self.restored_with_flipped_bit().map(Corruption::Restored);
        restored.or_else(|| {
            let may_last = |at| self.survives(at) || self.context.repeats();
            self.flips.iter().find_map(|&(at, flipped)| match flipped {
                Flipped::Message(id) if may_last(at) => Some(Corruption::Delivered(id)),
                Flipped::State if may_last(at) => Some(Corruption::Continued(self.process_of(at))),
                _ => None,
            })
        })
    }

    fn restored_with_flipped_bit(&self) -> Option<ImageName> {
        let copies = self.flips.iter().filter_map(|(_, flipped)| match flipped {
            Flipped::Copy { name, is_checked: false } => Some(*name),
            _ => None,
        });
        let copies: BTreeSet<ImageName> = copies.collect();
        if copies.is_empty() {
            return None;
        }
        let mut facts = self.trace.streams.values().flatten();
        facts.find_map(|(_, fact)| match fact {
            Fact::Restored(restored) => restored.0.filter(|name| copies.contains(name)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, p};
    use faultline_core::Fault;
    use faultline_core::fault::{Flip, FlipTarget, Impairment};

    /// p0 saves its state, and a bit of its state is flipped afterwards.
    fn run() -> Run {
        let mut run = Run::new(&[&[0], &[1]]);
        run.commit_all(0, &[0]);
        run.state(0, Fact::Flipped(Flipped::State));
        run
    }

    #[test]
    fn a_rollback_undoes_a_flipped_bit() {
        let mut run = run();
        assert_eq!(run.history().silently_corrupted(), Some(Corruption::Continued(p(0))));
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(run.history().silently_corrupted(), None);
    }

    #[test]
    fn a_checkpoint_preserves_a_flipped_bit() {
        let mut run = run();
        run.commit_all(0, &[0]);
        run.restore(0, 1, Some((0, 2)));
        assert_eq!(run.history().silently_corrupted(), Some(Corruption::Continued(p(0))));
    }

    #[test]
    fn each_fault_flips_a_bit_of_its_own_in_its_life() {
        let mut run = Run::new(&[&[0], &[1]]);
        let inject = |run: &mut Run, no: u32| {
            let how = Impairment::Flip(Flip { target: FlipTarget::State, bit: 0 });
            let fault = Box::new(Fault::Impair { process: p(0), how, span: None });
            run.supervisor(Fact::Injecting { no: FaultNo(no), fault });
        };
        let effective = |run: &Run| run.history().flipped_by().into_keys().map(|it| it.0).collect::<Vec<_>>();
        inject(&mut run, 0);
        inject(&mut run, 1);
        assert_eq!(effective(&run), [0; 0]);
        run.state(0, Fact::Flipped(Flipped::State));
        assert_eq!(effective(&run), [0], "the second bit was never flipped");
        run.kill(0, false);
        inject(&mut run, 2);
        run.state(0, Fact::Flipped(Flipped::State));
        assert_eq!(effective(&run), [0, 2], "the crash undid the order to flip the second bit");
    }

    #[test]
    fn a_restored_copy_comes_before_a_state() {
        let mut run = run();
        let name = run.image(0, 0, 1);
        run.state(0, Fact::Flipped(Flipped::Copy { name, is_checked: false }));
        run.restore(0, 1, Some((0, 1)));
        run.state(0, Fact::Flipped(Flipped::State));
        assert_eq!(run.history().silently_corrupted(), Some(Corruption::Restored(name)));
    }

    #[test]
    fn a_rollback_undoes_no_flipped_bit_if_messages_are_repeated() {
        let mut run = run();
        run.context.promises = run.context.promises.with(&[faultline_core::Promise::Repetition]);
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(run.history().silently_corrupted(), Some(Corruption::Continued(p(0))));
    }
}
