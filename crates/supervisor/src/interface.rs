//! Input and output of the supervisor: reports and orders.

use std::sync::Arc;

use faultline_core::fault::{Change, Flip, Impairments, LinkProperties, MemoryUse};
use faultline_core::{
    Boot, CheckNo, ClusterId, EndedBy, Fact, FaultNo, Gauges, Life, Membership, PlannedFault, Position,
    Presence, ProcessId, Progress, Scope, Span, StorageFate, Time, Trigger,
};

use serde::{Deserialize, Serialize};

use crate::system::SystemRun;

pub use faultline_core::fault::{FaultAccount, FaultState, Outcome};

/// Parameters of a supervisor.
#[derive(Clone, Debug)]
pub struct Config {
    /// Time without a heartbeat after which a life is declared failed. It is killed before its failure is announced.
    /// [`Span::MAX`] if silence never means a failure.
    pub detect_after: Span,
    /// Time from the announcement of a failure to the launch of the next life.
    pub restart_after: Span,
    /// Number of spare nodes, to which processes move while their own nodes are under repair.
    pub spares: u32,
    /// Whether storage is in memory and does not outlive its process, so that every failure loses it.
    pub volatile_storage: bool,
    /// Time limit of the run, counted from the start of the application, excluding pauses by the user. A run that
    /// exceeds it ends with [`Outcome::Deadline`].
    pub deadline: Span,
    /// Time limit for the start of the application, counted from the start of the supervisor or, if the user paused the
    /// federation before the application started, from the end of the last pause. `None` if another program supervises
    /// the start, and can remove obstacles to it.
    pub start_within: Option<Span>,
    /// The groups that roll back together.
    pub scope: Scope,
    /// Whether tasks are assigned to processes in advance. If so, partitions move to clusters that join, and
    /// away from clusters that leave.
    pub is_planned: bool,
    /// Clusters that join later, and the time at which each joins, counted from the start of the application.
    pub joins: Vec<(ClusterId, Span)>,
    /// Clusters whose departure the supervisor announces, and the time of each announcement, counted from the
    /// start of the application. Clusters whose application decides when they leave are not listed.
    pub leaves: Vec<(ClusterId, Span)>,
    /// The faults to inject.
    pub plan: Vec<PlannedFault>,
    /// Smallest percentage of the application's steps that must remain when a fault is injected. If less work
    /// remains, the fault is ineffective.
    pub least_work_left_percent: u8,
    /// What a run of a system needs; `None` for all other applications.
    pub system: Option<SystemRun>,
}

/// A message to the supervisor.
///
/// The supervisor's state depends only on reports and the times of their arrival. A second supervisor that
/// receives the same reports at the same times has the same state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// A launched life listens for connections and waits for its first membership.
    Registered {
        /// The registering process.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
    },
    /// The links between the registered processes have been measured, so the application may begin.
    LinksMeasured,
    /// A life is active. The supervisor watches a life for silence after its first heartbeat, or after its registration
    /// if the driver [expects heartbeats](crate::Supervisor::expect_heartbeats), and in any case once a fault pauses
    /// the life or the supervisor kills it. A driver whose lives cannot hang unexpectedly therefore needs no
    /// heartbeats.
    Heartbeat {
        /// The active process.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
        /// Current values of the life. The live view shows them, and the supervisor computes the remaining work from
        /// them.
        gauges: Gauges,
    },
    /// Current values of a life, reported independently of heartbeats.
    Gauges {
        /// The reporting process.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
        /// Current values of the life. The live view shows them, and the supervisor computes the remaining work from
        /// them.
        gauges: Gauges,
    },
    /// A fact of a kind that the supervisor follows ([`crate::Supervisor::follows`]), or a fact at which the process
    /// halted. The facts of one life arrive in order.
    Fact {
        /// The process that reports the fact.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
        /// The fact itself.
        fact: Fact,
        /// Whether the process is halted until [`Order::Go`] or its failure.
        halted: bool,
    },
    /// The process performed [`faultline_core::Action::Started`].
    Started {
        /// The process that has started.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
    },
    /// The process performed [`faultline_core::Action::Held`].
    Held {
        /// The process whose storage is complete again.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
    },
    /// The process carried out [`Order::SetUp`].
    SetUp {
        /// The process that set the system up.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
    },
    /// A life has ended, and its host detected this immediately (through the exit of a child process).
    Exited {
        /// The process that ended.
        process: ProcessId,
        /// Number of the life that ended.
        life: Life,
    },
    /// The place of a life was removed from outside, with or without its storage, and the driver has fenced the life.
    /// Treated like an injected failure that is detected immediately.
    Lost {
        /// The process that lost its place.
        process: ProcessId,
        /// Number of the life that ended.
        life: Life,
        /// Fate of the storage.
        storage: StorageFate,
        /// The cause of the loss.
        by: EndedBy,
    },
    /// The user changed the federation. The number of an added fault must follow the last one in the plan. Changes take
    /// effect in the order of their reports.
    Changed(Change),
    /// A user or a signal requests the end of the run.
    Interrupted,
    /// Time may have passed. Changes to the membership are announced at the next timeout, so that changes at one
    /// instant share a version.
    Timeout,
    /// The program that performs the run reached its memory limit.
    OutOfMemory(Arc<MemoryUse>),
    /// The driver cannot continue the run.
    Ended(Outcome),
}

/// An order from the supervisor to its driver. Orders are performed in sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Starts a life with the storage that the previous life left behind.
    Launch {
        /// The process to start.
        process: ProcessId,
        /// Number of the new life, which has already been recorded durably.
        life: Life,
        /// How the life begins.
        boot: Boot,
    },
    /// Lets a life start the command of its node, before its process starts. The process observes when the command is
    /// ready.
    Prepare {
        /// The process whose node runs the command.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
    },
    /// Lets a life set the system up. Answered by [`Report::SetUp`].
    SetUp {
        /// The process that sets the system up.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
    },
    /// Lets a life carry out a check of the system. The process observes how it ends.
    Check {
        /// The process whose node carries out the check.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
        /// Number of the check.
        check: CheckNo,
    },
    /// Lets a node end its command, and kill what remains of it after a while. The process observes when the command has
    /// ended. Its life then ends by another order.
    Stop {
        /// The process whose node runs the command.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
        /// Time from SIGTERM until the rest is killed.
        within: Span,
        /// The entry in the federation's list of faults whose command later lives of the node run instead, if any.
        command: Option<u16>,
    },
    /// Sends this membership to every life that is up. A life that has no membership yet starts with this one.
    Announce(Arc<Membership>),
    /// Halts every process at a fact that matches one of these triggers. The process reports the fact and waits.
    Watch(Arc<[Trigger]>),
    /// Releases a halted process.
    Go {
        /// The process to release.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
    },
    /// Ends these lives immediately, then keeps or removes the storage of their nodes. It is not an error if a life has
    /// already ended. See [`crate::Supervisor::await_exits`] for drivers that need time to end lives.
    Kill {
        /// The lives to end.
        lives: Vec<(ProcessId, Life)>,
        /// Fate of the storage of each node.
        storage: StorageFate,
    },
    /// Pauses a life (`true`) or resumes it. Each fault that pauses a life has its own order, even if the life is
    /// already paused.
    Pause {
        /// The process to pause or resume.
        process: ProcessId,
        /// Number of the process's life.
        life: Life,
        /// Whether to pause the life.
        paused: bool,
    },
    /// Sets the properties of a link; `None` restores those of the federation.
    Link {
        /// Sending cluster.
        from: ClusterId,
        /// Receiving cluster.
        to: ClusterId,
        /// The new properties.
        properties: Option<LinkProperties>,
        /// The fault that is in force now, if any.
        of: Option<FaultNo>,
    },
    /// Changes the properties that the federation itself specifies for a link. An earlier [`Order::Link`] remains in
    /// effect.
    Relink {
        /// Sending cluster.
        from: ClusterId,
        /// Receiving cluster.
        to: ClusterId,
        /// The new properties.
        properties: LinkProperties,
    },
    /// Cuts a link (`true`) or heals it. Packets sent in the meantime wait. Each fault that cuts a link has its own
    /// order, even if the link is already cut.
    Cut {
        /// Sending cluster.
        from: ClusterId,
        /// Receiving cluster.
        to: ClusterId,
        /// Whether to cut the link.
        cut: bool,
    },
    /// In a system, cuts some nodes of a cluster off from its others (`true`), or ends this. Packets sent in the meantime are
    /// lost.
    Split {
        /// The fault.
        of: FaultNo,
        /// The cluster.
        cluster: ClusterId,
        /// The nodes on one side.
        nodes: Vec<ProcessId>,
        /// Whether the fault begins.
        cut: bool,
    },
    /// Impairs the node of a process, for its later lives as well. Replaces earlier orders.
    Impair {
        /// The process.
        process: ProcessId,
        /// What is wrong with the node from now on.
        in_force: Impairments,
        /// The fault that begins with this order; `None` if one ends.
        begins: Option<FaultNo>,
    },
    /// Passes the event [`Flip`](faultline_core::Event::Flip) to the newest life of a process.
    Flip {
        /// The process.
        process: ProcessId,
        /// The bit to flip.
        flip: Flip,
        /// The fault that begins with this order.
        of: FaultNo,
    },
    /// Records a fact of the supervisor itself. The fact must be recorded before later orders are performed.
    Record(Fact),
    /// Ends the run, and with it all processes.
    End(Outcome),
}

/// Summary of the federation's state, for a live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Time at which the application began; `None` until then.
    pub begun: Option<Time>,
    /// Whether the user has paused the federation.
    pub paused: bool,
    /// How the run ended; `None` while it is in progress.
    pub outcome: Option<Outcome>,
    /// Status of each cluster, indexed by [`ClusterId`].
    pub clusters: Vec<ClusterStatus>,
    /// The state of each fault of the plan.
    pub faults: Vec<FaultAccount>,
    /// Number of free spare nodes.
    pub spares: u32,
}

/// Summary of one cluster's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Whether the cluster takes part in the federation at present.
    pub presence: Presence,
    /// Number of processes.
    pub processes: u32,
    /// Number of processes known to be up. In a system, the number of nodes that are ready.
    pub up: u32,
    /// The newest checkpoint that any process of the cluster claims to have committed or restored.
    pub committed: Position,
    /// Sum of the last reported steps of the cluster's ranks.
    pub progress: Progress,
}
