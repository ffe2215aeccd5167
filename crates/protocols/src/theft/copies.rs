//! Copies of others' images: held, and looked up.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Image, ImageName, Machine, Membership, ProcessId, To};

use super::TaskRecovery;
use super::message::{Head, Message};

/// An image of a process.
pub(super) type ImageOf = Image<Head, ()>;

/// What this process's storage holds, its own images included.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    /// Durable here, by owner, ascending.
    names: BTreeMap<ProcessId, BTreeSet<ImageName>>,
    /// Asked for before the storage was listed, or read for a process that asked.
    asked: Vec<(ProcessId, ProcessId)>,
}

impl Copies {
    pub(super) fn add(&mut self, name: ImageName) {
        self.names.entry(name.owner).or_default().insert(name);
    }

    pub(super) fn newest(&self, owner: ProcessId) -> Option<ImageName> {
        self.names.get(&owner)?.last().copied()
    }

    /// An image is durable: older ones of its owner are not needed any more.
    pub(super) fn settle(&mut self, name: ImageName, host: &mut dyn Machine<TaskRecovery>) {
        self.add(name);
        let all = self.names.entry(name.owner).or_default();
        let newer = all.split_off(&name);
        for old in core::mem::replace(all, newer) {
            host.delete(old);
        }
    }

    /// Takes an image of its owner, unless it is none that counts: the owner is gone, or lives again.
    pub(super) fn hold(
        &mut self,
        image: Arc<ImageOf>,
        membership: &Membership,
        host: &mut dyn Machine<TaskRecovery>,
    ) {
        let name = image.name;
        let owner = membership.member(name.owner);
        if owner.gone || name.incarnation.0 < owner.life.0 {
            return;
        }
        match self.newest(name.owner) {
            Some(newest) if newest == name => {
                host.control(To::One(name.owner), Message::Durable(name));
            }
            Some(newest) if newest > name => {}
            _ => host.persist(image),
        }
    }

    /// Answers a process that asks for the newest image of an owner.
    pub(super) fn fetch(
        &mut self,
        from: ProcessId,
        owner: ProcessId,
        is_listed: bool,
        host: &mut dyn Machine<TaskRecovery>,
    ) {
        if !is_listed {
            self.asked.push((from, owner));
        } else if let Some(name) = self.newest(owner) {
            self.asked.push((from, owner));
            host.read(name);
        } else {
            host.control(To::One(from), Message::Absent(owner));
        }
    }

    /// The storage has been listed: those that asked before are answered now.
    pub(super) fn listed(
        &mut self,
        names: impl Iterator<Item = ImageName>,
        host: &mut dyn Machine<TaskRecovery>,
    ) {
        names.for_each(|name| self.add(name));
        for (from, owner) in core::mem::take(&mut self.asked) {
            self.fetch(from, owner, true, host);
        }
    }

    /// An image was read: those that asked for it get it.
    pub(super) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<ImageOf>>,
        host: &mut dyn Machine<TaskRecovery>,
    ) {
        if image.is_none() {
            self.names.entry(name.owner).or_default().remove(&name);
        }
        let asked = core::mem::take(&mut self.asked);
        let (answered, others) = asked.into_iter().partition(|(_, owner)| *owner == name.owner);
        self.asked = others;
        for (from, owner) in answered {
            match image {
                Some(image) => host.send_image(from, image.clone()),
                None => self.fetch(from, owner, true, host),
            }
        }
    }
}

/// The search for the newest image of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    pub(super) best: Option<Arc<ImageOf>>,
    /// Whose answers are missing.
    pub(super) asked: BTreeSet<ProcessId>,
    /// Read in this process's own storage.
    pub(super) reading: Option<ImageName>,
}

impl Search {
    pub(super) fn is_over(&self) -> bool {
        self.asked.is_empty() && self.reading.is_none()
    }

    pub(super) fn found(&mut self, image: &Arc<ImageOf>) {
        if self.best.as_ref().is_none_or(|best| best.name < image.name) {
            self.best = Some(image.clone());
        }
    }
}
