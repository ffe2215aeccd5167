//! A checkpoint, as a partition takes part in it (CCK long paper, rules of the coordinator and of a process).
//!
//! The partition stops, and asks all that ever send to it. The answers come after everything that they sent before they
//! stopped themselves, so that its state is saved with all that was in transit to it. It resumes once all that it ever sends to
//! have saved theirs: what it sends then is part of no saved state.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Attempt, Boot, Claim, ImageName, Position, ProcessId, Role, Time, Vectors};
use faultline_dataflow::partition::{Executed, PartitionHost};

use super::config::{Coordination, Defect};
use super::holders::holders;
use super::message::{Head, ImageOf, Message};
use super::{Cck, Local};

/// A checkpoint in which a partition takes part.
#[derive(Clone, Debug)]
pub(super) struct Session {
    position: Position,
    /// Valid when it began.
    valid: Position,
    began: Time,
    /// Partitions that were asked to stop.
    asked: Vec<ProcessId>,
    /// Those whose channel to this one may not be drained.
    unanswered: BTreeSet<ProcessId>,
    /// The state was taken, and is being stored.
    is_taken: bool,
    /// Processes that have not stored the image.
    unstored: BTreeSet<ProcessId>,
    /// Partitions that have not saved their state, and that this one sends to.
    unsaved: BTreeSet<ProcessId>,
    /// Partitions that have asked this one.
    asked_by: BTreeSet<ProcessId>,
    is_saved: bool,
}

impl Local {
    fn session(&mut self, position: Position) -> Option<&mut Session> {
        self.session.as_mut().filter(|it| it.position == position)
    }
}

impl Cck {
    /// The coordinator begins a checkpoint.
    pub(super) fn begin_session(
        &mut self,
        partition: ProcessId,
        position: Position,
        valid: Position,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let is_current = |it: &Local| it.epoch == position.incarnation && it.session.is_none();
        if !host.runs(partition) || !self.locals.get(&partition).is_some_and(is_current) {
            return;
        }
        self.note_committed(partition, valid, host);
        self.note_valid(partition, valid);
        host.end_rerun(partition);
        host.hold(partition);
        let (asked, sent_to) = match self.config.coordination {
            Coordination::Global => (self.others(partition), Vec::new()),
            Coordination::Neighbours => (self.senders(partition, host), host.plan().receivers_of(partition)),
        };
        let local = self.locals.get_mut(&partition).expect("it was looked up");
        local.session = Some(Session {
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
        let of_session = |it: &&(Position, ProcessId)| it.0 == position;
        let early: Vec<ProcessId> = local.early.iter().filter(of_session).map(|it| it.1).collect();
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

    /// The partitions that are asked to stop.
    fn senders(&self, partition: ProcessId, host: &mut dyn PartitionHost<Self>) -> Vec<ProcessId> {
        let mut senders = host.plan().senders_to(partition);
        if self.config.defects.has(Defect::SendersByNeed) {
            let all = Executed { before: host.executed(partition).before + 1, beyond: BTreeSet::new() };
            senders.retain(|it| !host.lacking(partition, *it, &all).is_empty());
        }
        senders
    }

    /// A partition asks this one to stop, or says that it has.
    pub(super) fn pinged(
        &mut self,
        from: ProcessId,
        partition: ProcessId,
        position: Position,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        match (local.session(position), self.config.coordination) {
            (None, _) => drop(local.early.insert((position, from))),
            (Some(session), Coordination::Neighbours) => {
                session.asked_by.insert(from);
                host.tell(partition, from, Message::Pong(position));
            }
            (Some(_), Coordination::Global) => self.ponged(from, partition, position, host),
        }
    }

    /// Everything that this partition sent before it stopped has arrived.
    pub(super) fn ponged(
        &mut self,
        from: ProcessId,
        partition: ProcessId,
        position: Position,
        host: &mut dyn PartitionHost<Self>,
    ) {
        if let Some(session) = self.locals.get_mut(&partition).and_then(|it| it.session(position)) {
            session.unanswered.remove(&from);
            self.save_if_drained(partition, host);
        }
    }

    fn save_if_drained(&mut self, partition: ProcessId, host: &mut dyn PartitionHost<Self>) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        let Some(session) = local.session.as_mut().filter(|it| it.unanswered.is_empty() && !it.is_taken)
        else {
            return;
        };
        let Position { incarnation, sn } = session.position;
        let name = ImageName { owner: partition, incarnation, sn, attempt: Attempt(1) };
        let head = Arc::new(Head { valid: session.valid });
        let image = Arc::new(ImageOf { name, head, saved: Arc::new(()), snapshot: host.snapshot(partition) });
        session.is_taken = true;
        let holders = holders(&self.config, &self.membership, partition, self.me);
        session.unstored = holders.iter().copied().chain([self.me]).collect();
        if self.config.defects.has(Defect::OneSlot) {
            local.slots.clear();
        }
        local.slots.insert(session.position, image.clone());
        holders.into_iter().for_each(|it| host.send_image(it, image.clone()));
        self.copies.write(image, self.me, host);
    }

    /// A process has stored an image durably.
    pub(super) fn stored(
        &mut self,
        name: ImageName,
        by: ProcessId,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let partition = name.owner;
        let defects = self.config.defects;
        let per_ping = defects.has(Defect::ContinuePerPing) || defects.has(Defect::SendersByNeed);
        let local = self.locals.get_mut(&partition);
        let Some(session) = local.and_then(|it| it.session(name.position())) else { return };
        session.unstored.remove(&by);
        if session.is_saved || !session.unstored.is_empty() {
            return;
        }
        session.is_saved = true;
        if per_ping {
            let Session { unsaved, asked_by, .. } = session;
            unsaved.retain(|it| asked_by.contains(it));
        }
        match self.config.coordination {
            Coordination::Neighbours => {
                for it in core::mem::take(&mut session.asked) {
                    host.tell(partition, it, Message::Continue(name.position()));
                }
                self.resume_if_saved(partition, now, host);
            }
            Coordination::Global => host.tell(partition, self.director, Message::Ack(name.position())),
        }
    }

    /// A partition that this one sends to has saved its state.
    pub(super) fn continued(
        &mut self,
        from: ProcessId,
        partition: ProcessId,
        position: Position,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        if let Some(session) = self.locals.get_mut(&partition).and_then(|it| it.session(position)) {
            session.unsaved.remove(&from);
            self.resume_if_saved(partition, now, host);
        }
    }

    fn resume_if_saved(&mut self, partition: ProcessId, now: Time, host: &mut dyn PartitionHost<Self>) {
        let Some(session) = self.locals.get_mut(&partition).and_then(|it| it.session.as_mut()) else {
            return;
        };
        if session.is_saved && session.unsaved.is_empty() {
            let position = session.position;
            self.resume(partition, position, now, host);
            host.tell(partition, self.director, Message::Ack(position));
        }
    }

    /// The partition resumes.
    pub(super) fn resume(
        &mut self,
        partition: ProcessId,
        position: Position,
        now: Time,
        host: &mut dyn PartitionHost<Self>,
    ) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        if let Some(session) = local.session.take_if(|it| it.position == position) {
            local.frozen = now.since(session.began);
            host.release(partition);
        }
    }

    /// States that a checkpoint is valid, once, and that what was lost with a storage is replaced.
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

    /// A recovery begins: the checkpoint that was being taken is none.
    pub(super) fn abort_session(&mut self, partition: ProcessId, host: &mut dyn PartitionHost<Self>) {
        let Some(local) = self.locals.get_mut(&partition) else { return };
        local.early.clear();
        if let Some(session) = local.session.take() {
            if partition == self.me {
                host.claim(Claim::Aborted { position: session.position, attempt: Attempt(1) });
            }
            host.release(partition);
        }
    }
}
