//! Flipped bits that may have reached the result of a run.

use std::collections::BTreeSet;

use faultline_core::fact::Flipped;
use faultline_core::{Fact, ImageName, MessageId, ProcessId};

use crate::history::History;

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
    /// Returns a flipped bit that may have reached the result; `None` if rollbacks have undone all flipped bits, or digests
    /// reveal them.
    ///
    /// If re-execution repeats messages, a rollback undoes no flipped bit for certain: other processes keep the messages
    /// that depend on it.
    pub fn silently_corrupted(&self) -> Option<Corruption> {
        let may_last = |at| self.survives(at) || self.context.repeats();
        let mut copies: BTreeSet<ImageName> = BTreeSet::new();
        for &(at, flipped) in &self.flips {
            match flipped {
                Flipped::Message(id) if may_last(at) => return Some(Corruption::Delivered(id)),
                Flipped::State if may_last(at) => return Some(Corruption::Continued(self.process_of(at))),
                Flipped::Copy { name, is_checked: false } => _ = copies.insert(name),
                _ => {}
            }
        }
        if copies.is_empty() {
            return None;
        }
        let mut facts = self.trace.streams.values().flatten();
        facts.find_map(|(_, fact)| match fact {
            Fact::Restored(restored) => {
                restored.0.filter(|name| copies.contains(name)).map(Corruption::Restored)
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, p};

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
    fn a_rollback_undoes_no_flipped_bit_if_messages_are_repeated() {
        let mut run = run();
        run.context.promises = run.context.promises.with(&[faultline_core::Promise::Repetition]);
        run.restore(0, 1, Some((0, 1)));
        assert_eq!(run.history().silently_corrupted(), Some(Corruption::Continued(p(0))));
    }
}
