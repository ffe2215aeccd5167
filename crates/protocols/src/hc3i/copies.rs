//! This process's storage: its own parts, and the replicas that it keeps for others (section 3.1).
//!
//! A holder answers in every phase, since a recovering cluster may depend on another recovering cluster.
//!
//! Unlike the stores of groups and of independent checkpoints, this one does not track its content, but lists it for each
//! report and each offer: the listing follows all earlier writes, and an offer names any number of checkpoints.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Boot, GroupId, ImageName, Life, Membership, ProcessId, Role, Time, To};

use super::config::{Config, Rule};
use super::message::{Control, Epoch, Head, RecoveryReport};
use super::{Hc3i, Image, Phase, ProtocolHost, Waiter, placement};
use crate::machines::{Checkpoint, GroupHistory, History, Reads, Refill, Writes};

/// A process's view of its own storage.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    /// Histories of the clusters whose parts are kept here. Kept separate from this process's own tables, where they
    /// would mask the alerts that follow.
    notes: History,
    pub(super) writes: Writes<Hc3i>,
    /// Purposes of the listings in progress, in order.
    lists: VecDeque<ListFor>,
    /// The reports that are postponed until the unfinished writes for the asking cluster are complete.
    postponed: Vec<ListFor>,
    reads: Reads<ReadFor>,
    refill: Refill,
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
        cluster: GroupId,
    },
    Offer {
        owner: ProcessId,
        past: Arc<GroupHistory>,
        names: Arc<[ImageName]>,
        confirm: Arc<[ImageName]>,
    },
    /// Removes the data of clusters that have left.
    Purge,
}

#[derive(Clone, Copy, Debug)]
enum ReadFor {
    Target(Epoch),
    Copy(ProcessId),
}

impl Copies {
    pub(super) fn new(config: &Config, membership: &Membership, me: ProcessId, boot: Boot) -> Copies {
        let is_rank = membership.member(me).role == Role::RANK;
        let owners = || {
            let mut owners = placement::owners(config, membership, me);
            owners.retain(|&owner| membership.is_present(owner));
            owners
        };
        Copies {
            notes: History::default(),
            writes: Writes::default(),
            lists: VecDeque::new(),
            postponed: Vec::new(),
            reads: Reads::default(),
            refill: Refill::new(boot, is_rank, owners),
        }
    }

    pub(super) fn notes(&self) -> &History {
        &self.notes
    }

    pub(super) fn set_notes(&mut self, notes: History) {
        self.notes = notes;
    }

    /// Records collections: a cluster that has lost everything must learn of them from its holders.
    pub(super) fn note_all_collected(&mut self, checkpoints: &Arc<Vec<Checkpoint>>) {
        self.notes.collect_all(checkpoints);
    }

    /// Lists the storage again for reports that waited for writes.
    pub(super) fn list_postponed(&mut self, host: &mut ProtocolHost) {
        for purpose in core::mem::take(&mut self.postponed) {
            self.lists.push_back(purpose);
            host.list();
        }
    }

    /// Lists the storage for a recovery round, after all earlier writes.
    pub(super) fn list_for_report(&mut self, epoch: Epoch, host: &mut ProtocolHost) {
        let unfinished = self.writes.names().copied().collect();
        self.lists.push_back(ListFor::Report { epoch, unfinished });
        host.list();
    }

    pub(super) fn list_for_inquiry(
        &mut self,
        from: ProcessId,
        epoch: Epoch,
        cluster: GroupId,
        host: &mut ProtocolHost,
    ) {
        self.lists.push_back(ListFor::Inquiry { from, epoch, cluster });
        host.list();
    }

    pub(super) fn list_for_offer(
        &mut self,
        owner: ProcessId,
        past: Arc<GroupHistory>,
        names: Arc<[ImageName]>,
        confirm: Arc<[ImageName]>,
        host: &mut ProtocolHost,
    ) {
        self.lists.push_back(ListFor::Offer { owner, past, names, confirm });
        host.list();
    }

    /// Removes all data of owners for which `is_of_left` returns `true`, and stops waiting for such data.
    pub(super) fn purge(&mut self, is_of_left: impl Fn(ProcessId) -> bool, host: &mut ProtocolHost) {
        self.writes.forget(|name| is_of_left(name.owner));
        self.refill.forget(is_of_left);
        self.refill.report(host);
        self.lists.push_back(ListFor::Purge);
        host.list();
    }

    /// Reads a part in order to send it.
    pub(super) fn read_for(&mut self, receiver: ProcessId, name: ImageName, host: &mut ProtocolHost) {
        self.reads.request(name, ReadFor::Copy(receiver), host);
    }

    /// Reads the part to be restored.
    pub(super) fn read_target(&mut self, epoch: Epoch, name: ImageName, host: &mut ProtocolHost) {
        self.reads.request(name, ReadFor::Target(epoch), host);
    }

    /// Records that this process has its own parts again.
    pub(super) fn has_own(&mut self, host: &mut ProtocolHost) {
        self.refill.has_own();
        self.refill.report(host);
    }

    /// Reports that lost storage is complete again, if nothing is missing from it.
    pub(super) fn report_if_complete(&mut self, host: &mut ProtocolHost) {
        self.refill.report(host);
    }

    /// Ends the wait for an image, which is now stored here or known to be unavailable.
    fn settled(&mut self, name: ImageName, host: &mut ProtocolHost) {
        self.refill.settled(name);
        self.refill.report(host);
    }

    /// Compares an owner's list with the storage: requests missing images, confirms those that the owner asks about,
    /// and removes those that were undone or collected.
    fn compare(
        &mut self,
        owner: ProcessId,
        past: &GroupHistory,
        names: &[ImageName],
        confirm: &[ImageName],
        images: &[(ImageName, Arc<Head>)],
        host: &mut ProtocolHost,
    ) {
        let here = |name: &ImageName| images.binary_search_by_key(name, |&(it, _)| it).is_ok();
        let missing: Vec<ImageName> = names.iter().filter(|name| !here(name)).copied().collect();
        let is_void = |name: &ImageName| {
            let is_old = name.incarnation < past.known() || name.sn < past.collected.position.sn;
            name.owner == owner && is_old && !names.contains(name)
        };
        // A deletion takes effect after all earlier writes, so images that are still being written can be deleted, too.
        let listed = images.iter().map(|(name, _)| *name);
        for name in listed.chain(self.writes.names().copied()).filter(is_void) {
            host.delete(name);
        }
        self.writes.forget(is_void);
        for &name in confirm.iter().filter(|name| here(name)) {
            host.control(To::One(owner), Control::Stored(name));
        }
        self.refill.wants(owner, missing.iter().copied());
        if !missing.is_empty() {
            host.control(To::One(owner), Control::Want { names: missing.into() });
        }
    }

    /// Handles the completion of an owner's offer: it has been compared with the storage, and the history of the
    /// owner's cluster is durable.
    pub(super) fn offer_handled(&mut self, owner: ProcessId, host: &mut ProtocolHost) {
        self.refill.owner_reported(owner);
        self.refill.report(host);
    }
}

impl Hc3i {
    /// Handles an image that is now durable in this storage.
    pub(super) fn persisted(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        self.copies.writes.finished(name);
        self.copies.list_postponed(host);
        if name.owner == self.me {
            self.own_part_durable(name, now, host);
            self.missing_part_durable(name, now, host);
        } else {
            host.control(To::One(name.owner), Control::Stored(name));
            self.copies.settled(name, host);
        }
    }

    /// Handles an image from the network: a lost part of this process, or a replica of another process's part.
    pub(super) fn image_arrived(&mut self, _from: ProcessId, image: Arc<Image>, host: &mut ProtocolHost) {
        // After its owner has left, no process will ask for the image.
        let is_of_use = self.membership.is_present(image.name.owner);
        if image.name.owner != self.me && self.arrives_late(image.name) {
            self.copies.settled(image.name, host);
        } else if is_of_use && (image.name.owner != self.me || self.take_fetched(&image)) {
            self.copies.writes.write(image, host);
        }
    }

    /// Returns whether a replica arrives after its owner's cluster has collected or undone the checkpoint.
    /// The messages that announce this may overtake the replica. No recovery can need such a replica.
    fn arrives_late(&self, name: ImageName) -> bool {
        let (cluster, notes) = (self.cluster_of(name.owner), self.copies.notes());
        let is_collected =
            name.sn < notes.collected(cluster).position.sn && self.obeys(Rule::NeverRestoresCollected);
        (is_collected || notes.undid_checkpoint(cluster, name.position())) && self.obeys(Rule::RefusesLate)
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
            self.report_lost(name, now, host);
        }
        for purpose in self.copies.reads.finished(name) {
            match (purpose, &image) {
                (ReadFor::Copy(receiver), Some(image)) => host.send_image(receiver, image.clone()),
                // An owner that has lost its storage may get the image back, and then offers it again. If it refused
                // the request now, a holder that has lost its storage as well would report its own storage as complete.
                (ReadFor::Copy(_), None) if self.may_get_back(name) => {}
                (ReadFor::Copy(receiver), None) => self.send_to(receiver, Control::Refused(name), now, host),
                (ReadFor::Target(epoch), image) => self.target_read(epoch, image.clone(), now, host),
            }
        }
    }

    /// Reports that a part of this process was found lost although its checkpoint is kept.
    fn report_lost(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        if self.kept.iter().any(|kept| kept.part(self.me) == name) {
            let epoch = self.epoch;
            self.send_to_coordinator(Control::Vanished { epoch, name }, now, host);
        }
    }

    /// Returns whether the image belongs to this process, and this process has lost its storage and not restored its
    /// state yet.
    fn may_get_back(&self, name: ImageName) -> bool {
        name.owner == self.me && self.copies.refill.lacks_own()
    }

    pub(super) fn listed(&mut self, images: Vec<(ImageName, Arc<Head>)>, now: Time, host: &mut ProtocolHost) {
        let Some(purpose) = self.copies.lists.pop_front() else {
            return;
        };
        let barrier = self.obeys(Rule::WriteBarrier);
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
                let report = Arc::new(RecoveryReport { history, parts });
                host.control(To::One(from), Control::Reported { epoch, report });
            }
            ListFor::Purge => {
                for (name, _) in images.iter().filter(|(name, _)| !self.membership.is_present(name.owner)) {
                    host.delete(*name);
                }
            }
            ListFor::Offer { owner, .. } if !self.membership.is_present(owner) => {}
            ListFor::Offer { owner, past, names, confirm } => {
                self.copies.compare(owner, &past, &names, &confirm, &images, host);
                self.list_for_forgotten(host);
                self.write_record(Some(Waiter::Offer(owner)), host);
            }
        }
    }

    /// Returns whether any write for the cluster that requested the listing is incomplete: the write failed and will be
    /// repeated, or it began after the listing was requested.
    fn has_unfinished_writes_for(&self, purpose: &ListFor) -> bool {
        let asking = match purpose {
            ListFor::Report { .. } => self.cluster,
            ListFor::Inquiry { cluster, .. } => *cluster,
            ListFor::Offer { .. } | ListFor::Purge => return false,
        };
        self.copies.writes.names().any(|name| self.cluster_of(name.owner) == asking)
    }

    fn parts_of(
        &self,
        cluster: GroupId,
        images: Vec<(ImageName, Arc<Head>)>,
        reported: impl Fn(&ImageName) -> bool,
    ) -> Vec<(ImageName, Arc<Head>)> {
        let wanted = |name: &ImageName| self.cluster_of(name.owner) == cluster && reported(name);
        images.into_iter().filter(|(name, _)| wanted(name)).collect()
    }

    /// Records another cluster's history, in case that cluster loses everything. Runs on a holder.
    pub(super) fn note(
        &mut self,
        from: ProcessId,
        epoch: Epoch,
        cluster: GroupId,
        past: &GroupHistory,
        host: &mut ProtocolHost,
    ) {
        self.copies.notes.extend(cluster, past);
        if !self.obeys(Rule::SeparatesNotes) {
            self.history.extend(cluster, past);
        }
        self.write_record(Some(Waiter::Note(epoch, from)), host);
    }

    /// Tells a holder which data it should store: parts, and the history. Without the history, incarnations could be
    /// reused and collected checkpoints restored. Runs on the owner.
    pub(super) fn offer(&self, holder: ProcessId, host: &mut ProtocolHost) {
        let kept = self.kept.iter().rev().map(|kept| kept.part(self.me));
        let names = self.part_in_doubt().into_iter().chain(kept).collect();
        let (past, confirm) = (self.history.of(self.cluster), self.unconfirmed_by(holder));
        host.control(To::One(holder), Control::Offer { past, names, confirm });
    }

    /// Compares this holder's storage with an owner's offer.
    pub(super) fn offered(
        &mut self,
        owner: ProcessId,
        past: Arc<GroupHistory>,
        names: Arc<[ImageName]>,
        confirm: Arc<[ImageName]>,
        host: &mut ProtocolHost,
    ) {
        if self.obeys(Rule::RefillsNotes) {
            self.copies.notes.extend(self.cluster_of(owner), &past);
        }
        self.copies.list_for_offer(owner, past, names, confirm, host);
    }

    /// Removes an owner's collected parts. Runs on a holder.
    pub(super) fn discarded(
        &mut self,
        owner: ProcessId,
        past: &GroupHistory,
        names: &[ImageName],
        host: &mut ProtocolHost,
    ) {
        self.copies.notes.extend(self.cluster_of(owner), past);
        self.write_record(None, host);
        self.copies.writes.forget(|it| names.contains(it));
        for &name in names {
            host.delete(name);
            self.copies.settled(name, host);
        }
        self.list_for_forgotten(host);
    }

    /// Lists the storage again for reports that waited for writes that are no longer repeated.
    fn list_for_forgotten(&mut self, host: &mut ProtocolHost) {
        if self.obeys(Rule::AwaitsNeededWrites) {
            self.copies.list_postponed(host);
        }
    }

    /// Handles new lives of holders: their storage, and messages in transit to them, may be lost.
    pub(super) fn watch_holders(&mut self, old: &Membership, now: Time, host: &mut ProtocolHost) {
        if matches!(self.phase, Phase::Serving) {
            return;
        }
        if !matches!(self.phase, Phase::Recovering(_)) && self.obeys(Rule::RefillsHolders) {
            self.doubt_replicas(old, host);
            for holder in placement::holders(&self.config, &self.membership, self.me) {
                if self.began_new_life(holder, old) {
                    self.offer(holder, host);
                    self.repeat_copy(holder, host);
                }
            }
        }
        self.restart_round_for_holders(old, now, host);
    }

    /// Offers replicas to the holders that had begun another life before this process began its first. They wait for an
    /// offer from every owner, and this process will not see them change.
    pub(super) fn offer_to_new_lives(&self, host: &mut ProtocolHost) {
        if !matches!(self.phase, Phase::Running) || !self.obeys(Rule::RefillsHolders) {
            return;
        }
        for holder in placement::holders(&self.config, &self.membership, self.me) {
            let member = self.membership.member(holder);
            if member.up && member.life > Life(1) {
                self.offer(holder, host);
            }
        }
    }

    /// Returns whether a process is up and has begun a new life since `old`.
    pub(super) fn began_new_life(&self, process: ProcessId, old: &Membership) -> bool {
        let (new, old) = (self.membership.member(process), old.member(process));
        new.up && !(old.up && old.life == new.life)
    }

    /// Handles another process's answer that it does not have the requested part.
    pub(super) fn fetch_refused(&mut self, name: ImageName, now: Time, host: &mut ProtocolHost) {
        if name.owner == self.me {
            self.fetch_failed(name, now, host);
        } else {
            self.copies.settled(name, host);
        }
    }
}
