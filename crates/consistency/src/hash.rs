//! Hash tables for many small keys. No code iterates over them, so their order cannot affect a verdict.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash table that is faster for small keys than the standard one, but can be attacked: an attacker who chooses the
/// keys makes judging slower, never wrong.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Multiply>>;

/// Multiplies by an odd constant after each word.
#[derive(Clone, Copy, Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_i64(&mut self, word: i64) {
        self.write_u64(word as u64);
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
