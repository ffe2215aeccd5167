//! Every message of a run, with its sends, stamps and deliveries.

use std::collections::HashMap;

use faultline_core::{Incarnation, MessageId, Position};

use crate::history::{Point, SegmentNo};

/// The index of a message among all messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageNo(pub u32);

impl MessageNo {
    /// Represents no message.
    pub(crate) const NONE: MessageNo = MessageNo(u32::MAX);
}

/// A message, with its sends and deliveries.
#[derive(Clone, Debug)]
pub struct Message {
    /// The message's identity.
    pub id: MessageId,
    /// The sends by the application: exactly one in a correct run, or one per execution if re-executions repeat
    /// messages.
    pub sent: Points,
    /// The deliveries, in any state of the receiver.
    pub delivered: Points,
    /// The sender's position as first piggybacked; meaningless without a fact that states it.
    position: Position,
    stamped: Point,
    restamped: Option<Box<(Position, Point)>>,
}

impl Message {
    /// Returns the sender's position as first piggybacked, and the fact that states it.
    pub fn stamp(&self) -> Option<(Position, Point)> {
        (self.stamped != Point::NONE).then_some((self.position, self.stamped))
    }

    /// Returns the last transmission with a position other than the first.
    pub fn restamped(&self) -> Option<(Position, Point)> {
        self.restamped.as_deref().copied()
    }

    /// Records a transmission. Returns whether there was an earlier one.
    pub(crate) fn transmit(&mut self, position: Position, at: Point) -> bool {
        let is_again = self.stamped != Point::NONE;
        if !is_again {
            (self.position, self.stamped) = (position, at);
        } else if position != self.position {
            self.restamped = Some(Box::new((position, at)));
        }
        is_again
    }
}

/// A short list of points, usually of length one.
#[derive(Clone, Debug)]
pub struct Points {
    first: Point,
    /// Allocated only for a second point, to keep messages small: a run can have millions.
    #[expect(clippy::box_collection, reason = "a pointer takes less memory than an empty vector")]
    more: Option<Box<Vec<Point>>>,
}

impl Default for Points {
    fn default() -> Points {
        Points { first: Point::NONE, more: None }
    }
}

impl Points {
    pub(crate) fn push(&mut self, point: Point) {
        match self.first {
            Point::NONE => self.first = point,
            _ => self.more.get_or_insert_default().push(point),
        }
    }

    /// Returns the point that was reported first, if any.
    pub fn first(&self) -> Option<Point> {
        (self.first != Point::NONE).then_some(self.first)
    }

    /// Returns all points, in the order in which they were reported.
    pub fn iter(&self) -> impl Iterator<Item = &Point> + '_ {
        let first = (self.first != Point::NONE).then_some(&self.first);
        first.into_iter().chain(self.more.iter().flat_map(|it| it.iter()))
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        usize::from(!self.is_empty()) + self.more.as_ref().map_or(0, |it| it.len())
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.first == Point::NONE
    }
}

impl Point {
    /// Represents no point. An option would take more memory.
    const NONE: Point = Point { segment: SegmentNo(u32::MAX), fact: u32::MAX };
}

/// Every message of a run.
///
/// A message is found by its channel and its number, without hashing: a table contains the channel of each pair of
/// processes, and a channel contains the messages of each incarnation in the order of their numbers.
#[derive(Debug, Default)]
pub struct Messages {
    all: Vec<Message>,
    /// Channels by sender and receiver; empty if there are too many processes for the table.
    table: Vec<u32>,
    /// The number of processes in the table.
    processes: usize,
    channels: Vec<Channel>,
    /// Whether a channel has messages of several incarnations.
    has_several: bool,
    /// Messages outside the channels: from unknown processes, or with a number far from the others.
    rest: HashMap<MessageId, MessageNo>,
}

/// The messages of one sender to one receiver.
#[derive(Debug, Default)]
struct Channel {
    /// Usually has a single incarnation.
    by_incarnation: Vec<(Incarnation, Numbered)>,
}

/// Messages with consecutive numbers.
#[derive(Debug, Default)]
struct Numbered {
    /// The number of the first message.
    first: u32,
    messages: Vec<MessageNo>,
}

/// The largest number of processes for which there is a table of channels. The table then takes 64 MiB.
const MOST_IN_TABLE: usize = 4096;
/// The largest distance of a message's number from the other numbers of its channel. Numbers in between take memory
/// even if no message has them.
const MOST_APART: u32 = 4096;

impl Numbered {
    /// Returns the place of a number, adding it if necessary; `None` if it is too far from the others.
    fn place(&mut self, number: u32) -> Option<&mut MessageNo> {
        if self.messages.is_empty() {
            self.first = number;
        }
        if number < self.first {
            let missing = self.first - number;
            if missing > MOST_APART {
                return None;
            }
            self.messages.splice(0..0, (0..missing).map(|_| MessageNo::NONE));
            self.first = number;
        }
        let index = (number - self.first) as usize;
        if index >= self.messages.len() {
            if index - self.messages.len() > MOST_APART as usize {
                return None;
            }
            self.messages.resize(index + 1, MessageNo::NONE);
        }
        Some(&mut self.messages[index])
    }

    fn get(&self, number: u32) -> Option<MessageNo> {
        let index = number.checked_sub(self.first)?;
        self.messages.get(index as usize).copied().filter(|it| *it != MessageNo::NONE)
    }
}

impl Messages {
    /// Creates an empty table for processes with numbers below `processes`. `facts` is the number of facts; a message
    /// usually has at least three.
    pub(crate) fn new(processes: usize, facts: usize) -> Messages {
        let processes = if processes <= MOST_IN_TABLE { processes } else { 0 };
        let table = vec![u32::MAX; processes * processes];
        Messages { all: Vec::with_capacity(facts / 3), table, processes, ..Messages::default() }
    }

    /// Returns every message, in an order that depends only on the trace.
    pub fn iter(&self) -> std::slice::Iter<'_, Message> {
        self.all.iter()
    }

    /// Returns the message with this number.
    pub fn get(&self, no: MessageNo) -> &Message {
        &self.all[no.0 as usize]
    }

    /// Returns the message with this identity.
    pub fn find(&self, id: MessageId) -> Option<&Message> {
        let of_channel = self.channel(id).and_then(|it| {
            let numbered = it.by_incarnation.iter().find(|(it, _)| *it == id.incarnation)?;
            numbered.1.get(id.number)
        });
        of_channel.or_else(|| self.rest.get(&id).copied()).map(|no| self.get(no))
    }

    /// Returns whether the channel of a message may have messages of other incarnations with the same number.
    pub fn has_other_incarnations(&self, id: MessageId) -> bool {
        !self.rest.is_empty()
            || self.has_several && self.channel(id).is_none_or(|it| it.by_incarnation.len() > 1)
    }

    fn channel(&self, id: MessageId) -> Option<&Channel> {
        let (from, to) = (id.from.index(), id.to.index());
        if from >= self.processes || to >= self.processes {
            return None;
        }
        self.channels.get(self.table[from * self.processes + to] as usize)
    }

    pub(crate) fn entry(&mut self, id: MessageId) -> (MessageNo, &mut Message) {
        let next = MessageNo(self.all.len() as u32);
        let place = match self.place(id) {
            Some(place) => place,
            None => self.rest.entry(id).or_insert(MessageNo::NONE),
        };
        if *place == MessageNo::NONE {
            *place = next;
            self.all.push(Message {
                id,
                sent: Points::default(),
                delivered: Points::default(),
                position: Position::default(),
                stamped: Point::NONE,
                restamped: None,
            });
            return (next, &mut self.all[next.0 as usize]);
        }
        let no = *place;
        (no, &mut self.all[no.0 as usize])
    }

    /// Returns the place of a message in its channel; `None` if it has to be stored outside the channels.
    fn place(&mut self, id: MessageId) -> Option<&mut MessageNo> {
        let (from, to) = (id.from.index(), id.to.index());
        if from >= self.processes || to >= self.processes || self.rest.contains_key(&id) {
            return None;
        }
        let channel = &mut self.table[from * self.processes + to];
        if *channel == u32::MAX {
            *channel = self.channels.len() as u32;
            self.channels.push(Channel::default());
        }
        let of = &mut self.channels[*channel as usize].by_incarnation;
        let index = match of.iter().rposition(|(it, _)| *it == id.incarnation) {
            Some(index) => index,
            None => {
                self.has_several |= !of.is_empty();
                of.push((id.incarnation, Numbered::default()));
                of.len() - 1
            }
        };
        of[index].1.place(id.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultline_core::ProcessId;

    fn id(from: u32, to: u32, incarnation: u32, number: u32) -> MessageId {
        MessageId { from: ProcessId(from), to: ProcessId(to), incarnation: Incarnation(incarnation), number }
    }

    #[test]
    fn a_message_is_found_whatever_its_number() {
        let ids = [
            id(0, 1, 0, 5),
            id(0, 1, 0, 3),
            id(0, 1, 0, u32::MAX),
            id(0, 1, 1, 4),
            id(1, 0, 0, 0),
            id(9, 0, 0, 0),
            id(0, 1, 0, 5 + 2 * MOST_APART),
            id(0, 1, 0, MOST_APART),
            id(0, 1, 0, 5 + 2 * MOST_APART - 1),
        ];
        let mut messages = Messages::new(2, 0);
        for round in 0..2 {
            for (no, it) in (0..).zip(ids) {
                let (found, message) = messages.entry(it);
                assert_eq!((found, message.id), (MessageNo(no), it), "in round {round}");
            }
        }
        for it in ids {
            assert_eq!(messages.find(it).map(|it| it.id), Some(it));
        }
        for missing in [id(0, 1, 0, 4), id(0, 1, 2, 3), id(1, 1, 0, 0), id(7, 7, 0, 0)] {
            assert!(messages.find(missing).is_none(), "{missing}");
        }
        assert_eq!(messages.iter().count(), ids.len());
    }

    #[test]
    fn a_message_is_small() {
        assert!(size_of::<Message>() <= 72, "{} bytes", size_of::<Message>());
    }
}
