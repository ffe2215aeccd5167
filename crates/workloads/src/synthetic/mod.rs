//! Traffic whose messages have no content. It follows the application file of the HC3I paper's simulator (section 5.1),
//! or is a burst for benchmarks.
//!
//! Ranks compute and send regardless of what they receive, so a rank that rolled back sends the same messages again.
//! All ranks of a cluster behave alike.
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
//! * [`Traffic::Random`]: after each computation, a message to each cluster with a given probability, independently of
//!   the other clusters.
//! * [`Traffic::Exact`]: a given number of messages for each ordered pair of clusters, at uniformly random instants.
//! * [`Traffic::Burst`]: messages as fast as possible, within the sender's cluster or, with a given probability, to
//!   the next.
//!
//! A cluster may take part in the program for only part of the time ([`Term`]). When a cluster leaves, all ranks that
//! may have sent to it send it a farewell (`leave`): its ranks finish once all messages to them have arrived.
//!
//! Any other rank finishes once it has computed and sent everything, whether or not it has received
//! everything. Its digest covers its sends, in order, and the multiset of senders from which it received; the
//! digest is final once the network is empty. Messages and state are virtual, and the state machine is small,
//! because benchmarks of the simulator use it.

mod config;
mod leave;
mod plan;

use alloc::boxed::Box;
use alloc::sync::Arc;
use faultline_core::{Chunk, Digest, Membership, Outbox, Payload, ProcessId, Progress, Span};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::mix::{digest, mix};
use crate::peers::Peers;
pub use config::{Behaviour, Config, Term, Traffic};
use leave::Leave;
use plan::Plan;

/// One rank of the synthetic application.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    peers: Peers,
    plan: Plan,
    /// Length of a message in bytes.
    message: u64,
    state_bytes: u64,
    rng: ChaCha8Rng,
    state: State,
    /// Time at which the rank begins.
    joins: Span,
    /// Handles the departure of clusters; `None` if no cluster leaves.
    leave: Option<Box<Leave>>,
}

/// The part of a rank that changes, apart from `leave` and the position in the stream of random numbers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct State {
    /// Computing time so far.
    elapsed: Span,
    /// Duration of the current computation.
    current: Span,
    sent: u64,
    /// Hash of the receivers, in the order of the sends.
    receivers: u64,
    /// Sum of the hashes of all senders from which messages arrived: a hash of the multiset.
    senders: u64,
}

impl Rank {
    pub(crate) fn new(config: &Config, me: ProcessId, membership: &Membership, seed: u64) -> Rank {
        let peers = Peers::new(me, membership);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let plan = Plan::new(config, &peers, &mut rng);
        let message = config.message_bytes.into();
        let (joins, leave) = match config.traffic {
            Traffic::Random { total, .. } | Traffic::Exact { total, .. } => {
                (config.term(peers.own(), total).0, Leave::new(config, &peers, total))
            }
            Traffic::Burst { .. } => (Span::ZERO, None),
        };
        let state_bytes = config.state_bytes;
        let mut rank = Rank { peers, plan, message, state_bytes, rng, state: State::default(), joins, leave };
        rank.begin();
        rank
    }

    /// Resets the state to what it is before the first computation. Everything afterwards uses a separate stream of
    /// random numbers, so that a rollback to this state does not require drawing the plan again.
    fn begin(&mut self) {
        self.rng.set_stream(1);
        self.rng.set_word_pos(0);
        self.state = State { elapsed: self.joins, ..State::default() };
        if let Some(leave) = &mut self.leave {
            leave.begin();
        }
        self.plan_computation();
    }

    /// Determines the duration of the next computation, which ends early if a farewell is due.
    fn plan_computation(&mut self) {
        let Rank { plan, rng, state, leave, .. } = self;
        state.current = plan.computation(state, rng);
        if let Some(at) = leave.as_ref().and_then(|it| it.next_farewell()) {
            state.current = state.current.min(at - state.elapsed);
        }
    }

    #[inline]
    pub(crate) fn deliver(&mut self, from: ProcessId, payload: &Payload, out: &mut Outbox) {
        if let Some(leave) = &mut self.leave
            && leave.deliver(payload, out)
        {
            return;
        }
        self.state.senders = self.state.senders.wrapping_add(mix(from.0.into()));
    }

    /// Returns the duration of the next computation.
    #[inline]
    pub(crate) fn next_job(&self) -> Option<Span> {
        (!self.plan.is_over(&self.state)).then_some(self.state.current)
    }

    pub(crate) fn computed(&mut self, out: &mut Outbox) {
        let Rank { peers, plan, message, rng, state, leave, .. } = self;
        state.elapsed = state.elapsed + state.current;
        let (mut sent, mut receivers) = (state.sent, state.receivers);
        plan.sends(state, peers, rng, |to| {
            sent += 1;
            receivers = mix(receivers ^ u64::from(to.0));
            if let Some(leave) = leave {
                leave.sent(to);
            }
            out.send(to, Payload::Virtual(*message));
        });
        (state.sent, state.receivers) = (sent, receivers);
        if let Some(leave) = leave {
            leave.take(state.elapsed, out);
        }
        self.plan_computation();
    }

    pub(crate) fn snapshot(&self) -> Arc<[Chunk]> {
        // The position counts 32-bit words. A run uses fewer than 2^64 of them.
        let position = self.rng.get_word_pos() as u64;
        let mut state = postcard::to_allocvec(&(self.state, position)).expect("numbers can be encoded");
        if let Some(leave) = &self.leave {
            state.extend(leave.saved());
        }
        [Chunk::Bytes(state.into()), Chunk::Virtual(self.state_bytes)].into()
    }

    pub(crate) fn restore(&mut self, chunks: Option<&[Chunk]>) {
        match chunks {
            None => self.begin(),
            Some([Chunk::Bytes(bytes), Chunk::Virtual(_)]) => {
                let ((state, position), rest): ((State, u64), &[u8]) =
                    postcard::take_from_bytes(bytes).expect("the bytes are a snapshot of this application");
                self.state = state;
                if let Some(leave) = &mut self.leave {
                    leave.restore(rest);
                }
                self.rng.set_word_pos(position.into());
            }
            Some(_) => panic!("a snapshot of this application has two chunks"),
        }
    }

    #[inline]
    pub(crate) fn result(&self) -> Option<Digest> {
        let is_left = self.leave.as_ref().is_none_or(|it| it.is_over());
        (self.plan.is_over(&self.state) && is_left).then(|| {
            let State { sent, receivers, senders, .. } = self.state;
            let numbers = [sent, receivers, senders].map(u64::to_le_bytes);
            digest(numbers.iter().map(|number| &number[..]))
        })
    }

    pub(crate) fn progress(&self) -> Progress {
        self.plan.progress(&self.state)
    }

    /// Returns `true` if the rank's cluster leaves and the rank has nothing left to send or receive.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        let leave = self.leave.as_ref().filter(|it| it.is_own());
        leave.is_some_and(|it| it.is_over() && self.plan.is_over(&self.state))
    }
}
