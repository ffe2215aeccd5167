//! `faultline-node probe`: tries the kernel's features for link emulation.

use std::io::Write;

use clap::Args;
use faultline_tc::probe::Probe;

use crate::command_error::CommandError;

/// Test which features for link emulation this kernel supports, and print them as one line of JSON.
///
/// Requires the capability NET_ADMIN. Temporarily creates interfaces whose names start with `faultline-` in
/// this network namespace.
#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {}

/// Prints the features.
pub(crate) fn run(_: &ProbeArguments) -> Result<(), CommandError> {
    let probe = Probe::run().map_err(CommandError::machine)?;
    let line = serde_json::to_string(&probe).map_err(CommandError::machine)?;
    writeln!(std::io::stdout(), "{line}").map_err(CommandError::machine)
}
