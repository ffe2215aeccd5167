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

use crate::metrics::Sum;
use crate::secret::Secret;
use crate::supervise::{Observer, RunError, RunOptions, RunOutcome, block_on, host};
pub use desk::{Board, Desk, Place, Request, Stale, Wanted};
use places::Remote;

/// What a remote run needs beside [`RunOptions`].
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Known to all agents.
    pub secret: Secret,
    /// Where nodes call the supervisor. At an unspecified address they are told the one from which their agent is
    /// reached.
    pub listen: SocketAddr,
    /// What nodes find in the run's directory, by file name.
    pub files: Vec<(String, Vec<u8>)>,
    /// Shows what all nodes count.
    pub sum: Sum,
}

/// Carries out a run at the places that are named at `desk`. Returns when no process is hosted any more.
pub fn run(
    remote: RemoteOptions,
    options: RunOptions,
    desk: &Desk,
    observer: &mut dyn Observer,
) -> Result<RunOutcome, RunError> {
    assert_eq!(options.names.len(), options.membership.members.len(), "every process has a name");
    let mut run = [0; 8];
    getrandom::fill(&mut run).map_err(RunError::Secret)?;
    let run = format!("{:016x}", u64::from_le_bytes(run));
    let RemoteOptions { secret, listen, files, sum } = remote;
    let listener = TcpListener::bind(listen).map_err(RunError::Listen)?;
    let (run_dir, names) = (options.run_dir.clone(), options.names.clone());
    let settle = |ground| Remote::new(run, run_dir, names, files, ground, desk.clone());
    block_on(host(options, secret, listener, sum, settle, observer))
}
