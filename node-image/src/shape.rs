//! `faultline-node shape`: the only process at a place that configures the kernel's traffic control. Runs in the
//! second container of a pod whose links are emulated by traffic control.

use std::path::PathBuf;

use clap::Args;
use faultline_runtime::shaper;

use crate::trouble::Trouble;

/// Do to the packets of this network namespace what the node beside it says.
///
/// Needs the capability NET_ADMIN, and nothing else. Listens at a socket in a directory that only the agent and its
/// process share with it, and remembers nothing: what is in force stands in the kernel, and stays there after its end.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  faultline-node shape --socket /run/faultline/shaper")]
pub(crate) struct ShapeArguments {
    /// Where it is asked.
    #[arg(long, value_name = "FILE")]
    socket: PathBuf,
}

/// Runs until a termination signal arrives.
pub(crate) fn run(arguments: &ShapeArguments) -> Result<(), Trouble> {
    shaper::serve(&arguments.socket).map_err(Trouble::machine)
}
