//! What HC3I says: piggybacked on application messages, between processes, and to stable storage.

use alloc::sync::Arc;
use alloc::vec::Vec;
use faultline_core::{
    Attempt, Cause, ClusterId, ImageName, Incarnation, MembershipVersion, MessageId, Payload, Position,
    ProcessId, Sn, Vectors,
};
use serde::{Deserialize, Serialize};

use super::history::{Checkpoint, History, Past};
use super::log::Log;
use super::received::Received;

/// The sender's position, piggybacked on every message (section 3.2: "the current cluster's sequence number is
/// piggy-backed"; the incarnation is finding 4). A re-sent message keeps its stamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The sender's position.
    pub position: Position,
    /// The sender's whole DDV, where that is piggybacked (section 7).
    pub ddv: Option<Arc<Vec<Position>>>,
}

impl faultline_core::Stamp for Stamp {
    fn position(&self) -> Position {
        self.position
    }
}

/// What a listing of a storage shows of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its dependencies, from which recovery chooses.
    pub vectors: Vectors,
    /// The past of its cluster when it was taken: parts outlive the tables of the members and of the holders.
    pub past: Arc<Past>,
}

/// The protocol's own state in a part of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Messages to other clusters that may have to be sent again.
    pub log: Arc<Log>,
    /// Messages from other clusters that were delivered.
    pub received: Arc<Received>,
    /// Messages of the own cluster that were in transit: sent before their senders' parts, received after this one.
    pub late: Vec<(MessageId, Payload)>,
}

/// Orders recovery rounds of a cluster: more lives first, then more rounds among the same lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch {
    /// Sum of the members' lives.
    pub lives: u64,
    /// Rises with each rollback by alert, each new life of a holder and each part that vanished.
    pub round: u32,
}

/// A checkpoint that can be restored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Which.
    pub position: Position,
    /// Which try.
    pub attempt: Attempt,
    /// Maxima of its parts' vectors.
    pub vectors: Arc<Vectors>,
    /// Every holder has its copies. A checkpoint that was committed had them then; one that was restored in doubt may be
    /// gone with the next storage.
    pub covered: bool,
}

impl Kept {
    /// Its name, without its vectors.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { position: self.position, attempt: self.attempt }
    }

    /// The part of `owner`.
    pub fn part(&self, owner: ProcessId) -> ImageName {
        ImageName {
            owner,
            incarnation: self.position.incarnation,
            sn: self.position.sn,
            attempt: self.attempt,
        }
    }
}

/// What a member or a holder knows when a cluster recovers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Its tables; of a holder, only what it keeps for the cluster that asks.
    pub history: History,
    /// Parts of the recovering cluster that are durable at the reporter.
    pub parts: Vec<(ImageName, Arc<Head>)>,
}

/// What a cluster restores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The checkpoint; `None` is the configuration.
    pub checkpoint: Option<Kept>,
    /// The cluster's new incarnation.
    pub incarnation: Incarnation,
    /// Why.
    pub cause: Cause,
    /// Every checkpoint that may still be needed, ascending, the target last.
    pub kept: Arc<[Kept]>,
    /// Where to fetch the parts that their owners lack.
    pub sources: Vec<(ImageName, ProcessId)>,
    /// All tables, the own new entry included.
    pub history: History,
}

impl Target {
    /// SN of the target, 0 for the configuration.
    pub fn sn(&self) -> Sn {
        self.checkpoint.as_ref().map_or(Sn(0), |kept| kept.position.sn)
    }
}

/// What one cluster tells a collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Incarnations of all clusters as known here; its own entry is the present one.
    pub incarnations: Vec<Incarnation>,
    /// Stored checkpoints, ascending.
    pub checkpoints: Vec<(Checkpoint, Arc<Vectors>)>,
}

/// What a collection decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collection {
    /// Incarnations on which the decision rests.
    pub incarnations: Vec<Incarnation>,
    /// The worst that each cluster can have to restore: nothing older is needed.
    pub worst: Arc<Vec<Checkpoint>>,
}

/// Protocol messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    // Checkpoints, inside a cluster (section 3.1, with the second round of B5).
    /// Coordinator: freeze and save.
    Request {
        /// Of the checkpoint to be.
        position: Position,
        /// The try.
        attempt: Attempt,
        /// Whether a message asked for it.
        forced: bool,
    },
    /// Member: saved, after having sent this many messages to each member in this incarnation.
    Saved {
        /// Of the checkpoint.
        position: Position,
        /// The try.
        attempt: Attempt,
        /// By receiver.
        sent: Arc<[(ProcessId, u64)]>,
    },
    /// Coordinator: wait until this many messages of the cluster have arrived, then write.
    Drain {
        /// Of the checkpoint.
        position: Position,
        /// The try.
        attempt: Attempt,
        /// By place in the cluster.
        expected: Arc<[u64]>,
    },
    /// Member: its part is durable, here and at its holders.
    Drained {
        /// Of the checkpoint.
        position: Position,
        /// The try.
        attempt: Attempt,
        /// The part's vectors.
        head: Arc<Head>,
    },
    /// Coordinator: all parts are durable.
    Commit {
        /// Of the checkpoint.
        position: Position,
        /// The try.
        attempt: Attempt,
        /// Maxima of the parts' vectors.
        vectors: Arc<Vectors>,
    },
    /// Coordinator to the leader of a cluster of the federation: say this to your members, and take it as said to you, as
    /// soon as you know whom you will be speaking to.
    Spread {
        /// The membership on which it rests.
        membership: MembershipVersion,
        /// What.
        message: Arc<Control>,
    },
    /// Leader: all its members have saved; what they say together.
    ClusterSaved {
        /// Of the checkpoint.
        position: Position,
        /// The try.
        attempt: Attempt,
        /// By receiver.
        sent: Arc<[(ProcessId, u64)]>,
    },
    /// Leader: the parts of all its members are durable.
    ClusterDrained {
        /// Of the checkpoint.
        position: Position,
        /// The try.
        attempt: Attempt,
        /// Maxima of the parts' vectors.
        vectors: Arc<Vectors>,
    },
    /// Member: a message waits for a checkpoint (section 3.2); void when the cluster has moved on.
    Force {
        /// Where the member stands.
        position: Position,
    },

    // Messages between clusters.
    /// Receiver: delivered (section 3.3; the position is the one at delivery, finding 2).
    Acknowledge {
        /// The message.
        id: MessageId,
        /// Where the receiver's cluster stood.
        position: Position,
    },

    // Alerts (section 3.4, rule 19).
    /// A cluster rolled back: its whole past.
    Alert {
        /// The cluster.
        cluster: ClusterId,
        /// Its rollbacks.
        past: Arc<Past>,
    },
    /// All members have recorded the alert up to this incarnation, and none is to roll back because of it (any more);
    /// the tables of the cluster that answers.
    AlertRecorded {
        /// The cluster that answers.
        cluster: ClusterId,
        /// The newest entry of the alert that is answered.
        incarnation: Incarnation,
        /// What it knows itself.
        history: Arc<History>,
    },
    /// To the members of a cluster: learn, record, and answer if someone waits.
    Learn {
        /// What is to be learnt.
        history: Arc<History>,
        /// Who waits for the answer, for which incarnation.
        asker: Option<(ProcessId, Incarnation)>,
    },
    /// Recorded.
    Learnt {
        /// As asked.
        asker: (ProcessId, Incarnation),
        /// Whether this member holds nothing that was undone.
        clean: bool,
    },
    /// Coordinator: every other cluster has dealt with the rollback into this incarnation.
    Settled {
        /// The cluster's.
        incarnation: Incarnation,
    },

    // Recovery, inside a cluster and to its holders (rules 11 to 16).
    /// Member to coordinator: a rollback elsewhere undid what this member delivered.
    RollBack {
        /// The member's incarnation; void when the cluster has moved on.
        incarnation: Incarnation,
        /// Whose rollback.
        from: ClusterId,
        /// What it restored.
        position: Position,
    },
    /// Coordinator: freeze, and say what you have, as soon as you know whom you will be speaking to.
    Prepare {
        /// The round.
        epoch: Epoch,
        /// The membership on which it rests (rule 12: a round carries the lives).
        membership: MembershipVersion,
    },
    /// Coordinator to a holder: say what you have of this cluster.
    Inquire {
        /// The round.
        epoch: Epoch,
        /// The cluster.
        cluster: ClusterId,
    },
    /// Answer to both.
    Reported {
        /// The round.
        epoch: Epoch,
        /// What is there.
        report: Arc<Report>,
    },
    /// Coordinator: restore this.
    Restore {
        /// The round.
        epoch: Epoch,
        /// What.
        target: Arc<Target>,
    },
    /// Coordinator to a holder: record this cluster's past, apart from your own tables.
    Note {
        /// The round.
        epoch: Epoch,
        /// The cluster.
        cluster: ClusterId,
        /// Its rollbacks, the new one included.
        past: Arc<Past>,
    },
    /// Answer to both: recorded, and ready to resume.
    Ready {
        /// The round.
        epoch: Epoch,
    },
    /// A part that should be restored is nowhere to be had any more.
    Vanished {
        /// The round.
        epoch: Epoch,
    },
    /// Coordinator: go on.
    Resume {
        /// The round.
        epoch: Epoch,
    },

    // A cluster that leaves (section 7).
    /// Member to coordinator: its application has left the program.
    Left {
        /// The member's incarnation.
        incarnation: Incarnation,
    },
    /// Member to coordinator: nobody can want anything of this member any more.
    Unwanted {
        /// The member's incarnation.
        incarnation: Incarnation,
    },

    // Copies (section 3.1; rule 17).
    /// Holder: this copy is durable.
    Stored(ImageName),
    /// Owner: send me this part.
    Fetch(ImageName),
    /// Holder: it is not there.
    Refused(ImageName),
    /// Owner: this is what you should hold of me. Parts of older incarnations that are not named are void.
    Offer {
        /// The past of the owner's cluster.
        past: Arc<Past>,
        /// What should be held, newest first.
        names: Arc<[ImageName]>,
    },
    /// Holder: of the offer, these are missing.
    Want {
        /// Which.
        names: Arc<[ImageName]>,
    },
    /// Owner: these are not needed any more.
    Discard {
        /// The past of the owner's cluster, which knows that they were collected.
        past: Arc<Past>,
        /// Which.
        names: Arc<[ImageName]>,
    },

    // Garbage collection (section 3.5, rule 21).
    /// Initiator: what is stored? Without an initiator everyone says so unasked.
    Ask {
        /// The collection.
        round: u32,
    },
    /// Coordinator of each cluster.
    Stock {
        /// The collection.
        round: u32,
        /// What is stored.
        inventory: Arc<Inventory>,
    },
    /// Whoever decides to coordinators, coordinators to members: remove.
    Collect {
        /// The collection.
        round: u32,
        /// What.
        collection: Arc<Collection>,
    },
}

impl Control {
    /// What a message is called, where messages are counted by kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Control::Request { .. } => "request",
            Control::Saved { .. } => "saved",
            Control::Drain { .. } => "drain",
            Control::Drained { .. } => "drained",
            Control::Commit { .. } => "commit",
            Control::Spread { message, .. } => message.kind(),
            Control::ClusterSaved { .. } => "saved",
            Control::ClusterDrained { .. } => "drained",
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
            Control::Want { .. } => "want",
            Control::Discard { .. } => "discard",
            Control::Ask { .. } => "ask",
            Control::Stock { .. } => "stock",
            Control::Collect { .. } => "collect",
        }
    }
}

const _: () = assert!(size_of::<Control>() <= 48, "control messages travel by value");
