//! The programs that protocols protect against failures.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Debug};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::claim::Breakage;
use crate::id::{Incarnation, Life, ProcessId};
use crate::image::Chunk;
use crate::membership::Membership;
use crate::message::Payload;
use crate::time::Span;

/// A unit of computation that owns its data, so that a worker can run it while the process handles messages.
pub trait Job: Clone + Debug + PartialEq + Send + 'static {
    /// The result of the computation, handed back to the application through [`Application::computed`].
    type Output: Clone + Debug + PartialEq + Send + 'static;
    /// Returns how long the computation takes. In the simulator, this is the exact duration. A real driver waits until
    /// this time has passed if the computation finishes earlier.
    fn cost(&self) -> Span;
    /// Computes the output. Must be pure: no clock, no I/O, no shared state.
    fn run(self) -> Self::Output;
}

/// Identifies the result of an application: equal results have equal digests.
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

/// Progress of an application, in steps that the application defines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps completed so far.
    pub done: u64,
    /// Total number of steps; 0 if unknown.
    pub total: u64,
}

/// Collects the messages that an application sends and consumes while it handles one event.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// Messages in the order in which the application sent them.
    pub sends: Vec<(ProcessId, Payload)>,
    /// Messages consumed, in order. Each entry contains the number of entries of `sends` that precede the
    /// consumption, the sender, and the message's number on the sender's channel.
    pub consumed: Vec<(usize, ProcessId, u32)>,
}

impl Outbox {
    /// Sends `payload` to `to`.
    #[inline]
    pub fn send(&mut self, to: ProcessId, payload: Payload) {
        self.sends.push((to, payload));
    }

    /// Declares that the program's later actions may depend on the delivered message `number` (counted from 0) from
    /// `from`. A message that was delivered but not consumed has influenced nothing that the program sends.
    ///
    /// A protocol that [relies on repetition](crate::Protocol::REPEATS) orders messages by the consumptions that
    /// precede them; other protocols ignore consumption.
    pub fn consume(&mut self, from: ProcessId, number: u32) {
        self.consumed.push((self.sends.len(), from, number));
    }
}

/// One rank of a parallel program: explicit state, explicit sends and receives, no clock, no I/O.
///
/// A rank acts when a message is delivered or a job returns. While the protocol holds the application, no message
/// is delivered and no job starts.
pub trait Application: Clone + Debug + Sized {
    /// The rank's computation.
    type Job: Job;
    /// Parameters of the program, the same for all ranks.
    type Config: Clone + Debug;

    /// Creates the initial state. Each rank has a different `seed`.
    fn new(config: &Arc<Self::Config>, me: ProcessId, membership: &Membership, seed: u64) -> Self;
    /// Handles a message that the protocol delivers.
    fn deliver(&mut self, from: ProcessId, payload: Payload, out: &mut Outbox);
    /// Handles the output of a job that has returned.
    fn computed(&mut self, done: <Self::Job as Job>::Output, out: &mut Outbox);
    /// Returns the next job, if there is one. Not called again until that job has returned or a restore has discarded
    /// it.
    fn next_job(&mut self) -> Option<Self::Job>;
    /// Returns the current state, or `None` while the job in progress holds it. In that case, the composite asks again
    /// after each event.
    fn snapshot(&self) -> Option<Arc<[Chunk]>>;
    /// Replaces the state with a saved one, or with the initial one if `chunks` is `None`. The output of a job in
    /// progress is discarded. A *salted* application mixes `salt` into everything that it sends after this call, so
    /// that a re-execution differs from the execution that it repeats.
    fn restore(&mut self, chunks: Option<&[Chunk]>, salt: Incarnation);
    /// Returns the digest of the result once the rank has finished.
    fn result(&self) -> Option<Digest>;
    /// Returns the rank's progress.
    fn progress(&self) -> Progress;
    /// Returns the digest that each rank computes in a run without failures. `None` if the result depends on
    /// timing, or cannot be computed independently. `seed` returns the seed of each rank.
    fn reference(
        _config: &Arc<Self::Config>,
        _membership: &Membership,
        _seed: &dyn Fn(ProcessId) -> u64,
    ) -> Option<Vec<(ProcessId, Digest)>> {
        None
    }
    /// Returns parameters for runs in virtual time, where no content is written or sent. With these parameters, ranks
    /// behave the same and produce the same results, but omit content that would only take up space. `None` if there
    /// are no such parameters.
    fn for_virtual_time(_config: &Self::Config) -> Option<Self::Config> {
        None
    }
    /// Returns whether this rank has left the program. Once it has left, it neither sends nor receives messages.
    /// Only ranks of a cluster that leaves ever return `true`, and each of them eventually does.
    fn has_left(&self) -> bool {
        false
    }
    /// Flips a bit of the state, chosen by `bit`, such that the rank can continue. Returns whether it did; never, by
    /// default. Not called while a job is running.
    fn flip(&mut self, _bit: u64) -> bool {
        false
    }
    /// Returns, once, why this rank can no longer act, if it is a user's program that broke its contract. The rank is
    /// that of `process` in this life.
    fn failure(&mut self, _process: ProcessId, _life: Life) -> Option<Arc<Breakage>> {
        None
    }
}

/// Values that drivers move between processes or write to storage.
pub trait Wire: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {}
impl<T: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static> Wire for T {}
