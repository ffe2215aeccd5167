//! Ping-pong, as in NetPIPE: the first rank sends a message to the last one, which replies with a message of the same
//! length. The two ranks repeat this several times for each length. The second rank does the same with the
//! second-to-last one, and so on in pairs. A rank in the middle without a partner finishes immediately.
//!
//! The application has no clock. The duration of a round trip follows from the facts of the rank that begins
//! it: it is the time from one send to the next.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::Progress;
use serde::{Deserialize, Serialize};

use crate::invalid::{Invalid, has_peers, in_range};
use crate::messaging::{Message, NUMBER, Program, RankInfo, Step, pack};
use crate::mix::mix;

/// Parameters of ping-pong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Lengths of messages in bytes, in the order in which they are used. Every message has at least 5 bytes.
    pub sizes: Vec<u32>,
    /// Number of round trips per length.
    pub rounds: u32,
}

impl Default for Config {
    /// Returns the defaults: lengths from 8 bytes to 1 MiB, with 100 round trips each.
    fn default() -> Self {
        Config { sizes: (3..=20).map(|it| 1 << it).collect(), rounds: 100 }
    }
}

/// Maximum total number of round trips.
const MAX_ROUND_TRIPS: u64 = 1 << 24;

impl Config {
    pub(crate) fn validate(&self, clusters: &[usize]) -> Result<(), Invalid> {
        in_range("rounds", self.rounds.into(), MAX_ROUND_TRIPS)?;
        in_range("sizes.len() * rounds", self.sizes.len() as u64 * u64::from(self.rounds), MAX_ROUND_TRIPS)?;
        let longest = self.sizes.iter().max().copied().unwrap_or_default();
        in_range("sizes", u64::from(longest).max(1), 1 << 28)?;
        has_peers(clusters)
    }
}

/// One rank of a pair.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    config: Arc<Config>,
    me: u32,
    /// The other rank of the pair.
    partner: Option<u32>,
}

/// State of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    /// Number of sends and receives that have begun.
    done: u64,
    hash: u64,
}

impl Program for Rank {
    type Config = Config;
    type State = State;

    fn new(config: &Arc<Config>, RankInfo { me, ranks }: RankInfo) -> Rank {
        let partner = Some(ranks - 1 - me).filter(|it| *it != me);
        Rank { config: config.clone(), me, partner }
    }

    fn begin(&self) -> State {
        State { done: 0, hash: mix(self.me.into()) }
    }

    fn next(&self, state: &mut State) -> Step {
        let Some(partner) = self.partner.filter(|_| state.done < self.total()) else { return Step::Finish };
        let round = state.done / 2;
        let serves = self.me < partner;
        let sends = state.done.is_multiple_of(2) == serves;
        state.done += 1;
        if !sends {
            return Step::Receive { from: partner };
        }
        let size = self.config.sizes[(round / u64::from(self.config.rounds)) as usize] as usize;
        let mut content = state.hash.to_le_bytes().to_vec();
        content.resize(size.saturating_sub(NUMBER).max(1), 0);
        Step::Send { to: partner, content }
    }

    fn received(&self, state: &mut State, messages: Vec<Message>) {
        let mut value = [0; 8];
        for it in messages {
            value.iter_mut().zip(it.bytes()).for_each(|(one, other)| *one = *other);
        }
        state.hash = mix(state.hash ^ mix(u64::from_le_bytes(value)));
    }

    fn result(&self, state: &State) -> Vec<u8> {
        pack(&state.hash)
    }

    fn progress(&self, state: &State) -> Progress {
        Progress { done: state.done, total: self.partner.map_or(0, |_| self.total()) }
    }

    fn flip(&self, state: &mut State, bit: u64) -> bool {
        state.hash ^= 1 << (bit % 64);
        true
    }
}

impl Rank {
    /// Returns the number of sends and receives of one rank.
    fn total(&self) -> u64 {
        2 * self.config.sizes.len() as u64 * u64::from(self.config.rounds)
    }
}
