//! State keys: 128 bits of a hash of each state's `Debug` output.
//!
//! The state of a protocol is private, but its `Debug` output shows all of it. Two states with the same key
//! count as the same state. With 10^8 states, the probability that any two different states share a key is
//! below 10^-22.

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::hash::{BuildHasherDefault, Hasher};

use zerocopy::IntoBytes as _;

/// The key of a value.
pub(crate) type Key = u128;

/// Hashes keys for a table. Keys are already hashes, so they only need to be folded.
pub(crate) type Unhashed = BuildHasherDefault<KeyHasher>;

/// Folds keys into 64 bits.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = self.0.rotate_left(32) ^ key as u64;
    }
}

thread_local! {
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns the key of a value.
pub(crate) fn key_of(value: &impl Debug) -> Key {
    TEXT.with_borrow_mut(|text| {
        text.clear();
        write!(text, "{value:?}").expect("a string accepts every write");
        truncated(blake3::Hasher::new().update(text.as_bytes()))
    })
}

/// Returns the key of a sequence of keys.
pub(crate) fn key_of_all(keys: impl IntoIterator<Item = Key>) -> Key {
    let mut hasher = blake3::Hasher::new();
    for key in keys {
        hasher.update(&key.to_le_bytes());
    }
    truncated(&hasher)
}

/// Returns the key of a sequence of numbers.
pub(crate) fn key_of_words(words: &[u32]) -> Key {
    truncated(blake3::Hasher::new().update(words.as_bytes()))
}

fn truncated(hasher: &blake3::Hasher) -> Key {
    let bytes = *hasher.finalize().as_bytes();
    Key::from_le_bytes(bytes[..16].try_into().expect("a hash has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use faultline_core::{Chunk, Payload};

    use super::*;

    #[test]
    fn different_values_have_different_keys() {
        let keys = [key_of(&1), key_of(&2), key_of(&[1, 2]), key_of(&12)];
        let mut distinct = keys.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), keys.len());
        assert_ne!(key_of_all(keys), key_of_all(keys.into_iter().rev()), "the order matters");
    }

    /// Queues, logs and images contain bytes that are opaque to protocols.
    #[test]
    fn different_bytes_of_the_same_length_have_different_keys() {
        for len in [4, 100] {
            let (ones, twos) = (vec![1; len], vec![2; len]);
            assert_ne!(key_of(&[Payload::from_slice(&ones)]), key_of(&[Payload::from_slice(&twos)]));
            assert_ne!(key_of(&Chunk::Bytes(ones.into())), key_of(&Chunk::Bytes(twos.into())));
        }
    }
}
