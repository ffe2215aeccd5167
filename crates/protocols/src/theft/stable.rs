//! A process's own checkpoints: one is written at a time, and what waits for the next one waits together.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Claim, Image, ImageName, Incarnation, Life, Membership, Position, ProcessId, Sn, Span, Theft,
    Time, Vectors,
};
use faultline_dataflow::recovery::{Host, Leg};

use super::TaskRecovery;
use super::config::Config;
use super::copies::ImageOf;
use super::holders::holders;
use super::message::Head;

/// A process's own checkpoints.
#[derive(Clone, Debug)]
pub(super) struct Stable {
    me: ProcessId,
    life: Life,
    next: Sn,
    /// The newest that is durable here and at its holders.
    pub(super) newest: Option<Arc<ImageOf>>,
    writing: Option<Write>,
    /// Legs that may go with the next checkpoint.
    waiting: Vec<(Theft, Leg)>,
    /// A checkpoint is to be taken once the one that is written is durable.
    wanted: bool,
    /// Legs whose checkpoint is durable, until this process is known to have started.
    held: Vec<(Theft, Leg)>,
    /// When the next checkpoint is due, or a write is tried again.
    pub(super) due: Time,
}

/// A checkpoint on its way to stable storage.
#[derive(Clone, Debug)]
struct Write {
    image: Arc<ImageOf>,
    is_forced: bool,
    is_here: bool,
    holders: BTreeSet<ProcessId>,
    legs: Vec<(Theft, Leg)>,
}

impl Stable {
    pub(super) fn new(me: ProcessId, life: Life, now: Time, tau: Span) -> Stable {
        Stable {
            me,
            life,
            next: Sn(1),
            newest: None,
            writing: None,
            waiting: Vec::new(),
            wanted: false,
            held: Vec::new(),
            due: now + tau,
        }
    }

    /// Whether this leg waits for a checkpoint, so that it will go anyway.
    pub(super) fn awaits(&self, theft: Theft, leg: Leg) -> bool {
        let written = self.writing.iter().flat_map(|it| &it.legs);
        self.waiting.iter().chain(written).chain(&self.held).any(|it| *it == (theft, leg))
    }

    /// The leg goes with the next checkpoint.
    pub(super) fn await_next(&mut self, theft: Theft, leg: Leg) {
        if !self.awaits(theft, leg) {
            self.waiting.push((theft, leg));
        }
    }

    /// Takes a checkpoint of the state as it is now, or as soon as the one that is written is durable.
    pub(super) fn force(&mut self) {
        self.wanted = true;
    }

    /// Takes the checkpoint that is wanted, unless one is written.
    pub(super) fn advance(
        &mut self,
        config: &Config,
        membership: &Membership,
        now: Time,
        host: &mut dyn Host<TaskRecovery>,
        absorbed: Arc<[ProcessId]>,
    ) {
        let is_forced = core::mem::take(&mut self.wanted);
        if self.writing.is_some() {
            self.wanted = is_forced;
            return;
        }
        if !is_forced && now < self.due {
            return;
        }
        self.due = now + config.tau;
        let name = ImageName {
            owner: self.me,
            incarnation: Incarnation(self.life.0),
            sn: self.next,
            attempt: Attempt(1),
        };
        self.next = self.next.next();
        let snapshot = host.snapshot();
        let image =
            Arc::new(Image { name, head: Arc::new(Head { absorbed }), saved: Arc::new(()), snapshot });
        host.persist(image.clone());
        let legs = core::mem::take(&mut self.waiting);
        let write = Write { image, is_forced, is_here: false, holders: BTreeSet::new(), legs };
        write.send(config, membership, host);
        self.writing = Some(write);
    }

    /// Sends what is written to holders that may not have it, and writes it here if that failed.
    pub(super) fn again(
        &mut self,
        config: &Config,
        membership: &Membership,
        host: &mut dyn Host<TaskRecovery>,
    ) {
        if let Some(write) = &mut self.writing {
            write.send(config, membership, host);
            if !write.is_here {
                host.persist(write.image.clone());
            }
        }
    }

    /// A holder's life began, or its storage was lost.
    pub(super) fn refill(&mut self, holder: ProcessId, host: &mut dyn Host<TaskRecovery>) -> bool {
        let image = self.writing.as_mut().map(|it| {
            it.holders.remove(&holder);
            &it.image
        });
        let image = image.or(self.newest.as_ref());
        image.inspect(|it| host.send_image(holder, (**it).clone())).is_some()
    }

    /// Images that are on their way are not: the holder of a copy failed.
    pub(super) fn failed(&mut self, holder: ProcessId) {
        if let Some(write) = &mut self.writing {
            write.holders.remove(&holder);
        }
    }

    pub(super) fn is_here(&mut self, name: ImageName) {
        if let Some(write) = self.writing.as_mut().filter(|it| it.image.name == name) {
            write.is_here = true;
        }
    }

    pub(super) fn is_at(&mut self, name: ImageName, holder: ProcessId) {
        if let Some(write) = self.writing.as_mut().filter(|it| it.image.name == name) {
            write.holders.insert(holder);
        }
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Completes the write if it is durable everywhere: then its name.
    pub(super) fn complete(
        &mut self,
        config: &Config,
        membership: &Membership,
        host: &mut dyn Host<TaskRecovery>,
    ) -> Option<ImageName> {
        let is_durable = |write: &&mut Write| {
            let mut all = holders(config, membership, self.me).into_iter();
            write.is_here && all.all(|it| write.holders.contains(&it))
        };
        self.writing.as_mut().filter(is_durable)?;
        let write = self.writing.take()?;
        let name = write.image.name;
        self.newest = Some(write.image);
        self.held.extend(write.legs);
        host.claim(Claim::Committed {
            position: name.position(),
            attempt: name.attempt,
            forced: write.is_forced,
            frozen: Span::ZERO,
            vectors: Arc::new(Vectors::default()),
        });
        if !membership.member(self.me).started {
            host.started();
        }
        Some(name)
    }

    /// Lets the legs go whose checkpoint is durable, once everybody knows that this process has started.
    pub(super) fn release(&mut self, membership: &Membership, host: &mut dyn Host<TaskRecovery>) {
        if membership.member(self.me).started {
            self.held.drain(..).for_each(|(theft, leg)| host.pass(theft, leg));
        }
    }

    /// What a restored process states.
    pub(super) fn claim_restored(&self, name: Option<ImageName>, host: &mut dyn Host<TaskRecovery>) {
        let checkpoint = name.map(ImageName::position).unwrap_or_default();
        host.claim(Claim::RolledBack {
            to: Position { incarnation: Incarnation(self.life.0), sn: checkpoint.sn },
            checkpoint,
            cause: faultline_core::Cause::Failure,
            vectors: Arc::new(Vectors::default()),
        });
    }
}

impl Write {
    fn send(&self, config: &Config, membership: &Membership, host: &mut dyn Host<TaskRecovery>) {
        for holder in holders(config, membership, self.image.name.owner) {
            if !self.holders.contains(&holder) && membership.member(holder).up {
                host.send_image(holder, self.image.clone());
            }
        }
    }
}
