//! Claims: facts that only a protocol can know. A claim is self-reported, and never used as evidence.
//!
//! This file contains the claims that every checkpointing protocol can make. Each other file contains the claims that
//! only one kind of protocol makes. A claim's type, its kind and its wording are in the same file.
//!
//! | file | made by protocols that |
//! | --- | --- |
//! | [`partitions`] | recover partitions, to which tasks are assigned in advance |
//! | [`phases`] | use phases to restore the order of messages in a re-execution |
//! | [`programs`] | are programs of the user, whose host makes the claim |

pub mod partitions;
pub mod phases;
pub mod programs;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fact::FactKind;
use crate::id::{Attempt, ClusterId, GroupId, Position, ProcessId, Sn};
use crate::image::ImageName;
use crate::message::MessageId;
use crate::names::{RunNames, checkpoint};
use crate::time::Span;
pub use partitions::PartitionClaim;
pub use phases::PhaseClaim;
pub use programs::{Breakage, BreakageKind};

/// The dependencies of a group's checkpoint on other groups: one vector decides which checkpoints are forced, the other
/// which groups roll back (HC3I, section 3.2 and finding 5 of the errata). Empty under protocols that need neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vectors {
    /// Direct dependencies vector (DDV), with one entry for each group; empty if no message forces a checkpoint.
    pub ddv: Arc<[Position]>,
    /// Greatest position *delivered* from each group and incarnation, ascending; no entry if nothing was delivered.
    pub delivered: Arc<[(GroupId, Position)]>,
}

/// The reason for a group's rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A process of the group failed.
    Failure,
    /// Another group's rollback undid the send of a message that this group had delivered.
    Alert {
        /// The group that rolled back.
        from: GroupId,
        /// The checkpoint that the other group restored, under its new incarnation.
        position: Position,
    },
}

/// Facts that only a protocol can know. Self-reported.
///
/// The claims listed first concern mechanisms that any checkpointing protocol may have: it may log messages,
/// alert other groups, or force checkpoints. The claims that only one kind of protocol can make have a type
/// and a file of their own; the last variants contain these types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// The coordinator asks its group to take checkpoint `position.sn`.
    CheckpointRequested {
        /// Position of the requested checkpoint.
        position: Position,
        /// The attempt at that checkpoint.
        attempt: Attempt,
        /// Whether a theft or a message from another group, rather than the timer, caused the request.
        forced: bool,
    },
    /// This process applied the commit of a checkpoint.
    Committed {
        /// Position of the checkpoint.
        position: Position,
        /// The attempt that succeeded.
        attempt: Attempt,
        /// Whether a theft or a message from another group, rather than the timer, caused the checkpoint.
        forced: bool,
        /// Time during which this process's application was frozen.
        frozen: Span,
        /// The checkpoint's vectors.
        vectors: Arc<Vectors>,
    },
    /// This process discarded a checkpoint that was being taken.
    Aborted {
        /// Position of the discarded checkpoint.
        position: Position,
        /// The attempt that was discarded.
        attempt: Attempt,
    },
    /// This process takes part in a recovery round.
    RecoveryStarted {
        /// Number of the recovery: for most protocols, the sum of the life numbers of the processes that roll back
        /// together.
        lives: u64,
        /// Number of the round among those with the same `lives`.
        round: u32,
    },
    /// This process resumes from `to`, under incarnation `to.incarnation`.
    RolledBack {
        /// The checkpoint, under the *new* incarnation. SN 0 is the initial state.
        to: Position,
        /// The checkpoint, under the incarnation that took it.
        checkpoint: Position,
        /// The reason for the rollback.
        cause: Cause,
        /// The vectors of the restored checkpoint, which may not have been committed before the failure.
        vectors: Arc<Vectors>,
    },
    /// This process learned of another group's rollback.
    Alerted {
        /// The group that rolled back.
        from: GroupId,
        /// The checkpoint that the other group restored, under its new incarnation.
        position: Position,
    },
    /// This process re-sends a logged message.
    Resent {
        /// Identity of the message, unchanged since its first send.
        id: MessageId,
    },
    /// A message waits for the checkpoint that it forces.
    Forcing {
        /// Identity of the waiting message.
        id: MessageId,
    },
    /// This process removed checkpoints and log entries that no recovery can need.
    Collected {
        /// Number of the garbage collection.
        round: u32,
        /// Checkpoints of the group with a smaller SN have been removed.
        below: Sn,
        /// Number of checkpoints that remain.
        kept: u32,
        /// Number of log entries removed.
        log: u32,
    },
    /// After the loss of its storage, this process again stores everything that it should.
    Protected,
    /// No checkpoint of the group can be restored.
    Unrecoverable {
        /// The unrecoverable group.
        group: GroupId,
        /// For each member with a part that no storage holds: the newest checkpoint that lacks the part, and the
        /// processes that were asked for it.
        missing: Arc<[(ImageName, Vec<ProcessId>)]>,
    },
    /// The coordinator of a leaving cluster reports that no recovery can still need anything from the
    /// cluster.
    Released {
        /// The leaving cluster.
        cluster: ClusterId,
    },
    /// This process removed logged messages from its memory, because its own storage and its holders have
    /// made them durable.
    Spilled {
        /// Number of messages removed from memory.
        messages: u32,
        /// Payload of these messages, in bytes.
        bytes: u64,
        /// Payload of all logged messages that are still in memory, in bytes.
        left: u64,
    },
    /// A claim about the recovery of partitions.
    Partition(PartitionClaim),
    /// A claim about the phases of messages in a re-execution.
    Phase(PhaseClaim),
    /// The program that acts as the protocol or the application of this process broke its contract, ended, or does not
    /// reply.
    Broke(Arc<Breakage>),
}

impl Claim {
    /// Returns the kind of fact that reports this claim.
    pub const fn kind(&self) -> FactKind {
        match self {
            Claim::CheckpointRequested { .. } => FactKind::CheckpointRequested,
            Claim::Committed { .. } => FactKind::CheckpointCommitted,
            Claim::Aborted { .. } => FactKind::CheckpointAborted,
            Claim::RecoveryStarted { .. } => FactKind::RecoveryStarted,
            Claim::RolledBack { .. } => FactKind::RolledBack,
            Claim::Alerted { .. } => FactKind::Alerted,
            Claim::Resent { .. } => FactKind::Resent,
            Claim::Forcing { .. } => FactKind::Forcing,
            Claim::Collected { .. } => FactKind::Collected,
            Claim::Protected => FactKind::Protected,
            Claim::Unrecoverable { .. } => FactKind::Unrecoverable,
            Claim::Released { .. } => FactKind::Released,
            Claim::Spilled { .. } => FactKind::Spilled,
            Claim::Partition(claim) => claim.kind(),
            Claim::Phase(claim) => claim.kind(),
            Claim::Broke(_) => FactKind::Broke,
        }
    }

    /// Returns the message to which this claim refers, if any.
    pub const fn message(&self) -> Option<MessageId> {
        match self {
            Claim::Resent { id } | Claim::Forcing { id } => Some(*id),
            Claim::Phase(claim) => Some(claim.message()),
            _ => None,
        }
    }

    /// Writes the predicate of a sentence whose subject is the process that makes this claim, or its group. The
    /// alternate form (`{:#}`) adds what is specific to the process or the attempt.
    ///
    /// # Errors
    ///
    /// Fails if the formatter does.
    pub fn describe(&self, names: &RunNames, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = |it| names.process(it);
        let group = |it| names.group(it);
        let forced_by = |forced| if forced { ", forced" } else { "" };
        let is_detailed = f.alternate();
        match self {
            Claim::CheckpointRequested { position, attempt, forced } => {
                write!(f, "starts checkpoint {}{}", checkpoint(*position), forced_by(*forced))?;
                if is_detailed { write!(f, " ({attempt})") } else { Ok(()) }
            }
            Claim::Committed { position, forced, frozen, .. } => {
                write!(f, "commits checkpoint {}", checkpoint(*position))?;
                if is_detailed {
                    write!(f, "{}, after a freeze of {frozen}", forced_by(*forced))
                } else {
                    Ok(())
                }
            }
            Claim::Aborted { position, attempt } => {
                write!(f, "discards checkpoint {}", checkpoint(*position))?;
                if is_detailed { write!(f, " ({attempt})") } else { Ok(()) }
            }
            Claim::RecoveryStarted { lives, round } => {
                f.write_str("starts to recover")?;
                if is_detailed { write!(f, " (round {lives}.{round})") } else { Ok(()) }
            }
            Claim::RolledBack { to, checkpoint: of, cause, .. } => {
                let (of, incarnation) = (checkpoint(*of), to.incarnation);
                write!(f, "rolls back to checkpoint {of} as {incarnation}, because ")?;
                match cause {
                    Cause::Failure => f.write_str("one of its processes failed"),
                    Cause::Alert { from, position } => {
                        write!(f, "{} rolled back", group(*from))?;
                        if is_detailed { write!(f, " to {position}") } else { Ok(()) }
                    }
                }
            }
            Claim::Alerted { from, position } => {
                write!(f, "learns that {} rolled back to {position}", group(*from))
            }
            Claim::Resent { id } => write!(f, "re-sends {} from its log", names.message(*id)),
            Claim::Forcing { id } => {
                write!(f, "holds {} until after the checkpoint that it forces", names.message(*id))
            }
            Claim::Collected { round, below, kept, log } => {
                let entries = if *log == 1 { "entry" } else { "entries" };
                write!(f, "collects checkpoints below {below} and {log} log {entries}")?;
                if is_detailed { write!(f, " (round {round}; checkpoints kept: {kept})") } else { Ok(()) }
            }
            Claim::Released { cluster } => {
                write!(f, "finds that no recovery needs {} any longer", names.cluster(*cluster))
            }
            Claim::Spilled { messages, bytes, left } => write!(
                f,
                "moves logged messages to its storage (messages: {messages}, bytes: {bytes}); {left} bytes remain in memory"
            ),
            Claim::Protected => f.write_str("is protected again"),
            Claim::Unrecoverable { group: of, missing } => {
                write!(f, "finds no checkpoint of {} that can be restored", group(*of))?;
                for (name, asked) in missing.iter().filter(|_| is_detailed) {
                    write!(f, "; {} is missing, requested from", names.part(*name))?;
                    asked.iter().try_for_each(|it| write!(f, " {}", process(*it)))?;
                }
                Ok(())
            }
            Claim::Partition(claim) => claim.describe(names, f),
            Claim::Phase(claim) => claim.describe(names, f),
            Claim::Broke(breakage) => breakage.describe(f),
        }
    }
}
