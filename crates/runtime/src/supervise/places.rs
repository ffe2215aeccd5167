//! What only the places of the processes can do for a supervisor: start them, and end them.

use std::time::Duration;

use faultline_core::{Boot, EndedBy, Life, ProcessId, StorageFate, Time};
use faultline_shaper::Kernel;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::RunError;
use crate::clock::Clock;
use crate::control::{Introduction, ToSupervisor};

/// A process that has been told to end is killed after this.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);

/// What happens to the host.
pub(crate) enum Happening {
    /// A node has called, and knows the secret.
    Introduced { introduction: Introduction, stream: TcpStream },
    /// A node says something.
    Said { process: ProcessId, life: Life, message: ToSupervisor },
    /// A life is gone. If nobody had ordered that: how it ended, and the last that it had to say.
    Ended { process: ProcessId, life: Life, collapse: Option<(String, String)> },
    /// Lives were killed by one order, and seen to die.
    Died(Vec<Death>),
    /// The place of a life was taken away, which is accepted no more, whether or not it still runs.
    Lost { process: ProcessId, life: Life, storage: StorageFate, by: EndedBy },
}

/// Where what happens is put for the host, with the time.
#[derive(Clone)]
pub(crate) struct Happenings {
    clock: Clock,
    sender: mpsc::UnboundedSender<(Time, Happening)>,
}

impl Happenings {
    pub(crate) fn new(clock: Clock) -> (Happenings, mpsc::UnboundedReceiver<(Time, Happening)>) {
        let (sender, happened) = mpsc::unbounded_channel();
        (Happenings { clock, sender }, happened)
    }

    /// Something has happened now. A host that is about to end does not listen any more.
    pub(crate) fn put(&self, happening: Happening) {
        drop(self.sender.send((self.clock.now(), happening)));
    }
}

/// The death of a life that was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// Whose.
    pub process: ProcessId,
    /// Of which life.
    pub life: Life,
    /// When its place saw it gone, by the run's clock.
    pub at: Time,
}

/// The places of all processes. A process has at most one life that is hosted, whatever else may still run somewhere.
pub(crate) trait Places {
    /// What traffic control does for links at the place of a hosted life, if anything.
    fn kernel(&self, process: ProcessId) -> Option<Kernel>;

    /// Starts a life, at once or when there is a place for it. What becomes of it is told as [`Happening`].
    fn launch(&mut self, process: ProcessId, life: Life, boot: Boot) -> Result<(), RunError>;

    /// Whether this is the hosted life of its process.
    fn hosts(&self, process: ProcessId, life: Life) -> bool;

    /// The run's clock as a hosted life can read it.
    fn clock(&self, process: ProcessId) -> Clock;

    /// Ends lives at one moment, and deals with the storage of their processes. That each of them is hosted no more is told
    /// as [`Happening::Ended`], and the deaths that were seen as [`Happening::Died`]; this may return before that. Lives that
    /// are gone already are no error.
    async fn kill(&mut self, lives: &[(ProcessId, Life)], storage: StorageFate) -> Result<(), RunError>;

    /// Takes note that lives up to this one were launched by a predecessor of this program, that none of them is hosted any
    /// more, and whether the storage was to be lost since the last one was. Where the processes end with their supervisor,
    /// nobody has a predecessor.
    fn recall(&mut self, process: ProcessId, newest: Life, wiped: bool) {
        let _ = (process, newest, wiped);
    }

    /// Stops a hosted life where it stands, or lets it go on; what is ordered of it later comes after that.
    async fn pause(&mut self, process: ProcessId, life: Life, paused: bool) -> Result<(), RunError>;

    /// Ends every life. Those that have been `told` to end, because their supervisor hung up, get a moment to seal their
    /// facts; all others are killed at once. The record then holds everything that can be had of their facts.
    async fn end(&mut self, told: &[(ProcessId, Life)]) -> Result<(), RunError>;
}
