//! Identities. A bare integer never stands in a signature.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number after this one. Panics when the numbers are used up: that is a defect, not a condition.
            #[must_use]
            pub const fn next(self) -> Self {
                match self.0.checked_add(1) {
                    Some(next) => Self(next),
                    None => panic!(concat!(stringify!($name), " numbers are used up")),
                }
            }

            /// The number as an index into a dense table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number!(
    /// A logical participant. It keeps its id for ever, whichever node runs it.
    ProcessId(u32), "p"
);
number!(
    /// A place: a machine with a storage of its own.
    NodeId(u32), "n"
);
number!(
    /// A cluster of the federation: a failure domain with a fast network inside.
    ClusterId(u16), "c"
);
number!(
    /// One run of a process, numbered durably outside the nodes by the supervisor; the first is 1.
    Life(u32), "life "
);
number!(
    /// Counts the rollbacks of a cluster, also those without a death. Never means a life.
    Incarnation(u32), "incarnation "
);
number!(
    /// Sequence number of a cluster-level checkpoint (HC3I section 3.1); the first checkpoint is 1, 0 is "none".
    Sn(u32), "SN "
);
number!(
    /// One try at taking a checkpoint; parts of different attempts are never mixed.
    Attempt(u32), "attempt "
);
number!(
    /// A piece of computation handed to a worker, numbered within a life.
    JobNo(u32), "job "
);
number!(
    /// Position of a fact in its process's stream, without gaps within a life, starting at 0.
    FactNo(u64), "fact "
);
number!(
    /// Version of the membership; greater is newer.
    MembershipVersion(u64), "membership "
);
number!(
    /// Position of a fault in the plan of a run.
    FaultNo(u32), "fault "
);

impl ProcessId {
    /// The supervisor, which speaks facts but is not a process of the federation.
    pub const SUPERVISOR: ProcessId = ProcessId(u32::MAX);
}

impl ClusterId {
    /// The place of processes that stand in no cluster of the federation (a storage server, a recovery process).
    pub const OUTSIDE: ClusterId = ClusterId(u16::MAX);
}

/// What a process is for, named by its protocol. Rank 0 of every protocol runs the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Role(pub u8);

impl Role {
    /// A rank of the application.
    pub const RANK: Role = Role(0);
    /// Holds images for others, outside every cluster; runs no application.
    pub const STORAGE_SERVER: Role = Role(1);
    /// Directs a recovery, outside every cluster; runs no application.
    pub const RECOVERY_PROCESS: Role = Role(2);
    /// Holds the order in which ranks were delivered messages, outside every cluster; runs no application.
    pub const EVENT_LOGGER: Role = Role(3);
}

/// A point in the history of a cluster: checkpoint `sn` of incarnation `incarnation`. Ordered lexicographically, so
/// that what a rollback undid is smaller than what came after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// How many rollbacks came before.
    pub incarnation: Incarnation,
    /// The last committed checkpoint.
    pub sn: Sn,
}

impl Position {
    /// Shorthand for the two numbers.
    pub const fn new(incarnation: u32, sn: u32) -> Self {
        Position { incarnation: Incarnation(incarnation), sn: Sn(sn) }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.incarnation.0, self.sn.0)
    }
}

macro_rules! hash {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }
    };
}

hash!(
    /// A task of a program of tasks: a hash of its parent and its place among the parent's children, so that every
    /// execution of a program names its tasks alike.
    TaskId
);
hash!(
    /// Data that the tasks of a program share: a hash of the task that created it and its place among what that task
    /// created.
    DataId
);

impl TaskId {
    /// The first task of a program.
    pub const MAIN: TaskId = TaskId(finish(0x6D61_696E));

    /// The task that this one spawns after `index` others.
    #[inline]
    #[must_use]
    pub const fn child(self, index: u32) -> TaskId {
        TaskId(finish(self.0.wrapping_add(finish(index as u64 + 1))))
    }

    /// The data that this task creates after `index` others.
    #[inline]
    pub const fn data(self, index: u32) -> DataId {
        DataId(finish(!self.0.wrapping_add(finish(index as u64 + 1))))
    }
}

/// One value of a piece of data, assigned once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The data.
    pub data: DataId,
    /// Counts from 1 in the program order of the task that created the data.
    pub n: u32,
}

/// One theft of a task: a place without work asks another one for some. Unique for ever: a new life of the thief asks under
/// new numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Theft {
    /// The process that is asked.
    pub victim: ProcessId,
    /// The process that asks.
    pub thief: ProcessId,
    /// The life of the thief in which it asked first.
    pub life: Life,
    /// Counts what the thief asks for in that life, from 1.
    pub number: u32,
}

impl Theft {
    /// Stands for the program itself, which was not stolen.
    pub const NONE: Theft =
        Theft { victim: ProcessId::SUPERVISOR, thief: ProcessId::SUPERVISOR, life: Life(0), number: 0 };
}

impl fmt::Display for Theft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<-{} {}.{}", self.victim, self.thief, self.life.0, self.number)
    }
}

/// The finaliser of SplitMix64: every input bit reaches every output bit.
#[inline]
pub(crate) const fn finish(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
