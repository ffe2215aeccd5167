//! Counts the placements of n queens on a board of n x n squares such that no queen attacks another.
//!
//! A task places the queen of one row, and spawns a task for every free square of the next. At the configured
//! depth, a task counts the remaining placements without spawning. All tasks contribute to one sum, for which no task
//! waits.

use alloc::vec::Vec;

use faultline_core::{Chunk, Span};

use super::{Invalid, at_most_tasks, in_range, mix};
use crate::program::{Call, Data, Frame, Op, Program, Use, chunk};

/// The only kind of task. Its arguments are the row, the attacked columns and diagonals in both directions, as bits
/// relative to the row, and a hash of the placement.
const PLACE: u16 = 0;

/// The maximum number of rows of the board; larger boards take hours.
const MOST: u32 = 18;

/// Parameters of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queens {
    /// The number of rows of the board, and of columns.
    pub n: u32,
    /// The number of rows whose queens are placed by separate tasks. The tasks at this depth place the queens of all
    /// other rows.
    pub depth: u32,
    /// The time that a task at this depth takes. Other tasks take no time.
    pub task_time: Span,
}

impl Default for Queens {
    /// A 10 × 10 board, which results in 447 tasks.
    fn default() -> Self {
        Queens { n: 10, depth: 3, task_time: Span::from_millis(20) }
    }
}

impl Queens {
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        in_range("n", self.n.into(), 1, MOST.into())?;
        in_range("depth", self.depth.into(), 0, self.n.into())?;
        let mut level = 1u64;
        let mut tasks = level;
        for row in 0..self.depth {
            level = level.saturating_mul((self.n - row).into());
            tasks = tasks.saturating_add(level);
        }
        at_most_tasks(tasks, "lower `depth`")
    }

    /// Computes the result with a list of columns, row by row.
    pub(super) fn reference(&self) -> Chunk {
        let mut total = [0; 2];
        self.place(&mut Vec::new(), &mut total);
        chunk(&total)
    }

    fn place(&self, columns: &mut Vec<u32>, total: &mut [u64; 2]) {
        let row = columns.len() as u32;
        let stands = |column: &u32| {
            (0..).zip(&*columns).all(|(above, it)| it != column && it.abs_diff(*column) != row - above)
        };
        let free: Vec<u32> = (0..self.n).filter(stands).collect();
        if row == self.depth || free.is_empty() || row == self.n {
            let hash = columns.iter().fold(0, |hash, &column| after(hash, column));
            let count = self.count(columns);
            *total = [total[0] + count, total[1].wrapping_add(trail(hash, count))];
            return;
        }
        for column in free {
            columns.push(column);
            self.place(columns, total);
            columns.pop();
        }
    }

    /// Counts the placements that begin with these columns.
    fn count(&self, columns: &mut Vec<u32>) -> u64 {
        let row = columns.len() as u32;
        if row == self.n {
            return 1;
        }
        let mut count = 0;
        for column in 0..self.n {
            let stands =
                (0..).zip(&*columns).all(|(above, &it)| it != column && it.abs_diff(column) != row - above);
            if stands {
                columns.push(column);
                count += self.count(columns);
                columns.pop();
            }
        }
        count
    }
}

impl Program for Queens {
    fn main(&self, frame: &mut Frame) -> Data {
        let sum = frame.data();
        frame.spawn(PLACE, &[0, 0, 0, 0, 0], &[Use::Gather(sum, Op::Sum)]);
        sum
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        let [row, columns, rising, falling, hash] = *call.args else { unreachable!("as it was spawned") };
        let free = !(columns | rising | falling) & self.board();
        if row >= self.depth.into() || free == 0 {
            let count = self.solutions(columns, rising, falling);
            frame.put(0, chunk(&[count, trail(hash, count)]));
            return;
        }
        let sum = frame.own(0);
        for column in (0..self.n).filter(|it| free & (1 << it) != 0) {
            let square = 1 << column;
            let attacked = [columns | square, (rising | square) << 1, (falling | square) >> 1];
            let [columns, rising, falling] = attacked;
            let args = [row + 1, columns, rising, falling, after(hash, column)];
            frame.spawn(PLACE, &args, &[Use::Gather(sum, Op::Sum)]);
        }
    }

    fn spawns(&self, call: &Call) -> bool {
        call.args[0] < self.depth.into()
    }

    fn cost(&self, call: &Call) -> Span {
        if call.args[0] < self.depth.into() { Span::ZERO } else { self.task_time }
    }
}

impl Queens {
    /// Returns a mask with one bit for each column.
    fn board(&self) -> u64 {
        (1 << self.n) - 1
    }

    /// Counts the ways to place the queens of the remaining rows.
    fn solutions(&self, columns: u64, rising: u64, falling: u64) -> u64 {
        if columns == self.board() {
            return 1;
        }
        let mut free = !(columns | rising | falling) & self.board();
        let mut count = 0;
        while free != 0 {
            let square = free & free.wrapping_neg();
            free ^= square;
            count += self.solutions(columns | square, (rising | square) << 1, (falling | square) >> 1);
        }
        count
    }
}

/// Returns the hash of a placement after a queen is added in this column.
fn after(hash: u64, column: u32) -> u64 {
    mix(hash ^ u64::from(column + 1))
}

/// Returns what a task without children contributes to the result.
fn trail(hash: u64, count: u64) -> u64 {
    mix(hash ^ mix(count))
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, testing};
    use super::*;
    use crate::program::words;

    fn queens(n: u32, depth: u32) -> Queens {
        Queens { n, depth, task_time: Span::ZERO }
    }

    #[test]
    fn the_task_version_computes_the_sequential_result() {
        for n in 1..=7 {
            for depth in 0..=n {
                testing::agrees_with_its_reference(&Flow::Queens(queens(n, depth)));
            }
        }
    }

    #[test]
    fn counts_match_the_known_ones() {
        for (n, count) in (1..).zip([1, 0, 0, 2, 10, 4, 40, 92, 352]) {
            assert_eq!(words(&queens(n, 2.min(n)).reference())[0], count, "n = {n}");
        }
    }

    #[test]
    fn a_task_that_is_lost_or_counted_twice_changes_the_result() {
        testing::every_task_matters(&Flow::Queens(queens(6, 3)));
    }

    #[test]
    fn a_program_that_does_not_fit_in_memory_is_refused() {
        assert!(matches!(queens(18, 8).validate(), Err(Invalid::TooManyTasks { .. })));
        assert!(matches!(queens(8, 9).validate(), Err(Invalid::OutOfRange { field: "depth", .. })));
        assert!(matches!(queens(30, 2).validate(), Err(Invalid::OutOfRange { field: "n", .. })));
        assert_eq!(Queens::default().validate(), Ok(()));
    }
}
