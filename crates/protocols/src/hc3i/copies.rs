//! This process's storage: its own parts, and the replicas that it keeps for others (section 3.1, rule 17).
//!
//! A holder answers in every phase, since a recovering cluster may depend on another recovering cluster.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, Claim, ClusterId, ImageName, Membership, ProcessId, Time, To};

use super::config::{Config, Defect};
use super::history::{Checkpoint, ClusterHistory, History};
use super::message::{Control, Epoch, Head, Report};
use super::{Hc3i, Image, Phase, ProtocolHost, Waiter, placement};

/// A process's view of its own storage.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    /// Histories of the clusters whose parts are kept here. Kept separate from this process's own tables, where they
    /// would mask the alerts that follow (rule 15).
    notes: History,
    /// Images being written.
    writing: BTreeMap<ImageName, Arc<Image>>,
    /// Images whose write failed and will be repeated.
    failed: BTreeSet<ImageName>,
    retry_at: Option<Time>,
    /// Purposes of the listings in progress, in order.
    lists: VecDeque<ListFor>,
    /// Reports postponed until failed writes have been repeated.
    postponed: Vec<ListFor>,
    /// Purposes of the reads in progress.
    reads: BTreeMap<ImageName, Vec<ReadFor>>,
    /// Content that a replaced storage still lacks.
    lacks: Option<Lacks>,
}

#[derive(Clone, Debug)]
enum ListFor {
    Report {
        epoch: Epoch,
        unfinished: Vec<ImageName>,
    },
    Inquiry {
        from: ProcessId,
        epoch: Epoch,
        cluster: ClusterId,
    },
    Offer {
        owner: ProcessId,
        past: Arc<ClusterHistory>,
        names: Arc<[ImageName]>,
    },
    /// Removes what belongs to clusters that have left.
    Purge,
}

#[derive(Clone, Copy, Debug)]
enum ReadFor {
    Target(Epoch),
    Copy(ProcessId),
}

#[derive(Clone, Debug)]
struct Lacks {
    /// Whether the process still lacks its own parts.
    own: bool,
    /// Owners that have not reported yet what should be stored for them.
    silent: BTreeSet<ProcessId>,
    /// Images that were offered and requested.
    wanted: BTreeSet<ImageName>,
}

impl Copies {
    pub(super) fn new(config: &Config, membership: &Membership, me: ProcessId, boot: Boot) -> Copies {
        let is_rank = membership.member(me).role == faultline_core::Role::RANK;
        let lacks = (boot == Boot::Replaced).then(|| Lacks {
            own: is_rank,
            silent: placement::owners(config, membership, me)
                .into_iter()
                .filter(|&owner| membership.is_present(owner))
                .collect(),
            wanted: BTreeSet::new(),
        });
        Copies {
            notes: History::default(),
            writing: BTreeMap::new(),
            failed: BTreeSet::new(),
            retry_at: None,
            lists: VecDeque::new(),
            postponed: Vec::new(),
            reads: BTreeMap::new(),
            lacks,
        }
    }

    pub(super) fn notes(&self) -> &History {
        &self.notes
    }

    pub(super) fn set_notes(&mut self, notes: History) {
        self.notes = notes;
    }

    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.retry_at
    }

    /// Records what was collected: a cluster that has lost everything must learn it from its holders.
    pub(super) fn note_all_collected(&mut self, checkpoints: &Arc<Vec<Checkpoint>>) {
        self.notes.collect_all(checkpoints);
    }

    /// Writes an image, repeatedly until it is durable.
    pub(super) fn write(&mut self, image: Arc<Image>, host: &mut ProtocolHost) {
        self.writing.insert(image.name, image.clone());
        host.persist(image);
    }

    pub(super) fn write_failed(&mut self, name: ImageName, retry_at: Time) {
        if self.writing.contains_key(&name) {
            self.failed.insert(name);
            self.retry_at = self.retry_at.or(Some(retry_at));
        }
    }

    pub(super) fn retry_writes(&mut self, now: Time, host: &mut ProtocolHost) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            for name in core::mem::take(&mut self.failed) {
                host.persist(self.writing[&name].clone());
            }
        }
    }

    /// Stops writing parts for which `void` returns `true`.
    pub(super) fn forget_writes(&mut self, void: impl Fn(&ImageName) -> bool) {
        self.writing.retain(|name, _| !void(name));
        self.failed.retain(|name| !void(name));
    }

    /// Lists the storage again for reports that waited for writes.
    pub(super) fn list_postponed(&mut self, host: &mut ProtocolHost) {
        for purpose in core::mem::take(&mut self.postponed) {
            self.lists.push_back(purpose);
            host.list();
        }
    }

    /// Lists the storage for a recovery round, after all earlier writes (rule 13).
    pub(super) fn list_for_report(&mut self, epoch: Epoch, host: &mut ProtocolHost) {
        let unfinished = self.writing.keys().copied().collect();
        self.lists.push_back(ListFor::Report { epoch, unfinished });
        host.list();
    }

    pub(super) fn list_for_inquiry(
        &mut self,
        from: ProcessId,
        epoch: Epoch,
        cluster: ClusterId,
        host: &mut ProtocolHost,
    ) {
        self.lists.push_back(ListFor::Inquiry { from, epoch, cluster });
        host.list();
    }

    pub(super) fn list_for_offer(
        &mut self,
        owner: ProcessId,
        past: Arc<ClusterHistory>,
        names: Arc<[ImageName]>,
        host: &mut ProtocolHost,
    ) {
        self.lists.push_back(ListFor::Offer { owner, past, names });
        host.list();
    }

    /// Removes all data of owners for which `is_of_left` returns `true`, and stops waiting for such data.
    pub(super) fn purge(&mut self, is_of_left: impl Fn(ProcessId) -> bool, host: &mut ProtocolHost) {
        self.forget_writes(|name| is_of_left(name.owner));
        if let Some(lacks) = &mut self.lacks {
            lacks.silent.retain(|&owner| !is_of_left(owner));
            lacks.wanted.retain(|name| !is_of_left(name.owner));
            self.report_when_complete(false, host);
        }
        self.lists.push_back(ListFor::Purge);
        host.list();
    }

    /// Reads a part in order to send it.
    pub(super) fn read_for(&mut self, whom: ProcessId, name: ImageName, host: &mut ProtocolHost) {
        self.reads.entry(name).or_default().push(ReadFor::Copy(whom));
        host.read(name);
    }

    /// Reads the part to be restored.
    pub(super) fn read_target(&mut self, epoch: Epoch, name: ImageName, host: &mut ProtocolHost) {
        self.reads.entry(name).or_default().push(ReadFor::Target(epoch));
        host.read(name);
    }

    /// Reports that a replaced storage is complete again, once it is. `own` says whether this process has its own
    /// parts.
    pub(super) fn report_when_complete(&mut self, own: bool, host: &mut ProtocolHost) {
        let Some(lacks) = &mut self.lacks else {
            return;
        };
        lacks.own &= !own;
        if !lacks.own && lacks.silent.is_empty() && lacks.wanted.is_empty() {
            self.lacks = None;
            host.held();
            host.claim(Claim::Protected);
        }
    }

    fn no_longer_lacks(&mut self, name: ImageName, host: &mut ProtocolHost) {
        if self.lacks.as_mut().is_some_and(|lacks| lacks.wanted.remove(&name)) {
            self.report_when_complete(false, host);
        }
    }

    /// Compares an owner's list with the storage: requests what is missing, and removes what was undone or collected.
    fn compare(
        &mut self,
        owner: ProcessId,
        past: &ClusterHistory,
        names: &[ImageName],
        images: &[(ImageName, Arc<Head>)],
        host: &mut ProtocolHost,
    ) {
        let here = |name: &ImageName| images.binary_search_by_key(name, |&(it, _)| it).is_ok();
        let missing: Vec<ImageName> = names.iter().filter(|name| !here(name)).copied().collect();
        let is_void = |name: &ImageName| {
            let is_old = name.incarnation < past.known() || name.sn < past.collected.position.sn;
            name.owner == owner && is_old && !names.contains(name)
        };
        for &(name, _) in images.iter().filter(|(name, _)| is_void(name)) {
            host.delete(name);
        }
        if let Some(lacks) = &mut self.lacks {
            lacks.wanted.extend(missing.iter().copied());
        }
        if !missing.is_empty() {
            host.control(To::One(owner), Control::Want { names: missing.into() });
        }
    }

    /// Handles the completion of an owner's offer: it has been compared, and the history of its cluster is durable.
    pub(super) fn heard(&mut self, owner: ProcessId, host: &mut ProtocolHost) {
        if self.lacks.as_mut().is_some_and(|lacks| lacks.silent.remove(&owner)) {
            self.report_when_complete(false, host);
        }
    }
}

impl Hc3i {
    /// Handles an image that is durable in this storage.
    pub(super) fn persisted(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        self.copies.forget_writes(|it| *it == name);
        self.copies.list_postponed(host);
        if name.owner == self.me {
            self.own_part_durable(name, now, host);
            self.missing_part_durable(name, now, host);
        } else {
            host.control(To::One(name.owner), Control::Stored(name));
            self.copies.no_longer_lacks(name, host);
        }
    }

    /// Handles an image from the network: a lost part of this process, or another process's replica.
    pub(super) fn image_arrived(&mut self, _from: ProcessId, image: Arc<Image>, host: &mut ProtocolHost) {
        // After its owner has left, no process will ask for it.
        let is_of_use = self.membership.is_present(image.name.owner);
        if is_of_use && (image.name.owner != self.me || self.take_fetched(&image)) {
            if self.has(Defect::StoredOnArrival) && image.name.owner != self.me {
                host.control(To::One(image.name.owner), Control::Stored(image.name));
            }
            self.copies.write(image, host);
        }
    }

    pub(super) fn image_read(
        &mut self,
        name: ImageName,
        image: Option<Arc<Image>>,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        if image.is_none() {
            // The image is lost or damaged. A listing must no longer name it.
            host.delete(name);
        }
        for purpose in self.copies.reads.remove(&name).unwrap_or_default() {
            match (purpose, &image) {
                (ReadFor::Copy(whom), Some(image)) => host.send_image(whom, image.clone()),
                (ReadFor::Copy(whom), None) => self.tell(whom, Control::Refused(name), now, host),
                (ReadFor::Target(epoch), image) => self.target_read(epoch, image.clone(), now, host),
            }
        }
    }

    pub(super) fn listed(&mut self, images: Vec<(ImageName, Arc<Head>)>, now: Time, host: &mut ProtocolHost) {
        let Some(purpose) = self.copies.lists.pop_front() else {
            return;
        };
        let barrier = !self.has(Defect::NoWriteBarrier);
        if barrier && self.has_unfinished_writes_for(&purpose) {
            self.copies.postponed.push(purpose);
            return;
        }
        match purpose {
            ListFor::Report { epoch, unfinished } => {
                let reported = |name: &ImageName| barrier || !unfinished.contains(name);
                let parts = self.parts_of(self.cluster, images, reported);
                self.report(epoch, parts, now, host);
            }
            ListFor::Inquiry { from, epoch, cluster } => {
                let history = History::about(cluster, &self.copies.notes.of(cluster));
                let parts = self.parts_of(cluster, images, |_| true);
                let report = Arc::new(Report { history, parts });
                host.control(To::One(from), Control::Reported { epoch, report });
            }
            ListFor::Purge => {
                for (name, _) in images.iter().filter(|(name, _)| !self.membership.is_present(name.owner)) {
                    host.delete(*name);
                }
            }
            ListFor::Offer { owner, .. } if !self.membership.is_present(owner) => {}
            ListFor::Offer { owner, past, names } => {
                self.copies.compare(owner, &past, &names, &images, host);
                self.write_record(Some(Waiter::Offer(owner)), now, host);
            }
        }
    }

    /// Returns whether a failed write that will be repeated belongs to the cluster that asks what is durable.
    fn has_unfinished_writes_for(&self, purpose: &ListFor) -> bool {
        let asking = match purpose {
            ListFor::Report { .. } => self.cluster,
            ListFor::Inquiry { cluster, .. } => *cluster,
            ListFor::Offer { .. } | ListFor::Purge => return false,
        };
        self.copies.writing.keys().any(|name| self.cluster_of(name.owner) == asking)
    }

    fn parts_of(
        &self,
        cluster: ClusterId,
        images: Vec<(ImageName, Arc<Head>)>,
        reported: impl Fn(&ImageName) -> bool,
    ) -> Vec<(ImageName, Arc<Head>)> {
        let wanted = |name: &ImageName| self.cluster_of(name.owner) == cluster && reported(name);
        images.into_iter().filter(|(name, _)| wanted(name)).collect()
    }

    /// Holder: records another cluster's past, for the case that the cluster loses everything.
    pub(super) fn note(
        &mut self,
        from: ProcessId,
        epoch: Epoch,
        cluster: ClusterId,
        past: &ClusterHistory,
        now: Time,
        host: &mut ProtocolHost,
    ) {
        self.copies.notes.extend(cluster, past);
        if self.has(Defect::TargetMasksAlert) {
            self.history.extend(cluster, past);
        }
        self.write_record(Some(Waiter::Note(epoch, from)), now, host);
    }

    /// Owner: tells a holder what it should store: parts, and the past. Without the past, incarnations could be used
    /// again and collected checkpoints restored.
    pub(super) fn offer(&self, holder: ProcessId, host: &mut ProtocolHost) {
        let names = self.kept.iter().rev().map(|kept| kept.part(self.me)).collect();
        host.control(To::One(holder), Control::Offer { past: self.history.of(self.cluster), names });
    }

    /// Holder: compares its storage with an owner's offer.
    pub(super) fn offered(
        &mut self,
        owner: ProcessId,
        past: Arc<ClusterHistory>,
        names: Arc<[ImageName]>,
        host: &mut ProtocolHost,
    ) {
        if !self.has(Defect::NotesNotRefilled) {
            self.copies.notes.extend(self.cluster_of(owner), &past);
        }
        self.copies.list_for_offer(owner, past, names, host);
    }

    /// Holder: removes an owner's collected parts.
    pub(super) fn discarded(
        &mut self,
        owner: ProcessId,
        past: &ClusterHistory,
        names: &[ImageName],
        now: Time,
        host: &mut ProtocolHost,
    ) {
        self.copies.notes.extend(self.cluster_of(owner), past);
        self.write_record(None, now, host);
        names.iter().for_each(|&name| host.delete(name));
    }

    /// Handles new lives of holders: their storage, and messages in transit to them, may be lost (rule 17).
    pub(super) fn watch_holders(&mut self, old: &Membership, now: Time, host: &mut ProtocolHost) {
        if matches!(self.phase, Phase::Serving) {
            return;
        }
        if !matches!(self.phase, Phase::Recovering(_)) && !self.has(Defect::HolderNotRefilled) {
            for holder in placement::holders(&self.config, &self.membership, self.me) {
                if self.began_new_life(holder, old) {
                    self.offer(holder, host);
                    self.repeat_copy(holder, host);
                }
            }
        }
        self.restart_round_for_holders(old, now, host);
    }

    /// Returns whether a process runs in a different life than under `old`.
    pub(super) fn began_new_life(&self, process: ProcessId, old: &Membership) -> bool {
        let (new, old) = (self.membership.member(process), old.member(process));
        new.up && !(old.up && old.life == new.life)
    }

    /// Handles a holder's answer that it does not have the requested part.
    pub(super) fn fetch_refused(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        if name.owner == self.me {
            self.fetch_failed(name, now, host);
        } else {
            self.copies.no_longer_lacks(name, host);
        }
    }
}
