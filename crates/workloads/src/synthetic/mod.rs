//! Traffic without content: the application file of the HC3I paper's simulator (section 5.1), and a benchmark.
//!
//! Ranks compute and send; what they receive does not influence them. So the ranks of a cluster are alike, and a
//! rank that is rolled back sends the same messages again.
//!
//! ```text
//!   rank of cluster 0    ──compute──●──compute────●●──compute──●──▶
//!                                   │ p[0][0]     ││ p[0][1]   │
//!                                   ▼             │▼           ▼
//!   another of cluster 0 ─────compute─────●───────┼────compute─────▶
//!                                                 ▼
//!   some rank of cluster 1  ────────────compute──────●──compute────▶
//! ```
//!
//! * [`Traffic::Random`]: after each computation, independently for each cluster, a message with a given probability.
//! * [`Traffic::Exact`]: a given number of messages for each ordered pair of clusters, at uniformly random instants.
//! * [`Traffic::Burst`]: messages as fast as possible, inside the own cluster and, rarely, to the next.
//!
//! A rank finishes when it has computed and sent everything, not when it has received everything: its digest, of what
//! it sent in order and of the multiset of those from whom it received, is settled when the network is empty.
//! Messages and state are virtual, and the state machine is small, because it is what the simulator is measured with.

mod config;
mod plan;

use alloc::sync::Arc;
use faultline_core::{Chunk, Digest, Membership, Outbox, Payload, ProcessId, Progress, Span};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::mix::{digest, mix};
use crate::peers::Peers;
pub use config::{Behaviour, Config, Traffic};
use plan::Plan;

/// One rank.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    peers: Peers,
    plan: Plan,
    /// Length of a message.
    message: u64,
    state_bytes: u64,
    rng: ChaCha8Rng,
    state: State,
}

/// What changes, beside the position of the random numbers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct State {
    /// Computing time so far.
    elapsed: Span,
    /// Duration of the current computation.
    current: Span,
    sent: u64,
    /// Hash of the receivers, in the order of sending.
    receivers: u64,
    /// Sum of the hashes of those from whom messages came: identifies the multiset.
    senders: u64,
}

impl Rank {
    pub(crate) fn new(config: &Config, me: ProcessId, membership: &Membership, seed: u64) -> Rank {
        let peers = Peers::new(me, membership);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let plan = Plan::new(&config.traffic, &peers, &mut rng);
        let message = config.message_bytes.into();
        let mut rank =
            Rank { peers, plan, message, state_bytes: config.state_bytes, rng, state: State::default() };
        rank.begin();
        rank
    }

    /// The state before the first computation. What happens from here on has random numbers of its own, so that a
    /// return to this point needs not draw the plan again.
    fn begin(&mut self) {
        self.rng.set_stream(1);
        self.rng.set_word_pos(0);
        self.state = State::default();
        self.state.current = self.plan.computation(&self.state, &mut self.rng);
    }

    #[inline]
    pub(crate) fn deliver(&mut self, from: ProcessId) {
        self.state.senders = self.state.senders.wrapping_add(mix(from.0.into()));
    }

    /// How long the next computation takes.
    #[inline]
    pub(crate) fn next_job(&self) -> Option<Span> {
        (!self.plan.is_over(&self.state)).then_some(self.state.current)
    }

    pub(crate) fn computed(&mut self, out: &mut Outbox) {
        let Rank { peers, plan, message, rng, state, .. } = self;
        state.elapsed = state.elapsed + state.current;
        let (mut sent, mut receivers) = (state.sent, state.receivers);
        plan.sends(state, peers, rng, |to| {
            sent += 1;
            receivers = mix(receivers ^ u64::from(to.0));
            out.send(to, Payload::Virtual(*message));
        });
        (state.sent, state.receivers) = (sent, receivers);
        state.current = plan.computation(state, rng);
    }

    pub(crate) fn snapshot(&self) -> Arc<[Chunk]> {
        // The position is counted in words of 32 bits; a run does not draw 2^64 of them.
        let position = self.rng.get_word_pos() as u64;
        let state = postcard::to_allocvec(&(self.state, position)).expect("numbers can be encoded");
        [Chunk::Bytes(state.into()), Chunk::Virtual(self.state_bytes)].into()
    }

    pub(crate) fn restore(&mut self, chunks: Option<&[Chunk]>) {
        match chunks {
            None => self.begin(),
            Some([Chunk::Bytes(bytes), Chunk::Virtual(_)]) => {
                let (state, position): (State, u64) =
                    postcard::from_bytes(bytes).expect("a snapshot of this application");
                self.state = state;
                self.rng.set_word_pos(position.into());
            }
            Some(_) => panic!("a snapshot of this application has two chunks"),
        }
    }

    #[inline]
    pub(crate) fn result(&self) -> Option<Digest> {
        self.plan.is_over(&self.state).then(|| {
            let State { sent, receivers, senders, .. } = self.state;
            let numbers = [sent, receivers, senders].map(u64::to_le_bytes);
            digest(numbers.iter().map(|number| &number[..]))
        })
    }

    pub(crate) fn progress(&self) -> Progress {
        self.plan.progress(&self.state)
    }
}
