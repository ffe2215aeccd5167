//! Messages that have arrived, but that the program has not received yet.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faultline_core::Payload;
use serde::{Deserialize, Serialize};

use super::{Message, number_of};

/// The channels of one rank, in both directions.
///
/// Senders number the messages of a channel, because messages may overtake each other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Mailbox {
    channels: BTreeMap<u32, Channel>,
    /// Number of messages that have arrived, including invalid and repeated ones.
    arrived: u64,
    /// Number of awaited messages that have not arrived yet.
    missing: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Channel {
    /// Number of messages sent to the peer.
    sent: u32,
    /// Number of messages received from the peer.
    received: u32,
    /// Whether the next message is awaited.
    awaited: bool,
    /// Messages that have arrived but have not been received, by number.
    waiting: BTreeMap<u32, Payload>,
}

impl Mailbox {
    /// Returns the number of the next message to `to`, and counts that message as sent.
    pub(super) fn number(&mut self, to: u32) -> u32 {
        let sent = &mut self.channels.entry(to).or_default().sent;
        *sent += 1;
        *sent - 1
    }

    /// Handles the arrival of a message. A repeated message is only counted.
    pub(super) fn arrive(&mut self, from: u32, sealed: Payload) {
        self.arrived += 1;
        let Some(number) = number_of(&sealed) else { return };
        let channel = self.channels.entry(from).or_default();
        if number >= channel.received && channel.waiting.insert(number, sealed).is_none() {
            self.missing -= u32::from(channel.awaited && number == channel.received);
        }
    }

    /// Awaits the next message from each of these ranks.
    ///
    /// # Panics
    ///
    /// Panics if a rank appears twice or is already awaited, or if awaited messages have not arrived yet.
    pub(super) fn await_from(&mut self, from: &[u32]) {
        assert_eq!(self.missing, 0, "a rank is already waiting");
        for it in from {
            let channel = self.channels.entry(*it).or_default();
            assert!(!channel.awaited, "rank {it} is named twice");
            channel.awaited = true;
            self.missing += u32::from(!channel.waiting.contains_key(&channel.received));
        }
    }

    /// Returns whether all awaited messages have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Removes and returns the awaited messages, each with its number.
    pub(super) fn take(&mut self, from: &[u32]) -> Vec<(u32, Message)> {
        let take = |&from: &u32| {
            let channel = self.channels.get_mut(&from).expect("the message was awaited");
            let number = channel.received;
            let sealed = channel.waiting.remove(&number).expect("the message has arrived");
            channel.received += 1;
            channel.awaited = false;
            (number, Message { from, sealed })
        };
        from.iter().map(take).collect()
    }

    /// Returns the number of messages that have arrived, including invalid and repeated ones.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }
}
