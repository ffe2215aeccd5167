//! `faultline-node shape`: configures the kernel's traffic control, which no other program at a place does. Runs in the
//! second container of a pod whose links are emulated by traffic control.

use std::path::PathBuf;

use clap::Args;
use faultline_runtime::shaper;

use crate::command_error::CommandError;

/// Configure traffic control in this network namespace, as its node requests.
///
/// Requires only the capability NET_ADMIN. Listens on a socket in a directory that it shares only with the agent and
/// the agent's process. Keeps no state: the configuration is in the kernel, and stays there after this program exits.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline-node shape --socket /run/faultline/shaper")]
pub(crate) struct ShapeArguments {
    /// Listen for requests on this socket
    #[arg(long, value_name = "FILE")]
    socket: PathBuf,
}

/// Runs until a termination signal arrives.
pub(crate) fn run(arguments: &ShapeArguments) -> Result<(), CommandError> {
    shaper::serve(&arguments.socket).map_err(CommandError::machine)
}
