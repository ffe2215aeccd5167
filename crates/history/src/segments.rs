//! The states of one process: a tree of [`Segment`]s.
//!
//! A life's stream starts from the initial state; a restore returns to a cut of the process's own earlier stream. Each
//! segment is a range of one stream that continues a cut of an earlier segment. The final state of the process is the path
//! to the end of its last segment; everything else is undone.

use faultline_core::{FactNo, GroupId, ImageName, Incarnation, Life, ProcessId, Witness};
use serde::{Deserialize, Serialize};

/// A fact cited as evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Source {
    /// The process that reported the fact.
    pub process: ProcessId,
    /// The life in which the fact was reported.
    pub life: Life,
    /// The fact's position in that life's stream.
    pub number: FactNo,
}

/// The index of a segment among all segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentNo(pub u32);

/// The position of a fact, or (as a cut) the position before it, in the tree of its process's states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The segment that contains the fact.
    pub segment: SegmentNo,
    /// The fact's number in its stream.
    pub fact: u32,
}

/// A range of one life's stream that no restore interrupts.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The process whose state the segment describes. In a planned program, the process that started with the
    /// partition.
    pub process: ProcessId,
    /// The process that reports the facts. It differs from `process` only if it took over the partition.
    pub host: ProcessId,
    /// The life in which the facts were reported.
    pub life: Life,
    /// The first fact of the range. The fact before it is the restore that starts the segment, if any.
    pub begin: u32,
    /// The first fact after the range.
    pub end: u32,
    /// The cut that the segment continues; `None` is the initial state or, if `is_rootless`, an unknown one.
    pub parent: Option<Point>,
    /// The incarnation under which the process sends.
    pub incarnation: Incarnation,
    /// Whether the segment starts at a restore, or where its process ceded or continued the partition, rather
    /// than at the start of a life.
    pub is_restored: bool,
    /// Whether the segment continues no known cut, because facts are missing, or because its process ceded the
    /// partition.
    pub is_rootless: bool,
    /// Whether the process never learned of the recovery that moved the partition away, and therefore
    /// continued its own last state of the partition, although another process had run the partition since.
    pub continues: bool,
    /// Whether the application acted in the segment.
    pub is_active: bool,
    /// The first fact that does not belong to the final state of the process; equal to `begin` if no fact of the range
    /// belongs to it.
    pub survives: u32,
    /// The segment's running sums, as a range of [`History::sums`].
    pub(crate) sums: (u32, u32),
    /// Whether the range also has facts about other partitions.
    pub(crate) is_shared: bool,
    /// The sums of the cut that the segment continues.
    pub(crate) base: Sums,
}

/// Multiset hashes of the messages that a process had sent and delivered or, in a task-based program, of the tasks
/// spawned and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The wrapping sum of the hashes of the sent messages.
    pub sent: u64,
    /// The wrapping sum of the hashes of the delivered messages.
    pub delivered: u64,
}

/// How much is known about the final state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The final state is this cut.
    Known(Point),
    /// The process never reported a fact.
    Silent,
    /// When the run ended, the process was down, had not recovered, or had not yet rolled back with the other members
    /// of its group; or its group had been declared unrecoverable.
    Unsettled,
    /// Facts of the process's last life, or of the state that this life restored, are missing.
    Incomplete,
    /// The process failed permanently. Those parts of its state that other processes absorbed survive.
    Gone,
}

/// The history of one process.
#[derive(Clone, Debug)]
pub struct ProcessHistory {
    /// The process's segments, in the order of its lives.
    pub segments: std::ops::Range<u32>,
    /// How much is known about the process's final state.
    pub ending: Ending,
    /// The process's group, and its index among the group's members; `None` for processes that run no
    /// application.
    pub member: Option<(GroupId, usize)>,
}

impl Sums {
    /// Returns the sums of the union of two multisets.
    #[must_use]
    pub fn plus(self, other: Sums) -> Sums {
        Sums {
            sent: self.sent.wrapping_add(other.sent),
            delivered: self.delivered.wrapping_add(other.delivered),
        }
    }
}

/// A witness that a process reported.
#[derive(Clone, Copy, Debug)]
pub struct Witnessed {
    /// The fact that contains the witness.
    pub at: Point,
    /// The process whose state the witness describes.
    pub owner: ProcessId,
    /// The witness, as reported.
    pub witness: Witness,
    /// The checkpoint part to which the witness belongs.
    pub part: Option<ImageName>,
    /// Whether the fact is a restore.
    pub is_restored: bool,
    /// Bytes of application state passed to the storage; 0 unless the fact states that a part was saved.
    pub bytes: u64,
}
