//! What goes into the supervisor and what comes out of it.

use std::sync::Arc;

use faultline_core::fault::{Change, LinkProperties, StorageFault};
use faultline_core::{
    Boot, ClusterId, EndedBy, Fact, Gauges, Life, Membership, PlannedFault, Position, ProcessId, Progress,
    Scope, Span, StorageFate, Time, Trigger,
};

use serde::{Deserialize, Serialize};

pub use faultline_core::fault::{FaultAccount, FaultState, Outcome};

/// Parameters of a supervisor.
#[derive(Clone, Debug)]
pub struct Config {
    /// A life without a heartbeat for this long is taken for dead, killed, and then announced so.
    pub detect_after: Span,
    /// From the announcement of a death to the launch of the next life.
    pub restart_after: Span,
    /// Storage does not outlive its process (kept in memory): every death loses it.
    pub volatile_storage: bool,
    /// The run ends undecided when it has not completed this long after its beginning.
    pub deadline: Span,
    /// Or when it has not begun this long after the supervisor's start; `None` where somebody else watches over the start, who
    /// can mend what is in its way.
    pub start_within: Option<Span>,
    /// Which ranks go back together.
    pub scope: Scope,
    /// Clusters that the membership awaits, and how long after the beginning of the application they join.
    pub joins: Vec<(ClusterId, Span)>,
    /// What is done to the federation.
    pub plan: Vec<PlannedFault>,
    /// A fault that finds less than this share of the application's steps left took no effect, in percent.
    pub least_work_left_percent: u8,
}

/// What reaches the supervisor.
/// With the times at which they came, reports are all that a supervisor's state depends on: whoever gives the same to
/// another one has the same supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// A launched life listens and waits for its first membership.
    Registered {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
    },
    /// The links have been measured between the registered processes: the application may begin.
    LinksMeasured,
    /// A life is there. A life is watched for silence from its first heartbeat on (and from being paused or killed), so
    /// that a driver whose lives cannot hang by themselves needs none.
    Heartbeat {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
        /// Its state, for the live view and for the work that is left.
        gauges: Gauges,
    },
    /// What a life shows, apart from its heartbeats.
    Gauges {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
        /// Its state, for the live view and for the work that is left.
        gauges: Gauges,
    },
    /// A fact of a kind the supervisor follows ([`crate::Supervisor::follows`]), or one at which the process halted.
    /// The facts of one life arrive in their order.
    Stated {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
        /// It.
        fact: Fact,
        /// The process stands still until [`Order::Go`] or its death.
        halted: bool,
    },
    /// [`faultline_core::Action::Started`].
    Started {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
    },
    /// [`faultline_core::Action::Held`].
    Held {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
    },
    /// A life has ended, as its host saw at once (a child's exit).
    Exited {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
    },
    /// The place of a life was taken away from outside, with or without its storage, and the driver has made sure that
    /// the life is not heard of any more. A failure like an injected one, and known at once.
    Lost {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
        /// What became of the storage.
        storage: StorageFate,
        /// What took it away.
        by: EndedBy,
    },
    /// The user of the federation has changed it. An added fault has the number that follows the plan's last; the order
    /// of reports is the order of changes.
    Changed(Change),
    /// Someone wants the run to end.
    Interrupted,
    /// Time has passed, perhaps. Changes of the membership are announced at the next of these, so that those of one
    /// instant share a version.
    Timeout,
}

/// What the supervisor asks of its driver. Performed in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Starts a life; the storage is as its fate has left it.
    Launch {
        /// The process.
        process: ProcessId,
        /// The life, durably recorded already.
        life: Life,
        /// How it begins.
        boot: Boot,
    },
    /// Every life that is up gets this membership; one that has none yet starts with it.
    Announce(Arc<Membership>),
    /// Every process halts at a fact that one of these matches, reports it and waits.
    Watch(Arc<[Trigger]>),
    /// A halted process goes on.
    Go {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
    },
    /// Ends these lives at once, then deals with their storage. Lives that are gone already are not an error. See
    /// [`crate::Supervisor::await_exits`] for drivers for which this takes time.
    Kill {
        /// Whom.
        lives: Vec<(ProcessId, Life)>,
        /// What becomes of each node's storage.
        storage: StorageFate,
    },
    /// Stops a life where it stands (`true`), or lets it go on.
    Pause {
        /// The process.
        process: ProcessId,
        /// The life.
        life: Life,
        /// Whether it stands.
        paused: bool,
    },
    /// Sets a link's properties; `None` restores the federation's.
    Link {
        /// Sending side.
        from: ClusterId,
        /// Receiving side.
        to: ClusterId,
        /// The properties.
        properties: Option<LinkProperties>,
    },
    /// From now on these are the federation's properties of a link. What an [`Order::Link`] has set stays in force.
    Relink {
        /// Sending side.
        from: ClusterId,
        /// Receiving side.
        to: ClusterId,
        /// The properties.
        properties: LinkProperties,
    },
    /// Cuts a link (`true`) or heals it; what is sent meanwhile waits.
    Cut {
        /// Sending side.
        from: ClusterId,
        /// Receiving side.
        to: ClusterId,
        /// Whether it is cut.
        cut: bool,
    },
    /// Makes the storage of a process's node misbehave, or (`None`) behave.
    Storage {
        /// The process.
        process: ProcessId,
        /// How.
        how: Option<StorageFault>,
    },
    /// The supervisor's own fact, to be recorded before the orders after it are performed.
    State(Fact),
    /// The run is over; every process is to be ended.
    End(Outcome),
}

/// The federation at a glance, for a live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// When the application began; `None` before that.
    pub begun: Option<Time>,
    /// Its user has it stand still.
    pub paused: bool,
    /// How the run ended; `None` while it goes on.
    pub outcome: Option<Outcome>,
    /// Indexed by [`ClusterId`].
    pub clusters: Vec<ClusterStatus>,
    /// The plan and what has become of it so far.
    pub faults: Vec<FaultAccount>,
}

/// One cluster at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Processes.
    pub processes: u32,
    /// Processes that are up, as far as is known.
    pub up: u32,
    /// The newest checkpoint that any process claims committed, or claims to have gone back to.
    pub committed: Position,
    /// Steps of all ranks together, as last heard.
    pub progress: Progress,
}
