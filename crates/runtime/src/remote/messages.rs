//! Messages between a supervisor and the agents at its places. The supervisor establishes one connection to
//! each agent. A lost connection loses no information: the next connection resumes from the state that both
//! sides know.

use faultline_core::{Life, ProcessId};
use serde::{Deserialize, Serialize};

use crate::clock::ClockSource;
use crate::metrics::ClusterNames;
use crate::shaper::Abilities;

/// Number of an order, which the response to the order repeats.
pub(crate) type OrderNo = u64;

/// The assignment of an agent to a process of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// Identifier of the run. The agent drops everything that it hosted for another run.
    pub(crate) run: String,
    pub(crate) process: ProcessId,
    /// Name of the process.
    pub(crate) name: String,
    pub(crate) cluster_names: ClusterNames,
    /// Description of the run, which the process reads when it starts.
    pub(crate) description: Vec<u8>,
    /// The life that the supervisor expects at this place. The agent ends any other life before it reports
    /// that it is ready.
    pub(crate) life: Option<Life>,
    /// The newest life ever requested, at any place.
    pub(crate) newest: Life,
    /// Number of bytes of facts that have arrived, by life.
    pub(crate) arrived: Vec<(Life, u64)>,
}

/// A message from the supervisor to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    /// The first message of a connection.
    Assign(Assignment),
    /// Requests a reading of the agent's clock.
    Clock,
    /// Starts a life. Unless `keeps_storage` is set, its storage starts empty.
    Launch { life: Life, keeps_storage: bool, supervisor: std::net::SocketAddr },
    /// Tells the agent to prepare to end a life.
    Arm { order: OrderNo, life: Life },
    /// Ends the life named in the [`ToAgent::Arm`] order with the same number, once the agent's monotonic clock shows
    /// `at`, or immediately if `at` is `None`. Answered when the life has ended and its facts have been sent.
    Fire { order: OrderNo, wipe: bool, at: Option<u64> },
    /// Pauses or resumes a life.
    Pause { order: OrderNo, life: Life, paused: bool },
}

/// When a life that was killed ended, by its agent's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Killed {
    /// Time after which it executed nothing.
    pub(crate) stopped: u64,
    /// Time at which it had exited. The kernel has then closed its connections.
    pub(crate) exited: u64,
}

/// A message from an agent to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToPlace {
    /// Answers [`ToAgent::Assign`]. Preceded by all facts at this place that the supervisor has not received yet.
    Ready(Ready),
    /// Reading of the agent's monotonic clock, in nanoseconds.
    Clock(u64),
    /// A piece of the file that contains a life's facts.
    Facts { life: Life, offset: u64, bytes: Vec<u8> },
    /// A piece of the output of the commands of a life that has ended.
    Log { life: Life, offset: u64, bytes: Vec<u8> },
    /// A life has ended without an order to end it, or could not be started. All its facts have been sent.
    Ended { life: Life, status: String, last_output: String },
    /// Every life at this place up to `upto` has ended, and all its facts have been sent.
    Sent { upto: Life },
    /// The agent is ready to end a life. Contains a reading of its monotonic clock.
    Armed { order: OrderNo, clock: u64 },
    /// Outcome of an order to end a life, and when it ended if it was running.
    Done { order: OrderNo, killed: Option<Killed>, problem: Option<String> },
    /// Outcome of an order to pause or resume a life, with the time by the agent's monotonic clock.
    Paused { order: OrderNo, at: Option<u64>, problem: Option<String> },
    /// The agent is about to exit. Its life has ended, and all facts have been sent.
    Leaving,
}

/// The state of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// The running life, if any.
    pub(crate) life: Option<Life>,
    /// Whether the storage of the process exists at this place.
    pub(crate) holds_storage: bool,
    /// Link-emulation features of the kernel, as reported by the shaper; `None` if there is no shaper.
    pub(crate) abilities: Option<Abilities>,
    /// Identifies the agent's monotonic clock.
    pub(crate) clock_source: ClockSource,
}
