//! Protocols from other crates as a single type, for which drivers are compiled once.
//!
//! The real protocol is behind a pointer. It acts on a host of its own, which forwards everything to the host of
//! [`Erased`] and hides the types of the values that are sent and saved.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use faultline_core::process::To;
use faultline_core::{
    Claim, Footprint, Gauges, Host, Image, ImageName, Incarnation, Input, LifeStart, Machine, MessageId,
    Payload, Promises, Protocol, ProtocolTypes, Role, Stamp, Time,
};

use super::wire::{Opaque, OpaqueMessage, OpaqueSaved, OpaqueStamp};

/// One process under a protocol from another crate.
#[derive(Debug)]
pub struct Erased(Box<dyn Instance>);

impl Clone for Erased {
    fn clone(&self) -> Erased {
        Erased(self.0.boxed())
    }
}

/// The parameters of a protocol from another crate, together with the protocol's code.
#[derive(Clone, Debug)]
pub struct ErasedConfig(Arc<dyn Code>);

impl ErasedConfig {
    /// Erases the type of a protocol with these parameters.
    pub fn new<P>(config: P::Config) -> ErasedConfig
    where
        P: Protocol<Config: Send + Sync> + Send + Sync + 'static,
    {
        ErasedConfig(Arc::new(CodeOf::<P>(Arc::new(config))))
    }
}

impl ProtocolTypes for Erased {
    type Control = OpaqueMessage;
    type Head = Opaque;
    type Saved = OpaqueSaved;

    fn add_to(head: &Opaque, saved: &OpaqueSaved, footprint: &mut Footprint) {
        head.add_to(footprint);
        saved.value.add_to(footprint);
    }

    fn saved_len(saved: &OpaqueSaved) -> u64 {
        saved.len
    }
}

impl Protocol for Erased {
    type Config = ErasedConfig;
    type Stamp = OpaqueStamp;
    // Unused: the values depend on the protocol, and the functions below return them.
    const FIFO: bool = false;
    const REPEATS: bool = false;

    fn is_fifo(config: &ErasedConfig) -> bool {
        config.0.is_fifo()
    }

    fn repeats(config: &ErasedConfig) -> bool {
        config.0.repeats()
    }

    fn promises(config: &ErasedConfig) -> Promises {
        config.0.promises()
    }

    fn extra_processes(config: &ErasedConfig) -> Vec<Role> {
        config.0.extra_processes()
    }

    fn start(start: LifeStart<ErasedConfig>, now: Time, host: &mut dyn Host<Erased>) -> Erased {
        let code = start.config.0.clone();
        Erased(code.start(start, now, host))
    }

    fn handle(&mut self, input: Input<Erased>, now: Time, host: &mut dyn Host<Erased>) {
        self.0.handle(input, now, host);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.0.next_deadline()
    }

    fn gauges(&self) -> Gauges {
        self.0.gauges()
    }

    fn control_kind(message: &OpaqueMessage) -> &'static str {
        message.kind
    }
}

/// The functions of a protocol that require no process.
trait Code: Debug + Send + Sync {
    fn is_fifo(&self) -> bool;
    fn repeats(&self) -> bool;
    fn promises(&self) -> Promises;
    fn extra_processes(&self) -> Vec<Role>;
    fn start(
        &self,
        start: LifeStart<ErasedConfig>,
        now: Time,
        host: &mut dyn Host<Erased>,
    ) -> Box<dyn Instance>;
}

struct CodeOf<P: Protocol>(Arc<P::Config>);

impl<P: Protocol> Debug for CodeOf<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<P> Code for CodeOf<P>
where
    P: Protocol<Config: Send + Sync> + Send + Sync + 'static,
{
    fn is_fifo(&self) -> bool {
        P::is_fifo(&self.0)
    }

    fn repeats(&self) -> bool {
        P::repeats(&self.0)
    }

    fn promises(&self) -> Promises {
        P::promises(&self.0)
    }

    fn extra_processes(&self) -> Vec<Role> {
        P::extra_processes(&self.0)
    }

    fn start(
        &self,
        start: LifeStart<ErasedConfig>,
        now: Time,
        host: &mut dyn Host<Erased>,
    ) -> Box<dyn Instance> {
        let LifeStart { me, life, boot, membership, config: _, record, seed, facts } = start;
        let start = LifeStart { me, life, boot, membership, config: self.0.clone(), record, seed, facts };
        Box::new(InstanceOf(P::start(start, now, &mut HostOf(host, PhantomData))))
    }
}

/// One process under a protocol.
trait Instance: Debug + Send + Sync {
    fn boxed(&self) -> Box<dyn Instance>;
    fn handle(&mut self, input: Input<Erased>, now: Time, host: &mut dyn Host<Erased>);
    fn next_deadline(&self) -> Option<Time>;
    fn gauges(&self) -> Gauges;
}

#[derive(Clone, Debug)]
struct InstanceOf<P>(P);

impl<P> Instance for InstanceOf<P>
where
    P: Protocol + Send + Sync + 'static,
{
    fn boxed(&self) -> Box<dyn Instance> {
        Box::new(self.clone())
    }

    fn handle(&mut self, input: Input<Erased>, now: Time, host: &mut dyn Host<Erased>) {
        self.0.handle(reveal(input), now, &mut HostOf(host, PhantomData));
    }

    fn next_deadline(&self) -> Option<Time> {
        self.0.next_deadline()
    }

    fn gauges(&self) -> Gauges {
        self.0.gauges()
    }
}

fn reveal<P: Protocol>(input: Input<Erased>) -> Input<P> {
    match input {
        Input::Sent { id, payload } => Input::Sent { id, payload },
        Input::Consumed(id) => Input::Consumed(id),
        Input::Received { id, stamp, payload } => Input::Received { id, stamp: owned(&stamp.value), payload },
        Input::Control { from, message } => Input::Control { from, message: owned(&message.value) },
        Input::Image { from, image } => Input::Image { from, image: reveal_image::<P>(&image) },
        Input::Snapshot(snapshot) => Input::Snapshot(snapshot),
        Input::Rested => Input::Rested,
        Input::Left => Input::Left,
        Input::Persisted(name) => Input::Persisted(name),
        Input::PersistFailed(name) => Input::PersistFailed(name),
        Input::Read { name, image } => Input::Read { name, image: image.as_deref().map(reveal_image::<P>) },
        Input::Listed(images) => {
            Input::Listed(images.into_iter().map(|(name, head)| (name, head.reveal())).collect())
        }
        Input::Recorded { version } => Input::Recorded { version },
        Input::Membership(membership) => Input::Membership(membership),
        Input::Timeout => Input::Timeout,
    }
}

fn owned<T: faultline_core::application::Wire>(value: &Opaque) -> T {
    Arc::unwrap_or_clone(value.reveal())
}

fn reveal_image<P: ProtocolTypes>(image: &Image<Opaque, OpaqueSaved>) -> Arc<Image<P::Head, P::Saved>> {
    let Image { name, head, saved, snapshot } = image;
    Arc::new(Image {
        name: *name,
        head: head.reveal(),
        saved: saved.value.reveal(),
        snapshot: snapshot.clone(),
    })
}

fn erase_image<P: ProtocolTypes>(image: &Image<P::Head, P::Saved>) -> Image<Opaque, OpaqueSaved> {
    let Image { name, head, saved, snapshot } = image;
    Image {
        name: *name,
        head: Arc::new(Opaque::share(head.clone())),
        saved: Arc::new(OpaqueSaved { len: P::saved_len(saved), value: Opaque::share(saved.clone()) }),
        snapshot: snapshot.clone(),
    }
}

/// The host on which a protocol acts.
struct HostOf<'a, P>(&'a mut dyn Host<Erased>, PhantomData<P>);

impl<P: Protocol> Machine<P> for HostOf<'_, P> {
    fn control(&mut self, to: To, message: P::Control) {
        let kind = P::control_kind(&message);
        self.0.control(to, OpaqueMessage { kind, value: Opaque::of(message) });
    }

    fn send_image(&mut self, to: faultline_core::ProcessId, image: Arc<Image<P::Head, P::Saved>>) {
        self.0.send_image(to, Arc::new(erase_image::<P>(&image)));
    }

    fn persist(&mut self, image: Arc<Image<P::Head, P::Saved>>) {
        self.0.persist(Arc::new(erase_image::<P>(&image)));
    }

    fn read(&mut self, name: ImageName) {
        self.0.read(name);
    }

    fn list(&mut self) {
        self.0.list();
    }

    fn delete(&mut self, name: ImageName) {
        self.0.delete(name);
    }

    fn record(&mut self, version: u64, bytes: Arc<[u8]>) {
        self.0.record(version, bytes);
    }

    fn started(&mut self) {
        self.0.started();
    }

    fn held(&mut self) {
        self.0.held();
    }

    fn claim(&mut self, claim: Claim) {
        self.0.claim(claim);
    }
}

impl<P: Protocol> Host<P> for HostOf<'_, P> {
    fn transmit(&mut self, id: MessageId, stamp: P::Stamp, payload: Payload) {
        let stamp = OpaqueStamp { position: stamp.position(), value: Opaque::of(stamp) };
        self.0.transmit(id, stamp, payload);
    }

    fn suppress(&mut self, id: MessageId) {
        self.0.suppress(id);
    }

    fn deliver(&mut self, id: MessageId, payload: Payload) {
        self.0.deliver(id, payload);
    }

    fn drop_stale(&mut self, id: MessageId) {
        self.0.drop_stale(id);
    }

    fn hold(&mut self) {
        self.0.hold();
    }

    fn wait(&mut self) {
        self.0.wait();
    }

    fn release(&mut self) {
        self.0.release();
    }

    fn request_snapshot(&mut self) {
        self.0.request_snapshot();
    }

    fn request_rest(&mut self) {
        self.0.request_rest();
    }

    fn restore(&mut self, from: Option<&Image<P::Head, P::Saved>>, incarnation: Incarnation) {
        let from = from.map(erase_image::<P>);
        self.0.restore(from.as_ref(), incarnation);
    }
}
