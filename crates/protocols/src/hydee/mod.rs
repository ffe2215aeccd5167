//! HydEE: coordinated checkpoints inside a cluster, sender-based logging between clusters, and no event log.
//!
//! Guermouche, Ropars, Snir, Cappello: *HydEE: Failure Containment without Event Logging for Large Scale
//! Send-Deterministic MPI Applications* (2012). Only a failed cluster rolls back. Since the program is
//! send-deterministic, the cluster re-sends the messages that other clusters have received and whose sends were undone.
//! Until then, *phases* hold back all messages that depend on them. The rules R1 to R15 that the code cites are listed
//! in `docs/hydee.md`: the printed algorithms, completed for asynchronous processes. A [`Defect`] disables a rule, or
//! applies it as printed.
//!
//! | part | purpose |
//! | --- | --- |
//! | `rank` | a process that runs the application |
//! | `delivery` | sending and receiving (section III-A, Algorithm 1; R3 to R6) |
//! | `checkpoint` | a checkpoint of the cluster, and garbage collection after it (R7, R8) |
//! | [`phases`] | phases (section III-A, Algorithm 1; R6), rounds (Algorithms 2 and 3; R9, R10, R13), and the recovery process (Algorithm 4; R1, R11, R12, R14) |
//! | [`logs`] | the state of a channel: counts and log (R2), its collection (R8), and moving it to stable storage above a limit (section V, future work; R15) |
//! | `coordinator`, `draining` | both sides of a checkpoint of the cluster (R7) |
//! | [`group`] | keeping checkpoints, and restoring the newest complete one of a failed cluster |

mod checkpoint;
mod config;
mod delivery;
mod rank;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Footprint, Gauges, Host, Input, LifeStart, MessageId, Payload, ProcessId, Promise, Promises, Protocol,
    ProtocolTypes, Role, Scope, Time,
};
use serde::{Deserialize, Serialize};

pub use crate::machines::Checkpoint;
pub use crate::machines::group::{GroupMessage, RestoreNo};
pub use crate::machines::logs::{Channel, Content, Covered, Head, LogSegmentNo, LogSize, Logged, Settled};
pub use crate::machines::phases::{AppAction, Orphan, Phase, Phases, RoundMessage};
pub use config::{Config, Defect, Defects, Rule};

use crate::machines::group;
use crate::machines::logs::{self, Logging};
use crate::machines::phases::{self, RecoveryProcess};
use rank::Rank;

/// The stamp of every message: its phase, and the incarnations of both clusters (R5).
pub type Stamp = logs::Stamp<Phase>;

/// The protocol's own state in a part of a checkpoint, besides the channels (R2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProtocolState {
    /// Phases of the process and of the messages that it has received.
    pub phases: Phases,
    /// Actions of the application that waited for a phase.
    pub app_actions: VecDeque<AppAction>,
    /// Messages from this process's cluster that were in transit.
    pub late: Vec<Late>,
}

/// A message from this process's cluster that was in transit when the checkpoint was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Late {
    /// Identity of the message.
    pub id: MessageId,
    /// Phase of the message.
    pub phase: Phase,
    /// Content of the message.
    pub payload: Payload,
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
        sent: Arc<[(ProcessId, u64)]>,
    },
    /// From the coordinator: how many messages from the cluster belong to the receiver's part.
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
    /// A message of a recovery round (R1, R9 to R14).
    Round(RoundMessage),
    /// A message of the sub-machine that keeps and restores checkpoints.
    Group(GroupMessage),
}

impl From<GroupMessage> for Control {
    fn from(message: GroupMessage) -> Control {
        Control::Group(message)
    }
}

impl From<Settled> for Control {
    fn from(settled: Settled) -> Control {
        Control::Settled(settled)
    }
}

impl From<RoundMessage> for Control {
    fn from(message: RoundMessage) -> Control {
        Control::Round(message)
    }
}

/// One process under HydEE.
#[derive(Clone, Debug)]
pub struct Hydee(Process);

#[derive(Clone, Debug)]
enum Process {
    Rank(Box<Rank>),
    Recovery(Box<RecoveryProcess>),
    Server(Box<group::Server<Hydee>>),
}

impl ProtocolTypes for Hydee {
    type Control = Control;
    type Head = Head;
    type Saved = logs::Saved<Phase, ProtocolState>;

    fn add_to(head: &Head, saved: &Self::Saved, footprint: &mut Footprint) {
        saved.add_to(head, footprint);
        footprint.add_vec(&saved.own.late);
    }
}

impl Logging for Hydee {
    type Tag = Phase;
    type Own = ProtocolState;
}

impl Protocol for Hydee {
    type Config = Config;
    type Stamp = Stamp;
    const FIFO: bool = true;
    const REPEATS: bool = true;

    fn promises(_: &Config) -> Promises {
        logs::promises(Scope::Cluster).with(&[Promise::OrphansFirst, Promise::Phases])
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        core::iter::once(Role::RECOVERY_PROCESS).chain(config.placement.server()).collect()
    }

    fn start(start: LifeStart<Config>, now: Time, host: &mut dyn Host<Self>) -> Self {
        let LifeStart { me, boot, config, .. } = &start;
        let role = start.membership.member(*me).role;
        let view = phases::view(
            Scope::Cluster,
            config.defects.obeys(Rule::ReplacedBeginsRound),
            start.membership.clone(),
        );
        let (placement, rules) = (config.copies(), config.group_rules());
        let membership = group::GroupParameters { me: *me, boot: *boot, view, placement, rules };
        Hydee(match role {
            Role::RECOVERY_PROCESS => {
                let rules = config.recovery_rules();
                Process::Recovery(Box::new(RecoveryProcess::start(&start, Scope::Cluster, rules, host)))
            }
            Role::STORAGE_SERVER => {
                Process::Server(Box::new(group::Server::new(membership, config.retry_every, host)))
            }
            _ => Process::Rank(Box::new(Rank::start(membership, start.config, now, host))),
        })
    }

    fn handle(&mut self, input: Input<Self>, now: Time, host: &mut dyn Host<Self>) {
        match (&mut self.0, input) {
            (Process::Rank(rank), input) => rank.handle(input, now, host),
            (Process::Recovery(process), Input::Membership(it)) => process.membership_changed(it, host),
            (Process::Recovery(process), Input::Control { from, message: Control::Round(message) }) => {
                process.handle_message(from, message, host);
            }
            (Process::Recovery(_), _) => {}
            (Process::Server(server), Input::Control { from, message: Control::Group(message) }) => {
                server.handle_message(from, message, host);
            }
            (Process::Server(server), other) => server.handle(other, now, host),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        match &self.0 {
            Process::Rank(rank) => rank.next_deadline(),
            Process::Recovery(_) => None,
            Process::Server(server) => server.next_deadline(),
        }
    }

    fn gauges(&self) -> Gauges {
        match &self.0 {
            Process::Rank(rank) => rank.gauges(),
            Process::Recovery(_) | Process::Server(_) => Gauges::default(),
        }
    }
}
