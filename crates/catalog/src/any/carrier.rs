//! Protocols that stand for others, and the host on which the other protocol then acts.

use std::marker::PhantomData;
use std::sync::Arc;

use faultline_core::process::To;
use faultline_core::{
    Claim, Host, Image, ImageName, Incarnation, Input, LifeStart, Machine, MessageId, Payload, ProcessId,
    Protocol, Time,
};

/// A protocol that stands for the protocol `P`: its values contain those of `P`.
///
/// The functions that return a value of `P` panic if the value is one of another protocol, which is impossible because a
/// run has only one protocol.
pub(crate) trait Carrier<P: Protocol>: Protocol {
    fn carry_control(message: P::Control) -> Self::Control;
    fn carry_stamp(stamp: P::Stamp) -> Self::Stamp;
    fn carry_head(head: Arc<P::Head>) -> Self::Head;
    fn carry_saved(saved: Arc<P::Saved>) -> Self::Saved;
    fn control(message: Self::Control) -> P::Control;
    fn stamp(stamp: Self::Stamp) -> P::Stamp;
    fn head(head: &Self::Head) -> Arc<P::Head>;
    fn saved(saved: &Self::Saved) -> Arc<P::Saved>;
}

/// Begins a life of the protocol `P` on the host of its carrier.
pub(crate) fn start<C: Carrier<P>, P: Protocol>(
    start: LifeStart<C::Config>,
    config: Arc<P::Config>,
    now: Time,
    host: &mut dyn Host<C>,
) -> P {
    let LifeStart { me, life, boot, membership, config: _, record, seed, facts } = start;
    let start = LifeStart { me, life, boot, membership, config, record, seed, facts };
    P::start(start, now, &mut HostOf(host, PhantomData))
}

/// Passes an input of the carrier to the protocol `P`.
pub(crate) fn handle<C: Carrier<P>, P: Protocol>(
    protocol: &mut P,
    input: Input<C>,
    now: Time,
    host: &mut dyn Host<C>,
) {
    protocol.handle(carried(input), now, &mut HostOf(host, PhantomData));
}

fn carried<C: Carrier<P>, P: Protocol>(input: Input<C>) -> Input<P> {
    match input {
        Input::Sent { id, payload } => Input::Sent { id, payload },
        Input::Consumed(id) => Input::Consumed(id),
        Input::Received { id, stamp, payload } => Input::Received { id, stamp: C::stamp(stamp), payload },
        Input::Control { from, message } => Input::Control { from, message: C::control(message) },
        Input::Image { from, image } => Input::Image { from, image: carried_image::<C, P>(&image) },
        Input::Snapshot(snapshot) => Input::Snapshot(snapshot),
        Input::Rested => Input::Rested,
        Input::Left => Input::Left,
        Input::Persisted(name) => Input::Persisted(name),
        Input::PersistFailed(name) => Input::PersistFailed(name),
        Input::Read { name, image } => {
            Input::Read { name, image: image.as_deref().map(carried_image::<C, P>) }
        }
        Input::Listed(images) => {
            Input::Listed(images.into_iter().map(|(name, head)| (name, C::head(&head))).collect())
        }
        Input::Recorded { version } => Input::Recorded { version },
        Input::Membership(membership) => Input::Membership(membership),
        Input::Timeout => Input::Timeout,
    }
}

fn carried_image<C: Carrier<P>, P: Protocol>(
    image: &Image<C::Head, C::Saved>,
) -> Arc<Image<P::Head, P::Saved>> {
    let Image { name, head, saved, snapshot } = image;
    Arc::new(Image { name: *name, head: C::head(head), saved: C::saved(saved), snapshot: snapshot.clone() })
}

fn carry_image<C: Carrier<P>, P: Protocol>(image: &Image<P::Head, P::Saved>) -> Image<C::Head, C::Saved> {
    let Image { name, head, saved, snapshot } = image;
    Image {
        name: *name,
        head: Arc::new(C::carry_head(head.clone())),
        saved: Arc::new(C::carry_saved(saved.clone())),
        snapshot: snapshot.clone(),
    }
}

/// The host of a carrier, on which the protocol `P` acts.
struct HostOf<'a, C: Protocol, P>(&'a mut dyn Host<C>, PhantomData<P>);

impl<C: Carrier<P>, P: Protocol> Machine<P> for HostOf<'_, C, P> {
    fn control(&mut self, to: To, message: P::Control) {
        self.0.control(to, C::carry_control(message));
    }

    fn send_image(&mut self, to: ProcessId, image: Arc<Image<P::Head, P::Saved>>) {
        self.0.send_image(to, Arc::new(carry_image::<C, P>(&image)));
    }

    fn persist(&mut self, image: Arc<Image<P::Head, P::Saved>>) {
        self.0.persist(Arc::new(carry_image::<C, P>(&image)));
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

impl<C: Carrier<P>, P: Protocol> Host<P> for HostOf<'_, C, P> {
    fn transmit(&mut self, id: MessageId, stamp: P::Stamp, payload: Payload) {
        self.0.transmit(id, C::carry_stamp(stamp), payload);
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
        let from = from.map(carry_image::<C, P>);
        self.0.restore(from.as_ref(), incarnation);
    }
}
