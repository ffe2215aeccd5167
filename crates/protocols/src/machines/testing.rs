//! A host that records the actions of a sub-machine.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Claim, Image, ImageName, Incarnation, Machine, ProcessId, ProtocolTypes, Sn, Snapshot, To,
    Witness,
};

/// A protocol without messages.
#[derive(Clone, Debug)]
pub(super) struct Plain;

impl ProtocolTypes for Plain {
    type Control = ();
    type Head = ();
    type Saved = ();
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    SendImage(ProcessId, ImageName),
    Persist(ImageName),
    Read(ImageName),
    Held,
    Protected,
    Claim(Claim),
}

#[derive(Default)]
pub(super) struct Recorder(Vec<Act>);

impl Recorder {
    /// Returns the actions since the last call.
    pub(super) fn take(&mut self) -> Vec<Act> {
        core::mem::take(&mut self.0)
    }
}

impl Machine<Plain> for Recorder {
    fn control(&mut self, _: To, (): ()) {
        unreachable!("the tested sub-machines send no messages")
    }
    fn send_image(&mut self, to: ProcessId, image: Arc<Image<(), ()>>) {
        self.0.push(Act::SendImage(to, image.name));
    }
    fn persist(&mut self, image: Arc<Image<(), ()>>) {
        self.0.push(Act::Persist(image.name));
    }
    fn read(&mut self, name: ImageName) {
        self.0.push(Act::Read(name));
    }
    fn list(&mut self) {
        unreachable!("the tested sub-machines do not list the storage")
    }
    fn delete(&mut self, _: ImageName) {
        unreachable!("the tested sub-machines remove no images")
    }
    fn record(&mut self, _: u64, _: Arc<[u8]>) {
        unreachable!("the tested sub-machines write no records")
    }
    fn started(&mut self) {
        unreachable!("the tested sub-machines do not report a start")
    }
    fn held(&mut self) {
        self.0.push(Act::Held);
    }
    fn claim(&mut self, claim: Claim) {
        self.0.push(match claim {
            Claim::Protected => Act::Protected,
            other => Act::Claim(other),
        });
    }
}

/// Returns the name of `owner`'s part of checkpoint `sn`.
pub(super) fn name(owner: u32, sn: u32) -> ImageName {
    ImageName { owner: ProcessId(owner), incarnation: Incarnation(0), sn: Sn(sn), attempt: Attempt(1) }
}

/// Returns `owner`'s part of checkpoint `sn`, without content.
pub(super) fn image(owner: u32, sn: u32) -> Arc<Image<(), ()>> {
    let snapshot =
        Snapshot { witness: Witness::default(), channels: Arc::from([]), application: Arc::from([]) };
    Arc::new(Image { name: name(owner, sn), head: Arc::default(), saved: Arc::default(), snapshot })
}
