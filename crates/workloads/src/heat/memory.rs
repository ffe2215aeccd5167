//! Makes the state large, and preserves the effect of every error.
//!
//! Heat conduction forgets: an incorrect old boundary value is smoothed until no bit of it remains. A rank therefore
//! also keeps a 64-bit history that includes every grid, and a block of pseudo-random bytes, of which each step
//! rewrites one piece from the history. The block cannot be compressed or reconstructed, and the effect of an error
//! never disappears from it.

use alloc::vec::Vec;
use faultline_core::Digest;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::bytes::Bytes;
use crate::mix::{digest, mix};

/// Length of a piece of the block, in bytes: the unit that one step rewrites, and that snapshots share.
const PIECE: u64 = 16 << 10;

/// Returns the initial block of the rank at `position` in the federation.
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

/// Returns which of `pieces` pieces step `step` rewrites.
pub(super) fn piece_of(step: u32, pieces: usize) -> Option<usize> {
    (step as usize).checked_rem(pieces)
}

/// Returns the history after a step with these temperatures.
pub(super) fn remember(history: u64, cells: &[f64]) -> u64 {
    let fold =
        |sum: u64, cell: &f64| (sum ^ cell.to_bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
    mix(cells.iter().fold(history, fold))
}

/// Returns a rewritten piece.
pub(super) fn rewrite(piece: &[u8], history: u64) -> Bytes {
    let (words, rest) = piece.as_chunks();
    assert!(rest.is_empty(), "a piece has whole words");
    let rewrite = |(index, &word): (usize, &[u8; 8])| {
        let key = history.wrapping_add(index as u64);
        mix(u64::from_le_bytes(word) ^ key).to_le_bytes()
    };
    Bytes::from(words.iter().enumerate().map(rewrite).collect::<Vec<_>>().into_flattened())
}

/// Returns the result of a rank. `received` counts every message that ever arrived, so that an additional one changes
/// the result.
pub(super) fn result(received: u64, history: u64, grid: &[u8], block: &[Bytes]) -> Digest {
    let (received, history) = (received.to_le_bytes(), history.to_le_bytes());
    digest([&received[..], &history[..], grid].into_iter().chain(block.iter().map(|piece| &**piece)))
}
