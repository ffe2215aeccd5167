//! Both directions of the channel to one peer: what is numbered, logged and recorded (R2, R3, R5, R8). Part of every
//! checkpoint.

use alloc::collections::BTreeMap;
use faultline_core::Payload;
use serde::{Deserialize, Serialize};

use super::message::{Covered, Phase, SegmentNo};

/// A message that its sender keeps (Algorithm 1, line 8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logged {
    /// Its phase.
    pub phase: Phase,
    /// Its content.
    pub content: Content,
}

/// Where the content of a logged message is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// Here.
    Here(Payload),
    /// In a segment of the log, on stable storage.
    Spilled {
        /// Which.
        segment: SegmentNo,
        /// Its length.
        bytes: u32,
    },
}

impl Content {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Content::Here(payload) => payload.len() as u64,
            Content::Spilled { bytes, .. } => u64::from(*bytes),
        }
    }

    /// Whether there is nothing in the message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The segment that it is in.
    pub fn segment(&self) -> Option<SegmentNo> {
        match self {
            Content::Here(_) => None,
            Content::Spilled { segment, .. } => Some(*segment),
        }
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSize {
    /// Messages.
    pub messages: u64,
    /// Their content.
    pub bytes: u64,
    /// Of that, what is on stable storage only.
    pub spilled: u64,
}

impl LogSize {
    /// With this entry.
    pub fn add(&mut self, entry: &Logged) {
        let bytes = entry.content.len();
        self.messages += 1;
        self.bytes += bytes;
        self.spilled += if entry.content.segment().is_some() { bytes } else { 0 };
    }

    /// Without what is gone.
    pub fn subtract(&mut self, gone: LogSize) {
        self.messages -= gone.messages;
        self.bytes -= gone.bytes;
        self.spilled -= gone.spilled;
    }

    /// What is in memory, in bytes.
    pub fn in_memory(&self) -> u64 {
        self.bytes - self.spilled
    }
}

/// The channel to one peer. Messages are numbered from 0; a count is the number of the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// Messages sent to the peer.
    pub sent: u32,
    /// Messages received from it.
    pub received: u32,
    /// Messages to a peer in another cluster that it may need again, by number.
    pub log: BTreeMap<u32, Logged>,
    /// Phases of the messages from a peer in another cluster, by number: what may become an orphan (the paper's RPP).
    pub receipts: BTreeMap<u32, Phase>,
    /// What messages from the peer will raise the phase to when they are consumed, by number (R6).
    pub unfolded: BTreeMap<u32, Phase>,
    /// How much of the channel the peer's last committed checkpoint holds, seen from the peer: it needs no message below
    /// `received`, and will send none below `sent` again.
    pub settled: Covered,
}

impl Channel {
    /// How much there is by now.
    pub fn covered(&self) -> Covered {
        Covered { sent: self.sent, received: self.received }
    }

    /// The peer's checkpoint holds so much: what it cannot need again is forgotten (R8). What that was of the log.
    pub fn settle(&mut self, peer: Covered) -> LogSize {
        self.settled.received = self.settled.received.max(peer.received);
        self.settled.sent = self.settled.sent.max(peer.sent);
        let kept = self.log.split_off(&self.settled.received);
        let gone = core::mem::replace(&mut self.log, kept);
        self.receipts = self.receipts.split_off(&self.settled.sent);
        let mut size = LogSize::default();
        gone.values().for_each(|it| size.add(it));
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::Incarnation;

    #[test]
    fn what_the_peer_has_settled_is_forgotten_and_never_comes_back() {
        let mut channel = Channel { sent: 4, received: 3, ..Channel::default() };
        let here = Logged { phase: 1, content: Content::Here(Payload::Virtual(10)) };
        channel.log = (0..4).map(|it| (it, here.clone())).collect();
        let segment = SegmentNo { incarnation: Incarnation(0), number: 1 };
        channel.log.insert(0, Logged { phase: 1, content: Content::Spilled { segment, bytes: 10 } });
        channel.receipts = (0..3).map(|it| (it, 2)).collect();
        let gone = LogSize { messages: 3, bytes: 30, spilled: 10 };
        assert_eq!(channel.settle(Covered { sent: 1, received: 3 }), gone);
        assert_eq!((channel.log.len(), channel.receipts.len()), (1, 2));
        assert_eq!(channel.settle(Covered { sent: 0, received: 2 }), LogSize::default());
        assert_eq!(channel.settled, Covered { sent: 1, received: 3 });
    }
}
