//! Taking a checkpoint of a group, and telling other groups which messages they no longer need to keep for it (R7, R8).
//!
//! Coordinator: Request -> Saved from all -> Drain -> Drained from all -> Commit. A member is frozen from the request
//! to the commit. It sends Drained only once its part is durable, both in its own storage and at its holders. A
//! recovery therefore finds every committed checkpoint complete, and may treat a complete checkpoint as committed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faultline_core::{Host, Position, ProcessId, Snapshot, Time};

use super::rank::Arrival;
use super::{Control, Delivering, LoggingProtocol, Rank, Resuming};
use crate::machines::logs::{Late, Stamp};
use crate::machines::{Checkpoint, Draining};

impl<P: LoggingProtocol> Rank<P> {
    /// Begins a checkpoint, unless one is in progress, the group is recovering, or a member is down. Has an effect only
    /// on the coordinator.
    pub(super) fn begin_checkpoint(&mut self, now: Time, host: &mut dyn Host<P>) {
        let is_running = self.is_running();
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| is_running) else { return };
        if self.group.all_members_up() {
            let checkpoint = coordinator.begin(self.position, self.group.members.clone(), host);
            self.group.broadcast(Control::Request(checkpoint), host);
            self.request(checkpoint, now, host);
        }
    }

    /// Freezes this member, and requests the application's state. Ignores a request that a rollback has invalidated.
    pub(super) fn request(&mut self, checkpoint: Checkpoint, now: Time, host: &mut dyn Host<P>) {
        let next = Position { sn: self.position.sn.next(), ..self.position };
        if checkpoint.position == next && !self.group.is_recovering() {
            assert!(self.part.is_none(), "the previous checkpoint is committed or discarded");
            self.part = Some(Box::new(Draining::begin(checkpoint, self.drain_rules, now, host)));
            self.replay_waiting(host);
        }
    }

    /// Handles the snapshot, which follows all earlier actions of the application.
    pub(super) fn snapshot_taken(&mut self, snapshot: Snapshot, now: Time, host: &mut dyn Host<P>) {
        let Some(part) = &mut self.part else { return };
        let saved = self.logs.saved(self.channels.saved(), self.actions.clone());
        part.cut(snapshot, saved, self.logs.head());
        let checkpoint = part.checkpoint();
        let members = self.group.members.iter();
        let sent = members.map(|&it| (it, u64::from(self.logs.present(it).sent))).collect();
        self.send_to(self.group.coordinator(), Control::Saved { checkpoint, sent }, now, host);
    }

    /// Adds up the messages that the members have sent inside the group and, once all members have saved their states,
    /// tells each of them how many to wait for. Runs on the coordinator.
    pub(super) fn saved(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u64)],
        now: Time,
        host: &mut dyn Host<P>,
    ) {
        let counts = self.coordinator.as_mut().and_then(|it| it.saved(from, checkpoint, sent));
        for &(member, expected) in counts.iter().flat_map(|it| it.iter()) {
            self.send_to(member, Control::Drain { checkpoint, expected }, now, host);
        }
    }

    /// Learns how many messages from the group belong to this process's part.
    pub(super) fn drain(&mut self, checkpoint: Checkpoint, expected: u64, now: Time, host: &mut dyn Host<P>) {
        if let Some(part) = self.part.as_mut().filter(|part| part.checkpoint() == checkpoint) {
            part.expect(expected);
            self.maybe_write(now, host);
        }
    }

    /// Writes this process's part, locally and at its holders, once no message from the group is in transit to this
    /// process.
    pub(super) fn maybe_write(&mut self, now: Time, host: &mut dyn Host<P>) {
        let Some(part) = &mut self.part else { return };
        let received = self.group.members.iter().map(|&it| u64::from(self.logs.received(it))).sum();
        part.maybe_write(&mut self.group, received, host);
        self.part_completes(now, host);
    }

    /// Tells the coordinator once this process's part is durable, locally and at its holders.
    pub(super) fn part_completes(&mut self, now: Time, host: &mut dyn Host<P>) {
        if let Some(part) = &mut self.part
            && part.completes()
        {
            let checkpoint = part.checkpoint();
            if !self.rules.collects_after_commit {
                self.announce_settled(host);
            }
            self.send_to(self.group.coordinator(), Control::Drained(checkpoint), now, host);
        }
    }

    /// Commits the checkpoint once every part is durable. Before the first commit, the supervisor must have recorded
    /// that the group may act. Runs on the coordinator.
    pub(super) fn drained(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut dyn Host<P>,
    ) {
        if self.coordinator.as_mut().is_some_and(|it| it.drained(from, checkpoint)) {
            match self.group.has_started() {
                true => self.maybe_commit(now, host),
                false => host.started(),
            }
        }
    }

    /// Commits the checkpoint in progress if every part is durable. Has an effect only on the coordinator.
    pub(super) fn maybe_commit(&mut self, now: Time, host: &mut dyn Host<P>) {
        if let Some((checkpoint, _)) = self.coordinator.as_mut().and_then(|it| it.commit(now)) {
            self.group.broadcast(Control::Commit(checkpoint), host);
            self.commit(checkpoint, now, host);
        }
    }

    /// Handles the commit: the application resumes. Earlier checkpoints are no longer needed.
    pub(super) fn commit(&mut self, checkpoint: Checkpoint, now: Time, host: &mut dyn Host<P>) {
        if self.part.as_ref().is_none_or(|part| part.checkpoint() != checkpoint) {
            return;
        }
        if self.rules.collects_after_commit {
            self.announce_settled(host);
        }
        let Some(part) = self.part.take() else { return };
        self.position = checkpoint.position;
        if let Some(saved) = part.saved() {
            self.deliveries.committed(checkpoint.part(self.group.me), &saved.channels, host);
        }
        let (committed, late) = part.commit(now);
        host.claim(committed);
        self.group.collect(Some(checkpoint), self.logs.take_collected(), host);
        self.receive_late(late);
        self.proceed(host);
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.committed(now);
        }
        self.replay(now, host);
    }

    /// Puts the messages that were in transit ahead of all waiting messages.
    pub(super) fn receive_late(&mut self, late: Vec<Late<P::Tag>>) {
        let (position, to) = (self.position, self.position.incarnation);
        for Late { id, tag, payload } in late.into_iter().rev() {
            self.waiting.push_front(Arrival { id, stamp: Stamp { position, to, tag }, payload });
        }
    }

    /// Tells peers in other groups which messages the checkpoint contains. The peers remove these messages from their
    /// logs (R8).
    fn announce_settled(&mut self, host: &mut dyn Host<P>) {
        if let Some(saved) = self.part.as_ref().and_then(|part| part.saved()) {
            self.logs.commit(&self.group, &saved.channels, host);
        }
    }
}
