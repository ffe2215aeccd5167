//! Moves a process's log to stable storage once it exceeds a limit (R15; future work in the paper's section V).
//!
//! The oldest logged messages form a *segment*, which is written like a part of a checkpoint, here and at the
//! holders, while the application continues. Once the segment is durable at all of them, the content of its messages
//! leaves the memory; number, phase and length stay. A checkpoint refers to its log segments. When a channel resumes,
//! they are read one at a time. They are removed with the last checkpoint that refers to them.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{Chunk, Claim, ImageName, Payload, ProcessId, Snapshot, To, Witness};

use super::channel::{Channel, Content};
use super::config::Defect;
use super::delivery::Gate;
use super::message::{Head, Saved, SegmentNo};
use super::{GroupMessage, Hydee, Image, ProtocolHost, Rank, RankState};
use crate::machines::{Replication, Requires};

/// The part of the log that is being moved to stable storage or read back.
#[derive(Clone, Debug, Default)]
pub(super) struct Spill {
    /// Number of segments begun in this incarnation.
    begun: u32,
    /// Logged messages in memory, oldest first. Some may have been removed from the log since.
    order: VecDeque<(ProcessId, u32)>,
    writing: Option<Writing>,
    wanted: BTreeMap<SegmentNo, Wanted>,
    /// Segments that were read but may not have been sent completely. The newest is last.
    fetched: Vec<(SegmentNo, Arc<Image>)>,
}

/// A segment that is not durable everywhere yet.
#[derive(Clone, Debug)]
struct Writing {
    segment: SegmentNo,
    written: Replication<Hydee>,
}

/// A segment that is being read.
#[derive(Clone, Debug, Default)]
struct Wanted {
    /// Peers whose next message is in the segment.
    peers: BTreeSet<ProcessId>,
    /// Holders that were asked, since the segment is lost here. The last one has not answered yet.
    asked: Vec<ProcessId>,
}

impl Spill {
    /// Records that a message is in the log's memory.
    pub(super) fn logged(&mut self, to: ProcessId, number: u32) {
        self.order.push_back((to, number));
    }

    /// Returns the content of a message in a segment, if the segment has been read.
    pub(super) fn fetched(&self, segment: SegmentNo, to: ProcessId, number: u32) -> Option<Payload> {
        let (_, image) = self.fetched.iter().find(|(it, _)| *it == segment)?;
        match &image.saved.channels.get(&to)?.log.get(&number)?.content {
            Content::Here(payload) => Some(payload.clone()),
            Content::Spilled { .. } => None,
        }
    }
}

impl Rank {
    /// Begins a segment with the oldest messages of the log if too much of it is in memory.
    pub(super) fn maybe_spill(&mut self, host: &mut ProtocolHost) {
        let Some(limit) = self.config.log_memory else {
            return;
        };
        // Compact the list once most of its entries have been removed from the log.
        if self.spill.order.len() as u64 > 64 + 2 * self.log.messages {
            let channels = &self.channels;
            let is_logged = |(peer, number): &(ProcessId, u32)| {
                channels.get(peer).is_some_and(|it| it.log.contains_key(number))
            };
            self.spill.order.retain(is_logged);
        }
        let is_restoring = matches!(self.state, RankState::Restoring);
        if self.log.in_memory() <= limit || self.spill.writing.is_some() || is_restoring {
            return;
        }
        let wanted = self.log.in_memory() - limit / 2;
        let (mut bytes, mut channels) = (0, BTreeMap::<ProcessId, Channel>::new());
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
        let segment = SegmentNo { incarnation: self.position.incarnation, number: self.spill.begun };
        let image = Arc::new(Image {
            name: segment.image(self.group.me),
            head: Arc::default(),
            saved: Arc::new(Saved { phase: 0, channels, app_actions: VecDeque::new(), late: Vec::new() }),
            snapshot: Snapshot {
                witness: Witness::default(),
                channels: Arc::from([]),
                application: Arc::from([Chunk::Virtual(bytes)]),
            },
        });
        let writes = &mut self.group.store.writes;
        let written = Replication::begin(image, &self.group.holders, Requires::ALL, writes, host);
        self.spill.writing = Some(Writing { segment, written });
        if self.has(Defect::SpilledBeforeDurable) {
            self.finish_segment(host);
        }
    }

    /// Handles a durable write to this process's storage.
    pub(super) fn own_segment_durable(&mut self, name: ImageName, host: &mut ProtocolHost) {
        if let Some(Writing { written, .. }) = &mut self.spill.writing
            && written.is(name)
        {
            written.durable(name);
            self.maybe_spilled(host);
        } else if !name.is_part() {
            // The image had been lost here, so a holder's request for it may have been refused.
            self.group.tell_holders(host);
            self.repeat_copies(host);
        }
    }

    /// Handles a holder's confirmation of its replica.
    pub(super) fn segment_stored(&mut self, from: ProcessId, name: ImageName, host: &mut ProtocolHost) {
        if let Some(Writing { written, .. }) = &mut self.spill.writing {
            written.confirmed(from, name);
            self.maybe_spilled(host);
        }
    }

    fn maybe_spilled(&mut self, host: &mut ProtocolHost) {
        if self.spill.writing.as_mut().is_some_and(|it| it.written.completes()) {
            self.finish_segment(host);
            self.maybe_spill(host);
        }
    }

    /// Frees the memory of the segment's messages, except those removed from the log in the meantime.
    fn finish_segment(&mut self, host: &mut ProtocolHost) {
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
        self.log.spilled += spilled;
        host.claim(Claim::Spilled { messages, bytes: spilled, left: self.log.in_memory() });
    }

    /// Handles a new life of a holder. It may lack replicas that were in transit to it and replicas of segments to
    /// which no checkpoint refers yet, and it may not have received a request.
    pub(super) fn repeat_segments(&mut self, holder: ProcessId, host: &mut ProtocolHost) {
        if let Some(writing) = &mut self.spill.writing {
            writing.written.repeat(holder, host);
        }
        for segment in self.segments() {
            host.control(To::One(holder), GroupMessage::Secure(segment.image(self.group.me)).into());
        }
        for (segment, wanted) in &self.spill.wanted {
            if wanted.asked.last() == Some(&holder) {
                host.control(To::One(holder), GroupMessage::Fetch(segment.image(self.group.me)).into());
            }
        }
    }

    /// Returns the segments that contain part of the log.
    fn segments(&self) -> BTreeSet<SegmentNo> {
        if self.config.log_memory.is_none() {
            return BTreeSet::new();
        }
        let entries = self.channels.values().flat_map(|it| it.log.values());
        entries.filter_map(|it| it.content.segment()).collect()
    }

    /// Returns what a checkpoint taken now says about the log's segments.
    pub(super) fn head_of_log(&self) -> Head {
        // A segment being written is still in memory, and in the part. It will be needed afterwards.
        let next = self.spill.writing.as_ref().map_or(self.spill.begun + 1, |it| it.segment.number);
        Head { segments: self.segments().into_iter().collect(), next }
    }

    /// Requests the segment that contains the next message for `peer`.
    pub(super) fn want_segment(&mut self, segment: SegmentNo, peer: ProcessId, host: &mut ProtocolHost) {
        if !self.spill.wanted.contains_key(&segment) {
            self.group.store.read_for(self.group.me, segment.image(self.group.me), host);
        }
        self.spill.wanted.entry(segment).or_default().peers.insert(peer);
    }

    /// Handles the answer of this process's storage to a read for itself or for a holder.
    pub(super) fn own_segment_read(
        &mut self,
        segment: SegmentNo,
        image: Option<Arc<Image>>,
        host: &mut ProtocolHost,
    ) {
        match image {
            Some(image) => self.segment_here(segment, image, host),
            None if self.segments().contains(&segment) => self.ask_for_segment(segment, host),
            None => {}
        }
    }

    /// Handles a segment from a holder. It was lost here, or belongs to the part to be restored.
    pub(super) fn own_segment_arrived(
        &mut self,
        segment: SegmentNo,
        image: Arc<Image>,
        host: &mut ProtocolHost,
    ) {
        self.group.store.write_companion(image.clone(), host);
        self.segment_here(segment, image, host);
    }

    /// Handles a holder's answer that it does not have the segment, either.
    pub(super) fn own_segment_refused(&mut self, from: ProcessId, name: ImageName, host: &mut ProtocolHost) {
        if let Some(segment) = SegmentNo::of(name)
            && self.spill.wanted.get(&segment).is_some_and(|it| it.asked.last() == Some(&from))
        {
            self.ask_for_segment(segment, host);
        }
    }

    fn ask_for_segment(&mut self, segment: SegmentNo, host: &mut ProtocolHost) {
        let name = segment.image(self.group.me);
        let wanted = self.spill.wanted.entry(segment).or_default();
        match self.group.holders.iter().find(|holder| !wanted.asked.contains(holder)) {
            Some(&holder) => {
                wanted.asked.push(holder);
                host.control(To::One(holder), GroupMessage::Fetch(name).into());
            }
            None => {
                let asked =
                    core::iter::once(self.group.me).chain(self.group.holders.iter().copied()).collect();
                self.group.unrecoverable(&[(name, asked)], host);
            }
        }
    }

    /// Lets the channels that waited for the segment continue.
    fn segment_here(&mut self, segment: SegmentNo, image: Arc<Image>, host: &mut ProtocolHost) {
        let Some(wanted) = self.spill.wanted.remove(&segment) else {
            return;
        };
        self.spill.fetched.push((segment, image));
        let limit = self.config.log_memory.unwrap_or(0);
        let len = |(_, image): &(SegmentNo, Arc<Image>)| image.snapshot.len();
        while self.spill.fetched.len() > 1 && self.spill.fetched.iter().map(len).sum::<u64>() > limit {
            self.spill.fetched.remove(0);
        }
        for peer in wanted.peers {
            self.pump(peer, host);
        }
        if self.spill.wanted.is_empty() && self.gate == Gate::Open {
            self.spill.fetched.clear();
        }
    }
}
