//! The delivered messages from other groups, and the position of each delivery. The table prevents duplicate delivery,
//! and supplies the position with which a repeated message is acknowledged. Part of every checkpoint.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faultline_core::{Footprint, Incarnation, MessageId, Position, ProcessId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shared_list::{Keyed, SharedList};

/// Consecutive messages of one channel that were delivered at the same position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    from: ProcessId,
    incarnation: Incarnation,
    first: u32,
    last: u32,
    position: Position,
    /// No message of this or an earlier run of the channel has this number or a greater one.
    end: u32,
}

impl Keyed for Run {
    type Key = ProcessId;
    fn key(&self) -> ProcessId {
        self.from
    }
}

/// The delivered messages, as runs for each sender, in the order of their delivery. Messages arrive mostly in order, so
/// there are about as many runs as checkpoints. The tables of successive checkpoints share the runs that they have in
/// common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    runs: SharedList<Run>,
}

impl Received {
    /// Returns the position of the group when it delivered the message; `None` if the message has not been delivered.
    pub fn position(&self, id: MessageId) -> Option<Position> {
        let last = self.runs.last_up_to(id.from)?;
        let newest = self.runs.at(last);
        if newest.from != id.from || id.number >= newest.end {
            return None;
        }
        let holds =
            |run: &&Run| (run.first..=run.last).contains(&id.number) && run.incarnation == id.incarnation;
        let mut runs = self.runs.up_to(last).rev().take_while(|run| run.from == id.from);
        runs.find(holds).map(|run| run.position)
    }

    /// Records a delivery.
    pub fn insert(&mut self, id: MessageId, position: Position) {
        let MessageId { from, incarnation, number, .. } = id;
        let last = self.runs.last_up_to(from).map(|place| (place, *self.runs.at(place)));
        let newest = last.filter(|(_, run)| run.from == from);
        let end = newest.map_or(0, |(_, run)| run.end).max(number + 1);
        match newest {
            Some((place, run))
                if run.incarnation == incarnation && run.position == position && run.last + 1 == number =>
            {
                *self.runs.at_mut(place) = Run { last: number, end, ..run };
            }
            _ => {
                let run = Run { from, incarnation, first: number, last: number, position, end };
                self.runs.insert_after(last.map(|(place, _)| place), run);
            }
        }
    }

    /// Adds the table to a footprint.
    pub(crate) fn add_to(&self, footprint: &mut Footprint) {
        self.runs.add_to(footprint);
    }
}

/// The serialised form of a run, within its channel.
#[derive(Serialize, Deserialize)]
struct RunForm {
    incarnation: Incarnation,
    first: u32,
    last: u32,
    position: Position,
}

/// The serialised form of a channel.
#[derive(Default, Serialize, Deserialize)]
struct ChannelForm {
    runs: Vec<RunForm>,
    end: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Received")]
struct ReceivedForm {
    channels: BTreeMap<ProcessId, ChannelForm>,
}

impl Serialize for Received {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut channels = BTreeMap::<ProcessId, ChannelForm>::new();
        for &Run { from, incarnation, first, last, position, end } in self.runs.iter() {
            let channel = channels.entry(from).or_default();
            channel.runs.push(RunForm { incarnation, first, last, position });
            channel.end = end;
        }
        ReceivedForm { channels }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Received {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Received, D::Error> {
        let ReceivedForm { channels } = ReceivedForm::deserialize(deserializer)?;
        let mut runs = SharedList::default();
        for (from, channel) in channels {
            let mut end = 0;
            for RunForm { incarnation, first, last, position } in channel.runs {
                end = last.saturating_add(1).max(end);
                runs.insert(Run { from, incarnation, first, last, position, end });
            }
        }
        Ok(Received { runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(incarnation: u32, number: u32) -> MessageId {
        MessageId { from: ProcessId(1), to: ProcessId(2), incarnation: Incarnation(incarnation), number }
    }

    #[test]
    fn delivered_messages_are_found_with_their_position() {
        let mut received = Received::default();
        for number in [0, 1, 3, 2] {
            received.insert(id(0, number), Position::new(0, 1));
        }
        received.insert(id(1, 4), Position::new(0, 2));
        for number in 0..4 {
            assert_eq!(received.position(id(0, number)), Some(Position::new(0, 1)));
        }
        assert_eq!(received.position(id(1, 4)), Some(Position::new(0, 2)));
        assert_eq!(received.position(id(0, 4)), None, "another incarnation's message with the same number");
        assert_eq!(received.position(id(1, 5)), None);
    }
}
