//! A member's part of a checkpoint that drains the channels inside the group.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Claim, Host, Image, ImageName, ProcessId, Protocol, Snapshot, Time};

use super::group::{Group, Grouped};
use super::{Checkpoint, Replication, Requires};

/// A member's part of the checkpoint in progress, from the request to the commit. Between its cut and the commit, a
/// member sends nothing. Messages that arrive from other members are *late*: they were sent before their senders' cuts,
/// and belong to the checkpoint. The part is written once all late messages have arrived. `L` is the type of a late
/// message.
#[derive(Clone, Debug)]
pub(crate) struct Draining<P: Grouped, L> {
    checkpoint: Checkpoint,
    since: Time,
    /// The saved state, once the application has returned it.
    cut: Option<(Snapshot, P::Saved, Arc<P::Head>)>,
    /// Number of messages from the group that belong to the part, once the coordinator has counted them.
    expected: Option<u64>,
    late: Vec<L>,
    written: Option<Replication<P>>,
}

impl<P: Grouped + Protocol, L: Clone> Draining<P, L> {
    /// Freezes the application, and requests its state.
    pub(crate) fn begin(checkpoint: Checkpoint, now: Time, host: &mut dyn Host<P>) -> Self {
        host.request_snapshot();
        Draining { checkpoint, since: now, cut: None, expected: None, late: Vec::new(), written: None }
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.checkpoint
    }

    /// Returns whether the state has been saved. If so, the part does not include the application's later actions.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Returns the protocol's saved state; `None` until the application has returned its own state.
    pub(crate) fn saved(&self) -> Option<&P::Saved> {
        self.cut.as_ref().map(|(_, saved, _)| saved)
    }

    /// Adds a message from the group that arrived after the request.
    pub(crate) fn add_late(&mut self, late: L) {
        self.late.push(late);
    }

    /// Handles the snapshot, which follows all earlier sends of the application.
    pub(crate) fn cut(&mut self, snapshot: Snapshot, saved: P::Saved, head: P::Head) {
        assert!(self.cut.is_none(), "the application returns its state once");
        self.cut = Some((snapshot, saved, Arc::new(head)));
    }

    /// Learns how many messages from the group belong to the part.
    pub(crate) fn expect(&mut self, count: u64) {
        self.expected = Some(count);
    }

    /// Writes the part, locally and at its holders, unless messages are missing. `received` is the number of messages
    /// from the group that the saved state contains, and `whole` adds the late messages to that state. Call this after
    /// each of the methods above.
    pub(crate) fn maybe_write(
        &mut self,
        group: &mut Group<P>,
        received: u64,
        rules: DrainRules,
        whole: impl FnOnce(P::Saved, Vec<L>) -> P::Saved,
        host: &mut dyn Host<P>,
    ) {
        let (Some((snapshot, saved, head)), Some(expected), None) = (&self.cut, self.expected, &self.written)
        else {
            return;
        };
        let arrived = received + self.late.len() as u64;
        if arrived < expected && rules.waits {
            return;
        }
        assert!(arrived <= expected || !rules.is_sound, "no member sends between its cut and the commit");
        let late = if rules.drains { self.late.clone() } else { Vec::new() };
        let image = Image {
            name: self.checkpoint.part(group.me),
            head: head.clone(),
            saved: Arc::new(whole(saved.clone(), late)),
            snapshot: snapshot.clone(),
        };
        let Group { holders, store, .. } = group;
        let requires = rules.requires;
        self.written = Some(Replication::begin(image.into(), holders, requires, &mut store.writes, host));
    }

    /// Records that an image is durable in this process's storage.
    pub(crate) fn durable(&mut self, name: ImageName) {
        if let Some(written) = &mut self.written {
            written.durable(name);
        }
    }

    /// Handles a holder's confirmation.
    pub(crate) fn confirmed(&mut self, holder: ProcessId, name: ImageName) {
        if let Some(written) = &mut self.written {
            written.confirmed(holder, name);
        }
    }

    /// Handles a new life of a holder, whose replica may not have arrived, or may be lost.
    pub(crate) fn repeat(&mut self, holder: ProcessId, host: &mut dyn Host<P>) {
        if let Some(written) = &mut self.written {
            written.repeat(holder, host);
        }
    }

    /// Sends the part again to the holders that have not confirmed it.
    pub(crate) fn repeat_to_awaited(&self, host: &mut dyn Host<P>) {
        if let Some(written) = &self.written {
            written.repeat_to_awaited(host);
        }
    }

    /// Returns whether the part has just become durable, locally and at its holders. Call this after each of the
    /// methods above.
    pub(crate) fn completes(&mut self) -> bool {
        self.written.as_mut().is_some_and(Replication::completes)
    }

    /// Returns the member's claim that it discards the checkpoint.
    pub(crate) fn aborted(&self) -> Claim {
        let Checkpoint { position, attempt } = self.checkpoint;
        Claim::Aborted { position, attempt }
    }

    /// Handles the commit. Returns the member's claim, and the late messages, which can now be received.
    pub(crate) fn commit(self, rules: DrainRules, now: Time) -> (Claim, Vec<L>) {
        assert!(
            self.written.is_some() || !rules.is_sound,
            "a checkpoint is committed once all parts are durable"
        );
        let Checkpoint { position, attempt } = self.checkpoint;
        let (frozen, vectors) = (now.since(self.since), Arc::default());
        (Claim::Committed { position, attempt, forced: false, frozen, vectors }, self.late)
    }
}

/// The rules of the sub-machine. Tests can disable each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainRules {
    /// A part contains the messages that were in transit.
    pub(crate) drains: bool,
    /// A part is written only once all messages in transit have arrived.
    pub(crate) waits: bool,
    /// The conditions under which a part counts as durable.
    pub(crate) requires: Requires,
    /// Whether the protocol obeys all its rules, and therefore keeps its invariants.
    pub(crate) is_sound: bool,
}

#[cfg(test)]
mod tests {
    use faultline_core::{Attempt, Position, Witness};

    use super::super::logs::tests::{Act, Actions, Talk, group};
    use super::*;

    const RULES: DrainRules = DrainRules {
        drains: true,
        waits: true,
        requires: Requires { own: true, replicas: false },
        is_sound: true,
    };

    #[test]
    fn a_part_is_written_once_all_late_messages_have_arrived() {
        let (mut group, mut host) = (group(), Actions::default());
        let checkpoint = Checkpoint { position: Position::new(0, 1), attempt: Attempt(1) };
        let mut part = Draining::<Talk, u32>::begin(checkpoint, Time::ZERO, &mut host);
        assert_eq!(host.take(), [Act::Snapshot]);
        let snapshot =
            Snapshot { witness: Witness::default(), channels: Arc::from([]), application: Arc::from([]) };
        part.cut(snapshot, Default::default(), Default::default());
        part.expect(3);
        part.add_late(7);
        part.maybe_write(&mut group, 1, RULES, |saved, _| saved, &mut host);
        assert_eq!(host.take(), [], "one message is missing");
        part.add_late(8);
        part.maybe_write(
            &mut group,
            1,
            RULES,
            |saved, late| {
                assert_eq!(late, [7, 8]);
                saved
            },
            &mut host,
        );
        let name = checkpoint.part(group.me);
        assert_eq!(host.take(), [Act::Persist(name)]);
        assert!(!part.completes());
        part.durable(name);
        assert!(part.completes() && !part.completes(), "a part completes once");
        let (claim, late) = part.commit(RULES, Time::ZERO);
        assert!(matches!(claim, Claim::Committed { position, .. } if position == checkpoint.position));
        assert_eq!(late, [7, 8], "late messages can be received now");
    }
}
