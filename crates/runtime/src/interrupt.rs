//! Handles Ctrl-C and termination signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, process, thread};

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// The time within which an interrupted program is expected to end.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Returns a flag that the next interrupt or termination signal sets. A second such signal ends the program immediately
/// with `status`. Calls `is_slow` if the program has not ended within a second of the first signal.
///
/// # Errors
///
/// Fails if the signal handlers cannot be installed.
pub fn flag(status: i32, is_slow: impl FnOnce() + Send + 'static) -> io::Result<Arc<AtomicBool>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // Install the handlers before starting the thread. Until they are installed, a signal would end the program.
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    let wait = async move {
        let mut signalled = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        signalled().await;
        raised.store(true, Ordering::Relaxed);
        if timeout(ENDS_WITHIN, signalled()).await.is_err() {
            is_slow();
            signalled().await;
        }
        process::exit(status)
    };
    thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait))?;
    Ok(flag)
}
