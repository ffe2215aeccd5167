//! Moves a process's log to stable storage once it exceeds a limit.
//!
//! The oldest logged messages form a *segment*, which is written like a part of a checkpoint, here and at the holders,
//! while the application continues. Once the segment is durable at all of them, the content of its messages is removed
//! from memory; numbers, tags and lengths remain. A checkpoint refers to its log segments ([`Head`]), which are its
//! companions wherever it is stored. When a channel resumes, the segments that it needs are read one at a time.
//! Segments are removed with the last checkpoint that refers to them.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Claim, Host, Image, ImageName, Incarnation, Payload, ProcessId, Sn, Snapshot, To, Witness,
};
use serde::{Deserialize, Serialize};

use super::{Channel, Content, Logging, Logs, Saved};
use crate::machines::group::{Group, GroupMessage};
use crate::machines::{ImageOf, Replication, Requires};

/// Header of an image. Storage listings contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// For a part: the log segments that belong to it.
    pub segments: Arc<[LogSegmentNo]>,
    /// For a part: the number of the first segment of its incarnation that it does not cover.
    pub next: u32,
}

/// Name of a segment of a process's log, which contains messages that have moved from memory to stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogSegmentNo {
    /// Incarnation of the group when the segment was written.
    pub incarnation: Incarnation,
    /// Number of the segment, from 1.
    pub number: u32,
}

impl LogSegmentNo {
    /// Returns the name of the image that stores this segment of `owner`'s log.
    pub fn image(self, owner: ProcessId) -> ImageName {
        let LogSegmentNo { incarnation, number } = self;
        ImageName { owner, incarnation, sn: Sn(0), attempt: Attempt(number) }
    }

    /// Returns the segment that an image stores; `None` for a part of a checkpoint.
    pub fn of(name: ImageName) -> Option<LogSegmentNo> {
        let ImageName { incarnation, attempt, .. } = name;
        (!name.is_part()).then_some(LogSegmentNo { incarnation, number: attempt.0 })
    }
}

/// The part of the log that is being moved to stable storage or read back.
#[derive(Clone, Debug)]
pub(super) struct Spill<P: Logging> {
    /// Number of segments begun in this incarnation.
    begun: u32,
    /// Logged messages in memory, oldest first. Some may have been removed from the log since.
    order: VecDeque<(ProcessId, u32)>,
    writing: Option<Writing<P>>,
    wanted: BTreeMap<LogSegmentNo, Wanted>,
    /// Segments that were read but may not have been sent completely. The newest is last.
    fetched: Vec<Arc<ImageOf<P>>>,
}

/// A segment that is not durable everywhere yet.
#[derive(Clone, Debug)]
struct Writing<P: Logging> {
    segment: LogSegmentNo,
    written: Replication<P>,
}

/// A segment that is being read.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// Peers whose next message is in the segment.
    peers: BTreeSet<ProcessId>,
    /// Holders that were asked because the segment is lost here. The last one has not answered yet.
    asked: Vec<ProcessId>,
}

impl<P: Logging> Default for Spill<P> {
    fn default() -> Self {
        let (order, wanted) = (VecDeque::new(), BTreeMap::new());
        Spill { begun: 0, order, writing: None, wanted, fetched: Vec::new() }
    }
}

impl<P: Logging> Spill<P> {
    /// Records that a message was logged, in memory.
    pub(super) fn logged(&mut self, to: ProcessId, number: u32) {
        self.order.push_back((to, number));
    }

    /// Returns the content of a message, if a segment that contains it has been read.
    pub(super) fn fetched(&self, to: ProcessId, number: u32) -> Option<Payload> {
        self.fetched.iter().find_map(|segment| {
            match &segment.saved.channels.get(&to)?.log.get(&number)?.content {
                Content::Here(payload) => Some(payload.clone()),
                Content::Spilled { .. } => None,
            }
        })
    }
}

impl<P: Logging> Logs<P> {
    /// Begins a segment with the oldest messages of the log if too much of the log is in memory. Call this after
    /// each message that was logged.
    pub(crate) fn maybe_spill(&mut self, group: &mut Group<P>, host: &mut dyn Host<P>) {
        let Some(limit) = self.limit else {
            return;
        };
        // Compact the list once most of its entries have been removed from the log.
        if self.spill.order.len() as u64 > 64 + 2 * self.size.messages {
            let channels = &self.channels;
            let is_logged = |(peer, number): &(ProcessId, u32)| {
                channels.get(peer).is_some_and(|it| it.log.contains_key(number))
            };
            self.spill.order.retain(is_logged);
        }
        if self.size.in_memory() <= limit || self.spill.writing.is_some() || group.is_recovering() {
            return;
        }
        let wanted = self.size.in_memory() - limit / 2;
        let (mut bytes, mut channels) = (0, BTreeMap::<ProcessId, Channel<P::Tag>>::new());
        while bytes < wanted
            && let Some((peer, number)) = self.spill.order.pop_front()
        {
            let entry = self.channels.get(&peer).and_then(|it| it.log.get(&number));
            let Some(entry) = entry.filter(|it| it.content.segment().is_none()) else { continue };
            bytes += entry.content.len();
            channels.entry(peer).or_default().log.insert(number, entry.clone());
        }
        if channels.is_empty() {
            return;
        }
        self.spill.begun += 1;
        let segment = LogSegmentNo { incarnation: group.incarnation, number: self.spill.begun };
        let image = Arc::new(Image {
            name: segment.image(group.me),
            head: Arc::default(),
            saved: Arc::new(Saved { channels, ..Saved::default() }),
            snapshot: Snapshot {
                witness: Witness::default(),
                channels: Arc::from([]),
                application: Arc::from([]),
            },
        });
        let Group { store, holders, .. } = &mut *group;
        let written = Replication::begin(image, holders, Requires::ALL, &mut store.writes, host);
        self.spill.writing = Some(Writing { segment, written });
        if !self.rules.spills_durable {
            self.finish_segment(host);
        }
    }

    /// Handles an image of this process that is durable in its own storage. Returns whether it is a segment that had
    /// been lost: a holder's request for it may have been refused, so parts of checkpoints must be sent again.
    pub(super) fn own_durable(
        &mut self,
        group: &mut Group<P>,
        name: ImageName,
        host: &mut dyn Host<P>,
    ) -> bool {
        if let Some(Writing { written, .. }) = &mut self.spill.writing
            && written.is(name)
        {
            written.durable(name);
            self.maybe_spilled(group, host);
            return false;
        }
        // A recovering process does not know yet which part its holders should have. It informs them once it resumes.
        if !name.is_part() && !group.is_recovering() {
            group.update_holders(host);
        }
        !name.is_part()
    }

    /// Handles a holder's confirmation of its replica.
    pub(super) fn confirmed(
        &mut self,
        group: &mut Group<P>,
        from: ProcessId,
        name: ImageName,
        host: &mut dyn Host<P>,
    ) {
        if let Some(Writing { written, .. }) = &mut self.spill.writing {
            written.confirmed(from, name);
            self.maybe_spilled(group, host);
        }
    }

    fn maybe_spilled(&mut self, group: &mut Group<P>, host: &mut dyn Host<P>) {
        if self.spill.writing.as_mut().is_some_and(|it| it.written.completes()) {
            self.finish_segment(host);
            self.maybe_spill(group, host);
        }
    }

    /// Frees the memory of the segment's messages, except those removed from the log in the meantime.
    fn finish_segment(&mut self, host: &mut dyn Host<P>) {
        let Some(Writing { segment, written }) = self.spill.writing.take() else {
            return;
        };
        let (mut messages, mut spilled) = (0, 0);
        for (peer, channel) in &written.image().saved.channels {
            for number in channel.log.keys() {
                let entry = self.channels.get_mut(peer).and_then(|it| it.log.get_mut(number));
                let Some(entry) = entry.filter(|it| it.content.segment().is_none()) else { continue };
                let bytes = entry.content.len();
                entry.content = Content::Spilled { segment, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) };
                messages += 1;
                spilled += bytes;
            }
        }
        self.size.spilled += spilled;
        host.claim(Claim::Spilled { messages, bytes: spilled, left: self.size.in_memory() });
    }

    /// Handles a new life of a holder. It may lack replicas that were in transit to it and replicas of segments to
    /// which no checkpoint refers yet, and it may not have received a request.
    pub(crate) fn repeat_segments(&mut self, me: ProcessId, holder: ProcessId, host: &mut dyn Host<P>) {
        if let Some(writing) = &mut self.spill.writing {
            writing.written.repeat(holder, host);
        }
        for segment in self.segments() {
            host.control(To::One(holder), GroupMessage::Secure(segment.image(me)).into());
        }
        for (segment, wanted) in &self.spill.wanted {
            if wanted.asked.last() == Some(&holder) {
                host.control(To::One(holder), GroupMessage::Fetch(segment.image(me)).into());
            }
        }
    }

    /// Returns the segments that contain part of the log.
    fn segments(&self) -> BTreeSet<LogSegmentNo> {
        if self.limit.is_none() {
            return BTreeSet::new();
        }
        let entries = self.channels.values().flat_map(|it| it.log.values());
        entries.filter_map(|it| it.content.segment()).collect()
    }

    /// Returns the header for a checkpoint taken now.
    pub(crate) fn head(&self) -> Head {
        // A segment being written is still in memory, and thus in the part, but will be needed afterwards.
        let next = self.spill.writing.as_ref().map_or(self.spill.begun + 1, |it| it.segment.number);
        Head { segments: self.segments().into_iter().collect(), next }
    }

    /// Requests the segment that contains the next message for `peer`.
    pub(super) fn want_segment(
        &mut self,
        group: &mut Group<P>,
        segment: LogSegmentNo,
        peer: ProcessId,
        host: &mut dyn Host<P>,
    ) {
        if !self.spill.wanted.contains_key(&segment) {
            group.store.read_for(group.me, segment.image(group.me), host);
        }
        self.spill.wanted.entry(segment).or_default().peers.insert(peer);
    }

    /// Handles the result of reading a segment from this process's storage, for this process or for a holder.
    /// Returns the peers whose channels can continue.
    pub(super) fn segment_read(
        &mut self,
        group: &Group<P>,
        segment: LogSegmentNo,
        image: Option<Arc<ImageOf<P>>>,
        host: &mut dyn Host<P>,
    ) -> BTreeSet<ProcessId> {
        match image {
            Some(image) => self.segment_available(segment, image),
            // If a holder has been asked already, its answer decides. It may have the only replica.
            None if self.spill.wanted.get(&segment).is_some_and(|it| !it.asked.is_empty()) => BTreeSet::new(),
            None if self.segments().contains(&segment) => self.ask_for_segment(group, segment, host),
            None => BTreeSet::new(),
        }
    }

    /// Handles a segment of this process's log that a holder sent. The segment was lost here, or belongs to
    /// the part to be restored. Returns the peers whose channels can continue.
    pub(super) fn segment_arrived(
        &mut self,
        group: &mut Group<P>,
        segment: LogSegmentNo,
        image: Arc<ImageOf<P>>,
        host: &mut dyn Host<P>,
    ) -> BTreeSet<ProcessId> {
        group.store.write_companion(image.clone(), host);
        self.segment_available(segment, image)
    }

    /// Handles a holder's answer that it does not have the segment either.
    pub(super) fn segment_refused(
        &mut self,
        group: &Group<P>,
        from: ProcessId,
        name: ImageName,
        host: &mut dyn Host<P>,
    ) {
        if let Some(segment) = LogSegmentNo::of(name)
            && self.spill.wanted.get(&segment).is_some_and(|it| it.asked.last() == Some(&from))
        {
            self.ask_for_segment(group, segment, host);
        }
    }

    /// Asks the next holder for a segment that is lost here, or claims that it is unrecoverable if every holder was
    /// asked. Returns the empty set, because no channel can continue yet.
    fn ask_for_segment(
        &mut self,
        group: &Group<P>,
        segment: LogSegmentNo,
        host: &mut dyn Host<P>,
    ) -> BTreeSet<ProcessId> {
        let name = segment.image(group.me);
        let wanted = self.spill.wanted.entry(segment).or_default();
        match group.holders.iter().find(|holder| !wanted.asked.contains(holder)) {
            Some(&holder) => {
                wanted.asked.push(holder);
                host.control(To::One(holder), GroupMessage::Fetch(name).into());
            }
            None => {
                let asked = core::iter::once(group.me).chain(group.holders.iter().copied()).collect();
                group.unrecoverable(&[(name, asked)], host);
            }
        }
        BTreeSet::new()
    }

    /// Returns the peers whose channels were waiting for the segment and can now continue.
    fn segment_available(&mut self, segment: LogSegmentNo, image: Arc<ImageOf<P>>) -> BTreeSet<ProcessId> {
        let Some(wanted) = self.spill.wanted.remove(&segment) else {
            return BTreeSet::new();
        };
        self.spill.fetched.push(image);
        let limit = self.limit.unwrap_or(0);
        let len = |image: &Arc<ImageOf<P>>| image.len(P::saved_len);
        while self.spill.fetched.len() > 1 && self.spill.fetched.iter().map(len).sum::<u64>() > limit {
            self.spill.fetched.remove(0);
        }
        wanted.peers
    }

    /// Frees the segments that were read, once no channel waits for another one. Call this after all channels that
    /// could continue have done so.
    pub(crate) fn release_segments(&mut self) {
        if self.spill.wanted.is_empty() {
            self.spill.fetched.clear();
        }
    }
}
