//! The upper limit on the size of a cluster.

/// Limits the size of the largest cluster to a multiple of the mean size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Balance {
    processes: usize,
    factor: Option<f64>,
}

impl Balance {
    /// Creates a limit. Without a factor, sizes are unlimited.
    pub(crate) fn new(processes: usize, factor: Option<f64>) -> Balance {
        Balance { processes, factor }
    }

    /// Returns the largest permitted size of a cluster, in processes, if there are `clusters` clusters.
    pub(crate) fn most(self, clusters: usize) -> usize {
        let Some(factor) = self.factor else { return self.processes };
        let most = factor * self.processes as f64 / clusters.max(1) as f64;
        // Compensate for rounding, which may have made a whole number slightly smaller.
        ((most * (1.0 + 1e-12)) as usize).min(self.processes)
    }

    /// Returns whether the limit permits at least one division into this many clusters. Seven processes, for
    /// example, cannot form three clusters of equal size.
    pub(crate) fn allows(self, clusters: usize) -> bool {
        self.most(clusters).saturating_mul(clusters) >= self.processes
    }

    /// Returns the smallest factor that permits a division into this many clusters.
    pub(crate) fn least(self, clusters: usize) -> f64 {
        self.processes.div_ceil(clusters) as f64 * clusters as f64 / self.processes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_exist_only_for_divisors() {
        let equal = Balance::new(12, Some(1.0));
        let possible: Vec<usize> = (1..=12).filter(|it| equal.allows(*it)).collect();
        assert_eq!(possible, [1, 2, 3, 4, 6, 12]);
        assert_eq!((equal.most(4), equal.most(1)), (3, 12));
        assert!((1..=12).all(|it| Balance::new(12, None).allows(it)));
    }

    #[test]
    fn the_smallest_factor_is_exact() {
        for (processes, clusters) in [(7, 3), (100, 7), (16_384, 31), (9, 9), (10, 9)] {
            let least = Balance::new(processes, None).least(clusters);
            assert!(Balance::new(processes, Some(least)).allows(clusters), "{processes} in {clusters}");
            let below = Balance::new(processes, Some((least - 1e-6).max(1.0)));
            assert_eq!(below.allows(clusters), least == 1.0, "{processes} in {clusters}");
        }
    }
}
