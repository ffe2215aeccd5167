//! Every message of a run, with its sends, stamps and deliveries.

use std::collections::HashMap;

use faultline_core::{Incarnation, MessageId, Position};

use crate::segments::{Point, SegmentNo};

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
    /// The first send; [`Point::NONE`] if there is none.
    sent: Point,
    /// The first delivery; [`Point::NONE`] if there is none.
    delivered: Point,
    /// The sender's position as first piggybacked; meaningless if `stamped` is [`Point::NONE`].
    position: Position,
    stamped: Point,
    /// Allocated only for messages that were sent, delivered or stamped several times, to keep the others small: a run
    /// can have millions.
    more: Option<Box<Repeats>>,
}

/// The sends and deliveries of a message after the first of each.
#[derive(Clone, Debug, Default)]
struct Repeats {
    sent: Vec<Point>,
    delivered: Vec<Point>,
    restamped: Option<(Position, Point)>,
}

impl Message {
    fn new(id: MessageId) -> Message {
        let (sent, delivered, stamped) = (Point::NONE, Point::NONE, Point::NONE);
        Message { id, sent, delivered, position: Position::default(), stamped, more: None }
    }

    /// Returns the sends by the application: exactly one in a correct run, or one per execution if re-executions repeat
    /// messages.
    #[inline]
    pub fn sent(&self) -> Points<'_> {
        Points { first: &self.sent, more: self.more.as_ref().map_or(&[], |it| &it.sent) }
    }

    /// Returns the deliveries, including undone ones.
    #[inline]
    pub fn delivered(&self) -> Points<'_> {
        Points { first: &self.delivered, more: self.more.as_ref().map_or(&[], |it| &it.delivered) }
    }

    /// Returns the sender's position as first piggybacked, and the fact that states it.
    #[inline]
    pub fn stamp(&self) -> Option<(Position, Point)> {
        (self.stamped != Point::NONE).then_some((self.position, self.stamped))
    }

    /// Returns the last piggybacked position that differs from the first one, and the fact that states it.
    #[inline]
    pub fn restamped(&self) -> Option<(Position, Point)> {
        self.more.as_ref().and_then(|it| it.restamped)
    }

    /// Records a send.
    #[inline]
    pub(crate) fn send(&mut self, at: Point) {
        match self.sent {
            Point::NONE => self.sent = at,
            _ => self.more.get_or_insert_default().sent.push(at),
        }
    }

    /// Records a delivery.
    #[inline]
    pub(crate) fn deliver(&mut self, at: Point) {
        match self.delivered {
            Point::NONE => self.delivered = at,
            _ => self.more.get_or_insert_default().delivered.push(at),
        }
    }

    /// Records a transmission. Returns whether there was an earlier one.
    #[inline]
    pub(crate) fn transmit(&mut self, position: Position, at: Point) -> bool {
        let is_again = self.stamped != Point::NONE;
        if !is_again {
            (self.position, self.stamped) = (position, at);
        } else if position != self.position {
            self.more.get_or_insert_default().restamped = Some((position, at));
        }
        is_again
    }
}

/// A short list of points, usually of length one.
#[derive(Clone, Copy, Debug)]
pub struct Points<'a> {
    first: &'a Point,
    more: &'a [Point],
}

impl<'a> Points<'a> {
    /// Returns the point that was reported first, if any.
    #[inline]
    pub fn first(self) -> Option<Point> {
        (!self.is_empty()).then_some(*self.first)
    }

    /// Returns all points, in the order in which they were reported.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'a Point> {
        (!self.is_empty()).then_some(self.first).into_iter().chain(self.more)
    }

    /// Returns the number of points.
    #[inline]
    pub fn len(self) -> usize {
        usize::from(!self.is_empty()) + self.more.len()
    }

    /// Returns whether there are no points.
    #[inline]
    pub fn is_empty(self) -> bool {
        *self.first == Point::NONE
    }
}

impl Point {
    /// Represents no point. An [`Option`] would take more memory.
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
    /// Whether any channel has messages of several incarnations.
    has_several: bool,
    /// Messages stored outside the channels, either because a process is not in the table or because the message's
    /// number is too far from the others.
    rest: HashMap<MessageId, MessageNo>,
    /// The index of the message after the one that was transmitted last.
    after_transmitted: usize,
}

/// The messages from one sender to one receiver.
#[derive(Debug)]
struct Channel {
    /// The incarnation that was added last; usually the only one.
    newest: (Incarnation, Numbered),
    older: Vec<(Incarnation, Numbered)>,
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
/// A message is stored in its channel only if the gap between its number and the other numbers of the channel is at
/// most this large. Numbers in the gap take memory even if no message has them.
const MOST_APART: u32 = 4096;

impl Channel {
    fn of(&self, incarnation: Incarnation) -> Option<&Numbered> {
        let mut all = std::iter::once(&self.newest).chain(&self.older);
        all.find(|(it, _)| *it == incarnation).map(|(_, numbered)| numbered)
    }

    fn of_mut(&mut self, incarnation: Incarnation) -> Option<&mut Numbered> {
        let mut all = std::iter::once(&mut self.newest).chain(&mut self.older);
        all.find(|(it, _)| *it == incarnation).map(|(_, numbered)| numbered)
    }
}

impl Numbered {
    /// Returns the place of a number, adding it if necessary; `None` if the number is too far from the others.
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
        let index = self.index(number);
        if index >= self.messages.len() {
            if index - self.messages.len() > MOST_APART as usize {
                return None;
            }
            self.messages.resize(index + 1, MessageNo::NONE);
        }
        Some(&mut self.messages[index])
    }

    /// Returns the index of a number, which is beyond all messages if the number is smaller than the first.
    #[inline]
    fn index(&self, number: u32) -> usize {
        number.wrapping_sub(self.first) as usize
    }

    #[inline]
    fn get(&self, number: u32) -> Option<MessageNo> {
        self.messages.get(self.index(number)).copied().filter(|it| *it != MessageNo::NONE)
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
    #[inline]
    pub fn get(&self, no: MessageNo) -> &Message {
        &self.all[no.0 as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, no: MessageNo) -> &mut Message {
        &mut self.all[no.0 as usize]
    }

    /// Returns the message with this identity.
    pub fn find(&self, id: MessageId) -> Option<&Message> {
        let of_channel = self
            .channel(&id)
            .and_then(|it| self.channels.get(it))
            .and_then(|it| it.of(id.incarnation)?.get(id.number));
        of_channel.or_else(|| self.rest.get(&id).copied()).map(|no| self.get(no))
    }

    /// Returns whether the channel of a message may have messages of other incarnations with the same number.
    #[inline]
    pub fn has_other_incarnations(&self, id: MessageId) -> bool {
        let has_older = || {
            let channel = self.channel(&id).and_then(|it| self.channels.get(it));
            channel.is_none_or(|it| !it.older.is_empty())
        };
        !self.rest.is_empty() || self.has_several && has_older()
    }

    /// Returns the index of a message's channel, which may not exist yet; `None` if a process is not in the table.
    #[inline]
    fn channel(&self, id: &MessageId) -> Option<usize> {
        let (from, to) = (id.from.index(), id.to.index());
        (from < self.processes && to < self.processes)
            .then(|| self.table[from * self.processes + to] as usize)
    }

    /// Returns the number of a message, adding the message if it is new.
    #[inline]
    pub(crate) fn entry(&mut self, id: &MessageId) -> MessageNo {
        // The usual case: the message is known, or is the next one of its channel.
        if let Some(channel) = self.channel(id)
            && let Some(Channel { newest: (incarnation, numbered), .. }) = self.channels.get_mut(channel)
            && *incarnation == id.incarnation
        {
            let index = numbered.index(id.number);
            match numbered.messages.get(index) {
                Some(&MessageNo::NONE) => {}
                Some(&no) => return no,
                None if index == numbered.messages.len() && self.rest.is_empty() => {
                    numbered.messages.push(MessageNo(self.all.len() as u32));
                    return self.add(id);
                }
                None => {}
            }
        }
        self.entry_elsewhere(id)
    }

    /// Returns the number of a message that is being transmitted. Messages are usually transmitted in the order in
    /// which they were sent.
    #[inline]
    pub(crate) fn entry_transmitted(&mut self, id: &MessageId) -> MessageNo {
        let no = match self.all.get(self.after_transmitted) {
            Some(next) if next.id == *id => MessageNo(self.after_transmitted as u32),
            _ => self.entry(id),
        };
        self.after_transmitted = no.0 as usize + 1;
        no
    }

    #[inline(never)]
    fn entry_elsewhere(&mut self, id: &MessageId) -> MessageNo {
        let next = MessageNo(self.all.len() as u32);
        let place = match self.place(id) {
            Some(place) => place,
            None => self.rest.entry(*id).or_insert(MessageNo::NONE),
        };
        if *place != MessageNo::NONE {
            return *place;
        }
        *place = next;
        self.add(id)
    }

    #[inline]
    fn add(&mut self, id: &MessageId) -> MessageNo {
        let no = MessageNo(self.all.len() as u32);
        self.all.push(Message::new(*id));
        no
    }

    /// Returns the place of a message in its channel; `None` if it has to be stored outside the channels.
    fn place(&mut self, id: &MessageId) -> Option<&mut MessageNo> {
        let index = self.channel(id)?;
        if self.rest.contains_key(id) {
            return None;
        }
        if index >= self.channels.len() {
            self.table[id.from.index() * self.processes + id.to.index()] = self.channels.len() as u32;
            let newest = (id.incarnation, Numbered::default());
            self.channels.push(Channel { newest, older: Vec::new() });
        }
        let index = index.min(self.channels.len() - 1);
        let channel = &mut self.channels[index];
        if channel.of(id.incarnation).is_none() {
            let newest = (id.incarnation, Numbered::default());
            channel.older.push(std::mem::replace(&mut channel.newest, newest));
            self.has_several = true;
        }
        channel.of_mut(id.incarnation).and_then(|it| it.place(id.number))
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
                let found = messages.entry(&it);
                assert_eq!((found, messages.get(found).id), (MessageNo(no), it), "in round {round}");
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
    fn messages_may_be_transmitted_in_any_order() {
        let ids = [id(0, 1, 0, 0), id(0, 2, 0, 0), id(0, 1, 0, 1), id(0, 1, 1, 0)];
        let mut messages = Messages::new(3, 0);
        for it in &ids[..3] {
            messages.entry(it);
        }
        for no in [0, 1, 2, 2, 0, 3, 1, 3] {
            assert_eq!(messages.entry_transmitted(&ids[no as usize]), MessageNo(no));
        }
        assert_eq!(messages.iter().count(), ids.len());
    }

    #[test]
    fn a_message_keeps_what_is_stated_repeatedly_in_order() {
        let at = |fact| Point { segment: SegmentNo(0), fact };
        let mut message = Message::new(id(0, 1, 0, 0));
        assert!(message.sent().is_empty() && message.delivered().first().is_none());
        for fact in 0..3 {
            message.send(at(fact));
            message.deliver(at(10 + fact));
            assert_eq!(message.transmit(Position::new(0, fact), at(20 + fact)), fact > 0);
        }
        assert_eq!(message.sent().iter().map(|it| it.fact).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(message.delivered().iter().map(|it| it.fact).collect::<Vec<_>>(), [10, 11, 12]);
        assert_eq!((message.sent().len(), message.delivered().first()), (3, Some(at(10))));
        assert_eq!(message.stamp(), Some((Position::new(0, 0), at(20))));
        assert_eq!(message.restamped(), Some((Position::new(0, 2), at(22))));
    }

    #[test]
    fn a_message_is_small() {
        assert!(size_of::<Message>() <= 56, "{} bytes", size_of::<Message>());
    }
}
