//! What HydEE says: piggybacked on application messages, between processes, and to stable storage.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, ClusterId, ImageName, Incarnation, MembershipVersion, MessageId, Payload, Position, ProcessId,
    Sn,
};
use serde::{Deserialize, Serialize};

use super::channel::Channel;

/// The phase of a message (section III-B): greater than those of the messages between clusters on which it depends.
pub(super) type Phase = u32;

/// What is piggybacked on every message (R5). The number within its channel is the message's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Where the sender's cluster stands when the message goes to the network.
    pub position: Position,
    /// In which incarnation the sender takes the receiver's cluster to be.
    pub to: Incarnation,
    /// The message's phase.
    pub phase: Phase,
}

impl faultline_core::Stamp for Stamp {
    fn position(&self) -> Position {
        self.position
    }
}

/// What an application did that has not taken effect yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Deed {
    /// It sent a message.
    Sent(MessageId, Payload),
    /// It consumed a message.
    Consumed(MessageId),
}

/// What a listing shows of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Of a part: the segments of the log that belong to it.
    pub segments: Arc<[SegmentNo]>,
    /// Of a part: the first segment of its incarnation that it knows nothing of.
    pub next: u32,
}

/// Names a segment of a process's log: messages that have left its memory (R15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SegmentNo {
    /// Of the cluster, when it was written.
    pub incarnation: Incarnation,
    /// From 1.
    pub number: u32,
}

impl SegmentNo {
    /// The image in which a process's segment is stored.
    pub fn image(self, owner: ProcessId) -> ImageName {
        let SegmentNo { incarnation, number } = self;
        ImageName { owner, incarnation, sn: Sn(0), attempt: Attempt(number) }
    }

    /// The segment that an image is; `None` for a part of a checkpoint.
    pub fn of(name: ImageName) -> Option<SegmentNo> {
        let ImageName { incarnation, attempt, .. } = name;
        (!name.is_part()).then_some(SegmentNo { incarnation, number: attempt.0 })
    }
}

/// The protocol's own state in a part of a checkpoint (R2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The phase.
    pub phase: Phase,
    /// By peer.
    pub channels: BTreeMap<ProcessId, Channel>,
    /// What the application had done that waited for its phase.
    pub deeds: VecDeque<Deed>,
    /// Messages of the own cluster that were in transit, with their phases.
    pub late: Vec<Late>,
}

/// A message of the own cluster that was in transit when the checkpoint was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Late {
    /// Its identity.
    pub id: MessageId,
    /// Its phase.
    pub phase: Phase,
    /// Its content.
    pub payload: Payload,
}

/// Names an attempt at a checkpoint of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its place in the cluster's history.
    pub position: Position,
    /// The try at it.
    pub attempt: Attempt,
}

impl Checkpoint {
    /// The part of `owner`.
    pub fn part(self, owner: ProcessId) -> ImageName {
        let Position { incarnation, sn } = self.position;
        ImageName { owner, incarnation, sn, attempt: self.attempt }
    }
}

impl From<ImageName> for Checkpoint {
    fn from(name: ImageName) -> Checkpoint {
        Checkpoint { position: name.position(), attempt: name.attempt }
    }
}

/// One attempt of a cluster to agree on what to restore: first by deaths of its members, then by tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RestoreNo {
    /// The incarnation that the cluster is about to begin.
    pub incarnation: Incarnation,
    /// Another try: a holder died, or a part was not to be had.
    pub attempt: u32,
}

/// How much of a channel a committed checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Messages to the peer.
    pub sent: u32,
    /// Messages from the peer.
    pub received: u32,
}

/// A message that was received, and whose send a rollback undid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// The message.
    pub id: MessageId,
    /// Its phase, as its receiver recorded it.
    pub phase: Phase,
}

/// A delivery: which message came at a process's turn (pessimistic logging, M1). The number of the turn is its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Determinant {
    /// Whose message it was.
    pub from: ProcessId,
    /// Its number on the channel.
    pub number: u32,
    /// Messages that the receiver had sent before.
    pub sent: u64,
}

/// What the event logger knows of the deliveries that a process has to repeat (M3).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Recalled {
    /// They, from delivery `first` on.
    Order {
        /// As asked for.
        first: u64,
        /// In their order.
        determinants: Arc<[Determinant]>,
    },
    /// The logger's storage was lost, and the process had died before it could say them again.
    Lost,
    /// A committed checkpoint holds some of them, so that they were forgotten; it should have been restored.
    Forgotten {
        /// Which.
        by: Option<ImageName>,
    },
}

/// Protocol messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    // Checkpoints, inside a cluster (R7).
    /// Coordinator: freeze and save.
    Prepare(Checkpoint),
    /// Member: saved, after having sent so many messages to each member.
    Frozen {
        /// The checkpoint.
        checkpoint: Checkpoint,
        /// By receiver.
        sent: Arc<[(ProcessId, u32)]>,
    },
    /// Coordinator: so many messages from each member belong to the checkpoint of this one.
    Expect {
        /// The checkpoint.
        checkpoint: Checkpoint,
        /// By sender.
        received: Arc<[(ProcessId, u32)]>,
    },
    /// Member: its part is durable, here and at its holders.
    Drained(Checkpoint),
    /// Coordinator: all parts are durable.
    Commit(Checkpoint),

    // Collection, between clusters (R8).
    /// A checkpoint is committed that holds so much of our channels.
    Settled {
        /// The sender's cluster.
        from: Incarnation,
        /// The receiver's cluster.
        to: Incarnation,
        /// Seen from the sender.
        covered: Covered,
    },

    // Restoring a cluster.
    /// Coordinator to members: freeze, and say what you have, as soon as you know whom you will be speaking to.
    Gather {
        /// The attempt.
        restore: RestoreNo,
        /// The membership on which it rests.
        membership: MembershipVersion,
    },
    /// Coordinator to holders: say what you have of this cluster.
    Inquire {
        /// The attempt.
        restore: RestoreNo,
        /// The cluster.
        cluster: ClusterId,
    },
    /// Answer to both: the cluster's parts that are durable here.
    Stock {
        /// The attempt.
        restore: RestoreNo,
        /// The parts.
        parts: Arc<[ImageName]>,
    },
    /// Coordinator: make this ready; `None` is the initial state.
    Restore {
        /// The attempt.
        restore: RestoreNo,
        /// What.
        target: Option<Checkpoint>,
        /// Where to fetch the parts that their owners lack.
        sources: Arc<[(ImageName, ProcessId)]>,
    },
    /// Member: its part is here, durably.
    Ready(RestoreNo),
    /// Member: its part is not to be had.
    Vanished(RestoreNo),
    /// Coordinator: go on.
    Resume(RestoreNo),

    // Copies.
    /// Holder: this copy is durable.
    Stored(ImageName),
    /// Send me this image.
    Fetch(ImageName),
    /// It is not there.
    Refused(ImageName),
    /// Owner to holder: this is what you should hold of me, and nothing older.
    Hold {
        /// The owner's cluster.
        incarnation: Incarnation,
        /// The part; `None` while there is none.
        name: Option<ImageName>,
    },
    /// Owner to holder: this part is about to be restored; say when you hold it. What is older stays: until every part is as
    /// safe, the cluster may have to go back to it.
    Secure(ImageName),

    // Recovery pair by pair (S3).
    /// Process to process, when the cluster of either has failed: how our channels stand.
    Meet {
        /// The sender's cluster.
        from: Incarnation,
        /// The receiver's cluster.
        to: Incarnation,
        /// By now.
        present: Covered,
        /// At the last committed checkpoint.
        committed: Covered,
    },

    // The order of deliveries (pessimistic logging).
    /// Process to the event logger: these deliveries were made (M1).
    Log {
        /// The first of them.
        first: u64,
        /// In their order.
        determinants: Arc<[Determinant]>,
    },
    /// Event logger: everything before this delivery is stable.
    Logged {
        /// The first that is not.
        upto: u64,
    },
    /// Process to the event logger: these are all that no checkpoint holds (M6).
    Know {
        /// The first of them.
        first: u64,
        /// In their order.
        determinants: Arc<[Determinant]>,
    },
    /// Process to the event logger: a committed checkpoint holds everything before this delivery (M5).
    Forget {
        /// The first that it does not hold.
        below: u64,
        /// The checkpoint.
        by: Option<ImageName>,
    },
    /// Process to the event logger, when it has gone back: which deliveries are to be repeated (M3)?
    Recall {
        /// The first of them.
        first: u64,
    },
    /// Event logger: these.
    Recalled(Recalled),

    // Recovery of the federation, by a recovery process.
    /// Recovery process: a round is on for these clusters (R1).
    Begin {
        /// The round.
        epoch: u64,
        /// The membership on which it rests: whoever speaks to a life that it does not know is not heard.
        membership: MembershipVersion,
        /// F: who has failed since the last round that closed.
        failed: Arc<[ClusterId]>,
    },
    /// Process to process, when either has failed: how our channels stand (R9).
    Sync {
        /// The round.
        epoch: u64,
        /// By now.
        present: Covered,
        /// At the last committed checkpoint.
        committed: Covered,
    },
    /// Process to the recovery process: its orphans (R10).
    Report {
        /// The round.
        epoch: u64,
        /// They.
        orphans: Arc<[Orphan]>,
    },
    /// Recovery process: messages up to this phase may be sent, or all (R11).
    Level {
        /// The round.
        epoch: u64,
        /// The smallest phase of an outstanding orphan.
        level: Option<Phase>,
    },
    /// Process to the recovery process: this orphan has been sent again (R3).
    Replayed {
        /// The round.
        epoch: u64,
        /// It, with its phase in the re-execution.
        orphan: Orphan,
    },
}
