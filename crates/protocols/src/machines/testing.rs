//! Hosts that record the actions of a sub-machine: [`Recorder`] for one that needs only storage, [`RecordingHost`] for one that
//! acts on the application or sends messages.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Claim, Cluster, ClusterId, Host, Image, ImageName, Incarnation, Life, Machine, Member,
    Membership, MembershipVersion, MessageId, NodeId, Payload, Position, ProcessId, Protocol, ProtocolTypes,
    Role, Sn, Snapshot, Stamp, To, Witness,
};

use super::ImageOf;

/// A protocol without messages.
#[derive(Clone, Debug)]
pub(crate) struct Plain;

impl ProtocolTypes for Plain {
    type Control = ();
    type Head = ();
    type Saved = ();
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    SendImage(ProcessId, ImageName),
    Persist(ImageName),
    Read(ImageName),
    Held,
    Protected,
    Claim(Claim),
}

#[derive(Default)]
pub(crate) struct Recorder(Vec<Act>);

impl Recorder {
    /// Returns the actions since the last call.
    pub(crate) fn take(&mut self) -> Vec<Act> {
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
pub(crate) fn name(owner: u32, sn: u32) -> ImageName {
    ImageName { owner: ProcessId(owner), incarnation: Incarnation(0), sn: Sn(sn), attempt: Attempt(1) }
}

/// Returns `owner`'s part of checkpoint `sn`, without content.
pub(crate) fn image(owner: u32, sn: u32) -> Arc<Image<(), ()>> {
    let snapshot = snapshot();
    Arc::new(Image { name: name(owner, sn), head: Arc::default(), saved: Arc::default(), snapshot })
}

/// Returns a state of the application without content.
pub(crate) fn snapshot() -> Snapshot {
    Snapshot { witness: Witness::default(), channels: Arc::from([]), application: Arc::from([]) }
}

/// Returns a membership in which each rank is a cluster of its own, in one of these lives; `None` is a rank that has
/// failed in its first life and is down. The recovery process, the last process, is in life `recovery`.
pub(crate) fn membership(ranks: &[Option<u32>], recovery: u32) -> Arc<Membership> {
    let member = |(index, life): (usize, &Option<u32>)| Member {
        cluster: ClusterId(index as u16),
        role: Role::RANK,
        node: NodeId(index as u32),
        life: Life(life.unwrap_or(1)),
        up: life.is_some(),
        started: true,
        gone: false,
        idle_lives: 0,
    };
    let mut members: Vec<Member> = ranks.iter().enumerate().map(member).collect();
    let clusters = (0..ranks.len() as u32).map(|it| Cluster::new([ProcessId(it)].into())).collect();
    members.push(Member {
        cluster: ClusterId::OUTSIDE,
        role: Role::RECOVERY_PROCESS,
        node: NodeId(ranks.len() as u32),
        life: Life(recovery),
        up: true,
        ..members[0]
    });
    let version = members.iter().map(|it| 2 * u64::from(it.life.0) - u64::from(it.up)).sum();
    Arc::new(Membership { version: MembershipVersion(version), members: members.into(), clusters })
}

/// What a sub-machine does, apart from storing images.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HostAction<C> {
    Say(To, C),
    /// Carries the position in the message's stamp.
    Transmit(MessageId, Position),
    Suppress(MessageId),
    Deliver(MessageId),
    DropStale(MessageId),
    Hold,
    Release,
    RequestSnapshot,
    Restore(Incarnation),
    Record(Arc<[u8]>),
    Claim(Claim),
}

/// A host of a process under `P`.
pub(crate) struct RecordingHost<P: ProtocolTypes> {
    actions: Vec<HostAction<P::Control>>,
    /// The images that the process has written.
    pub(crate) written: Vec<Arc<ImageOf<P>>>,
    /// The images that the process has removed.
    pub(crate) removed: Vec<ImageName>,
}

impl<P: ProtocolTypes> Default for RecordingHost<P> {
    fn default() -> Self {
        RecordingHost { actions: Vec::new(), written: Vec::new(), removed: Vec::new() }
    }
}

impl<P: ProtocolTypes> RecordingHost<P> {
    /// Returns what the sub-machine has done since the last call.
    pub(crate) fn take(&mut self) -> Vec<HostAction<P::Control>> {
        core::mem::take(&mut self.actions)
    }
}

impl<P: ProtocolTypes> Machine<P> for RecordingHost<P> {
    fn control(&mut self, to: To, message: P::Control) {
        self.actions.push(HostAction::Say(to, message));
    }
    fn send_image(&mut self, _: ProcessId, _: Arc<ImageOf<P>>) {}
    fn persist(&mut self, image: Arc<ImageOf<P>>) {
        self.written.push(image);
    }
    fn read(&mut self, _: ImageName) {}
    fn list(&mut self) {}
    fn delete(&mut self, name: ImageName) {
        self.removed.push(name);
    }
    fn record(&mut self, _: u64, bytes: Arc<[u8]>) {
        self.actions.push(HostAction::Record(bytes));
    }
    fn started(&mut self) {}
    fn held(&mut self) {}
    fn claim(&mut self, claim: Claim) {
        self.actions.push(HostAction::Claim(claim));
    }
}

impl<P: Protocol> Host<P> for RecordingHost<P> {
    fn transmit(&mut self, id: MessageId, stamp: P::Stamp, _: Payload) {
        self.actions.push(HostAction::Transmit(id, stamp.position()));
    }
    fn suppress(&mut self, id: MessageId) {
        self.actions.push(HostAction::Suppress(id));
    }
    fn deliver(&mut self, id: MessageId, _: Payload) {
        self.actions.push(HostAction::Deliver(id));
    }
    fn drop_stale(&mut self, id: MessageId) {
        self.actions.push(HostAction::DropStale(id));
    }
    fn hold(&mut self) {
        self.actions.push(HostAction::Hold);
    }
    fn wait(&mut self) {}
    fn release(&mut self) {
        self.actions.push(HostAction::Release);
    }
    fn request_snapshot(&mut self) {
        self.actions.push(HostAction::RequestSnapshot);
    }
    fn request_rest(&mut self) {}
    fn restore(&mut self, _: Option<&ImageOf<P>>, incarnation: Incarnation) {
        self.actions.push(HostAction::Restore(incarnation));
    }
}
