//! A process's storage: its own part, and the replicas that it keeps for others.
//!
//! The process learns the content from a single listing at the start of its life, and then tracks it through the
//! outcome of every operation. A recovering group's inquiry waits until all writes in progress for that group have
//! completed or failed, so that the answer remains correct. Replicas from an older incarnation that arrive later are
//! ignored, unless this process requested them.
//!
//! A part of a checkpoint may need other images ([`Grouped::companions`]). The part is written only once its companions
//! are durable in the same storage, so storage that contains the part also contains its companions. Companions are
//! removed together with their part.
//!
//! A group restores only one checkpoint, so an owner names one part for its holders to keep. Owners under HC3I and
//! independent checkpoints name several, whose number depends on rollbacks; the stores of these protocols therefore keep
//! a history of each owner's rollbacks.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, GroupId, ImageName, Incarnation, Machine, ProcessId, Role, Time, To};

use super::message::{GroupMessage, RestoreNo};
use super::view::View;
use super::{Grouped, Rules};
use crate::machines::{Checkpoint, ImageOf, Reads, Refill, Writes};
use crate::placement::Placement;

/// Messages that result from operations on the storage. The receiver may be this process itself.
pub(crate) type Answers = Vec<(ProcessId, GroupMessage)>;

/// An owner's message that waits until this process knows what its storage contains.
#[derive(Clone, Copy, Debug)]
enum Early {
    /// [`GroupMessage::Hold`]
    Hold(Incarnation, Option<ImageName>),
    /// [`GroupMessage::Secure`]
    Secure(ImageName),
}

#[derive(Clone, Debug)]
pub(crate) struct Store<P: Grouped> {
    me: ProcessId,
    /// Whether the initial listing has arrived.
    is_listed: bool,
    here: BTreeMap<ImageName, Arc<P::Head>>,
    /// Parts to be written once their companions are durable here, and the processes to ask for the companions.
    pending: BTreeMap<ImageName, (Arc<ImageOf<P>>, ProcessId)>,
    pub(crate) writes: Writes<P>,
    /// Inquiries that wait for writes.
    inquiries: Vec<(ProcessId, RestoreNo, GroupId)>,
    /// Owners' messages that arrived before the listing, in this order.
    early: Vec<(ProcessId, Early)>,
    reads: Reads<ProcessId>,
    /// Images requested from their owners, and parts that arrived and are not durable yet. If the owner announced the
    /// image as the part to hold, the entry contains the incarnation of the owner's group, and older images are removed
    /// once the part is durable here.
    wanted: BTreeMap<ImageName, Option<Incarnation>>,
    refill: Refill,
    rules: Rules,
}

impl<P: Grouped> Store<P> {
    /// Requests a listing of the storage, whose content is not known yet.
    pub(super) fn new(
        placement: Placement,
        rules: Rules,
        view: &View,
        me: ProcessId,
        boot: Boot,
        host: &mut dyn Machine<P>,
    ) -> Store<P> {
        host.list();
        let is_rank = view.membership.member(me).role == Role::RANK;
        Store {
            me,
            is_listed: false,
            here: BTreeMap::new(),
            pending: BTreeMap::new(),
            writes: Writes::default(),
            inquiries: Vec::new(),
            early: Vec::new(),
            reads: Reads::default(),
            wanted: BTreeMap::new(),
            refill: Refill::new(boot, is_rank, || placement.owners(&view.membership, me)),
            rules,
        }
    }

    pub(crate) fn listed(
        &mut self,
        images: Vec<(ImageName, Arc<P::Head>)>,
        view: &View,
        host: &mut dyn Machine<P>,
    ) -> Answers {
        self.is_listed = true;
        self.here.extend(images);
        // A part may have arrived before its companions were known to be here.
        self.write_pending(host);
        for (owner, early) in core::mem::take(&mut self.early) {
            match early {
                Early::Hold(incarnation, name) => self.hold(owner, incarnation, name, host),
                Early::Secure(name) => self.secure(owner, name, host),
            }
        }
        self.report_when_complete(host);
        self.answer(view)
    }

    /// Writes a part received from `from` once its companions are durable here.
    pub(crate) fn write_whole(&mut self, from: ProcessId, image: Arc<ImageOf<P>>, host: &mut dyn Machine<P>) {
        let lacking: Vec<ImageName> = self.lacking(&image).collect();
        if lacking.is_empty() || !self.rules.companions_first {
            self.writes.write(image, host);
            return;
        }
        for name in lacking.into_iter().filter(|&name| !self.writes.contains(name)) {
            host.control(To::One(from), GroupMessage::Fetch(name).into());
        }
        self.pending.insert(image.name, (image, from));
    }

    /// Iterates over the companions of a part that are not durable here.
    fn lacking(&self, part: &ImageOf<P>) -> impl Iterator<Item = ImageName> + '_ {
        let names = P::companions(part.name.owner, &part.head).into_iter();
        names.filter(|it| !self.here.contains_key(it))
    }

    /// Writes a companion of this process's own part, received from a holder.
    pub(crate) fn write_companion(&mut self, image: Arc<ImageOf<P>>, host: &mut dyn Machine<P>) {
        if !self.here.contains_key(&image.name) && !self.writes.contains(image.name) {
            self.writes.write(image, host);
        }
    }

    /// Writes the parts whose companions are all durable here now.
    fn write_pending(&mut self, host: &mut dyn Machine<P>) {
        let is_whole = |(name, (image, _)): (&ImageName, &(Arc<ImageOf<P>>, ProcessId))| {
            self.lacking(image).next().is_none().then_some(*name)
        };
        let whole: Vec<ImageName> = self.pending.iter().filter_map(is_whole).collect();
        for name in whole {
            if let Some((image, _)) = self.pending.remove(&name) {
                self.writes.write(image, host);
            }
        }
    }

    /// Handles an image that is now durable, whichever process owns it.
    pub(crate) fn persisted(&mut self, name: ImageName, view: &View, host: &mut dyn Machine<P>) -> Answers {
        let head = self.writes.finished(name).map(|image| image.head.clone());
        self.here.insert(name, head.unwrap_or_default());
        if !name.is_part() {
            self.write_pending(host);
        }
        let mut answers = self.answer(view);
        if name.owner != self.me {
            answers.push((name.owner, GroupMessage::Stored(name)));
        }
        if let Some(Some(incarnation)) = self.wanted.remove(&name) {
            self.remove_older(name.owner, incarnation, Some(name), host);
        }
        self.report_when_complete(host);
        answers
    }

    pub(crate) fn write_failed(&mut self, name: ImageName, retry_at: Time, view: &View) -> Answers {
        self.writes.refused(name, retry_at);
        self.give_up_for_inquiries(view);
        self.answer(view)
    }

    /// Handles a recovering group's inquiry about its parts.
    pub(crate) fn inquired(
        &mut self,
        from: ProcessId,
        restore: RestoreNo,
        group: GroupId,
        view: &View,
    ) -> Answers {
        self.inquiries.push((from, restore, group));
        // The processes that were asked for missing companions may no longer answer. The owners will announce again
        // which parts should be held.
        self.pending.retain(|name, _| view.group_of(name.owner) != group);
        self.give_up_for_inquiries(view);
        self.answer(view)
    }

    /// Stops repeating failed writes for groups that ask what is durable.
    fn give_up_for_inquiries(&mut self, view: &View) {
        let inquiries = &self.inquiries;
        self.writes.forget_refused(|name| {
            let group = view.group_of(name.owner);
            inquiries.iter().any(|&(.., asking)| asking == group)
        });
    }

    fn answer(&mut self, view: &View) -> Answers {
        if !self.is_listed {
            return Vec::new();
        }
        let is_writing = |group: GroupId| self.writes.names().any(|name| view.group_of(name.owner) == group);
        let due = |&(.., group): &(ProcessId, RestoreNo, GroupId)| !is_writing(group);
        let (due, rest): (Vec<_>, Vec<_>) = self.inquiries.iter().copied().partition(due);
        self.inquiries = rest;
        let answer = |(from, restore, group): (ProcessId, RestoreNo, GroupId)| {
            let is_asked_for = |name: &&ImageName| name.is_part() && view.group_of(name.owner) == group;
            let parts = self.here.keys().filter(is_asked_for).copied();
            (from, GroupMessage::Stock { restore, parts: parts.collect() })
        };
        due.into_iter().map(answer).collect()
    }

    /// Reads an image for a process. If `receiver` is this process, the image is not sent.
    pub(crate) fn read_for(&mut self, receiver: ProcessId, name: ImageName, host: &mut dyn Machine<P>) {
        self.reads.request(name, receiver, host);
    }

    /// Handles a completed read. Returns whether this process itself requested the image, and the messages to other
    /// processes.
    pub(crate) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<ImageOf<P>>>,
        host: &mut dyn Machine<P>,
    ) -> (bool, Answers) {
        if image.is_none() {
            // The image is lost or damaged, and must not be relied on.
            self.here.remove(&name);
            host.delete(name);
            self.forget_parts_with(name, host);
        }
        let mut readers = self.reads.finished(name);
        readers.sort_unstable();
        readers.dedup();
        let own = readers.contains(&self.me);
        let mut answers = Vec::new();
        for receiver in readers.into_iter().filter(|&it| it != self.me) {
            match image {
                Some(image) => host.send_image(receiver, image.clone()),
                // An owner that has lost its storage may get its part back, and then announces it again. If it refused
                // the request now, a holder that has also lost its storage would report its own storage as complete.
                None if name.is_part() && name.owner == self.me && self.refill.lacks_own() => {}
                None => answers.push((receiver, GroupMessage::Refused(name))),
            }
        }
        (own, answers)
    }

    /// Removes the stored parts that need a lost companion.
    fn forget_parts_with(&mut self, lost: ImageName, host: &mut dyn Machine<P>) {
        if lost.is_part() {
            return;
        }
        self.here.retain(|part, head| {
            let is_lost = part.owner == lost.owner && P::companions(part.owner, head).contains(&lost);
            if is_lost {
                host.delete(*part);
            }
            !is_lost
        });
    }

    /// Handles a replica that has arrived at this holder.
    pub(crate) fn copy_arrived(
        &mut self,
        from: ProcessId,
        image: Arc<ImageOf<P>>,
        view: &View,
        host: &mut dyn Machine<P>,
    ) -> Answers {
        let name = image.name;
        let is_present = name.incarnation >= view.incarnation(view.group_of(name.owner));
        if self.here.contains_key(&name) {
            return Vec::from([(name.owner, GroupMessage::Stored(name))]);
        }
        let belongs = |(part, _): &(Arc<ImageOf<P>>, ProcessId)| self.lacking(part).any(|it| it == name);
        let is_wanted = self.wanted.contains_key(&name) || self.pending.values().any(belongs);
        if (is_present || is_wanted) && !self.is_write_pending(name) {
            if name.is_part() {
                self.wanted.entry(name).or_insert(None);
            }
            self.write_whole(from, image, host);
        }
        Vec::new()
    }

    /// Returns whether the image is being written, or waits for its companions.
    fn is_write_pending(&self, name: ImageName) -> bool {
        self.writes.contains(name) || self.pending.contains_key(&name)
    }

    /// Handles an owner's announcement of the part that should be held for it, under this incarnation of its group:
    /// requests the part if it is not durable here, and otherwise removes older ones. Stops waiting for parts that the
    /// owner announced before, and for images from before the last rollback of its group that it asked this process to
    /// secure. Channels are FIFO, so an announcement follows all earlier requests.
    pub(crate) fn hold(
        &mut self,
        owner: ProcessId,
        incarnation: Incarnation,
        name: Option<ImageName>,
        host: &mut dyn Machine<P>,
    ) {
        if !self.is_listed {
            self.early.push((owner, Early::Hold(incarnation, name)));
            return;
        }
        self.refill.owner_reported(owner);
        self.wanted.retain(|it, since| {
            let is_superseded = match since {
                Some(since) => {
                    (*since, Some(Checkpoint::from(*it))) < (incarnation, name.map(Checkpoint::from))
                }
                // The image is from before the last rollback, or belongs to an older checkpoint, so the owner no longer
                // waits for a confirmation. If the announced part needs the image, this process requests it again once
                // the part arrives.
                None => {
                    let is_newer = |name| it.is_part() && Checkpoint::from(*it) < Checkpoint::from(name);
                    Some(*it) != name && (it.incarnation < incarnation || name.is_some_and(is_newer))
                }
            };
            it.owner != owner || !is_superseded
        });
        match name {
            Some(name) if !self.here.contains_key(&name) => {
                self.wanted.insert(name, Some(incarnation));
                if !self.is_write_pending(name) {
                    host.control(To::One(owner), GroupMessage::Fetch(name).into());
                }
            }
            _ => self.remove_older(owner, incarnation, name, host),
        }
        self.report_when_complete(host);
    }

    /// Handles an owner's request for a part that is about to be restored. The part must become as safe as a committed
    /// one, and the owner waits for the confirmation. Nothing older is removed yet: while another part is less safe,
    /// losing that part makes the group roll back to an older checkpoint.
    pub(crate) fn secure(&mut self, owner: ProcessId, name: ImageName, host: &mut dyn Machine<P>) {
        if !self.is_listed {
            self.early.push((owner, Early::Secure(name)));
        } else if self.here.contains_key(&name) {
            host.control(To::One(owner), GroupMessage::Stored(name).into());
        } else {
            self.wanted.insert(name, None);
            if !self.is_write_pending(name) {
                host.control(To::One(owner), GroupMessage::Fetch(name).into());
            }
        }
    }

    /// Removes the images of `owner` that are no longer needed once its group can restore `name` under `incarnation`.
    pub(crate) fn remove_older(
        &mut self,
        owner: ProcessId,
        incarnation: Incarnation,
        name: Option<ImageName>,
        host: &mut dyn Machine<P>,
    ) {
        let head = name.and_then(|name| self.here.get(&name)).cloned().unwrap_or_default();
        let companions = match self.rules.keeps_companions {
            true => P::companions(owner, &head),
            false => Vec::new(),
        };
        let is_older = |it: &ImageName| match it.is_part() {
            _ if it.owner != owner || Some(*it) == name => false,
            true => {
                it.incarnation < incarnation
                    || name.is_some_and(|name| Checkpoint::from(*it) < Checkpoint::from(name))
            }
            false => {
                let was_seen = name.is_some_and(|name| name.incarnation == incarnation)
                    && it.incarnation == incarnation
                    && P::is_covered(*it, &head);
                (it.incarnation < incarnation || was_seen) && !companions.contains(it)
            }
        };
        self.here.retain(|it, _| {
            let older = is_older(it);
            if older {
                host.delete(*it);
            }
            !older
        });
        self.pending.retain(|it, _| !is_older(it));
        self.writes.forget_refused(is_older);
    }

    /// Handles an owner's answer that it does not have an image that this process should hold. A part that needs this
    /// image is dropped, but remains wanted until the owner announces the part again, or a later one.
    pub(crate) fn refused(&mut self, name: ImageName, host: &mut dyn Machine<P>) {
        self.wanted.remove(&name);
        let lacks_it = |image: &ImageOf<P>| self.lacking(image).any(|it| it == name);
        let hopeless = self.pending.iter().filter(|(_, (image, _))| lacks_it(image)).map(|(&part, _)| part);
        for part in Vec::from_iter(hopeless) {
            self.pending.remove(&part);
        }
        self.report_when_complete(host);
    }

    /// Returns whether this process's own `part` waits for the unavailable companion `name`. If so, abandons the part.
    pub(crate) fn gives_up(&mut self, part: ImageName, name: ImageName) -> bool {
        let waits =
            self.pending.get(&part).is_some_and(|(image, _)| self.lacking(image).any(|it| it == name));
        if waits {
            self.pending.remove(&part);
        }
        waits
    }

    /// Records that this process has its own part again, or needs none.
    pub(crate) fn has_own(&mut self, host: &mut dyn Machine<P>) {
        self.refill.has_own();
        self.report_when_complete(host);
    }

    fn report_when_complete(&mut self, host: &mut dyn Machine<P>) {
        if self.is_listed && self.wanted.is_empty() {
            self.refill.report(host);
        }
    }
}
