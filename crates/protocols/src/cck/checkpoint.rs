//! A partition's side of a checkpoint (CCK long paper, rules of the coordinator and of a process).
//!
//! The partition stops, and asks all partitions that send to it to stop, too. Channels are FIFO, so an answer arrives
//! after everything that its sender had sent before it stopped. The saved state therefore contains everything that was
//! in transit. The partition resumes once all partitions to which it sends have saved their states, so no saved state
//! contains the values that it sends afterwards.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Attempt, Boot, Claim, ImageName, Position, ProcessId, Role, Time, Vectors};
use faultline_dataflow::partition::{Executed, PartitionHost};

use super::config::{Coordination, Rule};
use super::holders::holders;
use super::message::{Head, ImageOf, Message};
use super::{Cck, LocalPartition};

/// A checkpoint that a partition is taking.
#[derive(Clone, Debug)]
pub(super) struct CheckpointRound {
    position: Position,
    /// The checkpoint that was valid when this one began.
    valid: Position,
    began: Time,
    /// Partitions that were asked to stop.
    asked: Vec<ProcessId>,
    /// Partitions that were asked to stop and have not answered yet.
    unanswered: BTreeSet<ProcessId>,
    /// Whether the snapshot has been taken. Its image may not be durable yet.
    is_taken: bool,
    /// Processes that have yet to store the image.
    unstored: BTreeSet<ProcessId>,
    /// Partitions that receive from this one and have not saved their states.
    unsaved: BTreeSet<ProcessId>,
    /// Partitions that have asked this one to stop.
    asked_by: BTreeSet<ProcessId>,
    is_saved: bool,
}

impl CheckpointRound {
    pub(super) fn position(&self) -> Position {
        self.position
    }
}

impl LocalPartition {
    fn round(&mut self, position: Position) -> Option<&mut CheckpointRound> {
        self.round.as_mut().filter(|it| it.position == position)
    }
}

impl Cck {
    /// Begins a checkpoint at the coordinator's request.
    pub(super) fn begin_checkpoint(
        &mut self,
        partition: ProcessId,
        position: Position,
        valid: Position,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let is_current = |it: &LocalPartition| it.epoch == position.incarnation && it.round.is_none();
        if !host.runs(partition) || !self.locals.get(&partition).is_some_and(is_current) {
            return;
        }
        assert!(valid < position, "checkpoint {position:?} begins after the valid one, {valid:?}");
        self.note_committed(partition, valid, host);
        self.note_valid(partition, valid);
        host.end_rerun(partition);
        host.hold(partition);
        let (asked, sent_to) = match self.config.coordination {
            Coordination::Global => (self.others(partition), Vec::new()),
            Coordination::Neighbours => (self.senders(partition, host), host.plan().receivers_of(partition)),
        };
        let local = self.locals.get_mut(&partition).expect("the partition is local");
        local.round = Some(CheckpointRound {
            position,
            valid,
            began: now,
            unanswered: asked.iter().copied().collect(),
            asked: asked.clone(),
            is_taken: false,
            unstored: BTreeSet::new(),
            unsaved: sent_to.into_iter().collect(),
            asked_by: BTreeSet::new(),
            is_saved: false,
        });
        let of_round = |it: &&(Position, ProcessId)| it.0 == position;
        let early: Vec<ProcessId> = local.early.iter().filter(of_round).map(|it| it.1).collect();
        local.early.retain(|it| it.0 != position);
        let question = match self.config.coordination {
            Coordination::Neighbours => Message::Ping(position),
            Coordination::Global => Message::Stopped(position),
        };
        asked.into_iter().for_each(|it| host.tell(partition, it, question.clone()));
        early.into_iter().for_each(|it| self.pinged(it, partition, position, host));
        self.save_if_drained(partition, host);
    }

    fn others(&self, partition: ProcessId) -> Vec<ProcessId> {
        self.membership.with_role(Role::RANK).filter(|it| *it != partition).collect()
    }

    /// Returns the partitions that this partition asks to stop, if only neighbours are coordinated.
    fn senders(&self, partition: ProcessId, host: &mut dyn PartitionHost<Self>) -> Vec<ProcessId> {
        let mut senders = host.plan().senders_to(partition);
        if !self.config.obeys(Rule::AsksAllSenders) {
            let all = Executed { before: host.executed(partition).before + 1, beyond: BTreeSet::new() };
            senders.retain(|it| !host.lacking(partition, *it, &all).is_empty());
        }
        senders
    }

    /// Handles another partition's request to stop or, with global coordination, its message that it has stopped.
    pub(super) fn pinged(
        &mut self,
        from: ProcessId,
        partition: ProcessId,
        position: Position,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        match (local.round(position), self.config.coordination) {
            (None, _) => drop(local.early.insert((position, from))),
            (Some(round), Coordination::Neighbours) => {
                round.asked_by.insert(from);
                host.tell(partition, from, Message::Pong(position));
            }
            (Some(_), Coordination::Global) => self.ponged(from, partition, position, host),
        }
    }

    /// Handles the answer from a sender: everything that it had sent before it stopped has arrived.
    pub(super) fn ponged(
        &mut self,
        from: ProcessId,
        partition: ProcessId,
        position: Position,
        host: &mut dyn PartitionHost<Self>,
    ) {
        if let Some(round) = self.locals.get_mut(&partition).and_then(|it| it.round(position)) {
            round.unanswered.remove(&from);
            self.save_if_drained(partition, host);
        }
    }

    fn save_if_drained(&mut self, partition: ProcessId, host: &mut dyn PartitionHost<Self>) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        let is_drained = |it: &&mut CheckpointRound| it.unanswered.is_empty();
        let Some(round) = local.round.as_mut().filter(is_drained).filter(|it| !it.is_taken) else {
            return;
        };
        let Position { incarnation, sn } = round.position;
        let name = ImageName { owner: partition, incarnation, sn, attempt: Attempt(1) };
        let head = Arc::new(Head { valid: round.valid });
        let image = Arc::new(ImageOf { name, head, saved: Arc::new(()), snapshot: host.snapshot(partition) });
        round.is_taken = true;
        let holders = holders(&self.config, &self.membership, partition, self.me);
        round.unstored = holders.iter().copied().chain([self.me]).collect();
        if !self.config.obeys(Rule::KeepsValidSlot) {
            local.slots.clear();
        }
        let newest = local.slots.last_key_value().map(|(position, _)| *position);
        assert!(newest < Some(round.position), "{:?} is saved after {newest:?}", round.position);
        local.slots.insert(round.position, image.clone());
        assert!(
            local.slots.len() <= 2 || !self.config.is_sound(),
            "at most the valid checkpoint and the next one are kept"
        );
        holders.into_iter().for_each(|it| host.send_image(it, image.clone()));
        self.stored.write(image, self.me, host);
    }

    /// Records that a process has stored an image durably.
    pub(super) fn stored(
        &mut self,
        name: ImageName,
        by: ProcessId,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let partition = name.owner;
        // Only partitions that have asked this one to stop send it `Continue`.
        let awaits_all =
            self.config.obeys(Rule::AwaitsAllReceivers) && self.config.obeys(Rule::AsksAllSenders);
        let local = self.locals.get_mut(&partition);
        let Some(round) = local.and_then(|it| it.round(name.position())) else { return };
        round.unstored.remove(&by);
        if round.is_saved || !round.unstored.is_empty() {
            return;
        }
        round.is_saved = true;
        if !awaits_all {
            let CheckpointRound { unsaved, asked_by, .. } = round;
            unsaved.retain(|it| asked_by.contains(it));
        }
        match self.config.coordination {
            Coordination::Neighbours => {
                for it in core::mem::take(&mut round.asked) {
                    host.tell(partition, it, Message::Continue(name.position()));
                }
                self.resume_if_saved(partition, now, host);
            }
            Coordination::Global => host.tell(partition, self.coordinator_id, Message::Ack(name.position())),
        }
    }

    /// Records that a partition that receives values from this one has saved its state.
    pub(super) fn continued(
        &mut self,
        from: ProcessId,
        partition: ProcessId,
        position: Position,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        if let Some(round) = self.locals.get_mut(&partition).and_then(|it| it.round(position)) {
            round.unsaved.remove(&from);
            self.resume_if_saved(partition, now, host);
        }
    }

    fn resume_if_saved(&mut self, partition: ProcessId, now: Time, host: &mut dyn PartitionHost<Self>) {
        let Some(round) = self.locals.get_mut(&partition).and_then(|it| it.round.as_mut()) else {
            return;
        };
        if round.is_saved && round.unsaved.is_empty() {
            let position = round.position;
            self.resume(partition, position, now, host);
            host.tell(partition, self.coordinator_id, Message::Ack(position));
        }
    }

    /// Ends the checkpoint, and lets the partition resume.
    pub(super) fn resume(
        &mut self,
        partition: ProcessId,
        position: Position,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        if let Some(round) = local.round.take_if(|it| it.position == position) {
            assert!(
                round.is_saved || !self.config.is_sound(),
                "a partition resumes only once its state is saved"
            );
            local.frozen = now.since(round.began);
            host.release(partition);
        }
    }

    /// Claims, once, that a checkpoint is committed and, after a loss of storage, that the process is protected.
    fn note_committed(&mut self, partition: ProcessId, valid: Position, host: &mut dyn PartitionHost<Self>) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        if valid <= local.committed {
            return;
        }
        local.committed = valid;
        if partition != self.me {
            return;
        }
        let frozen = core::mem::take(&mut local.frozen);
        let vectors = Arc::new(Vectors::default());
        host.claim(Claim::Committed { position: valid, attempt: Attempt(1), forced: false, frozen, vectors });
        if self.boot == Boot::Replaced {
            self.boot = Boot::Restarted;
            host.held();
            host.claim(Claim::Protected);
        }
    }

    /// Aborts the checkpoint in progress, because a recovery begins.
    pub(super) fn abort_checkpoint(&mut self, partition: ProcessId, host: &mut dyn PartitionHost<Self>) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        local.early.clear();
        if let Some(round) = local.round.take() {
            if partition == self.me {
                host.claim(Claim::Aborted { position: round.position, attempt: Attempt(1) });
            }
            host.release(partition);
        }
    }
}
