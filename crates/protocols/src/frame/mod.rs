//! The frame of the protocols that log messages between groups: one process, assembled from the shared sub-machines.
//!
//! Processes that roll back together form a group. A group takes checkpoints and is restored without the other groups,
//! which keep the messages that they have sent to it. Two questions distinguish the protocols: which processes form a
//! group, and how the channels of a group that has failed resume.
//!
//! | | channels resume in phases ([`InPhases`]) | channels resume pair by pair ([`Pairs`](crate::machines::Pairs)) |
//! | --- | --- | --- |
//! | the group is a cluster ([`Scope::Cluster`]) | HydEE | SPBC |
//! | the group is one process ([`Scope::Process`]) | full logging | pessimistic logging, which also repeats the order of deliveries |
//!
//! A process that takes checkpoints alone is the coordinator and the only member of its group, so it needs no code of
//! its own: the messages of a checkpoint are handled where they are sent, and no channel has to be drained.
//!
//! | file | contents |
//! | --- | --- |
//! | this file | a protocol as the frame sees it, and its messages and processes |
//! | `rank` | a process that runs the application: its inputs, messages of the protocol, and failures |
//! | `messages` | sending and receiving messages of the application |
//! | `checkpoint` | taking checkpoints of the group |
//! | `resuming` | how channels resume: [`InPhases`] and [`Pairs`](crate::machines::Pairs) |
//! | `order` | the order of deliveries: [`AsTheyArrive`], unless a protocol has its own |
//! | `rules` | the rules of the frame and its sub-machines, which a protocol's defects disable |
//!
//! The rules R1 to R15 that the code cites are listed in `docs/hydee.md`; the rules S1 to S5 and M1 to M6, in
//! `docs/baselines.md`.

mod checkpoint;
mod messages;
mod order;
mod rank;
mod resuming;
mod rules;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;

use faultline_core::application::Wire;
use faultline_core::{Gauges, Host, Input, LifeStart, ProcessId, Promise, Promises, Role, Scope, Time};
use serde::{Deserialize, Serialize};

use crate::machines::group::{self, GroupMessage, View};
use crate::machines::logs::{self, Logging, Settled};
use crate::machines::phases::{RecoveryProcess, RoundMessage};
use crate::machines::{ChannelReport, Checkpoint, LoggingOptions};
pub(crate) use order::{AsTheyArrive, Decision, Delivering};
pub(crate) use rank::Rank;
pub(crate) use resuming::{InPhases, Resuming};
pub(crate) use rules::Rules;

/// A protocol that logs messages between groups: its place among such protocols, and what its paper adds.
pub(crate) trait LoggingProtocol:
    Logging<
        Config = LoggingOptions<Self::Defects>,
        Control = Control<<Self::Channels as Resuming>::Message, Self::OrderMessage>,
    >
{
    /// The processes that take checkpoints and roll back together.
    const SCOPE: Scope;
    /// Promises beyond those of all protocols that log messages.
    const PROMISES: &'static [Promise];
    /// Defects that tests can enable.
    type Defects: Copy + Debug + Default + PartialEq;
    /// How channels resume after a failure.
    type Channels: Resuming<Tag = Self::Tag, State = Self::State>;
    /// The order of deliveries.
    type Deliveries: Delivering<Self>;
    /// Messages about the order of deliveries.
    type OrderMessage: Wire;
    /// The process that the protocol needs in addition to the ranks and the storage servers.
    type Extra: ExtraProcess<Self>;

    /// Returns the rules that are obeyed with these defects.
    fn rules(defects: Self::Defects) -> Rules;
}

/// A process outside all groups that is not a storage server.
pub(crate) trait ExtraProcess<P: LoggingProtocol>: Clone + Debug {
    /// The role of the process; `None` if the protocol needs no such process.
    const ROLE: Option<Role>;

    /// Begins a life of the process.
    fn start(start: LifeStart<P::Config>, view: View, rules: &Rules, host: &mut dyn Host<P>) -> Self;
    /// Handles one input.
    fn handle(&mut self, input: Input<P>, host: &mut dyn Host<P>);
}

impl<P: LoggingProtocol> ExtraProcess<P> for Never {
    const ROLE: Option<Role> = None;

    fn start(_: LifeStart<P::Config>, _: View, _: &Rules, _: &mut dyn Host<P>) -> Never {
        unreachable!("no process has this role")
    }

    fn handle(&mut self, _: Input<P>, _: &mut dyn Host<P>) {
        match *self {}
    }
}

impl<P: LoggingProtocol<Channels = InPhases>> ExtraProcess<P> for RecoveryProcess {
    const ROLE: Option<Role> = Some(Role::RECOVERY_PROCESS);

    fn start(start: LifeStart<P::Config>, view: View, rules: &Rules, host: &mut dyn Host<P>) -> Self {
        RecoveryProcess::start(&start, view, rules.recovery, host)
    }

    fn handle(&mut self, input: Input<P>, host: &mut dyn Host<P>) {
        match input {
            Input::Membership(membership) => self.membership_changed(membership, host),
            Input::Control { from, message: Control::Resume(message) } => {
                self.handle_message(from, message, host);
            }
            _ => {}
        }
    }
}

/// A value that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Never {}

/// Messages between processes. `R` is the type of the messages with which channels resume; `O`, of those about the
/// order of deliveries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control<R, O = Never> {
    // Checkpoints, inside a group (R7).
    /// From the coordinator: freeze, and save the state.
    Request(Checkpoint),
    /// From a member: its state is saved. Carries the number of messages that it had sent to each member.
    Saved {
        /// The checkpoint in progress.
        checkpoint: Checkpoint,
        /// Number of messages sent, by receiver.
        sent: Arc<[(ProcessId, u64)]>,
    },
    /// From the coordinator: how many messages from the group belong to the receiver's part.
    Drain {
        /// The checkpoint in progress.
        checkpoint: Checkpoint,
        /// Number of messages.
        expected: u64,
    },
    /// From a member: its part is durable, in its own storage and at its holders.
    Drained(Checkpoint),
    /// From the coordinator: all parts are durable, and the checkpoint is committed.
    Commit(Checkpoint),

    /// The sender's committed checkpoint contains this part of the shared channels (R8).
    Settled(Settled),
    /// A message with which channels resume after a failure (R9 to R14, S3).
    Resume(R),
    /// A message about the order of deliveries.
    Order(O),
    /// A message of the sub-machine that keeps and restores checkpoints.
    Group(GroupMessage),
}

impl<R, O> From<GroupMessage> for Control<R, O> {
    fn from(message: GroupMessage) -> Self {
        Control::Group(message)
    }
}

impl<R, O> From<Settled> for Control<R, O> {
    fn from(settled: Settled) -> Self {
        Control::Settled(settled)
    }
}

impl<O> From<RoundMessage> for Control<RoundMessage, O> {
    fn from(message: RoundMessage) -> Self {
        Control::Resume(message)
    }
}

impl<O> From<ChannelReport> for Control<ChannelReport, O> {
    fn from(report: ChannelReport) -> Self {
        Control::Resume(report)
    }
}

/// One process under a logging protocol.
#[derive(Clone, Debug)]
pub(crate) enum Process<P: LoggingProtocol> {
    Rank(Box<Rank<P>>),
    Extra(Box<P::Extra>),
    Server(Box<group::Server<P>>),
}

impl<P: LoggingProtocol> Process<P> {
    /// Begins a life.
    pub(crate) fn start(start: LifeStart<P::Config>, now: Time, host: &mut dyn Host<P>) -> Process<P> {
        let LifeStart { me, boot, membership, config, .. } = start.clone();
        let rules = rules::<P>(&config);
        let role = membership.member(me).role;
        let view = View::new(P::SCOPE, P::Channels::counted(&rules), membership);
        if Some(role) == P::Extra::ROLE {
            return Process::Extra(Box::new(P::Extra::start(start, view, &rules, host)));
        }
        let placement = config.placement;
        let membership = group::GroupParameters { me, boot, view, placement, rules: rules.group };
        match role {
            Role::RANK => Process::Rank(Box::new(Rank::start(membership, config, rules, now, host))),
            _ => Process::Server(Box::new(group::Server::new(membership, config.retry_every, host))),
        }
    }

    /// Handles one input.
    pub(crate) fn handle(&mut self, input: Input<P>, now: Time, host: &mut dyn Host<P>) {
        match (self, input) {
            (Process::Rank(rank), input) => rank.handle(input, now, host),
            (Process::Extra(process), input) => process.handle(input, host),
            (Process::Server(server), Input::Control { from, message: Control::Group(message) }) => {
                server.handle_message(from, message, host);
            }
            (Process::Server(server), other) => server.handle(other, now, host),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Process::Rank(rank) => rank.next_deadline(),
            Process::Extra(_) => None,
            Process::Server(server) => server.next_deadline(),
        }
    }

    pub(crate) fn gauges(&self) -> Gauges {
        match self {
            Process::Rank(rank) => rank.gauges(),
            Process::Extra(_) | Process::Server(_) => Gauges::default(),
        }
    }
}

/// Returns the rules that are obeyed with these parameters.
fn rules<P: LoggingProtocol>(config: &P::Config) -> Rules {
    let mut rules = P::rules(config.defects);
    let is_sound = config.defects == P::Defects::default();
    (rules.logs.is_sound, rules.draining.is_sound) = (is_sound, is_sound);
    rules
}

/// Returns a protocol's promises.
pub(crate) fn promises<P: LoggingProtocol>() -> Promises {
    logs::promises(P::SCOPE).with(P::PROMISES)
}

/// Returns the roles of the processes that a protocol needs in addition to the ranks.
pub(crate) fn extra_processes<P: LoggingProtocol>(config: &P::Config) -> Vec<Role> {
    P::Extra::ROLE.into_iter().chain(config.placement.server()).collect()
}

/// Declares one process of a [`LoggingProtocol`], whose messages carry `$tag`, and which saves `$state` in order to
/// resume channels. The types `Config`, `Control` and `Stamp` of the protocol must be in scope.
macro_rules! logging_protocol {
    ($(#[$doc:meta])* $name:ident, $tag:ty, $state:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name($crate::frame::Process<$name>);

        impl faultline_core::ProtocolTypes for $name {
            type Control = Control;
            type Head = $crate::machines::logs::Head;
            type Saved = $crate::machines::logs::Saved<$tag, $state>;

            fn add_to(head: &Self::Head, saved: &Self::Saved, footprint: &mut faultline_core::Footprint) {
                saved.add_to(head, footprint);
            }

            fn saved_len(saved: &Self::Saved) -> u64 {
                saved.len()
            }
        }

        impl $crate::machines::logs::Logging for $name {
            type Tag = $tag;
            type State = $state;
        }

        $crate::machines::delegate_protocol!($name, $crate::frame::Process<$name>, {
            type Stamp = Stamp;
            const REPEATS: bool = true;

            fn promises(_: &Config) -> faultline_core::Promises {
                $crate::frame::promises::<Self>()
            }

            fn extra_processes(config: &Config) -> alloc::vec::Vec<faultline_core::Role> {
                $crate::frame::extra_processes::<Self>(config)
            }
        });
    };
}

pub(crate) use logging_protocol;
