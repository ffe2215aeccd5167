//! Small hashes: 64 bits for state that depends on its entire history, 128 bits for results.

use faultline_core::Digest;

/// The finaliser of SplitMix64: a bijection in which every input bit affects every output bit.
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns the digest of the concatenation of `parts`.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut digest = Digest([0; 16]);
    digest.0.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    digest
}
