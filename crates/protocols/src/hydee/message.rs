//! The data formats of HydEE: piggybacked on application messages, sent between processes, and written to stable
//! storage.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, ClusterId, ImageName, Incarnation, MembershipVersion, MessageId, Payload, Position, ProcessId,
    Sn,
};
use serde::{Deserialize, Serialize};

use super::channel::Channel;
use crate::machines::{Checkpoint, group};

/// The phase of a message (section III-B): greater than the phases of all messages between clusters on which it
/// depends.
pub(super) type Phase = u32;

/// The stamp of every message (R5). Its number within the channel is part of its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Position of the sender's cluster when the message is passed to the network.
    pub position: Position,
    /// Incarnation of the receiver's cluster, as the sender knows it.
    pub to: Incarnation,
    /// Phase of the message.
    pub phase: Phase,
}

impl faultline_core::Stamp for Stamp {
    fn position(&self) -> Position {
        self.position
    }
}

/// An action of the application that has not taken effect yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AppAction {
    /// The application sent a message.
    Sent(MessageId, Payload),
    /// The application consumed a message.
    Consumed(MessageId),
}

/// Header of an image. Listings of a storage contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// For a part: the log segments that belong to it.
    pub segments: Arc<[SegmentNo]>,
    /// For a part: number of the first segment of its incarnation that it does not cover.
    pub next: u32,
}

/// Name of a segment of a process's log: messages that have left its memory (R15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SegmentNo {
    /// Incarnation of the cluster when the segment was written.
    pub incarnation: Incarnation,
    /// Number of the segment, from 1.
    pub number: u32,
}

impl SegmentNo {
    /// Returns the name of the image that stores this segment of `owner`'s log.
    pub fn image(self, owner: ProcessId) -> ImageName {
        let SegmentNo { incarnation, number } = self;
        ImageName { owner, incarnation, sn: Sn(0), attempt: Attempt(number) }
    }

    /// Returns the segment that an image stores; `None` for a part of a checkpoint.
    pub fn of(name: ImageName) -> Option<SegmentNo> {
        let ImageName { incarnation, attempt, .. } = name;
        (!name.is_part()).then_some(SegmentNo { incarnation, number: attempt.0 })
    }
}

/// The protocol's own state in a part of a checkpoint (R2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Phase of the process.
    pub phase: Phase,
    /// Channels by peer.
    pub channels: BTreeMap<ProcessId, Channel>,
    /// Actions of the application that waited for a phase.
    pub app_actions: VecDeque<AppAction>,
    /// Messages from this process's cluster that were in transit, with their phases.
    pub late: Vec<Late>,
}

/// A message from the receiver's own cluster that was in transit when the checkpoint was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Late {
    /// Identity of the message.
    pub id: MessageId,
    /// Phase of the message.
    pub phase: Phase,
    /// Content of the message.
    pub payload: Payload,
}

/// The part of a channel that a committed checkpoint contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Number of messages sent to the peer.
    pub sent: u32,
    /// Number of messages received from the peer.
    pub received: u32,
}

/// A received message whose send was undone by a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// Identity of the message.
    pub id: MessageId,
    /// Phase of the message, as its receiver recorded it.
    pub phase: Phase,
}

/// One delivery: the message, and its place among the receiver's sends (pessimistic logging, M1). The index
/// of a determinant is the number of the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Determinant {
    /// Sender of the message.
    pub from: ProcessId,
    /// Number of the message on its channel.
    pub number: u32,
    /// Number of messages that the receiver had sent before the delivery.
    pub sent: u64,
}

/// The event logger's answer about the deliveries that a process has to repeat (M3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Recalled {
    /// The deliveries from `first` on.
    Order {
        /// Number of the first delivery, as requested.
        first: u64,
        /// The deliveries, in order.
        determinants: Arc<[Determinant]>,
    },
    /// The logger's storage was lost, and the process failed before it could report again.
    Lost,
    /// The deliveries were removed because a committed checkpoint contains them. The process should have restored this
    /// checkpoint.
    Forgotten {
        /// The checkpoint that contains them.
        by: Option<ImageName>,
    },
}

impl From<group::Message> for Control {
    fn from(message: group::Message) -> Control {
        Control::Group(message)
    }
}

/// Messages between processes under HydEE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    // Checkpoints, inside a cluster (R7).
    /// Coordinator: freeze, and save the state.
    Prepare(Checkpoint),
    /// Member: its state is saved. Reports how many messages it had sent to each member.
    Frozen {
        /// The checkpoint in progress.
        checkpoint: Checkpoint,
        /// Number of messages sent, by receiver.
        sent: Arc<[(ProcessId, u32)]>,
    },
    /// Coordinator: how many messages from each member belong to the receiver's part.
    Expect {
        /// The checkpoint in progress.
        checkpoint: Checkpoint,
        /// Number of messages, by sender.
        received: Arc<[(ProcessId, u32)]>,
    },
    /// Member: its part is durable, here and at its holders.
    Drained(Checkpoint),
    /// Coordinator: all parts are durable, and the checkpoint is committed.
    Commit(Checkpoint),

    // Collection, between clusters (R8).
    /// The sender's committed checkpoint contains this part of the shared channels.
    Settled {
        /// Incarnation of the sender's cluster.
        from: Incarnation,
        /// Incarnation of the receiver's cluster.
        to: Incarnation,
        /// Counts from the sender's point of view.
        covered: Covered,
    },

    /// A message of the sub-machine that keeps and restores checkpoints of a cluster.
    Group(group::Message),

    // Recovery pair by pair (S3).
    /// Process to process, if the cluster of either has failed: the state of the shared channels.
    Meet {
        /// Incarnation of the sender's cluster.
        from: Incarnation,
        /// Incarnation of the receiver's cluster.
        to: Incarnation,
        /// Current counts of the channels.
        present: Covered,
        /// Counts at the sender's last committed checkpoint.
        committed: Covered,
    },

    // The order of deliveries (pessimistic logging).
    /// Process to the event logger: reports new deliveries (M1).
    Log {
        /// Number of the first delivery.
        first: u64,
        /// The deliveries, in order.
        determinants: Arc<[Determinant]>,
    },
    /// Event logger: all deliveries before `upto` are stable.
    Logged {
        /// The first delivery that is not stable.
        upto: u64,
    },
    /// Process to the event logger: reports all deliveries that no checkpoint contains (M6).
    Know {
        /// Number of the first delivery.
        first: u64,
        /// The deliveries, in order.
        determinants: Arc<[Determinant]>,
    },
    /// Process to the event logger: a committed checkpoint contains all deliveries before `below` (M5).
    Forget {
        /// The first delivery that the checkpoint does not contain.
        below: u64,
        /// Name of the checkpoint's part.
        by: Option<ImageName>,
    },
    /// Process to the event logger, after a rollback: asks which deliveries to repeat (M3).
    Recall {
        /// Number of the first delivery to repeat.
        first: u64,
    },
    /// Event logger: answers [`Control::Recall`].
    Recalled(Recalled),

    // Recovery of the federation, by a recovery process.
    /// Recovery process: a round begins for these clusters (R1).
    Begin {
        /// Number of the round.
        epoch: u64,
        /// The membership that the round assumes. A message to a life that its sender does not know is lost.
        membership: MembershipVersion,
        /// The set F: clusters that have failed since the last closed round.
        failed: Arc<[ClusterId]>,
    },
    /// Process to process, if either has failed: the state of the shared channels (R9).
    Sync {
        /// Number of the round.
        epoch: u64,
        /// Current counts of the channels.
        present: Covered,
        /// Counts at the sender's last committed checkpoint.
        committed: Covered,
    },
    /// Process to the recovery process: reports its orphans (R10).
    Report {
        /// Number of the round.
        epoch: u64,
        /// The sender's orphans with their phases.
        orphans: Arc<[Orphan]>,
    },
    /// Recovery process: messages up to this phase, or all messages, may be sent (R11).
    Level {
        /// Number of the round.
        epoch: u64,
        /// Smallest phase of an outstanding orphan; `None` if there is no orphan left.
        level: Option<Phase>,
    },
    /// Process to the recovery process: it has re-sent this orphan (R3).
    Replayed {
        /// Number of the round.
        epoch: u64,
        /// The orphan, with its phase in the re-execution.
        orphan: Orphan,
    },
}
