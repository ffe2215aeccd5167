//! `faultline-node probe`: tries the kernel's features for link emulation.

use std::io::Write;

use clap::Args;
use faultline_tc::probe::Probe;

use crate::trouble::Trouble;

/// Try out what this kernel can do for links, and say it as a line of JSON.
///
/// Needs the capability NET_ADMIN. Interfaces whose names begin with `faultline-` come and go in this network namespace.
#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {}

/// Prints the features.
pub(crate) fn run(_: &ProbeArguments) -> Result<(), Trouble> {
    let probe = Probe::run().map_err(Trouble::machine)?;
    let line = serde_json::to_string(&probe).map_err(Trouble::machine)?;
    writeln!(std::io::stdout(), "{line}").map_err(Trouble::machine)
}
