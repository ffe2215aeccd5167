//! Opaque bytes: their `Debug` output, and flipped bits.

use alloc::vec::Vec;
use core::fmt;

use crate::id::finish;

/// Opaque bytes. Their `Debug` output differs for different bytes, although it is short: content of up to
/// [`Content::SHOWN`] bytes is printed in full; longer content is represented by a 128-bit hash.
pub(crate) struct Content<'a>(pub(crate) &'a [u8]);

impl Content<'_> {
    const SHOWN: usize = 32;

    fn hash(&self) -> u128 {
        let (mut low, mut high) = (0, self.0.len() as u64);
        for chunk in self.0.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_le_bytes(word);
            low = finish(low ^ word);
            high = finish(high.wrapping_add(word).rotate_left(23));
        }
        u128::from(high) << 64 | u128::from(low)
    }
}

impl fmt::Debug for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())?;
        match self.0 {
            [] => Ok(()),
            bytes if bytes.len() > Content::SHOWN => write!(f, " with hash {:032x}", self.hash()),
            bytes => {
                f.write_str(" ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// Returns the content with one bit flipped, which `bit` chooses; `None` if the content is empty.
pub(crate) fn with_flipped_bit(content: &[u8], bit: u64) -> Option<Vec<u8>> {
    let bit = bit.checked_rem(content.len() as u64 * 8)?;
    let mut content = content.to_vec();
    content[(bit / 8) as usize] ^= 1 << (bit % 8);
    Some(content)
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeSet, format, vec};

    use crate::{Chunk, Payload};

    #[test]
    fn contents_of_equal_length_differ_in_their_debug_output() {
        for len in [1, 15, 16, 32, 33, 100] {
            let mut printed = BTreeSet::new();
            for place in 0..len {
                for value in 1..=255 {
                    let mut bytes = vec![0; len];
                    bytes[place] = value;
                    let (payload, chunk) = (Payload::from_slice(&bytes), Chunk::Bytes(bytes.into()));
                    assert_eq!(format!("{payload:?}"), format!("{chunk:?}"));
                    assert!(printed.insert(format!("{chunk:?}")), "{chunk:?}");
                }
            }
        }
        let short = Payload::from_slice(&[1, 0xab]);
        assert_eq!(format!("{short:?} {:?}", Payload::Virtual(2)), "2 bytes 01ab 2 bytes");
        assert!(format!("{:?}", Payload::from_slice(&[7; 1000])).len() < 60);
    }
}
