//! Handles Ctrl-C and termination signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tracing::warn;

use crate::command_error::Exit;
use crate::output::note;

/// The interval between two checks for an interruption during a computation.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Returns a flag that is set at the first interrupt or termination signal. A second such signal ends the program
/// immediately. If the program does not end soon after the first one, prints what it is waiting for.
pub fn flag() -> Arc<AtomicBool> {
    flag_with(print_delay)
}

/// Returns the same flag for a command that itself says what it does after an interrupt.
pub fn quiet_flag() -> Arc<AtomicBool> {
    flag_with(|| {})
}

fn flag_with(is_slow: impl FnOnce() + Send + 'static) -> Arc<AtomicBool> {
    faultline_runtime::interrupt::flag(Exit::Unknown as i32, is_slow).unwrap_or_else(|error| {
        warn!(%error, "cannot install signal handlers");
        Arc::default()
    })
}

fn print_delay() {
    note(
        "interrupted: waiting for the step in progress (for example, a task of the application) to finish before writing \
         the results; a second signal ends the program immediately, without writing them",
    );
}

/// Returns the result of `compute`, or `None` if `interrupted` is set before the result is available. In that case, the
/// computation is abandoned: its thread ends with the program.
pub fn unless_interrupted<T: Send + 'static>(
    interrupted: &AtomicBool,
    compute: Box<dyn FnOnce() -> T + Send>,
) -> Option<T> {
    let (sender, receiver) = channel();
    let computation = thread::spawn(move || {
        // Fails only if the computation has been abandoned.
        drop(sender.send(compute()));
    });
    loop {
        match receiver.recv_timeout(LOOK_EVERY) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Timeout) if interrupted.load(Ordering::Relaxed) => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match computation.join() {
                Ok(()) => unreachable!("the computation sends its result before it ends"),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computation_is_abandoned_once_the_user_interrupts_it() {
        let interrupted = AtomicBool::new(false);
        assert_eq!(unless_interrupted(&interrupted, Box::new(|| 7)), Some(7));
        interrupted.store(true, Ordering::Relaxed);
        let endless = || loop {
            thread::park();
        };
        assert_eq!(unless_interrupted::<()>(&interrupted, Box::new(endless)), None);
    }
}
