//! Random choices: one stream of ChaCha8 for each part of the simulation, so that a change in one does not shift another.

use faultline_core::Span;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of random choices.
#[derive(Clone, Debug)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// Stream number `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Dice {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Dice(rng)
    }

    /// Uniform below `bound`, and 0 for a `bound` of 0. The bias, below bound / 2^64, is accepted.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound <= 1 {
            return 0;
        }
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform from zero to `most`.
    pub(crate) fn span(&mut self, most: Span) -> Span {
        Span(self.below(most.0.saturating_add(1)))
    }

    /// Whether something of this probability happens.
    pub(crate) fn happens(&mut self, parts_per_million: u32) -> bool {
        parts_per_million > 0 && self.below(1_000_000) < u64::from(parts_per_million)
    }
}
