//! Message-passing programs: sends, receives by named sources, gathers, polls with a fence, and collectives.
//!
//! A [`Program`] says what it does next, one [`Step`] at a time, and is told what came of it. [`Performer`] makes an
//! application of it, which every driver and every protocol runs. `docs/applications.md` is the guide.
//!
//! What a program can say is what a protocol that repeats executions can protect. Every receive names its sources, and
//! what comes from one source is received in the order in which it was sent; so what a program receives, and what it had
//! received before each send, does not depend on the order of arrival, nor on any timing. "Any *k* of *n*, then send" cannot be
//! written: a gather waits for *all* of its set, and a poll tells the program nothing but, at its fence, the messages.
//! The price is that a program cannot give work to whoever is free first.
//!
//! | module | holds |
//! | --- | --- |
//! | `collective` | barrier, broadcast, reduction and all-to-all, as sends and receives |
//! | `mailbox` | what has arrived and was not received yet |
//! | `performer` | a program as an application |
//! | `sequential` | all ranks in one loop: what a run without failures must compute |

mod collective;
mod mailbox;
mod performer;
mod sequential;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::{Digest, Payload, Progress, Span};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::mix::digest;
pub use collective::Operation;
pub use performer::{Computation, Performer};
pub use sequential::sequential;

/// One rank of a message-passing program: what it does, apart from its state.
///
/// The value itself never changes; what changes is its [`State`](Program::State), of which a checkpoint holds a copy.
pub trait Program: Clone + Debug + Send + Sync + 'static {
    /// Its parameters, equal for all ranks.
    type Config: Clone + Debug;
    /// Everything that the rank knows and that is not in its parameters.
    type State: Clone + Debug + Serialize + DeserializeOwned + Send + Sync;

    /// The program of the rank at `place`.
    fn new(config: &Arc<Self::Config>, place: Place) -> Self;
    /// Its state before the first step.
    fn begin(&self) -> Self::State;
    /// What it does next; asked again when that is done. What it computes it computes here: [`Step::Compute`] is only the
    /// time that it takes.
    fn next(&self, state: &mut Self::State) -> Step;
    /// What the last step has brought, in the order in which it named the sources.
    fn received(&self, state: &mut Self::State, messages: Vec<Message>);
    /// The result, asked for when the rank has finished; see [`digest_of`].
    fn result(&self, state: &Self::State) -> Vec<u8>;
    /// How far it is.
    fn progress(&self, state: &Self::State) -> Progress;
    /// Bytes of state beside [`State`](Program::State) of which only the length matters: what a checkpoint costs.
    fn bulk(&self) -> u64 {
        0
    }
}

/// Which rank of how many, in the order of the federation's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The own number; the first is 0.
    pub me: u32,
    /// How many there are.
    pub ranks: u32,
}

/// What a program does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Computes for so long.
    Compute(Span),
    /// Sends a message, which takes no time.
    Send {
        /// Another rank.
        to: u32,
        /// What it says.
        content: Vec<u8>,
    },
    /// Waits for the next message from a rank.
    Receive {
        /// Another rank.
        from: u32,
    },
    /// Waits for the next message from each of several ranks.
    Gather {
        /// Different other ranks.
        from: Vec<u32>,
    },
    /// As [`Step::Gather`], but computes while it waits: piece by piece, and before each piece it looks whether all messages
    /// have arrived. The fence is at its end: what was there earlier is handed over then, and nothing can be sent before.
    Poll {
        /// Different other ranks.
        from: Vec<u32>,
        /// How long one piece takes.
        piece: Span,
        /// Pieces at most; when they are done it waits.
        pieces: u32,
    },
    /// Waits until every rank has come to its barrier. Brings nothing.
    Barrier,
    /// Brings what one rank says to every rank, to itself as well.
    Broadcast {
        /// Who says it; equal for all ranks.
        root: u32,
        /// What it says; that of other ranks is ignored.
        content: Vec<u8>,
    },
    /// Brings numbers of all ranks, taken together place by place, to one of them; see [`Message::unpack`]. The others get
    /// nothing. Sums are formed in an order that depends on the number of ranks only.
    Reduce {
        /// Who gets it; equal for all ranks.
        root: u32,
        /// The own numbers, as many as everybody's.
        part: Vec<f64>,
        /// How they are taken together; equal for all ranks.
        operation: Operation,
    },
    /// Brings what every rank says to this one, in the order of the ranks, the own words among them.
    AllToAll {
        /// What this rank says, by rank.
        contents: Vec<Vec<u8>>,
    },
    /// Has finished.
    Finish,
}

impl Step {
    /// Sends a value.
    pub fn send(to: u32, value: &impl Serialize) -> Step {
        Step::Send { to, content: pack(value) }
    }
}

/// What a rank has received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Whose it is.
    pub from: u32,
    /// What it says, and then its number on the channel.
    sealed: Payload,
}

/// Bytes of the number that every message has at its end.
pub const NUMBER: usize = size_of::<u32>();

impl Message {
    /// A message that did not travel.
    fn of(from: u32, content: Vec<u8>) -> Message {
        Message { from, sealed: seal(content, 0) }
    }

    /// What it says.
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.sealed.bytes();
        &bytes[..bytes.len() - NUMBER]
    }

    /// The value that was packed.
    ///
    /// # Panics
    ///
    /// When the sender has packed something else.
    pub fn unpack<T: DeserializeOwned>(&self) -> T {
        postcard::from_bytes(self.bytes()).expect("the sender packs what the receiver unpacks")
    }
}

/// The bytes of a value, for a message.
pub fn pack(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("what a program says can be encoded")
}

/// The digest of a rank's result: what it says, and how many messages have arrived in all, so that one too many shows.
pub fn digest_of(result: &[u8], arrived: u64) -> Digest {
    digest([result, &arrived.to_le_bytes()])
}

/// A message as it travels.
fn seal(mut content: Vec<u8>, number: u32) -> Payload {
    content.extend_from_slice(&number.to_le_bytes());
    Payload::from_slice(&content)
}

/// The number of a message that has travelled; `None` for one that no program has sent.
fn number_of(sealed: &Payload) -> Option<u32> {
    sealed.bytes().last_chunk().map(|it| u32::from_le_bytes(*it))
}
