//! Panics in the code of processes.
//!
//! A driver states what a process is about to handle ([`handles`]), on the thread that runs the process. If the code of
//! the process then panics, [`caught`] turns the panic into a [`Panic`], with which the driver ends the run. A program
//! whose profile sets `panic = "abort"` ends instead, after it has printed the same information.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::{self, Write as _};
use std::panic::{
    AssertUnwindSafe, Location, PanicHookInfo, catch_unwind, resume_unwind, set_hook, take_hook,
};
use std::sync::{Arc, Once, OnceLock};

use faultline_core::fault::{Handled, Panic};
use faultline_core::text::one_line;
use faultline_core::{Life, ProcessId, Time};

/// The maximum number of characters of a panic's message that are kept.
const LONGEST: usize = 500;

/// What the process of a thread is handling, or has handled last.
pub type Handling = (ProcessId, Life, Time, Handled);

thread_local! {
    static HANDLING: Cell<Option<Handling>> = const { Cell::new(None) };
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
    static PANICKED: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

/// Called for a panic in the code of a process that nothing catches.
static REPORT: OnceLock<fn(&Panic)> = OnceLock::new();

/// States that a process of this thread is about to handle an input.
#[inline]
pub fn handles(process: ProcessId, life: Life, at: Time, handled: Handled) {
    HANDLING.set(Some((process, life, at, handled)));
}

/// Returns the last input that a process of this thread handled within the current call of [`caught`].
pub fn handled_last() -> Option<Handling> {
    HANDLING.get()
}

/// Calls `work`. Returns the panic if the code of a process panics in it; any other panic continues.
///
/// # Errors
///
/// Returns the panic of a process.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Arc<Panic>> {
    install();
    let outer = (IS_GUARDED.replace(true), HANDLING.take());
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(outer.0);
    HANDLING.set(outer.1);
    result.map_err(|payload| match PANICKED.take() {
        Some(panic) => Arc::new(panic),
        None => resume_unwind(payload),
    })
}

/// Ends the program at every other panic. A task that panics would otherwise leave the rest of the program waiting for it.
/// Must be called before the other functions of this module.
pub fn abort_on_panic() {
    let before = take_hook();
    set_hook(Box::new(move |info| {
        before(info);
        end_if_violated();
        std::process::abort();
    }));
}

/// If a hook handles a panic in the code of a process that nothing can catch, ends the program with the exit status for a
/// violated property. Otherwise, the program would be aborted.
pub fn end_if_violated() {
    if cfg!(panic = "abort") && HANDLING.get().is_some() {
        std::process::exit(1);
    }
}

/// Returns whether [`caught`] will return the panic that a hook is handling.
pub fn is_caught() -> bool {
    cfg!(panic = "unwind") && IS_GUARDED.get() && HANDLING.get().is_some()
}

/// Calls `report` for each uncaught panic in the code of a process, instead of printing the panic.
pub fn on_panic(report: fn(&Panic)) {
    let _ = REPORT.set(report);
    install();
}

/// Installs the hook once.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            let Some(panic) = HANDLING.get().map(|handling| panic(handling, info)) else {
                return before(info);
            };
            if is_caught() {
                PANICKED.set(Some(panic));
                return;
            }
            match REPORT.get() {
                Some(report) => report(&panic),
                None => {
                    drop(writeln!(io::stderr(), "{panic}"));
                    before(info);
                }
            }
        }));
    });
}

fn panic((process, life, at, handled): Handling, info: &PanicHookInfo<'_>) -> Panic {
    let message = one_line(text(info.payload()), LONGEST);
    let place = info.location().map(Location::to_string).unwrap_or_default();
    Panic { process, life, at, handled, message: message.into(), place: place.into() }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    payload.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("a value that is not text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(process: u32) {
        handles(ProcessId(process), Life(2), Time(7), Handled::Timeout);
    }

    #[test]
    fn a_panic_of_a_process_names_its_input() {
        let caught = caught(|| {
            handle(0);
            handle(3);
            assert_eq!([1].len(), 2, "the lengths differ");
        });
        let Err(found) = caught else { unreachable!("it panics") };
        let Panic { process, life, at, handled, message, place } = &*found;
        assert_eq!((*process, *life, *at, *handled), (ProcessId(3), Life(2), Time(7), Handled::Timeout));
        assert!(message.contains("the lengths differ"), "{message}");
        assert!(place.contains("panics.rs:"), "{place}");
        assert_eq!(handled_last(), None, "nothing is being handled any more");
    }

    #[test]
    fn a_panic_of_the_driver_continues() {
        let outer = catch_unwind(|| caught(|| panic!("the driver's own")));
        assert_eq!(text(&*outer.expect_err("it panics")), "the driver's own");
        assert!(!is_caught());
    }

    #[test]
    fn a_long_message_is_cut() {
        let found = caught(|| {
            handle(1);
            panic!("{}", "x".repeat(10_000));
        });
        let Err::<(), _>(found) = found else { unreachable!("it panics") };
        assert_eq!(found.message.chars().count(), LONGEST + 1);
    }
}
