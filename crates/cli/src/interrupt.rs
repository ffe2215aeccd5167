//! Ctrl-C and termination, for work that goes on in this thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;

/// A flag that is raised at the first interrupt or termination signal. At the second interrupt the program ends at
/// once.
pub(crate) fn flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    thread::spawn(move || {
        if let Err(error) = wait(&raised) {
            warn!(%error, "signals cannot be waited for");
        }
    });
    flag
}

fn wait(raised: &AtomicBool) -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        raised.store(true, Ordering::Relaxed);
        interrupt.recv().await;
        std::process::exit(crate::trouble::Exit::Unknown as i32);
    })
}
