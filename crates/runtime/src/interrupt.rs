//! Handles Ctrl-C and termination signals.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;
use std::{fs, io, process, thread};

use nix::sys::signal::Signal;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tracing::debug;

/// The time within which an interrupted program is expected to end.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Returns a flag that is set by the next interrupt or termination signal, or when the terminal is closed. A second such
/// signal ends the program immediately with `status`. Calls `is_slow` if the program has not ended within a second of the first signal.
///
/// # Errors
///
/// Fails if the signal handlers cannot be installed.
pub fn flag(status: i32, is_slow: impl FnOnce() + Send + 'static) -> io::Result<Arc<AtomicBool>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // Install the handlers before starting the thread. Until they are installed, a signal would end the program.
    let mut signals = {
        let _inside = runtime.enter();
        // `nohup` starts programs that outlive their terminal.
        let hangup = (!ignores_hangup()).then_some(SignalKind::hangup());
        let kinds = hangup.into_iter().chain([SignalKind::interrupt(), SignalKind::terminate()]);
        kinds.map(signal).collect::<io::Result<Vec<_>>>()?
    };
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    let wait = async move {
        let mut signalled = async || {
            poll_fn(|context| match signals.iter_mut().any(|it| it.poll_recv(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
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

/// Makes a write beyond the limit on the size of files fail, instead of ending the program (`SIGXFSZ`).
pub fn ignore_file_size_signal() {
    let install = || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let _inside = runtime.enter();
        // The handler stays.
        signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).map(drop)
    };
    if let Err(error) = install() {
        debug!(%error, "cannot handle the signal about the size of files");
    }
}

/// Returns whether this program was started with `SIGHUP` ignored.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit stands for signal 1.
    mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok())
        .is_some_and(|it| it >> (Signal::SIGHUP as u64 - 1) & 1 == 1)
}
