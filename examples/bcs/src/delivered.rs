//! The messages that a process has delivered. Messages may overtake each other, so there may be gaps.

use std::collections::{BTreeMap, BTreeSet};

use faultline::core::{MessageId, ProcessId};
use serde::{Deserialize, Serialize};

/// Numbers of delivered messages, by sender. Consistent recovery lines make a number unambiguous: if a rollback
/// undoes a send, no restored state contains its delivery.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delivered(BTreeMap<ProcessId, Channel>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Channel {
    /// All messages with numbers smaller than this one have been delivered.
    below: u32,
    /// Numbers of the other delivered messages, all greater than `below`.
    beyond: BTreeSet<u32>,
}

impl Delivered {
    pub(crate) fn contains(&self, id: MessageId) -> bool {
        let channel = self.0.get(&id.from);
        channel.is_some_and(|it| id.number < it.below || it.beyond.contains(&id.number))
    }

    pub(crate) fn insert(&mut self, id: MessageId) {
        let channel = self.0.entry(id.from).or_default();
        channel.beyond.insert(id.number);
        while channel.beyond.remove(&channel.below) {
            channel.below += 1;
        }
    }

    /// Returns each sender with the number below which all its messages have been delivered.
    pub(crate) fn below(&self) -> impl Iterator<Item = (ProcessId, u32)> + '_ {
        self.0.iter().map(|(sender, channel)| (*sender, channel.below))
    }
}
