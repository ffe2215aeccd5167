//! A process's storage: its own part, and the copies that it keeps for others.
//!
//! What is durable is known from one listing at the start of the life, and from every answer after that. Questions of a
//! cluster that recovers wait until everything of it that is being written is durable or has failed, so that an answer
//! stays true; copies that arrive from before its failure are refused.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, Claim, ClusterId, ImageName, Incarnation, ProcessId, Role, Time, To};

use super::config::Config;
use super::message::{Checkpoint, Control, RestoreNo};
use super::view::View;
use super::{Desk, Image};

/// What a process says to another because of its storage; the receiver may be itself.
pub(super) type Answers = Vec<(ProcessId, Control)>;

#[derive(Clone, Debug)]
pub(super) struct Store {
    me: ProcessId,
    /// The listing is here.
    is_listed: bool,
    here: BTreeSet<ImageName>,
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
            here: BTreeSet::new(),
            writing: BTreeMap::new(),
            failed: BTreeSet::new(),
            retry_at: None,
            inquiries: Vec::new(),
            holds: Vec::new(),
            secures: Vec::new(),
            reads: BTreeMap::new(),
            wanted: BTreeMap::new(),
            lacks,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.retry_at
    }

    pub(super) fn listed(
        &mut self,
        names: impl Iterator<Item = ImageName>,
        view: &View,
        host: &mut Desk,
    ) -> Answers {
        self.is_listed = true;
        self.here.extend(names);
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

    /// An image is durable. Whose it is, is for the caller to tell.
    pub(super) fn persisted(&mut self, name: ImageName, view: &View, host: &mut Desk) -> Answers {
        self.writing.remove(&name);
        self.failed.remove(&name);
        self.here.insert(name);
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
            let parts = self.here.iter().filter(|name| view.cluster_of(name.owner) == cluster).copied();
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

    /// A copy for this holder arrived.
    pub(super) fn copy_arrived(&mut self, image: Arc<Image>, view: &View, host: &mut Desk) -> Answers {
        let name = image.name;
        let is_present = name.incarnation >= view.incarnation(view.cluster_of(name.owner));
        if self.here.contains(&name) {
            return Vec::from([(name.owner, Control::Stored(name))]);
        }
        if (is_present || self.wanted.contains_key(&name)) && !self.writing.contains_key(&name) {
            self.write(image, host);
        }
        Vec::new()
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
            Some(name) if !self.here.contains(&name) => {
                self.wanted.insert(name, Some(incarnation));
                if !self.writing.contains_key(&name) {
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
        } else if self.here.contains(&name) {
            host.control(To::One(owner), Control::Stored(name));
        } else {
            self.wanted.entry(name).or_insert(None);
            if !self.writing.contains_key(&name) {
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
        let is_older = |it: &ImageName| {
            it.owner == owner
                && Some(*it) != name
                && (it.incarnation < incarnation
                    || name.is_some_and(|name| Checkpoint::from(*it) < Checkpoint::from(name)))
        };
        self.here.retain(|it| {
            let older = is_older(it);
            if older {
                host.delete(*it);
            }
            !older
        });
        let failed = &mut self.failed;
        self.writing.retain(|it, _| !(is_older(it) && failed.remove(it)));
    }

    /// An owner does not have what it said this process should hold.
    pub(super) fn refused(&mut self, name: ImageName, host: &mut Desk) {
        self.wanted.remove(&name);
        self.report_when_complete(host);
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
