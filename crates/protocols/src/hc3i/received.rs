//! Which messages from other clusters have been delivered, and at which position. Prevents duplicate delivery, and
//! provides the acknowledgement of a repeated message. Part of every checkpoint.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use faultline_core::{Incarnation, MessageId, Position, ProcessId};
use serde::{Deserialize, Serialize};

/// Consecutive numbers of one channel, delivered at the same position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    incarnation: Incarnation,
    first: u32,
    last: u32,
    position: Position,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Channel {
    runs: Vec<Run>,
    /// No message with this number or a greater one has been delivered.
    end: u32,
}

/// The delivered messages, as runs per sender. Messages arrive mostly in order, so there are about as many runs as
/// checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    channels: BTreeMap<ProcessId, Channel>,
}

impl Received {
    /// Returns the position of the cluster when it delivered the message; `None` if it has not.
    pub fn position(&self, id: MessageId) -> Option<Position> {
        let channel = self.channels.get(&id.from)?;
        if id.number >= channel.end {
            return None;
        }
        let holds =
            |run: &&Run| (run.first..=run.last).contains(&id.number) && run.incarnation == id.incarnation;
        channel.runs.iter().rev().find(holds).map(|run| run.position)
    }

    /// Records a delivery.
    pub fn insert(&mut self, id: MessageId, position: Position) {
        let channel = self.channels.entry(id.from).or_default();
        channel.end = channel.end.max(id.number + 1);
        let MessageId { incarnation, number, .. } = id;
        let fits = |run: &&mut Run| {
            run.incarnation == incarnation && run.position == position && run.last + 1 == number
        };
        match channel.runs.last_mut().filter(fits) {
            Some(run) => run.last = number,
            None => channel.runs.push(Run { incarnation, first: number, last: number, position }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(incarnation: u32, number: u32) -> MessageId {
        MessageId { from: ProcessId(1), to: ProcessId(2), incarnation: Incarnation(incarnation), number }
    }

    #[test]
    fn what_was_delivered_is_found_with_its_position() {
        let mut received = Received::default();
        for number in [0, 1, 3, 2] {
            received.insert(id(0, number), Position::new(0, 1));
        }
        received.insert(id(1, 4), Position::new(0, 2));
        for number in 0..4 {
            assert_eq!(received.position(id(0, number)), Some(Position::new(0, 1)));
        }
        assert_eq!(received.position(id(1, 4)), Some(Position::new(0, 2)));
        assert_eq!(received.position(id(0, 4)), None, "another incarnation's message of the same number");
        assert_eq!(received.position(id(1, 5)), None);
    }
}
