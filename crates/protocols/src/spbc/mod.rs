//! SPBC: coordinated checkpoints inside a cluster, sender-based logging between clusters, and recovery by pairs of
//! processes.
//!
//! Ropars, Martsinkevich, Guermouche, Schiper, Cappello: *SPBC: Leveraging the Characteristics of MPI HPC Applications
//! for Scalable Checkpointing* (SC 2013). Only a failed cluster rolls back. Since the program is channel-deterministic,
//! the cluster repeats the messages of each channel, regardless of the order in which messages arrive on other
//! channels. Messages that other clusters already have are suppressed; messages that the failed cluster had received
//! are re-sent from their senders' logs. The rules S1 to S5, R2, R5, R7, R8 and R15 that the code cites are listed in
//! `docs/baselines.md` and `docs/hydee.md`.
//!
//! | part | purpose |
//! | --- | --- |
//! | `rank` | a process that runs the application: sending and receiving (S1, R5), checkpoints (R7), rollbacks |
//! | [`logs`] | the logs of the messages to other clusters, and their collection (R8, R15) |
//! | `pairs` | resuming channels after a failure (S3 to S5) |
//! | `coordinator`, `draining` | a checkpoint of the cluster (R7) |
//! | `group` | keeping checkpoints, and restoring the newest complete one of a failed cluster |

mod rank;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Footprint, Gauges, Host, Input, LifeStart, Promises, Protocol, ProtocolTypes, Role, Scope, Time,
};
use serde::{Deserialize, Serialize};

use crate::machines::group::{self, View};
use crate::machines::logs::{self, Head, Logging, Settled};
use crate::machines::{ChannelReport, Checkpoint, InTransit, LoggingOptions, rules};
use rank::Rank;

/// Parameters of SPBC.
pub type Config = LoggingOptions<Defects>;

rules! {
    /// Messages are transmitted only after both ends have exchanged the state of their channel (S3).
    MeetsFirst, without
        /// Messages are sent before both ends have reported the state of their channel (S3).
        SendsBeforeMeeting;
    /// A peer's report from before a failure is dropped (S3).
    DropsOlderMeeting, without
        /// A peer's report from before a failure is accepted after the failure (S3).
        OlderMeetingAccepted;
    /// The log is part of the checkpoint (R2).
    SavesLog, without
        /// The log is not part of the checkpoint (R2).
        LogOutsideCheckpoint;
    /// A suppressed message is logged like any other (S4).
    LogsSuppressed, without
        /// A suppressed message is not logged (S4).
        SuppressedNotLogged;
    /// A peer removes from its log only messages that a committed checkpoint contains (R8).
    CollectsAtCheckpoint, without
        /// Garbage collection uses the current counts instead of those at the checkpoint (R8).
        CollectsAtPresent;
    /// Messages from older incarnations of a cluster are dropped (R5).
    DropsOlderLives, without
        /// Messages from older incarnations of a cluster are accepted (R5).
        NoLifeCheck;
    ; mutations
    /// One replica of each part is omitted.
    OneCopyTooFew,
    /// A cluster resumes before the holders have confirmed their replicas of the restored checkpoint.
    ReadyBeforeCopies,
    /// A part counts as durable before its holders have confirmed it.
    CommitsBeforeCopies,
    /// Messages in transit at the cut are not received after the commit.
    LateNotReceived,
    /// A checkpoint does not wait for the cluster's last member.
    OneAnswerNotAwaited,
    /// Messages that the application sends after its state is saved are not transmitted after the commit.
    UnsentDropped,
    /// A message that arrives during its receiver's restore is dropped.
    ArrivalsDroppedWhileRestoring,
    /// A committed checkpoint is not announced to the peers, so log entries are never collected.
    NeverCollects,
    /// One more message than the receiver's checkpoint contains is removed from the log.
    CollectsOneTooMany,
    /// The last message that a peer has received is sent to it again.
    LastReceivedResent,
    /// Messages that are in transit when another cluster fails are sent again.
    InTransitSentAgain,
    /// A peer's announcement of a checkpoint, sent before a failure, is accepted after the failure.
    OlderSettledCounts,
    /// A peer's report is handled before its receiver has learned of the failure that caused the report.
    EarlyMeetingHandled,
    /// A new incarnation of the peer's cluster receives no report on the state of the channel.
    PeersFailureIgnored,
}

/// Messages between processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    // Checkpoints, inside a cluster (R7).
    /// From the coordinator: freeze, and save the state.
    Request(Checkpoint),
    /// From a member: its state is saved. Carries the number of messages that it had sent to each member.
    Saved {
        /// The checkpoint in progress.
        checkpoint: Checkpoint,
        /// Number of messages sent, by receiver.
        sent: Arc<[(faultline_core::ProcessId, u64)]>,
    },
    /// From the coordinator: how many messages from the cluster belong to the receiver's part.
    Drain {
        /// The checkpoint in progress.
        checkpoint: Checkpoint,
        /// Number of messages.
        expected: u64,
    },
    /// From a member: its part is durable, locally and at its holders.
    Drained(Checkpoint),
    /// From the coordinator: all parts are durable, and the checkpoint is committed.
    Commit(Checkpoint),

    /// The sender's committed checkpoint contains this part of the shared channels (R8).
    Settled(Settled),
    /// The state of the shared channels, after a failure (S3).
    ChannelReport(ChannelReport),
    /// A message of the sub-machine that keeps and restores checkpoints.
    Group(group::GroupMessage),
}

impl From<group::GroupMessage> for Control {
    fn from(message: group::GroupMessage) -> Control {
        Control::Group(message)
    }
}

impl From<Settled> for Control {
    fn from(settled: Settled) -> Control {
        Control::Settled(settled)
    }
}

impl From<ChannelReport> for Control {
    fn from(report: ChannelReport) -> Control {
        Control::ChannelReport(report)
    }
}

/// The stamp of every message. A message's number within its channel is part of the message's identity (S1).
pub type Stamp = logs::Stamp<()>;

/// One process under SPBC.
#[derive(Clone, Debug)]
pub struct Spbc(Process);

#[derive(Clone, Debug)]
enum Process {
    Rank(Box<Rank>),
    Server(Box<group::Server<Spbc>>),
}

impl ProtocolTypes for Spbc {
    type Control = Control;
    type Head = Head;
    type Saved = logs::Saved<(), InTransit>;

    fn add_to(head: &Head, saved: &Self::Saved, footprint: &mut Footprint) {
        saved.add_to(head, footprint);
        footprint.add_vec(&saved.own);
    }
}

impl Logging for Spbc {
    type Tag = ();
    /// Messages from this process's cluster that were in transit.
    type Own = InTransit;
}

impl Protocol for Spbc {
    type Config = Config;
    type Stamp = Stamp;
    const FIFO: bool = true;
    const REPEATS: bool = true;

    fn promises(_: &Config) -> Promises {
        logs::promises(Scope::Cluster)
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        config.placement.server().into_iter().collect()
    }

    fn start(start: LifeStart<Config>, now: Time, host: &mut dyn Host<Self>) -> Self {
        let LifeStart { me, boot, membership, config, .. } = start;
        let role = membership.member(me).role;
        let placement = match config.defects.has(Defect::OneCopyTooFew) {
            true => config.placement.one_fewer(),
            false => config.placement,
        };
        let copies_first = !config.defects.has(Defect::ReadyBeforeCopies);
        let rules = group::Rules { copies_first, ..group::Rules::ALL };
        let view = View::new(Scope::Cluster, None, membership);
        let membership = group::GroupParameters { me, boot, view, placement, rules };
        Spbc(match role {
            Role::RANK => Process::Rank(Box::new(Rank::start(membership, config, now, host))),
            _ => Process::Server(Box::new(group::Server::new(membership, config.retry_every, host))),
        })
    }

    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>) {
        match &mut self.0 {
            Process::Rank(rank) => rank.handle(input, now, host),
            Process::Server(server) => match input {
                Input::Control { from, message: Control::Group(message) } => {
                    server.handle_message(from, message, host)
                }
                other => server.handle(other, now, host),
            },
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        match &self.0 {
            Process::Rank(rank) => rank.next_deadline(),
            Process::Server(server) => server.next_deadline(),
        }
    }

    fn gauges(&self) -> Gauges {
        match &self.0 {
            Process::Rank(rank) => rank.gauges(),
            Process::Server(_) => Gauges::default(),
        }
    }
}
