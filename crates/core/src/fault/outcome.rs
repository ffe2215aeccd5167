//! How a run ended.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::claim::{Breakage, Claim, PhaseClaim};
use crate::id::{GroupId, JobNo, Life, ProcessId};
use crate::image::ImageName;
use crate::message::MessageId;
use crate::time::Time;

/// How a run ended, before it has been judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every rank finished, and no message was in transit.
    Completed,
    /// The run exceeded its deadline.
    Deadline,
    /// A user or a signal ended the run.
    Interrupted,
    /// A group has no checkpoint that can be restored.
    Unrecoverable {
        /// The unrecoverable group. Records call it `cluster`.
        #[serde(rename = "cluster")]
        group: GroupId,
        /// The missing parts, and the processes that were asked for each.
        missing: Arc<[(ImageName, Vec<ProcessId>)]>,
    },
    /// The program is not send-deterministic, but its protocol requires send determinism.
    NotRepeated {
        /// The message that a re-execution sent differently.
        id: MessageId,
    },
    /// The program that performed the run reached its memory limit.
    OutOfMemory(Arc<MemoryUse>),
    /// The code of a process panicked.
    Panicked(Arc<Panic>),
    /// The program that acts as the protocol or the application of a process can no longer do so.
    Broken(Arc<Breakage>),
    /// In virtual time, processes acted without end at one instant.
    Stalled {
        /// The process that acted last.
        process: ProcessId,
        /// What that process handled last.
        handled: Handled,
        /// The number of events at the instant at which the run ended.
        events: u64,
    },
    /// In a system, a command that is started again exited too often without having been ready for long.
    ExitsAgain {
        /// The process whose node runs the command.
        process: ProcessId,
        /// How often in a row the command exited.
        exits: u32,
    },
}

impl Outcome {
    /// The names of all outcomes.
    pub const NAMES: [&str; 10] = [
        "completed",
        "deadline",
        "interrupted",
        "unrecoverable",
        "notRepeated",
        "outOfMemory",
        "panicked",
        "broken",
        "stalled",
        "exitsAgain",
    ];

    /// Returns the outcome with which a claim ends its run; `None` if the run continues.
    pub fn of_claim(claim: &Claim) -> Option<Outcome> {
        match claim {
            Claim::Unrecoverable { group, missing } => {
                Some(Outcome::Unrecoverable { group: *group, missing: missing.clone() })
            }
            Claim::Phase(PhaseClaim::NotRepeated { id, .. }) => Some(Outcome::NotRepeated { id: *id }),
            Claim::Broke(breakage) => Some(Outcome::Broken(breakage.clone())),
            _ => None,
        }
    }

    /// Returns the name of the outcome in summaries, one of [`Outcome::NAMES`].
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Deadline => "deadline",
            Outcome::Interrupted => "interrupted",
            Outcome::Unrecoverable { .. } => "unrecoverable",
            Outcome::NotRepeated { .. } => "notRepeated",
            Outcome::OutOfMemory(_) => "outOfMemory",
            Outcome::Panicked(_) => "panicked",
            Outcome::Broken(_) => "broken",
            Outcome::Stalled { .. } => "stalled",
            Outcome::ExitsAgain { .. } => "exitsAgain",
        }
    }
}

/// A panic in the code of a process, and what the process was doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Panic {
    /// The process whose code panicked.
    pub process: ProcessId,
    /// The life of the process.
    pub life: Life,
    /// The time at which the process began to handle the input.
    pub at: Time,
    /// The input that the process was handling.
    pub handled: Handled,
    /// The message of the panic.
    pub message: Arc<str>,
    /// The place in the source, as `file:line:column`.
    pub place: Arc<str>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Panic { process, life, at, handled, message, place } = self;
        write!(f, "{process} ({life}) panicked at {at}, {handled:?}: {message} ({place})")
    }
}

/// An input of a process, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handled {
    /// The start of the life.
    Start,
    /// An application message.
    Message(MessageId),
    /// A message of the protocol.
    Control {
        /// The sending process.
        from: ProcessId,
    },
    /// A part of a checkpoint that another process sent.
    Image {
        /// The sending process.
        from: ProcessId,
        /// Name of the part.
        name: ImageName,
    },
    /// The completion of a write of this part.
    Persisted(ImageName),
    /// The failure of a write of this part.
    PersistFailed(ImageName),
    /// The answer of the storage to a read of this part.
    Read(ImageName),
    /// A list of the parts in the storage.
    Listed,
    /// The completion of a write of the durable record.
    Recorded,
    /// A new membership.
    Membership,
    /// The result of a job of the application.
    Result(JobNo),
    /// A job of the application, which runs outside the process.
    Job(JobNo),
    /// A timeout.
    Timeout,
    /// The order to flip a bit.
    Flip,
}

/// The memory use of a program that reached its memory limit and therefore ended a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Memory limit of the program, in bytes.
    pub bound: u64,
    /// Memory of the program at the end of the run, in bytes.
    pub used: u64,
    /// The known parts of the program's memory that belong to this run.
    pub parts: Vec<MemoryPart>,
}

/// A part of a program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// The content of this part.
    pub content: MemoryContent,
    /// Number of items.
    pub count: u64,
    /// Memory of all items, in bytes.
    pub bytes: u64,
}

/// Content that occupies the memory of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MemoryContent {
    /// Facts, which are kept until they are judged.
    Facts,
    /// Facts, together with the memory that judging them would take. Replaces [`MemoryContent::Facts`] if this sum
    /// reached the limit.
    JudgedFacts,
    /// Parts of checkpoints in simulated storage, including their logs and replicas.
    Checkpoints,
    /// Messages in the logs of processes. A message that is also in a stored checkpoint is counted there as well.
    Logs,
    /// Events in the queue of the simulator, including packets in transit.
    Queue,
}
