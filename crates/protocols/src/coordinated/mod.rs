//! Coordinated checkpoints of the whole federation, which pauses while a checkpoint is being taken.
//!
//! The blocking two-phase protocol of section 3.2 of Elnozahy, Alvisi, Wang, Johnson: *A Survey of Rollback-Recovery
//! Protocols in Message-Passing Systems* (ACM Computing Surveys 2002). A coordinator requests a checkpoint. Every
//! process stops and saves its state. The coordinator adds up how many messages were sent to each process, and each
//! process waits until all of them have arrived. All processes resume once every part is durable. A failure rolls all
//! processes back to the newest complete checkpoint. The rules K1 to K5 are listed in `docs/baselines.md`.
//!
//! | part | purpose |
//! | --- | --- |
//! | `Frozen` | a process that is paused while a checkpoint is being taken (K1, K3, K4) |
//! | `Coordinator` | the coordinator's side: counting, and waiting for all parts (K2, K4) |
//! | `Group` | keeping checkpoints, and restoring the newest complete one (K5) |
//! | `leaders` | the hierarchical variant, in which clusters answer through leaders (L1, L2) |

mod leaders;
mod rank;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Gauges, Host, Input, LifeStart, ProcessId, Promises, Protocol, ProtocolTypes, Role, Time,
};
use serde::{Deserialize, Serialize};

use crate::machines::group::{self, Grouped};
use crate::machines::{self, Checkpoint, InTransit, Interval, Options, bytes_of, rules};
use rank::Rank;

/// Parameters of the protocol, the same for all processes.
#[derive(Clone, Debug)]
pub struct Config {
    /// The parameters common to all protocols that take checkpoints of the whole federation.
    pub options: Options<Defects>,
    /// Which processes communicate with the coordinator while a checkpoint is being taken.
    pub coordination: Coordination,
}

/// Which processes communicate with the coordinator while a checkpoint is being taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordination {
    /// All processes.
    Direct,
    /// The leader of each cluster, its lowest-numbered process, on behalf of its members (Paul, Gupta,
    /// Badrinath: *Hierarchical Coordinated Checkpointing Protocol*, PDCS 2002).
    Hierarchical,
}

rules! {
    /// A part contains the messages that were in transit (K3).
    Drains, without
        /// A checkpoint does not contain the messages that were in transit (K3).
        NoDrain;
    /// A checkpoint is committed only after every part is durable, at its process and at its holders (K4).
    DurableFirst, without
        /// A part counts as durable before it is (K4).
        CommitBeforeCopies;
    /// A message from a later interval waits until its receiver has reached the interval (K4).
    KeepsEarly, without
        /// Messages from later intervals are dropped instead of being held back (K4).
        FutureDropped;
    /// Messages from before a rollback are dropped (K5).
    DropsOld, without
        /// Messages from before a rollback are delivered (K5).
        OldWithinAccepted;
    /// The newest complete checkpoint is restored (K5).
    RestoresNewest, without
        /// The oldest complete checkpoint is restored (K5).
        RestartBefore;
    /// A leader does not report how many messages its cluster has sent until all members have saved their states (L2).
    LeaderCountsAll, without
        /// As soon as one member of its cluster has saved its state, a leader reports how many messages the cluster has
        /// sent (L2).
        LeaderCountsAlone;
    /// A leader does not report its cluster's parts as durable until all of them are (L2).
    LeaderDrainsAll, without
        /// A leader reports its cluster's parts as durable as soon as one is (L2).
        LeaderDrainsAlone;
}

/// Known defects of the protocol without leaders.
pub const DEFECTS: [Defect; 5] = [
    Defect::NoDrain,
    Defect::CommitBeforeCopies,
    Defect::FutureDropped,
    Defect::OldWithinAccepted,
    Defect::RestartBefore,
];

/// Known defects of the hierarchical variant: its own, and most of those that violate rules of both variants.
pub const DEFECTS_OF_LEADERS: [Defect; 6] = [
    Defect::LeaderCountsAlone,
    Defect::LeaderDrainsAlone,
    Defect::NoDrain,
    Defect::OldWithinAccepted,
    Defect::CommitBeforeCopies,
    Defect::RestartBefore,
];

/// Messages between processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    /// From the coordinator: stop, and save the state.
    Request(Checkpoint),
    /// From a member: its state is saved. From a leader: the states of all members of its cluster are saved.
    Saved {
        /// The checkpoint.
        checkpoint: Checkpoint,
        /// Number of messages sent since the last rollback, by receiver.
        sent: Arc<[(ProcessId, u64)]>,
    },
    /// From the coordinator: write the part once all messages counted in `sent` have arrived.
    Drain {
        /// The checkpoint.
        checkpoint: Checkpoint,
        /// Number of messages sent since the last rollback, by receiver.
        sent: Arc<[(ProcessId, u64)]>,
    },
    /// From a member: its part is durable, at the member and at its holders. From a leader: so are the parts of all
    /// members of its cluster.
    Drained(Checkpoint),
    /// From the coordinator: all parts are durable, and the checkpoint is committed.
    Commit {
        /// The checkpoint.
        checkpoint: Checkpoint,
        /// Whether all older checkpoints are removed.
        collects: bool,
    },
    /// A message of the sub-machine that keeps and restores checkpoints.
    Group(group::GroupMessage),
}

impl From<group::GroupMessage> for Control {
    fn from(message: group::GroupMessage) -> Control {
        Control::Group(message)
    }
}

/// One process under coordinated checkpoints.
#[derive(Clone, Debug)]
pub struct Coordinated(Process);

#[derive(Clone, Debug)]
enum Process {
    Rank(Box<Rank>),
    Server(Box<group::Server<Coordinated>>),
}

impl ProtocolTypes for Coordinated {
    type Control = Control;
    type Head = ();
    type Saved = InTransit;

    fn saved_len(saved: &InTransit) -> u64 {
        bytes_of(saved)
    }
}

impl Grouped for Coordinated {}

fn group_rules(defects: Defects) -> group::Rules {
    group::Rules { restores_newest: defects.obeys(Rule::RestoresNewest), ..group::Rules::ALL }
}

impl Protocol for Coordinated {
    type Config = Config;
    type Stamp = Interval;
    const FIFO: bool = true;

    fn promises(_: &Config) -> Promises {
        machines::promises()
    }

    fn extra_processes(config: &Config) -> Vec<Role> {
        config.options.extra_processes()
    }

    fn start(start: LifeStart<Config>, now: Time, host: &mut dyn Host<Self>) -> Self {
        let options = &start.config.options;
        let membership = options.membership(&start, group_rules(options.defects));
        let retry_every = options.retry_every;
        Coordinated(match start.membership.member(start.me).role {
            Role::RANK => Process::Rank(Box::new(Rank::start(membership, start.config, now, host))),
            _ => Process::Server(Box::new(group::Server::new(membership, retry_every, host))),
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
            Process::Rank(rank) => {
                Gauges { checkpoints: u32::from(rank.has_checkpoint()), ..Gauges::default() }
            }
            Process::Server(_) => Gauges::default(),
        }
    }

    fn control_kind(message: &Control) -> &'static str {
        match message {
            Control::Request(_) => "request",
            Control::Saved { .. } => "saved",
            Control::Drain { .. } => "drain",
            Control::Drained(_) => "drained",
            Control::Commit { .. } => "commit",
            Control::Group(_) => "control",
        }
    }
}

impl Coordinated {
    /// Returns the current incarnation, and the SN of the checkpoint that this process last committed or restored; the
    /// default on a storage server.
    pub fn position(&self) -> faultline_core::Position {
        match &self.0 {
            Process::Rank(rank) => rank.position(),
            Process::Server(_) => faultline_core::Position::default(),
        }
    }
}
