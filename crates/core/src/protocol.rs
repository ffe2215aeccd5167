//! Rollback-recovery protocols, and the host through which they act.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use crate::application::Wire;
use crate::claim::Claim;
use crate::footprint::Footprint;
use crate::id::{Incarnation, Position, ProcessId, Role};
use crate::image::{Image, ImageName, Snapshot};
use crate::membership::{LifeStart, Membership};
use crate::message::{MessageId, Payload};
use crate::process::{Gauges, To};
use crate::promises::Promises;
use crate::time::Time;

/// Data that a protocol piggybacks on an application message.
pub trait Stamp: Wire {
    /// Returns the sender's position, as carried by the stamp. Facts record this position.
    fn position(&self) -> Position;
}

/// The types of the data that a protocol sends and saves, whatever kind of program it protects.
pub trait ProtocolTypes: Sized + Clone + Debug {
    /// Messages of the protocol.
    type Control: Wire;
    /// Header of an image, as a listing of the storage returns it.
    type Head: Wire;
    /// The protocol's part of a saved state.
    type Saved: Wire;

    /// Adds to the footprint the values to which the head and the saved state of an image refer. The head and the saved
    /// state themselves have already been added.
    fn add_to(_head: &Self::Head, _saved: &Self::Saved, _footprint: &mut Footprint) {}
    /// Returns the length of the messages in the protocol's part of a saved state, in bytes. Networks and storage
    /// charge it in addition to the application's state; everything else in that part is small.
    fn saved_len(_saved: &Self::Saved) -> u64 {
        0
    }
}

/// A rollback-recovery protocol for programs that send messages. Each process has one instance, which acts on its
/// application through a [`Host`].
pub trait Protocol: ProtocolTypes {
    /// Parameters, the same for all processes.
    type Config: Clone + Debug;
    /// Data that the protocol piggybacks on application messages.
    type Stamp: Stamp;
    /// Whether the protocol requires packets between two lives to arrive in the order in which they were sent.
    const FIFO: bool;
    /// Whether the protocol relies on send determinism: a re-execution sends the same messages as the original
    /// execution (HydEE, definition 3). The n-th message of a channel is then the same message in every incarnation, so
    /// identities carry no incarnation. The composite passes the application's [consumptions](crate::Outbox::consume)
    /// to the protocol, and reports them as facts.
    const REPEATS: bool = false;

    /// Returns [`Protocol::FIFO`]. Only a protocol with erased types determines this from its parameters instead.
    fn is_fifo(_config: &Self::Config) -> bool {
        Self::FIFO
    }
    /// Returns [`Protocol::REPEATS`]. Only a protocol with erased types determines this from its parameters instead.
    fn repeats(_config: &Self::Config) -> bool {
        Self::REPEATS
    }

    /// Returns the protocol's promises with these parameters, beyond the guarantees of every protocol. The checker
    /// knows nothing about the protocol except its promises. [`Promises::of`] adds those that follow from the constants
    /// above.
    fn promises(config: &Self::Config) -> Promises;
    /// Returns the roles of the processes that the protocol needs in addition to the ranks. These processes are
    /// outside all clusters.
    fn extra_processes(config: &Self::Config) -> Vec<Role>;
    /// Begins a life. The application is held until [`Host::release`].
    fn start(start: LifeStart<Self::Config>, now: Time, host: &mut dyn Host<Self>) -> Self;
    /// Handles one input.
    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>);
    /// Returns the time at which the protocol next wants an [`Input::Timeout`]; `None` if it wants none.
    fn next_deadline(&self) -> Option<Time>;
    /// Returns current values for a live view. The composite fills in the progress.
    fn gauges(&self) -> Gauges;
    /// Returns the name under which a message of the protocol is counted.
    fn control_kind(_message: &Self::Control) -> &'static str {
        "control"
    }
}

/// An input that a protocol handles.
#[derive(Clone, Debug)]
pub enum Input<P: Protocol> {
    /// The application sent a message. The protocol is now responsible for transmitting it.
    Sent {
        /// Identity of the message, assigned by the composite.
        id: MessageId,
        /// Content of the message.
        payload: Payload,
    },
    /// The application's later actions may depend on this message. Passed only to a protocol that [relies on
    /// repetition](Protocol::REPEATS).
    Consumed(MessageId),
    /// A message arrived for the application.
    Received {
        /// Identity of the message.
        id: MessageId,
        /// Data that the sender's protocol piggybacked.
        stamp: P::Stamp,
        /// Content of the message.
        payload: Payload,
    },
    /// A protocol message arrived.
    Control {
        /// The sending process.
        from: ProcessId,
        /// The message itself.
        message: P::Control,
    },
    /// An image arrived from another process.
    Image {
        /// The sending process.
        from: ProcessId,
        /// The image.
        image: Arc<Image<P::Head, P::Saved>>,
    },
    /// Answers [`Host::request_snapshot`]. Every earlier send has been passed as [`Input::Sent`].
    Snapshot(Snapshot),
    /// Answers [`Host::request_rest`]. Until another message arrives, the application neither computes nor sends.
    Rested,
    /// The application has left the program ([`crate::Application::has_left`]). Passed once per incarnation.
    Left,
    /// An image is durable in this process's storage.
    Persisted(ImageName),
    /// An image could not be written to this process's storage.
    PersistFailed(ImageName),
    /// Answers [`Host::read`](Machine::read).
    Read {
        /// Name of the requested image.
        name: ImageName,
        /// The image, if it exists and is intact.
        image: Option<Arc<Image<P::Head, P::Saved>>>,
    },
    /// Answers [`Host::list`](Machine::list).
    Listed(Vec<(ImageName, Arc<P::Head>)>),
    /// A record is durable.
    Recorded {
        /// Version of the record.
        version: u64,
    },
    /// The membership changed.
    Membership(Arc<Membership>),
    /// The requested deadline may have been reached.
    Timeout,
}

/// Network, storage and claim operations, available to every protocol, whatever kind of program it protects.
pub trait Machine<P: ProtocolTypes> {
    /// Sends a protocol message.
    fn control(&mut self, to: To, message: P::Control);
    /// Sends an image to another process.
    fn send_image(&mut self, to: ProcessId, image: Arc<Image<P::Head, P::Saved>>);
    /// Writes an image to this process's storage.
    fn persist(&mut self, image: Arc<Image<P::Head, P::Saved>>);
    /// Reads an image from this process's storage.
    fn read(&mut self, name: ImageName);
    /// Lists the images in this process's storage once all earlier writes are complete.
    fn list(&mut self);
    /// Removes an image from this process's storage.
    fn delete(&mut self, name: ImageName);
    /// Replaces the small durable record. Answered by [`Input::Recorded`] with `version`, which increases by
    /// one with each record of a life.
    fn record(&mut self, version: u64, bytes: Arc<[u8]>);
    /// Asks the supervisor to record durably that this process, and the processes on whose behalf it asks,
    /// may act. Answered by a membership in which this process has started.
    fn started(&mut self);
    /// Reports that this process's storage again holds everything that it should.
    fn held(&mut self);
    /// Reports a fact that only the protocol can know.
    fn claim(&mut self, claim: Claim);
}

/// The composite as the protocol sees it: a [`Machine`] with an application that sends messages.
pub trait Host<P: Protocol>: Machine<P> {
    /// Hands an application message to the network, for the first time or again.
    fn transmit(&mut self, id: MessageId, stamp: P::Stamp, payload: Payload);
    /// Reports that a message is not handed to the network, because its receiver already has it.
    fn suppress(&mut self, id: MessageId);
    /// Delivers a message to the application immediately. Anything the application sends in response arrives
    /// as [`Input::Sent`] once the current input has been handled.
    ///
    /// # Panics
    ///
    /// Panics if the application is held.
    fn deliver(&mut self, id: MessageId, payload: Payload);
    /// Reports that a message is dropped, because a rollback of its sender undid the send.
    fn drop_stale(&mut self, id: MessageId);
    /// Stops the application because of a failure: until [`Host::release`], it receives no messages and starts no jobs.
    /// The work that the rollback undoes ends here, so the composite reports [`Fact::Held`](crate::Fact::Held), once for
    /// each time that the application stops.
    fn hold(&mut self);
    /// Holds the application until a send may take effect. Unlike [`Host::hold`], this is part of its work.
    fn wait(&mut self);
    /// Lets the application continue after [`Host::hold`], [`Host::wait`], a snapshot or a restore.
    fn release(&mut self);
    /// Holds the application, and answers with [`Input::Snapshot`] once every send has been passed to the protocol
    /// and no job holds the state.
    fn request_snapshot(&mut self);
    /// Answers with [`Input::Rested`] once the application has done everything that it can do without another
    /// message. The application must not be held.
    fn request_rest(&mut self);
    /// Replaces the application's state with that of an image, or with the initial one, under a new incarnation.
    /// Pending sends, a pending snapshot or rest, and the job in progress are discarded. The application stays held
    /// until [`Host::release`].
    fn restore(&mut self, from: Option<&Image<P::Head, P::Saved>>, incarnation: Incarnation);
}
