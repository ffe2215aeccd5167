//! What is to happen when: a heap of small keys, and a slab that holds the rest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use faultline_core::Time;

/// Things that happen at a time; those of one time happen in the order in which they were pushed.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<Key>>,
    slab: Vec<Option<T>>,
    free: Vec<u32>,
    pushed: u64,
}

/// Time, number of the push, and slot, from the most significant bits down: one comparison orders two keys.
type Key = u128;

const SLOT_BITS: u32 = 28;
const PUSH_BITS: u32 = 36;

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue { heap: BinaryHeap::new(), slab: Vec::new(), free: Vec::new(), pushed: 0 }
    }

    pub(crate) fn push(&mut self, at: Time, thing: T) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slab[slot as usize] = Some(thing);
                slot
            }
            None => {
                let slot = self.slab.len() as u32;
                assert!(slot < 1 << SLOT_BITS, "too many things are under way");
                self.slab.push(Some(thing));
                slot
            }
        };
        assert!(self.pushed < 1 << PUSH_BITS, "too many things have happened");
        let low = self.pushed << SLOT_BITS | u64::from(slot);
        self.heap.push(Reverse(u128::from(at.0) << 64 | u128::from(low)));
        self.pushed += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse(key) = self.heap.pop()?;
        let slot = key as u32 & ((1 << SLOT_BITS) - 1);
        self.free.push(slot);
        Some((time(key), self.slab[slot as usize].take().expect("a slot in the heap is filled")))
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|&Reverse(key)| time(key))
    }
}

const fn time(key: Key) -> Time {
    Time((key >> 64) as u64)
}

const _: () = assert!(SLOT_BITS + PUSH_BITS == u64::BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_in_the_order_of_time_and_then_of_pushing() {
        let mut queue = Queue::new();
        for (at, thing) in [(5, 'd'), (1, 'a'), (5, 'e'), (3, 'b'), (3, 'c')] {
            queue.push(Time(at), thing);
        }
        assert_eq!(queue.next_time(), Some(Time(1)));
        assert_eq!(queue.pop(), Some((Time(1), 'a')));
        queue.push(Time(3), 'x');
        let rest: Vec<char> = std::iter::from_fn(|| queue.pop()).map(|(_, thing)| thing).collect();
        assert_eq!(rest, ['b', 'c', 'x', 'd', 'e']);
        assert_eq!(queue.slab.len(), 5, "slots are used again");
    }
}
