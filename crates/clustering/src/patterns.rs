//! Communication patterns of the six NAS kernels that the HydEE paper divides into clusters (table I), in closed form.
//!
//! Only ratios matter here: which processes communicate, and how much relative to others. The shapes follow
//! from the decompositions of the kernels. A real run sends more bytes, but by a constant factor, so the
//! shares are the same.

use crate::graph::CommunicationGraph;

/// One of the NAS kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Block tridiagonal solver: a torus with neighbours in rows, columns and one diagonal.
    Bt,
    /// Conjugate gradient: exchanges within rows at power-of-two distances, and an exchange with the transposed
    /// position.
    Cg,
    /// Fourier transform: all processes exchange data with each other.
    Ft,
    /// Lower-upper solver: a mesh.
    Lu,
    /// Multigrid: a three-dimensional torus, whose third dimension has smaller faces and may be shorter.
    Mg,
    /// Scalar pentadiagonal solver: the same torus as BT.
    Sp,
}

/// A row of the paper's table I: a division of 256 processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// The number of clusters.
    pub clusters: usize,
    /// The mean percentage of processes that roll back.
    pub rolled_back_percent: f64,
    /// The percentage of bytes that are sent between clusters and therefore logged.
    pub logged_percent: f64,
}

impl Pattern {
    /// All patterns, in the order of the table.
    pub const ALL: [Pattern; 6] =
        [Pattern::Bt, Pattern::Cg, Pattern::Ft, Pattern::Lu, Pattern::Mg, Pattern::Sp];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Bt => "BT",
            Pattern::Cg => "CG",
            Pattern::Ft => "FT",
            Pattern::Lu => "LU",
            Pattern::Mg => "MG",
            Pattern::Sp => "SP",
        }
    }

    /// Returns the row of the paper's table I.
    pub fn published(self) -> Published {
        let (clusters, rolled_back_percent, logged_percent) = match self {
            Pattern::Bt => (5, 21.78, 18.09),
            Pattern::Cg => (16, 6.25, 18.98),
            Pattern::Ft => (2, 50.0, 50.19),
            Pattern::Lu => (8, 12.5, 13.26),
            Pattern::Mg => (4, 25.0, 19.63),
            Pattern::Sp => (6, 18.56, 20.04),
        };
        Published { clusters, rolled_back_percent, logged_percent }
    }

    /// Returns the communication graph of the pattern on this many processes.
    ///
    /// # Panics
    ///
    /// Panics unless `processes` is a power of four, and at least 16.
    pub fn graph(self, processes: usize) -> CommunicationGraph {
        let side = processes.isqrt();
        assert!(
            processes >= 16 && side * side == processes && side.is_power_of_two(),
            "{processes} processes; use a power of four, at least 16"
        );
        let mut graph = CommunicationGraph::new(
            (0..processes).map(|it| format!("{}-{it}", self.name().to_lowercase())).collect(),
        );
        for it in 0..processes {
            let (row, column) = (it / side, it % side);
            let at = |row: usize, column: usize| row % side * side + column % side;
            match self {
                Pattern::Bt | Pattern::Sp => {
                    graph.add(it, at(row, column + 1), 1, 1);
                    graph.add(it, at(row + 1, column), 1, 1);
                    graph.add(it, at(row + 1, column + side - 1), 1, 1);
                }
                Pattern::Cg => {
                    let exchanges = side.trailing_zeros();
                    (0..exchanges).for_each(|power| graph.add(it, at(row, column ^ (1 << power)), 1, 1));
                    graph.add(it, at(column, row), 1, 1);
                }
                Pattern::Ft => (0..processes).for_each(|to| graph.add(it, to, 1, 1)),
                Pattern::Lu => {
                    if column + 1 < side {
                        graph.add(it, at(row, column + 1), 1, 1);
                    }
                    if row + 1 < side {
                        graph.add(it, at(row + 1, column), 1, 1);
                    }
                }
                Pattern::Mg => mg(&mut graph, it),
            }
        }
        graph
    }
}

/// Adds the torus of MG. Two of its sides have equal length; the third side has the same length, or a half or
/// a quarter of it. Faces along the third side have half the weight of the others.
fn mg(graph: &mut CommunicationGraph, it: usize) {
    let bits = graph.len().trailing_zeros();
    let long = 1 << bits.div_ceil(3);
    let high = graph.len() / (long * long);
    let (x, y, z) = (it % long, it / long % long, it / (long * long));
    let at = |x: usize, y: usize, z: usize| (z % high * long + y % long) * long + x % long;
    graph.add(it, at(x + 1, y, z), 2, 1);
    graph.add(it, at(x, y + 1, z), 2, 1);
    graph.add(it, at(x, y, z + 1), 1, 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Constraints, Division, find};

    /// Returns the cluster of a process in the paper's division of a pattern.
    fn paper(pattern: Pattern, it: usize) -> u32 {
        let (row, column) = (it / 16, it % 16);
        let quadrant = (row / 8 * 2 + column / 8) as u32;
        match pattern {
            Pattern::Bt => {
                if quadrant == 0 && row >= 4 {
                    4
                } else {
                    quadrant
                }
            }
            Pattern::Sp => match quadrant {
                0 if row >= 4 => 4,
                3 if row >= 12 => 5,
                other => other,
            },
            Pattern::Cg => row as u32,
            Pattern::Ft => (it / 128) as u32,
            Pattern::Lu => (row / 4 * 2 + column / 8) as u32,
            Pattern::Mg => (it / 64) as u32,
        }
    }

    #[test]
    fn the_graphs_reproduce_the_shares_of_the_paper() {
        for pattern in Pattern::ALL {
            let published = pattern.published();
            let graph = pattern.graph(256);
            let cluster_of: Vec<u32> = (0..256).map(|it| paper(pattern, it)).collect();
            let here = Division::new(&graph, &cluster_of);
            assert_eq!(here.clusters, published.clusters, "{pattern:?}");
            assert!(
                (here.rolled_back_percent - published.rolled_back_percent).abs() < 0.4,
                "{pattern:?}: {}",
                here.rolled_back_percent
            );
            assert!(
                (here.logged_percent - published.logged_percent).abs() < 0.5,
                "{pattern:?}: {}",
                here.logged_percent
            );
        }
    }

    #[test]
    fn the_papers_divisions_lie_on_or_behind_the_front() {
        for pattern in Pattern::ALL {
            let published = pattern.published();
            let found = find(&pattern.graph(256), Constraints::default());
            let as_good = found.front.iter().any(|it| {
                it.clusters > 1
                    && it.rolled_back_percent <= published.rolled_back_percent + 0.4
                    && it.logged_percent <= published.logged_percent + 0.5
            });
            assert!(
                as_good,
                "{pattern:?}: {:?}",
                found.front.iter().map(|it| (it.rolled_back_percent, it.logged_percent)).collect::<Vec<_>>()
            );
            let chosen = &found.front[found.chosen];
            let cost = published.rolled_back_percent + published.logged_percent;
            assert!(
                chosen.cost() <= cost + 0.5,
                "{pattern:?}: {} clusters, {}",
                chosen.clusters,
                chosen.cost()
            );
        }
    }
}
