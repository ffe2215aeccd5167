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
//! | this file | the messages, and what a process does when it receives them |
//! | `frozen` | a process that is paused while a checkpoint is being taken (K1, K3, K4) |
//! | `leaders` | the hierarchical variant, in which clusters answer through leaders (L1, L2) |
//! | `Coordinator` | the coordinator's side: counting, and waiting for all parts (K2, K4) |
//! | `Group` | keeping checkpoints, and restoring the newest complete one (K5) |

mod frozen;
mod leaders;

use alloc::sync::Arc;

use faultline_core::{Host, MessageId, Payload, Position, ProcessId, Snapshot, Time};
use serde::{Deserialize, Serialize};

use crate::global::{self, Arrival, GlobalProtocol, Member, Process, Subject, global_protocol};
use crate::machines::group::{Group, GroupMessage};
use crate::machines::{Checkpoint, Options, rules};
use frozen::Frozen;
use leaders::Leader;

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
    Group(GroupMessage),
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

global_protocol! {
    /// One process under coordinated checkpoints.
    Coordinated, control_kind
}

type Rank = global::Rank<Coordinated>;

impl GlobalProtocol for Coordinated {
    type Defects = Defects;
    type Member = Frozen;

    fn options(config: &Config) -> &Options<Defects> {
        &config.options
    }

    fn restores_newest(config: &Config) -> bool {
        config.options.defects.obeys(Rule::RestoresNewest)
    }

    fn member(config: &Config, group: &Group<Self>) -> Frozen {
        Frozen::new(config.options.defects, Leader::of(config, group))
    }

    fn subject(message: &Control) -> Subject<'_> {
        match message {
            Control::Request(checkpoint)
            | Control::Saved { checkpoint, .. }
            | Control::Drain { checkpoint, .. }
            | Control::Drained(checkpoint)
            | Control::Commit { checkpoint, .. } => Subject::Checkpoint(*checkpoint),
            Control::Group(message) => Subject::Group(message),
        }
    }

    fn sent(rank: &mut Rank, id: MessageId, payload: Payload, host: &mut dyn Host<Self>) {
        rank.member.sent(id, payload, host);
    }

    fn arrived(rank: &mut Rank, message: Arrival, host: &mut dyn Host<Self>) {
        rank.member.arrived(&rank.group, message, host);
    }

    /// Requests the checkpoint (K1).
    fn begin(rank: &mut Rank, now: Time, host: &mut dyn Host<Self>) {
        let (position, answering) = (rank.member.position(), rank.answering());
        let Some(coordinator) = &mut rank.coordinator else { return };
        let checkpoint = coordinator.begin(position, answering, host);
        rank.command(Control::Request(checkpoint), now, host);
    }

    fn saved(rank: &mut Rank, snapshot: Snapshot, now: Time, host: &mut dyn Host<Self>) {
        if let Some((checkpoint, sent)) = rank.member.saved(snapshot) {
            rank.answer(Control::Saved { checkpoint, sent }, now, host);
        }
    }

    fn handle_control(
        rank: &mut Rank,
        from: ProcessId,
        message: Control,
        now: Time,
        host: &mut dyn Host<Self>,
    ) {
        rank.pass_on(from, &message, host);
        match message {
            Control::Request(checkpoint) => rank.member.request(&rank.group, checkpoint, now, host),
            Control::Saved { checkpoint, sent } => rank.saved(from, checkpoint, &sent, now, host),
            Control::Drain { checkpoint, sent } => rank.member.expect(rank.group.me, checkpoint, &sent),
            Control::Drained(checkpoint) => rank.drained(from, checkpoint, now, host),
            Control::Commit { checkpoint, collects } => rank.commit(checkpoint, collects, now, host),
            Control::Group(_) => {}
        }
    }

    fn maybe_write(rank: &mut Rank, host: &mut dyn Host<Self>) {
        rank.member.maybe_write(&mut rank.group, host);
    }

    fn part_durable(rank: &mut Rank, checkpoint: Checkpoint, now: Time, host: &mut dyn Host<Self>) {
        rank.answer(Control::Drained(checkpoint), now, host);
    }

    fn announce(
        rank: &mut Rank,
        checkpoint: Checkpoint,
        collects: bool,
        now: Time,
        host: &mut dyn Host<Self>,
    ) {
        rank.command(Control::Commit { checkpoint, collects }, now, host);
    }
}

impl Rank {
    /// Adds up the reported counts of messages and, once all reports have arrived, tells the processes how many
    /// messages to wait for (K2). Runs on the coordinator.
    fn counted(
        &mut self,
        from: ProcessId,
        checkpoint: Checkpoint,
        sent: &[(ProcessId, u64)],
        now: Time,
        host: &mut dyn Host<Coordinated>,
    ) {
        let counts = self.coordinator.as_mut().and_then(|it| it.saved(from, checkpoint, sent));
        if let Some(sent) = counts {
            self.command(Control::Drain { checkpoint, sent }, now, host);
        }
    }
}

impl Coordinated {
    /// Returns the current incarnation, and the SN of the checkpoint that this process last committed or restored; the
    /// default on a storage server.
    pub fn position(&self) -> Position {
        match &self.0 {
            Process::Rank(rank) => rank.member.position(),
            Process::Server(_) => Position::default(),
        }
    }
}
