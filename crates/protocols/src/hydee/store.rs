//! A process's storage: its own part, and the replicas that it keeps for others.
//!
//! The content is known from a single listing at the start of the life, and from every answer afterwards. A
//! recovering cluster's inquiry waits until all writes in progress for that cluster have completed or failed, so that
//! the answer stays true. Replicas from before the cluster's failure that arrive later are refused.
//!
//! A part of a checkpoint may refer to segments of its owner's log. It is written once they are durable in the same
//! storage, so that a storage with the part also has the segments. The segments are removed together with the part
//! that needs them (R15).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, ClusterId, ImageName, Incarnation, ProcessId, Role, Time, To};

use super::config::{Config, Defect, Defects};
use super::message::{Control, Head, RestoreNo, SegmentNo};
use super::view::View;
use super::{Hydee, Image, ProtocolHost};
use crate::machines::{Checkpoint, Reads, Refill, Writes};

/// Messages that result from operations on the storage. The receiver may be this process itself.
pub(super) type Answers = Vec<(ProcessId, Control)>;

#[derive(Clone, Debug)]
pub(super) struct Store {
    me: ProcessId,
    /// Whether the initial listing has arrived.
    is_listed: bool,
    here: BTreeMap<ImageName, Arc<Head>>,
    /// Parts to be written once their segments are here, and the processes to ask for the segments.
    pending: BTreeMap<ImageName, (Arc<Image>, ProcessId)>,
    pub(super) writes: Writes<Hydee>,
    /// Inquiries that wait for writes.
    inquiries: Vec<(ProcessId, RestoreNo, ClusterId)>,
    /// Owners' [`Control::Hold`] messages that arrived before the listing.
    holds: Vec<(ProcessId, Incarnation, Option<ImageName>)>,
    secures: Vec<(ProcessId, ImageName)>,
    reads: Reads<ProcessId>,
    /// Images requested from their owners. Once such an image is here, older ones are removed if the incarnation of
    /// the owner's cluster is given.
    wanted: BTreeMap<ImageName, Option<Incarnation>>,
    refill: Refill,
    defects: Defects,
}

impl Store {
    /// Creates the view of a storage, and requests its listing.
    pub(super) fn new(
        config: &Config,
        view: &View,
        me: ProcessId,
        boot: Boot,
        host: &mut ProtocolHost,
    ) -> Store {
        host.list();
        let is_rank = view.membership.member(me).role == Role::RANK;
        let owners = config.copies().owners(&view.membership, me);
        Store {
            me,
            is_listed: false,
            here: BTreeMap::new(),
            pending: BTreeMap::new(),
            writes: Writes::default(),
            inquiries: Vec::new(),
            holds: Vec::new(),
            secures: Vec::new(),
            reads: Reads::default(),
            wanted: BTreeMap::new(),
            refill: Refill::new(boot, is_rank, owners),
            defects: config.defects,
        }
    }

    pub(super) fn listed(
        &mut self,
        images: Vec<(ImageName, Arc<Head>)>,
        view: &View,
        host: &mut ProtocolHost,
    ) -> Answers {
        self.is_listed = true;
        self.here.extend(images);
        // A part may have arrived before its segments were known to be here.
        self.write_pending(host);
        for (owner, incarnation, name) in core::mem::take(&mut self.holds) {
            self.hold(owner, incarnation, name, host);
        }
        for (owner, name) in core::mem::take(&mut self.secures) {
            self.secure(owner, name, host);
        }
        self.report_when_complete(host);
        self.answer(view)
    }

    /// Writes a part received from `from` once its segments are here.
    pub(super) fn write_whole(&mut self, from: ProcessId, image: Arc<Image>, host: &mut ProtocolHost) {
        let lacking: Vec<ImageName> = self.lacking(&image).collect();
        if lacking.is_empty() || self.defects.has(Defect::SegmentsOutsideCheckpoint) {
            self.writes.write(image, host);
            return;
        }
        for name in lacking.into_iter().filter(|&name| !self.writes.contains(name)) {
            host.control(To::One(from), Control::Fetch(name));
        }
        self.pending.insert(image.name, (image, from));
    }

    /// Iterates over the segments of a part that are not durable here.
    fn lacking<'a>(&'a self, part: &'a Image) -> impl Iterator<Item = ImageName> + 'a {
        let names = part.head.segments.iter().map(|it| it.image(part.name.owner));
        names.filter(|it| !self.here.contains_key(it))
    }

    /// Writes a segment of this process's own log that came back from a holder.
    pub(super) fn write_segment(&mut self, image: Arc<Image>, host: &mut ProtocolHost) {
        if !self.here.contains_key(&image.name) && !self.writes.contains(image.name) {
            self.writes.write(image, host);
        }
    }

    /// Writes the parts whose segments are all here now.
    fn write_pending(&mut self, host: &mut ProtocolHost) {
        let is_whole = |(name, (image, _)): (&ImageName, &(Arc<Image>, ProcessId))| {
            self.lacking(image).next().is_none().then_some(*name)
        };
        let whole: Vec<ImageName> = self.pending.iter().filter_map(is_whole).collect();
        for name in whole {
            if let Some((image, _)) = self.pending.remove(&name) {
                self.writes.write(image, host);
            }
        }
    }

    /// Handles a durable image. The caller determines its owner.
    pub(super) fn persisted(&mut self, name: ImageName, view: &View, host: &mut ProtocolHost) -> Answers {
        let head = self.writes.finished(name).map(|image| image.head.clone());
        self.here.insert(name, head.unwrap_or_default());
        if !name.is_part() {
            self.write_pending(host);
        }
        let mut answers = self.answer(view);
        if name.owner != self.me {
            answers.push((name.owner, Control::Stored(name)));
        }
        if let Some(Some(incarnation)) = self.wanted.remove(&name) {
            self.remove_older(name.owner, incarnation, Some(name), host);
        }
        self.report_when_complete(host);
        answers
    }

    pub(super) fn write_failed(&mut self, name: ImageName, retry_at: Time, view: &View) -> Answers {
        if !self.defects.has(Defect::FailedWritesForgotten) {
            self.writes.refused(name, retry_at);
        }
        self.give_up_for_inquiries(view);
        self.answer(view)
    }

    /// Handles a recovering cluster's inquiry about its parts.
    pub(super) fn inquired(
        &mut self,
        from: ProcessId,
        restore: RestoreNo,
        cluster: ClusterId,
        view: &View,
    ) -> Answers {
        self.inquiries.push((from, restore, cluster));
        // The processes that were asked for missing segments may not answer any more. What should be held will be
        // announced again.
        self.pending.retain(|name, _| view.cluster_of(name.owner) != cluster);
        self.give_up_for_inquiries(view);
        self.answer(view)
    }

    /// Stops repeating failed writes whose cluster asks what is durable.
    fn give_up_for_inquiries(&mut self, view: &View) {
        let inquiries = &self.inquiries;
        self.writes.forget_refused(|name| {
            let cluster = view.cluster_of(name.owner);
            inquiries.iter().any(|&(.., asking)| asking == cluster)
        });
    }

    fn answer(&mut self, view: &View) -> Answers {
        if !self.is_listed {
            return Vec::new();
        }
        let is_writing =
            |cluster: ClusterId| self.writes.names().any(|name| view.cluster_of(name.owner) == cluster);
        let early = self.defects.has(Defect::InquiryAnsweredEarly);
        let due = |&(.., cluster): &(ProcessId, RestoreNo, ClusterId)| early || !is_writing(cluster);
        let (due, rest): (Vec<_>, Vec<_>) = self.inquiries.iter().copied().partition(due);
        self.inquiries = rest;
        let answer = |(from, restore, cluster): (ProcessId, RestoreNo, ClusterId)| {
            let is_asked_for = |name: &&ImageName| name.is_part() && view.cluster_of(name.owner) == cluster;
            let parts = self.here.keys().filter(is_asked_for).copied();
            (from, Control::Stock { restore, parts: parts.collect() })
        };
        due.into_iter().map(answer).collect()
    }

    /// Reads an image for a process. If that is this process, the image is not sent.
    pub(super) fn read_for(&mut self, whom: ProcessId, name: ImageName, host: &mut ProtocolHost) {
        self.reads.request(name, whom, host);
    }

    /// Handles a completed read. Returns whether this process wanted the image itself, and the messages to others.
    pub(super) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<Image>>,
        host: &mut ProtocolHost,
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
        for whom in readers.into_iter().filter(|&it| it != self.me) {
            match image {
                Some(image) => host.send_image(whom, image.clone()),
                None => answers.push((whom, Control::Refused(name))),
            }
        }
        (own, answers)
    }

    /// Removes the parts here that need a lost segment.
    fn forget_parts_with(&mut self, segment: ImageName, host: &mut ProtocolHost) {
        let Some(number) = SegmentNo::of(segment) else {
            return;
        };
        self.here.retain(|part, head| {
            let is_lost = part.owner == segment.owner && head.segments.contains(&number);
            if is_lost {
                host.delete(*part);
            }
            !is_lost
        });
    }

    /// Handles the arrival of a replica for this holder.
    pub(super) fn copy_arrived(
        &mut self,
        from: ProcessId,
        image: Arc<Image>,
        view: &View,
        host: &mut ProtocolHost,
    ) -> Answers {
        let name = image.name;
        let is_present = name.incarnation >= view.incarnation(view.cluster_of(name.owner));
        if self.here.contains_key(&name) {
            return Vec::from([(name.owner, Control::Stored(name))]);
        }
        let belongs = |(part, _): &(Arc<Image>, ProcessId)| self.lacking(part).any(|it| it == name);
        let is_wanted = self.wanted.contains_key(&name) || self.pending.values().any(belongs);
        if (is_present || is_wanted) && !self.is_coming(name) {
            self.write_whole(from, image, host);
            if self.defects.has(Defect::StoredOnArrival) {
                return Vec::from([(name.owner, Control::Stored(name))]);
            }
        }
        Vec::new()
    }

    /// Returns whether the image is being written or will be.
    fn is_coming(&self, name: ImageName) -> bool {
        self.writes.contains(name) || self.pending.contains_key(&name)
    }

    /// Handles an owner's announcement of the part that should be held for it, under this incarnation of its cluster:
    /// requests the part if it is not here, and removes older ones.
    pub(super) fn hold(
        &mut self,
        owner: ProcessId,
        incarnation: Incarnation,
        name: Option<ImageName>,
        host: &mut ProtocolHost,
    ) {
        if !self.is_listed {
            self.holds.push((owner, incarnation, name));
            return;
        }
        self.refill.heard(owner);
        match name {
            Some(name) if !self.here.contains_key(&name) => {
                self.wanted.insert(name, Some(incarnation));
                if !self.is_coming(name) {
                    host.control(To::One(owner), Control::Fetch(name));
                }
            }
            _ => self.remove_older(owner, incarnation, name, host),
        }
        self.report_when_complete(host);
    }

    /// Handles an owner's request for a part that is about to be restored. It must be as safe as a committed one, and
    /// the owner waits for the confirmation. Nothing older is removed yet: as long as another part is less safe, its
    /// loss makes the cluster roll back to an older checkpoint.
    pub(super) fn secure(&mut self, owner: ProcessId, name: ImageName, host: &mut ProtocolHost) {
        if !self.is_listed {
            self.secures.push((owner, name));
        } else if self.here.contains_key(&name) {
            host.control(To::One(owner), Control::Stored(name));
        } else {
            self.wanted.entry(name).or_insert(None);
            if !self.is_coming(name) {
                host.control(To::One(owner), Control::Fetch(name));
            }
        }
    }

    /// Removes what `owner`'s cluster can no longer restore once it can restore `name` under `incarnation`.
    pub(super) fn remove_older(
        &mut self,
        owner: ProcessId,
        incarnation: Incarnation,
        name: Option<ImageName>,
        host: &mut ProtocolHost,
    ) {
        let head = name.and_then(|name| self.here.get(&name)).cloned().unwrap_or_default();
        let keeps = !self.defects.has(Defect::SegmentsCollected);
        let is_older = |it: &ImageName| match SegmentNo::of(*it) {
            _ if it.owner != owner || Some(*it) == name => false,
            None => {
                it.incarnation < incarnation
                    || name.is_some_and(|name| Checkpoint::from(*it) < Checkpoint::from(name))
            }
            Some(segment) => {
                let was_seen = name.is_some_and(|name| name.incarnation == incarnation)
                    && segment.incarnation == incarnation
                    && segment.number < head.next;
                (segment.incarnation < incarnation || was_seen)
                    && !(keeps && head.segments.contains(&segment))
            }
        };
        if self.defects.has(Defect::OlderPartsKept) {
            return;
        }
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

    /// Handles an owner's answer that it does not have an image that this process should hold.
    pub(super) fn refused(&mut self, name: ImageName, host: &mut ProtocolHost) {
        self.wanted.remove(&name);
        let lacks_it = |image: &Image| self.lacking(image).any(|it| it == name);
        let hopeless = self.pending.iter().filter(|(_, (image, _))| lacks_it(image)).map(|(&part, _)| part);
        for part in Vec::from_iter(hopeless) {
            self.pending.remove(&part);
            self.wanted.remove(&part);
        }
        self.report_when_complete(host);
    }

    /// Returns whether this part of the process's own waits for that unavailable segment. If so, the part is
    /// abandoned.
    pub(super) fn gives_up(&mut self, part: ImageName, name: ImageName) -> bool {
        let waits =
            self.pending.get(&part).is_some_and(|(image, _)| self.lacking(image).any(|it| it == name));
        if waits {
            self.pending.remove(&part);
        }
        waits
    }

    /// Records that this process has its own part again, or needs none.
    pub(super) fn has_own(&mut self, host: &mut ProtocolHost) {
        self.refill.has_own();
        self.report_when_complete(host);
    }

    fn report_when_complete(&mut self, host: &mut ProtocolHost) {
        if self.is_listed && self.wanted.is_empty() {
            self.refill.report(host);
        }
    }
}
