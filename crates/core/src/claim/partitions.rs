//! Claims of protocols for programs whose tasks are assigned to partitions in advance.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::fact::FactKind;
use crate::id::{Incarnation, Position, ProcessId};
use crate::names::{RunNames, checkpoint};

/// A claim that is specific to protocols that recover partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartitionClaim {
    /// A partition that runs on this process takes part in a recovery, with its current state.
    RecoveryJoined {
        /// The partition.
        partition: ProcessId,
        /// The recovery.
        epoch: Incarnation,
        /// The checkpoint from which the partition re-executes tasks, to recompute values that other partitions demand.
        /// SN 0 is the initial state.
        slot: Position,
    },
    /// Everything that one partition had sent to another before joining a recovery has either arrived or been lost.
    Drained {
        /// The sending partition.
        from: ProcessId,
        /// The receiving partition, which runs on this process.
        to: ProcessId,
        /// The recovery.
        epoch: Incarnation,
    },
}

impl PartitionClaim {
    /// Returns the kind of fact that reports this claim.
    pub const fn kind(&self) -> FactKind {
        match self {
            PartitionClaim::RecoveryJoined { .. } => FactKind::RecoveryJoined,
            PartitionClaim::Drained { .. } => FactKind::Drained,
        }
    }

    /// Writes the predicate of a sentence whose subject is the process that makes this claim. The alternate form
    /// (`{:#}`) adds details.
    ///
    /// # Errors
    ///
    /// Fails if the formatter does.
    pub fn describe(&self, names: &RunNames, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionClaim::RecoveryJoined { partition, epoch, slot } => {
                let partition = names.process(*partition);
                write!(f, "takes part in recovery {} with the partition of {partition}", epoch.0)?;
                if f.alternate() { write!(f, ", based on checkpoint {}", checkpoint(*slot)) } else { Ok(()) }
            }
            PartitionClaim::Drained { from, to, epoch } => write!(
                f,
                "has received, for {}, everything that {} had sent before recovery {}, except what was lost",
                names.process(*to),
                names.process(*from),
                epoch.0
            ),
        }
    }
}
