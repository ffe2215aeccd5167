//! Random choices. Each part of the simulation has its own stream of ChaCha8, so that a change in one part does not
//! shift the choices of another.

use faultline_core::Span;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of random choices.
#[derive(Clone, Debug)]
pub(crate) struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// Creates stream number `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> RandomStream {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        RandomStream(rng)
    }

    /// Returns a uniform number below `bound`, or 0 if `bound` is 0. The bias, less than bound / 2^64, is accepted.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound <= 1 {
            return 0;
        }
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a uniform span from zero to `most`.
    pub(crate) fn span(&mut self, most: Span) -> Span {
        Span(self.below(most.0.saturating_add(1)))
    }

    /// Returns `true` with the given probability.
    pub(crate) fn happens(&mut self, parts_per_million: u32) -> bool {
        parts_per_million > 0 && self.below(1_000_000) < u64::from(parts_per_million)
    }
}
