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
    /// Adds a message to the log, in place of an earlier one with the same receiver and number.
    pub fn push(&mut self, entry: LogEntry<S>) {
        self.bytes += entry.payload.len() as u64;
        let key = entry.key();
        match self.entries.last_up_to(key) {
            Some(place) if self.entries.at(place).key() == key => {
                self.bytes -= self.entries.at(place).payload.len() as u64;
                *self.entries.at_mut(place) = entry;
            }
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

#[cfg(test)]
mod tests {
    use faultline_core::Incarnation;

    use super::*;

    fn id(to: u32, incarnation: u32, number: u32) -> MessageId {
        let (from, to) = (ProcessId(9), ProcessId(to));
        MessageId { from, to, incarnation: Incarnation(incarnation), number }
    }

    fn push(log: &mut Log<u8>, id: MessageId, bytes: u64) {
        log.push(LogEntry { id, stamp: 0, payload: Payload::Virtual(bytes), acknowledged: None });
    }

    /// Returns a log of three messages to each of two receivers, with payloads of 1 to 6 bytes.
    fn log() -> Log<u8> {
        let mut log = Log::default();
        for (bytes, (number, to)) in (1..).zip([(0, 2), (0, 1), (1, 2), (1, 1), (2, 1), (2, 2)]) {
            push(&mut log, id(to, 0, number), bytes);
        }
        log
    }

    #[test]
    fn an_acknowledgement_concerns_one_message_only() {
        let mut log = log();
        let at = Position::new(0, 4);
        log.acknowledge(id(1, 1, 1), at);
        log.acknowledge(id(1, 0, 3), at);
        log.acknowledge(id(3, 0, 0), at);
        assert_eq!(log, self::log(), "these messages are not in the log");
        log.acknowledge(id(1, 0, 1), at);
        let acknowledged = log.take_back(|it| it.acknowledged.is_some());
        assert_eq!(acknowledged.iter().map(|it| it.id).collect::<Vec<_>>(), [id(1, 0, 1)]);
    }

    #[test]
    fn messages_to_re_send_are_returned_in_order_and_await_another_acknowledgement() {
        let mut log = log();
        log.acknowledge(id(1, 0, 0), Position::new(0, 3));
        log.acknowledge(id(2, 0, 1), Position::new(0, 5));
        let owed = |it: &LogEntry<u8>| it.acknowledged.is_none_or(|at| at.sn.0 >= 4);
        let resent: Vec<MessageId> = log.take_back(owed).iter().map(|it| it.id).collect();
        assert_eq!(resent, [id(1, 0, 1), id(1, 0, 2), id(2, 0, 0), id(2, 0, 1), id(2, 0, 2)]);
        assert_eq!(log.take_back(|it| it.acknowledged.is_some()).len(), 1, "the one that was not re-sent");
    }

    #[test]
    fn a_checkpoint_keeps_the_log_as_it_was() {
        let mut log = log();
        let saved = log.clone();
        log.acknowledge(id(1, 0, 0), Position::new(0, 1));
        push(&mut log, id(1, 0, 3), 9);
        assert_eq!(log.retain(|it| it.id.to == ProcessId(1)), 3);
        assert_eq!(saved, self::log());
        let encoded = postcard::to_allocvec(&saved).expect("a log can be encoded");
        assert_eq!(postcard::from_bytes::<Log<u8>>(&encoded).expect("and decoded"), saved);
    }

    #[test]
    fn the_size_covers_the_messages_that_are_in_the_log() {
        let mut log = log();
        assert_eq!((log.len(), log.bytes()), (6, 1 + 2 + 3 + 4 + 5 + 6));
        assert_eq!(log.retain(|it| it.id.number > 0), 2);
        assert_eq!((log.len(), log.bytes()), (4, 3 + 4 + 5 + 6));
        push(&mut log, id(2, 1, 2), 60);
        assert_eq!((log.len(), log.bytes()), (4, 3 + 4 + 5 + 60), "sent again, in the next incarnation");
        assert_eq!(log.receivers().collect::<Vec<_>>(), [ProcessId(1), ProcessId(2)]);
        assert_eq!(log.retain(|_| false), 4);
        assert!(log.is_empty() && log.bytes() == 0 && log.receivers().next().is_none());
    }
}
