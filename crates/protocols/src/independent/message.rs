//! The formats of the data that independent checkpoints piggyback on application messages, send between processes, and
//! write to stable storage.

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{ImageName, Incarnation, MessageId, Position};
use serde::{Deserialize, Serialize};

use crate::machines::{Checkpoint, Delivered, GroupHistory, History, Log, Received};

/// The stamp of a message: the checkpoint interval in which it was sent. A re-sent message keeps its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp(pub Position);

impl faultline_core::Stamp for Stamp {
    fn position(&self) -> Position {
        self.0
    }
}

/// Header of a checkpoint. Storage listings contain it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The intervals on which the checkpoint depends.
    pub delivered: Delivered,
    /// The process's rollbacks before the checkpoint. A checkpoint may outlive the tables of its process and holders.
    pub past: Arc<GroupHistory>,
}

/// The protocol's own state in a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Messages that may have to be re-sent.
    pub log: Arc<Log<Stamp>>,
    /// Identities of the messages that were delivered.
    pub received: Arc<Received>,
}

/// Orders the attempts of a process to restore a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch {
    /// The life of the process.
    pub life: u32,
    /// Number of the attempt in this life.
    pub attempt: u32,
}

/// A process's list for a garbage collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// Incarnations of all processes as known to the sender, including its own.
    pub incarnations: Vec<Incarnation>,
    /// Stored checkpoints, ascending.
    pub checkpoints: Vec<(Checkpoint, Delivered)>,
}

/// Messages between processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    /// From the receiver of a message: the message was delivered in this interval.
    Acknowledge {
        /// Identity of the message.
        id: MessageId,
        /// Interval of the delivery.
        at: Position,
    },

    // Replicas.
    /// From an owner to a holder: keep these checkpoints, and nothing that the owner's rollbacks or collections have
    /// made useless.
    Hold {
        /// The owner's rollbacks, and its last collection.
        past: Arc<GroupHistory>,
        /// Names of the checkpoints.
        names: Arc<[ImageName]>,
    },
    /// From a holder: its record of the receiver's rollbacks up to this incarnation is durable.
    Noted(Incarnation),
    /// From a holder: this replica is durable.
    Stored(ImageName),
    /// A request for this checkpoint.
    Fetch(ImageName),
    /// The sender does not have this checkpoint.
    Refused(ImageName),

    // Recovery.
    /// From a recovering owner to a holder: report what you keep for me.
    Inquire(Epoch),
    /// Answers [`Control::Inquire`].
    Report {
        /// The attempt of the recovering process.
        epoch: Epoch,
        /// The owner's rollbacks that the holder knows about.
        past: Arc<GroupHistory>,
        /// The owner's checkpoints that are durable at the holder.
        parts: Vec<(ImageName, Arc<Head>)>,
    },
    /// The sender has rolled back. Lists all of the sender's completed rollbacks, because the receiver may have missed
    /// earlier alerts.
    Alert(Arc<GroupHistory>),
    /// The sender has recorded the alert, and its state contains nothing that the announced rollbacks undid.
    Confirm {
        /// The newest incarnation in the alert.
        incarnation: Incarnation,
        /// The sender's table of rollbacks.
        history: Arc<History>,
    },

    // Garbage collection.
    /// From the initiator: a request for the stored checkpoints.
    Ask(u32),
    /// Answers [`Control::Ask`].
    Stock {
        /// Number of the collection.
        round: u32,
        /// The stored checkpoints.
        inventory: Arc<Inventory>,
    },
    /// From the initiator: remove everything that precedes this recovery line.
    Collect {
        /// Number of the collection.
        round: u32,
        /// Incarnations that the decision assumes, one per process.
        incarnations: Arc<[Incarnation]>,
        /// Each process's checkpoint on the line.
        line: Arc<Vec<Checkpoint>>,
    },
}

impl Control {
    /// Returns the name under which a message is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Control::Acknowledge { .. } => "acknowledge",
            Control::Hold { .. } => "hold",
            Control::Noted(_) => "noted",
            Control::Stored(_) => "stored",
            Control::Fetch(_) => "fetch",
            Control::Refused(_) => "refused",
            Control::Inquire(_) => "inquire",
            Control::Report { .. } => "report",
            Control::Alert(_) => "alert",
            Control::Confirm { .. } => "confirm",
            Control::Ask(_) => "ask",
            Control::Stock { .. } => "stock",
            Control::Collect { .. } => "collect",
        }
    }
}

const _: () = assert!(size_of::<Control>() <= 48, "control messages are passed by value");
