//! The parts of a group's checkpoints that remain after a failure.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faultline_core::{ImageName, ProcessId};

use super::Checkpoint;

/// The available parts of one checkpoint, by owner. Each entry contains the part's header and the processes that have
/// the part, in the order in which they answered.
pub(crate) type Parts<H> = BTreeMap<ProcessId, (H, Vec<ProcessId>)>;

/// The parts that members and holders of a group report during a recovery. `H` is the header of a part, which the
/// protocol knows without reading the part.
#[derive(Clone, Debug)]
pub(crate) struct Survey<H> {
    checkpoints: BTreeMap<Checkpoint, Parts<H>>,
}

impl<H> Default for Survey<H> {
    fn default() -> Self {
        Survey { checkpoints: BTreeMap::new() }
    }
}

impl<H> Survey<H> {
    /// Adds a part that is durable at `at`.
    pub(crate) fn add(&mut self, at: ProcessId, part: ImageName, head: H) {
        let parts = self.checkpoints.entry(part.into()).or_default();
        parts.entry(part.owner).or_insert_with(|| (head, Vec::new())).1.push(at);
    }

    /// Returns whether no part remains.
    pub(crate) fn is_empty(&self) -> bool {
        self.checkpoints.is_empty()
    }

    /// Iterates over all checkpoints with at least one remaining part, in ascending order.
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = (Checkpoint, &Parts<H>)> {
        self.checkpoints.iter().map(|(&checkpoint, parts)| (checkpoint, parts))
    }

    /// Iterates over the checkpoints for which every member's part still exists, in ascending order. It does not matter
    /// whether they are committed or in doubt: a commit waits until every part is durable, so a committed checkpoint is
    /// complete unless a loss has made it incomplete.
    pub(crate) fn complete(
        &self,
        members: &[ProcessId],
    ) -> impl DoubleEndedIterator<Item = (Checkpoint, &Parts<H>)> {
        self.all().filter(|(_, parts)| members.iter().all(|member| parts.contains_key(member)))
    }

    /// Returns the remaining parts of a checkpoint.
    ///
    /// # Panics
    ///
    /// Panics if no part of the checkpoint exists.
    pub(crate) fn parts(&self, checkpoint: Checkpoint) -> &Parts<H> {
        &self.checkpoints[&checkpoint]
    }

    /// Iterates over those parts of a checkpoint that their owners lack, each with the first process that reported
    /// having it.
    pub(crate) fn sources(&self, checkpoint: Checkpoint) -> impl Iterator<Item = (ImageName, ProcessId)> {
        let parts = self.checkpoints.get(&checkpoint).into_iter().flatten();
        parts
            .filter(|(owner, (_, at))| !at.contains(owner))
            .map(move |(&owner, (_, at))| (checkpoint.part(owner), at[0]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::name;
    use super::*;

    const MEMBERS: [ProcessId; 2] = [ProcessId(1), ProcessId(2)];

    fn survey(parts: &[(u32, (u32, u32))]) -> Survey<()> {
        let mut survey = Survey::default();
        for &(at, (owner, sn)) in parts {
            survey.add(ProcessId(at), name(owner, sn), ());
        }
        survey
    }

    #[test]
    fn a_checkpoint_is_complete_with_the_parts_of_all_members() {
        let survey = survey(&[(1, (1, 1)), (3, (2, 1)), (1, (1, 2)), (2, (1, 2)), (2, (2, 3)), (1, (1, 3))]);
        let complete: Vec<_> = survey.complete(&MEMBERS).map(|(it, _)| it.position.sn.0).collect();
        assert_eq!(complete, [1, 3]);
        assert_eq!(survey.all().count(), 3);
    }

    #[test]
    fn a_lost_part_comes_from_the_first_process_that_has_it() {
        let survey = survey(&[(3, (2, 1)), (4, (2, 1)), (1, (1, 1)), (3, (1, 1))]);
        let sources: Vec<_> = survey.sources(name(1, 1).into()).collect();
        assert_eq!(sources, [(name(2, 1), ProcessId(3))]);
    }

    #[test]
    fn parts_of_different_attempts_are_not_combined() {
        let other = ImageName { attempt: faultline_core::Attempt(2), ..name(2, 1) };
        let mut survey = survey(&[(1, (1, 1))]);
        survey.add(ProcessId(2), other, ());
        assert_eq!(survey.complete(&MEMBERS).count(), 0);
    }
}
