//! `faultline-node agent`: starts and ends a process at its place, as the first process of a node's container.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use faultline_runtime::agent::{self, AgentOptions};

use crate::trouble::Trouble;

/// Host one process of a federation, as a supervisor says.
///
/// This program starts, kills, pauses and restarts the process, and outlives it.
/// Serves Prometheus metrics at /metrics and its health at /healthz of the same port. Ends at SIGTERM, after the process
/// has ended and its facts have been sent.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline-node agent --listen 0.0.0.0:7400 --key-file /etc/faultline/key --data /var/lib/faultline")]
pub(crate) struct AgentArguments {
    /// Where supervisors call; the port stands on the standard output.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// The process's key, drawn from the federation's: a file of 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Storage and facts of the process are below this. What other runs have left there is removed.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// What tells this place from its predecessors: the pod's UID. A supervisor that looks for another is sent away.
    #[arg(long, value_name = "UID")]
    uid: Option<String>,
    /// Where the process listens for others, and shows its metrics; any port when it is 0.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    node_port: u16,
    /// The socket of the shaper (`faultline-node shape`) in the same network namespace, where links are to be emulated by
    /// traffic control. The agent serves no supervisor before the shaper answers.
    #[arg(long, value_name = "FILE")]
    shaper: Option<PathBuf>,
}

/// Runs until a termination signal arrives.
pub(crate) fn run(arguments: AgentArguments) -> Result<(), Trouble> {
    let AgentArguments { listen, key_file, data, uid, node_port, shaper } = arguments;
    let program = std::env::current_exe()
        .map_err(|error| Trouble::machine(format!("cannot find the executable of this program: {error}")))?;
    let secret = crate::key::secret(&key_file)?;
    let command = vec![program.into(), "node".into()];
    agent::run(AgentOptions { command, listen, secret, data, uid, node_port, shaper })
        .map_err(Trouble::machine)
}
