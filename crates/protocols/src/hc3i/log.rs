//! The sender's log of messages between clusters (section 3.3). Part of every checkpoint (errata, B3).

use alloc::collections::BTreeMap;
use faultline_core::{MessageId, Payload, Position, ProcessId};
use serde::{Deserialize, Serialize};

use super::message::Stamp;

/// One logged message to another cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Identity of the message.
    pub id: MessageId,
    /// The stamp of the first send. Re-sends carry the same stamp.
    pub stamp: Stamp,
    /// Content of the message.
    pub payload: Payload,
    /// Position of the receiver's cluster when it delivered the message; `None` if not known.
    pub acknowledged: Option<Position>,
}

/// All messages that may have to be re-sent, by receiver and number. This key is unique within one branch of history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Log {
    entries: BTreeMap<(ProcessId, u32), Entry>,
    bytes: u64,
}

impl Log {
    /// Adds a message to the log.
    pub fn push(&mut self, entry: Entry) {
        self.bytes += entry.payload.len() as u64;
        self.entries.insert((entry.id.to, entry.id.number), entry);
    }

    /// Records the position of the receiver's cluster at which a message was delivered. Ignores messages that are not
    /// in the log.
    pub fn acknowledge(&mut self, id: MessageId, position: Position) {
        if let Some(entry) = self.entries.get_mut(&(id.to, id.number)).filter(|entry| entry.id == id) {
            entry.acknowledged = Some(position);
        }
    }

    /// Iterates over all entries.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.values_mut()
    }

    /// Iterates over the receivers, ascending.
    pub fn receivers(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let mut next = self.entries.keys().next().copied();
        core::iter::from_fn(move || {
            let (receiver, _) = next?;
            next = self.entries.range((ProcessId(receiver.0 + 1), 0)..).next().map(|(&key, _)| key);
            Some(receiver)
        })
    }

    /// Removes the entries for which `needed` returns `false`. Returns the number of entries removed.
    pub fn retain(&mut self, needed: impl Fn(&Entry) -> bool) -> u32 {
        let before = self.entries.len();
        let bytes = &mut self.bytes;
        self.entries.retain(|_, entry| {
            let keep = needed(entry);
            if !keep {
                *bytes -= entry.payload.len() as u64;
            }
            keep
        });
        (before - self.entries.len()) as u32
    }

    /// Returns the number of messages.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns the payload of all messages, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
