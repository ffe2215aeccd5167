//! Waiting: for an interrupt, and before another attempt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faultline_console::command_error::CommandError;
use faultline_console::output::note;
use tokio::time::sleep;

use crate::cluster::ClusterError;

/// Maximum delay before the next request to an unreachable API server, as a multiple of the time between two checks.
/// The delay doubles after each failure.
pub(crate) const MAX_DELAY: u32 = 32;

/// Waits for an interrupt.
pub(crate) async fn until_interrupted(interrupted: &AtomicBool) {
    while !interrupted.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the result of transferring a record, or an error if the user interrupts the transfer.
pub(crate) async fn unless_interrupted<E: Into<CommandError>>(
    interrupted: &AtomicBool,
    transfer: impl Future<Output = Result<(), E>>,
) -> Result<(), CommandError> {
    tokio::select! {
        fetched = transfer => fetched.map_err(Into::into),
        () = until_interrupted(interrupted) => {
            Err(CommandError::machine("interrupted while fetching the record"))
        }
    }
}

/// Carries out an action. Retries with increasing delays, for about a minute in total, if the API server or the
/// supervisor cannot be reached.
pub(crate) async fn retried<T>(
    first_delay: Duration,
    action: impl AsyncFn() -> Result<T, ClusterError>,
) -> Result<T, CommandError> {
    for failures in 0..=MAX_DELAY.ilog2() {
        match action().await {
            Err(ClusterError { command_error, is_temporary: true }) => {
                if failures == 0 {
                    note(format_args!("{}; retrying", command_error.report));
                }
                sleep(first_delay * 2_u32.pow(failures)).await;
            }
            done => return Ok(done?),
        }
    }
    Ok(action().await?)
}
