//! The claim about a user's program that acts as a protocol or as an application. The program's host makes it, not the
//! program itself.

use alloc::sync::Arc;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{Life, ProcessId};

/// The reason why a program can no longer act as the protocol or the application of a process, which ends the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakage {
    /// The process to which the program belonged.
    pub process: ProcessId,
    /// The life of the process.
    pub life: Life,
    /// Name of the program.
    pub program: Arc<str>,
    /// What happened, by kind.
    pub kind: BreakageKind,
    /// What happened, as the predicate of a sentence whose subject is the program.
    pub what: Arc<str>,
    /// The last lines that the program wrote to its log, oldest first.
    pub log: Arc<[Arc<str>]>,
}

/// What a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BreakageKind {
    /// It replied with something that the contract does not permit.
    Contract,
    /// It ended by itself.
    Ended,
    /// It could not be started.
    NotStarted,
    /// It did not reply in time, which may be due to the machine.
    Silent,
    /// Something outside the run killed it.
    Killed,
}

impl BreakageKind {
    /// Returns whether the program itself is at fault, rather than the machine.
    pub const fn is_violation(self) -> bool {
        matches!(self, BreakageKind::Contract | BreakageKind::Ended)
    }
}

impl Breakage {
    /// Writes the predicate of a sentence whose subject is the process.
    pub(super) fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stops, because its program {} {}", self.program, self.what)
    }
}
