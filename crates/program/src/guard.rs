//! Ends programs that outlive this process. A process that is killed cannot end its programs itself, and those that ignore
//! the end of their input would run forever.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use faultline_guard::{Guard, RunId};

/// The command that starts a guard.
static COMMAND: OnceLock<Vec<OsString>> = OnceLock::new();
/// Identifies the programs that this process starts.
static RUN: LazyLock<RunId> = LazyLock::new(|| RunId::generate().expect("the kernel provides random bytes"));
/// The guard; `None` before it starts, or if it cannot be started, which affects only programs that ignore the end of their
/// input.
static GUARD: Mutex<Option<Guard>> = Mutex::new(None);

fn guard() -> MutexGuard<'static, Option<Guard>> {
    GUARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// States the command, without the arguments for [`faultline_guard::serve`], that starts a guard. Without it, programs that
/// ignore the end of their input outlive this process if it is killed.
pub fn guard_with(command: Vec<OsString>) {
    drop(COMMAND.set(command));
}

/// Starts the guard, unless it is running. In the end, it removes `dir`, which contains the
/// [files](faultline_guard::group_file) with the programs' process groups.
pub(crate) fn start(dir: &Path) {
    let mut guard = guard();
    if let Some(command) = COMMAND.get().filter(|it| !it.is_empty() && guard.is_none()) {
        *guard = Guard::start(command, &RUN, dir, true).ok();
    }
}

/// Returns the value of the environment variable [`faultline_guard::VARIABLE`] of all programs that this process starts.
pub(crate) fn id() -> String {
    RUN.of_programs()
}

/// Lets the guard end the programs that remain, and waits for it.
pub(crate) fn end() {
    drop(guard().take());
}
