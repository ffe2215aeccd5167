//! Handling of Ctrl-C and termination signals in the programs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tracing::warn;

use crate::command_error::Exit;

/// Returns a flag that is set at the first interrupt or termination signal. A second such signal ends the program
/// immediately.
pub fn flag() -> Arc<AtomicBool> {
    faultline_runtime::interrupt::flag(Exit::Unknown as i32).unwrap_or_else(|error| {
        warn!(%error, "cannot install signal handlers");
        Arc::default()
    })
}
