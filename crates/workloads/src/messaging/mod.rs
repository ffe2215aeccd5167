//! Message-passing programs: sends, receives from named sources, gathers, polls with a fence, and
//! collectives.
//!
//! A [`Program`] defines its next action, one [`Step`] at a time, and receives the outcome. [`Performer`] turns it
//! into an application, which runs on every driver and under every protocol. `docs/applications.md` is the guide.
//!
//! The available steps are limited, so that a protocol that relies on re-execution to send the same messages can
//! protect every program. Every receive names its sources, and messages from one source are received in the order in
//! which they were sent. The messages that a program receives, and those that it has received before each send,
//! therefore depend neither on the order of arrival nor on timing. A program cannot wait for whichever *k* of *n*
//! messages arrive first and then send: a gather waits for *all* of its sources, and a poll passes the program nothing
//! but the messages, and only at its fence. The drawback is that a program cannot assign work to the first idle rank.
//!
//! | module | content |
//! | --- | --- |
//! | `collective` | barrier, broadcast, reduction and all-to-all, built from sends and receives |
//! | `mailbox` | messages that have arrived but have not been received |
//! | `performer` | a program as an application |
//! | `sequential` | all ranks in one loop: the expected result of a run without failures |

mod collective;
mod mailbox;
mod performer;
mod sequential;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::{Breakage, Digest, Life, Payload, ProcessId, Progress, Span};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::mix::digest;
pub use collective::Operation;
pub use performer::{Computation, Performer};
pub use sequential::sequential;

/// One rank of a message-passing program: its behaviour, separate from its state.
///
/// The value itself never changes. Only its [`State`](Program::State) changes, and checkpoints contain a copy
/// of it.
pub trait Program: Clone + Debug + Send + Sync + 'static {
    /// Parameters of the program, the same for all ranks.
    type Config: Clone + Debug;
    /// State of the rank: everything that it knows, except its parameters.
    type State: Clone + Debug + Serialize + DeserializeOwned + Send + Sync;

    /// Creates the program of the rank at `place`.
    fn new(config: &Arc<Self::Config>, place: RankInfo) -> Self;
    /// Returns the initial state.
    fn begin(&self) -> Self::State;
    /// Returns the next step. Called again once that step is done. Computations are performed within this
    /// call: [`Step::Compute`] only states the time that they take.
    fn next(&self, state: &mut Self::State) -> Step;
    /// Handles the messages that the last step received, in the order in which the step named their sources.
    fn received(&self, state: &mut Self::State, messages: Vec<Message>);
    /// Returns the result. Called once the rank has finished; see [`digest_of`].
    fn result(&self, state: &Self::State) -> Vec<u8>;
    /// Returns the rank's progress.
    fn progress(&self, state: &Self::State) -> Progress;
    /// Returns the size, in bytes, of additional state that has no content but adds to the cost of a
    /// checkpoint.
    fn bulk(&self) -> u64 {
        0
    }
    /// Handles a collective in which the ranks contribute different kinds of messages. After this call, the program can
    /// only halt.
    ///
    /// # Panics
    ///
    /// Panics by default.
    fn mismatch(&self, _state: &mut Self::State, why: String) {
        panic!("{why}")
    }
    /// Flips a bit of the state, if the program supports this; see [`Application::flip`](faultline_core::Application).
    fn flip(&self, _state: &mut Self::State, _bit: u64) -> bool {
        false
    }
    /// Returns, once, why the program can no longer act; see [`Application::failure`](faultline_core::Application).
    fn failure(&self, _process: ProcessId, _life: Life) -> Option<Arc<Breakage>> {
        None
    }
}

/// The number of a rank, in the order of the federation's processes, and the total number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankInfo {
    /// Number of this rank, from 0.
    pub me: u32,
    /// Number of ranks.
    pub ranks: u32,
}

/// The next action of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Computes for this long.
    Compute(Span),
    /// Sends a message, which takes no time.
    Send {
        /// The receiving rank, other than this one.
        to: u32,
        /// Content of the message.
        content: Vec<u8>,
    },
    /// Waits for the next message from a rank.
    Receive {
        /// The sending rank, other than this one.
        from: u32,
    },
    /// Waits for the next message from each of several ranks.
    Gather {
        /// The sending ranks, without duplicates and without this rank.
        from: Vec<u32>,
    },
    /// Same as [`Step::Gather`], but computes in pieces while it waits, and checks before each piece whether all
    /// messages have arrived. The end of the step is its fence: before then, the program receives no messages and
    /// cannot send anything.
    Poll {
        /// The sending ranks, without duplicates and without this rank.
        from: Vec<u32>,
        /// Duration of one piece.
        piece: Span,
        /// Maximum number of pieces, after which the rank only waits.
        pieces: u32,
    },
    /// Waits until every rank has reached the barrier. The program receives no messages.
    Barrier,
    /// Sends the content of one rank to all ranks, including itself.
    Broadcast {
        /// The rank that sends; the same for all ranks.
        root: u32,
        /// Content of the message; ignored on every rank except `root`.
        content: Vec<u8>,
    },
    /// Combines the numbers of all ranks, element by element, and sends the result to one rank; see
    /// [`Message::unpack`]. Other ranks receive nothing. The order of summation depends only on the number of
    /// ranks and on `root`.
    Reduce {
        /// The rank that receives the result; the same for all ranks.
        root: u32,
        /// Numbers that this rank contributes. The count is the same for all ranks.
        part: Vec<f64>,
        /// The operation that combines the numbers; the same for all ranks.
        operation: Operation,
    },
    /// Sends one message from every rank to every rank, including itself. Each rank receives its messages in the order
    /// of the ranks.
    AllToAll {
        /// Content of the message to each rank, indexed by rank.
        contents: Vec<Vec<u8>>,
    },
    /// Ends the rank's program.
    Finish,
    /// Ends the rank's program without a result, because it can no longer act.
    Halt,
}

impl Step {
    /// Creates a step that sends a value.
    pub fn send(to: u32, value: &impl Serialize) -> Step {
        Step::Send { to, content: pack(value) }
    }
}

/// A message that a rank has received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The sending rank.
    pub from: u32,
    /// The content, followed by the message's number on the channel.
    sealed: Payload,
}

/// Size of the number at the end of every message, in bytes.
pub const NUMBER: usize = size_of::<u32>();

impl Message {
    /// Creates a message that was not sent over the network: from a rank to itself, or in a test of a
    /// program.
    pub fn new(from: u32, content: Vec<u8>) -> Message {
        Message { from, sealed: seal(content, 0) }
    }

    /// Returns the content of the message.
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.sealed.bytes();
        &bytes[..bytes.len() - NUMBER]
    }

    /// Decodes the value that the sender packed.
    ///
    /// # Panics
    ///
    /// Panics if the sender packed a value of another type.
    pub fn unpack<T: DeserializeOwned>(&self) -> T {
        self.try_unpack().expect("sender and receiver use the same type")
    }

    /// Decodes a value; `None` if the sender packed a value of another type.
    pub fn try_unpack<T: DeserializeOwned>(&self) -> Option<T> {
        postcard::from_bytes(self.bytes()).ok()
    }
}

/// Encodes a value as the content of a message.
///
/// # Panics
///
/// Panics if the value cannot be encoded.
pub fn pack(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("a program's values can be encoded")
}

/// Returns the digest of a rank's result. The digest includes the number of messages that arrived, so that an
/// additional message changes it.
pub fn digest_of(result: &[u8], arrived: u64) -> Digest {
    digest([result, &arrived.to_le_bytes()])
}

/// Appends `number` to the content of a message.
fn seal(mut content: Vec<u8>, number: u32) -> Payload {
    content.extend_from_slice(&number.to_le_bytes());
    Payload::from_slice(&content)
}

/// Returns the number of a message; `None` if the message is invalid.
fn number_of(sealed: &Payload) -> Option<u32> {
    sealed.bytes().last_chunk().map(|it| u32::from_le_bytes(*it))
}
