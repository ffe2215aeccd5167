//! Additional state, which makes snapshots large and preserves the effect of every error.
//!
//! Heat conduction smooths an incorrect boundary value until no bit of the error remains. A rank therefore
//! also keeps a 64-bit hash of all previous grids (its history), and a block of pseudo-random bytes. Each
//! step rewrites one piece of the block from the history. The block cannot be compressed or reconstructed,
//! and the effect of an error never disappears from it.

use alloc::vec::Vec;
use faultline_core::{Chunk, Digest};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::bytes::Bytes;
use crate::mix::{digest, mix};

/// Length of a piece of the block, in bytes: the unit that one step rewrites, and that snapshots share.
const PIECE: u64 = 16 << 10;

/// The block of one rank.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Position of the rank in the federation.
    position: u64,
    /// Length in 64-bit words.
    words: u64,
    /// The pieces; `None` for a piece that has its initial content and is not in memory.
    pieces: Vec<Option<Bytes>>,
}

impl Block {
    /// Returns the initial block of the rank at `position`, with at least `bytes` bytes. Allocates no memory for its
    /// content.
    pub(super) fn initial(position: u64, bytes: u64) -> Block {
        let words = bytes.div_ceil(8);
        Block { position, words, pieces: alloc::vec![None; words.div_ceil(PIECE / 8) as usize] }
    }

    /// Returns the block with all of its content in memory.
    pub(super) fn in_memory(mut self) -> Block {
        for at in 0..self.pieces.len() {
            self.pieces[at] = Some(self.piece(at));
        }
        self
    }

    /// Returns the index of the piece that step `step` rewrites; `None` if the block is empty.
    pub(super) fn rewritten_by(&self, step: u32) -> Option<usize> {
        (step as usize).checked_rem(self.pieces.len())
    }

    /// Returns the content of a piece.
    pub(super) fn piece(&self, at: usize) -> Bytes {
        self.pieces[at].clone().unwrap_or_else(|| self.initial_piece(at))
    }

    /// Replaces a piece.
    pub(super) fn set(&mut self, at: usize, piece: Bytes) {
        self.pieces[at] = Some(piece);
    }

    /// Returns the block for a snapshot. Pieces that are not in memory are virtual.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Chunk> {
        self.pieces.chunk_by(|one, next| one.is_none() && next.is_none()).scan(0, |first, run| {
            let length = (*first..*first + run.len()).map(|at| self.length_of(at)).sum();
            *first += run.len();
            Some(run[0].as_ref().map_or(Chunk::Virtual(length), Bytes::to_chunk))
        })
    }

    /// Replaces the block with a saved one. Virtual pieces have their initial content.
    pub(super) fn load(&mut self, chunks: &[Chunk]) {
        let mut at = 0;
        for chunk in chunks {
            if let Chunk::Bytes(_) = chunk {
                self.pieces[at] = Some(Bytes::from_chunk(chunk));
                at += 1;
                continue;
            }
            let mut rest = chunk.len();
            while rest > 0 {
                rest = rest
                    .checked_sub(self.length_of(at))
                    .expect("a virtual chunk consists of complete pieces");
                self.pieces[at] = None;
                at += 1;
            }
        }
        assert_eq!(at, self.pieces.len(), "a snapshot contains the block");
    }

    fn length_of(&self, at: usize) -> u64 {
        (self.words * 8 - at as u64 * PIECE).min(PIECE)
    }

    fn initial_piece(&self, at: usize) -> Bytes {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        rng.set_stream(self.position);
        // The position counts words of the generator, which have 32 bits.
        rng.set_word_pos(at as u128 * u128::from(PIECE / 4));
        let mut bytes = alloc::vec![0; self.length_of(at) as usize];
        rng.fill_bytes(&mut bytes);
        Bytes::from(bytes)
    }

    /// Returns the rewritten pieces that differ from the initial ones, with their indices.
    fn rewritten(&self) -> impl Iterator<Item = (usize, &Bytes)> {
        let indexed = self.pieces.iter().enumerate();
        let in_memory = indexed.filter_map(|(at, piece)| Some((at, piece.as_ref()?)));
        in_memory.filter(|&(at, piece)| **piece != *self.initial_piece(at))
    }
}

/// Returns the history after a step that produced these temperatures.
pub(super) fn remember(history: u64, cells: &[f64]) -> u64 {
    let fold =
        |sum: u64, cell: &f64| (sum ^ cell.to_bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
    mix(cells.iter().fold(history, fold))
}

/// Returns the content of the piece after a step with this history has rewritten it.
pub(super) fn rewrite(piece: &[u8], history: u64) -> Bytes {
    let (words, rest) = piece.as_chunks();
    assert!(rest.is_empty(), "a piece consists of complete words");
    let rewrite = |(index, &word): (usize, &[u8; 8])| {
        let key = history.wrapping_add(index as u64);
        mix(u64::from_le_bytes(word) ^ key).to_le_bytes()
    };
    Bytes::from(words.iter().enumerate().map(rewrite).collect::<Vec<_>>().into_flattened())
}

/// Returns the result of a rank. `received` counts every message that arrived, so that an additional message
/// changes the result. The result includes only pieces of the block that differ from the initial ones, so
/// that it does not depend on whether the others are in memory.
pub(super) fn result(received: u64, history: u64, grid: &[u8], block: &Block) -> Digest {
    let (received, history) = (received.to_le_bytes(), history.to_le_bytes());
    let rewritten: Vec<([u8; 8], &Bytes)> =
        block.rewritten().map(|(at, piece)| ((at as u64).to_le_bytes(), piece)).collect();
    let pieces = rewritten.iter().flat_map(|(at, piece)| [&at[..], &***piece]);
    digest([&received[..], &history[..], grid].into_iter().chain(pieces))
}
