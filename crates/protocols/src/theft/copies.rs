//! Stores and looks up images of this process and of others.
//!
//! The state of a process is a *chain*: its newest checkpoint and, under SEL, the segments of its log that
//! follow without a gap. A segment has its checkpoint's name with a higher attempt, so that names are in the
//! order of the log.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Attempt, Image, ImageName, Machine, Membership, ProcessId, To};

use super::TaskRecovery;
use super::message::{Head, Message};

/// An image of a process.
pub(super) type ImageOf = Image<Head, ()>;

/// The attempt of a checkpoint. Segments of the log that follows it have higher attempts.
pub(super) const CHECKPOINT: Attempt = Attempt(1);

/// Returns whether an image is a checkpoint rather than a segment of a log.
pub(super) fn is_checkpoint(name: ImageName) -> bool {
    name.attempt == CHECKPOINT
}

/// The contents of this process's storage, including its own images.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    /// Durable images by owner, ascending.
    names: BTreeMap<ProcessId, BTreeSet<ImageName>>,
    /// Requests received before the storage was listed: the requesting process and the owner.
    early: Vec<(ProcessId, ProcessId)>,
    /// Reads for processes that requested images.
    lookups: Vec<Lookup>,
}

/// The images of an owner that are being read for a process that requested them.
#[derive(Clone, Debug)]
struct Lookup {
    from: ProcessId,
    owner: ProcessId,
    missing: BTreeSet<ImageName>,
    read: Vec<Arc<ImageOf>>,
    is_damaged: bool,
}

/// The answer to a process that asked for an owner's state.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) to: ProcessId,
    pub(super) owner: ProcessId,
    /// All images from the newest checkpoint on.
    pub(super) images: Vec<Arc<ImageOf>>,
    /// An image that should exist could not be read.
    pub(super) is_damaged: bool,
}

impl Copies {
    /// Returns the newest checkpoint of an owner in this storage.
    fn checkpoint(&self, owner: ProcessId) -> Option<ImageName> {
        self.names.get(&owner)?.iter().copied().rfind(|it| is_checkpoint(*it))
    }

    pub(super) fn is_empty(&self, owner: ProcessId) -> bool {
        self.checkpoint(owner).is_none()
    }

    /// Handles a durable image: collects images before its owner's newest checkpoint.
    pub(super) fn settle(&mut self, name: ImageName, host: &mut dyn Machine<TaskRecovery>) {
        let all = self.names.entry(name.owner).or_default();
        all.insert(name);
        let Some(checkpoint) = all.iter().copied().rfind(|it| is_checkpoint(*it)) else { return };
        let kept = all.split_off(&checkpoint);
        for old in core::mem::replace(all, kept) {
            host.delete(old);
        }
    }

    /// Stores an image of its owner, unless the owner failed permanently or the image is of an earlier life.
    pub(super) fn hold(
        &mut self,
        image: Arc<ImageOf>,
        membership: &Membership,
        host: &mut dyn Machine<TaskRecovery>,
    ) {
        let name = image.name;
        let owner = membership.member(name.owner);
        if owner.gone || name.incarnation < owner.life.incarnation() {
            return;
        }
        let is_held = self.names.get(&name.owner).is_some_and(|it| it.contains(&name));
        if is_held || self.checkpoint(name.owner).is_some_and(|it| it > name) {
            host.control(To::One(name.owner), Message::Durable(name));
        } else {
            host.persist(image);
        }
    }

    /// Looks up the newest state of an owner for a requesting process. Answers immediately if there is none.
    pub(super) fn fetch(
        &mut self,
        from: ProcessId,
        owner: ProcessId,
        is_listed: bool,
        host: &mut dyn Machine<TaskRecovery>,
    ) -> Option<Answer> {
        if !is_listed {
            self.early.push((from, owner));
            return None;
        }
        self.lookups.retain(|it| (it.from, it.owner) != (from, owner));
        self.look_up(from, owner, false, host)
    }

    fn look_up(
        &mut self,
        from: ProcessId,
        owner: ProcessId,
        is_damaged: bool,
        host: &mut dyn Machine<TaskRecovery>,
    ) -> Option<Answer> {
        let Some(checkpoint) = self.checkpoint(owner) else {
            return Some(Answer { to: from, owner, images: Vec::new(), is_damaged });
        };
        let missing: BTreeSet<ImageName> = self.names[&owner].range(checkpoint..).copied().collect();
        missing.iter().for_each(|it| host.read(*it));
        self.lookups.push(Lookup { from, owner, missing, read: Vec::new(), is_damaged });
        None
    }

    /// Handles the listing of the storage: answers the processes that asked before it.
    pub(super) fn listed(
        &mut self,
        names: impl Iterator<Item = ImageName>,
        host: &mut dyn Machine<TaskRecovery>,
    ) -> Vec<Answer> {
        for name in names {
            self.names.entry(name.owner).or_default().insert(name);
        }
        let early = core::mem::take(&mut self.early);
        early.into_iter().filter_map(|(from, owner)| self.fetch(from, owner, true, host)).collect()
    }

    /// Handles an image that was read, or could not be. In the latter case it is damaged or was collected
    /// meanwhile, and the remaining images are looked up again.
    pub(super) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<ImageOf>>,
        host: &mut dyn Machine<TaskRecovery>,
    ) -> Vec<Answer> {
        let is_damaged =
            image.is_none() && self.names.get_mut(&name.owner).is_some_and(|it| it.remove(&name));
        let lookups = core::mem::take(&mut self.lookups);
        let (concerned, others) = lookups.into_iter().partition(|it| it.missing.contains(&name));
        self.lookups = others;
        let mut answers = Vec::new();
        for mut lookup in concerned {
            let Some(image) = image else {
                let is_damaged = is_damaged || lookup.is_damaged;
                answers.extend(self.look_up(lookup.from, lookup.owner, is_damaged, host));
                continue;
            };
            lookup.missing.remove(&name);
            lookup.read.push(image.clone());
            if lookup.missing.is_empty() {
                let Lookup { from, owner, read, is_damaged, .. } = lookup;
                answers.push(Answer { to: from, owner, images: read, is_damaged });
            } else {
                self.lookups.push(lookup);
            }
        }
        answers
    }
}

/// The search for the newest state of a process: in this process's own storage, and at others.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    images: BTreeMap<ImageName, Arc<ImageOf>>,
    /// Processes whose answers are missing, this one included.
    pub(super) asked: BTreeSet<ProcessId>,
    /// Images that a process announced but that have not arrived.
    announced: BTreeMap<ProcessId, BTreeSet<ImageName>>,
}

impl Search {
    pub(super) fn of(asked: BTreeSet<ProcessId>) -> Search {
        Search { asked, ..Search::default() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.asked.is_empty()
    }

    /// Forgets what a process announced: it is asked again, or is no longer asked.
    pub(super) fn begin_again(&mut self, with: ProcessId) {
        self.announced.remove(&with);
    }

    /// Handles an image that arrived, or that was read here.
    pub(super) fn found(&mut self, image: &Arc<ImageOf>) {
        let name = image.name;
        self.images.insert(name, image.clone());
        for names in self.announced.values_mut() {
            names.remove(&name);
        }
        self.conclude();
    }

    /// Handles the announcement that a process has sent these images or will send them.
    pub(super) fn holds(&mut self, from: ProcessId, names: &[ImageName]) {
        let missing = names.iter().copied().filter(|it| !self.images.contains_key(it)).collect();
        self.announced.insert(from, missing);
        self.conclude();
    }

    fn conclude(&mut self) {
        let (asked, announced) = (&mut self.asked, &self.announced);
        asked.retain(|it| announced.get(it).is_none_or(|missing| !missing.is_empty()));
    }

    /// Returns the newest checkpoint found, and the segments of the log that follow it without a gap.
    pub(super) fn chain(&self) -> Vec<Arc<ImageOf>> {
        let Some(checkpoint) = self.images.keys().copied().rfind(|it| is_checkpoint(*it)) else {
            return Vec::new();
        };
        let following = self.images.range(checkpoint..).zip(CHECKPOINT.0..);
        following
            .take_while(|((name, _), attempt)| name.attempt.0 == *attempt)
            .map(|((_, it), _)| it.clone())
            .collect()
    }
}
