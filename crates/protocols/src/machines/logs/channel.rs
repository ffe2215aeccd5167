//! Both directions of the channel to one peer: message counts, and the log. Part of every checkpoint.

use alloc::collections::BTreeMap;
use faultline_core::Payload;
use serde::{Deserialize, Serialize};

use super::LogSegmentNo;

/// A message that its sender keeps in its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logged<T> {
    /// The data that the message carries in addition to its number.
    pub tag: T,
    /// Content of the message, or where it is stored.
    pub content: Content,
}

/// Location of a logged message's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// In memory.
    Here(Payload),
    /// On stable storage, in a segment of the log.
    Spilled {
        /// The segment that contains the message.
        segment: LogSegmentNo,
        /// Length of the payload, in bytes.
        bytes: u32,
    },
}

impl Content {
    /// Returns the length of the payload, in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Content::Here(payload) => payload.len() as u64,
            Content::Spilled { bytes, .. } => u64::from(*bytes),
        }
    }

    /// Returns whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the segment that contains the message; `None` if it is in memory.
    pub fn segment(&self) -> Option<LogSegmentNo> {
        match self {
            Content::Here(_) => None,
            Content::Spilled { segment, .. } => Some(*segment),
        }
    }
}

/// The part of the channels to and from a peer that a state, such as a checkpoint, contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Number of messages sent to the peer.
    pub sent: u32,
    /// Number of messages received from the peer.
    pub received: u32,
}

/// Size of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSize {
    /// Number of messages.
    pub messages: u64,
    /// Payload of the messages, in bytes.
    pub bytes: u64,
    /// The part of `bytes` that is on stable storage only.
    pub spilled: u64,
}

impl LogSize {
    /// Adds one entry.
    pub fn add<T>(&mut self, entry: &Logged<T>) {
        let bytes = entry.content.len();
        self.messages += 1;
        self.bytes += bytes;
        self.spilled += if entry.content.segment().is_some() { bytes } else { 0 };
    }

    /// Subtracts entries that were removed.
    pub fn subtract(&mut self, gone: LogSize) {
        self.messages -= gone.messages;
        self.bytes -= gone.bytes;
        self.spilled -= gone.spilled;
    }

    /// Returns the payload in memory, in bytes.
    pub fn in_memory(&self) -> u64 {
        self.bytes - self.spilled
    }
}

/// The channel to one peer. Messages are numbered from 0; a count is the number of the next message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Channel<T> {
    /// Number of messages sent to the peer.
    pub sent: u32,
    /// Number of messages received from the peer.
    pub received: u32,
    /// Messages that the peer may need again, by number. Empty if the peer is in the same group.
    pub log: BTreeMap<u32, Logged<T>>,
    /// The part of the channel that the peer's last committed checkpoint contains, from the peer's point of view:
    /// the peer needs no message below `received`, and will not re-send any below `sent`.
    pub settled: Covered,
}

impl<T> Channel<T> {
    /// Returns the current counts of the channel.
    pub fn covered(&self) -> Covered {
        Covered { sent: self.sent, received: self.received }
    }

    /// Records which messages the peer's checkpoint contains, and removes those that the peer can no longer need.
    /// Returns the size of the removed log entries.
    pub fn settle(&mut self, peer: Covered) -> LogSize {
        self.settled.received = self.settled.received.max(peer.received);
        self.settled.sent = self.settled.sent.max(peer.sent);
        let kept = self.log.split_off(&self.settled.received);
        let gone = core::mem::replace(&mut self.log, kept);
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
    fn settled_messages_are_dropped_permanently() {
        let mut channel = Channel { sent: 4, received: 3, ..Channel::default() };
        let here = Logged { tag: 1, content: Content::Here(Payload::Virtual(10)) };
        channel.log = (0..4).map(|it| (it, here.clone())).collect();
        let segment = LogSegmentNo { incarnation: Incarnation(0), number: 1 };
        channel.log.insert(0, Logged { tag: 1, content: Content::Spilled { segment, bytes: 10 } });
        let gone = LogSize { messages: 3, bytes: 30, spilled: 10 };
        assert_eq!(channel.settle(Covered { sent: 1, received: 3 }), gone);
        assert_eq!(channel.log.len(), 1);
        assert_eq!(channel.settle(Covered { sent: 0, received: 2 }), LogSize::default());
        assert_eq!(channel.settled, Covered { sent: 1, received: 3 });
    }
}
