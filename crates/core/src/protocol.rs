//! Rollback-recovery protocols.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use crate::application::Wire;
use crate::fact::Claim;
use crate::id::{Incarnation, Position, ProcessId, Role};
use crate::image::{Image, ImageName, Snapshot};
use crate::membership::{Birth, Membership};
use crate::message::{MessageId, Payload};
use crate::process::{Gauges, To};
use crate::promises::Promises;
use crate::time::Time;

/// What a protocol piggybacks on an application message.
pub trait Stamp: Wire {
    /// The sender's position that it stands for, for the facts.
    fn position(&self) -> Position;
}

/// What a protocol says and saves, whatever kind of program it protects.
pub trait Speaks: Sized + Clone + Debug {
    /// Messages of the protocol.
    type Control: Wire;
    /// What a listing returns of an image.
    type Head: Wire;
    /// Saved protocol state.
    type Saved: Wire;
}

/// A rollback-recovery protocol for programs that send messages, one instance per process. It acts on its application
/// through a [`Host`].
pub trait Protocol: Speaks {
    /// Parameters, equal for all processes.
    type Config: Clone + Debug;
    /// Piggybacked on application messages.
    type Stamp: Stamp;
    /// Whether it needs packets between two lives in the order of sending.
    const FIFO: bool;
    /// Whether it relies on send-determinism: that a re-execution sends what the execution sent (HydEE, definition 3).
    /// Then the n-th message of a channel is the same message in whichever incarnation it is sent, so that identities
    /// carry no incarnation; and the application's [consumptions](crate::Outbox::consume) are shown to the protocol and
    /// stated as facts.
    const REPEATS: bool = false;

    /// What it promises with these parameters beyond what every protocol owes. The checker holds it to that, and to nothing
    /// else that only some protocols promise. [`Promises::of`] adds what follows from the constants above.
    fn promises(config: &Self::Config) -> Promises;
    /// Processes it needs beside the ranks; they stand outside every cluster.
    fn extra_processes(config: &Self::Config) -> Vec<Role>;
    /// Begins a life. The application is held until [`Host::release`].
    fn start(birth: Birth<Self::Config>, now: Time, host: &mut dyn Host<Self>) -> Self;
    /// Handles one input.
    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>);
    /// When [`Input::Timeout`] is wanted.
    fn next_deadline(&self) -> Option<Time>;
    /// Values for a live view; the composite fills in the progress.
    fn gauges(&self) -> Gauges;
    /// What a message of the protocol is called, where messages are counted by kind.
    fn control_kind(_message: &Self::Control) -> &'static str {
        "control"
    }
}

/// What happens to a protocol.
#[derive(Clone, Debug)]
pub enum Input<P: Protocol> {
    /// The application sent a message, which is now the protocol's to transmit.
    Sent {
        /// Its identity, given by the composite.
        id: MessageId,
        /// Its content.
        payload: Payload,
    },
    /// The application says that what it does from here on may depend on this message. Only shown to a protocol that
    /// [repeats](Protocol::REPEATS).
    Consumed(MessageId),
    /// A message arrived for the application.
    Received {
        /// Its identity.
        id: MessageId,
        /// As piggybacked by its sender.
        stamp: P::Stamp,
        /// Its content.
        payload: Payload,
    },
    /// A protocol message arrived.
    Control {
        /// Sender.
        from: ProcessId,
        /// Content.
        message: P::Control,
    },
    /// An image arrived.
    Image {
        /// Sender.
        from: ProcessId,
        /// The image.
        image: Arc<Image<P::Head, P::Saved>>,
    },
    /// Answer to [`Host::request_snapshot`]: every earlier send has been seen as [`Input::Sent`].
    Snapshot(Snapshot),
    /// Answer to [`Host::request_rest`]: without another message the application neither computes nor sends.
    Rested,
    /// The application has left the program ([`crate::Application::has_left`]). Said once in each incarnation.
    Left,
    /// An image is durable here.
    Persisted(ImageName),
    /// An image could not be written here.
    PersistFailed(ImageName),
    /// Answer to [`Host::read`].
    Read {
        /// What was asked for.
        name: ImageName,
        /// It, when it is there and intact.
        image: Option<Arc<Image<P::Head, P::Saved>>>,
    },
    /// Answer to [`Host::list`].
    Listed(Vec<(ImageName, Arc<P::Head>)>),
    /// A record is durable.
    Recorded {
        /// Which.
        version: u64,
    },
    /// The membership changed.
    Membership(Arc<Membership>),
    /// The deadline has passed, perhaps.
    Timeout,
}

/// What every protocol may do, whatever kind of program it protects: network, storage and evidence.
pub trait Machine<P: Speaks> {
    /// Sends a protocol message.
    fn control(&mut self, to: To, message: P::Control);
    /// Sends an image to another process.
    fn send_image(&mut self, to: ProcessId, image: Arc<Image<P::Head, P::Saved>>);
    /// Writes an image to this process's storage.
    fn persist(&mut self, image: Arc<Image<P::Head, P::Saved>>);
    /// Reads an image from this process's storage.
    fn read(&mut self, name: ImageName);
    /// Lists this process's storage, after all earlier writes.
    fn list(&mut self);
    /// Removes an image from this process's storage.
    fn delete(&mut self, name: ImageName);
    /// Replaces the small durable record.
    fn record(&mut self, version: u64, bytes: Arc<[u8]>);
    /// Asks for the durable note that this process may act, and those for whom it speaks; answered by a membership in
    /// which it has started.
    fn started(&mut self);
    /// Says that this storage again holds what it should.
    fn held(&mut self);
    /// States what only the protocol knows.
    fn claim(&mut self, claim: Claim);
}

/// The composite as a protocol sees it: a [`Machine`] with an application that sends messages.
pub trait Host<P: Protocol>: Machine<P> {
    /// Gives an application message to the network, for the first time or again.
    fn transmit(&mut self, id: MessageId, stamp: P::Stamp, payload: Payload);
    /// Keeps a message from the network because its receiver has it.
    fn suppress(&mut self, id: MessageId);
    /// Delivers a message to the application at once; what it sends in turn comes as [`Input::Sent`] after the current
    /// input has been handled. Panics while held.
    fn deliver(&mut self, id: MessageId, payload: Payload);
    /// Drops a message that a rollback of its sender undid.
    fn drop_stale(&mut self, id: MessageId);
    /// From now on the application is neither delivered to nor given a job.
    fn hold(&mut self);
    /// Ends [`Host::hold`].
    fn release(&mut self);
    /// Holds, and answers with [`Input::Snapshot`] as soon as every send has been seen and no job holds the state.
    fn request_snapshot(&mut self);
    /// Answers with [`Input::Rested`] as soon as the application, which is not held, has done everything that it can do
    /// without another message.
    fn request_rest(&mut self);
    /// Replaces the application's state by an image's, or by the initial one, under a new incarnation. Pending sends, a
    /// pending snapshot or rest and a job that is out are void. The application stays held until [`Host::release`].
    fn restore(&mut self, from: Option<&Image<P::Head, P::Saved>>, incarnation: Incarnation);
}
