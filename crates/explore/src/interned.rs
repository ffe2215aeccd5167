//! Tables that several threads read and extend at the same time. Reading takes no lock.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::key::{Key, Unhashed};

/// The size of the first segment of a table; each segment is twice as large as the one before it.
const FIRST: usize = 1024;
/// Enough segments for all 32-bit numbers.
const SEGMENTS: usize = 23;

/// Values with their numbers. Each key has one number, which never changes.
pub(crate) struct Interned<T> {
    numbers: Mutex<HashMap<Key, u32, Unhashed>>,
    segments: [OnceLock<Box<[OnceLock<T>]>>; SEGMENTS],
}

impl<T> Interned<T> {
    pub(crate) fn new() -> Interned<T> {
        Interned { numbers: Mutex::default(), segments: [const { OnceLock::new() }; SEGMENTS] }
    }

    /// Returns the number of the value with this key. If there is none, adds the value that `make` creates.
    pub(crate) fn intern(&self, key: Key, make: impl FnOnce() -> T) -> u32 {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.len();
        *numbers.entry(key).or_insert_with(|| {
            let (segment, place) = place(next);
            let values = self.segments[segment]
                .get_or_init(|| std::iter::repeat_with(OnceLock::new).take(FIRST << segment).collect());
            assert!(values[place].set(make()).is_ok(), "every number is assigned once");
            u32::try_from(next).expect("there are fewer than 2^32 values")
        })
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn get(&self, number: u32) -> &T {
        let (segment, place) = place(number as usize);
        let value = self.segments[segment].get().and_then(|it| it[place].get());
        value.expect("every number that was returned has a value")
    }
}

/// Returns the segment of a number, and the number's place in it.
fn place(number: usize) -> (usize, usize) {
    let segment = (number / FIRST + 1).ilog2() as usize;
    (segment, number - FIRST * ((1 << segment) - 1))
}

/// Values by event. Links are only ever appended.
pub(crate) struct Chains<V>([Link<V>; 4]);

type Link<V> = OnceLock<Box<Entry<V>>>;

struct Entry<V> {
    event: u64,
    value: V,
    next: Link<V>,
}

impl<V> Chains<V> {
    pub(crate) const fn new() -> Chains<V> {
        Chains([const { OnceLock::new() }; 4])
    }

    pub(crate) fn get(&self, event: u64) -> Option<&V> {
        let mut link = &self.0[event as usize % 4];
        while let Some(entry) = link.get() {
            if entry.event == event {
                return Some(&entry.value);
            }
            link = &entry.next;
        }
        None
    }

    /// Adds a value, unless another thread has already added one. Returns the value in the table.
    pub(crate) fn add(&self, event: u64, value: V) -> &V {
        let mut link = &self.0[event as usize % 4];
        let mut new = Box::new(Entry { event, value, next: OnceLock::new() });
        loop {
            let Err(refused) = link.set(new) else { break };
            new = refused;
            let entry = link.get().expect("a link that refuses an entry has one");
            if entry.event == event {
                return &entry.value;
            }
            link = &entry.next;
        }
        &link.get().expect("the entry was added").value
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_agree_on_the_number_of_each_value() {
        let table = Interned::<Key>::new();
        let numbers = |first: Key| -> Vec<u32> {
            (0..5000).map(|it| (it * 7 + first) % 5000).map(|key| table.intern(key, || key)).collect()
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|it| scope.spawn(move || (it, numbers(it)))).collect();
            for (first, numbers) in threads.into_iter().map(|it| it.join().unwrap()) {
                for (it, number) in (0..).zip(numbers) {
                    assert_eq!(*table.get(number), (it * 7 + first) % 5000);
                }
            }
        });
        let mut numbers = numbers(0);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..5000));
    }

    #[test]
    fn an_event_has_one_value() {
        let chains = Chains::new();
        thread::scope(|scope| {
            for thread in 0..3 {
                let chains = &chains;
                scope.spawn(move || {
                    (0..100).for_each(|event| assert!(chains.add(event, (event, thread)).0 == event))
                });
            }
        });
        assert!((0..100).all(|event| chains.get(event).is_some_and(|it| it.0 == event)));
        assert_eq!(chains.get(100), None);
    }
}
