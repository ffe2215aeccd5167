//! Ctrl-C and termination.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, process, thread};

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// A flag that is raised at the first interrupt or termination signal after this has returned. At an interrupt after
/// that the program ends at once, with `status`.
pub fn flag(status: i32) -> io::Result<Arc<AtomicBool>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // Before the thread begins, which may be late: a signal that came first would end the program.
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    let wait = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        raised.store(true, Ordering::Relaxed);
        interrupt.recv().await;
        process::exit(status)
    };
    thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait))?;
    Ok(flag)
}
