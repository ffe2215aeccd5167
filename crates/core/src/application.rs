//! The programs that protocols protect.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Debug};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::id::{Incarnation, ProcessId};
use crate::image::Chunk;
use crate::membership::Membership;
use crate::message::Payload;
use crate::time::Span;

/// A piece of computation that owns its data, so that it runs on a worker while the process handles messages.
pub trait Job: Clone + Debug + PartialEq + Send + 'static {
    /// What the computation gives back.
    type Output: Clone + Debug + PartialEq + Send + 'static;
    /// How long it takes: what the simulator charges, and what a real driver spends at least, by waiting out the rest.
    fn cost(&self) -> Span;
    /// Computes. Pure: no clock, no I/O, no shared state.
    fn run(self) -> Self::Output;
}

/// Identifies the result of an application: equal results, equal digests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 16]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// How far an application is, in steps of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub done: u64,
    /// Steps in all; 0 when unknown.
    pub total: u64,
}

/// Where an application puts what it sends.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// Messages in the order of sending.
    pub sends: Vec<(ProcessId, Payload)>,
    /// Messages consumed, in the order of consuming: how many of `sends` went before, the sender, the number on its
    /// channel.
    pub consumed: Vec<(usize, ProcessId, u32)>,
}

impl Outbox {
    /// Sends `payload` to `to`.
    #[inline]
    pub fn send(&mut self, to: ProcessId, payload: Payload) {
        self.sends.push((to, payload));
    }

    /// Says that from here on the program's actions may depend on message `number` from `from` (the first is 0), which
    /// has been delivered. What was delivered and not consumed has influenced nothing that the program sends.
    ///
    /// A protocol that [repeats](crate::Protocol::REPEATS) executions orders messages by what was consumed before them;
    /// others do not look.
    pub fn consume(&mut self, from: ProcessId, number: u32) {
        self.consumed.push((self.sends.len(), from, number));
    }
}

/// One rank of a parallel program: explicit state, explicit sends and receipts, no clock, no I/O.
///
/// A rank acts when a message is delivered or a job returns. It is never delivered to, nor asked for a job, while its
/// protocol holds it.
pub trait Application: Clone + Debug + Sized {
    /// Its computation.
    type Job: Job;
    /// Its parameters, equal for all ranks.
    type Config: Clone + Debug;

    /// The state before the first step. `seed` is this rank's own.
    fn new(config: &Arc<Self::Config>, me: ProcessId, membership: &Membership, seed: u64) -> Self;
    /// A message has arrived.
    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox);
    /// A job has returned.
    fn computed(&mut self, done: <Self::Job as Job>::Output, out: &mut Outbox);
    /// The next computation, when one is possible. Not asked again until it has returned.
    fn next_job(&mut self) -> Option<Self::Job>;
    /// The state now. `None`: the job that is out holds it; asked again when it is back.
    fn snapshot(&self) -> Option<Arc<[Chunk]>>;
    /// Replaces the state by a saved one, or by the initial one when `chunks` is `None`. A job that is out is void.
    /// A *salted* application mixes `salt` into everything it sends from now on, so that a re-execution differs from
    /// the execution it repeats.
    fn restore(&mut self, chunks: Option<&[Chunk]>, salt: Incarnation);
    /// The result, once the rank has finished.
    fn result(&self) -> Option<Digest>;
    /// How far it is.
    fn progress(&self) -> Progress;
    /// What each rank computes when nothing fails; `None` when that is an accident of timing, or nothing computes it in
    /// another way. `seed` gives each rank's own seed.
    fn reference(
        _config: &Arc<Self::Config>,
        _membership: &Membership,
        _seed: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        None
    }
    /// Whether this rank has left the program: from this state on it neither sends nor is sent to. Only ranks of a cluster
    /// that leaves ever say so, and all of them do in the end.
    fn has_left(&self) -> bool {
        false
    }
}

/// Values that drivers move between processes or to storage.
pub trait Wire: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static> Wire for T {}
