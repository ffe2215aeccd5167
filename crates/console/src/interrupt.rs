//! Ctrl-C and termination, as the programs take them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tracing::warn;

use crate::trouble::Exit;

/// A flag that is raised at the first interrupt or termination signal. At the second interrupt the program ends at
/// once.
pub fn flag() -> Arc<AtomicBool> {
    faultline_runtime::interrupt::flag(Exit::Unknown as i32).unwrap_or_else(|error| {
        warn!(%error, "signals cannot be waited for");
        Arc::default()
    })
}
