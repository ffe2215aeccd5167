//! The formats of the data that HC3I piggybacks on application messages, sends between processes, and writes to stable
//! storage.

use alloc::sync::Arc;
use alloc::vec::Vec;
use faultline_core::{
    Attempt, Cause, GroupId, ImageName, Incarnation, MembershipVersion, MessageId, Payload, Position,
    ProcessId, Sn, Vectors,
};
use serde::{Deserialize, Serialize};

use crate::machines::{self, Checkpoint, GroupHistory, History, Received};

/// The stamp of an application message (section 3.2: "the current cluster's sequence number is piggy-backed"). The
/// paper's messages carry no incarnation. A re-sent message keeps its stamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Position of the sender when it sent the message.
    pub position: Position,
    /// The sender's whole DDV, if it is piggybacked (section 7).
    pub ddv: Option<Arc<Vec<Position>>>,
}

impl faultline_core::Stamp for Stamp {
    fn position(&self) -> Position {
        self.position
    }
}

/// The log of the messages that a process has sent to other clusters.
pub(super) type Log = machines::Log<Stamp>;
/// A message in the log.
pub(super) type LogEntry = machines::LogEntry<Stamp>;

/// Header of a part. Storage listings contain it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Dependencies of the part. A recovery uses them to choose its target.
    pub vectors: Vectors,
    /// The history of the part's cluster when the part was taken. Stored here because a part may outlive the
    /// tables of members and holders.
    pub past: Arc<GroupHistory>,
}

/// The protocol's own state in a part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Messages to other clusters that may have to be re-sent.
    pub log: Arc<Log>,
    /// Identities of the delivered messages from other clusters.
    pub received: Arc<Received>,
    /// Messages from this process's cluster that were in transit: sent before their senders saved their states, and
    /// received after this process saved its own.
    pub late: Vec<(MessageId, Payload)>,
}

/// Orders the recovery rounds of a cluster: first by the members' lives, then, for the same lives, by round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch {
    /// Total number of lives of all members, not counting lives that ended before the cluster joined.
    pub lives: u64,
    /// Increases with each rollback caused by an alert, each new life of a holder, and each part that vanished.
    pub round: u32,
}

/// A checkpoint that can be restored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestorableCheckpoint {
    /// Position of the checkpoint.
    pub position: Position,
    /// The attempt at the checkpoint.
    pub attempt: Attempt,
    /// Maxima of the vectors of the checkpoint's parts.
    pub vectors: Arc<Vectors>,
    /// Whether every holder is known to have its replicas. A committed checkpoint had them at the commit, and a
    /// restored one before its cluster resumed. Until the holders have confirmed their replicas, any other checkpoint
    /// may not survive another loss of storage.
    pub covered: bool,
}

impl RestorableCheckpoint {
    /// Returns the checkpoint's identity, without its vectors.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { position: self.position, attempt: self.attempt }
    }

    /// Returns the name of `owner`'s part.
    pub fn part(&self, owner: ProcessId) -> ImageName {
        self.checkpoint().part(owner)
    }
}

/// Report from a member or a holder to the coordinator of a recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// The reporter's tables; from a holder, only those that it keeps for the recovering cluster.
    pub history: History,
    /// Parts of the recovering cluster that are durable at the reporter.
    pub parts: Vec<(ImageName, Arc<Head>)>,
}

/// The target of a rollback.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RollbackTarget {
    /// The checkpoint to restore; `None` is the initial state.
    pub checkpoint: Option<RestorableCheckpoint>,
    /// The cluster's new incarnation.
    pub incarnation: Incarnation,
    /// The reason for the rollback.
    pub cause: Cause,
    /// All checkpoints that may still be needed, ascending; the target is the last.
    pub kept: Arc<[RestorableCheckpoint]>,
    /// Where to fetch parts that their owners lack.
    pub sources: Vec<(ImageName, ProcessId)>,
    /// Holders that lack parts of the checkpoints in `kept`. Before the cluster resumes, owners send them the parts of
    /// the checkpoint to restore; afterwards, they offer the others.
    pub uncovered: Vec<(ImageName, ProcessId)>,
    /// All tables, including the new entry of the recovering cluster.
    pub history: History,
}

impl RollbackTarget {
    /// Returns the SN of the target; 0 for the initial state.
    pub fn sn(&self) -> Sn {
        self.checkpoint.as_ref().map_or(Sn(0), |kept| kept.position.sn)
    }
}

/// One cluster's list for a garbage collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Incarnations of all clusters as known to the sender, including the current one of its own cluster.
    pub incarnations: Vec<Incarnation>,
    /// Stored checkpoints, ascending.
    pub checkpoints: Vec<(Checkpoint, Arc<Vectors>)>,
}

/// The decision of a garbage collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collection {
    /// Incarnations that the decision assumes, one per cluster.
    pub incarnations: Vec<Incarnation>,
    /// The oldest checkpoint that each cluster may have to restore. Nothing older is needed.
    pub worst: Arc<Vec<Checkpoint>>,
}

/// Messages between processes under HC3I.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    // Checkpoints, inside a cluster (section 3.1, with a second round that drains the channels).
    /// From the coordinator: freeze, and save the state.
    Request {
        /// Position of the requested checkpoint.
        position: Position,
        /// The attempt at the checkpoint.
        attempt: Attempt,
        /// Whether a message forced the checkpoint.
        forced: bool,
    },
    /// From a member: its state is saved. Carries the number of messages that it had sent to each member in this
    /// incarnation.
    Saved {
        /// Position of the checkpoint.
        position: Position,
        /// The attempt at the checkpoint.
        attempt: Attempt,
        /// Number of messages sent, by receiver.
        sent: Arc<[(ProcessId, u64)]>,
    },
    /// From the coordinator: write the part once the number of messages that have arrived from the cluster
    /// matches `expected`.
    Drain {
        /// Position of the checkpoint.
        position: Position,
        /// The attempt at the checkpoint.
        attempt: Attempt,
        /// Number of messages, by the receiver's index in the cluster.
        expected: Arc<[u64]>,
    },
    /// From a member: its part is durable, in its own storage and at its holders.
    Drained {
        /// Position of the checkpoint.
        position: Position,
        /// The attempt at the checkpoint.
        attempt: Attempt,
        /// The part's vectors.
        head: Arc<Head>,
    },
    /// From the coordinator: all parts are durable, and the checkpoint is committed.
    Commit {
        /// Position of the checkpoint.
        position: Position,
        /// The attempt at the checkpoint.
        attempt: Attempt,
        /// Maxima of the parts' vectors.
        vectors: Arc<Vectors>,
    },
    /// From a member: a message waits for a checkpoint (section 3.2). Void if the cluster's position has changed.
    Force {
        /// Position of the member.
        position: Position,
    },

    // Messages between clusters.
    /// From the receiver: the message was delivered (section 3.3). Carries the position at the delivery.
    Acknowledge {
        /// Identity of the message.
        id: MessageId,
        /// Position of the receiver's cluster at the delivery.
        position: Position,
    },

    // Alerts (section 3.4).
    /// A cluster rolled back. Carries the cluster's whole history, except for a rollback that is in progress.
    Alert {
        /// The cluster that rolled back.
        cluster: GroupId,
        /// All completed rollbacks of `cluster`.
        past: Arc<GroupHistory>,
    },
    /// All members have recorded the alert up to this incarnation, and none still has to roll back because of it.
    /// Carries the tables of the cluster that answers, except for a rollback of that cluster that is in progress.
    AlertRecorded {
        /// The cluster that answers.
        cluster: GroupId,
        /// The newest incarnation in the alert that this message answers.
        incarnation: Incarnation,
        /// Tables of the cluster that answers.
        history: Arc<History>,
    },
    /// To the members of a cluster: learn and record this history, and answer if a process is waiting for the answer.
    Learn {
        /// The history to record.
        history: Arc<History>,
        /// The process that waits for the answer, and the incarnation of its alert.
        asker: Option<(ProcessId, Incarnation)>,
    },
    /// From a member: it has recorded the history.
    Learnt {
        /// The waiting process, copied from [`Control::Learn`].
        asker: (ProcessId, Incarnation),
        /// Whether this member's state contains nothing that was undone.
        clean: bool,
    },
    /// From the coordinator: all other clusters have handled the rollback into this incarnation.
    Settled {
        /// Incarnation of the coordinator's cluster.
        incarnation: Incarnation,
    },

    // Recovery, inside a cluster and to its holders (section 3.4).
    /// From a member to the coordinator: a rollback elsewhere undid a message that this member delivered.
    RollBack {
        /// The member's incarnation. The request is void if the cluster has begun a newer one.
        incarnation: Incarnation,
        /// The cluster that rolled back.
        from: GroupId,
        /// Position of the cluster `from` after its rollback.
        position: Position,
    },
    /// From the coordinator: freeze, and report what you have, once you know the lives involved.
    Prepare {
        /// Epoch of the round.
        epoch: Epoch,
        /// The membership that the round assumes.
        membership: MembershipVersion,
    },
    /// From the coordinator to a holder: report what you hold for this cluster.
    Inquire {
        /// Epoch of the round.
        epoch: Epoch,
        /// The recovering cluster.
        cluster: GroupId,
    },
    /// Answers [`Control::Prepare`] and [`Control::Inquire`].
    Reported {
        /// Epoch of the round.
        epoch: Epoch,
        /// Tables and parts of the sender.
        report: Arc<RecoveryReport>,
    },
    /// From the coordinator: restore this target.
    Restore {
        /// Epoch of the round.
        epoch: Epoch,
        /// The checkpoint to restore, with everything needed to restore it.
        target: Arc<RollbackTarget>,
    },
    /// From the coordinator to a holder: record this cluster's history, separately from your own tables.
    Note {
        /// Epoch of the round.
        epoch: Epoch,
        /// The recovering cluster.
        cluster: GroupId,
        /// Rollbacks of the recovering cluster, including the new one.
        past: Arc<GroupHistory>,
    },
    /// Answers [`Control::Restore`] and [`Control::Note`]: the sender has recorded everything and, if it is a member,
    /// is ready to resume.
    Ready {
        /// Epoch of the round.
        epoch: Epoch,
    },
    /// From a member: a part of a checkpoint that the cluster keeps is not available where it was expected.
    Vanished {
        /// Epoch of the round, or of the last round.
        epoch: Epoch,
        /// Name of the part.
        name: ImageName,
    },
    /// From the coordinator: resume.
    Resume {
        /// Epoch of the round.
        epoch: Epoch,
    },

    // A cluster that leaves (section 7).
    /// From a member to the coordinator: its application has left the program.
    Left {
        /// The member's incarnation.
        incarnation: Incarnation,
    },
    /// From a member to the coordinator: no process can still need anything from this member.
    Unwanted {
        /// The member's incarnation.
        incarnation: Incarnation,
    },

    // Replicas (section 3.1).
    /// From a holder: this replica is durable.
    Stored(ImageName),
    /// From an owner: a request for this part.
    Fetch(ImageName),
    /// From a holder or an owner: it does not have this part.
    Refused(ImageName),
    /// From an owner: the parts that the receiver should hold for it. Parts that are not listed are void if they belong
    /// to older incarnations, or precede the collected checkpoint.
    Offer {
        /// The history of the owner's cluster.
        past: Arc<GroupHistory>,
        /// Names of the parts to hold, newest first.
        names: Arc<[ImageName]>,
        /// Names of the parts that the holder must confirm even if it already has them.
        confirm: Arc<[ImageName]>,
    },
    /// From an owner to its coordinator: all holders have confirmed this part. The last recovery had found some of its
    /// replicas missing.
    Covered {
        /// Epoch of the recovery round.
        epoch: Epoch,
        /// Name of the part.
        name: ImageName,
    },
    /// From a holder: parts of the offer that it lacks.
    Want {
        /// Names of the missing parts.
        names: Arc<[ImageName]>,
    },
    /// From an owner: these parts are no longer needed.
    Discard {
        /// The history of the owner's cluster, which records that the parts were collected.
        past: Arc<GroupHistory>,
        /// Names of the parts to remove.
        names: Arc<[ImageName]>,
    },

    // Garbage collection (section 3.5).
    /// From the initiator: a request for the stored checkpoints. Without an initiator, coordinators report them without
    /// being asked.
    Ask {
        /// Number of the garbage collection.
        round: u32,
    },
    /// From the coordinator of a cluster: the cluster's stored checkpoints.
    Stock {
        /// Number of the garbage collection.
        round: u32,
        /// The stored checkpoints.
        inventory: Arc<Inventory>,
    },
    /// From the deciding coordinator to other coordinators, and from a coordinator to its members: remove data that is
    /// not needed.
    Collect {
        /// Number of the garbage collection.
        round: u32,
        /// The decision.
        collection: Arc<Collection>,
    },
}

impl Control {
    /// Returns the name under which a message is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Control::Request { .. } => "request",
            Control::Saved { .. } => "saved",
            Control::Drain { .. } => "drain",
            Control::Drained { .. } => "drained",
            Control::Commit { .. } => "commit",
            Control::Force { .. } => "force",
            Control::Acknowledge { .. } => "acknowledge",
            Control::Alert { .. } => "alert",
            Control::AlertRecorded { .. } => "alertRecorded",
            Control::Learn { .. } => "learn",
            Control::Learnt { .. } => "learnt",
            Control::Settled { .. } => "settled",
            Control::RollBack { .. } => "rollBack",
            Control::Prepare { .. } => "prepare",
            Control::Inquire { .. } => "inquire",
            Control::Reported { .. } => "reported",
            Control::Restore { .. } => "restore",
            Control::Note { .. } => "note",
            Control::Ready { .. } => "ready",
            Control::Vanished { .. } => "vanished",
            Control::Resume { .. } => "resume",
            Control::Left { .. } => "left",
            Control::Unwanted { .. } => "unwanted",
            Control::Stored(_) => "stored",
            Control::Fetch(_) => "fetch",
            Control::Refused(_) => "refused",
            Control::Offer { .. } => "offer",
            Control::Covered { .. } => "covered",
            Control::Want { .. } => "want",
            Control::Discard { .. } => "discard",
            Control::Ask { .. } => "ask",
            Control::Stock { .. } => "stock",
            Control::Collect { .. } => "collect",
        }
    }
}

const _: () = assert!(size_of::<Control>() <= 48, "control messages are passed by value");
