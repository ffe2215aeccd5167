//! Identities. Signatures use these newtypes instead of bare integers.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// Returns the next number.
            ///
            /// # Panics
            ///
            /// Panics if the number is the largest of its type, which only a bug can cause.
            #[must_use]
            pub const fn next(self) -> Self {
                match self.0.checked_add(1) {
                    Some(next) => Self(next),
                    None => panic!(concat!(stringify!($name), " numbers are exhausted")),
                }
            }

            /// Returns the number as an index into a dense table.
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
    /// A logical participant. It keeps its identity permanently, whichever node runs it.
    ProcessId(u32), "p"
);
number!(
    /// A node: a machine with its own storage, on which a process runs.
    NodeId(u32), "n"
);
number!(
    /// A cluster of the federation: a failure domain with a fast internal network.
    ClusterId(u16), "c"
);
number!(
    /// One execution of a process. The supervisor numbers lives from 1 and stores the numbers outside the nodes.
    Life(u32), "life "
);
number!(
    /// Number of rollbacks of a cluster, including those caused by failures elsewhere. Not to be confused with a
    /// life.
    Incarnation(u32), "incarnation "
);
number!(
    /// Sequence number of a cluster-level checkpoint (HC3I, section 3.1). The first checkpoint is 1; 0 means none.
    Sn(u32), "SN "
);
number!(
    /// One attempt at taking a checkpoint. Parts of different attempts are never combined.
    Attempt(u32), "attempt "
);
number!(
    /// A computation handed to a worker, numbered within a life.
    JobNo(u32), "job "
);
number!(
    /// Position of a fact in the stream of its process: consecutive within a life, starting at 0.
    FactNo(u64), "fact "
);
number!(
    /// Version of the membership. Greater numbers are newer.
    MembershipVersion(u64), "membership "
);
number!(
    /// Number of a fault in the plan of a run.
    FaultNo(u32), "fault "
);
number!(
    /// Number of a probe in the manifest.
    ProbeNo(u16), "probe "
);
number!(
    /// Number of a watch in the manifest.
    WatchNo(u16), "watch "
);
number!(
    /// Number of a check among those that the federation expects to succeed.
    CheckNo(u16), "check "
);
number!(
    /// Number of a history of clients in the manifest.
    HistoryNo(u16), "history "
);

impl Life {
    /// Returns the incarnation of a process in this life, if the process rolls back at the beginning of each life after
    /// the first, and at no other time.
    pub const fn incarnation(self) -> Incarnation {
        Incarnation(self.0.saturating_sub(1))
    }
}

impl ProcessId {
    /// The supervisor, which reports facts but is not a process of the federation.
    pub const SUPERVISOR: ProcessId = ProcessId(u32::MAX);
}

/// A group: the processes that take checkpoints and roll back together. Depending on the protocol's
/// [`Scope`](crate::Scope), this is a process, a cluster or the federation. Groups are numbered like the processes or
/// clusters that they consist of, but a group's number must not be used to look up a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u16);

impl GroupId {
    /// Placeholder for the group of a process that runs no application.
    pub const OUTSIDE: GroupId = GroupId(u16::MAX);

    /// Returns the index of the group in a table that has one entry for each *group*.
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// Formats the number like that of a cluster.
impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ClusterId(self.0))
    }
}

impl ClusterId {
    /// Placeholder for the cluster of a process outside all clusters, such as a storage server or a recovery process.
    pub const OUTSIDE: ClusterId = ClusterId(u16::MAX);
}

/// The purpose of a process, assigned by its protocol. Role 0 of every protocol runs the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Role(pub u8);

impl Role {
    /// A rank of the application.
    pub const RANK: Role = Role(0);
    /// Stores images for other processes. Outside all clusters; runs no application.
    pub const STORAGE_SERVER: Role = Role(1);
    /// Directs a recovery. Outside all clusters; runs no application.
    pub const RECOVERY_PROCESS: Role = Role(2);
    /// Stores the order in which messages were delivered to ranks. Outside all clusters; runs no application.
    pub const EVENT_LOGGER: Role = Role(3);
}

/// A point in the history of a cluster: checkpoint `sn` of incarnation `incarnation`. Ordered lexicographically, so
/// every position that a rollback undid is smaller than every position after the rollback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Number of rollbacks before this point.
    pub incarnation: Incarnation,
    /// The last committed checkpoint.
    pub sn: Sn,
}

impl Position {
    /// Creates a position from its two numbers.
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
    /// A task of a task-based program: a hash of its parent and its index among the parent's children, so all
    /// executions of a program give a task the same identity.
    TaskId
);
hash!(
    /// A piece of data that the tasks of a program share: a hash of the task that created it, and its index
    /// among the data that this task created.
    DataId
);

impl TaskId {
    /// The first task of every program.
    pub const MAIN: TaskId = TaskId(finish(0x6D61_696E));

    /// Returns the child that this task spawns after `index` others.
    #[inline]
    #[must_use]
    pub const fn child(self, index: u32) -> TaskId {
        TaskId(finish(self.0.wrapping_add(finish(index as u64 + 1))))
    }

    /// Returns the data that this task creates after `index` others.
    #[inline]
    pub const fn data(self, index: u32) -> DataId {
        DataId(finish(!self.0.wrapping_add(finish(index as u64 + 1))))
    }
}

/// One value of a piece of shared data, assigned once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The data that has this value.
    pub data: DataId,
    /// Number of the value, counted from 1 in the program order of the task that created the data.
    pub n: u32,
}

/// One theft of a task: a process without work asks another process for a task. The identity is never reused:
/// it includes the thief's life, and each life numbers its requests from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Theft {
    /// The process that is asked for work.
    pub victim: ProcessId,
    /// The process that asks for work.
    pub thief: ProcessId,
    /// The life in which the thief first made the request.
    pub life: Life,
    /// Number of the request within that life, from 1.
    pub number: u32,
}

impl Theft {
    /// Represents the program itself, which was not stolen.
    pub const NONE: Theft =
        Theft { victim: ProcessId::SUPERVISOR, thief: ProcessId::SUPERVISOR, life: Life(0), number: 0 };
}

impl fmt::Display for Theft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<-{} {}.{}", self.victim, self.thief, self.life.0, self.number)
    }
}

/// The finaliser of SplitMix64: every input bit affects every output bit.
#[inline]
pub(crate) const fn finish(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
