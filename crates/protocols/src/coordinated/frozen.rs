//! A member that is paused while a checkpoint of its group is taken.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Counters, Host, Image, MessageId, Payload, Position, ProcessId, Snapshot, Time};

use super::leaders::Leader;
use super::{Coordinated, Defects, Rule};
use crate::global::{Arrival, Member};
use crate::machines::group::{Group, Resumed};
use crate::machines::{Checkpoint, Counts, InTransit, Interval, Replication, Requires};

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
pub(crate) struct Frozen {
    /// Current incarnation, and SN of the last committed or restored checkpoint.
    position: Position,
    part: Option<Box<Part>>,
    /// Number of messages sent to each member since the last rollback.
    sent: Counters,
    /// Number of messages received since the last rollback.
    received: u64,
    /// Messages from members that are in a later interval or incarnation.
    early: Vec<Arrival>,
    /// Messages that the application sent after its state was saved.
    unsent: Vec<(MessageId, Payload)>,
    /// State of the leader of a cluster, in the hierarchical variant.
    pub(super) leader: Option<Leader>,
    defects: Defects,
}

/// This member's part of the checkpoint in progress.
#[derive(Clone, Debug)]
struct Part {
    checkpoint: Checkpoint,
    since: Time,
    saved: Option<Snapshot>,
    /// Number of messages sent to this member between the last rollback and the checkpoint, once this number is known.
    expected: Option<u64>,
    in_transit: InTransit,
    written: Option<Replication<Coordinated>>,
}

impl Frozen {
    pub(super) fn new(defects: Defects, leader: Option<Leader>) -> Frozen {
        Frozen {
            position: Position::default(),
            part: None,
            sent: Counters::default(),
            received: 0,
            early: Vec::new(),
            unsent: Vec::new(),
            leader,
            defects,
        }
    }

    /// Handles a message that the application sent.
    pub(super) fn sent(&mut self, id: MessageId, payload: Payload, host: &mut dyn Host<Coordinated>) {
        if self.part.as_ref().is_some_and(|part| part.saved.is_some()) {
            self.unsent.push((id, payload));
        } else {
            *self.sent.get_mut(id.to) += 1;
            host.transmit(id, Interval(self.position), payload);
        }
    }

    /// Handles a message from the network.
    pub(super) fn arrived(
        &mut self,
        group: &Group<Coordinated>,
        (id, interval, payload): Arrival,
        host: &mut dyn Host<Coordinated>,
    ) {
        let Position { incarnation, sn } = interval.0;
        if incarnation < self.position.incarnation && self.defects.obeys(Rule::DropsOld) {
            host.drop_stale(id);
            return;
        }
        let is_newer = incarnation > self.position.incarnation;
        if group.is_recovering() || is_newer || sn > self.position.sn {
            if self.defects.obeys(Rule::KeepsEarly) || group.is_recovering() {
                self.early.push((id, interval, payload));
            }
            return;
        }
        let is_drained = sn == self.position.sn;
        assert!(
            is_drained || !self.defects.is_empty(),
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
    pub(super) fn request(
        &mut self,
        group: &Group<Coordinated>,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<Coordinated>,
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
    pub(super) fn saved(&mut self, snapshot: Snapshot) -> Option<(Checkpoint, Counts)> {
        let part = self.part.as_mut()?;
        part.saved = Some(snapshot);
        let sent = self.sent.iter().map(|(to, count)| (to, u64::from(count))).collect();
        Some((part.checkpoint, sent))
    }

    /// Learns how many messages had been sent to each member before the checkpoint.
    pub(super) fn expect(&mut self, me: ProcessId, checkpoint: Checkpoint, counts: &[(ProcessId, u64)]) {
        if let Some(part) = self.part.as_mut().filter(|part| part.checkpoint == checkpoint) {
            let own = counts.iter().find(|&&(receiver, _)| receiver == me);
            part.expected = Some(own.map_or(0, |&(_, count)| count));
        }
    }

    /// Writes this member's part once no message is in transit to this member. Call this after each change.
    pub(super) fn maybe_write(&mut self, group: &mut Group<Coordinated>, host: &mut dyn Host<Coordinated>) {
        let Some(part) = &mut self.part else { return };
        let (Some(snapshot), Some(expected), None) = (&part.saved, part.expected, &part.written) else {
            return;
        };
        if self.received < expected && self.defects.obeys(Rule::Drains) {
            return;
        }
        assert!(
            self.received == expected || !self.defects.is_empty(),
            "{} messages arrived, {expected} were sent: no process sends while a checkpoint is being taken",
            self.received
        );
        let saved = if self.defects.obeys(Rule::Drains) { part.in_transit.clone() } else { InTransit::new() };
        let image = Image {
            name: part.checkpoint.part(group.me),
            head: Arc::new(()),
            saved: Arc::new(saved),
            snapshot: snapshot.clone(),
        };
        let Group { holders, store, .. } = group;
        let is_safe = self.defects.obeys(Rule::DurableFirst);
        let requires = Requires { own: is_safe, replicas: is_safe };
        part.written = Some(Replication::begin(image.into(), holders, requires, &mut store.writes, host));
    }

    /// Delivers the messages that were in transit, transmits those that the application sent in the meantime, and
    /// handles the early messages.
    fn resume(
        &mut self,
        group: &Group<Coordinated>,
        in_transit: InTransit,
        host: &mut dyn Host<Coordinated>,
    ) {
        for (id, payload) in in_transit {
            host.deliver(id, payload);
        }
        for (id, payload) in core::mem::take(&mut self.unsent) {
            self.sent(id, payload, host);
        }
        for message in core::mem::take(&mut self.early) {
            self.arrived(group, message, host);
        }
    }
}

impl Member<Coordinated> for Frozen {
    fn position(&self) -> Position {
        self.position
    }

    fn is_checkpointing(&self) -> bool {
        self.part.is_some()
    }

    fn written(&mut self) -> Option<&mut Replication<Coordinated>> {
        self.part.as_mut()?.written.as_mut()
    }

    fn commit(
        &mut self,
        group: &Group<Coordinated>,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) -> bool {
        let Some(part) = self.part.take_if(|part| part.checkpoint == checkpoint) else { return false };
        let is_written = part.written.is_some() || !self.defects.is_empty();
        assert!(is_written, "a checkpoint is committed once all parts are durable");
        self.position = checkpoint.position;
        host.claim(checkpoint.committed(now.since(part.since)));
        host.release();
        self.resume(group, part.in_transit, host);
        true
    }

    fn freeze(&mut self, is_recovering: bool, host: &mut dyn Host<Coordinated>) {
        if is_recovering {
            return;
        }
        if let Some(part) = self.part.take() {
            host.claim(part.checkpoint.aborted());
        }
        self.unsent.clear();
        host.hold();
    }

    fn restore(
        &mut self,
        group: &Group<Coordinated>,
        resumed: &Resumed<Coordinated>,
        host: &mut dyn Host<Coordinated>,
    ) {
        let (position, rolled_back) = resumed.restore(host);
        self.position = position;
        self.sent.clear();
        self.received = 0;
        host.claim(rolled_back);
        // No process may act before the first checkpoint is committed.
        if resumed.target.is_some() {
            host.release();
        }
        self.resume(group, resumed.saved(), host);
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::{Attempt, Boot, Claim, Incarnation, Scope};

    use super::super::Control;
    use super::*;
    use crate::machines::group::{GroupParameters, Rules, View};
    use crate::machines::testing::{HostAction, RecordingHost, membership, snapshot};
    use crate::placement::{Placement, ReplicateTo};

    const ME: ProcessId = ProcessId(0);
    const PEER: ProcessId = ProcessId(1);

    type Action = HostAction<Control>;

    /// A member of a group of two, whose first checkpoint is committed.
    struct Process {
        group: Group<Coordinated>,
        member: Frozen,
        host: RecordingHost<Coordinated>,
    }

    impl Process {
        fn new() -> Process {
            let view = View::new(Scope::Federation, None, membership(&[Some(1), Some(1)], 1));
            let placement = Placement { replicas: 1, to: ReplicateTo::OtherCluster };
            let parameters =
                GroupParameters { me: ME, boot: Boot::Fresh, view, placement, rules: Rules::ALL };
            let mut host = RecordingHost::default();
            let group = Group::new(parameters, &mut host);
            let mut this = Process { group, member: Frozen::new(Defects::default(), None), host };
            this.checkpoint(1);
            this.host.take();
            this
        }

        /// Takes checkpoint `sn` with nothing in transit.
        fn checkpoint(&mut self, sn: u32) {
            self.request(sn);
            self.member.saved(snapshot());
            self.expect(sn, self.member.received);
            self.commit(sn);
        }

        fn request(&mut self, sn: u32) -> Vec<Action> {
            self.member.request(&self.group, checkpoint(sn), Time::ZERO, &mut self.host);
            self.host.take()
        }

        fn expect(&mut self, sn: u32, count: u64) {
            self.member.expect(ME, checkpoint(sn), &[(PEER, 7), (ME, count)]);
            self.member.maybe_write(&mut self.group, &mut self.host);
        }

        /// Makes the part durable, and commits checkpoint `sn`.
        fn commit(&mut self, sn: u32) -> Vec<Action> {
            let name = checkpoint(sn).part(ME);
            self.member.durable(name);
            self.member.written().expect("the part is written").confirmed(PEER, name);
            assert_eq!(self.member.completes(), Some(checkpoint(sn)));
            assert!(self.member.commit(&self.group, checkpoint(sn), Time::ZERO, &mut self.host));
            self.host.take()
        }

        fn send(&mut self, number: u32) -> Vec<Action> {
            self.member.sent(id(ME, number), Payload::Virtual(1), &mut self.host);
            self.host.take()
        }

        fn receive(&mut self, number: u32, interval: Position) -> Vec<Action> {
            let (id, payload) = (id(PEER, number), Payload::Virtual(1));
            self.member.arrived(&self.group, (id, Interval(interval), payload), &mut self.host);
            self.member.maybe_write(&mut self.group, &mut self.host);
            self.host.take()
        }

        /// Returns the messages that the last written part contains.
        fn in_last_part(&self) -> Vec<MessageId> {
            let part = self.host.written.last().expect("a part has been written");
            part.saved.iter().map(|(id, _)| *id).collect()
        }
    }

    fn checkpoint(sn: u32) -> Checkpoint {
        Checkpoint { position: Position::new(0, sn), attempt: Attempt(1) }
    }

    /// Returns the identity of a message between the two members.
    fn id(from: ProcessId, number: u32) -> MessageId {
        MessageId { from, to: ProcessId(1 - from.0), incarnation: Incarnation(0), number }
    }

    fn committed(sn: u32) -> Action {
        let (position, attempt, vectors) = (Position::new(0, sn), Attempt(1), Arc::default());
        let frozen = faultline_core::Span::ZERO;
        HostAction::Claim(Claim::Committed { position, attempt, forced: false, frozen, vectors })
    }

    #[test]
    fn a_part_waits_for_the_messages_in_transit_which_are_delivered_after_the_commit() {
        let mut process = Process::new();
        let now = Position::new(0, 1);
        assert_eq!(process.receive(0, now), [HostAction::Deliver(id(PEER, 0))]);
        assert_eq!(process.request(2), [HostAction::RequestSnapshot]);
        assert_eq!(process.receive(1, now), [], "the application is frozen");
        process.member.saved(snapshot());
        process.expect(2, 3);
        assert_eq!(process.host.written.len(), 1, "one message is still in transit");
        assert_eq!(process.receive(2, now), []);
        assert_eq!(process.host.written.len(), 2);
        assert_eq!(
            process.in_last_part(),
            [id(PEER, 1), id(PEER, 2)],
            "the state contains the first message"
        );
        let delivered = [HostAction::Deliver(id(PEER, 1)), HostAction::Deliver(id(PEER, 2))];
        assert_eq!(process.commit(2), [&[committed(2), HostAction::Release][..], &delivered].concat());
    }

    #[test]
    fn a_message_sent_after_the_state_is_saved_belongs_to_the_next_interval() {
        let mut process = Process::new();
        assert_eq!(process.send(0), [HostAction::Transmit(id(ME, 0), Position::new(0, 1))]);
        process.request(2);
        assert_eq!(process.send(1), [HostAction::Transmit(id(ME, 1), Position::new(0, 1))]);
        let (_, counts) = process.member.saved(snapshot()).expect("a checkpoint is in progress");
        assert_eq!(*counts, [(PEER, 2)]);
        assert_eq!(process.send(2), [], "until the commit");
        process.expect(2, 0);
        let sent = HostAction::Transmit(id(ME, 2), Position::new(0, 2));
        assert_eq!(process.commit(2), [committed(2), HostAction::Release, sent]);
        process.request(3);
        let (_, counts) = process.member.saved(snapshot()).expect("a checkpoint is in progress");
        assert_eq!(*counts, [(PEER, 3)], "counted since the last rollback");
    }

    #[test]
    fn a_message_of_the_next_interval_is_not_part_of_the_checkpoint() {
        let mut process = Process::new();
        process.request(2);
        assert_eq!(process.receive(0, Position::new(0, 2)), [], "its sender has learned of the commit first");
        process.member.saved(snapshot());
        process.expect(2, 0);
        assert_eq!(process.in_last_part(), []);
        let delivered = HostAction::Deliver(id(PEER, 0));
        assert_eq!(process.commit(2), [committed(2), HostAction::Release, delivered]);
    }

    #[test]
    fn a_request_or_commit_of_another_checkpoint_is_ignored() {
        let mut process = Process::new();
        assert_eq!(process.request(1), [], "it is committed");
        assert_eq!(process.request(3), [], "the one before it is not committed");
        process.request(2);
        let other = Checkpoint { attempt: Attempt(2), ..checkpoint(2) };
        assert!(!process.member.commit(&process.group, other, Time::ZERO, &mut process.host));
        assert!(process.member.is_checkpointing() && process.host.take().is_empty());
    }

    #[test]
    fn a_rollback_discards_the_checkpoint_and_everything_sent_since_the_restored_one() {
        let mut process = Process::new();
        process.send(0);
        process.receive(0, Position::new(0, 1));
        process.request(2);
        process.receive(1, Position::new(0, 1));
        process.member.saved(snapshot());
        process.send(1);
        let early = process.receive(0, Position::new(1, 1));
        assert_eq!(early, [], "its sender has restored its state before this member learns of the failure");
        process.group.freeze();
        process.member.freeze(false, &mut process.host);
        let aborted = Claim::Aborted { position: Position::new(0, 2), attempt: Attempt(1) };
        assert_eq!(process.host.take(), [HostAction::Claim(aborted), HostAction::Hold]);
        assert_eq!(process.receive(1, Position::new(1, 1)), [], "this member is not restored yet");

        let restored = Image {
            name: checkpoint(1).part(ME),
            head: Arc::new(()),
            saved: Arc::new(InTransit::from([(id(PEER, 9), Payload::Virtual(1))])),
            snapshot: snapshot(),
        };
        let (incarnation, target) = (Incarnation(1), Some(checkpoint(1)));
        let resumed = Resumed { incarnation, target, image: Some(Arc::new(restored)) };
        process.group = Process::new().group;
        process.member.restore(&process.group, &resumed, &mut process.host);
        let actions = process.host.take();
        assert_eq!(actions[0], HostAction::Restore(Incarnation(1)));
        let delivered = [9, 0, 1].map(|number| HostAction::Deliver(id(PEER, number)));
        assert_eq!(
            actions[2..],
            [&[HostAction::Release][..], &delivered].concat(),
            "first those in transit at the checkpoint"
        );
        assert_eq!(process.receive(2, Position::new(0, 1)), [HostAction::DropStale(id(PEER, 2))]);
        assert_eq!(process.member.received, 2, "counted since the rollback");
        let next = Checkpoint { position: Position::new(1, 2), attempt: Attempt(1) };
        process.member.request(&process.group, next, Time::ZERO, &mut process.host);
        let (_, counts) = process.member.saved(snapshot()).expect("a checkpoint is in progress");
        assert!(counts.is_empty(), "nothing has been sent since the rollback");
    }
}
