//! Random draws from one seed.

use faultline_api::quantity::Duration;
use faultline_core::Span;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

/// The only source of randomness of a scenario.
pub(crate) struct Chance(ChaCha8Rng);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns the stream of a seed that decides about its nodes.
    pub(crate) fn of_nodes(seed: u64) -> Chance {
        Chance::of_stream(seed, 1)
    }

    /// Returns the stream of a seed that decides which nodes are slow.
    pub(crate) fn of_slow_nodes(seed: u64) -> Chance {
        Chance::of_stream(seed, 2)
    }

    /// Returns the stream of a seed that decides which bits are flipped in memory.
    pub(crate) fn of_flips(seed: u64) -> Chance {
        Chance::of_stream(seed, 3)
    }

    fn of_stream(seed: u64, stream: u64) -> Chance {
        let mut chance = Chance::new(seed);
        chance.0.set_stream(stream);
        chance
    }

    /// Draws a number in `from..=to`. All are equally likely.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        self.0.random_range(from..=to)
    }

    /// Returns `true` in `percent` percent of the draws.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.between(0, 99) < percent
    }

    /// Picks one element. All are equally likely.
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as u64 - 1) as usize].clone()
    }

    /// Draws a duration, with each order of magnitude equally likely.
    pub(crate) fn span(&mut self, from: Span, to: Span) -> Span {
        let (from, to) = (from.0.max(1), to.0.max(1));
        let magnitude = self.between(u64::from(from.ilog2()), u64::from(to.ilog2()));
        short(Span(self.between(1 << magnitude, (2 << magnitude) - 1).clamp(from, to)))
    }

    /// Draws a duration in the form used in files, with each order of magnitude equally likely.
    pub(crate) fn duration(&mut self, from: Span, to: Span) -> Duration {
        Duration(self.span(from, to))
    }
}

/// Rounds down to two significant digits, for readability.
pub(crate) fn short(span: Span) -> Span {
    let unit = 10_u64.pow(span.0.max(1).ilog10().saturating_sub(1));
    Span(span.0 / unit * unit)
}
