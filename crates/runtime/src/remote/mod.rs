//! The remote backend: each process has its own place, with an agent ([`crate::agent`]) that is reached over
//! TCP.
//!
//! Another program (the operator, or a test) provides the places, and announces them in the
//! [`PlaceRegistry`]. A process whose place is replaced begins another life at the new place once the
//! previous life is fenced: either its agent has killed it, or the agent does not respond and the life is
//! never accepted again.

mod agents;
mod kills;
pub(crate) mod messages;
mod orders;
mod place_registry;
mod places;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::clock::Clock;
use crate::metrics::Sum;
use crate::secret::Keys;
use crate::supervise::{
    Journal, JournalContents, Memory, Observer, RunError, RunOptions, RunOutcome, block_on, host,
};
pub use place_registry::{AgentPlace, PlaceRegistry, PlaceRequest, RegistryState, Stale, Wanted};
use places::Remote;

/// Options of a remote run besides [`RunOptions`].
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Unique identifier of the run.
    pub run: String,
    /// Keys of the processes. Each agent knows the key of its own process.
    pub keys: Keys,
    /// Time after which the place of a silent agent is replaced. If the agent responds earlier, its storage
    /// is not lost.
    pub replace_after: Duration,
    /// Address on which the supervisor listens for nodes. If it is unspecified, nodes connect to the address
    /// from which the supervisor reaches their agent.
    pub listen: SocketAddr,
    /// Sum of the metrics of all nodes, which the run keeps up to date.
    pub sum: Sum,
}

/// Performs a run at the places announced in `place_registry`. Returns once no process is hosted.
///
/// The supervisor writes its input to a journal next to the record. A restarted program passes an existing
/// journal as `past`, and resumes the run. All processes then begin new lives, because lives end with their
/// supervisor. Agents keep the facts of earlier lives until the supervisor requests them.
///
/// # Errors
///
/// Fails if the run cannot be performed.
///
/// # Panics
///
/// Panics if the number of names differs from the number of processes.
pub fn run(
    remote: RemoteOptions,
    options: RunOptions,
    past: Option<JournalContents>,
    place_registry: &PlaceRegistry,
    observer: &mut dyn Observer,
) -> Result<RunOutcome, RunError> {
    assert_eq!(options.names.processes.len(), options.membership.members.len(), "every process has a name");
    let RemoteOptions { run, keys, replace_after, listen, sum } = remote;
    let listener = TcpListener::bind(listen).map_err(RunError::Listen)?;
    let (run_dir, names) = (options.run_dir.clone(), options.names.clone());
    let (clock, journal, incomplete) = match &past {
        Some(past) => {
            let incomplete = places::incomplete(past).map_err(RunError::Past)?;
            (past.origin.clock(past.last), Journal::resume(past)?, incomplete)
        }
        None => {
            let clock = Clock::start();
            (clock, Journal::begin(&run_dir, &run, clock)?, places::Incomplete::default())
        }
    };
    let left = (journal.clone(), incomplete);
    let memory = Memory { journal, clock, past };
    let settle = |place_context| {
        Remote::new((run, run_dir), names, place_context, place_registry.clone(), replace_after, left)
    };
    block_on(host(options, keys, listener, sum, memory, |it| Ok(settle(it)), observer))
}

#[cfg(test)]
mod tests;
