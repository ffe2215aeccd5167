//! A member that is paused while a checkpoint of its group is taken.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Claim, Counters, Host, Image, ImageName, MessageId, Payload, Position, ProcessId, Protocol, Snapshot,
    Time,
};
use serde::{Deserialize, Serialize};

use super::gathering::Counts;
use super::group::{Group, Grouped, Resumed};
use super::{Checkpoint, Replication, Requires};

/// The stamp of a message: the interval between two checkpoints in which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval(pub Position);

impl faultline_core::Stamp for Interval {
    fn position(&self) -> Position {
        self.0
    }
}

/// Messages in transit to a member while its part of a checkpoint was taken: sent before their senders saved their
/// states, and received after the member was asked for its own.
pub type InTransit = Vec<(MessageId, Payload)>;

/// A member that is frozen from the request for a checkpoint to its commit:
///
/// * It saves the state of its application. Messages that arrive after the request are kept, and become part of the
///   checkpoint.
/// * Once all messages that had been sent to it have arrived, it writes its part, locally and at its holders.
/// * At the commit, it delivers the messages that were in transit, transmits those that the application sent in the
///   meantime, and resumes.
///
/// Messages belong to the incarnation and the interval in which they were sent. Those from an older incarnation are
/// dropped; those from a later interval wait until this member has reached it.
#[derive(Clone, Debug)]
pub(crate) struct Frozen<P: Grouped> {
    /// Current incarnation, and SN of the last committed or restored checkpoint.
    position: Position,
    part: Option<Box<Part<P>>>,
    /// Number of messages sent to each member since the last rollback.
    sent: Counters,
    /// Number of messages received since the last rollback.
    received: u64,
    /// Messages from members that are in a later interval or incarnation.
    early: Vec<(MessageId, Interval, Payload)>,
    /// Messages that the application sent after its state was saved.
    unsent: Vec<(MessageId, Payload)>,
    rules: FrozenRules,
}

/// The rules of the sub-machine. Tests can disable each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrozenRules {
    /// A part contains the messages that were in transit.
    pub(crate) drains: bool,
    /// Messages from an older incarnation are dropped.
    pub(crate) drops_old: bool,
    /// Messages in transit at a checkpoint are delivered after its commit.
    pub(crate) delivers_late: bool,
    /// Messages that the application sends after its state is saved are transmitted after the commit.
    pub(crate) transmits_unsent: bool,
    /// The count of sent messages is reset after a rollback.
    pub(crate) resets_sent: bool,
    /// A part is written only once the last message in transit has arrived.
    pub(crate) awaits_last: bool,
    /// A message sent after a rollback waits until its receiver has rolled back.
    pub(crate) waits_for_rollback: bool,
    /// Whether the protocol obeys all its rules, and therefore keeps its invariants.
    pub(crate) is_sound: bool,
    /// Messages from a later interval are held until this member reaches that interval.
    pub(crate) keeps_early: bool,
    /// The conditions under which a part counts as durable.
    pub(crate) requires: Requires,
}

/// This member's part of the checkpoint in progress.
#[derive(Clone, Debug)]
struct Part<P: Grouped> {
    checkpoint: Checkpoint,
    since: Time,
    saved: Option<Snapshot>,
    /// Number of messages sent to this member between the last rollback and the checkpoint, once this number is known.
    expected: Option<u64>,
    in_transit: InTransit,
    written: Option<Replication<P>>,
}

impl<P> Frozen<P>
where
    P: Grouped + Protocol<Stamp = Interval, Head = (), Saved = InTransit>,
{
    pub(crate) fn new(rules: FrozenRules) -> Frozen<P> {
        Frozen {
            position: Position::default(),
            part: None,
            sent: Counters::default(),
            received: 0,
            early: Vec::new(),
            unsent: Vec::new(),
            rules,
        }
    }

    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Returns whether a checkpoint is being taken.
    pub(crate) fn is_checkpointing(&self) -> bool {
        self.part.is_some()
    }

    /// Handles a message that the application sent.
    pub(crate) fn sent(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<P>) {
        if self.part.as_ref().is_some_and(|part| part.saved.is_some()) {
            self.unsent.push((id, payload));
        } else {
            *self.sent.get_mut(id.to) += 1;
            host.transmit(id, Interval(self.position), payload);
        }
    }

    /// Handles a message from the network.
    pub(crate) fn arrived(
        &mut self,
        group: &Group<P>,
        id: MessageId,
        interval: Interval,
        payload: Payload,
        host: &mut dyn Host<P>,
    ) {
        let Position { incarnation, sn } = interval.0;
        if incarnation < self.position.incarnation && self.rules.drops_old {
            host.drop_stale(id);
            return;
        }
        let is_newer = incarnation > self.position.incarnation && self.rules.waits_for_rollback;
        if group.is_recovering() || is_newer || sn > self.position.sn {
            if self.rules.keeps_early || group.is_recovering() {
                self.early.push((id, interval, payload));
            }
            return;
        }
        let is_drained = sn == self.position.sn;
        assert!(
            is_drained || !self.rules.is_sound,
            "{id:?} of interval {interval:?} arrives in {:?}: a checkpoint waits for what was sent before it",
            self.position
        );
        self.received += 1;
        match &mut self.part {
            Some(part) => part.in_transit.push((id, payload)),
            None => host.deliver(id, payload),
        }
    }

    /// Freezes the application, and requests its state. Ignores a request that a rollback has invalidated.
    pub(crate) fn request(
        &mut self,
        group: &Group<P>,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<P>,
    ) {
        let next = Position { sn: self.position.sn.next(), ..self.position };
        if checkpoint.position != next || group.is_recovering() {
            return;
        }
        assert!(self.part.is_none(), "the previous checkpoint is committed or discarded");
        self.part = Some(Box::new(Part {
            checkpoint,
            since: now,
            saved: None,
            expected: None,
            in_transit: InTransit::new(),
            written: None,
        }));
        host.request_snapshot();
    }

    /// Handles the snapshot, which follows all earlier sends of the application. Returns the checkpoint, and how many
    /// messages this member had sent before it.
    pub(crate) fn saved(&mut self, snapshot: Snapshot) -> Option<(Checkpoint, Counts)> {
        let part = self.part.as_mut()?;
        part.saved = Some(snapshot);
        let sent = self.sent.iter().map(|(to, count)| (to, u64::from(count))).collect();
        Some((part.checkpoint, sent))
    }

    /// Learns how many messages had been sent to each member before the checkpoint.
    pub(crate) fn expect(&mut self, me: ProcessId, checkpoint: Checkpoint, counts: &[(ProcessId, u64)]) {
        if let Some(part) = self.part.as_mut().filter(|part| part.checkpoint == checkpoint) {
            let own = counts.iter().find(|&&(receiver, _)| receiver == me);
            part.expected = Some(own.map_or(0, |&(_, count)| count));
        }
    }

    /// Writes this member's part once no message is in transit to this member. Call this after each change.
    pub(crate) fn maybe_write(&mut self, group: &mut Group<P>, host: &mut dyn Host<P>) {
        let Some(part) = &mut self.part else { return };
        let (Some(snapshot), Some(expected), None) = (&part.saved, part.expected, &part.written) else {
            return;
        };
        let awaited = expected.saturating_sub(u64::from(!self.rules.awaits_last));
        if self.received < awaited && self.rules.drains {
            return;
        }
        assert!(
            self.received == expected || !self.rules.is_sound,
            "{} messages arrived, {expected} were sent: no process sends while a checkpoint is being taken",
            self.received
        );
        let saved = if self.rules.drains { part.in_transit.clone() } else { InTransit::new() };
        let image = Image {
            name: part.checkpoint.part(group.me),
            head: Arc::new(()),
            saved: Arc::new(saved),
            snapshot: snapshot.clone(),
        };
        let Group { holders, store, .. } = group;
        let requires = self.rules.requires;
        part.written = Some(Replication::begin(image.into(), holders, requires, &mut store.writes, host));
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
    pub(crate) fn repeat_copy(&mut self, holder: ProcessId, host: &mut dyn Host<P>) {
        if let Some(written) = self.written() {
            written.repeat(holder, host);
        }
    }

    fn written(&mut self) -> Option<&mut Replication<P>> {
        self.part.as_mut()?.written.as_mut()
    }

    /// Returns the checkpoint if this member's part has just become durable, locally and at its holders. Call this
    /// after each of the methods above.
    pub(crate) fn completes(&mut self) -> Option<Checkpoint> {
        self.written()?.completes().then(|| self.part.as_ref().map(|part| part.checkpoint))?
    }

    /// Handles the commit: claims the commit, and resumes the application. Returns `false` if the checkpoint is not in
    /// progress here.
    pub(crate) fn commit(
        &mut self,
        group: &Group<P>,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<P>,
    ) -> bool {
        let Some(mut part) = self.part.take_if(|part| part.checkpoint == checkpoint) else { return false };
        let is_written = part.written.is_some() || !self.rules.is_sound;
        assert!(is_written, "a checkpoint is committed once all parts are durable");
        let Checkpoint { position, attempt } = checkpoint;
        self.position = position;
        let (frozen, vectors) = (now.since(part.since), Arc::default());
        host.claim(Claim::Committed { position, attempt, forced: false, frozen, vectors });
        host.release();
        if !self.rules.delivers_late {
            part.in_transit.clear();
        }
        if !self.rules.transmits_unsent {
            self.unsent.clear();
        }
        self.resume(group, part.in_transit, host);
        true
    }

    /// Delivers the messages that were in transit, transmits those that the application sent in the meantime, and
    /// handles the early messages.
    fn resume(&mut self, group: &Group<P>, in_transit: InTransit, host: &mut dyn Host<P>) {
        for (id, payload) in in_transit {
            host.deliver(id, payload);
        }
        for (id, payload) in core::mem::take(&mut self.unsent) {
            self.sent(id, payload, host);
        }
        for (id, interval, payload) in core::mem::take(&mut self.early) {
            self.arrived(group, id, interval, payload, host);
        }
    }

    /// Handles the failure of a member: discards the checkpoint in progress, and holds the application.
    pub(crate) fn freeze(&mut self, host: &mut dyn Host<P>) {
        if let Some(part) = self.part.take() {
            let Checkpoint { position, attempt } = part.checkpoint;
            host.claim(Claim::Aborted { position, attempt });
        }
        self.unsent.clear();
        host.hold();
    }

    /// Installs the state that the group restores, and resumes.
    pub(crate) fn restore(&mut self, group: &Group<P>, resumed: &Resumed<P>, host: &mut dyn Host<P>) {
        let (position, rolled_back) = resumed.restore(host);
        self.position = position;
        if self.rules.resets_sent {
            self.sent.clear();
        }
        self.received = 0;
        host.claim(rolled_back);
        // No process may act before the first checkpoint is committed.
        if resumed.target.is_some() {
            host.release();
        }
        self.resume(group, resumed.saved(), host);
    }
}
