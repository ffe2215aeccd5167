//! Taking a checkpoint of a cluster, and telling other clusters which messages they no longer need to keep for it (R7,
//! R8).
//!
//! Coordinator: Request -> Saved from all -> Drain -> Drained from all -> Commit. A member is frozen from the request
//! to the commit. It sends Drained only once its part is durable, both in its own storage and at its holders. A
//! recovery therefore finds every committed checkpoint complete, and may treat a complete checkpoint as committed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use faultline_core::{Position, ProcessId, Snapshot, Time};

use super::rank::{Arrival, Part, ProtocolHost, Rank};
use super::{Control, Defect, Late, Phase, ProtocolState, Rule, Stamp};
use crate::machines::Checkpoint;
use crate::machines::logs::{Saved, Settled};

impl Rank {
    /// Begins a checkpoint, unless one is in progress, the cluster is recovering, or a member is down. Has an effect
    /// only on the coordinator.
    pub(super) fn begin_checkpoint(&mut self, now: Time, host: &mut ProtocolHost) {
        let is_running = self.is_running();
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| is_running) else { return };
        if self.group.all_members_up() {
            let checkpoint = coordinator.begin(self.position, self.group.members.clone(), host);
            self.group.broadcast(Control::Request(checkpoint), host);
            self.request(checkpoint, now, host);
        }
    }

    /// Freezes this member, and requests the application's state. Ignores a request that a rollback has
    /// invalidated.
    pub(super) fn request(&mut self, checkpoint: Checkpoint, now: Time, host: &mut ProtocolHost) {
        let next = Position { sn: self.position.sn.next(), ..self.position };
        if checkpoint.position == next && !self.group.is_recovering() {
            assert!(self.part.is_none(), "the previous checkpoint is committed or discarded");
            self.part = Some(Box::new(Part::begin(checkpoint, now, host)));
            self.replay_waiting(host);
        }
    }

    /// Handles the snapshot, which follows all earlier sends of the application.
    pub(super) fn snapshot_taken(&mut self, snapshot: Snapshot, now: Time, host: &mut ProtocolHost) {
        let Some(part) = &mut self.part else { return };
        let (phases, app_actions) = (self.phases.clone(), self.app_actions.clone());
        let own = ProtocolState { phases, app_actions, late: Vec::new() };
        let saved = self.logs.saved(own);
        part.cut(snapshot, saved, self.logs.head());
        let checkpoint = part.checkpoint();
        let members = self.group.members.iter();
        let sent = members.map(|&it| (it, u64::from(self.logs.present(it).sent))).collect();
        self.send_to(self.group.coordinator(), Control::Saved { checkpoint, sent }, now, host);
    }

    /// Adds up the messages that the members have sent inside the cluster and, once all members have saved their
    /// states, tells each of them how many to wait for. Runs on the coordinator.
    pub(super) fn saved(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u64)],
        now: Time,
        host: &mut ProtocolHost,
    ) {
        let counts = self.coordinator.as_mut().and_then(|it| it.saved(from, checkpoint, sent));
        for &(member, expected) in counts.iter().flat_map(|it| it.iter()) {
            self.send_to(member, Control::Drain { checkpoint, expected }, now, host);
        }
    }

    /// Writes this process's part, locally and at its holders, once no message from the cluster is in transit to this
    /// process.
    pub(super) fn maybe_write(&mut self, now: Time, host: &mut ProtocolHost) {
        let rules = self.config.drain_rules();
        let Some(part) = &mut self.part else { return };
        let received = self.group.members.iter().map(|&it| u64::from(self.logs.received(it))).sum();
        let whole = |saved: Saved<Phase, ProtocolState>, late| Saved {
            own: ProtocolState { late, ..saved.own },
            ..saved
        };
        part.maybe_write(&mut self.group, received, rules, whole, host);
        self.part_completes(now, host);
    }

    /// Tells the coordinator once this process's part is durable, locally and at its holders.
    pub(super) fn part_completes(&mut self, now: Time, host: &mut ProtocolHost) {
        if let Some(part) = &mut self.part
            && part.completes()
        {
            let checkpoint = part.checkpoint();
            if !self.obeys(Rule::CollectsAfterCommit) {
                self.announce_settled(host);
            }
            self.send_to(self.group.coordinator(), Control::Drained(checkpoint), now, host);
        }
    }

    /// Commits the checkpoint once every part is durable. Before the first commit, the supervisor must have recorded
    /// that the cluster may act. Runs on the coordinator.
    pub(super) fn drained(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if self.coordinator.as_mut().is_some_and(|it| it.drained(from, checkpoint)) {
            match self.group.has_started() {
                true => self.commit_gathered(now, host),
                false => host.started(),
            }
        }
    }

    pub(super) fn commit_gathered(&mut self, now: Time, host: &mut ProtocolHost) {
        if let Some((checkpoint, _)) = self.coordinator.as_mut().and_then(|it| it.commit(now)) {
            self.group.broadcast(Control::Commit(checkpoint), host);
            self.commit(checkpoint, now, host);
        }
    }

    /// Handles the commit: the application resumes. Earlier checkpoints are no longer needed.
    pub(super) fn commit(&mut self, checkpoint: Checkpoint, now: Time, host: &mut ProtocolHost) {
        if self.part.as_ref().is_none_or(|part| part.checkpoint() != checkpoint) {
            return;
        }
        if self.obeys(Rule::CollectsAfterCommit) {
            self.announce_settled(host);
        }
        let Some(part) = self.part.take() else { return };
        self.position = checkpoint.position;
        let (committed, late) = part.commit(self.config.drain_rules(), now);
        host.claim(committed);
        self.group.collect(Some(checkpoint), self.logs.take_collected(), host);
        if !self.has(Defect::LateNotReceived) {
            self.receive_late(late);
        }
        self.proceed(host);
        if let Some(coordinator) = &mut self.coordinator
            && !self.config.defects.has(Defect::TimerNotRestarted)
        {
            coordinator.committed(now);
        }
        self.replay(now, host);
    }

    /// Puts the messages that were in transit ahead of all waiting messages.
    pub(super) fn receive_late(&mut self, late: Vec<Late>) {
        let (position, to) = (self.position, self.position.incarnation);
        for Late { id, phase, payload } in late.into_iter().rev() {
            self.waiting.push_front(Arrival { id, stamp: Stamp { position, to, tag: phase }, payload });
        }
    }

    /// Tells peers in other clusters which messages the checkpoint contains. The peers remove these messages from their
    /// logs (R8).
    pub(super) fn announce_settled(&mut self, host: &mut ProtocolHost) {
        if let Some(saved) = self.part.as_ref().and_then(|part| part.saved()) {
            self.logs.commit(&self.group, &saved.channels, host);
        }
    }

    /// Learns which messages a peer's checkpoint contains (R8).
    pub(super) fn settled(&mut self, peer: ProcessId, settled: Settled) {
        if self.logs.settled(&self.group, peer, settled).is_some() {
            self.phases.settled(peer, self.logs.channels[&peer].settled.sent);
        }
    }
}
