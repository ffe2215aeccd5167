//! How large a cluster may be.

/// The largest cluster holds at most so many times the mean of processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Balance {
    processes: usize,
    factor: Option<f64>,
}

impl Balance {
    /// No factor is no limit.
    pub(crate) fn new(processes: usize, factor: Option<f64>) -> Balance {
        Balance { processes, factor }
    }

    /// How many processes the largest of so many clusters may hold.
    pub(crate) fn most(self, clusters: usize) -> usize {
        let Some(factor) = self.factor else { return self.processes };
        let most = factor * self.processes as f64 / clusters.max(1) as f64;
        // A whole number that rounding has made a little smaller is still that number.
        ((most * (1.0 + 1e-12)) as usize).min(self.processes)
    }

    /// Whether there are divisions into so many clusters: seven processes are never three clusters of the same size.
    pub(crate) fn allows(self, clusters: usize) -> bool {
        self.most(clusters).saturating_mul(clusters) >= self.processes
    }

    /// The smallest factor with which there are divisions into so many clusters.
    pub(crate) fn least(self, clusters: usize) -> f64 {
        self.processes.div_ceil(clusters) as f64 * clusters as f64 / self.processes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_exist_for_divisors_only() {
        let equal = Balance::new(12, Some(1.0));
        let possible: Vec<usize> = (1..=12).filter(|it| equal.allows(*it)).collect();
        assert_eq!(possible, [1, 2, 3, 4, 6, 12]);
        assert_eq!((equal.most(4), equal.most(1)), (3, 12));
        assert!((1..=12).all(|it| Balance::new(12, None).allows(it)));
    }

    #[test]
    fn the_smallest_factor_is_enough_and_nothing_below_it() {
        for (processes, clusters) in [(7, 3), (100, 7), (16_384, 31), (9, 9), (10, 9)] {
            let least = Balance::new(processes, None).least(clusters);
            assert!(Balance::new(processes, Some(least)).allows(clusters), "{processes} in {clusters}");
            let below = Balance::new(processes, Some((least - 1e-6).max(1.0)));
            assert_eq!(below.allows(clusters), least == 1.0, "{processes} in {clusters}");
        }
    }
}
