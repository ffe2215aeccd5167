//! Common parts of programs on a grid of blocks: the trail that each task leaves in the result, and the fold at the
//! end.
//!
//! Every block carries a hash of all tasks that contributed to it, its *trail*. At the end, tasks fold all blocks into
//! one hash, from neighbour to neighbour, so all messages except those of a convergence test pass between neighbours.

use alloc::vec;
use alloc::vec::Vec;

use super::mix;
use crate::program::{Call, Data, Frame, Use};

/// A grid of blocks. The blocks are numbered row by row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) rows: u32,
    pub(super) columns: u32,
}

impl Blocks {
    pub(super) fn count(self) -> u32 {
        self.rows * self.columns
    }

    /// Returns the block at this offset from `block`, in rows and columns, if it exists.
    pub(super) fn beside(self, block: u32, (down, right): (i32, i32)) -> Option<u32> {
        let row = (block / self.columns).checked_add_signed(down).filter(|it| *it < self.rows)?;
        let column = (block % self.columns).checked_add_signed(right).filter(|it| *it < self.columns)?;
        Some(row * self.columns + column)
    }

    /// Spawns tasks of kind `kind` that fold all blocks, and returns the data to which the last one writes the result.
    /// The first block's task also reads `last`, if given.
    pub(super) fn spawn_folds(
        self,
        frame: &mut Frame,
        kind: u16,
        blocks: &[Data],
        last: Option<Data>,
    ) -> Data {
        let mut below = None;
        for row in (0..self.rows).rev() {
            let mut right = None;
            for column in (0..self.columns).rev() {
                let (block, folded) = (row * self.columns + column, frame.data());
                let mut uses = vec![Use::Read(blocks[block as usize])];
                uses.extend(right.map(Use::Read));
                uses.extend((column == 0).then_some(below).flatten().map(Use::Read));
                uses.extend((block == 0).then_some(last).flatten().map(Use::Read));
                uses.push(Use::Write(folded));
                frame.at(block);
                frame.spawn(kind, &[block.into()], &uses);
                right = Some(folded);
            }
            below = right;
        }
        below.expect("the grid has a block")
    }

    /// Returns the result of a folding task.
    pub(super) fn folded(self, call: &Call) -> u64 {
        let block = call.args[0] as u32;
        let (row, column) = (block / self.columns, block % self.columns);
        let has_right = column + 1 < self.columns;
        let has_below = column == 0 && row + 1 < self.rows;
        let right = has_right.then(|| word(&call.words(1), 0));
        let below = has_below.then(|| word(&call.words(1 + usize::from(has_right)), 0));
        fold(hash(&call.words(0)), right, below)
    }

    /// Returns the result of the last folding task, given the hashes of all blocks.
    pub(super) fn fold(self, block: impl Fn(u32) -> u64) -> u64 {
        let mut below = None;
        for row in (0..self.rows).rev() {
            let mut right = None;
            for column in (1..self.columns).rev() {
                right = Some(fold(block(row * self.columns + column), right, None));
            }
            below = Some(fold(block(row * self.columns), right, below));
        }
        below.unwrap_or_default()
    }
}

/// Returns a word, or 0 if it is missing because a test broke a task.
pub(super) fn word(words: &[u64], index: usize) -> u64 {
    words.get(index).copied().unwrap_or(0)
}

/// Returns the initial trail of a block.
pub(super) fn first_trail(block: u32) -> u64 {
    mix(u64::from(block) + 1)
}

/// Returns the trail after a task, computed from the trail of its own block and those that it reads from the
/// neighbours, by side.
pub(super) fn next_trail(own: u64, around: impl IntoIterator<Item = Option<u64>>) -> u64 {
    let sides = around.into_iter().zip(1..).filter_map(|(trail, side)| Some(trail?.rotate_left(side)));
    mix(sides.fold(own, |all, it| mix(all ^ it)))
}

/// Returns a hash of a block's words.
pub(super) fn hash<'a>(words: impl IntoIterator<Item = &'a u64>) -> u64 {
    words.into_iter().fold(0, |all, it| mix(all ^ it))
}

/// Returns the bit pattern of each number.
pub(super) fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|it| it.to_bits()).collect()
}

fn fold(block: u64, right: Option<u64>, below: Option<u64>) -> u64 {
    let other = [right, below].into_iter().zip(1..).filter_map(|(it, side)| Some(it?.rotate_left(side)));
    other.fold(mix(block), |all, it| mix(all ^ it))
}
