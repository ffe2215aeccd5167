//! What makes the state large and unforgetful.
//!
//! Heat conduction forgets: a wrong boundary value of long ago is smoothed out until no bit of it is left. So a rank
//! also keeps a 64-bit history into which every grid is folded, and a block of pseudo-random bytes of which each step
//! rewrites one piece from the history. The block cannot be compressed or rebuilt, and nothing that ever went wrong in a
//! rank disappears from it.

use alloc::vec::Vec;
use faultline_core::Digest;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::bytes::Bytes;
use crate::mix::{digest, mix};

/// Length of a piece of the block: what one step rewrites, and what two snapshots share.
const PIECE: u64 = 16 << 10;

/// The block before the first step, of the rank at `position` in the federation.
pub(super) fn initial_block(position: u64, bytes: u64) -> Vec<Bytes> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    rng.set_stream(position);
    let words = bytes.div_ceil(8);
    (0..words.div_ceil(PIECE / 8))
        .map(|piece| {
            let mut bytes = alloc::vec![0; ((words * 8) - piece * PIECE).min(PIECE) as usize];
            rng.fill_bytes(&mut bytes);
            Bytes::from(bytes)
        })
        .collect()
}

/// The piece of a block of `pieces` that step `step` rewrites.
pub(super) fn piece_of(step: u32, pieces: usize) -> Option<usize> {
    (step as usize).checked_rem(pieces)
}

/// The history after a step that left these temperatures.
pub(super) fn remember(history: u64, cells: &[f64]) -> u64 {
    let fold =
        |sum: u64, cell: &f64| (sum ^ cell.to_bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
    mix(cells.iter().fold(history, fold))
}

/// A piece rewritten.
pub(super) fn rewrite(piece: &[u8], history: u64) -> Bytes {
    let (words, rest) = piece.as_chunks();
    assert!(rest.is_empty(), "a piece has whole words");
    let rewrite = |(index, &word): (usize, &[u8; 8])| {
        let key = history.wrapping_add(index as u64);
        mix(u64::from_le_bytes(word) ^ key).to_le_bytes()
    };
    Bytes::from(words.iter().enumerate().map(rewrite).collect::<Vec<_>>().into_flattened())
}

/// The result of a rank. `received` counts every message that ever arrived, so that one too many shows.
pub(super) fn result(received: u64, history: u64, grid: &[u8], block: &[Bytes]) -> Digest {
    let (received, history) = (received.to_le_bytes(), history.to_le_bytes());
    digest([&received[..], &history[..], grid].into_iter().chain(block.iter().map(|piece| &**piece)))
}
