//! Input and output of the supervisor: reports and orders.

use std::sync::Arc;

use faultline_core::fault::{Change, LinkProperties, MemoryUse, StorageFault};
use faultline_core::{
    Boot, ClusterId, EndedBy, Fact, Gauges, Life, Membership, PlannedFault, Position, ProcessId, Progress,
    Scope, Span, StorageFate, Time, Trigger,
};

use serde::{Deserialize, Serialize};

pub use faultline_core::fault::{FaultAccount, FaultState, Outcome};

/// Parameters of a supervisor.
#[derive(Clone, Debug)]
pub struct Config {
    /// Time without a heartbeat after which a life is declared failed. It is killed before its failure is announced.
    pub detect_after: Span,
    /// Time from the announcement of a failure to the launch of the next life.
    pub restart_after: Span,
    /// Whether storage is in memory and does not outlive its process, so that every failure loses it.
    pub volatile_storage: bool,
    /// Time limit of the run, counted from the start of the application. A run that exceeds it ends undecided.
    pub deadline: Span,
    /// Time limit for the application to begin, counted from the start of the supervisor. `None` if another program
    /// supervises the start and can remove what prevents it.
    pub start_within: Option<Span>,
    /// The unit that rolls back together.
    pub scope: Scope,
    /// Clusters that join later, and when each joins, counted from the start of the application.
    pub joins: Vec<(ClusterId, Span)>,
    /// The faults to inject.
    pub plan: Vec<PlannedFault>,
    /// Smallest share of the application's steps, in percent, that must remain for a fault to count as effective.
    pub least_work_left_percent: u8,
    /// Enabled mutations, for tests.
    pub defects: Defects,
}

faultline_core::defects! {
    ; mutations
    /// A life that is declared failed is not killed.
    NotKilled,
    /// A process whose storage was lost is started as if the storage had been kept.
    ReplacementUnnoticed,
    /// A result counts although the process that stated it has failed since.
    ResultOfFailedCounts,
    /// A result counts although a rollback has undone it.
    ResultUndoneCounts,
    /// It is not recorded that a cluster has started.
    StartNotRecorded,
    /// The end of a life is not announced to the other processes.
    EndNotAnnounced,
    /// The end of a life is not stated as a fact.
    EndNotStated,
    /// A new life is announced when it is launched, before it listens.
    AnnouncedTooEarly,
    /// A failure loses the storage that is to be kept.
    StorageAlwaysLost,
    /// A process counts as complete once it has started, whatever its storage lacks.
    RefillUnawaited,
}

/// A message to the supervisor.
///
/// Together with the times of their arrival, reports are all that the supervisor's state depends on. A second
/// supervisor that receives the same reports at the same times has the same state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// A launched life listens for connections and waits for its first membership.
    Registered {
        /// The registering process.
        process: ProcessId,
        /// Number of its life.
        life: Life,
    },
    /// The links between the registered processes have been measured, so the application may begin.
    LinksMeasured,
    /// A life is active. A life is watched for silence from its first heartbeat on, and once it is paused or killed.
    /// A driver whose lives cannot hang by themselves therefore needs no heartbeats.
    Heartbeat {
        /// The active process.
        process: ProcessId,
        /// Number of its life.
        life: Life,
        /// Current values of the life, for the live view and for the remaining work.
        gauges: Gauges,
    },
    /// Current values of a life, reported independently of heartbeats.
    Gauges {
        /// The reporting process.
        process: ProcessId,
        /// Number of its life.
        life: Life,
        /// Current values of the life, for the live view and for the remaining work.
        gauges: Gauges,
    },
    /// A fact of a kind that the supervisor follows ([`crate::Supervisor::follows`]), or a fact at which the process
    /// halted. The facts of one life arrive in order.
    Stated {
        /// The process that states the fact.
        process: ProcessId,
        /// Number of its life.
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
        /// Number of its life.
        life: Life,
    },
    /// The process performed [`faultline_core::Action::Held`].
    Held {
        /// The process whose storage is complete again.
        process: ProcessId,
        /// Number of its life.
        life: Life,
    },
    /// A life has ended, as its host saw immediately (the exit of a child process).
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
    /// The user changed the federation. An added fault has the number that follows the plan's last. Changes take
    /// effect in the order of their reports.
    Changed(Change),
    /// A user or a signal requests the end of the run.
    Interrupted,
    /// Time may have passed. Changes of the membership are announced at the next timeout, so that changes of one
    /// instant share a version.
    Timeout,
    /// The program that carries out the run reached its memory limit.
    OutOfMemory(Arc<MemoryUse>),
}

/// An order of the supervisor to its driver. Orders are performed in sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Starts a life. Its storage is whatever the previous failure left.
    Launch {
        /// The process to start.
        process: ProcessId,
        /// Number of the new life, already recorded durably.
        life: Life,
        /// How the life begins.
        boot: Boot,
    },
    /// Sends this membership to every life that is up. A life without a membership starts with it.
    Announce(Arc<Membership>),
    /// Halts every process at a fact that matches one of these triggers. The process reports the fact and waits.
    Watch(Arc<[Trigger]>),
    /// Releases a halted process.
    Go {
        /// The process to release.
        process: ProcessId,
        /// Number of its life.
        life: Life,
    },
    /// Ends these lives immediately, then applies the fate of their storage. A life that has already ended is no
    /// error. See [`crate::Supervisor::await_exits`] for drivers that need time for this.
    Kill {
        /// The lives to end.
        lives: Vec<(ProcessId, Life)>,
        /// Fate of the storage of each node.
        storage: StorageFate,
    },
    /// Pauses a life (`true`) or resumes it.
    Pause {
        /// The process to pause or resume.
        process: ProcessId,
        /// Number of its life.
        life: Life,
        /// Whether the life is to be paused.
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
    },
    /// Changes the federation's own properties of a link. An earlier [`Order::Link`] stays in force.
    Relink {
        /// Sending cluster.
        from: ClusterId,
        /// Receiving cluster.
        to: ClusterId,
        /// The new properties.
        properties: LinkProperties,
    },
    /// Cuts a link (`true`) or heals it. Packets sent in the meantime wait.
    Cut {
        /// Sending cluster.
        from: ClusterId,
        /// Receiving cluster.
        to: ClusterId,
        /// Whether the link is to be cut.
        cut: bool,
    },
    /// Makes the storage of a process's node misbehave, or behave normally again (`None`).
    Storage {
        /// The process whose node has the storage.
        process: ProcessId,
        /// The misbehaviour.
        how: Option<StorageFault>,
    },
    /// A fact of the supervisor itself, to be recorded before later orders are performed.
    State(Fact),
    /// The run is over. All processes are to be ended.
    End(Outcome),
}

/// Summary of the federation's state, for a live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// When the application began; `None` before that.
    pub begun: Option<Time>,
    /// Whether the user has paused the federation.
    pub paused: bool,
    /// How the run ended; `None` while it is in progress.
    pub outcome: Option<Outcome>,
    /// Status of each cluster, indexed by [`ClusterId`].
    pub clusters: Vec<ClusterStatus>,
    /// The plan of faults, and what became of each so far.
    pub faults: Vec<FaultAccount>,
}

/// Summary of one cluster's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Number of processes.
    pub processes: u32,
    /// Number of processes that are up, as far as is known.
    pub up: u32,
    /// The newest checkpoint that any process claims to have committed or restored.
    pub committed: Position,
    /// Steps of all ranks together, as last reported.
    pub progress: Progress,
}
