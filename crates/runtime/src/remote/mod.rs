//! The remote backend: each process is at a place of its own, with an agent ([`crate::agent`]) that is reached over TCP.
//!
//! Somebody else provides the places (the operator; a test), and says at the [`Desk`] which there are. A process whose
//! place is replaced begins another life there, once the one before is fenced: killed by its agent, or, where that does
//! not answer, never accepted again.

mod agents;
mod desk;
mod places;
pub(crate) mod words;

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::clock::Clock;
use crate::metrics::Sum;
use crate::secret::Keys;
use crate::supervise::{Journal, Memory, Observer, Past, RunError, RunOptions, RunOutcome, block_on, host};
pub use desk::{Board, Desk, Place, Request, Stale, Wanted};
use places::Remote;

/// What a remote run needs beside [`RunOptions`].
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// What the run is called: unlike any other.
    pub run: String,
    /// Of the processes; the agent of each knows its own.
    pub keys: Keys,
    /// An agent that does not answer keeps its place for so long: if it answers meanwhile, its storage is not lost.
    pub replace_after: Duration,
    /// Where nodes call the supervisor. At an unspecified address they are told the one from which their agent is
    /// reached.
    pub listen: SocketAddr,
    /// What nodes find in the run's directory, by file name.
    pub files: Vec<(String, Vec<u8>)>,
    /// Shows what all nodes count.
    pub sum: Sum,
}

/// Carries out a run at the places that are named at `desk`. Returns when no process is hosted any more.
///
/// What the supervisor is told stands in a journal beside the record. Another start of the program that finds it gives it as
/// `past`, and the run goes on: with other lives of all processes, because they end with their supervisor; agents keep the
/// facts of the lives before until they are asked for them.
pub fn run(
    remote: RemoteOptions,
    options: RunOptions,
    past: Option<Past>,
    desk: &Desk,
    observer: &mut dyn Observer,
) -> Result<RunOutcome, RunError> {
    assert_eq!(options.names.processes.len(), options.membership.members.len(), "every process has a name");
    let RemoteOptions { run, keys, replace_after, listen, files, sum } = remote;
    let listener = TcpListener::bind(listen).map_err(RunError::Listen)?;
    let (run_dir, names) = (options.run_dir.clone(), options.names.clone());
    let (clock, journal) = match &past {
        Some(past) => (past.origin.clock(past.last()), Journal::go_on(past)?),
        None => {
            let clock = Clock::start();
            (clock, Journal::begin(&run_dir, &run, clock)?)
        }
    };
    let left = (journal.clone(), past.as_ref().map(places::incomplete).unwrap_or_default());
    let memory = Memory { journal, clock, past };
    let settle =
        |ground| Remote::new((run, run_dir), names, files, ground, desk.clone(), replace_after, left);
    block_on(host(options, keys, listener, sum, memory, settle, observer))
}

#[cfg(test)]
mod tests;
