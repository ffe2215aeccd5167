//! What is to happen when: a heap of small keys, and a slab that holds the rest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use faultline_core::Time;

/// Things that happen at a time; those of one time happen in the order in which they were pushed.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<(Time, u64, u32)>>,
    slab: Vec<Option<T>>,
    free: Vec<u32>,
    pushed: u64,
}

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
                let slot = u32::try_from(self.slab.len()).expect("fewer than 2^32 things are under way");
                self.slab.push(Some(thing));
                slot
            }
        };
        self.heap.push(Reverse((at, self.pushed, slot)));
        self.pushed += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        Some((at, self.slab[slot as usize].take().expect("a slot in the heap is filled")))
    }

    pub(crate) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|&Reverse((at, _, _))| at)
    }
}

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
