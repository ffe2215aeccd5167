//! A process's storage: its own part, and the copies that it keeps for others.
//!
//! What is durable is known from one listing at the start of the life, and from every answer after that. Questions of a
//! cluster that recovers wait until everything of it that is being written is durable or has failed, so that an answer
//! stays true; copies that arrive from before its failure are refused.
//!
//! A part of a checkpoint may refer to segments of its owner's log. It is written when they are durable in the same storage,
//! so that whoever has the part has them; they go when the part goes that needs them (R15).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, Claim, ClusterId, ImageName, Incarnation, ProcessId, Role, Time, To};

use super::config::{Config, Defect, Defects};
use super::message::{Checkpoint, Control, Head, RestoreNo, SegmentNo};
use super::view::View;
use super::{Desk, Image};

/// What a process says to another because of its storage; the receiver may be itself.
pub(super) type Answers = Vec<(ProcessId, Control)>;

#[derive(Clone, Debug)]
pub(super) struct Store {
    me: ProcessId,
    /// The listing is here.
    is_listed: bool,
    here: BTreeMap<ImageName, Arc<Head>>,
    /// Parts that are written when the segments are here that belong to them, and who is asked for these.
    pending: BTreeMap<ImageName, (Arc<Image>, ProcessId)>,
    /// Being written, or to be written again.
    writing: BTreeMap<ImageName, Arc<Image>>,
    failed: BTreeSet<ImageName>,
    retry_at: Option<Time>,
    /// Questions that wait.
    inquiries: Vec<(ProcessId, RestoreNo, ClusterId)>,
    /// What owners said while there was no listing.
    holds: Vec<(ProcessId, Incarnation, Option<ImageName>)>,
    secures: Vec<(ProcessId, ImageName)>,
    /// For whom the reads that are under way are.
    reads: BTreeMap<ImageName, BTreeSet<ProcessId>>,
    /// Asked of their owners. When they are here, what is older goes where the owner's cluster is given: its incarnation.
    wanted: BTreeMap<ImageName, Option<Incarnation>>,
    /// What a replaced storage still lacks.
    lacks: Option<Lacks>,
    defects: Defects,
}

#[derive(Clone, Debug)]
struct Lacks {
    own: bool,
    /// Owners that have not said what should be held of them.
    silent: BTreeSet<ProcessId>,
}

impl Store {
    /// Begins with a listing.
    pub(super) fn new(config: &Config, view: &View, me: ProcessId, boot: Boot, host: &mut Desk) -> Store {
        host.list();
        let lacks = (boot == Boot::Replaced).then(|| Lacks {
            own: view.membership.member(me).role == Role::RANK,
            silent: config.placement.owners(&view.membership, me).into_iter().collect(),
        });
        Store {
            me,
            is_listed: false,
            here: BTreeMap::new(),
            pending: BTreeMap::new(),
            writing: BTreeMap::new(),
            failed: BTreeSet::new(),
            retry_at: None,
            inquiries: Vec::new(),
            holds: Vec::new(),
            secures: Vec::new(),
            reads: BTreeMap::new(),
            wanted: BTreeMap::new(),
            lacks,
            defects: config.defects,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.retry_at
    }

    pub(super) fn listed(
        &mut self,
        images: Vec<(ImageName, Arc<Head>)>,
        view: &View,
        host: &mut Desk,
    ) -> Answers {
        self.is_listed = true;
        self.here.extend(images);
        // A part may have come before it was known that its segments are here.
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

    /// Writes an image, again and again until it is durable or nobody wants it any more.
    pub(super) fn write(&mut self, image: Arc<Image>, host: &mut Desk) {
        self.writing.insert(image.name, image.clone());
        host.persist(image);
    }

    /// Writes a part that `from` has, as soon as the segments are here that belong to it.
    pub(super) fn write_whole(&mut self, from: ProcessId, image: Arc<Image>, host: &mut Desk) {
        let lacking: Vec<ImageName> = self.lacking(&image).collect();
        if lacking.is_empty() || self.defects.has(Defect::SegmentsOutsideCheckpoint) {
            self.write(image, host);
            return;
        }
        for name in lacking.into_iter().filter(|name| !self.writing.contains_key(name)) {
            host.control(To::One(from), Control::Fetch(name));
        }
        self.pending.insert(image.name, (image, from));
    }

    /// The segments of a part that are not durable here.
    fn lacking<'a>(&'a self, part: &'a Image) -> impl Iterator<Item = ImageName> + 'a {
        let names = part.head.segments.iter().map(|it| it.image(part.name.owner));
        names.filter(|it| !self.here.contains_key(it))
    }

    /// Writes a segment of this process's own log that came back from a holder.
    pub(super) fn write_segment(&mut self, image: Arc<Image>, host: &mut Desk) {
        if !self.here.contains_key(&image.name) && !self.writing.contains_key(&image.name) {
            self.write(image, host);
        }
    }

    /// Writes the parts for which everything is here now.
    fn write_pending(&mut self, host: &mut Desk) {
        let is_whole = |(name, (image, _)): (&ImageName, &(Arc<Image>, ProcessId))| {
            self.lacking(image).next().is_none().then_some(*name)
        };
        let whole: Vec<ImageName> = self.pending.iter().filter_map(is_whole).collect();
        for name in whole {
            if let Some((image, _)) = self.pending.remove(&name) {
                self.write(image, host);
            }
        }
    }

    /// An image is durable. Whose it is, is for the caller to tell.
    pub(super) fn persisted(&mut self, name: ImageName, view: &View, host: &mut Desk) -> Answers {
        let head = self.writing.remove(&name).map(|image| image.head.clone());
        self.failed.remove(&name);
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
        if self.writing.contains_key(&name) {
            self.failed.insert(name);
            self.retry_at = self.retry_at.or(Some(retry_at));
        }
        self.give_up_for_inquiries(view);
        self.answer(view)
    }

    pub(super) fn retry(&mut self, now: Time, host: &mut Desk) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            for name in core::mem::take(&mut self.failed) {
                host.persist(self.writing[&name].clone());
            }
        }
    }

    /// A cluster that recovers wants to know what there is of it.
    pub(super) fn inquired(
        &mut self,
        from: ProcessId,
        restore: RestoreNo,
        cluster: ClusterId,
        view: &View,
    ) -> Answers {
        self.inquiries.push((from, restore, cluster));
        // Whoever was asked for what they lack may not answer any more; what should be held is said again.
        self.pending.retain(|name, _| view.cluster_of(name.owner) != cluster);
        self.give_up_for_inquiries(view);
        self.answer(view)
    }

    /// What could not be written is not tried again when its cluster wants to know what is durable.
    fn give_up_for_inquiries(&mut self, view: &View) {
        let inquiries = &self.inquiries;
        let writing = &mut self.writing;
        self.failed.retain(|name| {
            let cluster = view.cluster_of(name.owner);
            let is_asked_for = inquiries.iter().any(|&(.., asking)| asking == cluster);
            if is_asked_for {
                writing.remove(name);
            }
            !is_asked_for
        });
    }

    fn answer(&mut self, view: &View) -> Answers {
        if !self.is_listed {
            return Vec::new();
        }
        let is_writing =
            |cluster: ClusterId| self.writing.keys().any(|name| view.cluster_of(name.owner) == cluster);
        let due = |&(.., cluster): &(ProcessId, RestoreNo, ClusterId)| !is_writing(cluster);
        let (due, rest): (Vec<_>, Vec<_>) = self.inquiries.iter().copied().partition(due);
        self.inquiries = rest;
        let answer = |(from, restore, cluster): (ProcessId, RestoreNo, ClusterId)| {
            let is_asked_for = |name: &&ImageName| name.is_part() && view.cluster_of(name.owner) == cluster;
            let parts = self.here.keys().filter(is_asked_for).copied();
            (from, Control::Stock { restore, parts: parts.collect() })
        };
        due.into_iter().map(answer).collect()
    }

    /// Reads an image for somebody; for this process itself the answer is its own.
    pub(super) fn read_for(&mut self, whom: ProcessId, name: ImageName, host: &mut Desk) {
        let readers = self.reads.entry(name).or_default();
        if readers.is_empty() {
            host.read(name);
        }
        readers.insert(whom);
    }

    /// An image was read: whether this process wanted it itself, and what to say to others.
    pub(super) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<Image>>,
        host: &mut Desk,
    ) -> (bool, Answers) {
        if image.is_none() {
            // Lost or corrupt: nobody is to count on it.
            self.here.remove(&name);
            host.delete(name);
            self.forget_parts_with(name, host);
        }
        let mut readers = self.reads.remove(&name).unwrap_or_default();
        let own = readers.remove(&self.me);
        let mut answers = Vec::new();
        for whom in readers {
            match image {
                Some(image) => host.send_image(whom, image.clone()),
                None => answers.push((whom, Control::Refused(name))),
            }
        }
        (own, answers)
    }

    /// A segment is lost: so are the parts here that need it.
    fn forget_parts_with(&mut self, segment: ImageName, host: &mut Desk) {
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

    /// A copy for this holder arrived.
    pub(super) fn copy_arrived(
        &mut self,
        from: ProcessId,
        image: Arc<Image>,
        view: &View,
        host: &mut Desk,
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
        }
        Vec::new()
    }

    /// Whether it is being written, or will be.
    fn is_coming(&self, name: ImageName) -> bool {
        self.writing.contains_key(&name) || self.pending.contains_key(&name)
    }

    /// An owner says what should be held of it under this incarnation of its cluster: asks for what is not here, and
    /// removes what is older.
    pub(super) fn hold(
        &mut self,
        owner: ProcessId,
        incarnation: Incarnation,
        name: Option<ImageName>,
        host: &mut Desk,
    ) {
        if !self.is_listed {
            self.holds.push((owner, incarnation, name));
            return;
        }
        if let Some(lacks) = &mut self.lacks {
            lacks.silent.remove(&owner);
        }
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

    /// What is about to be restored must be as safe as what has been committed; its owner waits for it. Nothing goes yet:
    /// as long as another part is not as safe, its loss sends the cluster back to an older checkpoint.
    pub(super) fn secure(&mut self, owner: ProcessId, name: ImageName, host: &mut Desk) {
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

    /// Removes what `owner`'s cluster cannot restore any more once it can restore `name` under `incarnation`.
    pub(super) fn remove_older(
        &mut self,
        owner: ProcessId,
        incarnation: Incarnation,
        name: Option<ImageName>,
        host: &mut Desk,
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
        self.here.retain(|it, _| {
            let older = is_older(it);
            if older {
                host.delete(*it);
            }
            !older
        });
        self.pending.retain(|it, _| !is_older(it));
        let failed = &mut self.failed;
        self.writing.retain(|it, _| !(is_older(it) && failed.remove(it)));
    }

    /// An owner does not have what it said this process should hold.
    pub(super) fn refused(&mut self, name: ImageName, host: &mut Desk) {
        self.wanted.remove(&name);
        let lacks_it = |image: &Image| self.lacking(image).any(|it| it == name);
        let hopeless = self.pending.iter().filter(|(_, (image, _))| lacks_it(image)).map(|(&part, _)| part);
        for part in Vec::from_iter(hopeless) {
            self.pending.remove(&part);
            self.wanted.remove(&part);
        }
        self.report_when_complete(host);
    }

    /// Whether this part of the process's own waits for that segment, which is not to be had; then it is given up.
    pub(super) fn gives_up(&mut self, part: ImageName, name: ImageName) -> bool {
        let waits =
            self.pending.get(&part).is_some_and(|(image, _)| self.lacking(image).any(|it| it == name));
        if waits {
            self.pending.remove(&part);
        }
        waits
    }

    /// This process holds its own part again, or needs none.
    pub(super) fn has_own(&mut self, host: &mut Desk) {
        if let Some(lacks) = &mut self.lacks {
            lacks.own = false;
        }
        self.report_when_complete(host);
    }

    fn report_when_complete(&mut self, host: &mut Desk) {
        let is_complete = |lacks: &mut Lacks| !lacks.own && lacks.silent.is_empty();
        if self.is_listed && self.wanted.is_empty() && self.lacks.take_if(is_complete).is_some() {
            host.held();
            host.claim(Claim::Protected);
        }
    }
}
