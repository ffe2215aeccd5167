//! Every message of a run, with its sends, stamps and deliveries.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use faultline_core::{MessageId, Position};

use super::Point;

/// The index of a message among all messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageNo(pub u32);

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its identity.
    pub id: MessageId,
    /// The sends by the application: exactly one in a correct run.
    pub sent: Points,
    /// The deliveries, in any state of the receiver.
    pub delivered: Points,
    /// The sender's position as first piggybacked, and the fact that states it.
    pub stamp: Option<(Position, Point)>,
    /// A later transmission with a different position.
    pub restamped: Option<(Position, Point)>,
}

/// A short list of points, most often of length one.
#[derive(Clone, Debug, Default)]
pub struct Points {
    first: Option<Point>,
    more: Vec<Point>,
}

impl Points {
    pub(super) fn push(&mut self, point: Point) {
        match self.first {
            None => self.first = Some(point),
            Some(_) => self.more.push(point),
        }
    }

    /// Returns the first point.
    pub fn first(&self) -> Option<Point> {
        self.first
    }

    /// Returns all points, in the order in which they were stated.
    pub fn iter(&self) -> impl Iterator<Item = &Point> + '_ {
        self.first.iter().chain(&self.more)
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// Every message of a run.
#[derive(Debug, Default)]
pub struct Messages {
    all: Vec<Message>,
    by_id: HashMap<MessageId, MessageNo, BuildHasherDefault<IdHasher>>,
}

impl Messages {
    /// Returns every message, in an order that depends only on the trace.
    pub fn iter(&self) -> std::slice::Iter<'_, Message> {
        self.all.iter()
    }

    /// Returns a message.
    pub fn get(&self, no: MessageNo) -> &Message {
        &self.all[no.0 as usize]
    }

    /// Returns the message with this identity.
    pub fn find(&self, id: MessageId) -> Option<&Message> {
        self.by_id.get(&id).map(|&no| self.get(no))
    }

    pub(super) fn entry(&mut self, id: MessageId) -> (MessageNo, &mut Message) {
        let next = MessageNo(self.all.len() as u32);
        let no = *self.by_id.entry(id).or_insert(next);
        if no == next {
            self.all.push(Message {
                id,
                sent: Points::default(),
                delivered: Points::default(),
                stamp: None,
                restamped: None,
            });
        }
        (no, &mut self.all[no.0 as usize])
    }
}

/// A fast hash for four small numbers. The map is never iterated, so its order does not matter.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(23) ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
