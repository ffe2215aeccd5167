//! Jacobi's method on a two-dimensional grid: in each iteration, every cell becomes the mean of its four neighbours.
//!
//! The grid is cut into blocks, each its own piece. A task computes one iteration of one block: it reads the block and
//! the edges of its neighbours, and writes the block and its edges for the next iteration. At intervals, all blocks
//! gather their greatest change, and a test records when this change no longer exceeds the tolerance. At the end,
//! tasks fold all blocks into one hash, from neighbour to neighbour, so all messages except those of the tests pass
//! between neighbours.

use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{Chunk, Span};

use super::blocks::{Blocks, first_trail, hash, next_trail, word};
use super::{Invalid, at_most_tasks, in_range, mix};
use crate::program::{Call, Data, Frame, Op, Program, Use, chunk};

/// Writes the initial state of a block, and its edges.
const BEGIN: u16 = 0;
/// Computes one iteration of a block.
const UPDATE: u16 = 1;
/// Tests the greatest change of an iteration.
const TEST: u16 = 2;
/// Folds a block, the blocks to its right and, in the first column, all rows below into one hash.
const FOLD: u16 = 3;

/// The maximum number of rows of blocks, and of columns; larger grids would only take longer.
const MOST_BLOCKS: u32 = 1 << 10;
const MOST_SIZE: u32 = 1 << 12;
/// The number of sides of a block. Their order is above, below, left, right.
const SIDES: usize = 4;

/// Parameters of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Jacobi {
    /// Rows of blocks.
    pub rows: u32,
    /// Columns of blocks.
    pub columns: u32,
    /// Number of cells along the side of a block.
    pub size: u32,
    /// The number of iterations. Each updates every cell once.
    pub iterations: u32,
    /// The number of iterations from one test of the greatest change to the next; 0 means no test.
    pub test_every: u32,
    /// The greatest change of any cell, from one iteration to the next, at which the computation counts as converged.
    pub tolerance: f64,
    /// The time that one iteration of a block takes.
    pub task_time: Span,
}

impl Default for Jacobi {
    /// Returns a grid of sixteen blocks, each of which takes one second in total.
    fn default() -> Self {
        Jacobi {
            rows: 4,
            columns: 4,
            size: 16,
            iterations: 100,
            test_every: 10,
            tolerance: 1e-3,
            task_time: Span::from_millis(10),
        }
    }
}

impl Jacobi {
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        in_range("rows", self.rows.into(), 1, MOST_BLOCKS.into())?;
        in_range("columns", self.columns.into(), 1, MOST_BLOCKS.into())?;
        in_range("size", self.size.into(), 1, MOST_SIZE.into())?;
        in_range("iterations", self.iterations.into(), 1, u32::MAX.into())?;
        at_most_tasks(self.tasks(), "lower `iterations`, `rows` or `columns`")
    }

    /// Returns the number of tasks, all of which the first task spawns.
    pub(super) fn tasks(&self) -> u64 {
        let blocks = u64::from(self.pieces());
        let tests = self.iterations.checked_div(self.test_every).unwrap_or(0);
        blocks.saturating_mul(u64::from(self.iterations) + 2).saturating_add(tests.into())
    }

    /// Returns the size of the grid, in bytes.
    pub(super) fn grid_bytes(&self) -> u64 {
        u64::from(self.pieces()) * self.cells() as u64 * 8
    }

    /// Returns the number of blocks. They are numbered row by row.
    pub fn pieces(&self) -> u32 {
        self.rows * self.columns
    }

    fn blocks(&self) -> Blocks {
        Blocks { rows: self.rows, columns: self.columns }
    }

    /// Returns the neighbours of a block by side; `None` where it has no neighbour.
    fn neighbours(&self, block: u32) -> [Option<u32>; SIDES] {
        [(-1, 0), (1, 0), (0, -1), (0, 1)].map(|way| self.blocks().beside(block, way))
    }

    fn is_tested(&self, iteration: u32) -> bool {
        self.test_every > 0 && (iteration + 1).is_multiple_of(self.test_every)
    }

    /// Computes the result on one grid without blocks.
    pub(super) fn reference(&self) -> Chunk {
        let size = self.size as usize;
        let (height, width) = (self.rows as usize * size, self.columns as usize * size);
        let mut grid = vec![0.0; height * width];
        let mut trails: Vec<u64> = (0..self.pieces()).map(first_trail).collect();
        let mut tests = Tests::new();
        for iteration in 0..self.iterations {
            let at = |row: isize, column: isize| match (row, column) {
                (-1, _) => TOP,
                (row, column) if row < 0 || column < 0 => OTHER,
                (row, column) if row as usize >= height || column as usize >= width => OTHER,
                (row, column) => grid[row as usize * width + column as usize],
            };
            let mut next = grid.clone();
            let mut change = 0.0_f64;
            for row in 0..height as isize {
                for column in 0..width as isize {
                    let around =
                        [at(row - 1, column), at(row + 1, column), at(row, column - 1), at(row, column + 1)];
                    let cell = mean(around);
                    change = change.max((cell - at(row, column)).abs());
                    next[row as usize * width + column as usize] = cell;
                }
            }
            grid = next;
            let before = trails.clone();
            for (block, trail) in (0..).zip(&mut trails) {
                let around = self.neighbours(block).map(|it| it.map(|it| before[it as usize]));
                *trail = next_trail(*trail, around);
            }
            if self.is_tested(iteration) {
                tests.record(change, iteration, self.tolerance);
            }
        }
        let block = |block: u32| {
            let (top, left) =
                ((block / self.columns) as usize * size, (block % self.columns) as usize * size);
            let rows = (top..top + size).flat_map(|row| &grid[row * width + left..row * width + left + size]);
            let cells: Vec<u64> = rows.map(|it| it.to_bits()).collect();
            hash(core::iter::once(&trails[block as usize]).chain(&cells))
        };
        let folded = self.blocks().fold(block);
        chunk(&[folded, tests.0[0], tests.0[1], tests.0[2]])
    }
}

impl Program for Jacobi {
    fn main(&self, frame: &mut Frame) -> Data {
        let all = self.pieces();
        let blocks: Vec<Data> = (0..all).map(|_| frame.data()).collect();
        // Two sets of edges: an iteration reads the set that the previous one wrote, and writes the other.
        let edges: Vec<[[Option<Data>; SIDES]; 2]> = (0..all)
            .map(|block| {
                let mut set = || self.neighbours(block).map(|it| it.map(|_| frame.data()));
                [set(), set()]
            })
            .collect();
        let (change, tests) = (frame.data(), frame.value(chunk(&Tests::new().0)));
        for block in 0..all {
            let uses = core::iter::once(blocks[block as usize])
                .chain(edges[block as usize][0].into_iter().flatten());
            frame.at(block);
            frame.spawn(BEGIN, &[block.into()], &uses.map(Use::Write).collect::<Vec<_>>());
        }
        for iteration in 0..self.iterations {
            frame.next_step();
            let (read, written) = (iteration as usize % 2, (iteration as usize + 1) % 2);
            for block in 0..all {
                let mut uses = vec![Use::Exclusive(blocks[block as usize])];
                for (side, neighbour) in self.neighbours(block).into_iter().enumerate() {
                    let edge = neighbour.and_then(|it| edges[it as usize][read][opposite(side)]);
                    uses.extend(edge.map(Use::Read));
                }
                uses.extend(edges[block as usize][written].into_iter().flatten().map(Use::Write));
                if self.is_tested(iteration) {
                    uses.push(Use::Gather(change, Op::Greatest));
                }
                frame.at(block);
                frame.spawn(UPDATE, &[block.into(), self.is_tested(iteration).into()], &uses);
            }
            if self.is_tested(iteration) {
                frame.at(0);
                frame.spawn(TEST, &[iteration.into()], &[Use::Read(change), Use::Exclusive(tests)]);
            }
        }
        frame.next_step();
        self.blocks().spawn_folds(frame, FOLD, &blocks, Some(tests))
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        match call.kind {
            BEGIN => {
                let block = call.args[0] as u32;
                let mut words = vec![0.0_f64.to_bits(); self.cells() + 1];
                words[0] = first_trail(block);
                frame.put(0, chunk(&words));
                for (index, side) in (1..).zip(self.sides(block)) {
                    frame.put(index, chunk(&self.edge(&words, side)));
                }
            }
            UPDATE => self.update(call, frame),
            TEST => {
                let mut tests = Tests([0, 1, 2].map(|it| word(&call.words(1), it)));
                let change = f64::from_bits(word(&call.words(0), 0));
                tests.record(change, call.args[0] as u32, self.tolerance);
                frame.put(2, chunk(&tests.0));
            }
            _ => {
                let (block, folded) = (call.args[0], self.blocks().folded(call));
                let output = call.accesses.len() - 1;
                if block > 0 {
                    return frame.put(output, chunk(&[folded]));
                }
                let tests = call.words(call.inputs.len() - 1);
                frame.put(output, chunk(&[folded, word(&tests, 0), word(&tests, 1), word(&tests, 2)]));
            }
        }
    }

    fn cost(&self, call: &Call) -> Span {
        if call.kind == UPDATE { self.task_time } else { Span::ZERO }
    }
}

impl Jacobi {
    fn cells(&self) -> usize {
        self.size as usize * self.size as usize
    }

    /// Returns the sides on which a block has a neighbour.
    fn sides(&self, block: u32) -> impl Iterator<Item = usize> + use<> {
        self.neighbours(block).into_iter().enumerate().filter_map(|(side, it)| it.map(|_| side))
    }

    /// Returns the data that a neighbour on this side reads: the trail of the block, and its cells on this
    /// side.
    fn edge(&self, block: &[u64], side: usize) -> Vec<u64> {
        let size = self.size as usize;
        let cell = |along: usize| match side {
            0 => along,
            1 => (size - 1) * size + along,
            2 => along * size,
            _ => along * size + size - 1,
        };
        core::iter::once(word(block, 0)).chain((0..size).map(|along| word(block, 1 + cell(along)))).collect()
    }

    fn update(&self, call: &Call, frame: &mut Frame) {
        let (block, is_tested) = (call.args[0] as u32, call.args[1] > 0);
        let size = self.size as usize;
        let old = call.words(0);
        let mut edges: [Option<Vec<u64>>; SIDES] = Default::default();
        for (input, side) in (1..).zip(self.sides(block)) {
            edges[side] = Some(call.words(input));
        }
        let beyond = |side: usize, along: usize| match &edges[side] {
            Some(edge) => f64::from_bits(word(edge, 1 + along)),
            None if side == 0 => TOP,
            None => OTHER,
        };
        let at = |row: usize, column: usize| f64::from_bits(word(&old, 1 + row * size + column));
        let mut new =
            vec![next_trail(word(&old, 0), edges.each_ref().map(|it| it.as_ref().map(|it| word(it, 0))))];
        let mut change = 0.0_f64;
        for row in 0..size {
            for column in 0..size {
                let cell = mean([
                    if row > 0 { at(row - 1, column) } else { beyond(0, column) },
                    if row + 1 < size { at(row + 1, column) } else { beyond(1, column) },
                    if column > 0 { at(row, column - 1) } else { beyond(2, row) },
                    if column + 1 < size { at(row, column + 1) } else { beyond(3, row) },
                ]);
                change = change.max((cell - at(row, column)).abs());
                new.push(cell.to_bits());
            }
        }
        frame.put(1, chunk(&new));
        let sides: Vec<usize> = self.sides(block).collect();
        let first = 2 + sides.len();
        for (index, side) in (first..).zip(&sides) {
            frame.put(index, chunk(&self.edge(&new, *side)));
        }
        if is_tested {
            frame.put(first + sides.len(), chunk(&[change.to_bits()]));
        }
    }
}

/// Boundary values of the cells beyond the grid.
const TOP: f64 = 1.0;
const OTHER: f64 = 0.0;

fn mean([above, below, left, right]: [f64; SIDES]) -> f64 {
    ((above + below) + (left + right)) * 0.25
}

fn opposite(side: usize) -> usize {
    side ^ 1
}

/// The last change, the iteration after which the computation counts as converged, and a hash of all changes.
struct Tests([u64; 3]);

impl Tests {
    fn new() -> Tests {
        Tests([0, u64::MAX, 0])
    }

    fn record(&mut self, change: f64, iteration: u32, tolerance: f64) {
        let [last, converged, hash] = &mut self.0;
        *last = change.to_bits();
        if change <= tolerance {
            *converged = (*converged).min(iteration.into());
        }
        *hash = mix(*hash ^ *last);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, testing};
    use super::*;
    use crate::program::words;

    fn jacobi(rows: u32, columns: u32, size: u32, iterations: u32, test_every: u32) -> Jacobi {
        let task_time = Span::ZERO;
        Jacobi { rows, columns, size, iterations, test_every, tolerance: 0.1, task_time }
    }

    #[test]
    fn the_task_version_computes_the_sequential_result() {
        for (rows, columns) in [(1, 1), (1, 3), (3, 1), (2, 2), (3, 4)] {
            for (size, iterations, test_every) in [(1, 1, 1), (3, 7, 2), (4, 8, 0)] {
                let program = jacobi(rows, columns, size, iterations, test_every);
                let tasks = testing::agrees_with_its_reference(&Flow::Jacobi(program.clone()));
                assert_eq!(tasks, program.tasks());
            }
        }
    }

    #[test]
    fn heat_comes_from_above_and_the_changes_become_small() {
        let result = |iterations| words(&jacobi(2, 3, 4, iterations, 1).reference());
        let change = |iterations| f64::from_bits(result(iterations)[1]);
        assert_eq!(change(1), 0.25, "a zero next to the hot side has one neighbour other than zero");
        assert!(change(100) < change(10) && change(10) < change(2));
        let converged = result(100)[2];
        assert!(converged > 0 && converged < 100, "{converged}");
        assert_eq!(result(1)[2], u64::MAX);
    }

    #[test]
    fn the_cells_do_not_depend_on_the_blocks() {
        let (one, many) =
            (words(&jacobi(1, 1, 12, 20, 1).reference()), words(&jacobi(3, 4, 3, 20, 1).reference()));
        assert_ne!(one[0], many[0], "trails depend on the blocks");
        assert_ne!(one[1..], many[1..], "a grid of 12 x 12 differs from one of 9 x 12");
        let square = words(&jacobi(4, 4, 3, 20, 1).reference());
        assert_eq!(one[1..], square[1..]);
    }

    #[test]
    fn a_task_that_is_lost_or_counted_twice_changes_the_result() {
        testing::every_task_matters(&Flow::Jacobi(jacobi(2, 3, 2, 4, 2)));
    }

    #[test]
    fn a_program_that_does_not_fit_in_memory_is_refused() {
        let program = jacobi(100, 100, 1, 10_000, 0);
        assert!(matches!(program.validate(), Err(Invalid::TooManyTasks { .. })));
        assert!(matches!(jacobi(0, 1, 1, 1, 0).validate(), Err(Invalid::OutOfRange { field: "rows", .. })));
        assert_eq!(Jacobi::default().validate(), Ok(()));
    }
}
