//! Memory use of values that share parts.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Adds up the memory that values use. Shared parts are counted only once.
///
/// The sum depends only on the values, and is the same on every 64-bit machine. It excludes the allocator's
/// overhead.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    /// Addresses of the shared values that have been counted.
    counted: BTreeSet<usize>,
    bytes: u64,
}

impl Footprint {
    /// Size of the two counters of an [`Arc`], in bytes.
    const COUNTERS: usize = 2 * size_of::<usize>();

    /// Returns the sum, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a shared value, without the values to which it refers. Returns `false` if it has been counted
    /// before.
    pub fn add_arc<T: ?Sized>(&mut self, shared: &Arc<T>) -> bool {
        let is_new = self.counted.insert(Arc::as_ptr(shared).cast::<()>().addr());
        if is_new {
            self.bytes += (Footprint::COUNTERS + size_of_val(&**shared)) as u64;
        }
        is_new
    }

    /// Adds the entries of a map, without the values to which they refer.
    pub fn add_map<K, V>(&mut self, entries: &BTreeMap<K, V>) {
        self.bytes += (entries.len() * size_of::<(K, V)>()) as u64;
    }

    /// Adds the items of a vector, including spare capacity, without the values to which they refer.
    pub fn add_vec<T>(&mut self, items: &Vec<T>) {
        self.bytes += (items.capacity() * size_of::<T>()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn shared_values_count_once() {
        let mut footprint = Footprint::default();
        let shared: Arc<[u64]> = Arc::from([1, 2, 3]);
        assert!(footprint.add_arc(&shared));
        assert!(!footprint.add_arc(&shared.clone()));
        assert_eq!(footprint.bytes(), 16 + 24);
        assert!(footprint.add_arc(&Arc::<[u64]>::from([1, 2, 3])), "equal, but not shared");
        footprint.add_vec(&vec![0_u32; 10]);
        footprint.add_map(&BTreeMap::from([(1_u32, 1_u32)]));
        assert_eq!(footprint.bytes(), 2 * (16 + 24) + 40 + 8);
    }
}
