//! Shapes of the patterns: receivers and lengths of each rank's messages in each round of an iteration.

use alloc::vec::Vec;

use super::Pattern;

/// Order of the sends and receives of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundOrder {
    /// Every rank sends, then receives.
    SendsFirst,
    /// Every rank receives, then sends: a wavefront passes over the ranks in ascending order.
    Up,
    /// Same as `Up`, in descending order.
    Down,
}

/// Actions of one rank in one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) order: RoundOrder,
    /// Receiver and number of bytes of each send.
    pub(super) sends: Vec<(u32, u32)>,
    pub(super) sources: Vec<u32>,
}

/// Number of planes of LU's grid, which is the number of simultaneous wavefronts.
const PLANES: u32 = 4;
/// Grids of MG, in the order in which an iteration visits them; 0 is the finest. The faces of each grid are a quarter
/// of the size of the next finer grid's.
const GRIDS: [u32; 5] = [0, 1, 2, 1, 0];

/// A pattern on `ranks` ranks (the square of a power of two), with messages of at most `bytes` bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) pattern: Pattern,
    pub(super) ranks: u32,
    pub(super) bytes: u32,
}

impl Shape {
    /// Returns the number of rounds per iteration.
    pub(super) fn rounds(self) -> u32 {
        match self.pattern {
            Pattern::Bt | Pattern::Sp => 7,
            Pattern::Cg => self.side().trailing_zeros() + 1,
            Pattern::Ft => 1,
            Pattern::Lu => 2 * PLANES,
            Pattern::Mg => GRIDS.len() as u32,
        }
    }

    /// Returns the actions of `rank` in a round.
    pub(super) fn round(self, rank: u32, round: u32) -> Round {
        let side = self.side();
        let (row, column) = (rank / side, rank % side);
        let at = |row: u32, column: u32| row % side * side + column % side;
        match self.pattern {
            Pattern::Bt | Pattern::Sp => {
                // The two neighbours in each direction.
                let ahead = [at(row, column + 1), at(row + 1, column), at(row + 1, column + side - 1)];
                let behind =
                    [at(row, column + side - 1), at(row + side - 1, column), at(row + side - 1, column + 1)];
                if round == 0 {
                    let all = [ahead, behind].concat();
                    return self.both_ways(&all, self.bytes);
                }
                let sweep = if self.pattern == Pattern::Bt { self.bytes } else { self.bytes / 2 };
                let direction = (round - 1) as usize / 2;
                let (to, from) = match round % 2 {
                    1 => (ahead[direction], behind[direction]),
                    _ => (behind[direction], ahead[direction]),
                };
                Round { order: RoundOrder::SendsFirst, sends: [(to, sweep)].into(), sources: [from].into() }
            }
            Pattern::Cg => {
                let exchanges = side.trailing_zeros();
                let partner =
                    if round < exchanges { at(row, column ^ (1 << round)) } else { at(column, row) };
                let others = if partner == rank { Vec::new() } else { [partner].into() };
                self.both_ways(&others, self.bytes)
            }
            Pattern::Ft => {
                // Each rank starts with a different peer, so that the messages to one rank do not all arrive at once.
                let others: Vec<u32> = (1..self.ranks).map(|it| (rank + it) % self.ranks).collect();
                self.both_ways(&others, self.bytes)
            }
            Pattern::Lu => {
                let bytes = self.bytes / PLANES;
                let mut upper = Vec::new();
                let mut lower = Vec::new();
                if row > 0 {
                    upper.push(at(row - 1, column));
                }
                if column > 0 {
                    upper.push(at(row, column - 1));
                }
                if row + 1 < side {
                    lower.push(at(row + 1, column));
                }
                if column + 1 < side {
                    lower.push(at(row, column + 1));
                }
                let (order, sources, to) = if round < PLANES {
                    (RoundOrder::Up, upper, lower)
                } else {
                    (RoundOrder::Down, lower, upper)
                };
                Round { order, sends: to.into_iter().map(|it| (it, bytes)).collect(), sources }
            }
            Pattern::Mg => self.faces(rank, GRIDS[round as usize]),
        }
    }

    /// Returns a round in which the rank exchanges messages with each of `others`.
    fn both_ways(self, others: &[u32], bytes: u32) -> Round {
        let sends = others.iter().map(|&it| (it, bytes)).collect();
        Round { order: RoundOrder::SendsFirst, sends, sources: others.into() }
    }

    /// Returns a round of MG. Its torus has two equal sides and a third that may be shorter. Faces that are sent along
    /// the third side are half as large.
    fn faces(self, rank: u32, grid: u32) -> Round {
        let long = 1 << self.ranks.trailing_zeros().div_ceil(3);
        let high = self.ranks / (long * long);
        let (x, y, z) = (rank % long, rank / long % long, rank / (long * long));
        let at = |x: u32, y: u32, z: u32| (z % high * long + y % long) * long + x % long;
        let wide = self.bytes >> (2 * grid);
        let faces = [
            (at(x + 1, y, z), wide),
            (at(x + long - 1, y, z), wide),
            (at(x, y + 1, z), wide),
            (at(x, y + long - 1, z), wide),
            (at(x, y, z + 1), wide / 2),
            (at(x, y, z + high - 1), wide / 2),
        ];
        let sends: Vec<(u32, u32)> = faces.into_iter().filter(|it| it.0 != rank).collect();
        let sources = sends.iter().map(|it| it.0).collect();
        Round { order: RoundOrder::SendsFirst, sends, sources }
    }

    fn side(self) -> u32 {
        self.ranks.isqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    const ALL: [Pattern; 6] = [Pattern::Bt, Pattern::Cg, Pattern::Ft, Pattern::Lu, Pattern::Mg, Pattern::Sp];

    #[test]
    fn every_awaited_message_is_sent_in_the_same_round() {
        for (pattern, ranks) in ALL.into_iter().flat_map(|it| [16, 64, 256].map(|ranks| (it, ranks))) {
            let shape = Shape { pattern, ranks, bytes: 512 };
            for round in 0..shape.rounds() {
                let all: Vec<Round> = (0..ranks).map(|rank| shape.round(rank, round)).collect();
                let mut sent = BTreeSet::new();
                for (rank, it) in (0..ranks).zip(&all) {
                    for &(to, bytes) in &it.sends {
                        assert!(sent.insert((rank, to)), "{pattern:?} {ranks}: {rank} sends to {to} twice");
                        assert!(to != rank && bytes >= 12, "{pattern:?}");
                    }
                }
                let awaited: BTreeSet<(u32, u32)> = (0..ranks)
                    .zip(&all)
                    .flat_map(|(rank, it)| it.sources.iter().map(move |&from| (from, rank)))
                    .collect();
                assert_eq!(awaited, sent, "{pattern:?} on {ranks}, round {round}");
            }
        }
    }
}
