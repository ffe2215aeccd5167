//! The event queue: small keys in the order of their times, and a slab that holds the events.
//!
//! Time never decreases, so the queue does not need a general heap, which has an unpredictable comparison at
//! every step. Instead, it sorts keys by their digits, only as far as necessary and as late as possible (a
//! radix heap: Ahuja, Mehlhorn, Orlin and Tarjan, 1990). It sorts small buckets directly, as the ladder queue
//! does (Tang, Goh and Thng, 2005):
//!
//! ```text
//!   base   …0 3 7 2 0 0        nothing happens before this
//!   time   …0 3 9 4 1 8   →    bucket 9 of level 3: the first digit that differs from the base, and its place
//! ```
//!
//! The smallest keys are in the first bucket of the lowest level that has keys. When that bucket is due, it
//! is sorted if it is small. Otherwise, the base becomes the common prefix of its keys, and the keys move to
//! lower levels. Whatever the number of keys, a key therefore moves at most once per digit that distinguishes
//! times.

use std::{iter, mem};

use faultline_core::Time;

/// Events by time. Events at the same time happen in the order in which they were pushed.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// The next keys, in descending order: all keys up to `near_end`.
    near: Vec<Key>,
    near_end: Key,
    /// Lower bound of all times, and the reference for bucket numbers.
    base: u64,
    /// Buckets for the digits of each level.
    levels: Vec<[Vec<Key>; RADIX]>,
    /// For each level, a bit mask of the buckets that hold keys.
    filled: [u64; LEVELS],
    /// Bit mask of the levels that hold keys.
    filled_levels: u32,
    /// The last popped key.
    last: Key,
    slab: Vec<Option<T>>,
    free: Vec<u32>,
    pushed: u64,
}

/// Time, push number and slot, from the most significant bits down, so that a single comparison orders two keys.
type Key = u128;

const SLOT_BITS: u32 = 28;
const PUSH_BITS: u32 = 36;

/// Size of one digit of a time, in bits.
const DIGIT_BITS: u32 = 6;
const RADIX: usize = 1 << DIGIT_BITS;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// Largest number of keys that are sorted instead of distributed.
const FEW: usize = 16;
/// Number of near keys beyond which a push distributes them again.
const MANY: usize = 4 * FEW;
/// A bucket that held more keys than this releases its memory. Otherwise the buckets of a level would become
/// large one by one.
const KEPT: usize = 1024;

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue {
            near: Vec::new(),
            near_end: 0,
            base: 0,
            levels: (0..LEVELS).map(|_| [const { Vec::new() }; RADIX]).collect(),
            filled: [0; LEVELS],
            filled_levels: 0,
            last: 0,
            slab: Vec::new(),
            free: Vec::new(),
            pushed: 0,
        }
    }

    /// Schedules an event at `at`, which must not be earlier than the last popped event. The event is built in place:
    /// copying it right after writing it, with accesses of a different size, would stall current processors.
    #[inline]
    pub(crate) fn push(&mut self, at: Time, make: impl FnOnce() -> T) {
        assert!(at >= time(self.last), "an event must not be scheduled in the past");
        let slot = match self.free.pop() {
            Some(slot) => {
                let place = &mut self.slab[slot as usize];
                match place {
                    None => *place = Some(make()),
                    Some(_) => unreachable!("a free slot is empty"),
                }
                slot
            }
            None => {
                let slot = u32::try_from(self.slab.len()).ok().filter(|slot| slot >> SLOT_BITS == 0);
                let slot = slot.expect("too many events are pending");
                self.slab.extend(iter::once_with(|| Some(make())));
                slot
            }
        };
        assert!(self.pushed < 1 << PUSH_BITS, "too many events were pushed");
        let low = self.pushed << SLOT_BITS | u64::from(slot);
        self.pushed += 1;
        let key = u128::from(at.0) << 64 | u128::from(low);
        if key <= self.near_end {
            self.insert_near(key);
        } else {
            self.distribute(key);
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        if self.near.is_empty() {
            self.approach();
        }
        let key = self.near.pop()?;
        self.last = key;
        let slot = key as u32 & ((1 << SLOT_BITS) - 1);
        self.free.push(slot);
        Some((time(key), self.slab[slot as usize].take().expect("the slot of a key is filled")))
    }

    /// Returns the number of events.
    pub(crate) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Returns the memory of all events, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.slab.capacity() * size_of::<Option<T>>()) as u64
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        let first = || {
            let (level, digit) = self.first_bucket()?;
            self.levels[level][digit].iter().min()
        };
        self.near.last().or_else(first).map(|&key| time(key))
    }

    /// Returns the bucket of the smallest keys that are not near.
    fn first_bucket(&self) -> Option<(usize, usize)> {
        let level = (self.filled_levels != 0).then(|| self.filled_levels.trailing_zeros() as usize)?;
        Some((level, self.filled[level].trailing_zeros() as usize))
    }

    /// Puts a key that is not near into its bucket.
    #[inline]
    fn distribute(&mut self, key: Key) {
        let at = time(key).0;
        let level = ((at ^ self.base) | 1).ilog2() / DIGIT_BITS;
        let digit = (at >> (level * DIGIT_BITS)) as usize % RADIX;
        self.levels[level as usize][digit].push(key);
        self.filled[level as usize] |= 1 << digit;
        self.filled_levels |= 1 << level;
    }

    /// Fills `near`, which is empty, with the next keys.
    fn approach(&mut self) {
        while let Some((level, digit)) = self.first_bucket() {
            let mut keys = mem::take(&mut self.levels[level][digit]);
            self.filled[level] &= !(1 << digit);
            if self.filled[level] == 0 {
                self.filled_levels &= !(1 << level);
            }
            let below = (1 << (level as u32 * DIGIT_BITS)) - 1;
            self.base = time(keys[0]).0 & !below;
            let sorted = keys.len() <= FEW || below == 0;
            if sorted {
                self.near.append(&mut keys);
                self.near.sort_unstable_by(|a, b| b.cmp(a));
                // A single time may have many keys. Keys pushed later for this time come after them, not
                // among them.
                let last = u128::from(self.base | below) << 64 | u128::from(u64::MAX);
                self.near_end = if below == 0 { self.near[0] } else { last };
            } else {
                for key in keys.drain(..) {
                    self.distribute(key);
                }
            }
            if keys.capacity() <= KEPT {
                self.levels[level][digit] = keys;
            }
            if sorted {
                return;
            }
        }
    }

    fn insert_near(&mut self, key: Key) {
        let place = self.near.partition_point(|&it| it > key);
        self.near.insert(place, key);
        if self.near.len() > MANY {
            // No key remains near. The last popped key came from the same bucket as the near keys.
            self.base = time(self.last).0;
            self.near_end = self.last;
            let mut near = mem::take(&mut self.near);
            for key in near.drain(..) {
                self.distribute(key);
            }
            self.near = near;
        }
    }
}

const fn time(key: Key) -> Time {
    Time((key >> 64) as u64)
}

const _: () = assert!(SLOT_BITS + PUSH_BITS == u64::BITS);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn events_are_ordered_by_time_and_then_by_insertion() {
        let mut queue = Queue::new();
        for (at, thing) in [(5, 'd'), (1, 'a'), (5, 'e'), (3, 'b'), (3, 'c')] {
            queue.push(Time(at), || thing);
        }
        assert_eq!(queue.next_time(), Some(Time(1)));
        assert_eq!(queue.pop(), Some((Time(1), 'a')));
        queue.push(Time(3), || 'x');
        let rest: Vec<char> = std::iter::from_fn(|| queue.pop()).map(|(_, thing)| thing).collect();
        assert_eq!(rest, ['b', 'c', 'x', 'd', 'e']);
        assert_eq!(queue.slab.len(), 5, "slots are reused");
    }

    /// Compares the queue with a sorted map, for delays of the given magnitudes.
    fn orders_like_a_sorted_map(magnitude: impl Fn(u64) -> u64) {
        let (mut queue, mut map, mut random) = (Queue::new(), BTreeMap::new(), 1_u64);
        let (mut now, mut number) = (0, 0);
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((u128::from(random) * u128::from(bound)) >> 64) as u64
        };
        // Several times, the queue grows to thousands of events and shrinks to none.
        for round in 0..100_000 {
            let growing = round / 5_000 % 2 == 0;
            for _ in 0..below(if growing { 5 } else { 2 }) {
                let longest = 1 << magnitude(below(44));
                let at = now + below(longest);
                queue.push(Time(at), || number);
                map.insert((at, number), number);
                number += 1;
            }
            for _ in 0..below(if growing { 2 } else { 4 }) {
                assert_eq!(queue.next_time(), map.keys().next().map(|&(at, _)| Time(at)));
                let expected = map.pop_first().map(|((at, _), thing)| (Time(at), thing));
                now = expected.map_or(now, |(at, _)| at.0);
                assert_eq!(queue.pop(), expected);
            }
        }
    }

    #[test]
    fn it_orders_like_a_sorted_map() {
        orders_like_a_sorted_map(|random| random);
        for magnitude in [0, 3, 10, 20, 43] {
            orders_like_a_sorted_map(|_| magnitude);
        }
    }

    #[test]
    fn too_many_near_keys_are_distributed_again() {
        let mut queue = Queue::new();
        queue.push(Time(0), || 0);
        queue.push(Time(1000), || 2000);
        assert_eq!(queue.pop(), Some((Time(0), 0)));
        for at in (1..1000).rev() {
            queue.push(Time(at), || at);
        }
        assert!(queue.near.len() <= MANY);
        queue.push(Time(0), || 0);
        assert!((0..1000).all(|at| queue.pop() == Some((Time(at), at))));
        assert_eq!(queue.pop(), Some((Time(1000), 2000)));
        queue.push(Time::NEVER, || 1);
        assert_eq!(queue.pop(), Some((Time::NEVER, 1)));
    }

    #[test]
    fn many_events_at_one_time_are_cheap() {
        let mut queue = Queue::new();
        queue.push(Time(7), || 0);
        assert_eq!(queue.pop(), Some((Time(7), 0)));
        for thing in 0..100_000 {
            queue.push(Time(7), || thing);
        }
        assert!((0..100_000).all(|thing| queue.pop() == Some((Time(7), thing))));
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.next_time(), None);
    }

    #[test]
    #[should_panic(expected = "an event must not be scheduled in the past")]
    fn an_event_in_the_past_is_rejected() {
        let mut queue = Queue::new();
        queue.push(Time(7), || ());
        queue.pop();
        queue.push(Time(6), || ());
    }
}
