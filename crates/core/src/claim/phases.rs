//! Claims of protocols that use phases to restore the order of messages. Such protocols set [`Protocol::REPEATS`].
//!
//! [`Protocol::REPEATS`]: crate::Protocol::REPEATS

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fact::FactKind;
use crate::message::MessageId;
use crate::names::RunNames;

/// A claim that is specific to protocols that compare the phases of a re-execution with those of the original
/// execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PhaseClaim {
    /// This process has delivered a message whose send was undone by a rollback. The sender will send it again.
    Orphaned {
        /// Identity of the orphan message.
        id: MessageId,
        /// Phase of the message, recorded when it was received.
        phase: u32,
    },
    /// A re-execution sent a message in a different phase from the original execution. The program is not
    /// send-deterministic, so the protocol cannot protect it.
    NotRepeated {
        /// Identity of the message.
        id: MessageId,
        /// Phase that the receiver recorded for the message.
        recorded: u32,
        /// Phase of the message in the re-execution.
        repeated: u32,
    },
}

impl PhaseClaim {
    /// Returns the kind of fact that reports this claim.
    pub const fn kind(&self) -> FactKind {
        match self {
            PhaseClaim::Orphaned { .. } => FactKind::Orphaned,
            PhaseClaim::NotRepeated { .. } => FactKind::NotRepeated,
        }
    }

    /// Returns the message to which this claim refers.
    pub const fn message(&self) -> MessageId {
        match self {
            PhaseClaim::Orphaned { id, .. } | PhaseClaim::NotRepeated { id, .. } => *id,
        }
    }

    /// Writes the predicate of a sentence whose subject is the process that makes this claim.
    ///
    /// # Errors
    ///
    /// Fails if the formatter does.
    pub fn describe(&self, names: &RunNames, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = names.message(self.message());
        match self {
            PhaseClaim::Orphaned { phase, .. } => {
                write!(f, "reports {message} as an orphan message of phase {phase}")
            }
            PhaseClaim::NotRepeated { recorded, repeated, .. } => {
                write!(f, "finds {message} re-executed in phase {repeated} instead of {recorded}")
            }
        }
    }
}
