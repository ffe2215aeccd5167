//! One small number per process, stored sparsely while few processes have one, and densely once many do.
//!
//! In most programs, a process of a large cluster sends to only a few others; in some, it sends to all of them. A
//! table of all pairs of senders and receivers would not fit in memory, and a sorted list alone would require a
//! search for every message.

use alloc::vec::Vec;

use crate::id::ProcessId;

/// A number per process, 0 by default.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Sorted by process.
    sparse: Vec<(ProcessId, u32)>,
    /// The numbers of consecutive processes, starting with process `first`.
    dense: Vec<u32>,
    first: u32,
}

impl Counters {
    /// Below this many entries, a search is as fast as indexing.
    const FEW: usize = 16;
    /// Largest permitted ratio of a dense table's length to the total number of entries, including outliers.
    const SPARSENESS: usize = 4;

    /// Returns a mutable reference to the number of `process`.
    #[inline]
    pub fn get_mut(&mut self, process: ProcessId) -> &mut u32 {
        let place = process.0.wrapping_sub(self.first) as usize;
        if place < self.dense.len() {
            return &mut self.dense[place];
        }
        self.get_sparse(process)
    }

    fn get_sparse(&mut self, process: ProcessId) -> &mut u32 {
        match self.sparse.binary_search_by_key(&process, |&(it, _)| it) {
            Ok(place) => &mut self.sparse[place].1,
            Err(place) => {
                self.sparse.insert(place, (process, 0));
                if self.sparse.len() >= Self::FEW && self.sparse.len().is_power_of_two() {
                    self.maybe_densify();
                    return self.get_mut(process);
                }
                &mut self.sparse[place].1
            }
        }
    }

    /// Iterates over all numbers other than 0, in ascending order of their processes.
    pub fn iter(&self) -> impl Iterator<Item = (ProcessId, u32)> + '_ {
        let dense =
            self.dense.iter().enumerate().map(|(place, &it)| (ProcessId(self.first + place as u32), it));
        let below = self.sparse.partition_point(|&(process, _)| process.0 < self.first);
        let (below, above) = self.sparse.split_at(below);
        below.iter().copied().chain(dense).chain(above.iter().copied()).filter(|&(_, number)| number > 0)
    }

    /// Sets all numbers to 0.
    pub fn clear(&mut self) {
        self.sparse.clear();
        self.dense.clear();
    }

    /// Switches to a dense table of all entries or, if that table would waste too much space, of the entries in the
    /// middle; the outliers then stay in the list. Keeps the list if both tables would waste too much space.
    fn maybe_densify(&mut self) {
        let mut all: Vec<(ProcessId, u32)> = self.iter().collect();
        all.extend(self.sparse.iter().filter(|&&(_, number)| number == 0));
        all.sort_unstable();
        let most = all.len() * Self::SPARSENESS;
        let range = |outside: usize| {
            let (first, last) = (all[outside].0.0, all[all.len() - 1 - outside].0.0);
            (first, (last - first) as usize + 1)
        };
        let fits = [0, all.len() / 8].map(range).into_iter().find(|&(_, range)| range <= most);
        if let Some((first, range)) = fits {
            self.first = first;
            self.dense.clear();
            self.dense.resize(range, 0);
            self.sparse.clear();
            for (process, number) in all {
                match self.dense.get_mut(process.0.wrapping_sub(first) as usize) {
                    Some(place) => *place = number,
                    None => self.sparse.push((process, number)),
                }
            }
        }
    }
}

impl FromIterator<(ProcessId, u32)> for Counters {
    fn from_iter<I: IntoIterator<Item = (ProcessId, u32)>>(numbers: I) -> Counters {
        let mut counters = Counters::default();
        for (process, number) in numbers {
            *counters.get_mut(process) = number;
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn counters_match_a_map_whether_sparse_or_dense() {
        let (mut counters, mut map) = (Counters::default(), BTreeMap::new());
        let mut random = 1_u32;
        for round in 0..20_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // A few processes far apart, then many adjacent ones, then some on either side of those.
            let process = ProcessId(match round {
                0..100 => (random >> 16) * 1000 % 10_000,
                100..19_000 => 5_000 + (random >> 16) % 200,
                _ => (random >> 16) % 12_000,
            });
            *counters.get_mut(process) += 1;
            *map.entry(process).or_insert(0) += 1;
        }
        let counted: Vec<_> = counters.iter().collect();
        assert_eq!(counted, map.into_iter().collect::<Vec<_>>());
        assert!(!counters.dense.is_empty());
        let copy: Counters = counted.iter().copied().collect();
        assert_eq!(copy.iter().collect::<Vec<_>>(), counted);
        counters.clear();
        assert_eq!(counters.iter().count(), 0);
    }
}
