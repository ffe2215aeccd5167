//! The operations of the host that depend on the places of the processes: starting, pausing and ending processes.

use std::time::Duration;

use faultline_core::{Boot, EndedBy, FaultNo, Life, ProcessId, Span, StorageFate, Time};
use faultline_shaper::Kernel;
use faultline_trace::manifest::Effect;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::RunError;
use crate::clock::Clock;
use crate::control::{Introduction, ToSupervisor};

/// Time after which a process that was asked to end is killed.
pub(crate) const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// An input of the host.
pub(crate) enum HostEvent {
    /// A node has connected and proved that it knows its key.
    Introduced { introduction: Introduction, stream: TcpStream },
    /// A message from a node.
    Said { process: ProcessId, life: Life, message: ToSupervisor },
    /// A life has ended. If the end was unexpected, contains the exit status and the last lines of the log.
    Ended { process: ProcessId, life: Life, unexpected_end: Option<(String, String)> },
    /// A single order killed lives. Contains the time at which each of them stopped.
    Stopped(Vec<Seen>),
    /// The answer to an order to pause a life. Contains no time if the life was not running.
    Paused(Seen),
    /// A fault has begun to slow the commands of a life down, or no longer does. The effect then states what time they had.
    Slowed(FaultNo, Effect),
    /// A life has lost its place. The life is no longer accepted, whether or not it is still running.
    Lost { process: ProcessId, life: Life, storage: StorageFate, by: EndedBy },
}

/// Sends events to the host, with their times.
#[derive(Clone)]
pub(crate) struct HostEvents {
    clock: Clock,
    sender: mpsc::UnboundedSender<(Time, HostEvent)>,
}

impl HostEvents {
    pub(crate) fn new(clock: Clock) -> (HostEvents, mpsc::UnboundedReceiver<(Time, HostEvent)>) {
        let (sender, happened) = mpsc::unbounded_channel();
        (HostEvents { clock, sender }, happened)
    }

    /// Reports an event that happened now. A host that is about to end no longer receives it.
    pub(crate) fn put(&self, host_event: HostEvent) {
        drop(self.sender.send((self.clock.now(), host_event)));
    }
}

/// The times at which a killed or paused life stopped and exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) process: ProcessId,
    pub(crate) life: Life,
    /// Time, by the run's clock, after which a killed life executed no further instructions, or at which a life was
    /// told to pause; `None` if its place did not report it.
    pub(crate) at: Option<Time>,
    /// Time, by the run's clock, at which a killed life had exited; `None` if its place did not report it.
    pub(crate) exited: Option<Time>,
    /// Largest possible error of `at` and `exited`.
    pub(crate) error: Span,
    /// Whether it is known that no command of the life was running.
    pub(crate) is_idle: bool,
}

/// The places of all processes. A process has at most one hosted life, even if earlier lives still run
/// somewhere.
pub(crate) trait PlaceBackend {
    /// Returns the features of traffic control in use at the place of a hosted life, if any.
    fn kernel(&self, process: ProcessId) -> Option<Kernel>;

    /// Starts a life, immediately or once it has a place. Reports its end as a [`HostEvent`].
    fn launch(&mut self, process: ProcessId, life: Life, boot: Boot) -> Result<(), RunError>;

    /// Records that a hosted life has connected to the supervisor. It has not stored anything yet. A backend whose
    /// launches cannot get lost need not implement this method.
    fn introduced(&mut self, process: ProcessId, life: Life) {
        let _ = (process, life);
    }

    /// Returns whether this is the hosted life of its process.
    fn hosts(&self, process: ProcessId, life: Life) -> bool;

    /// Returns the run's clock for the machine of a hosted life.
    fn clock(&self, process: ProcessId) -> Clock;

    /// Returns the largest possible error of the clock that [`clock`](PlaceBackend::clock) returns.
    fn clock_error(&self, process: ProcessId) -> Span {
        let _ = process;
        Span::ZERO
    }

    /// Ends lives simultaneously, and keeps or removes the storage of their processes. Reports
    /// [`HostEvent::Ended`] for each life that is no longer hosted, and [`HostEvent::Stopped`] with the times
    /// at which the lives stopped, possibly after returning. Lives that have already ended are not an error.
    async fn kill(&mut self, lives: &[(ProcessId, Life)], storage: StorageFate) -> Result<(), RunError>;

    /// Records the newest life of `process` that a predecessor of this program launched, and whether the
    /// process's storage must be removed. No life of the process is hosted now. A backend that cannot have a
    /// predecessor need not implement this method.
    fn recall(&mut self, process: ProcessId, newest: Life, wiped: bool) {
        let _ = (process, newest, wiped);
    }

    /// Records that a life ended before the process started: it has reported no facts. A backend that does not transfer
    /// facts need not implement this method.
    fn never_started(&mut self, process: ProcessId, life: Life) {
        let _ = (process, life);
    }

    /// Pauses or resumes a life. Later orders to the life take effect afterwards. Answers each order to pause a life
    /// with [`HostEvent::Paused`].
    async fn pause(&mut self, process: ProcessId, life: Life, paused: bool) -> Result<(), RunError>;

    /// Slows the commands of a process's node down, in this life and the next ones, or no longer does. Replaces earlier orders.
    /// Reports effects as [`HostEvent::Slowed`]. A backend without systems need not implement this method.
    fn slow(&mut self, process: ProcessId, by: Option<(FaultNo, u32)>) {
        let _ = (process, by);
    }

    /// Ends all lives. The lives in `told` have lost their connection, which tells them to end, and have
    /// [`GRACE_PERIOD`] to seal their facts. All lives that are still running are then killed. Afterwards, the record
    /// contains all available facts.
    async fn end(&mut self, told: &[(ProcessId, Life)]) -> Result<(), RunError>;
}
