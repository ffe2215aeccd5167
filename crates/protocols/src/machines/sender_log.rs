//! The sender's log of messages to other groups, for protocols in which receivers acknowledge each delivery
//! with its position (HC3I, section 3.3). Part of every checkpoint.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faultline_core::{Footprint, MessageId, Payload, Position, ProcessId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shared_list::{ItemIndex, Keyed, SharedList};

/// One logged message to another group, with the stamp `S`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogEntry<S> {
    /// Identity of the message.
    pub id: MessageId,
    /// The stamp of the first send. Re-sends carry the same stamp.
    pub stamp: S,
    /// Content of the message.
    pub payload: Payload,
    /// Position of the receiver's group when it delivered the message; `None` if it is not known.
    pub acknowledged: Option<Position>,
}

impl<S: Clone> Keyed for LogEntry<S> {
    type Key = (ProcessId, u32);
    fn key(&self) -> (ProcessId, u32) {
        (self.id.to, self.id.number)
    }
}

/// All messages that may have to be re-sent, by receiver and number. This key is unique within one branch of history.
/// Logs of successive checkpoints share the entries that they have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "S: Serialize + Clone", deserialize = "S: Deserialize<'de> + Clone"))]
pub struct Log<S: Clone> {
    #[serde(serialize_with = "as_map", deserialize_with = "from_map")]
    entries: SharedList<LogEntry<S>>,
    bytes: u64,
}

impl<S: Clone> Default for Log<S> {
    fn default() -> Self {
        Log { entries: SharedList::default(), bytes: 0 }
    }
}

impl<S: Clone> Log<S> {
    /// Adds a message to the log.
    pub fn push(&mut self, entry: LogEntry<S>) {
        self.bytes += entry.payload.len() as u64;
        let key = entry.key();
        match self.entries.last_up_to(key) {
            Some(place) if self.entries.at(place).key() == key => *self.entries.at_mut(place) = entry,
            place => self.entries.insert_after(place, entry),
        }
    }

    /// Records the position of the receiver's group at which a message was delivered. Ignores messages that are not
    /// in the log.
    pub fn acknowledge(&mut self, id: MessageId, position: Position) {
        if let Some(place) = self.entries.last_up_to((id.to, id.number))
            && self.entries.at(place).id == id
        {
            self.entries.at_mut(place).acknowledged = Some(position);
        }
    }

    /// Clears the acknowledgements of the entries for which `is_wanted` returns `true`, and returns these entries.
    pub fn take_back(&mut self, is_wanted: impl Fn(&LogEntry<S>) -> bool) -> Vec<LogEntry<S>> {
        let wanted: Vec<ItemIndex> =
            self.entries.places().filter(|(_, entry)| is_wanted(entry)).map(|(place, _)| place).collect();
        let forget = |place| {
            if self.entries.at(place).acknowledged.is_some() {
                self.entries.at_mut(place).acknowledged = None;
            }
            self.entries.at(place).clone()
        };
        wanted.into_iter().map(forget).collect()
    }

    /// Iterates over the receivers, in ascending order.
    pub fn receivers(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let mut next = self.entries.iter().next();
        core::iter::from_fn(move || {
            let receiver = next?.id.to;
            let last = self.entries.last_up_to((receiver, u32::MAX))?;
            next = self.entries.after(last);
            Some(receiver)
        })
    }

    /// Removes the entries for which `needed` returns `false`. Returns the number of entries removed.
    pub fn retain(&mut self, needed: impl Fn(&LogEntry<S>) -> bool) -> u32 {
        let before = self.entries.len();
        let mut removed = 0;
        self.entries.retain(|entry| {
            let keep = needed(entry);
            if !keep {
                removed += entry.payload.len() as u64;
            }
            keep
        });
        self.bytes -= removed;
        (before - self.entries.len()) as u32
    }

    /// Returns the number of messages.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the total length of the payloads, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the log to a footprint, except message content that is too long to be stored in place.
    pub(crate) fn add_to(&self, footprint: &mut Footprint) {
        self.entries.add_to(footprint);
    }
}

/// Serialises the entries in the form of a `BTreeMap`.
fn as_map<S, Z>(entries: &SharedList<LogEntry<S>>, serializer: Z) -> Result<Z::Ok, Z::Error>
where
    S: Serialize + Clone,
    Z: Serializer,
{
    use serde::ser::SerializeMap;
    let mut map = serializer.serialize_map(Some(entries.len()))?;
    for entry in entries.iter() {
        map.serialize_entry(&entry.key(), entry)?;
    }
    map.end()
}

fn from_map<'de, S, D>(deserializer: D) -> Result<SharedList<LogEntry<S>>, D::Error>
where
    S: Deserialize<'de> + Clone,
    D: Deserializer<'de>,
{
    let entries = BTreeMap::<(ProcessId, u32), LogEntry<S>>::deserialize(deserializer)?;
    Ok(entries.into_values().collect())
}
