//! A piece of cloth that hangs by two corners: particles connected by springs (the application of the short CCK paper,
//! section 4).
//!
//! The particles are divided into square blocks, each a piece of its own. An iteration of a block consists of two
//! tasks: one computes the forces on its particles, from its own positions and those along the edges and in the corners
//! of its eight neighbours; the other moves the particles, and writes the block's edges and corners for the next
//! iteration. Up to eight springs hold each particle, one to each adjacent particle in its row, column and diagonals.

use alloc::vec;
use alloc::vec::Vec;

use faultline_core::{Chunk, Span};

use super::blocks::{Blocks, bits, first_trail, hash, next_trail, word};
use super::{Invalid, at_most_tasks, in_range};
use crate::program::{Call, Data, Frame, Program, Use, chunk};

/// Writes the initial state of a block, and its sides.
const BEGIN: u16 = 0;
/// Computes the forces on the particles of a block.
const PULL: u16 = 1;
/// Moves the particles of a block.
const MOVE: u16 = 2;
/// Folds a block into the hash of the blocks beyond it.
const FOLD: u16 = 3;

const MOST_BLOCKS: u32 = 1 << 10;
const MOST_SIZE: u32 = 1 << 10;

/// The offset of the other end of each spring, in rows and columns; also that of each neighbour of a block. The indices
/// of opposite sides differ in the last bit.
const SIDES: [(i32, i32); 8] = [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (1, 1), (-1, 1), (1, -1)];

/// Number of words per particle, for its position and velocity.
const WORDS: usize = 6;

/// Duration of a step, in seconds.
const STEP: f64 = 0.01;
/// Gravitational acceleration, in metres per second squared.
const GRAVITY: f64 = 9.81;
/// Stiffness of a spring, in newtons per metre, for particles of 1 kg that are 1 m apart at rest. The time step is
/// short enough for this stiffness.
const STIFFNESS: f64 = 400.0;
/// The fraction of its velocity that a particle keeps in a step.
const KEPT: f64 = 0.99;

/// Parameters of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Cloth {
    /// Rows of blocks.
    pub rows: u32,
    /// Columns of blocks.
    pub columns: u32,
    /// Number of particles along each side of a block.
    pub size: u32,
    /// Number of iterations. Each moves every particle once.
    pub iterations: u32,
    /// Time that each of the two tasks of a block takes in one iteration.
    pub task_time: Span,
}

impl Default for Cloth {
    /// Returns the defaults: sixteen blocks, each of which takes one second in total.
    fn default() -> Self {
        Cloth { rows: 4, columns: 4, size: 8, iterations: 100, task_time: Span::from_millis(5) }
    }
}

impl Cloth {
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        in_range("rows", self.rows.into(), 1, MOST_BLOCKS.into())?;
        in_range("columns", self.columns.into(), 1, MOST_BLOCKS.into())?;
        in_range("size", self.size.into(), 1, MOST_SIZE.into())?;
        in_range("iterations", self.iterations.into(), 1, u32::MAX.into())?;
        at_most_tasks(self.tasks(), "lower `iterations`, `rows` or `columns`")
    }

    /// Returns the number of tasks, all of which the first task spawns.
    pub(super) fn tasks(&self) -> u64 {
        u64::from(self.pieces()).saturating_mul(2 * u64::from(self.iterations) + 2)
    }

    /// Returns the total size of all particles, in bytes.
    pub(super) fn particle_bytes(&self) -> u64 {
        u64::from(self.pieces()) * u64::from(self.size).pow(2) * WORDS as u64 * 8
    }

    /// Returns the number of blocks. They are numbered row by row.
    pub fn pieces(&self) -> u32 {
        self.blocks().count()
    }

    fn blocks(&self) -> Blocks {
        Blocks { rows: self.rows, columns: self.columns }
    }

    /// Returns the sides on which a block has a neighbour, each paired with that neighbour.
    fn neighbours(&self, block: u32) -> impl Iterator<Item = (usize, u32)> + use<> {
        let blocks = self.blocks();
        (0..).zip(SIDES).filter_map(move |(side, way)| Some((side, blocks.beside(block, way)?)))
    }

    /// Returns the number of rows and columns of particles.
    fn extent(&self) -> [usize; 2] {
        [self.rows, self.columns].map(|it| it as usize * self.size as usize)
    }

    /// Returns the first row and column of a block's particles.
    fn origin(&self, block: u32) -> [usize; 2] {
        [block / self.columns, block % self.columns].map(|it| it as usize * self.size as usize)
    }

    /// Returns the initial state of a particle: the cloth lies flat, at rest.
    fn begins(row: usize, column: usize) -> [f64; WORDS] {
        [column as f64, row as f64, 0.0, 0.0, 0.0, 0.0]
    }

    /// Returns a particle after a step in which `force` acts on it.
    fn moved(&self, [row, column]: [usize; 2], old: [f64; WORDS], force: [f64; 3]) -> [f64; WORDS] {
        let last = self.extent()[1] - 1;
        if row == 0 && (column == 0 || column == last) {
            return old;
        }
        let mut new = old;
        for axis in 0..3 {
            let weight = if axis == 2 { GRAVITY } else { 0.0 };
            new[3 + axis] = (old[3 + axis] + (force[axis] - weight) * STEP) * KEPT;
            new[axis] = old[axis] + new[3 + axis] * STEP;
        }
        new
    }

    /// Computes the result on one grid without blocks.
    pub(super) fn reference(&self) -> Chunk {
        let [height, width] = self.extent();
        let mut cloth: Vec<[f64; WORDS]> =
            (0..height * width).map(|it| Cloth::begins(it / width, it % width)).collect();
        let mut trails: Vec<u64> = (0..self.pieces()).map(first_trail).collect();
        for _ in 0..self.iterations {
            let at = |row: usize, column: usize, (down, right): (i32, i32)| {
                let row = row.checked_add_signed(down as isize).filter(|it| *it < height)?;
                let column = column.checked_add_signed(right as isize).filter(|it| *it < width)?;
                Some(position(cloth[row * width + column]))
            };
            let step = |it: usize| {
                let (row, column) = (it / width, it % width);
                let pulled = force(position(cloth[it]), SIDES.map(|way| at(row, column, way)));
                self.moved([row, column], cloth[it], pulled)
            };
            cloth = (0..height * width).map(step).collect();
            let before = trails.clone();
            for (block, trail) in (0..).zip(&mut trails) {
                let pulled = next_trail(*trail, self.around(block, |it| before[it as usize]));
                *trail = next_trail(*trail, [Some(pulled)]);
            }
        }
        let size = self.size as usize;
        let block = |block: u32| {
            let [top, left] = self.origin(block);
            let rows =
                (top..top + size).flat_map(|row| &cloth[row * width + left..row * width + left + size]);
            let words: Vec<u64> = rows.flat_map(|it| bits(it)).collect();
            hash(core::iter::once(&trails[block as usize]).chain(&words))
        };
        chunk(&[self.blocks().fold(block)])
    }

    /// Applies `of` to each neighbour, by side.
    fn around<T>(&self, block: u32, of: impl Fn(u32) -> T) -> [Option<T>; 8] {
        SIDES.map(|way| self.blocks().beside(block, way).map(&of))
    }

    /// Returns the data that a neighbour on this side reads: the trail of the block, and the positions of its particles
    /// on that side.
    fn side(&self, block: &[u64], side: usize) -> Vec<u64> {
        let size = self.size as usize;
        let along = |way: i32| match way {
            -1 => 0..1,
            1 => size - 1..size,
            _ => 0..size,
        };
        let (down, right) = SIDES[side];
        let particles = along(down).flat_map(|row| along(right).map(move |column| row * size + column));
        let positions = particles.flat_map(|it| (0..3).map(move |axis| 1 + it * WORDS + axis));
        core::iter::once(word(block, 0)).chain(positions.map(|it| word(block, it))).collect()
    }

    fn begin(&self, block: u32) -> Vec<u64> {
        let [top, left] = self.origin(block);
        let size = self.size as usize;
        let particles =
            (0..size * size).flat_map(|it| bits(&Cloth::begins(top + it / size, left + it % size)));
        core::iter::once(first_trail(block)).chain(particles).collect()
    }

    /// Returns the forces on the particles of a block.
    fn pull(&self, call: &Call) -> Vec<u64> {
        let (block, size) = (call.args[0] as u32, self.size as i32);
        let own = call.words(0);
        let mut sides: [Option<Vec<u64>>; 8] = Default::default();
        for (input, (side, _)) in (1..).zip(self.neighbours(block)) {
            sides[side] = Some(call.words(input));
        }
        let numbers = |words: &[u64], from: usize| [0, 1, 2].map(|it| f64::from_bits(word(words, from + it)));
        let at = |row: i32, column: i32| {
            let beyond = |it: i32| if it < 0 { -1 } else { i32::from(it >= size) };
            let way = (beyond(row), beyond(column));
            if way == (0, 0) {
                return Some(numbers(&own, 1 + (row * size + column) as usize * WORDS));
            }
            let side = SIDES.iter().position(|it| *it == way).expect("the position is next to the block");
            let along = match way {
                (0, _) => row,
                (_, 0) => column,
                _ => 0,
            };
            sides[side].as_ref().map(|it| numbers(it, 1 + 3 * along as usize))
        };
        let mut new =
            vec![next_trail(word(&own, 0), sides.each_ref().map(|it| it.as_ref().map(|it| word(it, 0))))];
        for (row, column) in (0..size).flat_map(|row| (0..size).map(move |column| (row, column))) {
            let here = at(row, column).expect("the position is in the block");
            new.extend(bits(&force(here, SIDES.map(|(down, right)| at(row + down, column + right)))));
        }
        new
    }

    /// Returns a block after a step.
    fn step(&self, call: &Call) -> Vec<u64> {
        let (block, size) = (call.args[0] as u32, self.size as usize);
        let (forces, old) = (call.words(0), call.words(1));
        let [top, left] = self.origin(block);
        let mut new = vec![next_trail(word(&old, 0), [Some(word(&forces, 0))])];
        for it in 0..size * size {
            let force = [0, 1, 2].map(|axis| f64::from_bits(word(&forces, 1 + it * 3 + axis)));
            let old = [0, 1, 2, 3, 4, 5].map(|at| f64::from_bits(word(&old, 1 + it * WORDS + at)));
            new.extend(bits(&self.moved([top + it / size, left + it % size], old, force)));
        }
        new
    }

    fn put_sides(&self, block: u32, words: &[u64], first: usize, frame: &mut Frame) {
        for (index, (side, _)) in (first..).zip(self.neighbours(block)) {
            frame.put(index, chunk(&self.side(words, side)));
        }
    }
}

fn position(particle: [f64; WORDS]) -> [f64; 3] {
    [particle[0], particle[1], particle[2]]
}

/// Returns the force that up to eight springs exert on a particle. `ends` contains their other ends, in the order of
/// [`SIDES`]. The force of a spring grows with the difference between the square of its length and the square of its
/// length at rest. No square root is needed, so all machines compute the same result.
fn force(here: [f64; 3], ends: [Option<[f64; 3]>; 8]) -> [f64; 3] {
    let mut force = [0.0; 3];
    for (end, (down, right)) in ends.into_iter().zip(SIDES) {
        let Some(end) = end else { continue };
        let way = [0, 1, 2].map(|axis| end[axis] - here[axis]);
        let at_rest = f64::from(down * down + right * right);
        let length = way[0] * way[0] + way[1] * way[1] + way[2] * way[2];
        let strain = length / at_rest - 1.0;
        for axis in 0..3 {
            force[axis] += STIFFNESS * strain * way[axis];
        }
    }
    force
}

fn opposite(side: usize) -> usize {
    side ^ 1
}

impl Program for Cloth {
    fn main(&self, frame: &mut Frame) -> Data {
        let all = self.pieces();
        let blocks: Vec<Data> = (0..all).map(|_| frame.data()).collect();
        let forces: Vec<Data> = (0..all).map(|_| frame.data()).collect();
        // Two sets of sides: an iteration reads the set that the previous one wrote, and writes the other.
        let sides: Vec<[[Option<Data>; 8]; 2]> = (0..all)
            .map(|block| {
                let mut set = || self.around(block, |_| ()).map(|it| it.map(|()| frame.data()));
                [set(), set()]
            })
            .collect();
        for block in 0..all {
            let own = sides[block as usize][0].into_iter().flatten();
            let uses: Vec<Use> =
                core::iter::once(blocks[block as usize]).chain(own).map(Use::Write).collect();
            frame.at(block);
            frame.spawn(BEGIN, &[block.into()], &uses);
        }
        for iteration in 0..self.iterations as usize {
            frame.next_step();
            let (read, written) = (iteration % 2, (iteration + 1) % 2);
            for block in 0..all {
                let mut uses = vec![Use::Read(blocks[block as usize])];
                let around = self.neighbours(block);
                uses.extend(
                    around.filter_map(|(side, it)| sides[it as usize][read][opposite(side)]).map(Use::Read),
                );
                uses.push(Use::Write(forces[block as usize]));
                frame.at(block);
                frame.spawn(PULL, &[block.into()], &uses);
            }
            for block in 0..all {
                let own = sides[block as usize][written].into_iter().flatten();
                let mut uses =
                    vec![Use::Read(forces[block as usize]), Use::Exclusive(blocks[block as usize])];
                uses.extend(own.map(Use::Write));
                frame.at(block);
                frame.spawn(MOVE, &[block.into()], &uses);
            }
        }
        frame.next_step();
        self.blocks().spawn_folds(frame, FOLD, &blocks, None)
    }

    fn run(&self, call: &Call, frame: &mut Frame) {
        let block = call.args[0] as u32;
        match call.kind {
            BEGIN => {
                let words = self.begin(block);
                self.put_sides(block, &words, 1, frame);
                frame.put(0, chunk(&words));
            }
            PULL => frame.put(call.accesses.len() - 1, chunk(&self.pull(call))),
            MOVE => {
                let words = self.step(call);
                self.put_sides(block, &words, 3, frame);
                frame.put(2, chunk(&words));
            }
            _ => frame.put(call.accesses.len() - 1, chunk(&[self.blocks().folded(call)])),
        }
    }

    fn cost(&self, call: &Call) -> Span {
        if matches!(call.kind, PULL | MOVE) { self.task_time } else { Span::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, testing};
    use super::*;

    fn cloth(rows: u32, columns: u32, size: u32, iterations: u32) -> Cloth {
        Cloth { rows, columns, size, iterations, task_time: Span::ZERO }
    }

    #[test]
    fn the_task_version_computes_the_sequential_result() {
        for (rows, columns) in [(1, 1), (1, 3), (3, 1), (2, 2), (3, 4)] {
            for (size, iterations) in [(1, 1), (2, 5), (3, 6)] {
                let program = cloth(rows, columns, size, iterations);
                let tasks = testing::agrees_with_its_reference(&Flow::Cloth(program.clone()));
                assert_eq!(tasks, program.tasks());
            }
        }
    }

    #[test]
    fn a_task_that_is_lost_or_counted_twice_changes_the_result() {
        testing::every_task_matters(&Flow::Cloth(cloth(2, 3, 2, 3)));
    }

    #[test]
    fn a_flat_cloth_is_at_rest_and_a_stretched_spring_pulls() {
        let flat = SIDES.map(|(down, right)| Some([f64::from(right), f64::from(down), 0.0]));
        assert_eq!(force([0.0; 3], flat), [0.0; 3]);
        let mut stretched = [None; 8];
        stretched[3] = Some([2.0, 0.0, 0.0]);
        assert_eq!(force([0.0; 3], stretched), [STIFFNESS * 3.0 * 2.0, 0.0, 0.0]);
        stretched[3] = Some([0.5, 0.0, 0.0]);
        assert!(force([0.0; 3], stretched)[0] < 0.0, "a short spring pushes");
    }

    #[test]
    fn the_cloth_hangs_by_its_corners() {
        // One block, moved step by step.
        let cloth = cloth(1, 1, 6, 1);
        let mut all: Vec<[f64; WORDS]> = (0..36).map(|it| Cloth::begins(it / 6, it % 6)).collect();
        let mut lowest = Vec::new();
        for _ in 0..2_000 {
            let at = |it: usize, (down, right): (i32, i32)| {
                let row = (it / 6).checked_add_signed(down as isize).filter(|it| *it < 6)?;
                let column = (it % 6).checked_add_signed(right as isize).filter(|it| *it < 6)?;
                Some(position(all[row * 6 + column]))
            };
            let step = |it: usize| {
                let pulled = force(position(all[it]), SIDES.map(|way| at(it, way)));
                cloth.moved([it / 6, it % 6], all[it], pulled)
            };
            all = (0..36).map(step).collect();
            lowest.push(all.iter().map(|it| it[2]).fold(0.0, f64::min));
        }
        assert_eq!([all[0], all[5]], [Cloth::begins(0, 0), Cloth::begins(0, 5)], "the corners are held");
        assert!(lowest[10] < lowest[0] && lowest[1_999] < -4.0, "{} {}", lowest[10], lowest[1_999]);
        assert!(lowest[1_999] > -8.0, "springs hold the cloth: {}", lowest[1_999]);
        let speed = all.iter().flat_map(|it| &it[3..]).fold(0.0_f64, |most, it| most.max(it.abs()));
        assert!(speed < 0.5, "the cloth is almost at rest, with a speed of {speed} m/s");
    }

    #[test]
    fn a_program_that_does_not_fit_in_memory_is_refused() {
        assert!(matches!(cloth(100, 100, 1, 10_000).validate(), Err(Invalid::TooManyTasks { .. })));
        assert!(matches!(cloth(1, 1, 0, 1).validate(), Err(Invalid::OutOfRange { field: "size", .. })));
        assert_eq!(Cloth::default().validate(), Ok(()));
    }
}
