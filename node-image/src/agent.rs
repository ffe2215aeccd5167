//! `faultline-node agent`: runs as the first process in a node's container, where it starts and ends the node's
//! process.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use faultline_runtime::agent::{self, AgentOptions};

use crate::command_error::CommandError;

/// Host one process of a federation, as its supervisor directs.
///
/// Starts, kills, pauses and restarts the process, and outlives it. Serves Prometheus metrics at /metrics and its
/// health at /healthz on the same port. Exits on SIGTERM, once the process has ended and its facts have been sent.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline-node agent --listen 0.0.0.0:7400 --key-file /etc/faultline/key --data /var/lib/faultline")]
pub(crate) struct AgentArguments {
    /// Listen for supervisors at this address; prints the actual address on standard output
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// Read the process's key from FILE (64 hexadecimal digits), derived from the federation's key
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Keep the storage and the facts of the process in DIR. Removes the files of other runs
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Identify this place by UID, the UID of the pod. Rejects supervisors that expect another place
    #[arg(long, value_name = "UID")]
    uid: Option<String>,
    /// Listen for other processes and serve metrics on this port; 0 means any port
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    node_port: u16,
    /// Emulate links with traffic control, through the shaper (`faultline-node shape`) that listens on this socket in
    /// the same network namespace. Accepts supervisors once the shaper responds
    #[arg(long, value_name = "FILE")]
    shaper: Option<PathBuf>,
    /// Let the program at this socket (`faultline-node execute`) run the commands of a system's node, in its own container
    #[arg(long, value_name = "FILE")]
    executor: Option<PathBuf>,
}

/// Runs until a termination signal arrives.
pub(crate) fn run(arguments: AgentArguments) -> Result<(), CommandError> {
    let AgentArguments { listen, key_file, data, uid, node_port, shaper, executor } = arguments;
    let program = std::env::current_exe().map_err(|error| {
        CommandError::machine(format!("cannot find the executable of this program: {error}"))
    })?;
    let secret = crate::key::secret(&key_file)?;
    let command = vec![program.into(), "node".into()];
    agent::run(AgentOptions { command, listen, secret, data, uid, node_port, shaper, executor })
        .map_err(CommandError::machine)
}
