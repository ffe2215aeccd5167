//! A process's storage: its own checkpoints, the replicas that it keeps for others, and the tables of rollbacks.
//!
//! The process learns the content from a single listing at the start of its life, and then tracks it through the
//! outcome of every operation. A holder answers requests even while it is itself recovering, since recovering processes
//! may depend on each other.
//!
//! Unlike the store of a group, it decides what is useless by the history of each owner's rollbacks, and confirms an
//! owner's list only once that history is durable.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, ImageName, Incarnation, Input, LifeStart, ProcessId, Role, Time, To};

use super::message::{Control, Epoch, Head};
use super::{Config, Image, Independent, ProtocolHost, Rule, group_of};
use crate::machines::{GroupHistory, History, Reads, Refill, Writes};

/// A result that concerns the process itself.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// One of this process's own checkpoints is durable here.
    Durable(ImageName),
    /// One of this process's own checkpoints was read.
    Read(Arc<Image>),
    /// One of this process's own checkpoints turned out to be lost when it was read, possibly for a holder.
    Lost(ImageName),
    /// This process's own checkpoints that are durable here.
    Listed(Epoch, Vec<(ImageName, Arc<Head>)>),
    /// The tables are durable.
    Recorded(Waiter),
}

/// An action that waits until the tables are durable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiter {
    /// This process's own rollback into this incarnation.
    Rollback(Incarnation),
    /// The confirmation of an alert: the alert's sender and newest incarnation.
    Alert(ProcessId, Incarnation),
    /// The confirmation of an owner's rollbacks: the owner and its newest incarnation.
    Hold(ProcessId, Incarnation),
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    me: ProcessId,
    /// The rollbacks that this process has carried out or been alerted to, and the garbage collections.
    pub(super) history: History,
    /// The rollbacks of the owners whose checkpoints are kept here. They are kept separate from `history`, where they
    /// would mask the alerts that follow.
    notes: History,
    /// Number of times that the tables were recorded in this life.
    version: u64,
    waiters: Vec<(u64, Waiter)>,
    is_listed: bool,
    here: BTreeMap<ImageName, Arc<Head>>,
    pub(super) writes: Writes<Independent>,
    reads: Reads<ProcessId>,
    /// Inquiries that wait for writes.
    inquiries: Vec<(ProcessId, Epoch)>,
    /// Requests that arrived before the listing.
    early: Vec<(ProcessId, Control)>,
    refill: Refill,
    refuses_refill: bool,
}

impl Store {
    pub(super) fn new(start: &LifeStart<Config>, host: &mut ProtocolHost) -> Store {
        let LifeStart { me, boot, membership, config, record, .. } = start;
        host.list();
        // A record that cannot be decoded counts as lost: holders and other processes supply the tables.
        let tables = record.as_deref().and_then(|it| postcard::from_bytes(it).ok()).unwrap_or_default();
        let (history, notes): (History, History) = tables;
        let owns = membership.member(*me).role == Role::RANK;
        let mut store = Store {
            me: *me,
            history,
            notes,
            version: 0,
            waiters: Vec::new(),
            is_listed: false,
            here: BTreeMap::new(),
            writes: Writes::default(),
            reads: Reads::default(),
            inquiries: Vec::new(),
            early: Vec::new(),
            refill: Refill::new(*boot, owns, || config.placement.owners(membership, *me)),
            refuses_refill: !config.defects.obeys(Rule::RefillsHolders),
        };
        if *boot == Boot::Replaced {
            store.refill.report(host);
        }
        store
    }

    /// Writes the tables. Once they are durable, `waiter` continues ([`Event::Recorded`]).
    pub(super) fn record(&mut self, waiter: Option<Waiter>, host: &mut ProtocolHost) {
        self.version += 1;
        self.waiters.extend(waiter.map(|it| (self.version, it)));
        let tables = (&self.history, &self.notes);
        let bytes = postcard::to_allocvec(&tables).expect("tables of numbers can be encoded");
        host.record(self.version, bytes.into());
    }

    /// Handles an input that concerns the storage. Ignores other inputs. `retry_at` is the time at which a refused
    /// write is repeated.
    pub(super) fn handle(
        &mut self,
        input: Input<Independent>,
        retry_at: Time,
        now: Time,
        host: &mut ProtocolHost,
    ) -> Vec<Event> {
        match input {
            Input::Image { image, .. } => self.replica_arrived(image, host),
            Input::Persisted(name) => return self.persisted(name, host),
            Input::PersistFailed(name) => {
                self.writes.refused(name, retry_at);
                return self.answer_inquiries(host);
            }
            Input::Read { name, image } => return self.image_read(name, image, host),
            Input::Listed(images) => {
                self.is_listed = true;
                self.here.extend(images);
                for (from, message) in core::mem::take(&mut self.early) {
                    self.handle_message(from, message, host);
                }
                return self.answer_inquiries(host);
            }
            Input::Recorded { version } => return self.recorded(version, host),
            Input::Timeout => self.writes.retry(now, host),
            _ => {}
        }
        Vec::new()
    }

    /// Handles a message to a holder, or to an owner from its holder.
    pub(super) fn handle_message(
        &mut self,
        from: ProcessId,
        message: Control,
        host: &mut ProtocolHost,
    ) -> Vec<Event> {
        match message {
            Control::Hold { .. } if !self.is_listed => self.early.push((from, message)),
            Control::Hold { past, names } => self.hold(from, &past, &names, host),
            Control::Inquire(epoch) => return self.inquire(from, epoch, host),
            Control::Fetch(name) => self.reads.request(name, from, host),
            Control::Refused(name) => self.settled(name, host),
            _ => {}
        }
        Vec::new()
    }

    // ---- Replicas.

    /// Handles an owner's list of the checkpoints to hold: removes what the owner no longer needs, confirms the
    /// replicas that this process already holds, and requests the others.
    fn hold(&mut self, owner: ProcessId, past: &GroupHistory, names: &[ImageName], host: &mut ProtocolHost) {
        self.notes.extend(group_of(owner), past);
        let notes = self.notes.of(group_of(owner));
        self.remove_useless(owner, &notes, host);
        // An older list may arrive after a newer one.
        let needed = names.iter().copied().filter(|name| !is_useless(*name, &notes));
        let (here, missing): (Vec<ImageName>, Vec<ImageName>) =
            needed.partition(|name| self.here.contains_key(name));
        for name in here {
            host.control(To::One(owner), Control::Stored(name));
        }
        if !self.refuses_refill {
            self.refill.wants(owner, missing.iter().copied());
            for name in missing.into_iter().filter(|name| !self.writes.contains(*name)) {
                host.control(To::One(owner), Control::Fetch(name));
            }
        }
        self.record(Some(Waiter::Hold(owner, past.known())), host);
    }

    /// Handles a replica from its owner.
    fn replica_arrived(&mut self, image: Arc<Image>, host: &mut ProtocolHost) {
        let name = image.name;
        if self.here.contains_key(&name) {
            host.control(To::One(name.owner), Control::Stored(name));
        } else if is_useless(name, &self.notes.of(group_of(name.owner))) {
            self.settled(name, host); // A newer list has overtaken the replica.
        } else {
            self.write(image, host);
        }
    }

    /// Writes an image, unless it is already here or being written.
    pub(super) fn write(&mut self, image: Arc<Image>, host: &mut ProtocolHost) {
        if !self.here.contains_key(&image.name) && !self.writes.contains(image.name) {
            self.writes.write(image, host);
        }
    }

    fn persisted(&mut self, name: ImageName, host: &mut ProtocolHost) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(image) = self.writes.finished(name) {
            self.here.insert(name, image.head.clone());
            if name.owner == self.me {
                events.push(Event::Durable(name));
            } else {
                host.control(To::One(name.owner), Control::Stored(name));
                self.settled(name, host);
            }
        } else if !self.here.contains_key(&name) {
            host.delete(name); // The image became useless while it was being written.
        }
        events.append(&mut self.answer_inquiries(host));
        events
    }

    /// Ends the wait for a replica, which is now here or unavailable.
    fn settled(&mut self, name: ImageName, host: &mut ProtocolHost) {
        self.refill.settled(name);
        self.refill.report(host);
    }

    /// Records that this process has its own checkpoints again.
    pub(super) fn has_own(&mut self, host: &mut ProtocolHost) {
        self.refill.has_own();
        self.refill.report(host);
    }

    /// Removes the checkpoints of `owner` that no recovery can need.
    pub(super) fn remove_useless(&mut self, owner: ProcessId, past: &GroupHistory, host: &mut ProtocolHost) {
        let is_useless = |name: &ImageName| name.owner == owner && is_useless(*name, past);
        // A deletion takes effect after all earlier writes, so images that are still being written can be deleted, too.
        self.writes.names().filter(|it| is_useless(it)).for_each(|&it| host.delete(it));
        self.writes.forget(is_useless);
        self.here.retain(|name, _| {
            let is_useless = is_useless(name);
            if is_useless {
                host.delete(*name);
            }
            !is_useless
        });
    }

    // ---- Reads and inquiries.

    /// Reads one of this process's own checkpoints.
    pub(super) fn read(&mut self, name: ImageName, host: &mut ProtocolHost) {
        self.reads.request(name, self.me, host);
    }

    fn image_read(
        &mut self,
        name: ImageName,
        image: Option<Arc<Image>>,
        host: &mut ProtocolHost,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        if image.is_none() {
            // The image is lost or damaged, and must not be relied on.
            self.here.remove(&name);
            host.delete(name);
            if name.owner == self.me {
                events.push(Event::Lost(name));
            }
        }
        for reader in self.reads.finished(name) {
            match &image {
                Some(image) if reader == self.me => events.push(Event::Read(image.clone())),
                Some(image) => host.send_image(reader, image.clone()),
                None if reader == self.me => {}
                // A process that has lost its storage may get the checkpoint back, in which case it announces it again.
                // If it refused the request now, a holder that has also lost its storage would report its own storage
                // as complete.
                None if name.owner == self.me && self.refill.lacks_own() => {}
                None => host.control(To::One(reader), Control::Refused(name)),
            }
        }
        events
    }

    /// Handles a recovering owner's inquiry about its checkpoints that are durable here. The owner may be this process.
    /// An older inquiry may arrive after a newer one, and the owner no longer waits for an answer to it.
    pub(super) fn inquire(&mut self, owner: ProcessId, epoch: Epoch, host: &mut ProtocolHost) -> Vec<Event> {
        match self.inquiries.iter_mut().find(|(it, _)| *it == owner) {
            Some((_, newest)) => *newest = epoch.max(*newest),
            None => self.inquiries.push((owner, epoch)),
        }
        self.answer_inquiries(host)
    }

    /// Answers the inquiries of owners whose images are not being written. Refused writes for these owners are not
    /// repeated: a recovery decides anew what should be stored.
    fn answer_inquiries(&mut self, host: &mut ProtocolHost) -> Vec<Event> {
        let mut events = Vec::new();
        if !self.is_listed || self.inquiries.is_empty() {
            return events;
        }
        let Store { inquiries, writes, here, notes, me, .. } = self;
        writes.forget_refused(|name| inquiries.iter().any(|&(owner, _)| owner == name.owner));
        inquiries.retain(|&(owner, epoch)| {
            if writes.names().any(|name| name.owner == owner) {
                return true;
            }
            let of_owner = here.iter().filter(|(name, _)| name.owner == owner);
            let parts = of_owner.map(|(&name, head)| (name, head.clone())).collect();
            if owner == *me {
                events.push(Event::Listed(epoch, parts));
            } else {
                let past = notes.of(group_of(owner));
                host.control(To::One(owner), Control::Report { epoch, past, parts });
            }
            false
        });
        events
    }

    fn recorded(&mut self, version: u64, host: &mut ProtocolHost) -> Vec<Event> {
        let mut events = Vec::new();
        let due = self.waiters.partition_point(|&(wanted, _)| wanted <= version);
        for (_, waiter) in self.waiters.drain(..due) {
            match waiter {
                Waiter::Hold(owner, incarnation) => {
                    host.control(To::One(owner), Control::Noted(incarnation));
                    self.refill.owner_reported(owner);
                    self.refill.report(host);
                }
                other => events.push(Event::Recorded(other)),
            }
        }
        events
    }
}

/// Returns whether a checkpoint's owner has undone or collected it. No recovery can then need the checkpoint.
fn is_useless(name: ImageName, past: &GroupHistory) -> bool {
    name.sn < past.collected.position.sn || past.undid_checkpoint(name.position())
}
