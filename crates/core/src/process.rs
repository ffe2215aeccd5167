//! What a driver sees: one state machine per process, its events and its actions.
//!
//! The driver's contract, the same for every driver and tested with one body of tests:
//!
//! * one event at a time; the actions of an event are performed in order, each class (network, storage, computation)
//!   on its own after that;
//! * storage actions of one process complete in order, so that a listing sees every earlier write;
//! * a crash drops the value and keeps only what was reported durable, even where the operating system would have kept
//!   more;
//! * a life's number is durable outside the node before the life starts;
//! * between two lives nothing is delivered twice, nothing is lost, and nothing from or to an older life is delivered;
//!   a packet from a life newer than the known membership waits; where the process does not declare FIFO, packets may
//!   overtake each other;
//! * completions belong to the life that asked.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use serde::{Deserialize, Serialize};

use crate::application::{Job, Progress, Wire};
use crate::fact::Fact;
use crate::id::{ClusterId, JobNo, ProcessId};
use crate::image::{Image, ImageName};
use crate::membership::{Birth, Membership};
use crate::message::{MessageId, Payload};
use crate::protocol::Stamp;
use crate::time::Time;

/// What crosses the network between two processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Packet<S, M, H, V> {
    /// An application message with what its protocol piggybacks on it.
    Application {
        /// Its identity.
        id: MessageId,
        /// What is piggybacked.
        stamp: S,
        /// Its content.
        payload: Payload,
    },
    /// A message of the protocol.
    Control(M),
    /// Part of a checkpoint, on its way to a holder or back to its owner.
    Image(Arc<Image<H, V>>),
}

impl<S, M, H, V> Packet<S, M, H, V> {
    /// Bytes that the packet is charged on an emulated link: a fixed header, then payload or application state. Small
    /// protocol fields count as part of the header.
    pub fn wire_len(&self) -> u64 {
        const HEADER: u64 = 64;
        match self {
            Packet::Application { payload, .. } => HEADER + payload.len() as u64,
            Packet::Control(_) => HEADER,
            Packet::Image(image) => HEADER + image.snapshot.len(),
        }
    }
}

/// Receivers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// One process.
    One(ProcessId),
    /// Every process of a cluster but the sender: one action, one shared packet.
    Cluster(ClusterId),
}

/// What happens to a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<S, M, H, V, O> {
    /// A packet arrived.
    Packet {
        /// Sender.
        from: ProcessId,
        /// Content.
        packet: Packet<S, M, H, V>,
    },
    /// An image is durable in this process's storage.
    Persisted(ImageName),
    /// An image could not be written; nothing of it is there.
    PersistFailed(ImageName),
    /// Answer to [`Action::Read`]; `None` when the image is not there, or not intact.
    Read {
        /// Which was asked for.
        name: ImageName,
        /// It.
        image: Option<Arc<Image<H, V>>>,
    },
    /// Answer to [`Action::List`]: all images in this storage, ascending by name.
    Listed(Vec<(ImageName, Arc<H>)>),
    /// A record is durable.
    Recorded {
        /// Which.
        version: u64,
    },
    /// The membership changed.
    Membership(Arc<Membership>),
    /// A job returned.
    Computed(JobNo, O),
    /// The deadline has passed, perhaps; early and repeated ones are harmless.
    Timeout,
}

/// What a process does. One queue holds actions and facts in the order in which they happened, so that a driver can
/// halt the process between two of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<S, M, H, V, J> {
    /// Gives a packet to the network.
    Send {
        /// Receivers.
        to: To,
        /// Content.
        packet: Packet<S, M, H, V>,
    },
    /// Writes an image; answered by [`Event::Persisted`] or [`Event::PersistFailed`].
    Persist(Arc<Image<H, V>>),
    /// Reads an image; answered by [`Event::Read`].
    Read(ImageName),
    /// Lists the storage, after all earlier writes; answered by [`Event::Listed`].
    List,
    /// Removes an image; not answered.
    Delete(ImageName),
    /// Replaces the small durable record; answered by [`Event::Recorded`].
    Record {
        /// Grows by one with each record of a life.
        version: u64,
        /// What a next life is given at its birth.
        bytes: Arc<[u8]>,
    },
    /// Asks the supervisor to record durably that this process, and those for whom it speaks, may act; answered by a
    /// membership that says so.
    Started,
    /// This storage again holds what it should.
    Held,
    /// Runs a job; answered by [`Event::Computed`].
    Compute(JobNo, J),
    /// States a fact.
    Fact(Fact),
}

/// What a process shows besides facts: values for a live view and for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauges {
    /// Of the application.
    pub progress: Progress,
    /// Messages in the log.
    pub log_messages: u64,
    /// Payload bytes in the log.
    pub log_bytes: u64,
    /// Of these, how many are on disk only.
    pub log_bytes_spilled: u64,
    /// Checkpoints that could be restored.
    pub checkpoints: u32,
}

/// One state machine, as a driver sees it. Total: it never fails, never blocks, never reads a clock or an RNG.
pub trait Process: Sized {
    /// What is piggybacked on application messages.
    type Stamp: Stamp;
    /// Protocol messages.
    type Control: Wire;
    /// What a listing returns of an image.
    type Head: Wire;
    /// Saved protocol state.
    type Saved: Wire;
    /// Computation.
    type Job: Job;
    /// Configuration, equal for all processes.
    type Config: Clone + Debug;
    /// Whether packets between two lives must arrive in the order of sending.
    const FIFO: bool;

    /// Begins a life.
    fn start(birth: Birth<Self::Config>, now: Time, out: &mut Out<Self>) -> Self;
    /// Handles one event.
    fn handle(&mut self, event: In<Self>, now: Time, out: &mut Out<Self>);
    /// When [`Event::Timeout`] is wanted; the driver asks after each event.
    fn next_deadline(&self) -> Option<Time>;
    /// Values for a live view.
    fn gauges(&self) -> Gauges;
    /// What a protocol message is called, where messages are counted by kind.
    fn control_kind(_message: &Self::Control) -> &'static str {
        "control"
    }
}

/// The actions of a process, appended to a queue that the caller owns.
pub type Out<P> = Vec<ActionOf<P>>;
/// The action type of a process.
pub type ActionOf<P> = Action<
    <P as Process>::Stamp,
    <P as Process>::Control,
    <P as Process>::Head,
    <P as Process>::Saved,
    <P as Process>::Job,
>;
/// The event type of a process.
pub type In<P> = Event<
    <P as Process>::Stamp,
    <P as Process>::Control,
    <P as Process>::Head,
    <P as Process>::Saved,
    <<P as Process>::Job as Job>::Output,
>;
/// The packet type of a process.
pub type PacketOf<P> =
    Packet<<P as Process>::Stamp, <P as Process>::Control, <P as Process>::Head, <P as Process>::Saved>;
/// The image type of a process.
pub type ImageOf<P> = Image<<P as Process>::Head, <P as Process>::Saved>;
