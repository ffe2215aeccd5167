//! A member's part of a checkpoint that drains the channels inside the group.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Claim, Host, Image, ImageName, ProcessId, Snapshot, Time};

use super::group::Group;
use super::logs::{Head, Late, Logging, Saved};
use super::{Checkpoint, Replication, Requires};

/// A member's part of the checkpoint in progress, from the request to the commit. Between its cut and the commit, a
/// member sends nothing. Messages that arrive from other members are *late*: they were sent before their senders' cuts,
/// and belong to the checkpoint. The part is written once all late messages have arrived.
#[derive(Clone, Debug)]
pub(crate) struct Draining<P: Logging> {
    checkpoint: Checkpoint,
    since: Time,
    part: Part<P>,
    /// Number of messages from the group that belong to the part, once the coordinator has counted them.
    expected: Option<u64>,
    late: Vec<Late<P::Tag>>,
    rules: DrainRules,
}

#[derive(Clone, Debug)]
enum Part<P: Logging> {
    /// The application has not returned its state.
    Requested,
    /// Late messages are missing.
    Cut(Box<(Snapshot, P::Saved, Head)>),
    Written(Replication<P>),
}

impl<P: Logging> Draining<P> {
    /// Freezes the application, and requests its state.
    pub(crate) fn begin(
        checkpoint: Checkpoint,
        rules: DrainRules,
        now: Time,
        host: &mut dyn Host<P>,
    ) -> Self {
        host.request_snapshot();
        Draining { checkpoint, since: now, part: Part::Requested, expected: None, late: Vec::new(), rules }
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.checkpoint
    }

    /// Returns whether the state has been saved. If so, the part does not include the application's later actions.
    pub(crate) fn is_cut(&self) -> bool {
        !matches!(self.part, Part::Requested)
    }

    /// Returns the protocol's saved state; `None` until the application has returned its own state.
    pub(crate) fn saved(&self) -> Option<&Saved<P::Tag, P::State>> {
        match &self.part {
            Part::Requested => None,
            Part::Cut(cut) => Some(&cut.1),
            Part::Written(written) => Some(&written.image().saved),
        }
    }

    /// Adds a message from the group that arrived after the request.
    pub(crate) fn add_late(&mut self, late: Late<P::Tag>) {
        self.late.push(late);
    }

    /// Handles the snapshot, which follows all earlier sends of the application.
    pub(crate) fn cut(&mut self, snapshot: Snapshot, saved: Saved<P::Tag, P::State>, head: Head) {
        assert!(!self.is_cut(), "the application returns its state once");
        self.part = Part::Cut(Box::new((snapshot, saved, head)));
    }

    /// Learns how many messages from the group belong to the part.
    pub(crate) fn expect(&mut self, count: u64) {
        self.expected = Some(count);
    }

    /// Writes the part, locally and at its holders, unless messages are missing. `received` is the number of messages
    /// from the group that the saved state contains. Call this after each of the methods above.
    pub(crate) fn maybe_write(&mut self, group: &mut Group<P>, received: u64, host: &mut dyn Host<P>) {
        let (Part::Cut(_), Some(expected)) = (&self.part, self.expected) else { return };
        let arrived = received + self.late.len() as u64;
        if arrived < expected && self.rules.waits {
            return;
        }
        assert!(
            arrived <= expected || !self.rules.is_sound,
            "no member sends between its cut and the commit"
        );
        let Part::Cut(cut) = core::mem::replace(&mut self.part, Part::Requested) else { return };
        let (snapshot, mut saved, head) = *cut;
        if self.rules.drains {
            saved.late.clone_from(&self.late);
        }
        let name = self.checkpoint.part(group.me);
        let image = Image { name, head: Arc::new(head), saved: Arc::new(saved), snapshot };
        let Group { holders, store, .. } = group;
        let written = Replication::begin(image.into(), holders, Requires::ALL, &mut store.writes, host);
        self.part = Part::Written(written);
    }

    fn written(&mut self) -> Option<&mut Replication<P>> {
        match &mut self.part {
            Part::Written(written) => Some(written),
            _ => None,
        }
    }

    /// Records that an image is durable in this process's storage.
    pub(crate) fn durable(&mut self, name: ImageName) {
        if let Some(written) = self.written() {
            written.durable(name);
        }
    }

    /// Handles a holder's confirmation.
    pub(crate) fn confirmed(&mut self, holder: ProcessId, name: ImageName) {
        if let Some(written) = self.written() {
            written.confirmed(holder, name);
        }
    }

    /// Handles a new life of a holder, whose replica may not have arrived, or may be lost.
    pub(crate) fn repeat(&mut self, holder: ProcessId, host: &mut dyn Host<P>) {
        if let Some(written) = self.written() {
            written.repeat(holder, host);
        }
    }

    /// Sends the part again to the holders that have not confirmed it.
    pub(crate) fn repeat_to_awaited(&self, host: &mut dyn Host<P>) {
        if let Part::Written(written) = &self.part {
            written.repeat_to_awaited(host);
        }
    }

    /// Returns whether the part has just become durable, locally and at its holders. Call this after each of the
    /// methods above.
    pub(crate) fn completes(&mut self) -> bool {
        self.written().is_some_and(Replication::completes)
    }

    /// Returns the member's claim that it discards the checkpoint.
    pub(crate) fn aborted(&self) -> Claim {
        self.checkpoint.aborted()
    }

    /// Handles the commit. Returns the member's claim, and the late messages, which can now be received.
    pub(crate) fn commit(self, now: Time) -> (Claim, Vec<Late<P::Tag>>) {
        let Draining { checkpoint, since, part, late, rules, .. } = self;
        let is_written = matches!(part, Part::Written(_));
        assert!(is_written || !rules.is_sound, "a checkpoint is committed once all parts are durable");
        (checkpoint.committed(now.since(since)), late)
    }
}

/// The rules of the sub-machine. Tests can disable each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainRules {
    /// A part contains the messages that were in transit.
    pub(crate) drains: bool,
    /// A part is written only once all messages in transit have arrived.
    pub(crate) waits: bool,
    /// Whether the protocol obeys all its rules, and therefore keeps its invariants.
    pub(crate) is_sound: bool,
}

impl DrainRules {
    /// All rules are obeyed.
    pub(crate) const ALL: DrainRules = DrainRules { drains: true, waits: true, is_sound: true };
}

#[cfg(test)]
mod tests {
    use faultline_core::{Attempt, Incarnation, MessageId, Payload, Position, Witness};

    use super::super::logs::tests::{Act, Actions, ME, PEER, Talk, group};
    use super::*;

    fn late(number: u32) -> Late<()> {
        let id = MessageId { from: PEER, to: ME, incarnation: Incarnation(0), number };
        Late { id, tag: (), payload: Payload::Virtual(1) }
    }

    #[test]
    fn a_part_is_written_once_all_late_messages_have_arrived() {
        let (mut group, mut host) = (group(), Actions::default());
        let checkpoint = Checkpoint { position: Position::new(0, 1), attempt: Attempt(1) };
        let mut part = Draining::<Talk>::begin(checkpoint, DrainRules::ALL, Time::ZERO, &mut host);
        assert_eq!(host.take(), [Act::Snapshot]);
        let snapshot =
            Snapshot { witness: Witness::default(), channels: Arc::from([]), application: Arc::from([]) };
        part.cut(snapshot, Default::default(), Default::default());
        part.expect(3);
        part.add_late(late(7));
        part.maybe_write(&mut group, 1, &mut host);
        assert_eq!(host.take(), [], "one message is missing");
        part.add_late(late(8));
        part.maybe_write(&mut group, 1, &mut host);
        assert_eq!(part.saved().unwrap().late, [late(7), late(8)]);
        let name = checkpoint.part(group.me);
        assert_eq!(host.take(), [Act::Persist(name)]);
        assert!(!part.completes());
        part.durable(name);
        assert!(!part.completes(), "its holder has not confirmed the replica");
        part.confirmed(PEER, name);
        assert!(part.completes() && !part.completes(), "a part completes once");
        let (claim, received) = part.commit(Time::ZERO);
        assert!(matches!(claim, Claim::Committed { position, .. } if position == checkpoint.position));
        assert_eq!(received, [late(7), late(8)], "late messages can be received now");
    }
}
