//! The driver's view: one state machine per process, with its events and actions.
//!
//! Every driver fulfils this contract, and one test suite checks it for all drivers:
//!
//! * A process handles one event at a time. The actions of an event are performed in order; after that, network,
//!   storage and computation proceed independently of each other.
//! * Storage actions of one process complete in order, so a listing reflects every earlier write.
//! * A crash drops the [`Process`] value. Only data that was reported durable survives, even if the operating system
//!   would have kept more.
//! * The number of a life is stored durably outside the node before the life starts.
//! * No packet between two lives is lost or delivered twice while both of them last. Nothing from or to an older life
//!   is delivered. If the receiver's membership does not yet contain the life that sent a packet, the packet waits.
//!   Unless the process declares FIFO, packets may overtake each other.
//! * The completion of an operation is delivered only to the life that requested the operation.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use serde::{Deserialize, Serialize};

use crate::application::{Job, Progress, Wire};
use crate::fact::Fact;
use crate::fault::{Flip, Handled};
use crate::footprint::Footprint;
use crate::id::{ClusterId, JobNo, ProcessId};
use crate::image::{Image, ImageName};
use crate::membership::{LifeStart, Membership};
use crate::message::{MessageId, Payload};
use crate::protocol::Stamp;
use crate::time::Time;

// A packet is moved from an action to the driver and into an event. With tags of eight bytes, the contents of these enums
// have the same alignment at every step. A processor stalls when it reads bytes that it has just written with accesses
// at other offsets.

/// A unit of traffic between two processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[repr(u64)]
pub enum Packet<S, M, H, V> {
    /// An application message, with the data that its protocol piggybacks on it.
    Application {
        /// Identity of the message.
        id: MessageId,
        /// Data that the protocol piggybacks.
        stamp: S,
        /// Content of the message.
        payload: Payload,
    },
    /// A message of the protocol.
    Control(M),
    /// A part of a checkpoint, in transit to a holder or back to its owner.
    Image(Arc<Image<H, V>>),
}

impl<S, M, H, V> Packet<S, M, H, V> {
    /// Returns the number of bytes that an emulated link charges for the packet: a fixed header plus payload or the
    /// [length](Image::len) of an image. Small fields of the protocol count as part of the header.
    pub fn wire_len(&self, saved_len: impl FnOnce(&V) -> u64) -> u64 {
        const HEADER: u64 = 64;
        match self {
            Packet::Application { payload, .. } => HEADER + payload.len() as u64,
            Packet::Control(_) => HEADER,
            Packet::Image(image) => HEADER + image.len(saved_len),
        }
    }
}

/// The receivers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// One process.
    One(ProcessId),
    /// Every process of a cluster except the sender. They share a single packet, sent by a single action.
    Cluster(ClusterId),
}

/// An event that a process handles.
#[derive(Clone, Debug, PartialEq)]
#[repr(u64)]
pub enum Event<S, M, H, V, O> {
    /// A packet arrived.
    Packet {
        /// The sending process.
        from: ProcessId,
        /// The packet itself.
        packet: Packet<S, M, H, V>,
    },
    /// An image is durable in this process's storage.
    Persisted(ImageName),
    /// An image could not be written. The storage contains no part of it.
    PersistFailed(ImageName),
    /// Answers [`Action::Read`].
    Read {
        /// Name of the requested image.
        name: ImageName,
        /// The image; `None` if it is missing or damaged.
        image: Option<Arc<Image<H, V>>>,
    },
    /// Answers [`Action::List`] with all images in this storage, ascending by name.
    Listed(Vec<(ImageName, Arc<H>)>),
    /// A record is durable.
    Recorded {
        /// Version of the record.
        version: u64,
    },
    /// The membership changed.
    Membership(Arc<Membership>),
    /// A job returned.
    Computed(JobNo, O),
    /// The requested deadline may have been reached. Early and repeated timeouts are harmless.
    Timeout,
    /// A fault flips a bit ([`Impairment::Flip`](crate::fault::Impairment::Flip)).
    Flip(Flip),
}

impl<S, M, H, V, O> Event<S, M, H, V, O> {
    /// Returns the event without its content.
    pub fn handled(&self) -> Handled {
        match self {
            Event::Packet { packet: Packet::Application { id, .. }, .. } => Handled::Message(*id),
            Event::Packet { from, packet: Packet::Control(_) } => Handled::Control { from: *from },
            Event::Packet { from, packet: Packet::Image(image) } => {
                Handled::Image { from: *from, name: image.name }
            }
            Event::Persisted(name) => Handled::Persisted(*name),
            Event::PersistFailed(name) => Handled::PersistFailed(*name),
            Event::Read { name, .. } => Handled::Read(*name),
            Event::Listed(_) => Handled::Listed,
            Event::Recorded { .. } => Handled::Recorded,
            Event::Membership(_) => Handled::Membership,
            Event::Computed(no, _) => Handled::Result(*no),
            Event::Timeout => Handled::Timeout,
            Event::Flip(_) => Handled::Flip,
        }
    }
}

/// An action of a process. Actions and facts share one queue, in the order in which they happened, so that a
/// driver can halt the process between any two of them.
#[derive(Clone, Debug, PartialEq)]
#[repr(u64)]
pub enum Action<S, M, H, V, J> {
    /// Hands a packet to the network.
    Send {
        /// The receivers.
        to: To,
        /// The packet to send.
        packet: Packet<S, M, H, V>,
    },
    /// Writes an image. Answered by [`Event::Persisted`] or [`Event::PersistFailed`]. If the image is already stored and
    /// intact, it stays so even if the storage accepts no writes: different images have different names.
    Persist(Arc<Image<H, V>>),
    /// Reads an image. Answered by [`Event::Read`].
    Read(ImageName),
    /// Lists the images in storage once all earlier writes are complete. Answered by [`Event::Listed`].
    List,
    /// Removes an image. Not answered.
    Delete(ImageName),
    /// Replaces the small durable record. Answered by [`Event::Recorded`].
    Record {
        /// Increases by one with each record of a life.
        version: u64,
        /// Content that the driver hands to the next life when it starts.
        bytes: Arc<[u8]>,
    },
    /// Asks the supervisor to record durably that this process, and the processes on whose behalf it asks,
    /// may act. Answered by a membership that contains the record.
    Started,
    /// Reports that this process's storage again holds everything that it should.
    Held,
    /// Runs a job. Answered by [`Event::Computed`].
    Compute(JobNo, J),
    /// Reports a fact.
    Fact(Fact),
}

/// Values that a process reports in addition to facts, for a live view and for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauges {
    /// Progress of the application.
    pub progress: Progress,
    /// Number of messages in the log.
    pub log_messages: u64,
    /// Payload of the messages in the log, in bytes.
    pub log_bytes: u64,
    /// The part of `log_bytes` that is on disk only.
    pub log_bytes_spilled: u64,
    /// Number of checkpoints that could be restored.
    pub checkpoints: u32,
}

/// A process as a driver sees it. Its methods return no errors, never block, and use neither a clock nor a source of
/// randomness.
pub trait Process: Sized {
    /// Data that the protocol piggybacks on application messages.
    type Stamp: Stamp;
    /// Messages of the protocol.
    type Control: Wire;
    /// Header of an image, as a listing of the storage returns it.
    type Head: Wire;
    /// The protocol's part of a saved state.
    type Saved: Wire;
    /// The application's computation.
    type Job: Job;
    /// Configuration, the same for all processes.
    type Config: Clone + Debug;
    /// Whether packets between two lives must arrive in the order in which they were sent.
    const FIFO: bool;
    /// Returns [`Process::FIFO`]. Only a process with erased types determines this from its configuration instead.
    fn is_fifo(_config: &Self::Config) -> bool {
        Self::FIFO
    }

    /// Begins a life.
    fn start(start: LifeStart<Self::Config>, now: Time, out: &mut Out<Self>) -> Self;
    /// Handles one event.
    fn handle(&mut self, event: In<Self>, now: Time, out: &mut Out<Self>);
    /// Returns the time at which the process next wants an [`Event::Timeout`]; `None` if it wants none. The driver
    /// calls this method after each event.
    fn next_deadline(&self) -> Option<Time>;
    /// Returns current values for a live view.
    fn gauges(&self) -> Gauges;
    /// Returns whether the application waits for a message: it is permitted to act, but can neither compute nor finish
    /// without one. Always `false` for processes whose application is not known to wait for messages.
    fn waits(&self) -> bool {
        false
    }
    /// Returns the name under which a protocol message is counted.
    fn control_kind(_message: &Self::Control) -> &'static str {
        "control"
    }
    /// Adds to the footprint the values to which the head and the saved state of an image refer. The head and the saved
    /// state themselves have already been added.
    fn add_to(_head: &Self::Head, _saved: &Self::Saved, _footprint: &mut Footprint) {}
    /// Returns the length of the messages in the protocol's part of a saved state, in bytes. Networks and storage
    /// charge it in addition to the application's state; everything else in that part is small.
    fn saved_len(_saved: &Self::Saved) -> u64 {
        0
    }
}

/// The queue to which a process appends its actions. Owned by the caller.
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
