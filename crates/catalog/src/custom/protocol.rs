//! Protocols from other crates as a single type. The real protocol is behind a pointer, and the types of the values that
//! it sends and saves are hidden.

use std::fmt::Debug;
use std::sync::Arc;

use faultline_core::{
    Footprint, Gauges, Host, Input, LifeStart, Promises, Protocol, ProtocolTypes, Role, Stamp, Time,
};

use crate::any::carrier::{self, Carrier};

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
        Box::new(InstanceOf(carrier::start::<Erased, P>(start, self.0.clone(), now, host)))
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
        carrier::handle::<Erased, P>(&mut self.0, input, now, host);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.0.next_deadline()
    }

    fn gauges(&self) -> Gauges {
        self.0.gauges()
    }
}

impl<P: Protocol> Carrier<P> for Erased {
    fn carry_control(message: P::Control) -> OpaqueMessage {
        let kind = P::control_kind(&message);
        OpaqueMessage { kind, value: Opaque::of(message) }
    }

    fn carry_stamp(stamp: P::Stamp) -> OpaqueStamp {
        OpaqueStamp { position: stamp.position(), value: Opaque::of(stamp) }
    }

    fn carry_head(head: Arc<P::Head>) -> Opaque {
        Opaque::share(head)
    }

    fn carry_saved(saved: Arc<P::Saved>) -> OpaqueSaved {
        OpaqueSaved { len: P::saved_len(&saved), value: Opaque::share(saved) }
    }

    fn control(message: OpaqueMessage) -> P::Control {
        Arc::unwrap_or_clone(message.value.reveal())
    }

    fn stamp(stamp: OpaqueStamp) -> P::Stamp {
        Arc::unwrap_or_clone(stamp.value.reveal())
    }

    fn head(head: &Opaque) -> Arc<P::Head> {
        head.reveal()
    }

    fn saved(saved: &OpaqueSaved) -> Arc<P::Saved> {
        saved.value.reveal()
    }
}
