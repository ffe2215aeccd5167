//! Faults that are injected into a federation, their triggers, and the outcome of a run. `faultline-api` expands a
//! plan from a seed once, so that the plan has the same meaning on every backend.

mod outcome;

pub use outcome::{Handled, MemoryContent, MemoryPart, MemoryUse, Outcome, Panic};

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use serde::{Deserialize, Serialize};

use crate::fact::{Fact, FactKind};
use crate::id::{ClusterId, FaultNo, ProcessId, WatchNo};
use crate::observation::Source;
use crate::time::{Span, Time};

/// Fate of a node's stable storage when the node fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StorageFate {
    /// The next life finds the storage unchanged.
    #[default]
    Kept,
    /// The content of the storage is lost.
    Lost,
}

/// The cause of a life's end, as known to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EndedBy {
    /// A fault of the plan: a kill, or a pause long enough for the process to be declared failed.
    Fault(FaultNo),
    /// The process was silent for so long that it was declared failed.
    Silence,
    /// The place of the process (on Kubernetes, its pod) no longer exists.
    PlaceLost,
    /// The process was about to start at a place that lacks its stored data.
    StorageLost,
    /// The supervisor restarted; a life ends with the supervisor that started it.
    SupervisorRestarted,
    /// The process, which had already failed, moved to a spare node. The spare has none of its data.
    Moved,
    /// In a system, the command of the node exited, or that of another node of its cluster, and is started again.
    CommandExited,
}

impl EndedBy {
    /// Returns the fault of the plan that ended the life, if one did.
    pub fn fault(self) -> Option<FaultNo> {
        match self {
            EndedBy::Fault(no) => Some(no),
            _ => None,
        }
    }
}

/// Emulated properties of a link in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkProperties {
    /// One-way delay.
    pub latency: Span,
    /// Half the width of a uniform distribution around the delay.
    pub jitter: Span,
    /// Bytes per second; 0 means unlimited.
    pub bandwidth: u64,
    /// Packet loss in parts per million. The transport re-sends lost packets, so a loss appears as delay.
    pub loss_ppm: u32,
}

/// A malfunction of a node's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageFault {
    /// Each write takes this much longer.
    Slow(Span),
    /// All writes fail.
    Full,
    /// Images fail their checksum when read, so they count as missing.
    Corrupt,
}

/// The processes that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// One process and its node.
    Process(ProcessId),
    /// All processes of a cluster.
    Cluster(ClusterId),
    /// All processes of a rack: consecutive nodes of a cluster.
    Rack {
        /// The cluster.
        cluster: ClusterId,
        /// The number of the rack in its cluster, from 0.
        rack: u32,
        /// The number of nodes in each rack of the cluster; the last rack may have fewer.
        nodes: u32,
    },
}

impl Target {
    /// Returns whether the processes fail at once as one part of the federation, even if it has only one process.
    pub fn is_at_once(self) -> bool {
        !matches!(self, Target::Process(_))
    }

    /// Returns the cluster of the processes. `cluster_of` returns the cluster of a process.
    pub fn cluster(self, cluster_of: impl FnOnce(ProcessId) -> ClusterId) -> ClusterId {
        match self {
            Target::Process(process) => cluster_of(process),
            Target::Cluster(cluster) | Target::Rack { cluster, .. } => cluster,
        }
    }

    /// Returns the processes; none if the cluster is unknown. `clusters` lists the processes of each cluster.
    pub fn processes(self, clusters: &[Vec<ProcessId>]) -> Vec<ProcessId> {
        match self {
            Target::Process(process) => [process].into(),
            Target::Cluster(cluster) | Target::Rack { cluster, .. } => {
                clusters.get(cluster.index()).map_or_else(Vec::new, |all| self.among(all).to_vec())
            }
        }
    }

    /// Returns the processes among `members`, the processes of the target's cluster in ascending order.
    pub fn among(self, members: &[ProcessId]) -> &[ProcessId] {
        match self {
            Target::Process(process) => {
                members.iter().position(|it| *it == process).map_or(&[], |at| &members[at..=at])
            }
            Target::Cluster(_) => members,
            Target::Rack { rack, nodes, .. } => {
                members.chunks((nodes as usize).max(1)).nth(rack as usize).unwrap_or_default()
            }
        }
    }
}

impl From<ProcessId> for Target {
    fn from(process: ProcessId) -> Target {
        Target::Process(process)
    }
}

impl From<ClusterId> for Target {
    fn from(cluster: ClusterId) -> Target {
        Target::Cluster(cluster)
    }
}

/// What is wrong with a process or its node while a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Impairment {
    /// The process is stopped. At the end of the fault it resumes, unless it was fenced in the meantime.
    Paused,
    /// The storage of the node malfunctions.
    Storage(StorageFault),
    /// The node is slow: whatever it begins takes this percentage of its time, above 100. In a system, its commands run only
    /// a share of the time.
    Slow {
        /// The percentage.
        percent: u32,
    },
    /// One bit is flipped.
    Flip(Flip),
}

/// A bit that a fault flips, once. What exists only as a length has no bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flip {
    /// What contains the bit.
    pub target: FlipTarget,
    /// Chooses the bit, modulo the number of bits.
    pub bit: u64,
}

/// What contains a bit that a fault flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FlipTarget {
    /// The next message with content that the application receives. What its sender, its protocols and their logs have
    /// remains intact.
    Message,
    /// The state in the next part of a checkpoint that the node stores, before the storage computes its checksum.
    Copy,
    /// The state of the application, as soon as no computation is running
    /// ([`Application::flip`](crate::Application::flip)).
    State,
}

/// The impairments of a node that are in force, with the faults that cause them: at most one of each kind. Does not
/// contain pauses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Impairments(Vec<(FaultNo, Impairment)>);

impl Impairments {
    /// Returns what is in force while these faults last, in the order of their injection: of each kind, the last one.
    pub fn in_force(unended: &[(FaultNo, Impairment)]) -> Impairments {
        let is_last = |it: usize| {
            let kind = mem::discriminant(&unended[it].1);
            !unended[it + 1..].iter().any(|later| mem::discriminant(&later.1) == kind)
        };
        Impairments((0..unended.len()).filter(|&it| is_last(it)).map(|it| unended[it]).collect())
    }

    /// Returns the faults that cause the impairments.
    pub fn faults(&self) -> impl Iterator<Item = FaultNo> {
        self.0.iter().map(|it| it.0)
    }

    /// Returns the malfunction of the storage.
    pub fn storage(&self) -> Option<StorageFault> {
        self.0.iter().find_map(|it| match it.1 {
            Impairment::Storage(how) => Some(how),
            _ => None,
        })
    }

    /// Returns the percentage of their time that the node's computations take.
    pub fn percent(&self) -> u32 {
        self.slow().map_or(100, |it| it.1)
    }

    /// Returns the fault that slows the node down, and the percentage of their time that computations take.
    pub fn slow(&self) -> Option<(FaultNo, u32)> {
        self.0.iter().find_map(|it| match it.1 {
            Impairment::Slow { percent } => Some((it.0, percent)),
            _ => None,
        })
    }
}

/// One fault, with its target resolved to processes and clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Processes are killed at the same time.
    Kill {
        /// The processes to kill.
        target: Target,
        /// Fate of the storage of their nodes.
        storage: StorageFate,
        /// Whether further lives follow. If not, the processes never start again, including those that had already
        /// failed.
        returns: bool,
        /// How long the nodes are unavailable; `None` if they are available again immediately. In the meantime, the
        /// processes start on spare nodes or, if there are none, wait.
        repair: Option<Span>,
    },
    /// In a system, commands are asked to end. The life of a node ends once its command has, or is killed after a while,
    /// and further lives follow.
    Stop {
        /// The processes whose nodes run the commands.
        target: Target,
        /// Fate of the storage of their nodes.
        storage: StorageFate,
        /// How long a node is unavailable after its command has ended, as for [`Fault::Kill`].
        repair: Option<Span>,
        /// Time from SIGTERM until what remains of a command is killed.
        within: Span,
        /// Whether the commands are asked one after the other, each once the node before is ready again.
        in_turn: bool,
        /// The entry in the federation's list of faults, from 0, whose command the next lives run; `None` if they run the
        /// same command as before.
        command: Option<u16>,
    },
    /// A process or its node is impaired.
    Impair {
        /// The process.
        process: ProcessId,
        /// What is wrong.
        how: Impairment,
        /// Duration of the fault; if `None`, it lasts until the end of the run.
        span: Option<Span>,
    },
    /// The properties of the link from one cluster to another, or within a cluster, change.
    Link {
        /// Sending cluster.
        from: ClusterId,
        /// Receiving cluster.
        to: ClusterId,
        /// The new properties; `None` restores those of the federation file.
        properties: Option<LinkProperties>,
        /// Duration of the change; if `None`, it lasts until the end of the run.
        span: Option<Span>,
    },
    /// No packet passes from one cluster to others until the partition heals. Packets are delayed, never lost.
    Partition {
        /// Sending cluster.
        from: ClusterId,
        /// Receiving clusters: one, or those from which `from` is isolated.
        to: Vec<ClusterId>,
        /// Whether packets are stopped in the opposite direction as well.
        both: bool,
        /// Duration of the partition.
        span: Span,
    },
    /// No packet passes between some nodes of a cluster and its others until the partition heals. Their links with other
    /// clusters are not affected.
    Split {
        /// The cluster.
        cluster: ClusterId,
        /// The nodes on one side.
        nodes: Vec<ProcessId>,
        /// Duration of the partition.
        span: Span,
    },
}

impl Fault {
    /// The names of all actions in federation files.
    pub const KINDS: [&str; 13] = [
        "crash",
        "stop",
        "restart",
        "pause",
        "loseCluster",
        "loseRack",
        "link",
        "partition",
        "slow",
        "flip",
        "slowStorage",
        "fullStorage",
        "corruptStorage",
    ];

    /// Creates a crash of a process that keeps its storage and returns.
    pub const fn crash(process: ProcessId) -> Fault {
        let (target, storage) = (Target::Process(process), StorageFate::Kept);
        Fault::Kill { target, storage, returns: true, repair: None }
    }

    /// Creates a fault that kills processes, which then return.
    pub fn kill(target: impl Into<Target>, storage: StorageFate) -> Fault {
        Fault::Kill { target: target.into(), storage, returns: true, repair: None }
    }

    /// Creates a fault that kills processes, which never return.
    pub fn kill_permanently(target: impl Into<Target>, storage: StorageFate) -> Fault {
        Fault::Kill { target: target.into(), storage, returns: false, repair: None }
    }

    /// Creates a fault that pauses a process.
    pub fn pause(process: ProcessId, span: Span) -> Fault {
        Fault::Impair { process, how: Impairment::Paused, span: Some(span) }
    }

    /// Creates a fault of a process's storage.
    pub fn storage(process: ProcessId, how: StorageFault, span: impl Into<Option<Span>>) -> Fault {
        Fault::Impair { process, how: Impairment::Storage(how), span: span.into() }
    }

    /// Returns the name of the action in federation files, one of [`Fault::KINDS`].
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Kill { target: Target::Process(_), .. } => "crash",
            Fault::Stop { target: Target::Process(_), .. } => "stop",
            Fault::Stop { target: Target::Cluster(_) | Target::Rack { .. }, .. } => "restart",
            Fault::Kill { target: Target::Cluster(_), .. } => "loseCluster",
            Fault::Kill { target: Target::Rack { .. }, .. } => "loseRack",
            Fault::Impair { how, .. } => match how {
                Impairment::Paused => "pause",
                Impairment::Slow { .. } => "slow",
                Impairment::Flip(_) => "flip",
                Impairment::Storage(StorageFault::Slow(_)) => "slowStorage",
                Impairment::Storage(StorageFault::Full) => "fullStorage",
                Impairment::Storage(StorageFault::Corrupt) => "corruptStorage",
            },
            Fault::Link { .. } => "link",
            Fault::Partition { .. } | Fault::Split { .. } => "partition",
        }
    }

    /// Returns the processes that the fault affects; `None` for a fault of a link.
    pub fn target(&self) -> Option<Target> {
        match *self {
            Fault::Kill { target, .. } | Fault::Stop { target, .. } => Some(target),
            Fault::Impair { process, .. } => Some(Target::Process(process)),
            Fault::Link { .. } | Fault::Partition { .. } | Fault::Split { .. } => None,
        }
    }

    /// Returns the processes whose lives the fault ends.
    pub fn kills(&self) -> Option<Target> {
        self.target().filter(|_| matches!(self, Fault::Kill { .. } | Fault::Stop { .. }))
    }

    /// Returns the part of the federation whose processes the fault kills at once.
    pub fn kills_at_once(&self) -> Option<Target> {
        self.kills().filter(|it| it.is_at_once() && !self.is_stop())
    }

    /// Returns whether the fault asks commands to end.
    pub fn is_stop(&self) -> bool {
        matches!(self, Fault::Stop { .. })
    }

    /// Returns the links that the fault cuts: the sending and the receiving cluster of each.
    pub fn cuts(&self) -> Vec<(ClusterId, ClusterId)> {
        let Fault::Partition { from, to, both, .. } = self else { return Vec::new() };
        let back = to.iter().filter(|it| *both && *it != from).map(|it| (*it, *from));
        to.iter().map(|it| (*from, *it)).chain(back).collect()
    }

    /// Returns the process that the fault impairs, and how.
    fn impairs(&self) -> Option<(ProcessId, Impairment)> {
        match *self {
            Fault::Impair { process, how, .. } => Some((process, how)),
            _ => None,
        }
    }

    /// Returns the process that the fault pauses.
    pub fn pauses(&self) -> Option<ProcessId> {
        self.impairs().filter(|it| it.1 == Impairment::Paused).map(|it| it.0)
    }

    /// Returns the process with the storage that malfunctions, and how.
    pub fn impairs_storage(&self) -> Option<(ProcessId, StorageFault)> {
        match self.impairs()? {
            (process, Impairment::Storage(how)) => Some((process, how)),
            _ => None,
        }
    }

    /// Returns the percentage of their time that computations take on the node that the fault slows down.
    pub fn slows(&self) -> Option<u32> {
        let Impairment::Slow { percent } = self.impairs()?.1 else { return None };
        Some(percent)
    }

    /// Returns the process at which the fault flips a bit, and what contains the bit.
    pub fn flips(&self) -> Option<(ProcessId, FlipTarget)> {
        match self.impairs()? {
            (process, Impairment::Flip(flip)) => Some((process, flip.target)),
            _ => None,
        }
    }

    /// Returns the process that stores a state with a flipped bit because of the fault.
    pub fn flips_copy(&self) -> Option<ProcessId> {
        self.flips().filter(|it| it.1 == FlipTarget::Copy).map(|it| it.0)
    }

    /// Returns the fate of the storage of the processes that the fault kills.
    pub fn storage_fate(&self) -> Option<StorageFate> {
        match self {
            Fault::Kill { storage, .. } | Fault::Stop { storage, .. } => Some(*storage),
            _ => None,
        }
    }

    /// Returns how long the nodes of the killed processes are unavailable.
    pub fn repair(&self) -> Option<Span> {
        match self {
            Fault::Kill { repair, .. } | Fault::Stop { repair, .. } => *repair,
            _ => None,
        }
    }

    /// Returns whether the fault kills processes that never return.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Fault::Kill { returns: false, .. })
    }

    /// Returns the time at which the fault ends if it is injected at `at`: at once if it kills processes or flips a bit,
    /// and never if it lasts until the end of the run.
    pub fn until(&self, at: Time) -> Time {
        match *self {
            Fault::Kill { .. } | Fault::Stop { .. } | Fault::Impair { how: Impairment::Flip(_), .. } => at,
            Fault::Partition { span, .. } | Fault::Split { span, .. } => at + span,
            Fault::Impair { span, .. } | Fault::Link { span, .. } => at + span.unwrap_or(Span::MAX),
        }
    }
}

/// When a fault is injected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trigger {
    /// At an instant, measured from the start of the application.
    At(Time),
    /// When a process reports a fact. The process is halted before its next action until the fault has been injected.
    When {
        /// The kind of fact to wait for.
        fact: FactKind,
        /// The watch or the probe that the fact is about; `None` matches all facts of this kind.
        of: Option<Source>,
        /// The cluster of the process that reports the fact; `None` matches all clusters.
        cluster: Option<ClusterId>,
        /// The process that reports the fact; `None` matches all processes.
        process: Option<ProcessId>,
        /// Which occurrence of the fact triggers the fault, counted from 1 in the order in which facts reach
        /// the supervisor.
        occurrence: u32,
    },
}

impl Trigger {
    /// Returns the kind of fact that the trigger waits for; `None` for an instant.
    pub fn fact(&self) -> Option<FactKind> {
        match self {
            Trigger::At(_) => None,
            Trigger::When { fact, .. } => Some(*fact),
        }
    }

    /// Returns whether the trigger counts this fact, reported by a process of a cluster.
    pub fn matches(&self, reported: &Fact, by: ProcessId, among: ClusterId) -> bool {
        match self {
            Trigger::At(_) => false,
            Trigger::When { fact, of, cluster, process, .. } => {
                *fact == reported.kind()
                    && cluster.is_none_or(|it| it == among)
                    && process.is_none_or(|it| it == by)
                    && (of.is_none() || *of == reported.source())
            }
        }
    }
}

/// A planned fault: one entry of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFault {
    /// Number of the fault in the plan.
    pub no: FaultNo,
    /// When the fault is injected.
    pub trigger: Trigger,
    /// The fault to inject.
    pub fault: Fault,
    /// If set, the fault is injected into the process that last logged a line for this watch, or into its cluster. Until
    /// then, the target of `fault` is unknown: [`ProcessId::SUPERVISOR`], or [`ClusterId::OUTSIDE`].
    pub reported: Option<WatchNo>,
    /// The cause of the failure in the failure trace from which the fault was taken, if it was taken from one.
    pub cause: Option<Arc<str>>,
}

impl PlannedFault {
    /// Returns the fault with its target, if `process` of this cluster was the last one to log a line for the watch.
    pub fn aimed_at(&self, process: ProcessId, cluster: ClusterId) -> Fault {
        let mut fault = self.fault.clone();
        match &mut fault {
            Fault::Kill { target: Target::Process(it), .. }
            | Fault::Stop { target: Target::Process(it), .. }
            | Fault::Impair { process: it, .. } => *it = process,
            Fault::Kill { target: Target::Cluster(it) | Target::Rack { cluster: it, .. }, .. }
            | Fault::Stop { target: Target::Cluster(it) | Target::Rack { cluster: it, .. }, .. } => {
                *it = cluster
            }
            Fault::Partition { from, to, .. } => {
                *from = cluster;
                to.retain(|it| *it != cluster);
            }
            Fault::Link { .. } | Fault::Split { .. } => {}
        }
        fault
    }

    /// Returns whether `injected` is this fault, whichever process was the last one to log a line for the watch.
    pub fn allows(&self, injected: &Fault) -> bool {
        if self.reported.is_none() {
            return self.fault == *injected;
        }
        let aimed = |target: Target| match target {
            Target::Process(process) => self.aimed_at(process, ClusterId::OUTSIDE),
            Target::Cluster(cluster) | Target::Rack { cluster, .. } => {
                self.aimed_at(ProcessId::SUPERVISOR, cluster)
            }
        };
        match injected {
            Fault::Partition { from, .. } => aimed(Target::Cluster(*from)) == *injected,
            _ => injected.target().is_some_and(|it| aimed(it) == *injected),
        }
    }
}

/// A change that a user makes while a federation runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// New properties of a link of the federation. A fault that currently overrides the link's properties stays in
    /// force.
    Link {
        /// Sending cluster.
        from: ClusterId,
        /// Receiving cluster.
        to: ClusterId,
        /// The new properties.
        properties: LinkProperties,
    },
    /// An additional fault, numbered after those already in the plan.
    Fault(PlannedFault),
    /// All processes are paused (`true`) or resumed (`false`). A pause counts neither towards the deadline nor
    /// towards the times of faults.
    Pause(bool),
}

/// The state of a planned fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultState {
    /// Not yet due, or waiting for its trigger.
    Pending,
    /// Injected, and had an effect.
    Effective,
    /// Had no effect, for the given reason.
    Ineffective(Arc<str>),
}

/// One entry of the supervisor's account of the plan: a fault and its state.
pub type FaultAccount = (FaultNo, FaultState);
