//! Stores and looks up images of this process and of others.
//!
//! The state of a process is a *chain*: its newest checkpoint and, under SEL, the segments of its log that
//! follow without a gap. A segment has its checkpoint's name with a higher attempt, so that the names are in the
//! order of the log.
//!
//! Unlike owners in groups, an owner does not name what its holders should keep: a checkpoint replaces all older images.
//! A request asks for the newest chain, not for a named image.

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

/// Returns the newest checkpoint among images of one owner. The log after it may have many segments, which are not
/// examined individually.
fn newest_checkpoint(names: &BTreeSet<ImageName>) -> Option<ImageName> {
    let mut last = names.last().copied();
    while let Some(name) = last {
        let checkpoint = ImageName { attempt: CHECKPOINT, ..name };
        if names.contains(&checkpoint) {
            return Some(checkpoint);
        }
        // These are segments without their checkpoint.
        last = names.range(..checkpoint).next_back().copied();
    }
    None
}

/// Returns the processes that have failed permanently.
fn gone(membership: &Membership) -> BTreeSet<ProcessId> {
    let all = (0..).map(ProcessId).zip(&*membership.members);
    all.filter(|(_, member)| member.gone).map(|(process, _)| process).collect()
}

/// The contents of this process's storage, including its own images.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    /// Durable images by owner, ascending.
    names: BTreeMap<ProcessId, BTreeSet<ImageName>>,
    /// Images of other owners that are being written. A request waits for those of the owner that it names: an image
    /// that became durable after the answer could be restored later, after its owner has restored an older one.
    writing: BTreeSet<ImageName>,
    /// Images that are being read.
    reading: BTreeSet<ImageName>,
    /// Whether the storage has been listed.
    is_listed: bool,
    /// Processes that have failed permanently. A successor's request for an image waits until this process knows that
    /// the owner has failed permanently. This process then refuses images of the owner that are still in transit, for
    /// the same reason that requests wait for writes.
    gone: BTreeSet<ProcessId>,
    /// Requests that wait for the listing, for a write, or until this process learns that the owner has failed
    /// permanently.
    waiting: Vec<Request>,
    /// Reads for processes that requested images.
    lookups: Vec<Lookup>,
}

/// A request for the newest state of an owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) from: ProcessId,
    pub(super) owner: ProcessId,
    /// The newest image that the requesting process already has of this state.
    pub(super) beyond: Option<ImageName>,
}

/// The images that are being read for a request.
#[derive(Clone, Debug)]
struct Lookup {
    request: Request,
    missing: BTreeSet<ImageName>,
    read: Vec<Arc<ImageOf>>,
}

/// The answer to a process that asked for an owner's state.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) to: ProcessId,
    pub(super) owner: ProcessId,
    /// The newest checkpoint and the log after it, without the images that the process already has.
    pub(super) images: Vec<Arc<ImageOf>>,
}

impl Copies {
    /// Describes storage that is empty, or whose listing is awaited.
    pub(super) fn new(is_listed: bool, membership: &Membership) -> Copies {
        Copies {
            gone: gone(membership),
            names: BTreeMap::new(),
            writing: BTreeSet::new(),
            reading: BTreeSet::new(),
            is_listed,
            waiting: Vec::new(),
            lookups: Vec::new(),
        }
    }

    /// Returns the newest checkpoint of an owner that is durable in this storage.
    fn checkpoint(&self, owner: ProcessId) -> Option<ImageName> {
        newest_checkpoint(self.names.get(&owner)?)
    }

    /// Handles a durable image: removes its owner's images that precede the newest checkpoint.
    pub(super) fn settle(&mut self, name: ImageName, host: &mut dyn Machine<TaskRecovery>) {
        let all = self.names.entry(name.owner).or_default();
        all.insert(name);
        let Some(checkpoint) = newest_checkpoint(all) else { return };
        if all.first() == Some(&checkpoint) {
            return;
        }
        let kept = all.split_off(&checkpoint);
        for old in core::mem::replace(all, kept) {
            host.delete(old);
        }
    }

    /// Handles a completed or failed write of another owner's image. Returns the answers that waited for it.
    pub(super) fn written(
        &mut self,
        name: ImageName,
        is_durable: bool,
        host: &mut dyn Machine<TaskRecovery>,
    ) -> Vec<Answer> {
        self.writing.remove(&name);
        if is_durable {
            self.settle(name, host);
        }
        self.resume(host)
    }

    /// Stores an image for its owner. If the storage is fenced, refuses images of permanently failed processes and of
    /// earlier lives.
    pub(super) fn hold(
        &mut self,
        image: Arc<ImageOf>,
        membership: &Membership,
        is_fenced: bool,
        host: &mut dyn Machine<TaskRecovery>,
    ) {
        let name = image.name;
        let owner = membership.member(name.owner);
        if is_fenced && (owner.gone || name.incarnation < owner.life.incarnation()) {
            return;
        }
        let is_held = self.names.get(&name.owner).is_some_and(|it| it.contains(&name));
        if is_held || self.checkpoint(name.owner).is_some_and(|it| it > name) {
            host.control(To::One(name.owner), Message::Durable(name));
        } else if self.writing.insert(name) {
            host.persist(image);
        }
    }

    /// Looks up the newest state of an owner for a requesting process. Answers immediately if the process already
    /// has all of it.
    pub(super) fn look_up(
        &mut self,
        request: Request,
        host: &mut dyn Machine<TaskRecovery>,
    ) -> Option<Answer> {
        let Request { from, owner, beyond } = request;
        let may_arrive = from != owner && !self.gone.contains(&owner);
        let is_writing = self.writing.iter().any(|it| it.owner == owner);
        if !self.is_listed || may_arrive || is_writing {
            self.waiting.push(request);
            return None;
        }
        let checkpoint = self.checkpoint(owner);
        let all = checkpoint.into_iter().flat_map(|it| self.names[&owner].range(it..)).copied();
        let missing: BTreeSet<ImageName> = all.filter(|it| Some(*it) > beyond).collect();
        if missing.is_empty() {
            return Some(Answer { to: from, owner, images: Vec::new() });
        }
        for name in &missing {
            if self.reading.insert(*name) {
                host.read(*name);
            }
        }
        self.lookups.push(Lookup { request, missing, read: Vec::new() });
        None
    }

    /// Discards the requests of a life that has ended. The next life would mistake an answer to them for an
    /// answer to its own request, which may ask for more.
    pub(super) fn forget(&mut self, from: ProcessId) {
        self.lookups.retain(|it| it.request.from != from);
        self.waiting.retain(|it| it.from != from);
    }

    /// Handles the listing of the storage. Returns the answers that waited for it.
    pub(super) fn listed(
        &mut self,
        names: impl Iterator<Item = ImageName>,
        host: &mut dyn Machine<TaskRecovery>,
    ) -> Vec<Answer> {
        for name in names {
            self.names.entry(name.owner).or_default().insert(name);
        }
        self.is_listed = true;
        self.resume(host)
    }

    /// Handles a new membership. Returns the answers that waited for it.
    pub(super) fn membership_changed(
        &mut self,
        membership: &Membership,
        host: &mut dyn Machine<TaskRecovery>,
    ) -> Vec<Answer> {
        let gone = gone(membership);
        if gone == self.gone {
            return Vec::new();
        }
        self.gone = gone;
        self.resume(host)
    }

    /// Retries the requests that waited. Returns the answers that need no read.
    fn resume(&mut self, host: &mut dyn Machine<TaskRecovery>) -> Vec<Answer> {
        let waiting = core::mem::take(&mut self.waiting);
        waiting.into_iter().filter_map(|it| self.look_up(it, host)).collect()
    }

    /// Handles the result of a read. A read fails if the image is damaged or was collected in the meantime.
    /// A damaged image is deleted, so that it cannot be restored later, after its owner has restored an older
    /// one; the second read confirms the deletion. The remaining images are then looked up again.
    pub(super) fn read(
        &mut self,
        name: ImageName,
        image: Option<&Arc<ImageOf>>,
        host: &mut dyn Machine<TaskRecovery>,
    ) -> Vec<Answer> {
        let is_damaged =
            image.is_none() && self.names.get_mut(&name.owner).is_some_and(|it| it.remove(&name));
        if is_damaged {
            host.delete(name);
            host.read(name);
            return Vec::new();
        }
        self.reading.remove(&name);
        let lookups = core::mem::take(&mut self.lookups);
        let (concerned, others) = lookups.into_iter().partition(|it| it.missing.contains(&name));
        self.lookups = others;
        let mut answers = Vec::new();
        for mut lookup in concerned {
            let Some(image) = image else {
                answers.extend(self.look_up(lookup.request, host));
                continue;
            };
            lookup.missing.remove(&name);
            lookup.read.push(image.clone());
            if lookup.missing.is_empty() {
                let Request { from, owner, .. } = lookup.request;
                answers.push(Answer { to: from, owner, images: lookup.read });
            } else {
                self.lookups.push(lookup);
            }
        }
        answers
    }
}

/// The search for the newest state of a process, in this process's own storage and at other processes.
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

    /// Discards the announcement of a process that is about to be asked again.
    pub(super) fn discard_announced(&mut self, with: ProcessId) {
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

    /// Returns the last image of [`Search::chain`].
    pub(super) fn end(&self) -> Option<ImageName> {
        self.chain().last().map(|it| it.name)
    }

    /// Returns the newest checkpoint found, and the segments of the log that follow it without a gap.
    pub(super) fn chain(&self) -> Vec<Arc<ImageOf>> {
        let Some(checkpoint) = self.images.keys().copied().rfind(|it| is_checkpoint(*it)) else {
            return Vec::new();
        };
        // Packets may overtake each other: a segment may arrive before the checkpoint that it follows.
        let following = self.images.range(checkpoint..).zip(CHECKPOINT.0..);
        following
            .take_while(|((name, _), attempt)| {
                **name == ImageName { attempt: Attempt(*attempt), ..checkpoint }
            })
            .map(|((_, it), _)| it.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use faultline_core::{Incarnation, Sn, Snapshot, Witness};

    use super::*;
    use crate::machines::testing::{RecordingHost, membership};

    fn image(sn: u32, attempt: u32) -> Arc<ImageOf> {
        let snapshot =
            Snapshot { witness: Witness::default(), channels: Arc::from([]), application: Arc::from([]) };
        let name = ImageName {
            owner: ProcessId(0),
            incarnation: Incarnation(0),
            sn: Sn(sn),
            attempt: Attempt(attempt),
        };
        let head = Arc::new(Head { absorbed: Arc::from([]) });
        Arc::new(Image { name, head, saved: Arc::new(()), snapshot })
    }

    #[test]
    fn a_damaged_image_is_removed_before_the_owner_is_answered() {
        let mut host = RecordingHost::<TaskRecovery>::default();
        let mut copies = Copies::new(true, &membership(&[Some(1)], 1));
        let (name, me) = (image(4, 1).name, ProcessId(0));
        copies.settle(name, &mut host);
        assert!(copies.look_up(Request { from: me, owner: me, beyond: None }, &mut host).is_none());
        assert!(copies.read(name, None, &mut host).is_empty(), "the removal is not complete");
        assert_eq!(host.removed, [name]);
        let answers = copies.read(name, None, &mut host);
        assert!(matches!(&answers[..], [answer] if answer.images.is_empty()), "nothing is left");
        assert_eq!(host.removed, [name]);
    }

    #[test]
    fn a_log_contains_only_segments_that_follow_its_checkpoint() {
        let mut search = Search::default();
        let mut add = |sn, attempt| {
            search.found(&image(sn, attempt));
            search.chain().iter().map(|it| (it.name.sn.0, it.name.attempt.0)).collect::<Vec<_>>()
        };
        assert_eq!(add(4, 1), [(4, 1)]);
        assert_eq!(add(5, 2), [(4, 1)], "checkpoint 5 is missing");
        assert_eq!(add(4, 3), [(4, 1)], "segment 2 is missing");
        assert_eq!(add(4, 2), [(4, 1), (4, 2), (4, 3)]);
        assert_eq!(add(5, 1), [(5, 1), (5, 2)]);
    }
}
