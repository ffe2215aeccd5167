//! What the processes of all kinds of programs have in common: how a protocol's operations become actions and facts.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::claim::Claim;
use crate::fact::{Fact, FactKind};
use crate::id::ProcessId;
use crate::image::ImageName;
use crate::process::{Action, ImageOf, Out, Packet, Process, To};
use crate::protocol::{Machine, ProtocolTypes};

/// The part of a process through which its protocol acts. It is the [`Machine`] of the protocol: it reports the facts
/// that the protocol must not report about itself, and appends the actions.
pub trait Composite {
    /// The protocol.
    type Protocol: ProtocolTypes;
    /// The process.
    type Process: Process<
            Head = <Self::Protocol as ProtocolTypes>::Head,
            Saved = <Self::Protocol as ProtocolTypes>::Saved,
        >;

    /// Returns the queue of the process's actions.
    fn out(&mut self) -> &mut Out<Self::Process>;
    /// Reports a fact, if the driver accepts facts of this kind.
    fn fact(&mut self, kind: FactKind, make: impl FnOnce() -> Fact);
    /// Sends a message of the protocol.
    fn send(&mut self, to: To, message: <Self::Protocol as ProtocolTypes>::Control);
    /// Returns the image to be written when the protocol writes `image`. They differ if a fault damages the image.
    fn written(&mut self, image: Arc<ImageOf<Self::Process>>) -> Arc<ImageOf<Self::Process>> {
        image
    }
}

impl<C: Composite> Machine<C::Protocol> for C {
    fn control(&mut self, to: To, message: <C::Protocol as ProtocolTypes>::Control) {
        self.send(to, message);
    }

    fn send_image(&mut self, to: ProcessId, image: Arc<ImageOf<C::Process>>) {
        self.out().push(Action::Send { to: To::One(to), packet: Packet::Image(image) });
    }

    fn persist(&mut self, image: Arc<ImageOf<C::Process>>) {
        if image.name.is_part() {
            self.fact(FactKind::Saved, || {
                Fact::Saved(Box::new((image.name, image.snapshot.witness, image.len(C::Protocol::saved_len))))
            });
        }
        let image = self.written(image);
        self.out().push(Action::Persist(image));
    }

    fn read(&mut self, name: ImageName) {
        self.out().push(Action::Read(name));
    }

    fn list(&mut self) {
        self.out().push(Action::List);
    }

    fn delete(&mut self, name: ImageName) {
        if name.is_part() {
            self.fact(FactKind::Removed, || Fact::Removed(name));
        }
        self.out().push(Action::Delete(name));
    }

    fn record(&mut self, version: u64, bytes: Arc<[u8]>) {
        self.out().push(Action::Record { version, bytes });
    }

    fn started(&mut self) {
        self.out().push(Action::Started);
    }

    fn held(&mut self) {
        self.out().push(Action::Held);
    }

    fn claim(&mut self, claim: Claim) {
        let kind = claim.kind();
        self.fact(kind, || Fact::Claim(Box::new(claim)));
    }
}
