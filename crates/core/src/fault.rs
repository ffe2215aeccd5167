//! What can be done to a federation, and when, and what became of it. A plan is expanded from a seed once, by
//! `faultline-api`, and means the same on every backend.

use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::fact::FactKind;
use crate::id::{ClusterId, FaultNo, ProcessId};
use crate::image::ImageName;
use crate::message::MessageId;
use crate::time::{Span, Time};

/// What becomes of a node's stable storage when the node fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StorageFate {
    /// The next life finds it as it was.
    #[default]
    Kept,
    /// Gone.
    Lost,
}

/// What ends a life that its supervisor ends, or knows to be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EndedBy {
    /// A fault of the plan: one that kills, or a pause in which it was taken for dead.
    Fault(FaultNo),
    /// It gave no sign of life for so long that it is taken for dead.
    Silence,
    /// The place that it was at is gone: its pod, on Kubernetes.
    PlaceLost,
    /// It was to begin at a place that does not have what the process had stored.
    StorageLost,
    /// The supervisor was started again, and lives end with the one before.
    SupervisorRestarted,
}

impl EndedBy {
    /// The fault of the plan, if it was one.
    pub fn fault(self) -> Option<FaultNo> {
        match self {
            EndedBy::Fault(no) => Some(no),
            _ => None,
        }
    }
}

/// Emulated properties of a link, one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkProperties {
    /// One-way delay.
    pub latency: Span,
    /// Half-width of a uniform distribution around the delay.
    pub jitter: Span,
    /// Bytes per second; 0 is unlimited.
    pub bandwidth: u64,
    /// Packets lost, in parts per million; the transport re-sends, so a loss appears as delay.
    pub loss_ppm: u32,
}

/// What a storage does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageFault {
    /// Writes take this much longer.
    Slow(Span),
    /// Writes fail.
    Full,
    /// Images that are read back fail their checksum, and so count as absent.
    Corrupt,
}

/// One fault, its target resolved to processes and clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The process is killed.
    Crash {
        /// Whom.
        process: ProcessId,
        /// What becomes of its storage.
        storage: StorageFate,
        /// Whether a next life follows. If not, its process is gone for good, also if it was dead already.
        returns: bool,
    },
    /// The process is stopped, and goes on after a while unless it was fenced in between.
    Pause {
        /// Whom.
        process: ProcessId,
        /// How long.
        span: Span,
    },
    /// All processes of a cluster are killed at once.
    LoseCluster {
        /// Which.
        cluster: ClusterId,
        /// What becomes of their storage.
        storage: StorageFate,
        /// Whether next lives follow. If not, its processes are gone for good, also those that were dead already.
        returns: bool,
    },
    /// The link from one cluster to another (or within one) changes.
    Link {
        /// Sending side.
        from: ClusterId,
        /// Receiving side.
        to: ClusterId,
        /// The new properties; `None` restores those of the federation.
        properties: Option<LinkProperties>,
        /// How long; `None` is until the end.
        span: Option<Span>,
    },
    /// Nothing passes from one cluster to another until it is healed: delay, never loss.
    Partition {
        /// Sending side.
        from: ClusterId,
        /// Receiving side.
        to: ClusterId,
        /// Also the other way.
        both: bool,
        /// How long.
        span: Span,
    },
    /// A node's storage misbehaves.
    Storage {
        /// Of the node of this process.
        process: ProcessId,
        /// How.
        how: StorageFault,
        /// How long; `None` is until the end.
        span: Option<Span>,
    },
}

/// When a fault is injected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trigger {
    /// At an instant, counted from the beginning of the application.
    At(Time),
    /// When a fact is stated: its process is halted before its next action until the fault has been injected.
    When {
        /// The fact.
        fact: FactKind,
        /// By a process of this cluster; `None` is any.
        cluster: Option<ClusterId>,
        /// By this process; `None` is any.
        process: Option<ProcessId>,
        /// The how-manieth such fact, from 1, in the order in which the supervisor sees them.
        occurrence: u32,
    },
}

impl Trigger {
    /// The kind of fact that it waits for.
    pub fn fact(&self) -> Option<FactKind> {
        match self {
            Trigger::At(_) => None,
            Trigger::When { fact, .. } => Some(*fact),
        }
    }

    /// Whether a fact of this kind, stated by `process` of `cluster`, counts.
    pub fn matches(&self, kind: FactKind, by: ProcessId, of: ClusterId) -> bool {
        match self {
            Trigger::At(_) => false,
            Trigger::When { fact, cluster, process, .. } => {
                *fact == kind && cluster.is_none_or(|it| it == of) && process.is_none_or(|it| it == by)
            }
        }
    }
}

/// One entry of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFault {
    /// Its place in the plan.
    pub no: FaultNo,
    /// When.
    pub trigger: Trigger,
    /// What.
    pub fault: Fault,
}

/// What the user of a federation may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// From now on this is what the federation asks of a link. A fault that has changed the link stays in force.
    Link {
        /// Sending side.
        from: ClusterId,
        /// Receiving side.
        to: ClusterId,
        /// The properties.
        properties: LinkProperties,
    },
    /// One more fault, numbered after those that are planned.
    Fault(PlannedFault),
    /// Every process stands still (`true`), or goes on. Neither the deadline nor the times of faults count what lies
    /// between.
    Pause(bool),
}

/// What became of a planned fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultState {
    /// Not yet due.
    Pending,
    /// Injected, and it changed something.
    Effective,
    /// It changed nothing, for this reason.
    Ineffective(Arc<str>),
}

/// One line of the supervisor's account of its plan.
pub type FaultAccount = (FaultNo, FaultState);

/// How a run ended, before anyone has judged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Every rank finished and no message was under way.
    Completed,
    /// The deadline passed.
    Deadline,
    /// Someone ended it.
    Interrupted,
    /// A cluster has no checkpoint left that could be restored.
    Unrecoverable {
        /// The cluster.
        cluster: ClusterId,
        /// The parts that are missing, and who was asked for them.
        missing: Arc<[(ImageName, Vec<ProcessId>)]>,
    },
    /// The program does not repeat itself, which its protocol relies on.
    NotRepeated {
        /// The message that a re-execution sent differently.
        id: MessageId,
    },
}
