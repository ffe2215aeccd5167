//! The Gilmore-Lawler bound: a lower bound on the cost of all completions of a partial assignment.
//!
//! The cost added by pairs of unplaced facilities is estimated row by row: for each facility at each location, the
//! largest flows are paired with the shortest distances, which gives the smallest possible sum. Assigning the
//! facilities to locations is then a linear assignment problem, whose optimum is the bound (P. C. Gilmore, 1962; E. L.
//! Lawler, 1963).

use alloc::vec;
use alloc::vec::Vec;

use super::instance::Instance;

/// A partial assignment: facilities with a location, and those without one.
#[derive(Clone, Debug)]
pub(super) struct Partial<'a> {
    instance: &'a Instance,
    /// The locations of the first facilities, in the [order](Instance::order) in which facilities are placed.
    pub(super) locations: Vec<usize>,
    /// Locations without a facility, ascending.
    pub(super) free: Vec<usize>,
    /// Cost of the flows among the facilities that have a location.
    pub(super) cost: u64,
}

impl<'a> Partial<'a> {
    pub(super) fn new(instance: &'a Instance, locations: &[usize]) -> Partial<'a> {
        let free = (0..instance.n).collect();
        let empty = Partial { instance, locations: Vec::new(), free, cost: 0 };
        locations.iter().fold(empty, |partial, &location| partial.with(location))
    }

    /// Places the next facility at `location`, which is free.
    pub(super) fn with(&self, location: usize) -> Partial<'a> {
        let (instance, facility) = (self.instance, self.instance.order[self.locations.len()]);
        let mut next = self.clone();
        next.cost +=
            self.interaction(facility, location) + instance.pair(facility, facility, location, location);
        next.locations.push(location);
        next.free.retain(|&it| it != location);
        next
    }

    /// Returns the cost of the flows between `facility`, at `location`, and the facilities that have a
    /// location.
    fn interaction(&self, facility: usize, location: usize) -> u64 {
        let placed = self.instance.order.iter().zip(&self.locations);
        placed
            .map(|(&other, &at)| {
                self.instance.pair(facility, other, location, at)
                    + self.instance.pair(other, facility, at, location)
            })
            .sum()
    }

    /// Returns a lower bound on the cost of every completion.
    pub(super) fn bound(&self) -> u64 {
        let instance = self.instance;
        let facilities = &instance.order[self.locations.len()..];
        let m = facilities.len();
        let without = |line: &[u64], among: &[usize], me: usize| -> Vec<u64> {
            among.iter().filter(|&&it| it != me).map(|&it| line[it]).collect()
        };
        let mut flows: Vec<Vec<u64>> =
            facilities.iter().map(|&it| without(instance.flows_of(it), facilities, it)).collect();
        let mut distances: Vec<Vec<u64>> =
            self.free.iter().map(|&it| without(instance.distances_of(it), &self.free, it)).collect();
        flows.iter_mut().for_each(|it| it.sort_unstable());
        distances.iter_mut().for_each(|it| it.sort_unstable_by(|a, b| b.cmp(a)));
        let mut costs = Vec::with_capacity(m * m);
        for (flows, &facility) in flows.iter().zip(facilities) {
            for (distances, &location) in distances.iter().zip(&self.free) {
                let least: u64 = flows.iter().zip(distances).map(|(flow, distance)| flow * distance).sum();
                let own = instance.pair(facility, facility, location, location);
                costs.push(least + own + self.interaction(facility, location));
            }
        }
        self.cost + assignment(&costs, m)
    }
}

/// Returns the smallest sum of `n` of the `n * n` costs, one in each row and column, by shortest augmenting
/// paths with potentials (H. W. Kuhn, 1955, in the form of R. Jonker and A. Volgenant, 1987).
fn assignment(costs: &[u64], n: usize) -> u64 {
    const FAR: i64 = i64::MAX / 2;
    // Column 0 is the start of a path; rows and columns are numbered from 1.
    let (mut of_row, mut of_column) = (vec![0i64; n + 1], vec![0i64; n + 1]);
    let mut row_of = vec![0usize; n + 1];
    let mut before = vec![0usize; n + 1];
    for row in 1..=n {
        row_of[0] = row;
        let mut column = 0;
        let mut slack = vec![FAR; n + 1];
        let mut seen = vec![false; n + 1];
        while row_of[column] != 0 {
            seen[column] = true;
            let row = row_of[column];
            let (mut delta, mut next) = (FAR, 0);
            for other in 1..=n {
                if seen[other] {
                    continue;
                }
                let reduced = costs[(row - 1) * n + other - 1] as i64 - of_row[row] - of_column[other];
                if reduced < slack[other] {
                    slack[other] = reduced;
                    before[other] = column;
                }
                if slack[other] < delta {
                    (delta, next) = (slack[other], other);
                }
            }
            for other in 0..=n {
                if seen[other] {
                    of_row[row_of[other]] += delta;
                    of_column[other] -= delta;
                } else {
                    slack[other] -= delta;
                }
            }
            column = next;
        }
        while column != 0 {
            row_of[column] = row_of[before[column]];
            column = before[column];
        }
    }
    (1..=n).map(|column| costs[(row_of[column] - 1) * n + column - 1]).sum()
}

#[cfg(test)]
mod tests {
    use super::super::instance::NUG12;
    use super::*;
    use crate::programs::mix;

    /// Tries every assignment of `n` rows to columns, and returns the optimum that [`assignment`] must find.
    fn least(costs: &[u64], n: usize, row: usize, used: u32) -> u64 {
        if row == n {
            return 0;
        }
        let free = (0..n).filter(|column| used & (1 << column) == 0);
        free.map(|column| costs[row * n + column] + least(costs, n, row + 1, used | 1 << column))
            .min()
            .unwrap()
    }

    #[test]
    fn assignments_are_optimal() {
        for n in 1..=6 {
            for seed in 0..200 {
                let costs: Vec<u64> = (0..n * n).map(|it| mix(seed * 64 + it as u64) % 20).collect();
                assert_eq!(assignment(&costs, n), least(&costs, n, 0, 0), "{costs:?}");
            }
        }
    }

    #[test]
    fn a_bound_never_exceeds_a_completion() {
        let instance = Instance::parse(NUG12).unwrap();
        for seed in 0..300 {
            let mut locations: Vec<usize> = (0..12).collect();
            locations.sort_by_key(|&it| mix(seed * 16 + it as u64));
            let cost = Partial::new(&instance, &locations).cost;
            for depth in 0..=12 {
                let bound = Partial::new(&instance, &locations[..depth]).bound();
                assert!(bound <= cost, "{bound} > {cost} after {depth} of {locations:?}");
            }
            assert_eq!(Partial::new(&instance, &locations).bound(), cost, "nothing remains to be estimated");
        }
        // The published bound of this instance.
        assert_eq!(Partial::new(&instance, &[]).bound(), 493);
    }
}
