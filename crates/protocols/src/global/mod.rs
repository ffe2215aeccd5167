//! The frame of the protocols that take checkpoints of the whole federation: one process, assembled from the shared
//! sub-machines.
//!
//! A coordinator, the lowest-numbered process, begins each checkpoint, and commits it once all parts are durable. After
//! a failure, all processes roll back to the newest complete checkpoint. The protocols differ in how the messages in
//! transit become part of a checkpoint:
//!
//! | protocol | messages in transit |
//! | --- | --- |
//! | `coordinated` | all processes pause until every message that was sent has arrived |
//! | `chandy_lamport` | each process records what arrives on a channel until the channel's marker |
//!
//! | file | contents |
//! | --- | --- |
//! | this file | a protocol as the frame sees it, and its processes |
//! | `rank` | a process that runs the application: its inputs, messages of the protocol, and failures |

mod rank;

use alloc::boxed::Box;
use core::fmt::Debug;

use faultline_core::{
    Gauges, Host, ImageName, Input, LifeStart, MessageId, Payload, Position, ProcessId, Protocol, Role,
    Snapshot, Time,
};

use crate::machines::group::{self, Group, GroupMessage, Grouped, Resumed};
use crate::machines::{Checkpoint, InTransit, Interval, Options, Replication};
pub(crate) use rank::{Early, Rank};

/// A protocol that takes checkpoints of the whole federation: what its paper adds.
pub(crate) trait GlobalProtocol:
    Grouped + Protocol<Stamp = Interval, Head = (), Saved = InTransit>
{
    /// Defects that tests can enable.
    type Defects;
    /// A process's side of a checkpoint.
    type Member: Member<Self>;

    /// Returns the parameters that all these protocols share.
    fn options(config: &Self::Config) -> &Options<Self::Defects>;
    /// Returns whether the newest complete checkpoint is restored, not the oldest.
    fn restores_newest(config: &Self::Config) -> bool;
    /// Begins a life of a process that runs the application.
    fn member(config: &Self::Config, group: &Group<Self>) -> Self::Member;
    /// Returns the subject of a message.
    fn subject(message: &Self::Control) -> Subject<'_>;

    /// Handles an input before all else.
    fn precede(_rank: &mut Rank<Self>, _input: &Input<Self>, _host: &mut dyn Host<Self>) {}
    /// Handles a message that the application sent.
    fn sent(rank: &mut Rank<Self>, id: MessageId, payload: Payload, host: &mut dyn Host<Self>);
    /// Handles a message for the application.
    fn arrived(rank: &mut Rank<Self>, message: Arrival, host: &mut dyn Host<Self>);
    /// Begins the checkpoint that the coordinator has chosen. Runs on the coordinator.
    fn begin(rank: &mut Rank<Self>, now: Time, host: &mut dyn Host<Self>);
    /// Handles the snapshot, which follows all earlier sends of the application.
    fn saved(rank: &mut Rank<Self>, snapshot: Snapshot, now: Time, host: &mut dyn Host<Self>);
    /// Handles a message about a checkpoint of this incarnation.
    fn handle_control(
        rank: &mut Rank<Self>,
        from: ProcessId,
        message: Self::Control,
        now: Time,
        host: &mut dyn Host<Self>,
    );
    /// Writes this process's part if it is complete. Called after each input.
    fn maybe_write(_rank: &mut Rank<Self>, _host: &mut dyn Host<Self>) {}
    /// Reports that this process's part is durable, locally and at its holders.
    fn part_durable(rank: &mut Rank<Self>, checkpoint: Checkpoint, now: Time, host: &mut dyn Host<Self>);
    /// Tells all processes, this one included, that the checkpoint is committed. Runs on the coordinator.
    fn announce(
        rank: &mut Rank<Self>,
        checkpoint: Checkpoint,
        collects: bool,
        now: Time,
        host: &mut dyn Host<Self>,
    );
    /// Resumes in the restored state, after older checkpoints have been collected.
    fn resumed(_rank: &mut Rank<Self>, _resumed: &Resumed<Self>, _host: &mut dyn Host<Self>) {}
}

/// A message for the application, with the interval in which it was sent.
pub(crate) type Arrival = (MessageId, Interval, Payload);

/// The subject of a message.
pub(crate) enum Subject<'a> {
    /// A checkpoint in progress.
    Checkpoint(Checkpoint),
    /// The group's storage and recovery.
    Group(&'a GroupMessage),
}

/// A process's side of a checkpoint.
pub(crate) trait Member<P: GlobalProtocol>: Clone + Debug {
    /// Returns the current incarnation, and the SN of the last committed or restored checkpoint.
    fn position(&self) -> Position;
    /// Returns whether a checkpoint is being taken.
    fn is_checkpointing(&self) -> bool;
    /// Returns this process's part of the checkpoint in progress, once it has been written.
    fn written(&mut self) -> Option<&mut Replication<P>>;
    /// Handles the commit: claims the commit, and resumes the application. Returns `false` if the checkpoint is not in
    /// progress here.
    fn commit(&mut self, group: &Group<P>, checkpoint: Checkpoint, now: Time, host: &mut dyn Host<P>)
    -> bool;
    /// Handles the failure of a member: discards the checkpoint in progress, and holds the application unless
    /// `is_recovering`.
    fn freeze(&mut self, is_recovering: bool, host: &mut dyn Host<P>);
    /// Installs the state that the group restores.
    fn restore(&mut self, group: &Group<P>, resumed: &Resumed<P>, host: &mut dyn Host<P>);

    /// Records that an image is durable in this process's storage.
    fn durable(&mut self, name: ImageName) {
        if let Some(written) = self.written() {
            written.durable(name);
        }
    }

    /// Returns the checkpoint if this process's part has just become durable, locally and at its holders.
    fn completes(&mut self) -> Option<Checkpoint> {
        let written = self.written()?;
        written.completes().then(|| written.image().name.into())
    }
}

/// One process under a protocol that takes checkpoints of the whole federation.
#[derive(Clone, Debug)]
pub(crate) enum Process<P: GlobalProtocol> {
    Rank(Box<Rank<P>>),
    Server(Box<group::Server<P>>),
}

impl<P: GlobalProtocol> Process<P> {
    /// Begins a life.
    pub(crate) fn start(start: LifeStart<P::Config>, now: Time, host: &mut dyn Host<P>) -> Process<P> {
        let options = P::options(&start.config);
        let restores_newest = P::restores_newest(&start.config);
        let membership = options.membership(&start, group::Rules { restores_newest, ..group::Rules::ALL });
        let retry_every = options.retry_every;
        match start.membership.member(start.me).role {
            Role::RANK => Process::Rank(Box::new(Rank::start(membership, start.config, now, host))),
            _ => Process::Server(Box::new(group::Server::new(membership, retry_every, host))),
        }
    }

    /// Handles one input.
    pub(crate) fn handle(&mut self, input: Input<P>, now: Time, host: &mut dyn Host<P>) {
        match (self, input) {
            (Process::Rank(rank), input) => rank.handle(input, now, host),
            (Process::Server(server), Input::Control { from, message }) => {
                if let Subject::Group(message) = P::subject(&message) {
                    server.handle_message(from, message.clone(), host);
                }
            }
            (Process::Server(server), input) => server.handle(input, now, host),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Process::Rank(rank) => rank.next_deadline(),
            Process::Server(server) => server.next_deadline(),
        }
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let checkpoints = match self {
            Process::Rank(rank) => u32::from(rank.group.kept.is_some()),
            Process::Server(_) => 0,
        };
        Gauges { checkpoints, ..Gauges::default() }
    }
}

/// Declares one process of a [`GlobalProtocol`]. The types `Config` and `Control` of the protocol must be in scope.
macro_rules! global_protocol {
    ($(#[$doc:meta])* $name:ident $(, $control_kind:path)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name($crate::global::Process<$name>);

        impl From<$crate::machines::group::GroupMessage> for Control {
            fn from(message: $crate::machines::group::GroupMessage) -> Control {
                Control::Group(message)
            }
        }

        impl $crate::machines::group::Grouped for $name {}

        impl faultline_core::ProtocolTypes for $name {
            type Control = Control;
            type Head = ();
            type Saved = $crate::machines::InTransit;

            fn saved_len(saved: &Self::Saved) -> u64 {
                $crate::machines::bytes_of(saved)
            }
        }

        $crate::machines::delegate_protocol!($name, $crate::global::Process<$name>, {
            type Stamp = $crate::machines::Interval;

            fn promises(_: &Config) -> faultline_core::Promises {
                $crate::machines::promises()
            }

            fn extra_processes(config: &Config) -> alloc::vec::Vec<faultline_core::Role> {
                Self::options(config).extra_processes()
            }

            $(
                fn control_kind(message: &Control) -> &'static str {
                    $control_kind(message)
                }
            )?
        });
    };
}

pub(crate) use global_protocol;
