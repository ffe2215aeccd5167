//! What has arrived and was not received yet.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faultline_core::Payload;
use serde::{Deserialize, Serialize};

use super::{Message, number_of};

/// The channels of one rank, both directions.
///
/// Messages of a channel are numbered by their sender, because some networks let them overtake each other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Mailbox {
    channels: BTreeMap<u32, Channel>,
    /// Messages that have arrived, whatever they were.
    arrived: u64,
    /// Of the awaited messages, those that have not arrived.
    missing: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Channel {
    /// Messages sent to the peer.
    sent: u32,
    /// Messages received from it.
    received: u32,
    /// The next one is awaited.
    awaited: bool,
    /// Those that have arrived since, by number.
    waiting: BTreeMap<u32, Payload>,
}

impl Mailbox {
    /// The number of the next message to `to`.
    pub(super) fn number(&mut self, to: u32) -> u32 {
        let sent = &mut self.channels.entry(to).or_default().sent;
        *sent += 1;
        *sent - 1
    }

    /// A message has arrived. One that has arrived before is counted, and nothing else.
    pub(super) fn arrive(&mut self, from: u32, sealed: Payload) {
        self.arrived += 1;
        let Some(number) = number_of(&sealed) else { return };
        let channel = self.channels.entry(from).or_default();
        if number >= channel.received && channel.waiting.insert(number, sealed).is_none() {
            self.missing -= u32::from(channel.awaited && number == channel.received);
        }
    }

    /// From now on the next message of each of these ranks is awaited.
    ///
    /// # Panics
    ///
    /// When a rank stands there twice, or when messages are awaited already.
    pub(super) fn await_from(&mut self, from: &[u32]) {
        assert_eq!(self.missing, 0, "one wait at a time");
        for it in from {
            let channel = self.channels.entry(*it).or_default();
            assert!(!channel.awaited, "rank {it} is named twice");
            channel.awaited = true;
            self.missing += u32::from(!channel.waiting.contains_key(&channel.received));
        }
    }

    /// Whether everything awaited is there.
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Hands over what was awaited, each message with its number.
    pub(super) fn take(&mut self, from: &[u32]) -> Vec<(u32, Message)> {
        let take = |&from: &u32| {
            let channel = self.channels.get_mut(&from).expect("it was awaited");
            let number = channel.received;
            let sealed = channel.waiting.remove(&number).expect("it has arrived");
            channel.received += 1;
            channel.awaited = false;
            (number, Message { from, sealed })
        };
        from.iter().map(take).collect()
    }

    /// Messages that have arrived, whatever they were.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }
}
