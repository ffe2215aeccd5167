//! Sub-machines that protocols share. Each performs one task of a protocol that takes checkpoints, and is independent
//! of the protocol around it.
//!
//! | file | purpose |
//! | --- | --- |
//! | `history` | the rollbacks of all groups, what a state depends on, and the recovery line |
//! | `sender_log`, `received` | the messages that a process has sent to other groups and received from them, for protocols whose rollbacks propagate |
//! | `writes` | writes images to this process's storage until they are durable |
//! | `reads` | reads each image once for all requesters |
//! | `replication` | makes an image durable locally and at its holders: the owner's side of a replica |
//! | `refill` | reports when storage that was lost is complete again |
//! | `survey` | the parts of checkpoints that remain after a failure, and the checkpoints that are complete |
//! | `gathering` | the coordinator's side of a checkpoint: counting messages, and waiting for all parts |
//! | `coordinator` | the process that begins and commits the checkpoints of a group |
//! | `draining` | a member's part of a checkpoint, for protocols that number messages by channel |
//! | `group` | keeps the checkpoints of a group of processes, and restores the newest complete one |
//! | `schedule` | the times at which a coordinator begins checkpoints, and which of them remove older ones |
//! | `logs` | logs of the messages between groups, kept by their senders, in memory or on stable storage |
//! | `pairs` | resuming each channel between groups separately after a failure |
//! | `phases` | resuming channels between groups in the order of phases, directed by a recovery process |
//! | `options`, `rule`, `delegate` | parameters, defects and processes of protocols that use these sub-machines |
//!
//! A sub-machine is a value in the protocol's state. The protocol passes it the inputs that concern it, and a
//! [`Machine`](faultline_core::Machine) on which it acts; the sub-machine returns conditions that have become true.
//! Only `group`, `logs`, `pairs` and `phases` send messages of their own, wrapped in those of the protocol.

mod coordinator;
mod delegate;
mod draining;
mod gathering;
pub(crate) mod group;
mod history;
pub(crate) mod logs;
mod options;
mod pairs;
pub(crate) mod phases;
mod reads;
mod received;
mod refill;
mod replication;
mod rule;
mod schedule;
mod sender_log;
mod survey;
#[cfg(test)]
pub(crate) mod testing;
mod writes;

use alloc::sync::Arc;
use alloc::vec::Vec;

use faultline_core::{
    Attempt, Claim, Image, ImageName, MessageId, Payload, Position, ProcessId, ProtocolTypes, Span,
};
use serde::{Deserialize, Serialize};

pub(crate) use coordinator::Coordinator;
pub(crate) use delegate::delegate_protocol;
pub(crate) use draining::{DrainRules, Draining};
pub(crate) use gathering::{Counts, Gathering};
pub use history::{Delivered, GroupHistory, History};
pub(crate) use history::{raise, recovery_line};
pub(crate) use options::promises;
pub use options::{LoggingOptions, Options};
pub use pairs::ChannelReport;
pub(crate) use pairs::{PairRules, Pairs};
pub(crate) use reads::Reads;
pub use received::Received;
pub(crate) use refill::Refill;
pub(crate) use replication::{Replication, Requires};
pub(crate) use rule::{rule_queries, rules};
pub(crate) use schedule::Schedule;
pub use sender_log::{Log, LogEntry};
pub(crate) use survey::{Parts, Survey};
pub(crate) use writes::Writes;

/// An image of a process under `S`.
pub(crate) type ImageOf<S> = Image<<S as ProtocolTypes>::Head, <S as ProtocolTypes>::Saved>;

/// One attempt at a checkpoint of a group of processes. Parts of different attempts are never combined. The default,
/// with SN 0, means no checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Position of the checkpoint in the group's history.
    pub position: Position,
    /// The attempt at the checkpoint.
    pub attempt: Attempt,
}

impl Checkpoint {
    /// Returns the name of `owner`'s part.
    pub const fn part(self, owner: ProcessId) -> ImageName {
        let Position { incarnation, sn } = self.position;
        ImageName { owner, incarnation, sn, attempt: self.attempt }
    }

    /// Returns the claim that this process commits its part without vectors, after the checkpoint has paused the
    /// application for `frozen`.
    pub(crate) fn committed(self, frozen: Span) -> Claim {
        let Checkpoint { position, attempt } = self;
        Claim::Committed { position, attempt, forced: false, frozen, vectors: Arc::default() }
    }

    /// Returns the claim that this process discards the checkpoint.
    pub(crate) fn aborted(self) -> Claim {
        let Checkpoint { position, attempt } = self;
        Claim::Aborted { position, attempt }
    }
}

impl From<ImageName> for Checkpoint {
    fn from(name: ImageName) -> Checkpoint {
        Checkpoint { position: name.position(), attempt: name.attempt }
    }
}

/// The stamp of a message: the interval between two checkpoints in which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval(pub Position);

impl faultline_core::Stamp for Interval {
    fn position(&self) -> Position {
        self.0
    }
}

/// Messages in transit to a member while its part of a checkpoint was taken: sent before their senders saved their
/// states, and received after the member was asked for its own.
pub type InTransit = Vec<(MessageId, Payload)>;

/// Returns the length of these messages, in bytes.
pub(crate) fn bytes_of(messages: &[(MessageId, Payload)]) -> u64 {
    messages.iter().map(|(_, payload)| payload.len() as u64).sum()
}
